"""The compilers, profilers and CUDA toolkits that were found, with their versions."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Unavailable

Version = tuple[int, ...]
# "release 12.4, V12.4.131" of nvcc, "12.2.0" at the end of a gcc's first line, "clang version 14.0.6", "2025.3.1.0" of ncu
_NVCC = re.compile(r"\bV(\d+(?:\.\d+)+)")
_NUMBERS = re.compile(r"(?<![\w.~+-])(\d+(?:\.\d+)+)")


@dataclass(frozen=True)
class Tool(Guarded):
    """A program; version is None if it did not print one."""

    name: str
    path: str
    real_path: str
    version: Version | None
    on_path: bool


@dataclass(frozen=True)
class Toolkit(Guarded):
    """A CUDA toolkit, or the remains of one, by the real name of its folder."""

    root: str
    version: Version | None


class Toolchain(Guarded):
    """The programs that compile for a GPU and profile it."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def _found(self) -> dict[str, Any]:
        return dict(self._replies.value("toolchain"))

    def _told(self, name: str) -> Any:
        if name not in self._found:
            raise Unavailable(f"{name} of the toolchain is unknown")
        return self._found[name]

    @cached_property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """Name -> every place of a program on PATH, in order; programs that were not found are left out."""
        return {name: tuple(paths) for name, paths in self._told("programs").items()}

    @cached_property
    def nvccs(self) -> tuple[Tool, ...]:
        """Each nvcc once: those on PATH in order, then those in toolkits and wheels."""
        tools = (self._tool("nvcc", path) for path in self._told("versions") if posixpath.basename(path) == "nvcc")
        by_file: dict[str, Tool] = {}
        for tool in sorted(tools, key=lambda tool: not tool.on_path):
            by_file.setdefault(tool.real_path, tool)
        return tuple(by_file.values())

    @property
    def nvcc(self) -> Tool | None:
        """The nvcc that a build uses."""
        return next((tool for tool in self.nvccs if tool.on_path), None)

    @property
    def default_nvcc(self) -> Tool | None:
        """The nvcc that a build uses; if none is on PATH, that of the first toolkit."""
        in_toolkits = (tool for tool in self.nvccs if any(tool.real_path.startswith(kit.root + "/") for kit in self.toolkits))
        return self.nvcc or next(in_toolkits, None)

    @cached_property
    def compilers(self) -> dict[str, Tool]:
        """The first gcc, g++, clang and cc on PATH."""
        return {name: tool for name in ("gcc", "g++", "clang", "cc") if (tool := self.tool(name))}

    def tool(self, name: str) -> Tool | None:
        """The first program of this name on PATH."""
        return next((self._tool(name, path) for path in self.programs.get(name, ())), None)

    @cached_property
    def toolkits(self) -> tuple[Toolkit, ...]:
        """The toolkits, starting with those that CUDA_HOME and CUDA_PATH name."""
        return tuple(Toolkit(record["root"], toolkit_version(record)) for record in self._told("toolkits"))

    def root_of(self, path: str) -> str | None:
        """The folder that the value of CUDA_HOME or CUDA_PATH leads to, None if it does not exist."""
        homes: dict[str, str | None] = self._found.get("homes", {})
        plain = posixpath.normpath(path)
        if path in homes:
            return homes[path]
        if plain in {kit.root for kit in self.toolkits}:
            return plain
        if plain == "/usr/local/cuda":
            return self.default_toolkit
        raise Unavailable(f"{path} was not checked")

    def program_at(self, path: str) -> Tool | None:
        """A program by its path, if its version was queried."""
        return self._tool(posixpath.basename(path), path) if path in self._told("versions") else None

    @property
    def default_toolkit(self) -> str | None:
        """The folder that /usr/local/cuda leads to."""
        target: str | None = self._told("default")
        return target

    @property
    def libnvvm(self) -> tuple[str, ...]:
        return tuple(path for path in self._told("nvvm") if posixpath.basename(path).startswith("libnvvm.so"))

    @property
    def libdevice(self) -> tuple[str, ...]:
        return tuple(path for path in self._told("nvvm") if path.endswith(".bc"))

    @property
    def headers(self) -> tuple[str, ...]:
        """Every vector_types.h, cuda_runtime.h and cuda_fp16.h of the toolkits and wheels."""
        return tuple(self._told("headers"))

    def _tool(self, name: str, path: str) -> Tool:
        text = self._told("versions").get(path) or ""
        real_path = self._found.get("real_paths", {}).get(path, path)
        return Tool(name, path, real_path, program_version(text), path in self.programs.get(name, ()))


def program_version(text: str) -> Version | None:
    """The version in the output of a program for --version.

    >>> program_version("Cuda compilation tools, release 12.4, V12.4.131")
    (12, 4, 131)
    """
    match = _NVCC.search(text)
    if match is None:
        in_first_lines = (list(_NUMBERS.finditer(line)) for line in text.splitlines()[:3])
        match = next((matches[-1] for matches in in_first_lines if matches), None)
    return tuple(map(int, match[1].split("."))) if match else None


def toolkit_version(record: Mapping[str, str | None]) -> Version | None:
    """From version.json (CUDA 11.1 and newer), else version.txt, else CUDA_VERSION in cuda.h, else the folder's name."""
    stated = _stated_version(record.get("version_json"), record.get("version_txt"))
    if stated:
        return stated
    header = re.search(r"CUDA_VERSION (\d+)", record.get("cuda_h") or "")
    if header:
        return int(header[1]) // 1000, int(header[1]) % 1000 // 10
    folder = re.search(r"/cuda-(\d+)\.(\d+)$", record["root"] or "")
    return (int(folder[1]), int(folder[2])) if folder else None


def _stated_version(version_json: str | None, version_txt: str | None) -> Version | None:
    try:
        text = json.loads(version_json or "{}").get("cuda", {}).get("version")
    except (ValueError, AttributeError):
        text = None
    return program_version(text or version_txt or "")
