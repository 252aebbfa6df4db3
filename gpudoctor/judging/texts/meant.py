"""Findings about a text whose author wants what they say, or shows that all works. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.calm import is_calm
from gpudoctor.judging.texts.rules.said import has_only_others, is_for_cpus, is_without_nvidia, passages
from gpudoctor.model import Finding

WITHOUT_GPU = frozenset(
    (
        *("torch-cpu-only-wheel", "nvidia-smi-command-not-found", "no-driver-found", "framework-sees-no-gpu"),
        *("container-no-gpus-flag", "shm-too-small-for-dataloaders", "jax-cpu-only", "cuda-library-not-found"),
        *("onnxruntime-cuda-ep-lib-missing", "cuda-visible-devices-hides-all-gpus", "k8s-taint-not-tolerated"),
        *("k8s-device-plugin-no-nvml", "nvml-library-missing", "kernel-module-not-loaded", "batch-job-without-gpu"),
        *("tensorflow-cpu-only", "tensorflow-sees-no-gpu", "jax-sees-no-gpu", "jax-set-to-cpu", "image-built-for-cpu"),
        *("loader-pins-without-gpu", "onnxruntime-session-without-gpu", "job-uses-no-gpu", "notebook-without-gpu"),
        *("cuda-init-failed", "program-built-without-cuda", "faiss-without-gpu", "container-driver-libraries-not-found"),
        *("no-nvidia-gpu", "cuda-driver-library-missing", "ollama-lacks-cuda-backend", "model-layers-on-cpu"),
        *("build-sees-no-gpu", "tensorflow-cuda-libraries-missing", "cuda-no-device", "nvidia-visible-devices-void"),
        *("bitsandbytes-cpu-lib", "ffmpeg-built-without-nvidia", "cuda-toolkit-missing", "triton-sees-no-driver"),
        *("slurm-gres-unavailable", "container-driver-unknown-error", "container-host-driver-not-loaded"),
        *("container-cli-libnvidia-ml-missing", "container-driver-libraries-missing", "nvidia-container-cli-missing"),
        *("cudnn-not-found", "cupti-not-loadable"),
    )
)
"""What is as it should be on a machine, or in a process, that has no GPU on purpose."""
OF_OTHERS = ("framework-sees-no-gpu", "no-driver-found", "nvml-library-missing", "nvidia-smi-command-not-found")
"""What is as it should be on a machine with GPUs of another vendor only."""
OF_HARDWARE = ("health", "hardware", "links")
"""Areas of checks whose findings count although programs work."""

OF_NOUVEAU = ("nouveau-loaded", "nova-loaded")
OF_RESERVED = ("every-gpu-bound-to-vfio", "gpu-bound-to-vfio", "kernel-module-not-loaded", "nvidia-smi-command-not-found")
FOR_CPUS, OTHERS, NOUVEAU, WELL = "for CPUs", "other vendors", "nouveau", "well"
RESERVED, TORCH_WORKS = "for virtual machines", "PyTorch works"

_JETSON = re.compile(r"\b(?:Jetson|Tegra|Orin|Xavier)\b", re.IGNORECASE)
_NEEDS_DRIVER = re.compile(
    r"""
    \b(?:needs?|wants?|install\w*|require\w*)\b[^.\n]{0,40}\b(?:CUDA|driver|nvidia)\b
    | NVIDIA-SMI\ has\ failed
    """,
    re.VERBOSE,
)
_RESERVED = re.compile(
    r"""
    \b(?:VM|guest|virtual\ machine)s?\b[^.\n]{0,50}\b(?:works?|runs?|läuft|fine|great|sees|shows?|funciona|fonctionne)\b
    | \b(?:works?|runs?|läuft|fine|great)\b[^.\n]{0,30}\b(?:inside|in|within)\ (?:the|der|my|a)\ (?:\w+-?\ ?)?(?:VM|guest)\b
    | \b(?:for|reserved\ for|dedicated\ to)\ (?:the\ |our\ |my\ )?(?:\w+\ )?(?:VMs?|guests?|virtual\ machines?)\b
    """,
    re.VERBOSE,
)

_KEEPS_NOUVEAU = re.compile(
    r"""
    \b(?:nouveau|nova)\b[^.\n]{0,60}\b(?:on\ purpose|deliberately|intentionally|works?\ (?:fine|well)|is\ (?:fine|enough)
      |by\ choice)\b
    | \b(?:happy|fine|stay\w*|stick\w*|prefer)\ (?:\w+\ )?(?:with|to)?\ ?(?:the\ )?(?:nouveau|nova|open\ source\ driver)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


BY_KIND = {
    FOR_CPUS: WITHOUT_GPU,
    OTHERS: OF_OTHERS,
    NOUVEAU: OF_NOUVEAU,
    RESERVED: OF_RESERVED,
    TORCH_WORKS: ("jetson-has-no-nvml", "nvidia-smi-command-not-found"),
}


def is_meant(finding: Finding, facts: Facts, area: str) -> bool:
    """Whether a text says that what was found is wanted, or that all works; errors of hardware still count."""
    id = finding.problem.id
    said = facts.once(_said)
    if any(id in ids and kind in said for kind, ids in BY_KIND.items()):
        return True
    return area not in OF_HARDWARE and WELL in said


def _said(facts: Facts) -> Iterator[str]:
    if is_for_cpus(facts) or is_without_nvidia(facts):
        yield FOR_CPUS
    if has_only_others(facts):
        yield OTHERS
    text = "\n".join(passages(facts))
    if _KEEPS_NOUVEAU.search(text) and not _NEEDS_DRIVER.search(text):
        yield NOUVEAU
    if _RESERVED.search(text):
        yield RESERVED
    if _JETSON.search(text) and facts.shown.answers.get("torch.cuda.is_available()") == "True":
        yield TORCH_WORKS
    if all(is_calm(text.lines) for text in facts.texts.all):
        yield WELL
