"""Why a process does not move: the problems that its own state and stack show, by the kind of its wait."""

from __future__ import annotations

from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Fix, Problem

PROC = "https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html"
PIPE = "https://man7.org/linux/man-pages/man7/pipe.7.html"
STACK = look("Show where each thread of the process is", "py-spy dump --pid <pid>")
STACKS_LATER = Fix(
    "Next time: let the program print all its stacks on SIGUSR1, with faulthandler.register(signal.SIGUSR1, all_threads=True)"
)
DEADLINE = Fix("Give the wait a time limit in the program, so that it fails with an error and does not hang")

STOPPED = Problem(
    id="hang-process-stopped",
    title="A process of the program is stopped by a signal",
    why="SIGSTOP, ^Z, a debugger or a scheduler that suspends the job stopped it (state T). A background job that reads "
    "from the terminal is stopped as well. It continues only after SIGCONT, and everything that waits for it waits as "
    "long.",
    action=Action.RESTART_APP,
    fixes=(
        Fix("Let it continue", "kill -CONT <pid>", verify="ps -o pid,stat,wchan:32,cmd -p <pid>", kind="set"),
        Fix("If it stops again: start it with its input from /dev/null, or in tmux, so that it never reads the terminal"),
    ),
    references=("https://man7.org/linux/man-pages/man7/signal.7.html",),
)
FROZEN = Problem(
    id="hang-cgroup-frozen",
    title="The cgroup of the program is frozen",
    why="docker pause, podman pause, a checkpoint, systemctl freeze or a scheduler froze its cgroup: no process in it "
    "gets processor time until the cgroup is thawed.",
    action=Action.RESTART_APP,
    fixes=(
        look("Show its cgroup", "cat /proc/<pid>/cgroup"),
        Fix("If it is a paused container: continue it", "docker unpause <container>", engines=("docker",), kind="manual"),
        Fix("If it is a paused container: continue it", "podman unpause <container>", engines=("podman",), kind="manual"),
        Fix("If Slurm suspended the job: resume it", "scontrol resume <job>", kind="manual"),
    ),
    references=("https://docs.kernel.org/admin-guide/cgroup-v2.html",),
)
TRACED = Problem(
    id="hang-process-traced",
    title="A debugger holds a process of the program",
    why="A program under gdb, strace or another tracer stands still while the tracer holds it (state t).",
    action=Action.RESTART_APP,
    fixes=(
        look("Show which debugger it is", "ps -o pid,user,cmd -p <tracer>"),
        Fix("In the debugger: continue the program (gdb: continue) or let it go (gdb: detach)"),
    ),
    references=("https://man7.org/linux/man-pages/man2/ptrace.2.html",),
)
FILE_SYSTEM = Problem(
    id="hang-file-system",
    title="A process waits for a network file system that does not answer",
    why="A process in state D waits for a read or write on NFS, Lustre, FUSE or the like, and no signal ends that. The "
    "server, the network or the FUSE daemon does not answer. Everything that touches this mount hangs as well, ls "
    "included.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Check whether the mount answers at all", 'timeout 5 stat -f "<mount>" || echo "no answer"'),
        look(
            "On the host: read what the kernel says about it",
            "sudo dmesg | grep -iE 'nfs|fuse|lustre|not responding' | tail -n 20",
            root=True,
        ),
        Fix("Repair the server, the network or the FUSE daemon: the process then continues by itself"),
        Fix(
            "If it cannot be repaired: unmount it by force, which fails the waiting calls",
            'sudo umount -f "<mount>"',
            "destructive",
            ("root",),
        ),
        Fix("Copy the data to a local disk before the job starts, and write checkpoints there first"),
    ),
    references=("https://man7.org/linux/man-pages/man5/nfs.5.html",),
)
IN_KERNEL = Problem(
    id="hang-in-kernel",
    title="A process waits in the kernel, and no signal ends that",
    why="State D lasts as long as the device or driver does not answer: a disk, a network file system or a GPU whose "
    "driver hangs. The process cannot be killed meanwhile.",
    action=Action.REBOOT,
    fixes=(
        look("Show in which function of the kernel it waits", "sudo cat /proc/<pid>/stack", root=True),
        look(
            "Read the messages about hung tasks, disks and GPUs",
            "sudo dmesg | grep -iE 'blocked for more|nvrm|xid|I/O error' | tail -n 30",
            root=True,
        ),
        Fix("If a GPU driver's function is in the stack: reset that GPU once nothing else uses it; if that fails, reboot"),
    ),
    references=(PROC, "https://docs.kernel.org/admin-guide/sysctl/kernel.html#hung-task-timeout-secs"),
)
FILE_LOCK = Problem(
    id="hang-file-lock",
    title="A process waits for a file lock that another process holds",
    why="flock and fcntl wait until the holder unlocks the file or ends. The holder may be another run that hangs itself, "
    "such as one that downloads a model or compiles an extension into the same cache.",
    action=Action.RESTART_APP,
    fixes=(
        look("Show the process that holds the lock", "ps -o pid,user,stat,etime,cmd -p <holder>"),
        look("Show what that process waits for", "gpudoctor hang --pid <holder>"),
        Fix("If it is not needed any more: end it", "kill <holder>", "disruptive"),
        Fix("Give each run its own cache folder (HF_HOME, TORCH_EXTENSIONS_DIR, TRITON_CACHE_DIR)"),
    ),
    references=("https://man7.org/linux/man-pages/man5/proc_locks.5.html",),
)
PIPE_FULL = Problem(
    id="hang-output-not-read",
    title="A process writes to a pipe that nobody empties",
    why="A pipe holds 64 KiB. Once it is full, the writer waits until the reader reads. The usual reader is a parent that "
    "started the program with stdout=PIPE and then waits for its end, with wait() or by reading only one of stdout "
    "and stderr.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("In the parent: read both with communicate(), or send the output to a file: run(…, stdout=file, stderr=STDOUT)"),
        look("Unblock this run, and see what was not read", "timeout 5 cat /proc/<pid>/fd/<descriptor>"),
    ),
    references=(PIPE, "https://docs.python.org/3/library/subprocess.html#subprocess.Popen.wait"),
)
INPUT = Problem(
    id="hang-waits-for-input",
    title="A process waits for input from the terminal",
    why="A question, a prompt for a password or an interactive debugger (breakpoint(), pdb) waits for a person. Under a "
    "launcher, the question may not be visible.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Show where it reads", "py-spy dump --pid <pid>"),
        Fix("Answer it in its terminal, or pass the answer as an option (such as -y)"),
        Fix(
            "For batch jobs: start it with its input from /dev/null, so that a question is an error",
            "python train.py < /dev/null",
        ),
    ),
)
PIPE_SILENT = Problem(
    id="hang-nobody-writes",
    title="A process reads a pipe into which nobody can write",
    why="A read returns only if data comes or the last writer closes the pipe. Here no other process has the other end "
    "open: a FIFO without a writer, or a pipe whose writing end the reader itself still holds.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("For a FIFO: start the program that writes into it first"),
        Fix("For a pipe between a parent and its children: close the unused end in each of them (os.close, Connection.close)"),
        look("Show who has it open", "sudo lsof -p <pid> | grep -E 'FIFO|pipe'", root=True),
    ),
    references=(PIPE, "https://man7.org/linux/man-pages/man7/fifo.7.html"),
)
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
            "export https_proxy=http://<proxy> no_proxy=localhost,127.0.0.1",
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
        look("Count which functions use the processor", "sudo perf top -p <pid>", root=True),
        DEADLINE,
    ),
    references=("https://github.com/benfred/py-spy",),
)
ENDLESS_KERNEL = Problem(
    id="hang-gpu-kernel-endless",
    title="A kernel on the GPU does not end",
    why="The process waits for its GPU, and the GPU has been busy all the time. A loop in a kernel that never meets its "
    "condition, a grid-wide barrier without a cooperative launch, and a spin on memory that nobody writes are usual "
    "causes. GPUs without a display have no time limit for kernels.",
    action=Action.RESTART_APP,
    fixes=(
        look(
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
        Fix("End the job and start it again; torchrun does that by itself with --max-restarts"),
    ),
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
)
BY_KIND = {
    "stopped": STOPPED,
    "frozen": FROZEN,
    "traced": TRACED,
    "file-system": FILE_SYSTEM,
    "in-kernel": IN_KERNEL,
    "file-lock": FILE_LOCK,
    "pipe-full": PIPE_FULL,
    "input": INPUT,
    "pipe-silent": PIPE_SILENT,
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
