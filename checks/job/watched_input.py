"""The GPU does not wait for the processes that load its data.

What it means
A training loop takes its batches from loader processes. If they deliver too slowly, the GPU has nothing to do meanwhile, and a
faster GPU would not help. What holds the loaders back decides what helps: too few of them, too few CPUs, one CPU for all of
them, a slow disk, or a network file system.

How it is judged
The time between the first and the last kernel counts. If no kernel ran in at least 15 % of it, the loaders are looked at: CPU
time of each, states and kernel functions in which they waited, the CPUs on which they may run, how long they were ready without a
CPU, and the file systems on which they have files open. Loaders that use 80 % of a core are saturated. If they wait in state D in
30 % of the looks, storage holds them back. A fix saves at most the time in which the GPU waited.

Known exceptions
A program that loads data in its main process has no loaders: see watched-host. Loaders that are idle have delivered in time.

References
https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
https://docs.kernel.org/filesystems/proc.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.judging.jobs import input, works
from gpudoctor.judging.jobs.input import Loading
from gpudoctor.judging.jobs.works import Work, found, percent
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

LOADING = "https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading"
TUNING = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
TOP = look("Show what each loader process does", "top -H -b -n 1 -p <pid>")
CHEAPER = Fix("Do less per sample: decode smaller images, prepare the data once beforehand, move augmentation to the GPU")

FEW_WORKERS = Problem(
    id="loaders-saturated",
    title="The GPU waits for loader processes that use all of their core",
    why="Each loader is a process that uses at most one core. More of them load more batches at the same time, as long as cores "
    "are free.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Start more loaders: raise num_workers of the DataLoader, and set persistent_workers=True"),
        CHEAPER,
        TOP,
    ),
    references=(LOADING, TUNING),
)
FEW_CORES = Problem(
    id="loaders-lack-cpus",
    title="The GPU waits for loader processes that get too little CPU",
    why="All CPUs that the job may use are busy. More loaders would only take turns; each batch has to cost less, or the job "
    "needs more CPUs.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        CHEAPER,
        Fix("Give the job more CPUs: --cpus-per-task (Slurm), --cpus (docker run), resources.limits.cpu (Kubernetes)"),
        Fix("Start fewer loaders and threads, so that they do not interrupt each other: num_workers, OMP_NUM_THREADS=1 for each"),
        look("Show the load and the CPUs that this shell may use", "uptime; nproc; cat /proc/pressure/cpu"),
    ),
    references=(TUNING, "https://docs.kernel.org/accounting/psi.html"),
)
ONE_CORE = Problem(
    id="loaders-bound-to-few-cpus",
    title="The loader processes share fewer CPUs than there are loaders",
    why="Loaders inherit the CPU affinity of the program that starts them. A library, a launcher or the scheduler has bound it "
    "to a few CPUs, so more loaders do not load faster.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("Show on which CPUs the process may run", "taskset -pc <pid>"),
        Fix("Bind the job to more CPUs: --cpus-per-task and --cpu-bind (Slurm), --cpuset-cpus (docker run)"),
        Fix(
            "If a library binds the process (OpenMP, MKL): unset its affinity",
            "unset KMP_AFFINITY GOMP_CPU_AFFINITY",
            where="shell",
        ),
    ),
    references=("https://man7.org/linux/man-pages/man1/taskset.1.html",),
)
DISK = Problem(
    id="loaders-wait-for-disk",
    title="The GPU waits for loader processes that wait for a disk",
    why="The loaders are blocked in the kernel (state D) until the disk has read what they need. Many small files read in random "
    "order are the usual reason.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("Show how busy each disk is", "iostat -x 1 5"),
        Fix("Copy the data to a local NVMe disk or to memory (/dev/shm) before the program starts"),
        Fix("Store many small files in few large ones (WebDataset, Parquet, LMDB) and read them in order"),
        Fix("Start more loaders, so that more reads are in flight: num_workers, prefetch_factor"),
    ),
    references=(LOADING,),
)
NETWORK = Problem(
    id="loaders-wait-for-network-files",
    title="The GPU waits for loader processes that read from the network",
    why="The data lies on a network file system. Each file that is opened costs several round trips there, and all nodes share "
    "its bandwidth.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Copy the data to a local disk before the program starts"),
        Fix("Store many small files in few large ones (WebDataset, Parquet, LMDB) and read them in order"),
        look("Show how long operations on each NFS mount take", "nfsiostat 1 3"),
        Fix("Start more loaders, so that more reads are in flight: num_workers, prefetch_factor"),
    ),
    references=(LOADING, "https://man7.org/linux/man-pages/man8/nfsiostat.8.html"),
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from works.on_each(facts, judge_one)


def judge_one(work: Work) -> Iterator[Finding]:
    loaders = input.loading(work)
    if not loaders or not work.waits or not input.limits(work):
        return
    evidence = measured(work, loaders)
    who = f"{loaders.number} loader process{'es' if loaders.number > 1 else ''}"
    each = " each" * (loaders.number > 1)
    if loaders.is_on_few_cores:
        words = f"{work.had_nothing_to_do}; meanwhile {who} shared {loaders.affinity} CPU and used {percent(loaders.all)} of it"
        yield found(ONE_CORE, work, words, work.idle, True, **evidence)
    elif loaders.is_blocked and loaders.network >= loaders.disk:
        where = f" ({', '.join(loaders.file_systems)})" if loaders.file_systems else ""
        words = f"{work.had_nothing_to_do}; meanwhile {who} waited for a network file system{where} in {percent(loaders.network)}"
        yield found(NETWORK, work, f"{words} of the looks", work.idle, bool(loaders.file_systems), **evidence)
    elif loaders.is_blocked:
        words = f"{work.had_nothing_to_do}; meanwhile {who} waited for a disk in {percent(loaders.disk)} of the looks"
        yield found(DISK, work, words, work.idle, loaders.disk >= 0.5, **evidence)
    elif input.no_core_is_free(work) or input.starves(loaders):
        words = f"{work.had_nothing_to_do}; meanwhile {who} used {loaders.all:.1f} cores{input.without_more(work)}"
        yield found(FEW_CORES, work, words, work.idle, main_waits(work), **evidence)
    else:
        words = f"{work.had_nothing_to_do}; meanwhile {who} used {percent(loaders.each)} of a core{each}: raise num_workers"
        yield found(FEW_WORKERS, work, words, work.idle, main_waits(work), **evidence)


def main_waits(work: Work) -> bool:
    """The main process does little itself: then nothing but its loaders can be what it waits for."""
    return work.main_thread < input.SATURATED


def measured(work: Work, loaders: Loading) -> dict[str, object]:
    return {
        "loaders": loaders.number,
        "loader_cores": round(loaders.all, 2),
        "busiest_loader": round(loaders.busiest, 2),
        "main_thread": round(work.main_thread, 2),
        "waited_for_disk": round(loaders.disk, 2),
        "waited_for_network_files": round(loaders.network, 2),
        "ready_without_cpu": round(loaders.queued, 2),
        "affinity": loaders.affinity,
        "host_cpu_used": work.watched.host("cpu_used"),
        "file_systems": list(loaders.file_systems) or None,
        "pid": next((user.pid for user in work.users), None),
    }


def summary(facts: Facts) -> str:
    found = works.busy_works(facts)
    idle = max(work.idle for work in found)
    number = sum(len(work.loaders) for work in found)
    if not number:
        return f"no loader processes; the GPU had nothing to do in {idle:.0%} of the time"
    return f"{number} loader processes deliver in time; the GPU had nothing to do in {idle:.0%} of the time"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(FEW_WORKERS, FEW_CORES, ONE_CORE, DISK, NETWORK),
    tags=("performance",),
)
