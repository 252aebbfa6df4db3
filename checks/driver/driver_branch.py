"""The driver belongs to a branch that NVIDIA still maintains.

What it means
NVIDIA maintains a driver branch (580, 595) for one to three years. After that there are no fixes for security holes and new
kernels, and new CUDA releases stop supporting it.

How it is judged
The branch of the driver against the dates of NVIDIA's table, as of the month in which this machine was looked at.

Known exceptions
Under WSL the driver is a Windows one, with other numbers. A branch that the table does not know is not judged.

References
https://docs.nvidia.com/datacenter/tesla/drivers/supported-drivers-and-cuda-toolkit-versions.html
https://docs.nvidia.com/datacenter/tesla/drivers/615/supported-drivers-and-cuda-toolkit-versions.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import install_on
from gpudoctor.knowledge import branch
from gpudoctor.knowledge.cuda import table
from gpudoctor.model import Action, Check, Finding, Problem, Skip, Status

END_OF_LIFE = Problem(
    id="driver-branch-end-of-life",
    title="The driver's branch is past its end of life",
    why="NVIDIA no longer repairs it: security holes stay open, new kernels break its build, new CUDA releases leave it behind.",
    action=Action.WATCH,
    status=Status.WARN,
    latent=True,
    fixes=install_on(
        "Install a branch that is maintained",
        recipe="driver <maintained>",
        verify="nvidia-smi",
        debian="(sudo apt install nvidia-driver-<package> || sudo apt install nvidia-driver)",
        rhel="sudo dnf upgrade '*nvidia*'",
        suse="sudo zypper update '*nvidia*'",
        arch="sudo pacman -Syu",
        other="sudo sh NVIDIA-Linux-*-<maintained>.*.run",
        reboot=True,
    ),
    references=("https://docs.nvidia.com/datacenter/tesla/drivers/supported-drivers-and-cuda-toolkit-versions.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the driver is a Windows one")
    if facts.container.engine:
        raise Skip("the driver is the host's matter, not this container's")
    number = facts.driver.branch
    if number is None:
        raise Skip("no driver is installed")
    known, month = branch(number), facts.taken[: len("2026-11")]
    if known is None:
        raise Skip(f"R{number} is not in NVIDIA's table that is known here", Skip.UNSUPPORTED)
    if known.is_over(month):
        words = f"R{number} reached its end of life" + (f" in {known.end_of_life}" if known.end_of_life else "")
        maintained = oldest_maintained(number, month)
        package = f"{maintained}-open" if facts.driver.module_is_open else str(maintained)
        yield END_OF_LIFE.found(words, {"branch": number, "maintained": maintained, "package": package})


def oldest_maintained(number: int, month: str) -> int:
    """The nearest newer branch for production that is maintained; the newest known where none is."""
    kinds = ("production", "long-term support")
    newer = (row.number for row in table().branches if row.kind in kinds and row.number > number and not row.is_over(month))
    return min(newer, default=max(row.number for row in table().branches))


def summary(facts: Facts) -> str:
    number = facts.driver.branch or 0
    known = branch(number)
    return f"R{number}" + (f", maintained until {known.end_of_life}" if known and known.end_of_life else "")


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(END_OF_LIFE,),
    needs=("kernel-module",),
)
