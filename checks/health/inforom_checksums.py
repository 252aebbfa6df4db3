"""The GPUs' own records (InfoROM) match their checksums.

What it means
Each board has a small memory, the InfoROM, with its identity, its settings and the lifetime record of its memory errors. The
driver reads parts of it at its start. Damage elsewhere stays unseen until an error cannot be recorded, or the board is sent in
and the vendor finds no record.

How it is judged
NVML reads the whole InfoROM of each GPU from its memory and compares the checksums (nvmlDeviceValidateInforom). The answer
NVML_ERROR_CORRUPTED_INFOROM (14) warns.

Known exceptions
Boards without an InfoROM, MIG slices and vGPUs do not support it.

References
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import report_to_vendor
from gpudoctor.judging.measured import expect
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

WORKLOAD = "inforom"
CORRUPTED_INFOROM = 14

WRONG = Problem(
    id="inforom-checksum-wrong",
    title="A GPU's InfoROM does not match its checksums",
    why="Part of the board's own records is damaged. It may be unable to record memory errors or repairs. Programs still run.",
    action=Action.REPLACE_HARDWARE,
    status=Status.WARN,
    fixes=(
        Fix(
            "Reboot and check again: the read may have hit an update",
            verify="gpudoctor check --only inforom,inforom-checksums",
            on=("host",),
            reboot=True,
        ),
        report_to_vendor("If it is still wrong: collect NVIDIA's report and ask the vendor for a replacement"),
        Fix("Ask the owner of the host: this cannot be repaired from inside a container", on=("container", "wsl2")),
    ),
    references=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",),
)


def codes(facts: Facts) -> dict[int, int]:
    """GPU -> NVML's code; Skip if no GPU was asked."""
    runs = facts.measured.runs(WORKLOAD)
    return {run.gpu: run.values["checksums"]["code"] for run in runs if run.gpu is not None and "checksums" in run.values}


def judge(facts: Facts) -> Iterator[Finding]:
    found = codes(facts)
    for index, code in found.items():
        if code == CORRUPTED_INFOROM:
            gpu = expect.gpu(facts, index)
            evidence = {"address": gpu.selector if gpu else index}
            yield WRONG.found(f"GPU {index}: NVML reports that its InfoROM is corrupted", evidence, index, partial=True)
    other = {index: code for index, code in found.items() if code not in (0, CORRUPTED_INFOROM)}
    if other or not found:
        words = ", ".join(f"GPU {index}: NVML error {code}" for index, code in other.items())
        raise Skip(words or "NVML validated no InfoROM", Skip.NO_ANSWER)


def summary(facts: Facts) -> str:
    count = len(codes(facts))
    return f"the InfoROM of {count} GPU{'s' * (count > 1)} matches its checksums"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(WRONG,),
    needs=("nvml",),
    level="full",
    workloads=(WORKLOAD,),
    tags=("hardware",),
)
