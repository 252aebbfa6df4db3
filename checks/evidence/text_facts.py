"""The outputs in a text fit each other, and no value in them is wrong for its kind.

What it means
Many posts contain no error message, but the outputs of several commands. Two of them can contradict each other: the packages of
one driver and the kernel module of another, eight GPUs on the bus and seven in nvidia-smi. Or one value is enough: a full
disk, a date in 1970, a process that waits in the kernel.

How it is judged
Only for texts (`gpudoctor explain FILE`), because a machine answers these questions itself and more completely. Each rule reads
what the commands in the text printed, and finds the problem that the check of a machine finds from the same values. If no output
and no message shows a problem, the sentences are compared with how people describe problems (knowledge/symptoms.yaml): a problem
all of whose words are there is likely, and the report quotes them.

Known exceptions
A text shows only some outputs, possibly of different machines or times. What it does not show is not judged.

References
https://man7.org/linux/man-pages/man1/df.1.html
https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.judging.texts import answers, described, faults, problems
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

INODES = Problem(
    id="disk-inodes-used-up",
    title="A file system has no free inodes",
    why="Each file needs an inode. When all are used, creating a file fails with 'No space left on device', although df -h "
    "shows free space. Many small files are the cause: caches, checkpoints, data sets of single images.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Find the folders with the most files, then delete or archive what is not needed",
            "sudo du --inodes -x <point> 2>/dev/null | sort -n | tail -n 20",
            verify="df -i <point>",
            kind="read",
            needs=("root",),
        ),
    ),
    references=("https://man7.org/linux/man-pages/man1/df.1.html",),
)
STUCK = Problem(
    id="gpu-process-stuck",
    title="A process that holds a GPU does not end",
    why="A process in state D waits in the kernel and ignores signals; a defunct one (Z) waits for its parent. As long as it or "
    "one of its threads has the GPU open, its GPU memory is not freed.",
    action=Action.REBOOT,
    fixes=(
        Fix(
            "Show the state, the parent and where the process waits; ending the parent removes a defunct one",
            "ps -o pid,ppid,stat,wchan:30,args -p <pids>",
            verify="nvidia-smi",
            kind="read",
        ),
        Fix("If it stays in state D: reboot", verify="nvidia-smi", reboot=True),
    ),
    references=("https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html",),
)
CLOCK = Problem(
    id="system-clock-wrong",
    title="The clock of the machine is wrong",
    why="Certificates are valid only between two dates, so downloads fail with a certificate error. Licences, tokens and builds "
    "that compare times fail too.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Set the clock over the network",
            "sudo timedatectl set-ntp true",
            verify="timedatectl",
            on=("host", "wsl2"),
            kind="set",
            needs=("root",),
        ),
    ),
    references=("https://man7.org/linux/man-pages/man1/timedatectl.1.html",),
)
POWER_MODE = Problem(
    id="jetson-power-mode-low",
    title="The Jetson runs in a power mode that limits its speed",
    why="Each power mode caps the clocks of CPU, GPU and memory, and some switch cores off. Only MAXN has no cap.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Select the mode without a cap (0 on most boards), then fix the clocks at their highest",
            "sudo nvpmodel -m 0 && sudo jetson_clocks",
            verify="sudo nvpmodel -q",
            kind="set",
            needs=("root",),
        ),
        Fix("If mode 0 is not MAXN on this board: list its modes", "grep POWER_MODEL /etc/nvpmodel.conf", kind="read"),
    ),
    references=("https://docs.nvidia.com/jetson/archives/r36.4/DeveloperGuide/SD/PlatformPowerAndPerformance.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if not facts.texts.alone:
        raise Skip("only texts are judged by it, and this is a machine")
    found = facts.once(described.findings)
    if not found and not any(text.kinds for text in facts.texts.all):
        raise Skip("no output of a known command is in the text")
    told = {finding.problem.id for finding in facts.once(answers.of_texts) if not finding.is_clue}
    yield from (finding for finding in found if finding.problem.id not in told)


def summary(facts: Facts) -> str:
    kinds = {kind for text in facts.texts.all for kind in text.kinds}
    return f"nothing in {len(kinds)} outputs contradicts another"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(INODES, STUCK, CLOCK, POWER_MODE, problems.OTHER_PIP, problems.LEFTOVER, problems.MIXED_TOOLKITS, *faults.PROBLEMS),
    more_problems=described.problems,
)
