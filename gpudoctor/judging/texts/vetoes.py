"""What a text shows decides between the possible causes of its messages. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from packaging.version import Version

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.named import with_cause, with_ways_there
from gpudoctor.judging.texts.rules.said import is_for_cpus, passages, with_ways_of_wsl
from gpudoctor.model import Confidence, Finding

ENOUGH_SHARED_MEMORY = 1 << 30  # bytes, free
SYMPTOMS = ("framework-sees-no-gpu", "cuda-out-of-memory", "k8s-no-free-gpu", "disk-full", "program-raised-error")
"""Problems that a message names for want of a cause: what contradicts in the same text explains them."""
OF_VISIBILITY = (
    *("gpu-on-bus", "kernel-module", "adapter-init", "device-nodes", "nvml", "gpu-count", "cuda-library", "cuda-init"),
    *("container-gpu-access", "compute-mode", "mig"),
)
"""Checks whose failures explain that a program sees no GPU."""

_QUOTED = re.compile(r">>(?:>{2,})? ?(?!>)")  # three are a prompt of Python
_SOLVED = re.compile(
    r"""
    ^[ \t\#*>\[(]{0,8}(?:(?:edit|update)[ \t]{0,2}\d{0,2}[ \t:!.*-]{0,6})?(?:solved|resolved|fixed)\b
    | \b(?:reboot|restart|power\ cycle|reinstall)\w*\ (?:has\ )?(?:fixed|solved|resolved|helped)\b
    | \bas\ expected\b
    | \b(?:all\ good|works?(?:\ fine)?|working)\ (?:now|again)\b
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)

OF_MODULE = ("module-not-built-after-kernel-update", "dkms-build-failed-new-kernel", "package-kernel-headers-missing")
REPLACED = "running-kernel-replaced"
OTHER_CUDNN, OLD_GPU = "cudnn-wrong-version-ld-library-path", "open-module-on-pre-turing"
EXPLAINED = {
    **dict.fromkeys(OF_MODULE, (REPLACED,)),
    "nouveau-loaded": ("vfio-ids-match-no-gpu", "vfio-id-not-bound"),
    "cuda-library-not-found": ("container-no-gpus-flag", "environment-module-overwrites-library-path"),
    "jetson-generic-wheel": ("container-no-gpus-flag",),
    "kernel-module-not-loaded": ("driver-package-not-configured", "nvidia-module-blacklisted", REPLACED, OLD_GPU),
    "no-driver-found": ("wsl-libcuda-not-symlink",),
    "cuda-init-failed": ("cuda-999-after-suspend", "wsl-linux-driver-installed"),
    "graphics-on-cpu": ("graphics-libraries-32-bit-missing", "module-not-built-after-kernel-update", "display-on-integrated-gpu"),
    "cuda-out-of-memory": ("other-process-using-gpu",),
    "host-memory-exhausted": ("huge-pages-unused",),
    "xorg-cannot-use-gpu": (OLD_GPU, "gpu-dropped-by-driver-branch"),
    "nccl-failed": ("nccl-buffer-too-large",),
    **dict.fromkeys(("nccl-network-unreachable", "rendezvous-unreachable"), ("ranks-blocked-by-firewall",)),
    "nccl-not-what-torch-needs": ("environment-module-overwrites-library-path",),
    "tensorflow-cuda-libraries-missing": ("environment-module-overwrites-library-path",),
    "podman-selinux-nvml-insufficient": ("rootless-container-drops-groups",),
    "nvcc-too-old-for-gpu": ("nvcc-of-another-toolkit",),
    "render-node-not-accessible": ("wayland-without-modeset", "user-outside-group-of-node", "render-node-is-a-file"),
    "driver-library-version-mismatch": ("driver-libraries-in-image", "driver-package-held"),
    "driver-packages-unmet-dependencies": ("driver-packages-from-two-repositories",),
    **dict.fromkeys(("jax-cudnn-too-old", "tensorflow-cudnn-too-old", "jax-cpu-only", "cudnn-fails"), (OTHER_CUDNN,)),
    **dict.fromkeys(("cdi-spec-missing", "cdi-device-unresolvable"), ("cdi-spec-not-readable",)),
    **dict.fromkeys(
        ("package-kernel-headers-missing", "index-unreachable", "nvidia-repository-changed"), (REPLACED, "name-resolution-failed")
    ),
    "k8s-device-plugin-no-nvml": ("k8s-nvidia-runtime-not-chosen",),
    "opencl-driver-missing": ("opencl-icd-file-missing",),
    "bar-not-assigned-above-4g": ("vm-firmware-without-large-window",),
    "wsl-nvml-blocked-by-os": ("wsl-linux-driver-installed",),
}
"""Problem of a message -> what two outputs can show as its cause."""
LIMITS = ("memlock-limited", "shm-too-small-for-dataloaders", "nccl-shm-no-space")
WITHOUT_GPU = ("torch-cpu-only-wheel", "nvidia-smi-command-not-found", "no-driver-found", "framework-sees-no-gpu")
"""What is as it should be on a machine that has no GPU on purpose."""
OF_NO_DRIVER = ("nvml-library-missing", "kernel-module-not-loaded", "no-driver-found", "nvidia-smi-command-not-found")


