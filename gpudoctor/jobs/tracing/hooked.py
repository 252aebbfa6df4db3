"""A command whose Pythons load the tracer: its folder, and the variables that lead there."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gpudoctor.jobs.tracing import kernel_code
from gpudoctor.judging.experiments.suspect import Surroundings, Suspect
from gpudoctor.trying.start import Start

VARIABLE = "GPUDOCTOR_PROFILE"
PACKAGE = "gpudoctor_tracing"
QUIET_KINETO = "5"  # above its last level
# Valid in every Python, since a command may start old ones. The program finds sys.path and its own sitecustomize as they would be
# without this file.
SITECUSTOMIZE = f"""\
import os, sys
_folder = os.path.dirname(os.path.abspath(__file__))
if sys.version_info >= (3, 8) and {VARIABLE!r} in os.environ:
    try:
        from {PACKAGE} import hook
        hook.install(os.environ[{VARIABLE!r}])
    except Exception:
        pass
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _folder]
_own = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError:
    if getattr(sys.exc_info()[1], "name", "sitecustomize") != "sitecustomize":
        raise
finally:
    if _own is not None:
        sys.modules.setdefault("sitecustomize", _own)
"""


@dataclass(frozen=True)
class Window:
    """How much is recorded: steps of the optimizer after `warmup` steps, and at most about `seconds`.

    after: without an optimizer, so many seconds after the first use of CUDA. memory: with the history of torch's allocator.
    """

    steps: int
    seconds: float
    warmup: int
    after: float = 3.0
    memory: bool = False


@dataclass(frozen=True)
class Hooked:
    """A place to run a command. before: words in front of it, of a tracer from outside. out: where its recordings go.

    kernel: the name of the one whose code is wanted; then only its compilers are heard. engines: which of "torch" and "cupti" may
    record in the program.
    """

    argv: tuple[str, ...]
    variables: Mapping[str, str] = field(repr=False)
    window: Window
    out: Path
    before: tuple[str, ...] = ()
    has_hook: bool = True
    kernel: str = ""
    engines: tuple[str, ...] = ("torch",)

    @contextlib.contextmanager
    def started(self, away: Sequence[Suspect], surroundings: Surroundings, has_terminal: bool) -> Iterator[Start]:
        if not self.has_hook:
            yield Start((*self.before, *self.argv), self.variables)
            return
        folder = Path(tempfile.mkdtemp(prefix="gpudoctor-profile-"))
        try:
            write(folder)
            yield Start((*self.before, *self.argv), self._environment(folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _environment(self, folder: Path) -> dict[str, str]:
        window = self.window
        settings = {"folder": str(self.out), **asdict(window), "engines": self.engines}
        settings |= {"kernel": self.kernel} if self.kernel else {}
        paths = [str(folder), *filter(None, [self.variables.get("PYTHONPATH", "")])]
        return {
            "KINETO_LOG_LEVEL": QUIET_KINETO,
            "TEARDOWN_CUPTI": "0",  # as torch sets it: CUPTI crashes if it is started again in a program with CUDA graphs
            **self.variables,
            **(kernel_code.variables(self.out) if self.kernel else {}),
            "PYTHONPATH": ":".join(paths),
            VARIABLE: json.dumps(settings),
        }


def write(folder: Path) -> None:
    """The files of the tracer, under a name that no program has."""
    from gpudoctor.worker import tracing

    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE, encoding="utf-8")
    (folder / PACKAGE).mkdir()
    for file in sorted(Path(tracing.__file__).parent.glob("*.py")):
        text = file.read_text(encoding="utf-8").replace(tracing.__name__, PACKAGE)
        (folder / PACKAGE / file.name).write_text(text, encoding="utf-8")
