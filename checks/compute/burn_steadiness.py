"""Under full load for minutes, each GPU stays as fast and as cool as the others of its kind.

What it means
Dried thermal paste, a fan that turns too slowly or a bad slot shows only after minutes of load: the GPU gets hot, lowers its
clocks, and every job that uses it runs at its speed.

How it is judged
Compares the speed of the same product in the first and the last third of gpudoctor burn: more than 5 % less is a warning, with
what held the clocks down. Among GPUs of one model, one that is more than 5 % slower (10 % of two) or more than 10 °C hotter
(15 °C of two) than the median of the others warns; among three or more it must also be an outlier by the modified z-score. So
does one whose memory is that much hotter. In a row of four or more, the only one that is 10 °C hotter than the GPUs in both
next slots warns, too: in the warm air of the others, the last ones are hotter than the first without a fault.

Known exceptions
A GPU at its power limit loses 2 to 3 % while it warms up, since leakage takes a larger part of the power. Without enough
stretches (about two minutes) nothing is said about drift.

References
https://www.itl.nist.gov/div898/handbook/eda/section3/eda35h.htm
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import FANS, airflow, look
from gpudoctor.judging.measured import burning, expect
from gpudoctor.judging.measured.burning import Burned
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

SAG = 0.05
SLOWER = {True: 0.10, False: 0.05}  # of a pair, of more
HOTTER = {True: 15.0, False: 10.0}  # °C
LEAST_ROW = 4  # GPUs, to compare each with its neighbours
LOOK = "nvidia-smi -q -i <address> -d PERFORMANCE,TEMPERATURE,CLOCK"
COOL = airflow(LOOK)
SLOT = Fix(
    "Swap it with a neighbour: if the heat moves with the card, the card is at fault, else the slot", verify="gpudoctor burn"
)

SAGS = Problem(
    id="burn-slows-down",
    title="Under load, the GPU gets slower by the minute",
    why="It was faster at the start than at the end of the load. Short benchmarks do not show this, but every long job has it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(look("Show what holds the clocks down, under load", LOOK), COOL, FANS),
)
STRAGGLES = Problem(
    id="burn-straggler",
    title="Under load, one GPU is slower than the others of its kind",
    why="A job on all of them waits for the slowest at every step.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("Compare its clocks, power limit and reasons with those of the others", "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER"),
        SLOT,
    ),
)
HOT = Problem(
    id="burn-hotter",
    title="Under load, one GPU gets much hotter than the others of its kind",
    why="The same load on the same board: the difference is its airflow, its heat sink or its fan. It will slow down first.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(COOL, FANS, SLOT),
)


def judge(facts: Facts) -> Iterator[Finding]:
    found = [each for each in burning.burned(facts) if each.index is not None]
    for each in found:
        yield from judge_trend(each)
    for group in burning.by_kind(facts, found):
        yield from judge_group(facts, group)


def judge_trend(each: Burned) -> Iterator[Finding]:
    trend = burning.trend(each.hottest)
    if trend and trend.lost > SAG:
        held = burning.names_of(trend.reasons)
        words = f"GPU {each.index}: {trend.before:.0f} TFLOP/s at the start, {trend.after:.0f} at the end ({trend.lost:.0%} less)"
        words += f", held down by: {', '.join(held)}" if held else ""
        yield SAGS.found(
            words, {"address": each.index, "before": trend.before, "after": trend.after, "reasons": held}, each.index
        )


def judge_group(facts: Facts, group: list[Burned]) -> Iterator[Finding]:
    is_pair = len(group) == 2
    speeds = {each.index: slowest(each) for each in group if each.index is not None and each.hottest}
    for index, value, usual in burning.odd(speeds, -1, SLOWER[is_pair]):
        words = f"GPU {index}: {value:.0f} TFLOP/s, the others {usual:.0f}"
        yield STRAGGLES.found(words, {"address": index, "tflops": value, "usual": usual}, index)
    yield from judge_heat(facts, group)


def judge_heat(facts: Facts, group: list[Burned]) -> Iterator[Finding]:
    """One finding of each GPU: hotter than the others, or its memory is, or hotter than its neighbours."""
    least = HOTTER[len(group) == 2]
    own, memory = (
        {each.index: top for each in group if each.index is not None and (top := of(each))} for of in (highest, of_memory)
    )
    found: dict[int, str] = {}
    for part, degrees in (("", own), ("memory at ", memory)):
        for index, value, usual in burning.odd(degrees, 1, least=least):
            found.setdefault(index, f"{part}{value:.0f} °C, the others {usual:.0f} °C")
    if len(own) >= LEAST_ROW:
        hot = burning.hotter_than_neighbours(own, in_slots(facts, own), least)
        if hot:
            found.setdefault(hot.gpu, f"{hot.value:.0f} °C, the GPUs in the next slots at most {hot.usual:.0f} °C")
    for index, words in found.items():
        yield HOT.found(f"GPU {index}: {words}", {"address": index, "celsius": own.get(index)}, index)


def by_index(group: list[Burned], of: Callable[[Burned], float]) -> dict[int, float]:
    return {each.index: top for each in group if each.index is not None and (top := of(each))}


def in_slots(facts: Facts, indices: Iterable[int]) -> list[int]:
    """In the order of their PCI addresses."""
    gpus = {index: expect.gpu(facts, index) for index in indices}
    return sorted(gpus, key=lambda index: (gpu.bus_id if (gpu := gpus[index]) else "", index))


def slowest(each: Burned) -> float:
    return min(stretch.tflops for stretch in each.hottest)


def highest(each: Burned) -> float:
    return max((stretch.celsius for stretch in each.stretches if stretch.celsius is not None), default=0.0)


def of_memory(each: Burned) -> float:
    return max((stretch.memory_celsius for stretch in each.stretches if stretch.memory_celsius is not None), default=0.0)


def summary(facts: Facts) -> str:
    found = [each for each in burning.burned(facts) if each.index is not None]
    trends = [trend for each in found if (trend := burning.trend(each.hottest))]
    if not trends:
        raise Skip("the load was too short to say whether the GPU gets slower", Skip.NOT_MEASURED)
    worst = max(trend.lost for trend in trends)
    alike = "" if len(found) < 2 else f", {len(found)} GPUs alike"
    return f"speed changed by {-worst:+.1%} from the first to the last third{alike}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(SAGS, STRAGGLES, HOT),
    needs=("cuda-context",),
    after=("burn",),
    level="burn",
    tags=("hardware", "performance"),
)
