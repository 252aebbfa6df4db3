"""The folder for temporary files can be written, has room, and may hold programs.

What it means
torch.compile, Triton, CUDA extensions and compilers write code to TMPDIR (or /tmp) and load it from there. If that folder is
full, not writable or mounted noexec, they fail with messages that seldom name it.

How it is judged
TMPDIR (/tmp if it is not set) exists, answers, can be written, is not mounted noexec, and has at least 1 GiB and an inode free.
It fails if gpudoctor's own files found room in no temporary folder. If TMPDIR cannot be written on a host, the mount of / tells
whether the whole file system is read-only, and the kernel log why.

Known exceptions
A job that compiles nothing does not need it.

References
https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/index.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.fixes.engines import again
from gpudoctor.fixes.limits import BY_NAME
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Status

LEAST_BYTES = 1 << 30
FILE_SIZE = BY_NAME["file_size"]
MIB = 1 << 20
WHERE = "${TMPDIR:-/tmp}"
ELSEWHERE = Fix(
    "Use a folder in your home; add the line to your shell profile too",
    'mkdir -p "$HOME/.cache/tmp" && export TMPDIR="$HOME/.cache/tmp"',
    verify='df -h "$TMPDIR"',
    where="shell",
)

NOT_WRITABLE = Problem(
    id="temporary-space-not-writable",
    title="Temporary files cannot be written",
    why="TMPDIR (or /tmp) does not exist or is not writable for this user, so compilers and torch.compile cannot write their "
    "files.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        ELSEWHERE,
        Fix("Make /tmp writable for all users again", "sudo chmod 1777 /tmp", verify="ls -ld /tmp", kind="set", needs=("root",)),
    ),
)

NO_ANSWER = Problem(
    id="temporary-space-does-not-answer",
    title="The file system of temporary files does not answer",
    why="TMPDIR (or /tmp) is on a file system whose server or disk does not answer. Compilers, torch.compile and everything else "
    "that writes temporary files hang there.",
    action=Action.FIX_CONFIG,
    fixes=(
        ELSEWHERE,
        look(
            "Find the file system and its server, and mend or unmount it",
            "findmnt; timeout 5 df -h || echo 'one does not answer'",
        ),
    ),
)

HEALTH = 'for disk in $(lsblk -dn -e7 -o PATH); do sudo smartctl -H "$disk"; done'
ERRORS = r"I/O error, dev|Aborting journal|EXT4-fs error|Remounting filesystem read-only|forced readonly"
ROOT_READ_ONLY = Problem(
    id="root-filesystem-read-only",
    title="The root file system is mounted read-only, so nothing can be written",
    why="After a disk error the kernel protects the file system from further damage. Programs still start, but caches, logs, "
    "checkpoints and temporary files cannot be written.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        look("Find the disk and its errors in the kernel log", f"sudo dmesg | grep -iE '{ERRORS}' | tail -n 20", root=True),
        look("Ask the disks for their health", "lsblk -dn -e7 -o PATH,MODEL,SERIAL; " + HEALTH, root=True),
        Fix("Save what you need, then replace a disk with errors", risk="disruptive"),
        Fix(
            "If the disk is sound: reboot with a check of the file system (add fsck.mode=force to the kernel's parameters)",
            risk="disruptive",
            needs=("root", "reboot"),
            verify="findmnt -no OPTIONS /",
        ),
    ),
    references=("https://www.kernel.org/doc/html/latest/admin-guide/ext4.html",),
)

IN_MEMORY = again(
    "Restart the container with a /tmp in memory",
    "run <all_gpus> --tmpfs /tmp:exec <image>",
    spec="mount an emptyDir at /tmp",
    risk="disruptive",
    verify="df -h /tmp",
    on=("container",),
)

NOEXEC = Problem(
    id="temporary-space-noexec",
    title="Code in the temporary folder cannot be loaded (noexec)",
    why="The folder is mounted noexec. torch.compile and extensions that are built at run time load libraries from it, and "
    "fail with 'failed to map segment from shared object'.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        ELSEWHERE,
        Fix(
            "Allow it until the next boot",
            "sudo mount -o remount,exec /tmp",
            verify="findmnt -no OPTIONS /tmp",
            kind="set",
            needs=("root",),
        ),
    ),
)

FULL = Problem(
    id="temporary-space-full",
    title="Too little free space for temporary files",
    why="Less than 1 GiB is free in TMPDIR (or /tmp). CUDA compilers and torch.compile need more and fail with 'No space left "
    "on device'.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("Find what fills it", f'du -xsh "{WHERE}"/* 2>/dev/null | sort -h | tail', verify=f'df -h "{WHERE}"'),
        ELSEWHERE,
    ),
)

WITHOUT_INODES = replace(
    FULL,
    why="Every file needs an inode, and the file system of TMPDIR (or /tmp) has run out of them. Programs "
    "fail with 'No space left on device', although df -h shows room.",
    fixes=(
        look(
            "Find where the most files are",
            f'du --inodes -xs "{WHERE}"/* 2>/dev/null | sort -n | tail',
            verify=f'df -i "{WHERE}"',
        ),
        ELSEWHERE,
    ),
)

NOWHERE = Problem(
    id="temporary-space-nowhere",
    title="No temporary folder takes a file: a part of this report is missing",
    why="Neither TMPDIR (or /tmp) nor /dev/shm and /var/tmp took gpudoctor's own files, about 1 MB. Python, compilers and "
    "torch.compile cannot write theirs either.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Show their room, their inodes and the limit on file sizes", "df -h /tmp /dev/shm /var/tmp; df -i /tmp; ulimit -f"),
        FILE_SIZE.in_shell,
        ELSEWHERE,
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if nowhere := facts.replies.starting_with("no-temporary-folder").get("no-temporary-folder"):
        yield NOWHERE.found(str(nowhere.value))
    yield from of_folder(facts)


def of_folder(facts: Facts) -> Iterator[Finding]:
    if facts.replies.get("tmp").status == "timeout":
        yield NO_ANSWER.found(f"TMPDIR (or /tmp): {facts.replies.get('tmp').detail}")
        return
    if facts.replies.get("tmp").status == "missing":
        yield NOT_WRITABLE.found("the folder that TMPDIR names does not exist")
        return
    folder = facts.limits.tmp
    if folder.writable is False:
        yield not_writable(facts)
        return
    if folder.noexec:
        yield NOEXEC.found("TMPDIR (or /tmp) is mounted noexec")
    if folder.free_files == 0:
        yield WITHOUT_INODES.found("no file can be created in TMPDIR (or /tmp): all inodes are used", {"free_inodes": 0})
    elif folder.free_bytes < LEAST_BYTES:
        free = folder.free_bytes // MIB
        yield FULL.found(f"{free} MiB are free in TMPDIR (or /tmp)", {"free_mib": free})


def not_writable(facts: Facts) -> Finding:
    if not facts.container.root_is_read_only:
        return NOT_WRITABLE.found("this user may not write to TMPDIR (or /tmp)")
    if facts.container.engine:
        return replace(NOT_WRITABLE, fixes=IN_MEMORY).found("the container's root file system is read-only")
    lines = known(lambda: facts.kernel_log.matching(ERRORS), ())
    words = "/ is mounted read-only" + (f"; the kernel reports: {lines[0].text}" if lines else "")
    confidence = Confidence.CONFIRMED if lines else Confidence.LIKELY
    return ROOT_READ_ONLY.found(words, {"log": [line.text for line in lines]}, confidence=confidence)


def summary(facts: Facts) -> str:
    return f"{facts.limits.tmp.free_bytes / LEAST_BYTES:.0f} GiB free for temporary files"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_ANSWER, NOT_WRITABLE, ROOT_READ_ONLY, NOEXEC, FULL, NOWHERE),
    tags=("slurm",),
)
