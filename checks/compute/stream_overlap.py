"""Copies overlap with computing, and small kernels run concurrently.

What it means
Programs copy the next batch while the GPU computes, on two streams, so that the copy costs no time. If the two run one after
the other, every step takes longer by its copies. The program is correct, only slow.

How it is judged
Runs a copy and a kernel that take equally long, alone and together, in each direction, and measures the share of the shorter
one that the other hides. A healthy GPU hides nearly all of it; less than 70 % warns. Eight kernels that need one
multiprocessor each, on eight streams, must take less than half of the time that they take one after the other.

Known exceptions
Under WSL2, Windows submits work to the GPU in batches, so only less than 30 % warns. A GPU without a separate copy engine
hides nothing. Pageable memory, which programs use by default, never overlaps with computing; this check measures page-locked
memory.

References
https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html
https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.measured import Run
from gpudoctor.fixes.common import SLOWED_LAUNCHES, look
from gpudoctor.judging.measured import faults, launching, slowness
from gpudoctor.judging.measured.shortfalls import Shortfall
from gpudoctor.judging.measured.slowness import Slow
from gpudoctor.model import Action, Cause, Check, Confidence, Figure, Finding, Fix, Problem, Skip, Status

WORKLOAD = "stream-overlap"
GUIDE = "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html"
AGAIN = "gpudoctor check --only stream-overlap --gpus <index>"
WAYS = ("to GPU", "from GPU")
SHARE, RATIO = "%", "× the time of one"  # units: the hidden share of a copy; the time of all kernels relative to one
LEAST, LEAST_UNDER_WSL = 0.7, 0.3
SERIAL = 0.5  # of the time that all kernels take one after the other
CAUSES = (Cause(faults.SHARED, slowness.shared),)  # low clocks slow down all parts equally
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
ENVIRONMENT = SLOWED_LAUNCHES

NO_OVERLAP = Problem(
    id="copies-do-not-overlap",
    title="Copies and kernels on two streams do not overlap",
    why="The GPU has engines that copy while it computes. Here a copy waits for the kernel, or the program waits for the launch, "
    "so programs that load data while computing are slower.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        ENVIRONMENT,
        look("Measure again without debuggers, profilers and other programs on the GPU", AGAIN),
    ),
    references=(GUIDE,),
)
ONE_BY_ONE = Problem(
    id="kernels-run-one-by-one",
    title="Small kernels on several streams run one after the other",
    why="The GPU has room for all of them at once. Programs with many small kernels, such as inference of small models, use only "
    "a fraction of it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        ENVIRONMENT,
        Fix("If it is set: unset it, so that streams get more queues", f"unset {CONNECTIONS}", verify=AGAIN, where="shell"),
    ),
    references=(GUIDE,),
)


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        yield from overlap(run)
        yield from concurrent(run)


def overlap(run: Run) -> Iterator[Figure]:
    for way in WAYS:
        result = run.values.get(way)
        if result:
            count = result.get("wrong_words", 0)
            words = f"{count} wrong 8-byte words" if count else ""
            hidden = min(100.0, max(0.0, 100 * result["hidden"]))
            yield Figure(f"copy {way} hidden", hidden, SHARE, run.gpu, wrong=words, during=result.get("during", {}))


def concurrent(run: Run) -> Iterator[Figure]:
    result = run.values.get("concurrent kernels")
    if result:
        ratio = result["all_milliseconds"] / result["one_milliseconds"]
        name, during = f"{result['kernels']} concurrent kernels", result.get("during", {})
        yield Figure(name, ratio, RATIO, run.gpu, less_is_better=True, during=during)


def judge(facts: Facts) -> Iterator[Finding]:
    runs = {run.gpu: run for run in facts.measured.runs(WORKLOAD)}
    yield from slowness.wrong_results(facts, facts.once(figures))
    able = [gpu for gpu, run in runs.items() if run.values.get("engines", {}).get("copy") != 0]
    least = LEAST_UNDER_WSL if facts.system.wsl else LEAST
    shares = [figure for figure in facts.once(figures) if figure.unit == SHARE and figure.gpu in able]
    turns = [shortfall for figure in shares for shortfall in taking_turns(figure, least)]
    yield from launching.judge(facts, turns, NO_OVERLAP, CAUSES)
    waiting = {shortfall.figure.gpu for shortfall in turns}
    ratios = [figure for figure in facts.once(figures) if figure.unit == RATIO and figure.gpu not in waiting]
    rest = [shortfall for figure in ratios for shortfall in one_by_one(figure, runs[figure.gpu])]
    yield from launching.judge(facts, rest, ONE_BY_ONE, (Cause(ONE_BY_ONE, one_queue), *CAUSES))
    if not able:
        raise Skip("this GPU has no separate copy engine", Skip.UNSUPPORTED)


def taking_turns(figure: Figure, least: float) -> Iterator[Shortfall]:
    if figure.value < 100 * least:
        yield Shortfall(figure, figure.value / 100, least, "what a healthy GPU hides")


def one_by_one(figure: Figure, run: Run) -> Iterator[Shortfall]:
    count = run.values["concurrent kernels"]["kernels"]
    if figure.value > SERIAL * count:
        yield Shortfall(figure, 1 / figure.value, 1 / (SERIAL * count), "the speed of a healthy GPU")


def one_queue(slow: Slow) -> Finding | None:
    """A variable makes all streams share one hardware queue."""
    if slow.facts.environment.get(CONNECTIONS) != "1":
        return None
    return slow.found(ONE_BY_ONE, f"{CONNECTIONS}=1 is set", confidence=Confidence.LIKELY)


def summary(facts: Facts) -> str:
    shares = [figure.value for figure in facts.once(figures) if figure.unit == SHARE]
    return f"at least {min(shares):.0f} % of a copy overlaps with computing" if shares else "no copy was measured"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_OVERLAP, ONE_BY_ONE, *faults.ALL),
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
    tags=("performance",),
)
