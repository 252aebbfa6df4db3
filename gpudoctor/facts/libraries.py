"""The installed CUDA libraries, their owners, and which of them the loader would use."""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from packaging.version import Version

from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Unavailable

_CACHE_LINE = re.compile(r"^\s*(\S+) \(([^)]*)\) => (/.*?)\s*$", re.MULTILINE)
_DPKG_LINE = re.compile(r"^([a-z0-9][a-z0-9.+-]*)\S*(?:, \S+)*: (/.*)$", re.MULTILINE)
_64_BIT = re.compile(r"x86-64|AArch64|64bit")
_TOOLKIT = re.compile(r"/usr/local/cuda[^/]*/|/opt/cuda/|/usr/lib/(nvidia-cuda-toolkit|cuda)/")
_OF_FILE = re.compile(r"\.so\.([\d.]+)$")
_PRELOAD_VARIABLES = ("LD_PRELOAD", "LD_AUDIT")
_PRELOAD_FILE = "/etc/ld.so.preload"
_DRIVER_LIBRARY = re.compile(r"lib(cuda|cudadebugger|nvcuvid|nvidia-[\w-]+|GLX_nvidia|EGL_nvidia)")


@dataclass(frozen=True)
class Library(Guarded):
    """One path of a library; several paths can lead to one file.

    via: where it was found: "LD_LIBRARY_PATH", "default" (the loader's default folders), "wsl", "driver", "local", "compat",
    "stubs", "toolkit", "wheel", "conda", or "ld-cache" if only the cache lists it. owner: "wheel", "conda", "dpkg:NAME",
    "rpm:NAME", "toolkit", "driver" (owned by no package), "container" (mounted into it), "wsl" or "unknown".
    """

    soname: str  # the file name at this path, which a loader asks for
    name: str  # libcudnn
    version: str | None  # the suffix of the real file's name: 9.10.2
    path: str
    real_path: str
    size: int | None  # None: a dangling link
    via: str
    owner: str
    index: int | None = None  # of the entry in LD_LIBRARY_PATH

    @property
    def release(self) -> Version | None:
        """The version, if the file's name is more specific than libcublas.so.12."""
        return Version(self.version) if self.version and "." in self.version else None

    @property
    def directory(self) -> str:
        return posixpath.dirname(self.path)

    @property
    def is_stub(self) -> bool:
        """A stub to link against, which does nothing when loaded."""
        return "/stubs/" in self.path or "/stubs/" in self.real_path

    @property
    def is_compat(self) -> bool:
        """Part of a forward-compatibility package (cuda-compat)."""
        return any(re.search(r"/(cuda-)?compat/", path) for path in (self.path, self.real_path))


@dataclass(frozen=True)
class Preload(Guarded):
    """A library that the loader loads before all others, in every program."""

    entry: str  # as written in the source
    source: str  # the variable or the file
    others: tuple[str, ...]  # the other entries of the source, in order
    library: Library | None  # None if it was not found in any examined folder

    @property
    def name(self) -> str:
        """libnccl.so.2"""
        return posixpath.basename(self.entry)


