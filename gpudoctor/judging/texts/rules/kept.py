"""Settings of GPUs that a text finds gone, and readings that a mode does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

SMI = "https://docs.nvidia.com/deploy/nvidia-smi/index.html"
NOT_KEPT = Problem(
    id="gpu-settings-not-kept",
    title="The GPU forgets its power limit and clocks, as persistence mode is off",
    why="Without persistence mode the driver shuts a GPU down when its last program ends, and with it the power limit, locked "
    "clocks and compute mode that were set. A reboot resets them in any case.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Keep the GPUs initialised, then set the limit again (at each boot: in a systemd unit after nvidia-persistenced)",
            "sudo systemctl enable --now nvidia-persistenced || sudo nvidia-smi -pm 1",
            verify="nvidia-smi --query-gpu=index,persistence_mode,power.limit --format=csv",
            undo="sudo systemctl disable --now nvidia-persistenced; sudo nvidia-smi -pm 0",
            on=("host",),
            kind="set",
            needs=("root",),
        ),
    ),
    references=("https://docs.nvidia.com/deploy/driver-persistence/",),
)
NOT_FOR_MIG = Problem(
    id="utilization-not-for-mig",
    title="The utilization of a GPU in MIG mode is not reported",
    why="NVML has no utilization for a GPU in MIG mode nor for its instances, so nvidia-smi shows N/A, and "
    "DCGM_FI_DEV_GPU_UTIL is missing or 0. The work is not affected.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Read the profiling fields, which DCGM has for each instance", "dcgmi dmon -e 1001,1002,1005", kind="read"),
        Fix("In dcgm-exporter and its dashboards: use DCGM_FI_PROF_GR_ENGINE_ACTIVE instead of DCGM_FI_DEV_GPU_UTIL"),
    ),
    references=("https://github.com/NVIDIA/dcgm-exporter/issues/216",),
)
PROBLEMS = (NOT_KEPT, NOT_FOR_MIG)

_SETS = re.compile(
    r"""
    nvidia-smi\ [^\n]{0,20}-(?:pl|lgc|lmc|ac)\b
    | \b(?:set|limit)\w*\b[^\n.]{0,40}\b(?:power\ limit|W\b|clocks?)
    """,
    re.VERBOSE,
)
_GONE = re.compile(
    r"""
    \bat\ \d+\ ?W?\ again\b | \b(?:goes|go|went|jumps?|are|is)\ back\ (?:at|to)\b | \bforget\w* | \brevert\w*
    | \b(?:limit|clocks?|settings?)\b[^\n.]{0,40}\b(?:reset\w*|lost|not\ kept|gone)\b | \bnot\ (?:stick|persist|kept)\w*
    """,
    re.IGNORECASE | re.VERBOSE,
)


def not_kept(facts: Facts) -> Iterator[Finding]:
    """A power limit or clock that the text sets is gone after some time, and persistence mode is off."""
    text = "\n".join(passages(facts))
    gpus = known(lambda: facts.nvml.gpus, ())
    off = [gpu.index for gpu in gpus if known(lambda gpu=gpu: not gpu.persistence_mode, False)]  # type: ignore[misc]
    if off and _SETS.search(text) and _GONE.search(text):
        words = f"persistence mode is off on GPU {', '.join(map(str, off))}, and a setting of nvidia-smi is gone after some time"
        yield NOT_KEPT.found(words, {"gpus": off}, confidence=Confidence.LIKELY)


_MIG_ON = re.compile(
    r"""
    \bmig\.mode\.current\b[^\n]*\n[^\n]*\bEnabled\b
    | \benabled\ MIG\b | \bMIG\ (?:mode\ )?(?:is\ )?(?:now\ )?enabled\b
    """,
    re.VERBOSE,
)
_WITHOUT = re.compile(
    r"""
    \butili[sz]ation\b[^\n.]{0,40}\b(?:0|zero|N/A|missing|empty|not\ shown)\b | \bDCGM_FI_DEV_GPU_UTIL\b
    | \b(?:no|missing|zero|0)\b[^\n.]{0,20}\butili[sz]ation\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def not_for_mig(facts: Facts) -> Iterator[Finding]:
    """The text misses the utilization of GPUs in MIG mode."""
    text = "\n".join(passages(facts))
    if _MIG_ON.search(text) and _WITHOUT.search(text) and re.search(r"\[?N/A\]?|\bdcgm|\bDCGM", text):
        yield NOT_FOR_MIG.found("MIG is enabled, and the utilization is missing", {"mode": "MIG"}, confidence=Confidence.LIKELY)


RULES = (not_kept, not_for_mig)
