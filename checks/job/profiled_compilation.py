"""torch.compile of the profiled program is done after its first steps.

What it means
A compiled function is compiled again if its inputs change in a way that its guards exclude: a new shape, another type, a number
that was a constant. At a graph break the compiled code returns to Python.

How it is judged
torch counts its compilations, the reasons of repeated ones, and the graph breaks. A compilation after the warm-up steps, in the
profiled window, is a problem. Graph breaks are a problem if the GPU also waits for the host for 10 % of the time, else a note.

Known exceptions
A short program may be profiled from its beginning; its first compilations have no reason and are not judged.

References
https://docs.pytorch.org/docs/stable/torch.compiler_dynamic_shapes.html
https://docs.pytorch.org/docs/stable/torch.compiler_faq.html#graph-breaks
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs.traced_ranks import evidence, where, worst
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

LEAST_WAITING = 0.10
MOST_WORDS = 160
RECOMPILES = Problem(
    id="compiles-in-steps",
    title="torch.compile compiles again during the training",
    why="Each compilation takes seconds in which the GPU is idle. After 8 of them torch gives up and runs the "
    "function uncompiled.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Mark what changes: torch._dynamo.mark_dynamic(tensor, dimension), or torch.compile(model, dynamic=True)"),
        Fix("Use a few fixed batch sizes by padding, and drop the last incomplete one: DataLoader(…, drop_last=True)"),
        Fix("Print the reason of each compilation", "TORCH_LOGS=recompiles <program>", kind="manual"),
    ),
    references=("https://docs.pytorch.org/docs/stable/torch.compiler_dynamic_shapes.html",),
)
BREAKS = Problem(
    id="graph-breaks",
    title="torch.compile splits the model at graph breaks",
    why="At each graph break the program returns from compiled code to Python, and kernels cannot be fused across it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Print each graph break with its line", "TORCH_LOGS=graph_breaks <program>", kind="manual"),
        Fix("Remove what cannot be compiled from the forward pass (print, .item(), data-dependent ifs); fullgraph=True finds it"),
    ),
    references=("https://docs.pytorch.org/docs/stable/torch.compiler_faq.html#graph-breaks",),
)


def lost(rank: Rank) -> float:
    return rank.gap("compiling") + len(rank.repeated_compilations) * 1e-6


def judge(facts: Facts) -> Iterator[Finding]:
    rank, _ = worst(facts, lost)
    if not rank.compilations:
        raise Skip("the program does not use torch.compile")
    if found := rank.repeated_compilations:
        most = found[-1]
        spent = sum(row["seconds"] for row in found)
        place = f"{most['file']}:{most.get('line')}" if most.get("file") else str(most.get("function"))
        reason = most["reason"][:MOST_WORDS]
        said = f"{len(found)} compilations in the profiled steps{where(rank)}, {spent:.1f} s, the last of {place}: {reason}"
        lost_again = min(rank.gap("compiling"), rank.of_window(spent))
        yield RECOMPILES.found(said, evidence(rank, lost_again, compilations=len(found), reason=reason))
    if breaks := rank.graph_breaks:
        waiting = rank.gap("launching") + rank.gap("python")
        first = max(breaks, key=lambda reason: breaks[reason])[:MOST_WORDS]
        said = f"{sum(breaks.values())} graph breaks{where(rank)}, most often: {first}"
        finding = BREAKS.found(said, evidence(rank, waiting, graph_breaks=sum(breaks.values())))
        yield finding if waiting >= LEAST_WAITING else finding.as_note


def summary(facts: Facts) -> str:
    rank, _ = worst(facts, lost)
    return f"{rank.compilations} compilations, none of them repeated in the profiled steps"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(RECOMPILES, BREAKS),
    tags=("performance",),
)
