"""The job's memory does not grow, and does not run out.

What it means
Memory that grows from step to step ends in an out-of-memory error, on the GPU or on the host, perhaps only after hours.

How it is judged
A straight line is fitted to at least one minute of readings, without the beginning, in which libraries are loaded and caches
fill. Memory grows if the line explains 85 % of them, if each third has its part of the growth, and if it grew by more than
64 MiB and 0.5 % of the GPU, or 128 MiB and 0.1 % of the host. It is likely until it was watched for five minutes.
Host memory is low if less than 5 % is available, if pages are swapped, or if the
control group reached its limit while it was watched.

Known exceptions
A full GPU alone is no problem: vLLM and JAX allocate most of it at their start, and PyTorch keeps what it has freed.

References
https://docs.pytorch.org/docs/stable/torch_cuda_memory.html
https://docs.kernel.org/admin-guide/cgroup-v2.html#memory
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.job.watched import Watched
from gpudoctor.fixes.common import look
from gpudoctor.judging.jobs import growing, works
from gpudoctor.judging.jobs.growing import Growth
from gpudoctor.judging.jobs.works import Work
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

LEAST_SECONDS = 10.0
GROWS_SECONDS = 60.0  # of steady growth, after what is loaded and cached at the start
JUDGED_SECONDS = 80.0  # of which the first quarter does not count
SETTLED_SECONDS = 10.0  # after the first kernel
SURE_SECONDS = 300.0
LEAST_GPU_MIB, LEAST_HOST_MIB = 64.0, 128.0
OF_GPU, OF_HOST = 0.005, 0.001
LOW = 0.05  # of the host's memory
SWAPS_MIB_S = 1.0

GPU_GROWS = Problem(
    id="job-gpu-memory-grows",
    title="The job's GPU memory keeps growing",
    why="Tensors that are kept from step to step hold memory: losses that are summed with their graph, outputs in a list, caches "
    "without a limit, changing shapes that fragment the allocator's memory.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Keep numbers instead of tensors from step to step: total += loss.item(), outputs.append(out.detach().cpu())"),
        Fix("Find who allocates: torch.cuda.memory._record_memory_history(), _dump_snapshot(), then pytorch.org/memory_viz"),
        Fix(
            "If shapes change from step to step: let the allocator extend its segments",
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            where="shell",
        ),
        look("Watch it for longer", "gpudoctor watch --pid <pid> --for 300s"),
    ),
    references=("https://docs.pytorch.org/docs/stable/torch_cuda_memory.html",),
)
HOST_GROWS = Problem(
    id="job-host-memory-grows",
    title="The job's host memory keeps growing",
    why="When the host or the job's control group has no memory left, the kernel kills the job. Python objects in datasets that "
    "loaders copy bit by bit, growing lists and caches are usual reasons.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Store samples in arrays or on disk instead of Python lists, so that loaders share their memory"),
        look("Find who allocates", "py-spy dump --pid <pid>; grep -E 'VmRSS|RssAnon|RssShmem' /proc/<pid>/status"),
        look("Watch it for longer", "gpudoctor watch --pid <pid> --for 300s"),
    ),
    references=("https://github.com/pytorch/pytorch/issues/13246",),
)
HOST_LOW = Problem(
    id="job-host-memory-low",
    title="Host memory runs out while the job runs",
    why="The kernel reads and writes pages again and again instead of letting the job work, and then kills it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("Show who uses it", "ps -eo pid,user,rss,args --sort=-rss | head"),
        Fix("Use less: fewer loaders (num_workers), a smaller prefetch_factor, data types of 16 bits"),
        Fix("Give the job more memory: --mem (Slurm), --memory (docker run), resources.limits.memory (Kubernetes)"),
    ),
    references=("https://docs.kernel.org/admin-guide/cgroup-v2.html#memory",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    watched = facts.job.watched
    if watched.seconds < LEAST_SECONDS:
        raise Skip(f"watched for {watched.seconds:.1f} s: memory is judged after {LEAST_SECONDS:.0f} s", Skip.NOT_MEASURED)
    yield from (finding for work in _works(facts) for finding in on_gpu(work))
    yield from on_host(watched)


def _works(facts: Facts) -> tuple[Work, ...]:
    try:
        return works.works(facts)
    except Skip:
        return ()  # memory of the host can be judged without a GPU


def on_gpu(work: Work) -> Iterator[Finding]:
    total = work.gpu.memory_mib
    began = work.window[0] + SETTLED_SECONDS
    readings = [(at, value) for at, value in work.column("memory_used_mib") if at >= began]
    grown = growing.growth(readings, max(LEAST_GPU_MIB, OF_GPU * total))
    if not grown or grown.seconds < GROWS_SECONDS:
        return
    left = max(0.0, total - readings[-1][1]) / grown.per_minute
    words = f"GPU {work.gpu.index} {_grew(grown)}; at this rate its {total / 1024:.0f} GiB are full in {_minutes(left)}"
    pid = next((user.pid for user in work.users), None)
    sure = Confidence.CONFIRMED if grown.seconds >= SURE_SECONDS else Confidence.LIKELY
    yield GPU_GROWS.found(words, {**_measured(grown), **({"pid": pid} if pid else {})}, work.gpu.index, sure)


def on_host(watched: Watched) -> Iterator[Finding]:
    if not watched.memory_mib:
        return
    total, available = watched.memory_mib
    readings = watched.timeline.column("job.rss_mib")
    settled = readings[len(readings) // 4 :]
    grown = growing.growth(settled, max(LEAST_HOST_MIB, OF_HOST * total))
    if grown and grown.seconds >= GROWS_SECONDS:
        words = f"the job's processes: host memory {_grew(grown)}; at this rate what is left is full in "
        words += _minutes(available / grown.per_minute)
        sure = Confidence.CONFIRMED if grown.seconds >= SURE_SECONDS else Confidence.LIKELY
        pid = next((process.pid for process in watched.processes), None)
        evidence = {**_measured(grown), "available_mib": round(available), **({"pid": pid} if pid else {})}
        yield HOST_GROWS.found(words, evidence, confidence=sure)
    evidence = {"available_mib": round(available), "memory_mib": round(total), "swap_mib_s": watched.swap_mib_s}
    group, reached = watched.group_memory, watched.reached_memory_limit
    if group and reached:
        words = f"the control group reached its limit of {group[1] / 1024:.1f} GiB {reached} times while it was watched"
        yield HOST_LOW.found(words, {**evidence, "limit_mib": group[1], "reached_limit": reached})
    elif available < LOW * total:
        words = f"{available / 1024:.1f} of {total / 1024:.0f} GiB are available"
        yield HOST_LOW.found(words, evidence)
    elif watched.swap_mib_s >= SWAPS_MIB_S:
        words = f"{watched.swap_mib_s:.1f} MiB/s are swapped while the job runs"
        yield HOST_LOW.found(words, evidence)


def _grew(grown: Growth) -> str:
    return f"grew by {grown.grown:.0f} MiB in {grown.seconds:.0f} s ({grown.per_minute:.0f} MiB per minute)"


def _minutes(number: float) -> str:
    return f"{number:.0f} minutes" if number < 120 else f"{number / 60:.0f} hours"


def _measured(grown: Growth) -> dict[str, object]:
    return {
        "mib_per_minute": round(grown.per_minute, 1),
        "grown_mib": round(grown.grown),
        "seconds_fitted": round(grown.seconds, 1),
    }


def summary(facts: Facts) -> str:
    watched = facts.job.watched
    memory = watched.memory_mib
    left = f"{memory[1] / 1024:.0f} GiB of host memory are available" if memory else "the host's memory could not be read"
    if watched.seconds < JUDGED_SECONDS:
        return f"{left}; whether memory grows is judged from {JUDGED_SECONDS:.0f} s on"
    return f"memory did not grow in {watched.seconds:.0f} s; {left}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(GPU_GROWS, HOST_GROWS, HOST_LOW),
    tags=("memory",),
)
