"""A process that ends with its block, also where a test fails in it."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import Any


class Process(subprocess.Popen[Any]):
    """Popen alone would wait for it for ever."""

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        if kind:
            self.kill()
        super().__exit__(kind, value, traceback)
