"""The job has its GPUs for itself, uses all of them, and uses them alike.

What it means
Two programs on one GPU share its time and memory. A program that holds a GPU without using it keeps others from it. In a job with
several GPUs all wait for the slowest.

How it is judged
Reads which processes NVML lists on each GPU, how much of its memory they hold, and which part of its time they use. A process
that is not part of the job and uses 5 % of the time shares the GPU. If another GPU is free meanwhile, the job is on the wrong
one; likewise if several processes of the job use one GPU while another is free. A GPU on which nothing ran for ten seconds,
although a process holds 2 % of its memory, is allocated and idle. GPUs of one job are compared: a difference of 15 points in
utilisation points to a straggler, a difference of 30 % in work to unequal shares.

Known exceptions
Under MPS several processes share a GPU on purpose. A server without requests holds its memory rightly. In a container without the
host's process ids NVML lists no processes, and this is skipped, unless no kernel ran on any GPU. Pipeline parallelism gives the
GPUs unequal work.

References
https://docs.pytorch.org/docs/stable/distributed.html
https://docs.nvidia.com/deploy/mps/index.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.job.watched import Watched
from gpudoctor.facts.job.watched_parts import Gpu, OnGpu
from gpudoctor.fixes.common import look
from gpudoctor.judging.jobs import balance, works
from gpudoctor.judging.jobs.works import Work, found
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

USES_TIME = 0.05
HOLDS_MIB, HOLDS_SHARE = 400.0, 0.02
FREE_BUSY, FREE_SHARE = 0.02, 0.05
NOTHING_RAN = 0.0002
WHY_SLOW = ("job-throttled", "loaders-saturated", "loaders-lack-cpus", "job-host-bound", "job-shares-gpu")
IDLE_SECONDS = 10.0
WORKS = 0.5  # cores: a job that does something
WHO = look("Show the processes on each GPU with their owners", "nvidia-smi; ps -o pid,user,lstart,args -p <pids>")
CHOOSE = Fix("Start the job on a free GPU", "CUDA_VISIBLE_DEVICES=<index> <command>")

SHARED = Problem(
    id="job-shares-gpu",
    title="Another process works on the same GPU",
    why="The GPU gives each process its turn, so the job gets only part of its time, and less memory.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(WHO, Fix("Reserve GPUs: --gres=gpu:N (Slurm), resource limits (Kubernetes), or compute mode EXCLUSIVE_PROCESS")),
    references=("https://docs.nvidia.com/deploy/mps/index.html",),
)
WRONG = Problem(
    id="job-on-busy-gpu-while-others-are-free",
    title="The job uses a busy GPU while another one is free",
    why="Programs use GPU 0 unless you choose another one, and each rank of a job has to choose its own GPU.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        CHOOSE,
        Fix("With several processes: let each choose its own GPU first: torch.cuda.set_device(local_rank)"),
        WHO,
    ),
    references=("https://docs.pytorch.org/docs/stable/distributed.html",),
)
IDLE = Problem(
    id="gpu-allocated-and-idle",
    title="A process holds GPU memory and does nothing",
    why="The memory stays allocated until the process ends, and schedulers count the GPU as used. Forgotten notebooks, servers "
    "without requests and jobs that hang look like this.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look("Show who started it and when", "ps -o pid,user,lstart,etime,args -p <pids>"),
        look("If it should work: find out what it waits for", "py-spy dump --pid <pid>"),
        Fix("If it is not needed: end it, with its owner's consent; in a notebook, restart the kernel"),
    ),
)
NO_GPU = Problem(
    id="job-uses-no-gpu",
    title="The job works, but not on a GPU",
    why="The program runs on the CPU: it was not told to use a GPU, its framework has no GPU support, or it cannot see one.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("Check whether its Python can use a GPU", "gpudoctor check --level quick"),
        Fix('Tell it to use the GPU: model.to("cuda"), tensor.to("cuda"), --device cuda'),
        look("Look for variables that hide the GPUs", "grep -z VISIBLE_DEVICES /proc/<pid>/environ"),
    ),
)
STRAGGLER = Problem(
    id="job-has-a-straggler",
    title="One GPU of the job is slower than the others, which wait for it",
    why="In each step all ranks wait for the last one. Its own CPU, loaders, clocks or link are slower, or it has more to do.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("Compare the GPUs: gpudoctor measures each of them when the job has ended", "gpudoctor check"),
        look(
            "Compare clocks, temperatures and reasons",
            "nvidia-smi --query-gpu=index,clocks.sm,temperature.gpu,clocks_event_reasons.active --format=csv",
        ),
        Fix("Bind each rank to the CPUs of its GPU's NUMA node, and give each the same number of loaders"),
    ),
)
UNEQUAL = Problem(
    id="job-gives-gpus-unequal-work",
    title="The GPUs of the job do unequal amounts of work",
    why="All wait for the one that has most to do: for the longest sequences, the largest shard or stage.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Give each rank the same work: batches by number of tokens, samplers that group similar lengths, equal stages"),
        Fix("Move what one rank does alone (evaluation, logging, checkpoints) off the GPUs, or share it out"),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    watched = facts.job.watched
    all = works.works(facts)
    if watched.kind != "gpus" and (finding := no_gpu(watched)):
        yield finding
        return
    if watched.is_listed:
        yield from works.together([(work, finding) for work in all for finding in shared(work)])
    yield from works.together([(work, finding) for work in all for finding in idle(work)])
    yield from balance_of([work for work in all if work.works], watched)
    if not all and watched.is_listed is False:
        raise Skip("NVML lists no processes here, so it is not known which GPUs the job uses", Skip.NO_ANSWER)


def no_gpu(watched: Watched) -> Finding | None:
    cores = sum(process.cores for process in watched.processes)
    has_looked = watched.lists_processes or (watched.gpus and not any(Work(watched, gpu, (), ()).works for gpu in watched.gpus))
    if watched.used or cores < WORKS or watched.seconds < IDLE_SECONDS or not has_looked:
        return None
    number = len(watched.pids)
    words = f"{watched.name} used {cores:.1f} cores, and none of its {number} processes used a GPU in {watched.seconds:.0f} s"
    evidence = {"cores": round(cores, 2), "gpus": len(watched.gpus), "pid": min(watched.pids)}
    return NO_GPU.found(words, evidence, confidence=Confidence.LIKELY)


def shared(work: Work) -> Iterator[Finding]:
    free = [gpu.index for gpu in work.watched.gpus if is_free(gpu)]
    if work.watched.kind == "gpus":
        strangers: tuple[OnGpu, ...] = tuple(process for process in work.gpu.processes if process.sm >= USES_TIME)
        strangers = strangers if len(strangers) > 1 else ()
    else:
        strangers = tuple(process for process in work.others if process.sm >= USES_TIME)
    own = [process for process in work.gpu.processes if process.pid in work.watched.pids and (process.mib or 0) >= HOLDS_MIB]
    taken = sum(process.sm for process in strangers)
    pids = ",".join(str(process.pid) for process in (*strangers, *own))
    if strangers:
        problem = WRONG if free and work.watched.kind != "gpus" else SHARED
        words = (
            f"{len(strangers)} processes that work on GPU {work.gpu.index}"
            if work.watched.kind == "gpus"
            else (f"GPU {work.gpu.index} also works for {len(strangers)} other process{'es' * (len(strangers) > 1)}")
        )
        words += f", which used{' together' * (len(strangers) > 1)} {taken:.0%} of its time"
        words += f", while GPU {free[0]} is free" if problem is WRONG else ""
        yield found(problem, work, words, min(taken, 0.9), True, pids=pids, index=free[0] if free else None)
    elif len(own) > 1 and free and work.watched.kind != "gpus" and len(work.watched.used) < len(work.watched.gpus):
        words = f"{len(own)} processes of the job share GPU {work.gpu.index}, while GPU {free[0]} is free"
        yield found(WRONG, work, words, 1 - 1 / len(own), False, pids=pids, index=free[0])


def is_free(gpu: Gpu) -> bool:
    used = gpu.mean("memory_used_mib")
    return gpu.busy < FREE_BUSY and used is not None and used < FREE_SHARE * gpu.memory_mib


def idle(work: Work) -> Iterator[Finding]:
    if work.watched.seconds < IDLE_SECONDS or work.busy >= NOTHING_RAN or any(user.cores >= WORKS for user in work.users):
        return
    holders = [
        process for process in work.gpu.processes if (process.mib or 0.0) >= max(HOLDS_MIB, HOLDS_SHARE * work.gpu.memory_mib)
    ]
    if work.watched.kind != "gpus":
        holders = [process for process in holders if process.pid in work.watched.pids]
    if not holders:
        return
    held = sum(process.mib or 0.0 for process in holders)
    who = f"{len(holders)} process{'es' * (len(holders) > 1)}"
    words = f"{who} held {held / 1024:.1f} GiB of GPU {work.gpu.index}, and no kernel ran in {work.watched.seconds:.0f} s"
    pids = ",".join(str(process.pid) for process in holders)
    evidence = {"pids": pids, "pid": holders[0].pid, "held_mib": round(held), "busy_percent": round(100 * work.busy, 2)}
    yield IDLE.found(words, evidence, work.gpu.index)


def balance_of(working: list[Work], watched: Watched) -> Iterator[Finding]:
    if watched.kind == "gpus" or len(working) < 2:
        return
    if last := balance.straggler(working):
        words = f"{last.slow.had_nothing_to_do}, the others only in {last.usual:.0%}: they run kernels that wait for it{last.why}"
        finding = found(STRAGGLER, last.slow, words, last.slow.idle - last.usual, last.is_sure, of_each=last.of_each)
        yield replace(finding, causes=WHY_SLOW)
    elif most := balance.unequal(working):
        words = f"GPU {most.slow.gpu.index} does {most.usual:.0%} more than the one that does least ({most.why})"
        yield found(UNEQUAL, most.slow, words, most.usual / (1 + most.usual), False, of_each=most.of_each)


def summary(facts: Facts) -> str:
    all = works.works(facts)
    if not all:
        return "the job uses no GPU"
    used = [work.gpu.index for work in all if work.works]
    return (
        f"{len(used)} of {len(facts.job.watched.gpus)} GPUs worked for this job; no other process did on them"
        if used
        else "no GPU worked"
    )


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(SHARED, WRONG, IDLE, NO_GPU, STRAGGLER, UNEQUAL),
    tags=("performance",),
)
