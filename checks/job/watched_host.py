"""The GPU does not wait for the program's own process.

What it means
The CPU prepares and launches each kernel. If the program's main thread is always busy while the GPU has nothing to do, then the
GPU waits for it: for Python, for data that is prepared in the main process, or for launches of kernels that are too small.

How it is judged
If no kernel ran in at least 15 % of the time between the first and the last kernel, and the loaders and copies do not explain
it (watched-input, watched-transfers), the processes on the GPU are looked at. A thread that used 85 % of a core was the limit:
a thread that waits for the GPU in a loop cannot be mistaken for it, as the GPU had nothing to do. If the kernels also use few
of the multiprocessors (GPM, DCGM), launching them is the cost. If several threads together use one core, Python's global
interpreter lock is likely. If the thread used half a core or more, but was not always busy, then it and the GPU take turns: a
problem from 25 % of the time on, else only noted. If CPU and GPU both wait, the program waits for something else: a problem of
a command that was started to be watched from 25 % of the time on, else only noted.

Known exceptions
A server without requests waits rightly, so that is only noted of a process that was already running. A thread that polls (MPI,
UCX) uses its core while it waits for other ranks.

References
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
https://docs.nvidia.com/dl-cuda-graph/latest/index.html
https://docs.python.org/3/glossary.html#term-global-interpreter-lock
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.judging.jobs import input, kernels, transfers, works
from gpudoctor.judging.jobs.works import Work, found, percent
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

BUSY_THREAD = 0.85  # of a core
SOME_WORK = 0.12  # of a core: a thread that takes its turn
WAITS = 0.5  # of a core: both wait
LONG_WAIT = 0.25  # of the time
TUNING = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
GRAPHS = "https://docs.nvidia.com/dl-cuda-graph/latest/index.html"
STACKS = look("Show what the program's threads do now", "py-spy dump --pid <pid>")
PROFILE = look("Find the lines: gpudoctor profile, or torch.profiler", "gpudoctor explain low-gpu-utilisation")

HOST = Problem(
    id="job-host-bound",
    title="The GPU waits for a thread of the program that is always busy",
    why="One thread prepares the work for the GPU and uses a whole core, while the GPU has nothing to do. A faster GPU would not "
    "help; less work per step in this thread does.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        STACKS,
        Fix("If it loads data itself: move that to loader processes (DataLoader with num_workers) and copy asynchronously"),
        Fix("If it is Python between kernels: compile the model (torch.compile), use larger batches, and move loops to the GPU"),
    ),
    references=(TUNING,),
)
GIL = Problem(
    id="job-gil-bound",
    title="The program's threads take turns on one core",
    why="Several threads together use the time of one core, as threads of Python do that share the global interpreter lock. "
    "More threads do not help; processes do.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("Show which thread holds the lock", "py-spy dump --pid <pid>"),
        Fix("Use processes instead of threads: DataLoader workers, multiprocessing, one process for each GPU"),
    ),
    references=("https://docs.python.org/3/glossary.html#term-global-interpreter-lock",),
)
SMALL = Problem(
    id="job-small-kernels",
    title="Kernels are so small that most multiprocessors have nothing to do",
    why="Utilisation as nvidia-smi shows it says that some kernel runs, not how much of the GPU it uses. Launching a kernel "
    "costs the CPU some microseconds; if the kernel itself is as short, or fills few multiprocessors, most of the GPU is empty.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Give each kernel more work: larger batches, batched operations instead of loops (torch.bmm, vmap)"),
        Fix('Launch many kernels at once: torch.compile(model, mode="reduce-overhead") or CUDA graphs'),
        Fix("Combine small operations: torch.compile, fused optimizers (fused=True), one kernel in Triton"),
    ),
    references=(GRAPHS, TUNING),
)
NOTHING = Problem(
    id="job-waits-for-something-else",
    title="GPU and CPU both wait for something else",
    why="Neither the GPU nor a thread of the program was the limit: it waits for requests, another service, another node, a lock "
    "or a timer.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        STACKS,
        look("Show in which kernel function each thread waits", "cat /proc/<pid>/task/*/wchan"),
    ),
)
TURNS = Problem(
    id="job-takes-turns-with-gpu",
    title="GPU and CPU take turns instead of working at the same time",
    why="The program waits until the GPU has done everything, works on the host, and only then launches more. Reading values "
    "(.item(), .cpu()), torch.cuda.synchronize(), empty_cache() and saving checkpoints all do this.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Find the lines that wait for the GPU: gpudoctor profile -- COMMAND", kind="manual"),
        Fix("Read values from the GPU every 50 steps or so, and save checkpoints by time or in the background"),
        Fix("Remove torch.cuda.synchronize() and torch.cuda.empty_cache() from the steps"),
    ),
    references=(TUNING,),
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from works.on_each(facts, judge_one)


def judge_one(work: Work) -> Iterator[Finding]:
    evidence = measured(work)
    small = kernels.limit(work) == kernels.SMALL_KERNELS and transfers.is_not_the_traffic(work)
    if work.waits and (input.limits(work) or transfers.limits(work)):
        return
    if work.waits and work.main_thread >= BUSY_THREAD:
        if small and work.filled is not None:
            words = f"{work.had_nothing_to_do}, and its kernels filled {percent(work.filled)} of the multiprocessors; a thread "
            words += f"of {name(work)} used {percent(work.main_thread)} of a core to launch them"
            yield found(SMALL, work, words, 1 - work.busy * work.filled, True, **evidence)
        elif takes_turns(work):
            words = f"{work.had_nothing_to_do}; meanwhile {len(work.users[0].threads)} threads used one core together"
            yield found(GIL, work, words, work.idle, False, **evidence)
        else:
            words = f"{work.had_nothing_to_do}; meanwhile a thread of {name(work)} used {percent(work.main_thread)} of a core"
            yield found(HOST, work, words, work.idle, True, **evidence)
    elif small:
        filled = work.filled
        words = f"GPU {work.gpu.index} ran some kernel in {work.busy:.0%} of the time, but "
        if filled is None:
            words += "drew little power: its kernels are likely small (this GPU does not count the work of its multiprocessors)"
        else:
            words += f"on average {1 - filled:.0%} of its multiprocessors had nothing to do meanwhile"
        yield found(SMALL, work, words, 1 - (filled if filled is not None else 0.5), filled is not None, **evidence)
    elif work.waits and work.main_thread < WAITS and work.users:
        words = f"{work.had_nothing_to_do}; meanwhile {name(work)} used {percent(work.main_thread)} of a core{where(work)}"
        finding = found(NOTHING, work, words, work.idle, False, **evidence)
        yield finding if work.watched.kind == "command" and work.idle >= LONG_WAIT else finding.as_note
    elif work.waits and work.users and len(work.watched.used) == 1:
        words = (
            f"{work.had_nothing_to_do}; meanwhile the busiest thread of {name(work)} used {percent(work.main_thread)} of a core"
        )
        finding = found(TURNS, work, words, work.idle, False, **evidence)
        yield finding if work.idle >= LONG_WAIT else finding.as_note


def name(work: Work) -> str:
    return work.users[0].name if work.users else "the program"


def where(work: Work) -> str:
    waits = {place: share for place, share in work.users[0].waits.items() if len(place) > 1}
    place = max(waits, key=lambda place: waits[place], default="")
    return f" and waited in {place}" if place else ""


def takes_turns(work: Work) -> bool:
    """Threads that do some work each, and together as much as one core."""
    user = max(work.users, key=lambda user: user.cores, default=None)
    if user is None:
        return False
    working = [cores for _, cores in user.threads if cores >= SOME_WORK]
    return len(working) >= 3 and 0.8 <= user.cores <= 1.15


def measured(work: Work) -> dict[str, object]:
    return {
        "main_thread": round(work.main_thread, 2),
        "multiprocessors_filled": None if work.filled is None else round(work.filled, 3),
        "occupancy_percent": work.mean("occupancy"),
        "watts": work.mean("watts"),
        "stacks": list(work.watched.stacks) or None,
        "pid": next((user.pid for user in work.users), None),
    }


def summary(facts: Facts) -> str:
    found = works.busy_works(facts)
    busiest = max(work.main_thread for work in found)
    return f"the GPU does not wait for the program: its busiest thread used {busiest:.0%} of a core"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(HOST, GIL, SMALL, NOTHING, TURNS),
    tags=("performance",),
)
