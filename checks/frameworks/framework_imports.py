"""Each GPU framework that is installed can be imported.

What it means
A framework can be installed and still fail to start: a library that it needs is missing or of another version, its extension was
built for another NumPy, or its import crashes. Then no program that uses it works.

How it is judged
torch, cupy, numba and jax are imported, each in its own process of the examined Python.

Known exceptions
A framework that is not installed is not a fault. The quick checks look at versions without importing anything and may name the
cause of a failed import.

References
https://docs.python.org/3/reference/import.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.measured import said, signal_of
from gpudoctor.fixes.common import look
from gpudoctor.judging.measured import failing
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Reply, Skip

REINSTALL = Fix(
    "Reinstall it with its requirements",
    "<python> -m pip install --force-reinstall <packages>",
    needs=("network",),
    verify="<python> -c 'import <module>'",
    kind="install",
)

FAILS = Problem(
    id="framework-import-fails",
    title="A GPU framework is installed but cannot be imported",
    why="The package is installed, but something that it needs is missing, broken or of an incompatible version.",
    action=Action.INSTALL,
    fixes=(
        look("Show the whole error", "<python> -c 'import <module>'"),
        look("Show which packages conflict", "<python> -m pip check"),
        REINSTALL,
    ),
)
NUMPY = Problem(
    id="framework-does-not-know-this-numpy",
    title="A GPU framework is incompatible with the installed NumPy",
    why="NumPy removes names and changes its ABI between releases. Packages built for another release fail on import even if "
    "pip sees no conflict.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install a newer release of the framework that supports this NumPy",
            "<python> -m pip install --upgrade <packages>",
            needs=("network",),
            verify="<python> -c 'import <module>'",
            kind="install",
        ),
        Fix(
            "Downgrade NumPy to the release before this one",
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
    title="Importing a GPU framework crashes or hangs",
    why="A library that the import loads kills the process or hangs. Usually it is a library of another version, or a file "
    "system that does not respond.",
    action=Action.INSTALL,
    fixes=(
        look("Find where it crashes or hangs", "<python> -X faulthandler -c 'import <module>'"),
        REINSTALL,
    ),
)
ILLEGAL = replace(
    CRASHES,
    why="The processor lacks an instruction that the package was built with, or the virtual machine hides it.",
    fixes=(
        look(
            "Show which of the usual instruction sets the processor has",
            "grep -owE 'avx|avx2|fma|avx512f' /proc/cpuinfo | sort | uniq -c",
        ),
        Fix("In a virtual machine: set the CPU model host-passthrough on its host"),
        Fix("Install a release built for older processors", verify="<python> -c 'import <module>'"),
    ),
)
LAST_LINES = 8
MODULES = {"numba": "numba.cuda.cudaimpl"}  # needed by kernels; importing numba.cuda alone does not import it
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
        raise Skip(why or "no framework was imported", facts.measured.plan["kind"] if why else Skip.NO_ANSWER)
    tried = {name: reply for name, reply in facts.measured.imports.items() if reply.status != "missing"}
    if not tried:
        raise Skip(
            f"no framework is installed in {facts.python.executable} (to examine another Python: --python PATH)",
            Skip.NOT_INSTALLED,
        )
    reasons = {name: explanation(facts, name, reply) for name, reply in tried.items() if reply.status != "ok"}
    yield from failing.clues(reasons.values())
    for framework, reason in reasons.items():
        yield failing.explained(found(facts, framework, tried[framework]), reason)


def explanation(facts: Facts, name: str, reply: Reply) -> failing.Explanation:
    told = reply.value or {}
    words = said(reply.detail, told.get("prints", ""))
    is_known = bool(OF_NUMPY.search(reply.detail)) or "SIGILL" in reply.detail
    failed = failing.Failed(f"import {name}", words, signal_of(reply.detail), told.get("recorded", ""), is_known)
    return failing.explanation(facts, failed)


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
    """Major and minor version of the installed NumPy: 2.5."""
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
    problems=(NUMPY, FAILS, CRASHES, *failing.PROBLEMS),
    level="standard",
    needs=("cuda-context",),
    tags=("pytorch",),
)