def weighed(finding: Finding, shown: tuple[str, ...], facts: Facts) -> Finding:
    """A message's finding, explained by what the outputs of the text show, without the causes that they exclude."""
    finding = _in_wsl(finding, facts)
    finding = with_ways_there(with_cause(finding, facts), facts) if facts.texts.alone else finding
    if finding.problem.id == "host-memory-exhausted" and facts.texts.alone:
        finding = replace(finding, problem=with_ways_of_wsl(finding.problem, facts))
    explains = [id for id in EXPLAINED.get(finding.problem.id, ()) if id in shown]
    explains += OF_VISIBILITY if finding.problem.id == "framework-sees-no-gpu" else ()
    finding = replace(finding, causes=(*finding.causes, *explains))
    if finding.problem.id in SYMPTOMS or _is_notebook(finding, facts) or finding.confidence is Confidence.UNKNOWN:
        finding = replace(finding, causes=(*finding.causes, *(id for id in shown if id != finding.problem.id)))
    if not facts.texts.alone or not finding.evidence.get("could_be"):
        return finding
    return _without(
        finding, {id: fact for id in (finding.problem.id, *finding.evidence["could_be"]) if (fact := veto(id, facts))}, facts
    )


def is_over(finding: Finding, facts: Facts) -> bool:
    """Whether the message is of an earlier time, by its quotes or the words around it, and the outputs show the opposite."""
    if facts.texts.alone and finding.problem.id in WITHOUT_GPU and is_for_cpus(facts):
        return True
    if not facts.texts.alone or not veto(finding.problem.id, facts):
        return False
    if finding.problem.id in LIMITS:  # raising it would change nothing
        return True
    return bool(_QUOTED.match(finding.evidence.get("said", ""))) or any(_SOLVED.search(text) for text in passages(facts))


def _in_wsl(finding: Finding, facts: Facts) -> Finding:
    """WSL uses the driver of Windows: a module that cannot be built there is one that should not be installed."""
    wsl = known(lambda: facts.system.wsl, 0)
    if not wsl or finding.problem.id not in OF_MODULE or not facts.texts.alone:
        return finding
    if wsl == 1:
        return replace(finding, causes=(*finding.causes, "wsl1-has-no-gpu"))
    words = "a Linux driver is being installed inside WSL, which uses the driver of Windows"
    evidence: dict[str, Any] = {name: finding.evidence[name] for name in ("said", "where") if name in finding.evidence}
    return facts.problems["wsl-linux-driver-installed"].found(words, evidence, confidence=Confidence.LIKELY)


def _is_notebook(finding: Finding, facts: Facts) -> bool:
    return facts.shown.is_notebook and finding.problem.id in OF_NO_DRIVER


def _without(finding: Finding, excluded: Mapping[str, str], facts: Facts) -> Finding:
    """Only an unsure message gives way to its next cause."""
    if not excluded:
        return finding
    left = [id for id in finding.evidence["could_be"] if id not in excluded]
    evidence: dict[str, Any] = {**finding.evidence, "could_be": left, "excluded_by": sorted(set(excluded.values()))}
    causes = tuple(id for id in finding.causes if id not in excluded or id == finding.problem.id)
    changed = replace(finding, evidence={name: value for name, value in evidence.items() if value}, causes=causes)
    if finding.problem.id in excluded and left and finding.confidence is Confidence.UNKNOWN:
        return replace(changed, problem=facts.problems[left[0]], confidence=Confidence.UNKNOWN)
    return changed


