"""The driver belongs to a branch that NVIDIA still maintains.

What it means
NVIDIA maintains a driver branch (580, 595) for one to three years. After that it gets no security fixes and no support for new
kernels, and new CUDA releases stop supporting it.

How it is judged
The check compares the driver's branch with the dates in NVIDIA's table, as of the month in which this machine was examined. A
branch past its end of life is a note, not a warning: what runs today continues to run.

Known exceptions
Under WSL the driver is a Windows driver with other numbers. A branch that is not in the table is not judged.

References
https://docs.nvidia.com/datacenter/tesla/drivers/supported-drivers-and-cuda-toolkit-versions.html
https://docs.nvidia.com/datacenter/tesla/drivers/615/supported-drivers-and-cuda-toolkit-versions.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import install_on
from gpudoctor.knowledge import branch
from gpudoctor.knowledge.cuda import table
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

END_OF_LIFE = Problem(
    id="driver-branch-end-of-life",
    title="The driver's branch is past its end of life",
    why="NVIDIA no longer maintains it: security holes stay open, new kernels break its build, new CUDA releases do not "
    "support it.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        Fix("Keep the driver until the next maintenance window: what runs today continues to run"),
        *install_on(
            "Install a maintained branch",
            recipe="driver <maintained>",
            verify="nvidia-smi",
            debian="(sudo apt install nvidia-driver-<package> || sudo apt install nvidia-driver)",
            rhel="sudo dnf upgrade '*nvidia*'",
            suse="sudo zypper update '*nvidia*'",
            arch="sudo pacman -Syu",
            other="sudo sh NVIDIA-Linux-*-<maintained>.*.run",
            reboot=True,
        ),
    ),
    references=("https://docs.nvidia.com/datacenter/tesla/drivers/supported-drivers-and-cuda-toolkit-versions.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the driver is a Windows driver")
    if facts.container.engine:
        raise Skip("the driver is installed on the host, not in this container")
    number = facts.driver.branch
    if number is None:
        raise Skip("no driver is installed")
    known, month = branch(number), facts.taken[: len("2026-11")]
    if known is None:
        raise Skip(f"R{number} is not in the built-in copy of NVIDIA's table", Skip.UNSUPPORTED)
    if known.is_over(month):
        maintained = oldest_maintained(number, month)
        words = f"R{number} reached its end of life" + (f" in {known.end_of_life}" if known.end_of_life else "")
        words += f"; the nearest maintained branch is R{maintained}"
        package = f"{maintained}-open" if facts.driver.module_is_open else str(maintained)
        found = END_OF_LIFE.found(words, {"branch": number, "maintained": maintained, "package": package}).as_note
        yield replace(found, is_clue=facts.texts.alone)  # who pastes a text asks about something else


def oldest_maintained(number: int, month: str) -> int:
    """The nearest newer maintained production or LTS branch; the newest known branch if no such branch exists."""
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
