"""The profiled program does not make the GPU wait in every step.

What it means
PyTorch launches work ahead of the GPU. A line that needs a value from the GPU (.item(), .cpu(), print, a boolean mask, nonzero)
waits until the GPU has done everything before it. Then the GPU has nothing to do until the next work is launched.

How it is judged
gpudoctor profile records each call that waits, and how long the GPU was idle right after it: at most as long as the host had
waited, since a host that has more to do before its next launch would be late anyway. A call that is repeated in about
every step is a problem if this costs 2 % of the time or more. A program that waits after every 20 kernels or fewer never gets
ahead of the GPU: then the time between its launches counts, too. Waits for copies to the GPU are judged by profiled-copies. The
line is the one on which the program's main thread was seen most often during these waits.

Known exceptions
A program whose GPU never waits, because the host is far ahead, loses nothing; its waits are not reported.

References
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization
https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs.traced_ranks import (
    at,
    between_launches,
    evidence,
    line,
    never_gets_ahead,
    per_step,
    percent,
    waits,
    where,
    worst,
)
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Status

LEAST = 0.02  # of the time
WORDS = {
    "aten::item": ".item(), float() or an if on a tensor",
    "aten::_local_scalar_dense": ".item(), float() or an if on a tensor",
    "aten::is_nonzero": "an if on a tensor",
    "aten::nonzero": "nonzero or a boolean mask",
    "aten::index": "a boolean mask",
    "aten::index_put_": "an assignment by a boolean mask",
    "aten::masked_select": "masked_select",
    "aten::unique": "unique",
    "aten::_unique2": "unique",
    "aten::equal": "torch.equal",
    "aten::to": ".cpu() or .to('cpu')",
    "aten::_to_copy": ".cpu() or .to('cpu')",
    "aten::copy_": "a copy to the host",
}
SYNCHRONISES = Problem(
    id="synchronises-in-every-step",
    title="The GPU is idle because the program waits for it in every step",
    why="While the host waits, it launches nothing. Once the GPU has finished, it is idle until the next launch "
    "arrives. Without "
    "the wait the host would be steps ahead.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Read values from the GPU only every 50 steps or so: collect loss.detach() in a list, call .item() when you log"),
        Fix("Replace boolean masks, nonzero and unique on the GPU with torch.where or masks that are multiplied"),
        Fix('Print a warning with the line of every wait: torch.cuda.set_sync_debug_mode("warn") at the start of the program'),
    ),
    references=(
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization",
        "https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html",
    ),
)


def lost(rank: Rank) -> float:
    after = rank.of_window(sum(row["idle_s"] for row in waits(rank)))
    return after + (between_launches(rank) if never_gets_ahead(rank, waits(rank)) else 0.0)


def judge(facts: Facts) -> Iterator[Finding]:
    rank, share = worst(facts, lost)
    if share < LEAST:
        return
    most = waits(rank)[0]
    what = WORDS.get(most["operator"], most["operator"] or most["call"])
    said = f"{what}{at(line(most))} waits for the GPU {per_step(most['count'], rank)}{where(rank)}; the GPU is then idle for "
    others = [f"{row['operator'] or row['call']}{at(line(row))}" for row in waits(rank)[1:5]]
    found = evidence(rank, share, operator=most["operator"], call=most["call"], line=line(most), other_waits=others)
    confidence = Confidence.CONFIRMED if line(most) else Confidence.LIKELY
    yield SYNCHRONISES.found(f"{said}{percent(share)} of the time", found, confidence=confidence)


def summary(facts: Facts) -> str:
    rank, share = worst(facts, lost)
    number = sum(row["count"] for row in waits(rank))
    return f"{number} repeated waits for the GPU cost {percent(share)} of the time" if number else "no step waits for the GPU"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(SYNCHRONISES,),
    tags=("performance",),
)
