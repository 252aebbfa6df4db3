"""The GPUs' own records (InfoROM) can be read.

What it means
Each board has a small memory, the InfoROM. It holds the board's identity, its settings and the lifetime record of its memory
errors. If it is damaged, error counts and memory repairs cannot be stored, and nvidia-smi warns that the infoROM is
corrupted.

How it is judged
NVML answers a query with NVML_ERROR_CORRUPTED_INFOROM (14).

Known exceptions
Boards without an InfoROM answer that it is not supported.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.fixes.common import report_to_vendor
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status, for_each

CORRUPTED_INFOROM = 14

CORRUPTED = Problem(
    id="inforom-corrupted",
    title="A GPU's InfoROM is corrupted",
    why="The board cannot record memory errors, repairs or settings such as the ECC mode. Programs still run.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        Fix(
            "Reboot and read it again: the last read may have hit an update",
            verify="nvidia-smi -q -i <address> | grep -iA5 inforom",
            on=("host",),
            reboot=True,
        ),
        report_to_vendor("If it is still corrupted: collect NVIDIA's report and ask the vendor for a replacement"),
        Fix("Ask the owner of the host: this cannot be repaired from inside a container", on=("container", "wsl2")),
    ),
    references=("https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h",),
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from for_each(facts.nvml.reachable.values(), judge_gpu)


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    questions = [name for name, code in gpu.refusals.items() if code == CORRUPTED_INFOROM]
    if questions:
        evidence = {"address": gpu.selector, "questions": questions}
        yield CORRUPTED.found(f"GPU {gpu.index}: NVML reports that its InfoROM is corrupted", evidence, gpu.index)
    else:
        gpu.inforom  # noqa: B018 (not read is not healthy)


def summary(facts: Facts) -> str:
    return "InfoROM " + ", ".join(sorted({gpu.inforom for gpu in facts.nvml.reachable.values()}))


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(CORRUPTED,),
    needs=("nvml",),
    tags=("hardware",),
)
