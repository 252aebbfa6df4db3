"""A framework loads the GPU libraries that were installed with it.

What it means
torch, jax and others come with wheels of cuDNN, NCCL and cuBLAS that they were built and tested with. If another file of the
same name is loaded instead, the versions that `pip list` shows are not those that run: results, speed and crashes are of the
other one.

How it is judged
After the import of each framework, the libraries in its process are compared with those in the wheels of the same environment.
It warns if a library was loaded from elsewhere although a wheel has one of this name.

Known exceptions
Only what the import loads is seen; some libraries are loaded when they are first used. Without wheels, as in conda and in
NVIDIA's containers, there is nothing to compare with. The driver's own libraries always come from the system.

References
https://man7.org/linux/man-pages/man8/ld.so.8.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.judging import loaded
from gpudoctor.judging.loaded import Loaded
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

OTHER = Problem(
    id="loaded-library-is-not-the-installed-one",
    title="A framework loads another GPU library than the installed one",
    why="The wheel that the framework was tested with is installed, but a file elsewhere has the same name and is found first.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("Show which folders are searched first", "env | grep -E '^LD_(LIBRARY_PATH|PRELOAD)='"),
        Fix(
            "Remove the folder from LD_LIBRARY_PATH, in this shell",
            "unset LD_LIBRARY_PATH",
            verify="<python> -c 'import <module>'",
            kind="set",
            where="shell",
        ),
    ),
    references=("https://man7.org/linux/man-pages/man8/ld.so.8.html",),
)
CAUSES = ("cuda-libraries", "cudnn", "nccl-library", "library-path")
"""The checks that find out which setting does this."""


def judge(facts: Facts) -> Iterator[Finding]:
    by_framework: dict[str, list[Loaded]] = {}
    for row in loaded.table(facts):
        if row.in_wheel and "/site-packages/" not in row.path and "/dist-packages/" not in row.path:
            by_framework.setdefault(row.framework, []).append(row)
    for framework, rows in by_framework.items():
        words = ", ".join(f"{row.soname} from {row.path}" for row in rows)
        installed = {row.soname: row.in_wheel.path for row in rows if row.in_wheel}
        evidence = {
            "module": framework,
            "python": facts.python.executable,
            "loaded": [row.path for row in rows],
            "installed": installed,
        }
        yield replace(OTHER.found(f"{framework} loaded {words}, not from its wheels", evidence), causes=CAUSES)


def summary(facts: Facts) -> str:
    rows = loaded.table(facts)
    frameworks = ", ".join(dict.fromkeys(row.framework for row in rows))
    return f"{len(rows)} GPU libraries loaded by {frameworks}, each the installed one"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(OTHER,),
    level="standard",
    tags=("pytorch",),
)
