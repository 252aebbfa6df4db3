"""The container that this runs in, if any: its engine, its permissions, and which parts of the driver were mounted into it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.replies import Replies

# include/uapi/linux/capability.h: the position of a name is its bit.
_NAMES = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE "
    "NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN "
    "SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE "
    "MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"
)
CAPABILITIES = tuple(_NAMES.split())
APPTAINER_VARIABLES = {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"}
KUBERNETES_MARKS = ("/run/secrets/kubernetes.io", "/var/run/secrets/kubernetes.io")
OVERLAYS = {"overlay", "fuse.fuse-overlayfs", "fuse-overlayfs", "aufs"}


class Container(Guarded):
    """The kind of container; `engine` is None on a host."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def engine(self) -> str | None:
        """docker, podman, kubernetes, apptainer, enroot, lxc or unknown; None on a host."""
        if start := self._start:
            return str(start["engine"])
        if self._is_of_text:
            return self._shown_in_text
        found = (name for name, is_it in self._signs.items() if is_it)
        engine = next(found, "unknown" if self._is_overlay and not self._sees_kernel_threads else None)
        return None if engine in ("docker", "unknown") and self._is_booted_image else engine

    @property
    def _start(self) -> Mapping[str, Any]:
        """How gpudoctor entered the container, if it did so from outside."""
        reply = self._replies.starting_with("container-start").get("container-start")
        return reply.value if reply and reply.value["started"] else {}

    @property
    def _is_of_text(self) -> bool:
        """Only a text is judged, which shows a container by its prompt or its variables, or comes from a host."""
        asked = any(self._replies.starting_with(name) for name in ("container-", "identity", "mounts"))
        return not asked and bool(self._replies.starting_with("text:"))

    @property
    def _shown_in_text(self) -> str | None:
        if "KUBERNETES_SERVICE_HOST" in self._variables:
            return "kubernetes"
        prompt = self._replies.starting_with("prompt-of-container").get("prompt-of-container")
        return str(prompt.value) if prompt else None

    @property
    def _signs(self) -> dict[str, bool]:
        """The signs of each engine; outer layers, whose signs also show inside the others, come last."""
        marks, variables, manager = self._marks, self._variables, self._manager
        return {
            "apptainer": marks.get("/.singularity.d", False) or not APPTAINER_VARIABLES.isdisjoint(variables),
            "enroot": marks.get("/etc/rc", False),
            "kubernetes": "kubepods" in self._cgroups
            or "KUBERNETES_SERVICE_HOST" in variables
            or any(marks.get(mark) for mark in KUBERNETES_MARKS),
            "podman": marks.get("/run/.containerenv", False) or manager == "podman" or "/libpod" in self._cgroups,
            "docker": marks.get("/.dockerenv", False) or manager == "docker" or "/docker" in self._first_cgroup,
            "lxc": manager.startswith("lxc") or "/lxc" in self._first_cgroup,
            "unknown": manager not in ("", "wsl"),
        }

    @property
    def _is_overlay(self) -> bool:
        return self._root.get("type") in OVERLAYS

    @property
    def _sees_kernel_threads(self) -> bool:
        return (self._replies.file("/proc/2/comm") or "").strip() == "kthreadd"

    @property
    def _is_booted_image(self) -> bool:
        """A virtual machine made from a container image has its marks, but has its own root and processes."""
        return self._sees_kernel_threads and not self._is_overlay

    @cached_property
    def _marks(self) -> Mapping[str, bool]:
        return dict(self._replies.value("container-marks"))

    @cached_property
    def _variables(self) -> frozenset[str]:
        """Names only. Without them, the files still identify almost every engine."""
        reply = self._replies.starting_with("environment").get("environment")
        return frozenset(reply.value) if reply and reply.status == "ok" else frozenset()

    @cached_property
    def _manager(self) -> str:
        return (self._replies.file("/run/systemd/container") or "").strip()

    @property
    def _first_cgroup(self) -> str:
        """The cgroup of process 1: on a host it is never a container's, even if this process's cgroup is named after one."""
        return self._replies.file("/proc/1/cgroup") or ""

    @property
    def _cgroups(self) -> str:
        return self._first_cgroup + self.cgroup

    @cached_property
    def cgroup(self) -> str:
        """The text of /proc/self/cgroup."""
        return self._replies.file("/proc/self/cgroup") or ""

    @cached_property
    def cgroup_version(self) -> int:
        """1 also if version 2 is mounted next to it: the device rules are then those of version 1."""
        return 1 if self._replies.file("/sys/fs/cgroup/cgroup.controllers") is None else 2

    @cached_property
    def _status(self) -> dict[str, str]:
        return status_fields(self._replies.value("file:/proc/self/status"))

    @cached_property
    def capabilities(self) -> frozenset[str]:
        """The effective capabilities, such as CAP_SYS_ADMIN."""
        return capability_names(int(self._status["CapEff"], 16))

    @cached_property
    def user_namespace(self) -> bool:
        """User ids in the container differ from those of the host, so the host's device nodes belong to the user `nobody`."""
        text = self._replies.file("/proc/self/uid_map")
        return text is not None and text.split() != ["0", "0", "4294967295"]

    @cached_property
    def _mounts(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self._replies.value("mounts"))

    @property
    def _root(self) -> Mapping[str, Any]:
        """The last mount on /, which hides earlier ones; empty if no mounts were read."""
        mounts = self._mounts if self._replies.starting_with("mounts") else ()
        return next((mount for mount in reversed(mounts) if mount["point"] == "/"), {})

    @property
    def root_is_read_only(self) -> bool:
        return "ro" in self._root.get("options", "").split(",")

    @cached_property
    def mount_points(self) -> frozenset[str]:
        """The mount points related to the driver."""
        return frozenset(mount["point"] for mount in self._mounts)


def status_fields(text: str) -> dict[str, str]:
    """The fields of /proc/PID/status."""
    lines = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in lines}


def capability_names(mask: int) -> frozenset[str]:
    """The names of the bits in a capability mask; a bit missing from the table is shown as a number."""
    names = dict(enumerate(CAPABILITIES))
    return frozenset(f"CAP_{names.get(bit, bit)}" for bit in range(mask.bit_length()) if mask >> bit & 1)
