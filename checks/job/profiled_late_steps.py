"""No step of the profiled program lasts much longer than the others because the host does something else.

What it means
A program that writes a checkpoint, draws images or waits for a log server now and then stops the GPU for that time. The median
of the steps does not show it, although it can cost more than all steps together.

How it is judged
gpudoctor profile knows when each step ended on the host. Steps that last twice as long as the others, and 50 ms longer, are a
problem if no kernel ran in them for 5 % of the recorded time, without the time of the DataLoader, of compilations and of
allocations, which have their own problems. While such a step goes on, the main thread's stack is read every 20 ms.

Known exceptions
What happens less often than once in the recorded steps is not seen: --steps records more. A few steps are no fair sample of how
often a checkpoint is written.

References
https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.judging.jobs.traced_ranks import at, evidence, in_late_steps, percent, where, worst
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Status

LEAST = 0.05
SAVES = re.compile(r"save|checkpoint|ckpt|serializ|pickle|dump", re.IGNORECASE)
CHECKPOINT = Problem(
    id="checkpoints-stop-the-gpu",
    title="The GPU waits while a checkpoint is written",
    why="torch.save copies every tensor to the host and writes it to disk before the program goes on. The GPU has nothing to do "
    "in that time.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Save less often: by time (every 10 minutes or so) instead of every few steps"),
        Fix("Save in the background: torch.distributed.checkpoint.async_save copies to the host and writes in another thread"),
        Fix("Write to a local disk first, and copy the file to the network file system afterwards"),
    ),
    references=("https://docs.pytorch.org/tutorials/recipes/distributed_async_checkpoint_recipe.html",),
)
LATE = Problem(
    id="some-steps-stop-the-gpu",
    title="The GPU waits in some steps that last much longer",
    why="Now and then the program does something on the host that the other steps do not do: it writes files, draws, evaluates, "
    "or waits for a server. The GPU has nothing to do in that time.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Do the named lines less often, in another thread or process, or with tensors on the GPU"),
        Fix("Show how often it happens: gpudoctor profile --steps 200 -- COMMAND", kind="manual"),
    ),
    references=("https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    rank, share = worst(facts, in_late_steps)
    if share < LEAST:
        return
    late, rows = rank.late, [row for row in rank.late.get("lines") or () if row.get("file")]
    saving = [row for row in rows if saves(row)]
    problem, row = (CHECKPOINT, saving[0]) if saving else (LATE, rows[0] if rows else {})
    place = f"{row['file']}:{row['line']}" if row else ""
    said = f"{late['count']} of {rank.steps} steps last up to {late['longest_ms']:.0f} ms instead of {late['median_ms']:.0f} ms"
    said += f"{where(rank)}; the program is then{at(place)}" if place else where(rank)
    found = evidence(rank, share, late_steps=late["count"], longest_ms=late["longest_ms"], usual_ms=late["median_ms"], line=place)
    confidence = Confidence.CONFIRMED if place else Confidence.LIKELY
    yield problem.found(f"{said}, and no kernel runs for {percent(share)} of the time", found, confidence=confidence)


def saves(row: Mapping[str, Any]) -> bool:
    words = (row.get("function"), row.get("leaf"), row.get("through"))
    return any(SAVES.search(str(word)) for word in words if word)


def summary(facts: Facts) -> str:
    rank, share = worst(facts, in_late_steps)
    return f"steps that last longer stop the GPU for {percent(share)} of the time" if rank.late else "no step lasts much longer"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(CHECKPOINT, LATE),
    tags=("performance",),
)
