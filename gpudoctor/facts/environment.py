"""The environment variables that matter to GPU programs, and NCCL settings in files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.replies import Replies

_USER_NCCL_FILE = "~/.nccl.conf"
_SYSTEM_NCCL_FILE = "/etc/nccl.conf"


@dataclass(frozen=True)
class Setting(Guarded):
    """A value, with "environment" or the file that it comes from."""

    value: str
    source: str


class Environment(Guarded):
    """The environment of the examined process; a variable with a private value is "present"."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def variables(self) -> dict[str, str]:
        return dict(self._replies.value("environment"))

    def get(self, name: str) -> str | None:
        return self.variables.get(name)

    def set_in(self, name: str) -> tuple[str, ...]:
        """Where a variable is set, as far as it was found: "/root/.bashrc:12", "start of the container"."""
        return tuple(self._replies.value("variable-sources").get(name, ()))

    @cached_property
    def path(self) -> tuple[str, ...]:
        """The entries of PATH."""
        return _entries(self.variables.get("PATH", ""), ":")

    @cached_property
    def library_path(self) -> tuple[str, ...]:
        """The entries of LD_LIBRARY_PATH, in the loader's search order."""
        return _entries(self.variables.get("LD_LIBRARY_PATH", ""), "[:;]")

    def library_path_without(self, place: int | None) -> str:
        """LD_LIBRARY_PATH without one of its entries."""
        return ":".join(entry for index, entry in enumerate(self.library_path) if index != place)

    @cached_property
    def interfaces(self) -> tuple[str, ...]:
        """The network interfaces of this machine or container."""
        return tuple(path.rsplit("/", 1)[-1] for path in self._replies.value("glob:/sys/class/net/*"))

    @cached_property
    def nccl(self) -> dict[str, Setting]:
        """The settings that NCCL uses: the environment overrides the user's file, which overrides the system's file.

        https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
        """
        settings = {}
        for file in (_SYSTEM_NCCL_FILE, self.variables.get("NCCL_CONF_FILE", _USER_NCCL_FILE)):
            values = parse_nccl_conf(self._replies.file(file) or "")
            settings.update({name: Setting(value, file) for name, value in values.items()})
        from_environment = {name: value for name, value in self.variables.items() if name.startswith("NCCL_")}
        return settings | {name: Setting(value, "environment") for name, value in from_environment.items()}


def _entries(text: str, separators: str) -> tuple[str, ...]:
    return tuple(entry for entry in re.split(separators, text) if entry)


def parse_nccl_conf(text: str) -> dict[str, str]:
    """The NAME=VALUE lines of an nccl.conf."""
    lines = (line.partition("=") for line in text.splitlines() if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, _, value in lines}
