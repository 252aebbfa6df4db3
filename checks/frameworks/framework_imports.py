"""Each GPU framework that is installed can be imported.

What it means
A framework's package can be there and still not start: a library that it needs is missing or of another version, its
extension was built for another NumPy, or its import crashes. Then nothing that uses it runs, whatever else is healthy.

How it is judged
By importing torch, cupy, numba and jax in processes of the examined Python, each once.

Known exceptions
A framework that is not installed is no fault. The quick checks look at versions without importing anything, and may name the
cause of a failed import.

References
https://docs.python.org/3/reference/import.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Reply, Skip

FAILS = Problem(
    id="framework-import-fails",
    title="A GPU framework is installed, but cannot be imported",
    why="The package is there. What it needs beside it is missing, broken or of a version that does not fit.",
    action=Action.INSTALL,
    fixes=(
        look("See the whole error", "<python> -c 'import <module>'"),
        look("See which packages contradict each other", "<python> -m pip check"),
        Fix(
            "Install it anew, with what it needs",
            "<python> -m pip install --force-reinstall <packages>",
            needs=("network",),
            verify="<python> -c 'import <module>'",
            kind="install",
        ),
    ),
)
NUMPY = Problem(
    id="framework-does-not-know-this-numpy",
    title="A GPU framework does not fit the NumPy that is installed beside it",
    why="NumPy takes names away and changes its binary interface from release to release. A package for another one "
    "stops at its import, although pip found no contradiction.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install a newer release of the framework, which knows this NumPy",
            "<python> -m pip install --upgrade <packages>",
            needs=("network",),
            verify="<python> -c 'import <module>'",
            kind="install",
        ),
        Fix(
            "Install the NumPy before this one",
            '<python> -m pip install "numpy<<numpy>"',
            needs=("network",),
            verify="<python> -c 'import <module>'",
            kind="install",
        ),
    ),
    references=("https://numpy.org/doc/stable/release.html",),
)
CRASHES = Problem(
    id="framework-import-crashes",
    title="The import of a GPU framework crashes or never ends",
    why="A library that the import loads kills the process or waits for good: mostly one of another version, or a file system "
    "that does not answer.",
    action=Action.INSTALL,
    fixes=(
        look("See where it happens", "<python> -X faulthandler -c 'import <module>'"),
        Fix(
            "Install it anew, with what it needs",
            "<python> -m pip install --force-reinstall <packages>",
            needs=("network",),
            verify="<python> -c 'import <module>'",
            kind="install",
        ),
    ),
)
ILLEGAL = replace(
    CRASHES,
    why="The processor, or what a virtual machine shows of it, lacks an instruction that the package was built with.",
    fixes=(
        look("See which of the usual ones it has", "grep -owE 'avx|avx2|fma|avx512f' /proc/cpuinfo | sort | uniq -c"),
        Fix("In a virtual machine: have its host show it the real processor (CPU model host-passthrough)"),
        Fix("Install a release that was built for older processors", verify="<python> -c 'import <module>'"),
    ),
)
LAST_LINES = 8
MODULES = {"numba": "numba.cuda.cudaimpl"}  # what the kernels need, which numba.cuda alone does not import
OF_NUMPY = re.compile(
    r"""
    module\ 'numpy[\w.]*'\ has\ no\ attribute
    | numpy\.\w+\ size\ changed
    | compiled\ using\ NumPy\ 1
    | _ARRAY_API\ not\ found
    """,
    re.VERBOSE,
)


def judge(facts: Facts) -> Iterator[Finding]:
    if not facts.measured.imports:
        why = "; ".join(facts.measured.not_measured.values())
        raise Skip(why or "nothing was imported", facts.measured.plan["kind"] if why else Skip.NO_ANSWER)
    tried = {name: reply for name, reply in facts.measured.imports.items() if reply.status != "missing"}
    if not tried:
        raise Skip(f"none is installed in {facts.python.executable} (another: --python PATH)", Skip.NOT_INSTALLED)
    for name, reply in tried.items():
        if reply.status != "ok":
            yield found(facts, name, reply)


def found(facts: Facts, name: str, reply: Reply) -> Finding:
    problem = CRASHES if reply.status != "error" else NUMPY if OF_NUMPY.search(reply.detail) else FAILS
    prints = (reply.value or {}).get("prints", "")
    packages = sorted(key for key in facts.python.packages if key in (name, name + "lib") or key.startswith(name + "-cuda"))
    evidence = {
        "framework": name,
        "numpy": numpy_release(facts),
        "module": MODULES.get(name, name),
        "packages": packages or [name],
        "last_words": " | ".join(prints.splitlines()[-LAST_LINES:]),
    }
    if "SIGILL" in reply.detail:
        problem = ILLEGAL
    return problem.found(f"{name}: {reply.detail}", evidence)


def numpy_release(facts: Facts) -> str:
    """Major and minor version of the NumPy beside it: 2.5."""
    package = facts.python.package("numpy")
    return ".".join(package.version.split(".")[:2]) if package else "2"


def summary(facts: Facts) -> str:
    found = facts.measured.imports.items()
    return ", ".join(
        f"{name} {reply.value['version']} in {reply.value['seconds']:.1f} s" for name, reply in found if reply.status == "ok"
    )


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NUMPY, FAILS, CRASHES),
    level="standard",
    needs=("cuda-context",),
)
