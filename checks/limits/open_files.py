"""Programs may open enough files.

What it means
Every data loader worker, every NCCL connection and every shared tensor uses a file descriptor. If the limit is low, larger jobs
fail with "Too many open files".

How it is judged
The soft limit on open files of this process: less than 1024, the usual default, is reported.

Known exceptions
Jobs on many GPUs need far more than 1024; how many depends on the job.

References
https://docs.nvidia.com/deeplearning/nccl/archives/nccl_2262/user-guide/docs/_sources/troubleshooting.rst.txt
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.limits import OPEN_FILES
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

USUAL = 1024

FEW = Problem(
    id="open-files-limited",
    title="The limit on open files is low (ulimit -n)",
    why="Fewer than the usual 1024 files may be open at once. Data loaders with several workers and NCCL need more, and fail "
    "with 'Too many open files'.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    latent=True,
    fixes=(
        Fix("Raise it in this shell, as far as the hard limit allows", "ulimit -n <possible>", verify="ulimit -n", where="shell"),
        *OPEN_FILES.ways,
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    soft, hard = facts.limits.open_files
    if soft is not None and soft < USUAL:
        possible = 65536 if hard is None else min(hard, 65536)
        evidence = {"soft": soft, "hard": "unlimited" if hard is None else hard, "possible": possible}
        here = FEW.fixes[:1] if possible > soft else ()
        fixes = (*here, *OPEN_FILES.raised(soft, hard))
        yield replace(FEW, fixes=fixes).found(f"{soft} files may be open at once", evidence)


def summary(facts: Facts) -> str:
    soft, _ = facts.limits.open_files
    return f"{'unlimited' if soft is None else soft} open files"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(FEW,),
    tags=("slurm",),
)