def veto(id: str, facts: Facts) -> str:
    """The fact that excludes a problem; "" if nothing in the text does."""
    return known(lambda: VETOES[id](facts), "") if id in VETOES else ""


def _driver_works(facts: Facts) -> str:
    gpus = known(lambda: facts.nvml.count, 0)
    release = known(lambda: facts.nvml.driver_version)
    return f"nvidia-smi lists {gpus} GPU{'s' * (gpus != 1)} with driver {release}" if gpus and release else ""


def _has_cuda(facts: Facts) -> str:
    cuda = facts.python.torch_cuda
    return f"torch {facts.python.torch_version} is built with CUDA {cuda}" if cuda else ""


def _shows_gpus(facts: Facts) -> str:
    value = facts.environment.get("CUDA_VISIBLE_DEVICES")
    return f"CUDA_VISIBLE_DEVICES is {value!r}" if value and value.strip()[:1].isdigit() else ""


def _has_gpu(facts: Facts) -> str:
    on_bus = [gpu.address for gpu in known(lambda: facts.pci.gpus, ())]
    return f"lspci lists {', '.join(on_bus)}" if on_bus else _driver_works(facts)


def _has_shared_memory(facts: Facts) -> str:
    free = facts.limits.shm_free_bytes
    return f"/dev/shm has {free >> 20} MiB free" if free >= ENOUGH_SHARED_MEMORY else ""


def _locks_memory(facts: Facts) -> str:
    return "the limit on locked memory is unlimited" if facts.limits.memlock[0] is None else ""


def _no_secure_boot(facts: Facts) -> str:
    return "Secure Boot is off" if known(lambda: facts.system.secure_boot) is False else _driver_works(facts)


def _no_nouveau(facts: Facts) -> str:
    drivers = known(lambda: {gpu.driver for gpu in facts.pci.gpus}, set())
    if drivers and not drivers & {"nouveau", None}:
        return f"lspci shows the driver {', '.join(map(str, sorted(filter(None, drivers))))}"
    return "lsmod does not list nouveau" if facts.shown.is_loaded("nouveau") is False else _driver_works(facts)


def _of_all(facts: Facts, fact: Callable[[Gpu], bool], words: str) -> str:
    gpus = facts.nvml.gpus
    return words if gpus and all(fact(gpu) for gpu in gpus) else ""


def _no_mig(facts: Facts) -> str:
    return _of_all(facts, lambda gpu: gpu.mig_mode.current is False, "MIG is disabled")


def _shared(facts: Facts) -> str:
    return _of_all(facts, lambda gpu: gpu.compute_mode == "default", "the compute mode is Default")


def _new_enough(facts: Facts) -> str:
    """The check of the driver against CUDA's runtimes, in its words."""
    numbers = list(map(int, re.findall(r"\d+", facts.python.torch_cuda or "")))
    least = knowledge.minimum_driver((numbers[0], numbers[1])) if len(numbers) > 1 else None
    driver = facts.nvml.driver_version
    fits = least and Version(driver) >= Version(least)
    return f"driver {driver} runs torch's CUDA {facts.python.torch_cuda}" if fits else ""


VETOES: Mapping[str, Callable[[Facts], str]] = {
    **dict.fromkeys(
        (
            *("no-driver-found", "kernel-module-not-loaded", "nvml-driver-not-loaded", "driver-library-version-mismatch"),
            *("module-not-built-after-kernel-update", "container-no-gpus-flag", "container-host-driver-not-loaded"),
            *("nvidia-visible-devices-void", "notebook-without-gpu", "module-of-another-kernel", "nvidia-module-blacklisted"),
        ),
        _driver_works,
    ),
    "torch-cpu-only-wheel": _has_cuda,
    "cuda-visible-devices-hides-all-gpus": _shows_gpus,
    "no-nvidia-gpu": _has_gpu,
    "nouveau-loaded": _no_nouveau,
    "secure-boot-module-rejected": _no_secure_boot,
    "driver-too-old-for-runtime": _new_enough,
    "nccl-shm-no-space": _has_shared_memory,
    "shm-too-small-for-dataloaders": _has_shared_memory,
    "memlock-limited": _locks_memory,
    "mig-enabled-without-instances": _no_mig,
    "compute-mode-exclusive-busy": _shared,
    "compute-mode-prohibited": _shared,
}
