"""LD_LIBRARY_PATH has no relative entries, and LD_PRELOAD forces no CUDA library on every program.

What it means
Both variables affect every program that is started from this environment. An empty entry in LD_LIBRARY_PATH means the current
folder, so a program loads any library of the right name from there. LD_PRELOAD puts a library before all others.

How it is judged
No entry of LD_LIBRARY_PATH may be empty or relative. A trailing colon is an empty entry; "$NEW:$LD_LIBRARY_PATH" leaves one if
the variable was empty. LD_PRELOAD, LD_AUDIT and /etc/ld.so.preload may name neither a library of a CUDA toolkit nor one of
another driver than the loaded one.

Known exceptions
Folders that do not exist are harmless. So are allocators (jemalloc, tcmalloc) and profilers in LD_PRELOAD, and libraries of the
Python environment. NCCL in LD_PRELOAD has a separate check.

References
https://man7.org/linux/man-pages/man8/ld.so.8.html
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from gpudoctor.facts import Facts
from gpudoctor.facts.cuda import release_of
from gpudoctor.facts.known import known
from gpudoctor.facts.libraries import Preload
from gpudoctor.judging.python.preloads import FORGET, without
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

TOOLKIT = re.compile(
    r"lib( cublas\w* | cudart | cudnn\w* | cufft\w* | curand | cusolver\w* | cusparse\w* | nvJitLink | nvrtc[\w-]* )\.so.*",
    re.VERBOSE,
)

DRIVER = re.compile(r"lib(cuda|nvidia-ml|nvidia-ptxjitcompiler)\.so.*")

CURRENT_DIRECTORY = Problem(
    id="ld-library-path-has-current-directory",
    title="LD_LIBRARY_PATH contains the current folder",
    why="An empty or relative entry means a folder relative to where a program is started. A library that is there by accident "
    "or malice is loaded instead of the right one.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Set it without that entry; in scripts write NEW${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}",
            command="export LD_LIBRARY_PATH=<clean>",
            verify="echo $LD_LIBRARY_PATH",
            where="shell",
        ),
    ),
    status=Status.WARN,
)

PRELOADED = Problem(
    id="ld-preload-cuda-library",
    title="A CUDA library is forced on every program (LD_PRELOAD)",
    why="The library is loaded instead of the one that each program or wheel was built for, even if that is another release.",
    action=Action.FIX_CONFIG,
    fixes=FORGET,
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    found = current_directory(facts.environment.get("LD_LIBRARY_PATH") or "")
    yield from (replace(finding, is_clue=facts.texts.alone) for finding in found)
    yield from preloaded(facts)


def current_directory(value: str) -> Iterator[Finding]:
    """ld.so ignores an empty variable, but not an empty entry."""
    entries = re.split("[:;]", value) if value else []
    wrong = [entry for entry in entries if not entry.startswith(("/", "$"))]
    if wrong:
        clean = ":".join(entry for entry in entries if entry not in wrong and "stubs" not in entry.split("/"))
        which = "an empty entry" if wrong[0] == "" else repr(wrong[0])
        yield CURRENT_DIRECTORY.found(f"LD_LIBRARY_PATH has {which}: {value!r}", {"value": value, "clean": clean})


def preloaded(facts: Facts) -> Iterator[Finding]:
    for source, preloads in groupby(facts.libraries.preloads, key=lambda preload: preload.source):
        wrong = [preload for preload in preloads if is_wrong(facts, preload)]
        if not wrong:
            continue
        names = [preload.entry for preload in wrong]
        kept = ":".join(entry for entry in wrong[0].others if entry not in names)
        yield without(PRELOADED, wrong[0]).found(
            f"{source} names {', '.join(map(described, wrong))}", {"library": names[0], "libraries": names, "without_it": kept}
        )


def is_wrong(facts: Facts, preload: Preload) -> bool:
    if TOOLKIT.fullmatch(preload.name):
        return not _is_own(facts, preload.entry)
    return DRIVER.fullmatch(preload.name) is not None and not _is_the_drivers(facts, preload)


def described(preload: Preload) -> str:
    version = preload.library.version if preload.library else None
    return f"{preload.entry} ({version})" if version and not preload.entry.endswith(version) else preload.entry


def _is_own(facts: Facts, entry: str) -> bool:
    """Whether the library is in the examined Python environment, where its programs would find it anyway."""
    folders = (*facts.python.import_path, *filter(None, [facts.python.conda_prefix]))
    return any(entry.startswith(folder + "/") for folder in folders)


def _is_the_drivers(facts: Facts, preload: Preload) -> bool:
    """Whether the library has the module's release; True if unknown, as a wrong one shows in CUDA's own checks."""
    module, release = facts.driver.module_version, _release(facts, preload)
    return bool(facts.system.wsl) or module is None or release in (None, module)


def _release(facts: Facts, preload: Preload) -> str | None:
    """The library's release. For a library outside the standard folders: of the file that was really loaded from there."""
    if preload.library:
        return "stub" if preload.library.is_stub else preload.library.version
    folder = posixpath.dirname(preload.entry)
    loaded = (path for path in known(lambda: facts.cuda.maps, ()) if posixpath.dirname(path) == folder)
    return next(filter(None, map(release_of, loaded)), None)


def summary(facts: Facts) -> str:
    count = len(facts.environment.library_path)
    return (
        f"LD_LIBRARY_PATH has {count} absolute {'entry' if count == 1 else 'entries'}" if count else "LD_LIBRARY_PATH is not set"
    )


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(CURRENT_DIRECTORY, PRELOADED),
    tags=("performance",),
)
