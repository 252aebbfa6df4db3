"""What selected checks have to know: a probe is asked only if they read one of its questions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from gpudoctor import doctor, planning
from gpudoctor.model import Check, Reply, Snapshot, Status
from gpudoctor.worker.probes import container, modules, runtime, system
from gpudoctor.worker.probes.table import PROBES, Probe

NOT_COLLECTED = "not-collected"  # the probes that were not needed
FIRST = ("interpreter", "system")  # what every report names
QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "nvml": ("nvml", "nvml:*"),
    "libraries": ("command:ldconfig -p", "file:/etc/ld.so*", "glob:/etc/ld.so.conf.d/*", "libraries", "library-owners"),
    "packages": ("packages", "torch", "bitsandbytes", "onnxruntime", "conda", "working-folder"),
    "package-files": ("package-files",),
    "toolchain": ("toolchain",),
    "modules": (
        *(
            "kernel-modules",
            "modprobe",
            "udev-rules",
            "os-packages",
            "driver-changes",
            "package-sources",
            f"file:{modules.ASUS_SWITCH}",
        ),
        *("glob:/usr/bin/nvidia-*", "glob:/var/lib/*", "file:/var/lib/dkms/*"),
        *("command:modinfo nvidia", "command:dkms status", "command:nvidia-smi -L"),
    ),
    "runtime": (
        *(f"file:{path}" for path in runtime.CONFIGURATIONS),
        *(form + pattern for form in ("glob:", "file:") for pattern in (runtime.CONTAINERD_PARTS, runtime.CRIO_PARTS)),
        *("runtime-*", "cdi", "docker", "docker-context", f"file:{runtime.SELINUX}", "kubernetes-marks"),
        *(f"command:{name} --version" for name in ("nvidia-ctk", "nvidia-container-cli", "podman")),
    ),
    "kernel-log": ("kernel-log", "kernel-log-earlier"),
    "services": (
        *("service-files", "licence-tokens", "processes", "command:systemctl show *", "command:nv-fabricmanager --version"),
        *("file:/var/log/fabricmanager.log", "file:/etc/nvidia/gridd.conf"),
    ),
    "system": (
        *(f"file:{path}" for path in (*system.FILES, "/proc/cmdline")),
        *("glob:/sys/class/iommu/*", "uname", "processor", "secure-boot"),
        *(form + pattern for form in ("glob:", "file:") for pattern in system.DRIVER_FILES),
    ),
    "pci": ("pci",),
    "inventory": (
        "cloud",
        "cpu-topology",
        "cpu-frequency",
        "disks",
        "network-interfaces",
        "infiniband-rates",
        "power-supply",
        "boot",
    ),
    "addresses": ("socket-interfaces", "own-address"),
    "devices": ("devices", "identity"),
    "environment": ("environment", "glob:/sys/class/net/*", "file:/etc/nccl.conf", "file:~/.nccl.conf"),
    "interpreter": ("interpreter",),
    "sources": ("variable-sources",),
    "container": ("file:/proc/self/status", *(f"file:{path}" for path in container.FILES), "container-marks", "mounts"),
    "limits": (
        "file:/proc/self/limits",
        "cache-folders",
        "cgroup-limits",
        "nccl-segments",
        "limits",
        "cpus",
        "shm",
        "tmp",
        "home",
    ),
    "wsl": ("wsl", "wsl-libraries", "glob:/usr/lib/wsl/drivers/*", "file:/etc/wsl.conf", "kernel-config"),
    "cuda": ("cuda", "cuda:*"),
}
"""Probe -> patterns of all that it may ask."""
GIVEN = (
    *("text:*", "command", "job-*", "nccl-log", "node-tests", "container-start", "host-not-asked", "root-filesystem", "shown-*"),
    *(
        "reduced",
        "refused-processes",
        "no-temporary-folder",
        "chosen-python",
        "broken-python",
        "package-hashes:*",
        "probe:package-hashes",
    ),
    NOT_COLLECTED,
)
"""Questions that no probe answers: what the user gave, and what gpudoctor itself found out."""


def further(asked: Collection[str], taken: Snapshot, checks: Mapping[str, Check]) -> list[str]:
    """The probes to ask next: those whose questions the checks read, after the answers so far. Empty if nothing is missing.

    What a check reads depends on what it has read, so this is repeated with the new answers. All of them if a GPU is going to be
    measured: what is read then is not known beforehand.
    """
    left = [probe for probe in PROBES if probe.name not in asked]
    read, results = doctor.read_in_vain(taken, dict(checks))
    wanted = set(_of_questions(read, left)) & {probe.name for probe in left}
    if not wanted and any(checks[id].workloads and result.status is not Status.BLOCKED for id, result in results.items()):
        everything = {probe.name for probe in left} if planning.plan(taken, checks, force=True).gpus else {"cuda"}
        wanted = everything - {*asked}
    wanted |= {probe.after for probe in left if probe.name in wanted}
    return [probe.name for probe in left if probe.name in wanted]


def not_collected(asked: Collection[str]) -> dict[str, Reply]:
    left = [probe.name for probe in PROBES if probe.name not in asked]
    return {NOT_COLLECTED: Reply("ok", left)} if left else {}


def _of_questions(questions: Iterable[str], left: Collection[Probe]) -> Iterator[str]:
    for question in questions:
        owners = [probe for probe in QUESTIONS if may_answer(probe, question)]
        yield from owners or (() if is_given(question) else (probe.name for probe in left))


def is_given(question: str) -> bool:
    return any(_overlap(question, pattern) for pattern in GIVEN)


def may_answer(probe: str, question: str) -> bool:
    """question: may end with *."""
    return any(_overlap(question, pattern) for pattern in (f"probe:{probe}", *QUESTIONS[probe]))


def _overlap(question: str, pattern: str) -> bool:
    if not question.endswith("*"):
        return fnmatchcase(question, pattern)
    start, fixed = question[:-1], pattern.partition("*")[0]
    return fixed.startswith(start) or (start.startswith(fixed) and "*" in pattern)
