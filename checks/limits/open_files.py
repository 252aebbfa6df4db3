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
from gpudoctor.fixes.engines import again
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
        Fix(
            "Raise it for all users, from the next login",
            # In limits.conf, the asterisk does not include root.
            "printf '%s\\n' '* soft nofile 65536' '* hard nofile 1048576' 'root soft nofile 65536' 'root hard nofile 1048576' | "
            "sudo tee /etc/security/limits.d/90-nofile.conf",
            verify="ulimit -n",
            on=("host", "wsl2"),
            kind="set",
            needs=("root",),
            undo="sudo rm /etc/security/limits.d/90-nofile.conf",
        ),
        *again(
            "Restart the container with a higher limit",
            "run <all_gpus> --ulimit nofile=65536:1048576 <image>",
            spec="--ulimit",
            risk="disruptive",
            verify="ulimit -n",
            on=("container",),
        ),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    soft, hard = facts.limits.open_files
    if soft is not None and soft < USUAL:
        possible = 65536 if hard is None else min(hard, 65536)
        evidence = {"soft": soft, "hard": "unlimited" if hard is None else hard, "possible": possible}
        problem = FEW if possible > soft else replace(FEW, fixes=FEW.fixes[1:])
        yield problem.found(f"{soft} files may be open at once", evidence)


def summary(facts: Facts) -> str:
    soft, _ = facts.limits.open_files
    return f"{'unlimited' if soft is None else soft} open files"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(FEW,),
)
