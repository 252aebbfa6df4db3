"""Builds a wheel of the running gpudoctor, from a checkout or an installation, without a build tool or a network.

The format: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

from __future__ import annotations

import importlib.metadata
import zipfile
from collections.abc import Iterator
from pathlib import Path

from gpudoctor.folders import package, shipped
from gpudoctor.version import __version__

_YEAR_ZERO = (1980, 1, 1, 0, 0, 0)  # the same files make the same wheel, so that an image is not rebuilt
_WHEEL = "Wheel-Version: 1.0\nGenerator: gpudoctor\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_PROGRAM = "[console_scripts]\ngpudoctor = gpudoctor.__main__:main\n"


def write(folder: Path) -> Path:
    path = folder / f"gpudoctor-{__version__}-py3-none-any.whl"
    files = {name: file.read_bytes() for name, file in _files()}
    about = f"gpudoctor-{__version__}.dist-info"
    files |= {f"{about}/METADATA": _metadata(), f"{about}/WHEEL": _WHEEL.encode()}
    files |= {f"{about}/entry_points.txt": _PROGRAM.encode()}
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD")).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _YEAR_ZERO)
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return path


def _files() -> Iterator[tuple[str, Path]]:
    """Name in the wheel, and file. In a checkout, the folders checks and images are next to the package."""
    for top, folder in (("", package()), ("checks/", shipped("checks")), ("images/", shipped("images"))):
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"gpudoctor/{top}{file.relative_to(folder).as_posix()}", file


def _metadata() -> bytes:
    """Includes the requirements if gpudoctor is installed, so that `pip check` in the image can verify them."""
    try:
        requires = importlib.metadata.requires("gpudoctor") or []
    except importlib.metadata.PackageNotFoundError:
        requires = []
    needed = [f"Requires-Dist: {requirement}" for requirement in requires if "extra ==" not in requirement]
    return "\n".join(["Metadata-Version: 2.1", "Name: gpudoctor", f"Version: {__version__}", *needed, ""]).encode()
