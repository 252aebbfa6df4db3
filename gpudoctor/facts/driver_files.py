"""Which of the libraries found on a machine are the driver's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

_STANDARD_FOLDERS = ("/usr/lib/", "/usr/lib64/", "/lib/", "/lib64/", "/usr/local/nvidia/", "/nix/store/")
_NOT_THE_DRIVER = re.compile(r"/(compat|stubs|wsl)\b|cuda-compat")
# WSL's libcuda.so.1.1 has no driver version in its name.
_DRIVER_LIBRARY = re.compile(r"lib(?:nvidia-ml|cuda)\.so\.(\d{2,}\.\d+(?:\.\d+)?)")


def driver_libraries(libraries: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """(path, version) of those in the standard folders, in the order given."""
    for library in libraries:
        real = library["real_path"]
        match = _DRIVER_LIBRARY.fullmatch(PurePosixPath(real).name)
        is_there = library.get("size") is not None
        if match and is_there and real.startswith(_STANDARD_FOLDERS) and not _NOT_THE_DRIVER.search(real):
            yield library["path"], match[1]
