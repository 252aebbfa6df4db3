"""Why a process does not move: the problems that its own state and stack show, by the kind of its wait."""

from __future__ import annotations

from gpudoctor.fixes.common import look
from gpudoctor.judging.jobs.hanging import held
from gpudoctor.model import Action, Fix, Problem

STACK = look("Show where each thread of the process is", "py-spy dump --pid <pid>")
STACKS_LATER = Fix(
    "Next time: let the program print all its stacks on SIGUSR1, with faulthandler.register(signal.SIGUSR1, all_threads=True)"
)
DEADLINE = Fix("Give the wait a time limit in the program, so that it fails with an error and does not hang")

DEADLOCK = Problem(
    id="hang-threads-deadlocked",
    title="Threads of a process wait for each other",
    why="Each of these threads waits for a lock, and no thread of the process runs that could release one. Two locks that "
    "are taken in different order, and a lock that is held while joining a thread, are the usual causes.",
    action=Action.FIX_CONFIG,
    fixes=(
        STACK,
        Fix("Take the locks in the same order everywhere, and never hold one while waiting for another thread"),
        Fix("Find the holder at run time: use lock.acquire(timeout=60), and log who holds it on failure"),
        STACKS_LATER,
    ),
    references=("https://docs.python.org/3/library/threading.html#lock-objects",),
)
LOCK = Problem(
    id="hang-lock-never-released",
    title="A process waits for a lock that no thread of it can release",
    why="Only this thread is left, and it waits: it takes a lock a second time that is not re-entrant, or the thread that "
    "held the lock has ended without releasing it.",
    action=Action.FIX_CONFIG,
    fixes=(
        STACK,
        Fix("Use RLock where the same thread may take a lock twice, and release locks with a with statement"),
        STACKS_LATER,
    ),
    references=("https://docs.python.org/3/library/threading.html#rlock-objects",),
)
FORK_LOCK = Problem(
    id="hang-lock-lost-by-fork",
    title="A forked process waits for a lock that a thread of its parent held",
    why="fork() copies only the calling thread. A lock that another thread held at that moment stays locked in the child "
    "for ever: of logging, of a memory allocator, of OpenMP, of CUDA or of gRPC.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix('Start processes with spawn: multiprocessing.set_start_method("spawn"), DataLoader(multiprocessing_context="spawn")'),
        Fix("Create threads, CUDA contexts and clients only after the processes were started"),
        STACK,
    ),
    references=(
        "https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods",
        "https://pubs.opengroup.org/onlinepubs/9799919799/functions/fork.html",
    ),
)
NAME = Problem(
    id="hang-name-lookup",
    title="A process waits for the address of a host name",
    why="The name server does not answer. Each attempt takes 5 s by default, times the servers and search domains of "
    "/etc/resolv.conf, and a program may try again and again.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Check whether names resolve here, and how fast", "cat /etc/resolv.conf; time getent hosts pypi.org"),
        Fix("Repair the name server in /etc/resolv.conf; in a container: docker run --dns"),
        Fix(
            "If the node has no network: keep programs from asking",
            "export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 WANDB_MODE=offline",
            where="shell",
        ),
    ),
    references=("https://man7.org/linux/man-pages/man5/resolv.conf.5.html",),
)
CONNECT = Problem(
    id="hang-host-unreachable",
    title="A process tries to connect to a host that does not answer",
    why="The connection request is not answered (SYN_SENT): a firewall drops it, the address is wrong, or the host is "
    "down. The kernel tries for about two minutes, and programs often start over.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Show the open connection requests", "ss -tnp state syn-sent"),
        Fix(
            "If the node has no way out: set the proxy",
            "export https_proxy=<proxy> no_proxy=localhost,127.0.0.1",
            where="shell",
        ),
        Fix(
            "Download models and data before the job starts, and switch to offline mode", "export HF_HUB_OFFLINE=1", where="shell"
        ),
        DEADLINE,
    ),
    references=("https://man7.org/linux/man-pages/man7/tcp.7.html",),
)
PEER = Problem(
    id="hang-peer-silent",
    title="A process waits for an answer over the network",
    why="The connection is open as far as this host knows, but nothing comes: a server that is overloaded or hangs, a "
    "peer that died without closing the connection, or a firewall that forgot it. Without a time limit, a read waits "
    "for ever.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Show its connections with their timers", "ss -tnpo | grep pid=<pid>,"),
        DEADLINE,
        Fix(
            "Turn on keep-alive, so that dead peers are noticed",
            "sudo sysctl -w net.ipv4.tcp_keepalive_time=120",
            needs=("root",),
            kind="manual",
        ),
    ),
    references=("https://man7.org/linux/man-pages/man7/tcp.7.html",),
)
SPINS = Problem(
    id="hang-spins",
    title="A process uses a processor core but stays in one place",
    why="All samples found it in the same line while it used processor time: one very long call, a loop in compiled code "
    "that does not end, or a wait that polls.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Show the C functions as well (pauses the process for an instant)",
            "sudo py-spy dump --native --pid <pid>",
            needs=("root",),
            kind="read",
        ),
        Fix("Count which functions use the processor", "sudo perf top -p <pid>", needs=("root",)),
        DEADLINE,
    ),
    references=("https://github.com/benfred/py-spy",),
)
ENDLESS_KERNEL = Problem(
    id="hang-gpu-kernel-endless",
    title="A kernel on the GPU does not end",
    why="The process waits for its GPU, and the GPU has been busy all the time. A loop in a kernel that never meets its "
    "condition, a grid-wide barrier without a cooperative launch, and a spin on memory that is never written are usual "
    "causes. GPUs without a display have no time limit for kernels.",
    action=Action.RESTART_APP,
    fixes=(
        Fix(
            "Show which kernel runs, and on which line (build with -lineinfo)", "cuda-gdb -p <pid> -batch -ex 'info cuda kernels'"
        ),
        Fix("Find the kernel by running it synchronously", "CUDA_LAUNCH_BLOCKING=1 python train.py"),
        Fix("Check it for races and missing barriers (slow)", "compute-sanitizer --tool synccheck python train.py"),
        Fix("End the process: this ends the kernel", "kill <pid>", "disruptive"),
    ),
    references=("https://docs.nvidia.com/cuda/cuda-gdb/",),
)
ENDED = Problem(
    id="hang-process-ended",
    title="A process of the program has ended, and others still wait for it",
    why="It crashed, was killed or left the program early. The others notice only after a time limit, NCCL's being ten minutes.",
    action=Action.RESTART_APP,
    fixes=(
        Fix(
            "Find its first error: keep the output of each rank apart",
            "torchrun --nproc-per-node=gpu --redirects=3 --log-dir=logs train.py",
        ),
        look(
            "Check whether the kernel killed it",
            "sudo dmesg -T | grep -iE 'killed process|oom-kill|segfault|xid' | tail -n 20",
            root=True,
        ),
        Fix("End the job and start it again; torchrun does that with --max-restarts"),
    ),
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
)
BY_KIND = {
    "stopped": held.STOPPED,
    "frozen": held.FROZEN,
    "traced": held.TRACED,
    "file-system": held.FILE_SYSTEM,
    "in-kernel": held.IN_KERNEL,
    "file-lock": held.FILE_LOCK,
    "pipe-full": held.PIPE_FULL,
    "input": held.INPUT,
    "pipe-silent": held.PIPE_SILENT,
    "deadlock": DEADLOCK,
    "lock": LOCK,
    "fork-lock": FORK_LOCK,
    "name": NAME,
    "connect": CONNECT,
    "peer": PEER,
    "local-peer": PEER,
    "spins": SPINS,
    "ended": ENDED,
}
PROBLEMS = (*dict.fromkeys(BY_KIND.values()), ENDLESS_KERNEL)
