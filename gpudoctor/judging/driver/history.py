"""What came back: an error that a GPU reports again after a reset or in another boot is graver than one that came once. Pure.

Of earlier boots tell the journal, for what came back, and logs that were given as evidence.
https://docs.nvidia.com/health-validation/reference/checks/xid.md
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from gpudoctor import knowledge
from gpudoctor.facts.xids import GpuXids
from gpudoctor.fixes.common import kernel_log, report_to_vendor, vendor_test
from gpudoctor.model import Action, Fix, Problem, Status

UPDATE = Fix(
    "It came back after a reboot: install another release of the driver, then reboot",
    needs=("root", "reboot"),
    risk="disruptive",
    verify="nvidia-smi",
    on=("host",),
    recipe="driver",
)
REPLACE = (
    vendor_test("It came back: take the GPU out of service, and test it", "-r 4", risk="disruptive"),
    report_to_vendor("If it fails there, or comes back once more: have it replaced; the vendor wants"),
)
WATCH = kernel_log("It has not come back: watch for it", "-E 'Xid|NVRM'", on=("host",))
AFTER_RESET = {Action.RESET_GPU: Action.REBOOT, Action.REBOOT: Action.REPLACE_HARDWARE}
TWICE = 2  # earlier boots after which a fault of software is no longer likely


class Told(NamedTuple):
    """A problem as grave as its history makes it, and the words that say so."""

    problem: Problem
    words: str


def again(problem: Problem, gpu: GpuXids, codes: Collection[int], is_memory: bool = False) -> Told:
    """A problem of this boot."""
    boots = gpu.boots_with(codes)
    if boots:
        words = f"; it came back after a reboot, as in {boots} earlier boot{'s' if boots > 1 else ''}"
        return Told(_graver(problem, _after_reboot(codes, boots)), words)
    if gpu.came_back(codes):
        action = Action.REPLACE_HARDWARE if is_memory else AFTER_RESET.get(problem.action)
        return Told(_graver(problem, action), "; it came back after a reset")
    return Told(problem, "")


def before(problem: Problem, past: GpuXids, codes: Collection[int]) -> Told:
    """A problem of earlier boots that this boot has not seen: no more than a warning."""
    boots = past.boots_with(codes)
    when = f"in {boots} boots before the last one" if boots > 1 else "before the last boot"
    if boots > 1:
        told = _graver(problem, _after_reboot(codes, boots - 1))
    else:
        told = replace(problem, action=Action.WATCH, fixes=(WATCH, *problem.fixes))
    return Told(replace(told, status=Status.WARN), f"; that was {when}, and has not come back since")


def of_switch(problem: Problem, boots: int) -> Told:
    """A fatal error of an NVSwitch that it also reported in earlier boots."""
    if not boots:
        return Told(problem, "")
    words = f"; it came back after a reboot, as in {boots} earlier boot{'s' if boots > 1 else ''}"
    return Told(_graver(problem, Action.REPLACE_HARDWARE), words)


def _after_reboot(codes: Collection[int], boots: int) -> Action | None:
    """What the table says for an error that was there in an earlier boot too; in the third boot the hardware is to blame."""
    known = [row.again for code in codes if (row := knowledge.xid(code)) and row.again]
    worst = max(known, key=list(Action).index, default=None)
    return Action.REPLACE_HARDWARE if worst is Action.REBOOT and boots >= TWICE else worst


def _graver(problem: Problem, action: Action | None) -> Problem:
    order = list(Action)
    if action is None or order.index(action) < order.index(problem.action):
        return problem
    return replace(problem, action=action, status=Status.FAIL, fixes=_fixes(problem, action))


def _fixes(problem: Problem, action: Action) -> tuple[Fix, ...]:
    """A GPU that is gone has to be brought back before it can be tested."""
    more = REPLACE if action is Action.REPLACE_HARDWARE else (UPDATE,) if action is Action.REBOOT else ()
    own = tuple(fix for fix in problem.fixes if not fix.command or fix.command not in {other.command for other in more})
    first = 1 if problem.action is Action.REBOOT else 0
    return (*own[:first], *more, *own[first:])
