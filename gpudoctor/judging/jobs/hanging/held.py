"""Problems of processes that something outside them holds: a signal, a debugger, a file system, a lock, a pipe, a person."""

from __future__ import annotations

from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Fix, Problem

PROC = "https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html"
PIPE = "https://man7.org/linux/man-pages/man7/pipe.7.html"

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
        Fix("Repair the server, the network or the FUSE daemon: the process then continues"),
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
    title="A process writes to a full pipe that is not read",
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
    title="A process reads a pipe that has no writer",
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