class Libraries(Guarded):
    """The libraries in the places where loaders and frameworks look; 32-bit libraries are left out."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def all(self) -> tuple[Library, ...]:
        """Every path, in search order."""
        return tuple(self._library(record) for record in self._replies.value("libraries"))

    def named(self, name: str) -> tuple[Library, ...]:
        """Each real file of a library ("libcudnn") once, by the path that a loader would use."""
        files: dict[str, Library] = {}
        for library in (library for library in self.all if library.name == name):
            known = files.setdefault(library.real_path, library)
            if known.directory == library.directory and _is_soname(library) and not _is_soname(known):
                files[library.real_path] = library
        return tuple(files.values())

    def majors(self, name: str) -> dict[int, Library]:
        """Major version -> the first loadable library of that version: 12 for libcublas.so.12."""
        loadable = (library for library in self.named(name) if library.version and library.size is not None)
        found: dict[int, Library] = {}
        for library in (library for library in loadable if not library.is_stub):
            found.setdefault(int((library.version or "").split(".")[0]), library)
        return found

    def here(self, name: str) -> str:
        """The sonames of a library that can be loaded, "libcudnn.so.8, libcudnn.so.9", or "none"."""
        return ", ".join(f"{name}.so.{major}" for major in sorted(self.majors(name))) or "none"

    def resolved(self, soname: str) -> Library | None:
        """The library that the loader would use for a program without its own search path: ld.so(8)."""
        named = [library for library in self.all if library.soname == soname and library.size is not None]
        cached = {path for name, path in self.cache if name == soname}
        first_cached = next((path for name, path in self.cache if name == soname), None)
        candidates = (
            *(library for library in named if library.via == "LD_LIBRARY_PATH"),
            *(library for library in named if library.path == first_cached),
            *(library for library in named if library.path in cached),
            *(library for library in named if library.via == "default"),
        )
        return next(iter(candidates), None)

    @cached_property
    def preloads(self) -> tuple[Preload, ...]:
        """The libraries that ld.so(8) loads before all others."""
        environment = self._replies.value("environment")
        texts = {name: environment.get(name, "") for name in _PRELOAD_VARIABLES}
        with contextlib.suppress(Unavailable):
            texts[_PRELOAD_FILE] = re.sub(r"#.*", "", self._replies.file(_PRELOAD_FILE) or "")
        found = ((source, [entry for entry in re.split(r"[:\s]+", text) if entry]) for source, text in texts.items())
        return tuple(
            Preload(entry, source, tuple(one for one in entries if one != entry), self._at(entry))
            for source, entries in found
            for entry in entries
        )

    def _at(self, entry: str) -> Library | None:
        """/usr/lib64/libnccl.so.2 and /lib64/libnccl.so.2 are one file on all current systems."""
        if "/" not in entry:
            return self.resolved(entry)
        names = {library: {_merged(library.path), _merged(library.real_path)} for library in self.all}
        return next((library for library, paths in names.items() if _merged(entry) in paths), None)

    @cached_property
    def cache(self) -> tuple[tuple[str, str], ...]:
        """(soname, path) of the 64-bit entries in the loader's cache; empty if there is no ldconfig."""
        answer = self._replies.command("ldconfig -p")
        return parse_cache(answer["out"]) if answer else ()

    @cached_property
    def configured_directories(self) -> dict[str, tuple[str, ...]]:
        """The file under /etc -> the folders that it adds to ldconfig."""
        files = self._replies.files("/etc/ld.so.conf.d/*")
        main = self._replies.file("/etc/ld.so.conf")
        texts = files if main is None else {"/etc/ld.so.conf": main, **files}
        return {path: tuple(re.findall(r"^\s*(/[^#\s]*)", text, re.MULTILINE)) for path, text in texts.items()}

    @cached_property
    def _owners(self) -> dict[str, str | None]:
        """The package of each queried path, None for no package; empty if no package manager could answer."""
        try:
            return parse_owners(self._replies.value("library-owners"))
        except Unavailable:
            return {}

    @cached_property
    def _conda_prefix(self) -> str | None:
        try:
            prefix: str | None = self._replies.value("interpreter")["conda_prefix"]
        except Unavailable:
            return None
        return prefix

    def _library(self, record: Mapping[str, Any]) -> Library:
        soname = posixpath.basename(record["path"])
        return Library(
            soname=soname,
            name=soname.split(".so")[0],
            version=_version(record["real_path"]),
            path=record["path"],
            real_path=record["real_path"],
            size=record["size"],
            via=record["via"],
            owner=self._owner(record),
            index=record.get("index"),
        )

    def _owner(self, record: Mapping[str, Any]) -> str:
        path = record["real_path"]
        if "/wsl/" in path:
            return "wsl"
        if "/site-packages/" in path or "/dist-packages/" in path:
            return "wheel"
        if self._conda_prefix and path.startswith(self._conda_prefix + "/"):
            return "conda"
        if record.get("mounted"):
            return "container"
        return self._owners.get(path) or self._owner_without_package(record)

    def _owner_without_package(self, record: Mapping[str, Any]) -> str:
        path = record["real_path"]
        if _TOOLKIT.match(path):
            return "toolkit"
        is_unpackaged = path in self._owners and _DRIVER_LIBRARY.match(posixpath.basename(path))
        return "driver" if is_unpackaged or record["via"] == "driver" else "unknown"


def _merged(path: str) -> str:
    return re.sub(r"^/usr(?=/lib)", "", path)


def _is_soname(library: Library) -> bool:
    """libcudnn.so.9, but not libcudnn.so or libcudnn.so.9.10.2."""
    return re.search(r"\.so\.\d+$", library.soname) is not None


def _version(real_path: str) -> str | None:
    match = _OF_FILE.search(real_path)
    return match[1] if match else None


@lru_cache(2)  # several snapshots of one machine are judged in one run: of a container and its host, or before and after a fix
def parse_cache(text: str) -> tuple[tuple[str, str], ...]:
    """The 64-bit entries of `ldconfig -p`; the loader uses the first entry of a name.

    >>> parse_cache("\\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1")
    (('libcuda.so.1', '/usr/lib/x86_64-linux-gnu/libcuda.so.1'),)
    """
    return tuple((match[1], match[3]) for match in _CACHE_LINE.finditer(text) if _64_BIT.search(match[2]))


def parse_owners(answer: Mapping[str, Any]) -> dict[str, str | None]:
    """Real path -> "dpkg:NAME" or "rpm:NAME", None if no package owns it, from the output of `dpkg-query -S` or `rpm -qf`."""
    nobody: dict[str, str | None] = dict.fromkeys(answer["paths"])
    if not nobody:
        return {}
    if answer["manager"] == "dpkg":
        return nobody | _dpkg_owners(answer.get("code", 0), answer["out"])
    return nobody | _rpm_owners(answer["paths"], answer["out"])


def _dpkg_owners(code: int, text: str) -> dict[str, str]:
    """Lines such as "libnvidia-compute-580:amd64: /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04"."""
    if code > 1:  # 1: some paths have no owner
        raise Unavailable("dpkg-query failed")
    owners = {path: f"dpkg:{name}" for name, path in _DPKG_LINE.findall(text)}
    return owners | {"/usr" + path: owner for path, owner in owners.items() if path.startswith("/lib")}


def _rpm_owners(paths: list[str], text: str) -> dict[str, str]:
    """One line per path, in the same order: the name of a package, or a sentence that no package owns it."""
    lines = text.splitlines()
    if len(lines) != len(paths):  # a path with two owners has two lines
        raise Unavailable("the output of rpm cannot be split by path")
    return {path: f"rpm:{line}" for path, line in zip(paths, lines, strict=True) if " " not in line}
