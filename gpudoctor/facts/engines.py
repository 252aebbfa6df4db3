"""The container engines of this host: the Docker daemon's answers, the engines' configuration, NVIDIA's toolkit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from gpudoctor.facts.container_start import Start, start_of
from gpudoctor.facts.containerd import imports_of
from gpudoctor.facts.docker import Docker, daemon_json_of, docker_of, version_of
from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Reply, Unavailable

DAEMON_JSON = "/etc/docker/daemon.json"
ROOTLESS_DAEMON_JSON = "~/.config/docker/daemon.json"
SNAP_DAEMON_JSON = "/var/snap/docker/current/config/daemon.json"
DESKTOP_DAEMON_JSON = "~/.docker/daemon.json"
CONTAINERD_FILES = (
    "/etc/containerd/config.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl",
    "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl",
)
HERE = ("localhost", "127.0.0.1", "::1")
HOOKS = ("nvidia-container-runtime-hook", "nvidia-cdi-hook", "nvidia-container-runtime")


class Engines(Guarded):
    """The container engines of this host."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def docker(self) -> Docker | None:
        """The daemon's answers; None if there is no socket, Unavailable if permission is denied or it does not answer."""
        reply = self._replies.get("docker")
        if reply.status == "error":
            return Docker(reachable=False, error=reply.detail)
        value = self._replies.optional("docker")
        if value and value.get("not_asked"):
            raise Unavailable(value["not_asked"])
        return docker_of(value) if value else None

    @cached_property
    def _programs(self) -> Mapping[str, Mapping[str, Any]]:
        return dict(self._replies.value("runtime-programs"))

    def program(self, name: str) -> str | None:
        """The real path of docker, podman, nvidia-ctk, nvidia-container-runtime-hook ...; None if not installed."""
        return self._programs[name]["real"] if name in self._programs else None

    @property
    def docker_installed(self) -> bool:
        return "docker" in self._programs or "dockerd" in self._programs

    @property
    def docker_binary(self) -> str | None:
        return self.program("docker")

    @property
    def podman_installed(self) -> bool:
        return "podman" in self._programs

    @property
    def toolkit_installed(self) -> bool:
        """NVIDIA's container toolkit is installed: one of its hooks or its runtime was found."""
        return any(name in self._programs for name in HOOKS)

    @cached_property
    def is_snap(self) -> bool:
        """Docker is installed as a snap, which cannot access the host's driver and toolkit."""
        if (self.docker_binary or "").startswith("/snap/") or self.docker_binary == "/usr/bin/snap":
            return True
        daemon = self._docker_if_known
        return bool(daemon and daemon.root_dir.startswith("/var/snap/"))

    @property
    def _docker_if_known(self) -> Docker | None:
        try:
            return self.docker
        except Unavailable:
            return None

    @property
    def _environment(self) -> Mapping[str, str]:
        return dict(self._replies.starting_with("environment").get("environment", Reply("missing")).value or {})

    @cached_property
    def docker_host(self) -> str | None:
        """DOCKER_HOST, which overrides every context."""
        return self._environment.get("DOCKER_HOST") or None

    @cached_property
    def context(self) -> str | None:
        """The context of the docker command: DOCKER_CONTEXT, else the configured one; None for the default."""
        if self.docker_host:
            return None
        if name := self._environment.get("DOCKER_CONTEXT"):
            return str(name)
        settings = self._replies.optional("docker-context") or {}
        current: str | None = settings.get("currentContext")
        return current or None

    @cached_property
    def context_is_missing(self) -> bool:
        """The selected context does not exist, so every docker command fails."""
        if not self.context:
            return False
        settings = self._replies.optional("docker-context") or {}
        return "endpoint" in settings and settings["endpoint"] is None

    @cached_property
    def endpoint(self) -> str:
        """The address of the docker command's daemon: unix://PATH, ssh://, tcp:// (another machine), tcp://localhost."""
        if host := self.docker_host:
            name = urlsplit(host if "://" in host else "tcp://" + host)
            return host if name.scheme == "unix" else f"{name.scheme}://" + "localhost" * (name.hostname in HERE)
        settings = (self._replies.optional("docker-context") or {}) if self.context else {}
        return str(settings.get("endpoint") or "")

    @property
    def daemon_is_elsewhere(self) -> bool:
        """The docker command uses a daemon on another machine, so nothing on this machine shows how it is set up."""
        return self.endpoint.startswith(("ssh://", "tcp://", "http")) and not self.endpoint.endswith("://localhost")

    @cached_property
    def start(self) -> Start | None:
        """How the examined container was started; None without a container."""
        reply = self._replies.starting_with("container-start").get("container-start")
        return start_of(reply.value) if reply else None

    @cached_property
    def daemon_json_path(self) -> str:
        """The configuration file that this daemon reads."""
        daemon = self._docker_if_known
        if self.is_snap:
            return SNAP_DAEMON_JSON
        if daemon and daemon.rootless:
            return ROOTLESS_DAEMON_JSON
        return DESKTOP_DAEMON_JSON if daemon and daemon.is_desktop else DAEMON_JSON

    @cached_property
    def _daemon_json(self) -> tuple[dict[str, Any] | None, str | None]:
        text = self._replies.file(self.daemon_json_path)
        return (None, None) if text is None else daemon_json_of(text)

    @property
    def daemon_json(self) -> dict[str, Any] | None:
        """None if there is no such file or it is not JSON; then see daemon_json_error."""
        return self._daemon_json[0]

    @property
    def daemon_json_error(self) -> str | None:
        return self._daemon_json[1]

    @cached_property
    def toolkit_version(self) -> tuple[int, ...] | None:
        """The version of the NVIDIA Container Toolkit, from nvidia-ctk; None if it is not installed."""
        return self._version("nvidia-ctk --version")

    @cached_property
    def container_cli_version(self) -> tuple[int, ...] | None:
        """The version of libnvidia-container, from nvidia-container-cli; None if it is not installed."""
        return self._version("nvidia-container-cli --version")

    def _version(self, command: str) -> tuple[int, ...] | None:
        answer = self._replies.command(command)
        if answer is None:
            return None
        version = version_of(answer["out"])
        if version is None:
            raise Unavailable(f"{command} names no version")
        return version

    @cached_property
    def toolkit_config(self) -> str | None:
        """The text of /etc/nvidia-container-runtime/config.toml."""
        return self._replies.file("/etc/nvidia-container-runtime/config.toml")

    @cached_property
    def toolkit_mode(self) -> str:
        """How the toolkit adds a GPU: auto (also if not set), legacy, cdi, csv, jit-cdi."""
        table = re.search(r"(?ms)^\s*\[nvidia-container-runtime\]\s*$(.*?)(?=^\s*\[|\Z)", self.toolkit_config or "")
        mode = re.search(r'(?m)^\s*mode\s*=\s*"([\w-]+)"', table[1] if table else "")
        return mode[1] if mode else "auto"

    @cached_property
    def podman_version(self) -> tuple[int, ...] | None:
        """None if Podman is not installed."""
        return self._version("podman --version")

    @cached_property
    def containers_may_use_devices(self) -> bool:
        """SELinux's boolean container_use_devices."""
        text = self._replies.value("file:/sys/fs/selinux/booleans/container_use_devices")
        return bool(text.split()[:1] == ["1"])

    @cached_property
    def cdi_specs(self) -> dict[str, str]:
        """Path -> text of the device specifications in /etc/cdi and /var/run/cdi."""
        return {spec["path"]: spec["text"] for spec in self._replies.value("cdi")}

    @cached_property
    def containerd_config(self) -> dict[str, str]:
        """Path -> text of the configuration files that containerd reads, including those of k3s."""
        unread = self.containerd_not_imported
        return {path: text for path, text in self._containerd_files.items() if path not in unread}

    @cached_property
    def containerd_not_imported(self) -> dict[str, str]:
        """Path -> text of configuration files that containerd does not read because its config.toml does not import them."""
        patterns = self.containerd_imports
        parts = self._replies.files("/etc/containerd/conf.d/*.toml") if patterns is not None else {}
        return {path: text for path, text in parts.items() if not any(fnmatch(path, pattern) for pattern in patterns or ())}

    @cached_property
    def containerd_imports(self) -> tuple[str, ...] | None:
        """The imports of config.toml as full paths; None if there is no such file."""
        text = self._replies.file(CONTAINERD_FILES[0])
        return None if text is None else imports_of(text, CONTAINERD_FILES[0].rpartition("/")[0])

    @cached_property
    def _containerd_files(self) -> dict[str, str]:
        texts = {path: self._replies.file(path) for path in CONTAINERD_FILES}
        parts = self._replies.files("/etc/containerd/conf.d/*.toml")
        return {path: text for path, text in {**texts, **parts}.items() if text is not None}

    @cached_property
    def crio_config(self) -> dict[str, str]:
        """Path -> text of CRI-O's configuration, all of which it reads; empty if containerd runs and CRI-O does not."""
        asked = self._replies.starting_with("file:/etc/crio/")
        files = {question.removeprefix("file:"): reply.value for question, reply in asked.items() if reply.status == "ok"}
        return {} if files and self._containerd_files and self.daemon_started("crio") is None else files

    @cached_property
    def kubernetes_node(self) -> bool:
        return any(self._replies.value("kubernetes-marks").values())

    def daemon_started(self, name: str = "dockerd") -> float | None:
        """The start time of dockerd, containerd or crio in seconds since 1970; None if it does not run (or is not visible)."""
        clock = self._replies.value("runtime-processes")
        ticks = clock["started"].get(name)
        return None if ticks is None else float(clock["boot"] + ticks / clock["ticks_per_second"])

    @cached_property
    def toolkit_newer_than_daemon(self) -> bool | None:
        """Whether a hook was installed after dockerd started and looked for it; None if either time is unknown."""
        return self.toolkit_newer_than("dockerd")

    def toolkit_newer_than(self, daemon: str) -> bool | None:
        """Whether a part of the toolkit was installed after the daemon's start; None if either time is unknown."""
        started = self.daemon_started(daemon)
        installed = [self._programs[name]["changed"] for name in HOOKS if "changed" in self._programs.get(name, {})]
        return max(installed) > started if installed and started is not None else None

    def written_after_start(self, paths: Iterable[str], daemon: str) -> bool | None:
        """Whether all these files were written after the daemon's start; None if unknown."""
        started, times = self.daemon_started(daemon), self._replies.value("runtime-file-times")
        written = [times.get(path) for path in paths]
        return None if started is None or not written or None in written else min(written) > started
