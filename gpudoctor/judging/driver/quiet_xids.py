"""Xids without a fault: injected for a test, or marked by NVIDIA as needing no action. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor import knowledge
from gpudoctor.facts.kernel_log import Xid
from gpudoctor.facts.xids import GpuXids
from gpudoctor.fixes.common import ASK_OWNER, look, reset
from gpudoctor.model import Action, Finding, Problem, Status

CATALOG = ("https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",)

INJECTED = Problem(
    id="xid-injected",
    title="An error was injected on a GPU for a test",
    why="A tool such as DCGM provoked it. It says nothing about the hardware, but the GPU may need a reset afterwards.",
    action=Action.NONE,
    fixes=(
        look("If no test was meant to run: find what injects errors", "ps aux | grep -iE 'dcgmi|nv-hostengine|inject'"),
        reset(verify="nvidia-smi -i <address>"),
        ASK_OWNER,
    ),
    references=CATALOG,
    status=Status.WARN,
)
NOTHING_TO_DO = Problem(
    id="xid-needs-no-action",
    title="A GPU reported an Xid that needs no action",
    why="NVIDIA's catalogue marks this Xid as informational, unused or to be ignored. If programs fail, the cause is elsewhere.",
    action=Action.NONE,
    fixes=(
        look("Look for other messages of the driver around it", "sudo dmesg -T | grep -i nvrm | tail -n 20", root=True),
        ASK_OWNER,
    ),
    references=CATALOG,
    status=Status.WARN,
)
NAMELESS = ("Unused", "Reserved")


def need_no_action(gpu: GpuXids) -> Iterator[Finding]:
    """One finding if all that a GPU reported needs no action."""
    if gpu.faults and not any(map(_has_a_problem, gpu.codes)):
        row = knowledge.xid(gpu.codes[0])
        name = f" ({row.name})" if row and row.name not in NAMELESS else ""
        yield NOTHING_TO_DO.found(f"{gpu.words(gpu.codes)}{name}", gpu.evidence(gpu.codes), gpu.index)


def _has_a_problem(code: int) -> bool:
    """In any check; an unknown code has one."""
    known = knowledge.xid(code)
    return known is None or bool(known.problem)


def injected(xids: Sequence[Xid], counted: str) -> Iterator[Finding]:
    if xids:
        gpus, codes = sorted({xid.pci for xid in xids}), sorted({xid.code for xid in xids})
        times = f"{counted}{len(xids)} time{'s' if len(xids) > 1 else ''}"
        words = f"{', '.join(gpus)}: Xid {', '.join(map(str, codes))} was injected, {times}"
        yield INJECTED.found(words, {"address": f"{gpus[0]}.0", "xids": codes, "first": xids[0].text})
