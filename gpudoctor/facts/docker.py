"""What a Docker daemon reports about itself, and its configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.facts.guarded import Guarded


@dataclass(frozen=True)
class Docker(Guarded):
    """A Docker daemon; if it is unreachable, only `endpoint` and `error` are meaningful."""

    reachable: bool
    error: str | None = None
    endpoint: str = ""
    version: str = ""
    runtimes: tuple[str, ...] = ()
    runtime_programs: Mapping[str, str] = field(default_factory=dict)  # runtime -> its program, as configured in the daemon
    default_runtime: str = ""
    cgroup_driver: str = ""
    cgroup_version: str = ""
    operating_system: str = ""
    kernel: str = ""
    root_dir: str = ""
    security_options: tuple[str, ...] = ()
    cdi_spec_dirs: tuple[str, ...] = ()
    discovered_devices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    components: Mapping[str, str] = field(default_factory=dict)

    @property
    def rootless(self) -> bool:
        return self.has_option("rootless")

    @property
    def uses_user_namespaces(self) -> bool:
        """userns-remap: root in a container is not root on the host."""
        return self.has_option("userns")

    @property
    def is_desktop(self) -> bool:
        """Docker Desktop, whose daemon runs in a virtual machine."""
        return "Docker Desktop" in self.operating_system

    @property
    def numbers(self) -> tuple[int, ...]:
        """(28, 5, 2) of "28.5.2+dfsg1"."""
        return version_of(self.version) or ()

    @property
    def is_podman(self) -> bool:
        """Podman with Docker's interface, which accepts a request for GPUs but provides none."""
        return any("Podman" in name for name in self.components)

    def has_option(self, name: str) -> bool:
        return any(option.split(",")[0] in (name, f"name={name}") for option in self.security_options)


def docker_of(value: Mapping[str, Any]) -> Docker:
    """Reads the daemon's answers to GET /info and GET /version."""
    info, version = value.get("info") or {}, value.get("version") or {}
    return Docker(
        reachable=True,
        endpoint=value.get("endpoint", ""),
        version=info.get("ServerVersion") or version.get("Version", ""),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
        runtime_programs=dict(info.get("Runtimes") or {}),
        default_runtime=info.get("DefaultRuntime") or "",
        cgroup_driver=info.get("CgroupDriver") or "",
        cgroup_version=str(info.get("CgroupVersion") or ""),
        operating_system=info.get("OperatingSystem") or "",
        kernel=info.get("KernelVersion") or "",
        root_dir=info.get("DockerRootDir") or "",
        security_options=tuple(info.get("SecurityOptions") or ()),
        cdi_spec_dirs=tuple(info.get("CDISpecDirs") or ()),
        discovered_devices=tuple(info.get("DiscoveredDevices") or ()),
        warnings=tuple(info.get("Warnings") or ()),
        components=dict(version.get("Components") or {}),
    )


def daemon_json_of(text: str) -> tuple[dict[str, Any] | None, str | None]:
    """The settings, or the error in them; an empty file is an empty configuration, as for dockerd."""
    text = text.lstrip("\ufeff")
    try:
        settings = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as failure:
        return None, f"{failure.msg}: line {failure.lineno} column {failure.colno}"
    if not isinstance(settings, dict):
        return None, "it is not a JSON object"
    return settings, None


def version_of(text: str) -> tuple[int, ...] | None:
    """The first dotted version of a text: "NVIDIA Container Toolkit CLI version 1.17.8" -> (1, 17, 8)."""
    version = re.search(r"\b\d+(?:\.\d+)+", text)
    return tuple(map(int, version[0].split("."))) if version else None
