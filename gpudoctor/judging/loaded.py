"""The GPU libraries that a framework has loaded, next to the installed ones of the same name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.libraries import Library
from gpudoctor.model import Skip

_SONAME = re.compile(r"(.+?\.so(?:\.\d+)?)(?:\.[\d.]+)?")
_VERSION = re.compile(r"\.so\.([\d.]+)$")
# Library -> the beginning of the name of its wheel.
WHEELS = {
    "libcudart": "nvidia-cuda-runtime",
    "libcudnn": "nvidia-cudnn",
    "libcublas": "nvidia-cublas",
    "libcufft": "nvidia-cufft",
    "libcufile": "nvidia-cufile",
    "libcupti": "nvidia-cuda-cupti",
    "libcurand": "nvidia-curand",
    "libcusolver": "nvidia-cusolver",
    "libcusparseLt": "nvidia-cusparselt",
    "libcusparse": "nvidia-cusparse",
    "libnccl": "nvidia-nccl",
    "libnvJitLink": "nvidia-nvjitlink",
    "libnvrtc": "nvidia-cuda-nvrtc",
    "libnvshmem": "nvidia-nvshmem",
}


@dataclass(frozen=True)
class Loaded:
    """framework: that loaded it. owner: a package with its version, or where it comes from. others: installed files of the same
    name, none of which was loaded."""

    framework: str
    soname: str
    version: str
    path: str
    owner: str
    others: tuple[Library, ...]

    @property
    def in_wheel(self) -> Library | None:
        """The file of this name in a wheel, if another one was loaded."""
        return next((other for other in self.others if other.owner == "wheel"), None)


def table(facts: Facts) -> tuple[Loaded, ...]:
    """Skip if no framework was imported, or by an older gpudoctor."""
    return facts.once(_table)


def fact(facts: Facts) -> dict[str, list[dict[str, object]]]:
    """For a report; empty if nothing is known."""
    try:
        return {"loaded_libraries": [_plain(row) for row in table(facts)]}
    except Skip:
        return {}


def _plain(row: Loaded) -> dict[str, object]:
    about = {"soname": row.soname, "version": row.version, "framework": row.framework, "owner": row.owner, "path": row.path}
    return {**about, "also_installed": [f"{other.version or '?'} {other.real_path}" for other in row.others]}


def _table(facts: Facts) -> Iterator[Loaded]:
    found = [_row(facts, framework, path) for framework, paths in facts.measured.loaded.items() for path in paths]
    if not found:
        raise Skip("no framework was imported, or its libraries were not recorded")
    yield from found


def _row(facts: Facts, framework: str, path: str) -> Loaded:
    soname = _soname(path)
    none: tuple[Library, ...] = ()
    every = [
        library for library in known(lambda: facts.libraries.all, none) if library.soname == soname and library.size is not None
    ]
    record = next((library for library in every if path in (library.real_path, library.path)), None)
    others = {library.real_path: library for library in every if path not in (library.real_path, library.path)}
    usual = tuple(library for library in others.values() if not library.is_stub and not library.is_compat)
    version = (record and record.release and record.version) or (_VERSION.search(path) or ["", ""])[1]
    package = _package(facts, soname) if "/site-packages/" in path or "/dist-packages/" in path else ""
    return Loaded(framework, soname, version, path, package or (record.owner if record else "unknown"), usual)


def _soname(path: str) -> str:
    """libcudnn.so.9 of /usr/lib/libcudnn.so.9.10.2."""
    name = posixpath.basename(path)
    matched = _SONAME.fullmatch(name)
    return matched[1] if matched else name


def _package(facts: Facts, soname: str) -> str:
    """`nvidia-cudnn-cu12 9.10.2.21`; "" if no wheel of this library is installed."""
    beginning = next((wheel for library, wheel in WHEELS.items() if soname.startswith(library)), "")
    packages = known(lambda: facts.python.packages, {}) if beginning else {}
    names = [name for name in packages if re.fullmatch(rf"{re.escape(beginning)}(-cu\d+)?", name)]
    return f"{names[0]} {packages[names[0]][0].version}" if names else ""
