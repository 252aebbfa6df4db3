"""The program `gpudoctor`, and `python -m gpudoctor`."""

from __future__ import annotations

import os
import sys

# Python puts the current folder on the path for -m. Its files must not hide modules, unless gpudoctor itself is there.
if __name__ == "__main__" and not (sys.flags.safe_path if sys.version_info >= (3, 11) else False):
    if not os.path.exists(os.path.join(sys.path[0], "gpudoctor", "__main__.py")):  # noqa: PTH110, PTH118 (pathlib is not loaded)
        del sys.path[0]

import atexit
import gc
import signal
from types import FrameType

# What a command loads stays until it ends: to search it for garbage at each 700 new objects is a tenth of a start.
NEW_OBJECTS = 20_000


def main() -> None:
    """Runs a command. While its code is still being imported, ^C ends the program without a traceback."""
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)  # else the interpreter searches them all once more, only to end: a sixth of a check
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else it is ignored, as under nohup
        signal.signal(signal.SIGINT, _leave)
    from gpudoctor import cli

    signal.signal(signal.SIGINT, before)
    cli.main(prog_name="gpudoctor")


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
