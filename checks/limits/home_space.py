"""The home folder has room for caches: bytes, and inodes for new files.

What it means
Frameworks and compilers keep models, kernels and extensions below the home folder (~/.cache, ~/.nv, ~/.triton). If it is full, or
its file system has no inodes left, they fail with "No space left on device" although `df -h` may show room.

How it is judged
Warns if less than 256 MiB is free in HOME for this user, or if no new file can be created there because all inodes are used.

Known exceptions
A quota of the file system shows as its size only on some file systems. `quota -s` shows the others. A read-only home folder, as
containers often have, is not judged.

References
https://man7.org/linux/man-pages/man3/statvfs.3.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

LEAST_BYTES = 256 << 20
MIB = 1 << 20

NO_INODES = look(
    "Find the folders with the most files, and delete or pack what is not needed (caches first)",
    'du --inodes -x "$HOME" 2>/dev/null | sort -n | tail -n 20',
    verify='df -i "$HOME"',
)
FULL = Problem(
    id="home-folder-full",
    title="The home folder has no room for caches and models",
    why="Downloads of models, compiled kernels and built extensions go below the home folder. Without room or inodes for them "
    "programs fail with 'No space left on device' or 'Disk quota exceeded'.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    latent=True,
    fixes=(
        look(
            "Find what fills it, and whether inodes or a quota are the limit",
            'df -h "$HOME"; df -i "$HOME"; quota -s 2>/dev/null; du -xsh "$HOME"/.[!.]* 2>/dev/null | sort -h | tail',
            verify='df -h "$HOME"; df -i "$HOME"',
        ),
        Fix(
            "Keep the caches elsewhere: on a disk with room",
            "export XDG_CACHE_HOME=<cache_folder> HF_HOME=<cache_folder>/huggingface CUDA_CACHE_PATH=<cache_folder>/nv",
            where="shell",
        ),
    ),
    references=("https://man7.org/linux/man-pages/man3/statvfs.3.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if not facts.replies.starting_with("home"):
        raise Skip("the home folder was not asked for: an older version took this snapshot", Skip.NOT_APPLICABLE)
    home = facts.limits.home
    if not home.writable:
        raise Skip("this user does not write into the home folder", Skip.NOT_APPLICABLE)
    if home.free_files == 0:
        problem = replace(FULL, fixes=(NO_INODES, *FULL.fixes[1:]))
        yield problem.found("all inodes of the file system of HOME are used: no new file can be created", {"free_inodes": 0})
    elif home.free_bytes < LEAST_BYTES:
        yield FULL.found(f"{home.free_bytes // MIB} MiB are free in HOME", {"free_mib": home.free_bytes // MIB})


def summary(facts: Facts) -> str:
    return f"{facts.limits.home.free_bytes / (1 << 30):.0f} GiB free in the home folder"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(FULL,),
    tags=("slurm",),
)
