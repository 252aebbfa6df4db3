"""LD_LIBRARY_PATH and LD_PRELOAD name nothing that changes with the place or goes before everything.

What it means
Both variables reach every program that is started from this environment. An empty entry in LD_LIBRARY_PATH means the current
folder, so a program loads whatever library lies where it is started. LD_PRELOAD puts a library before all others.

How it is judged
No entry of LD_LIBRARY_PATH is empty or relative: a trailing colon, as left by "$NEW:$LD_LIBRARY_PATH" with nothing in it, is an
empty entry. LD_PRELOAD names no library of a CUDA toolkit.

Known exceptions
Folders that do not exist are harmless. So are allocators (jemalloc, tcmalloc) and profilers in LD_PRELOAD, and libraries of the
Python environment itself. NCCL in LD_PRELOAD has a check of its own.

References
https://man7.org/linux/man-pages/man8/ld.so.8.html
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

TOOLKIT = re.compile(r"lib(cublas\w*|cudart|cudnn\w*|cufft\w*|curand|cusolver\w*|cusparse\w*|nvJitLink|nvrtc[\w-]*)\.so.*")

CURRENT_DIRECTORY = Problem(
    id="ld-library-path-has-current-directory",
    title="LD_LIBRARY_PATH has the current folder in it",
    why="An empty or relative entry stands for a folder relative to where a program is started. A library that lies there by "
    "chance, or by malice, is loaded instead of the right one.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Set it without that entry; in scripts write NEW${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}",
            command="export LD_LIBRARY_PATH=<clean>",
            verify="echo $LD_LIBRARY_PATH",
        ),
    ),
    status=Status.WARN,
)

PRELOADED = Problem(
    id="ld-preload-cuda-library",
    title="LD_PRELOAD forces a CUDA library on every program",
    why="The library goes before the one that each program or wheel was built for, also where that is another release.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Take it out of LD_PRELOAD, here and where it is set",
            command="export LD_PRELOAD=<without_it>",
            verify="echo $LD_PRELOAD",
        ),
    ),
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from current_directory(facts.environment.get("LD_LIBRARY_PATH") or "")
    yield from preloaded(facts)


def current_directory(value: str) -> Iterator[Finding]:
    """ld.so ignores an empty variable, but not an empty entry."""
    entries = re.split("[:;]", value) if value else []
    wrong = [entry for entry in entries if not entry.startswith(("/", "$"))]
    if wrong:
        clean = ":".join(entry for entry in entries if entry not in wrong)
        which = "an empty entry" if wrong[0] == "" else repr(wrong[0])
        yield CURRENT_DIRECTORY.found(f"LD_LIBRARY_PATH has {which}: {value!r}", {"value": value, "clean": clean})


def preloaded(facts: Facts) -> Iterator[Finding]:
    entries = [entry for entry in re.split("[: ]+", facts.environment.get("LD_PRELOAD") or "") if entry]
    wrong = [entry for entry in entries if TOOLKIT.fullmatch(posixpath.basename(entry)) and not _is_own(facts, entry)]
    if wrong:
        without = ":".join(entry for entry in entries if entry not in wrong)
        yield PRELOADED.found(f"LD_PRELOAD names {', '.join(wrong)}", {"libraries": wrong, "without_it": without})


def _is_own(facts: Facts, entry: str) -> bool:
    """A wheel of the Python that is asked, which is where its programs would find it anyway."""
    return any(entry.startswith(folder + "/") for folder in facts.python.import_path)


def summary(facts: Facts) -> str:
    count = len(facts.environment.library_path)
    return (
        f"LD_LIBRARY_PATH has {count} absolute {'entry' if count == 1 else 'entries'}" if count else "LD_LIBRARY_PATH is not set"
    )


CHECK = Check(judge=judge, summary=summary, area="libraries", problems=(CURRENT_DIRECTORY, PRELOADED))
