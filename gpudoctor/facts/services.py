"""The services of the driver: systemd units, processes, Fabric Manager's log, the vGPU licence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from gpudoctor.facts.devices import permissions
from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Skip, Unavailable

SHOW = "command:systemctl show "
UNIT_FIELDS = {"LoadState": "load", "ActiveState": "active", "SubState": "sub", "Result": "result", "UnitFileState": "enabled"}


@dataclass(frozen=True)
class Unit(Guarded):
    """A systemd unit in systemd's words: loaded or masked; active, inactive or failed; running, exited or dead; the result of its
    last run (success, exit-code, timeout); enabled, disabled or static."""

    name: str
    load: str = ""
    active: str = ""
    sub: str = ""
    result: str = ""
    enabled: str = ""

    @property
    def is_active(self) -> bool:
        return self.active == "active"


@dataclass(frozen=True)
class Process(Guarded):
    """A process of interest; state is the kernel's letter: R, S, D (stuck in the kernel), Z, T."""

    name: str
    pid: int
    state: str


@dataclass(frozen=True)
class LicenceToken:
    """A client configuration token of the vGPU licence service."""

    name: str
    mode: int


class Services(Guarded):
    """The services around the driver. In a container, those of the container and not of its host."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def _units(self) -> dict[str, Unit]:
        replies = self._replies.starting_with(SHOW)
        if not replies:
            raise Unavailable("systemctl was not run")
        answer = self._replies.value(next(iter(replies)))
        if answer["code"] != 0:
            words = answer["err"].strip().splitlines()
            raise Unavailable("systemd does not answer" + (f": {words[0]}" if words else ""), Skip.UNSUPPORTED)
        return units(answer["out"])

    def unit(self, name: str) -> Unit | None:
        """The unit `name` (with or without ".service"), None if it does not exist; Unavailable without systemd."""
        return self._units.get(name.removesuffix(".service"))

    @cached_property
    def _processes(self) -> tuple[Process, ...]:
        return tuple(Process(raw["name"], raw["pid"], raw["state"]) for raw in self._replies.value("processes"))

    @cached_property
    def processes(self) -> dict[str, tuple[int, ...]]:
        """Name -> process ids, for the names of interest."""
        names = {process.name for process in self._processes}
        return {name: tuple(p.pid for p in self._processes if p.name == name) for name in sorted(names)}

    def is_running(self, name: str) -> bool:
        """Whether a process of this name is alive; Unavailable if the processes of other users are hidden."""
        return any(process.name == name and process.state not in "ZX" for process in self._processes)

    @cached_property
    def stuck(self) -> tuple[Process, ...]:
        """NVIDIA processes and threads that were waiting in the kernel (state D) when they were read."""
        return tuple(p for p in self._processes if p.state == "D" and p.name.startswith("nv"))

    @cached_property
    def fabric_manager_version(self) -> str | None:
        """None if Fabric Manager is not installed."""
        answer = self._replies.command("nv-fabricmanager --version")
        if answer is None:
            return None
        version = re.search(r"\d+\.\d+(\.\d+)?", answer["out"] + answer["err"])
        if not version:
            raise Unavailable("nv-fabricmanager --version names no version")
        return version[0]

    @cached_property
    def fabric_manager_log(self) -> str | None:
        """The end of /var/log/fabricmanager.log."""
        return self._replies.file("/var/log/fabricmanager.log")

    @property
    def has_imex_nodes(self) -> bool:
        """Whether /etc/nvidia-imex/nodes_config.cfg, the list of nodes in a domain, exists."""
        return bool(self._replies.value("service-files")["/etc/nvidia-imex/nodes_config.cfg"])

    @cached_property
    def licence_tokens(self) -> tuple[LicenceToken, ...]:
        return tuple(LicenceToken(raw["name"], permissions(raw["mode"])) for raw in self._replies.value("licence-tokens"))

    @cached_property
    def licence_configuration(self) -> dict[str, str] | None:
        """The settings of /etc/nvidia/gridd.conf, FeatureType and so on; None if there is no such file."""
        text = self._replies.file("/etc/nvidia/gridd.conf")
        return None if text is None else settings(text)


def units(text: str) -> dict[str, Unit]:
    """Name without ".service" -> unit, from the output of `systemctl show`; units that do not exist are left out."""
    found = {}
    for block in re.split(r"\n\s*\n", text.strip()):
        properties = settings(block)
        if properties.get("LoadState", "not-found") != "not-found":
            name = properties["Id"].removesuffix(".service")
            found[name] = Unit(name, **{field: properties.get(key, "") for key, field in UNIT_FIELDS.items()})
    return found


def settings(text: str) -> dict[str, str]:
    """NAME=VALUE lines, without comments."""
    lines = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, sign, value in lines if sign}
