"""The device nodes that a CUDA program opens, and the user and groups of this process."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Unavailable


@dataclass(frozen=True)
class Node:
    """One device node. Only nvidiactl, nvidia-uvm and dxg are opened: opening a GPU's own node can initialise the GPU."""

    mode: int  # permission bits: 0o666
    uid: int
    gid: int
    group: str  # "" if the group has no name, or a personal one
    major: int
    minor: int
    is_device: bool  # a bind mount of a node that does not exist makes a directory
    readable_writable: bool
    open_error: str | None  # EPERM, ENODEV, EIO ...; None if it was opened, or not tried


@dataclass(frozen=True)
class Identity(Guarded):
    """The process's identity: effective ids, and group id -> name ("" if the group has no name, or a personal one)."""

    uid: int
    gid: int
    groups: dict[int, str]

    @property
    def is_root(self) -> bool:
        return self.uid == 0


class Devices(Guarded):
    """The nodes of NVIDIA and InfiniBand in /dev."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def _answer(self) -> dict[str, dict[str, Any]]:
        answer: dict[str, dict[str, Any]] = self._replies.value("devices")
        return answer

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """Path -> node, for nodes whose metadata could be read."""
        return {path: self._node(raw) for path, raw in self._answer.items() if "error" not in raw}

    @cached_property
    def unreadable(self) -> dict[str, str]:
        """Path -> name of the error, for nodes that are listed but cannot be read (such as a dangling link)."""
        return {path: str(error_name(raw["error"])) for path, raw in self._answer.items() if "error" in raw}

    @cached_property
    def gpu_nodes(self) -> tuple[str, ...]:
        """/dev/nvidia0 and so on, in numeric order."""
        paths = (path for path in self.nodes if re.fullmatch(r"/dev/nvidia\d+", path))
        return tuple(sorted(paths, key=lambda path: int(path[len("/dev/nvidia") :])))

    @cached_property
    def identity(self) -> Identity:
        raw = self._replies.value("identity")
        return Identity(raw["uid"], raw["gid"], {int(gid): name for gid, name in raw["groups"].items()})

    @cached_property
    def _owners(self) -> dict[str, str]:
        try:
            names: dict[str, str] = self._replies.value("identity").get("owners", {})
        except Unavailable:
            return {}
        return names

    def _node(self, raw: dict[str, Any]) -> Node:
        return Node(
            mode=permissions(raw["mode"]),
            uid=raw["uid"],
            gid=raw["gid"],
            group=self._owners.get(str(raw["gid"]), ""),
            major=raw["major"],
            minor=raw["minor"],
            is_device=raw["type"] == "character",
            readable_writable=raw["access"],
            open_error=error_name(raw["open_error"]),
        )


def permissions(mode: int | str) -> int:
    """The permission bits, which another collector may write as octal text: "0666"."""
    return int(mode, 8) if isinstance(mode, str) else mode


def error_name(said: str | int | None) -> str | None:
    """EPERM, also if another collector or a person wrote 1, `Operation not permitted` or `[Errno 1] ...`; None for "" and 0."""
    if isinstance(said, int):
        return errno.errorcode.get(said)
    named = (name for words, name in _ERRORS.items() if said and words in said)
    return next(named, said or None)


_ERRORS = {os.strerror(code): name for code, name in errno.errorcode.items()}
