"""Recurring errors: an error that a GPU reports again after a reset or in another boot is more serious than a single one. Pure.

Earlier boots are known from the journal (for recurring errors) and from logs given as evidence.
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
    "Install another driver release, then reboot (the error recurred after a reboot)",
    needs=("root", "reboot"),
    risk="disruptive",
    verify="nvidia-smi",
    on=("host",),
    recipe="driver",
)
REPLACE = (
    vendor_test("Take the GPU out of service and test it, as the error recurred", "-r 4", risk="disruptive"),
    report_to_vendor("If the test fails or the error recurs: request a replacement; the vendor needs this report"),
)
WATCH = kernel_log("Watch the log in case it recurs", "-E 'Xid|NVRM'", on=("host",))
AFTER_RESET = {Action.RESET_GPU: Action.REBOOT, Action.REBOOT: Action.REPLACE_HARDWARE}
TWICE = 2  # earlier boots after which a software fault is no longer likely


class Told(NamedTuple):
    """A problem with the severity of its history, and the text for its message."""

    problem: Problem
    words: str


def again(problem: Problem, gpu: GpuXids, codes: Collection[int], is_memory: bool = False) -> Told:
    """A problem of this boot."""
    boots = gpu.boots_with(codes)
    if boots:
        words = f"; it recurred after a reboot, as in {boots} earlier boot{'s' if boots > 1 else ''}"
        return Told(_graver(problem, _after_reboot(codes, boots)), words)
    if gpu.came_back(codes):
        action = Action.REPLACE_HARDWARE if is_memory else AFTER_RESET.get(problem.action)
        return Told(_graver(problem, action), "; it recurred after a reset")
    return Told(problem, "")


def before(problem: Problem, past: GpuXids, codes: Collection[int]) -> Told:
    """A problem of earlier boots that did not occur in this boot: only a warning."""
    boots = past.boots_with(codes)
    when = f"in {boots} boots before the last one" if boots > 1 else "before the last boot"
    if boots > 1:
        told = _graver(problem, _after_reboot(codes, boots - 1))
    else:
        told = replace(problem, action=Action.WATCH, fixes=(WATCH, *problem.fixes))
    return Told(replace(told, status=Status.WARN), f"; that was {when}, and has not recurred since")


def of_switch(problem: Problem, boots: int) -> Told:
    """A fatal error of an NVSwitch that it also reported in earlier boots."""
    if not boots:
        return Told(problem, "")
    words = f"; it recurred after a reboot, as in {boots} earlier boot{'s' if boots > 1 else ''}"
    return Told(_graver(problem, Action.REPLACE_HARDWARE), words)


def _after_reboot(codes: Collection[int], boots: int) -> Action | None:
    """The table's action for an error that also occurred in an earlier boot; in the third boot, replace the hardware."""
    known = [row.again for code in codes if (row := knowledge.xid(code)) and row.again]
    worst = max(known, key=list(Action).index, default=None)
    return Action.REPLACE_HARDWARE if worst is Action.REBOOT and boots >= TWICE else worst


def _graver(problem: Problem, action: Action | None) -> Problem:
    order = list(Action)
    if action is None or order.index(action) < order.index(problem.action):
        return problem
    return replace(problem, action=action, status=Status.FAIL, fixes=_fixes(problem, action))


def _fixes(problem: Problem, action: Action) -> tuple[Fix, ...]:
    """The fixes of a recurring problem. If it needs a reboot, its own first fix stays first: a test needs a working GPU."""
    more = REPLACE if action is Action.REPLACE_HARDWARE else (UPDATE,) if action is Action.REBOOT else ()
    own = tuple(fix for fix in problem.fixes if not fix.command or fix.command not in {other.command for other in more})
    first = 1 if problem.action is Action.REBOOT else 0
    return (*own[:first], *more, *own[first:])
