"""Packages of an environment that are hidden by copies from PYTHONPATH or the user's site-packages."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.packages import Package
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

PROBLEM = "python-path-shadows-environment"
_FILE = re.compile(r"""(?:File "|from '|\(|, )(/[^"'\n()]+?\.py)\b""")
_MISSES = re.compile(r"module '(\w+)[\w.]*' has no attribute")
NO_USER_SITE = Fix("In this shell: start programs without the folder", "export PYTHONNOUSERSITE=1", where="shell")
FILE = Problem(
    id="file-shadows-module",
    title="A file of yours hides a Python module that programs import",
    why="Python imports the first file of the right name on its search path, and PYTHONPATH comes before Python's own modules "
    "and the installed packages.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("In this shell: start programs without the folder", "unset PYTHONPATH", where="shell"),
        Fix(
            "Permanently: rename the file, or remove the folder from PYTHONPATH",
            "mv <file> <file>.off",
            undo="mv <file>.off <file>",
        ),
    ),
    references=("https://docs.python.org/3/library/sys_path_init.html",),
)


@dataclass(frozen=True)
class Shadowed:
    """The copy that is imported, and the environment's own."""

    imported: Package
    own: Package


def shadowed(facts: Facts) -> tuple[Shadowed, ...]:
    """The packages for GPU work whose imported copy is outside the environment and has another version."""
    if not (facts.python.is_virtual or facts.python.is_conda):
        return ()
    outside = _outside(facts)
    found = []
    for copies in facts.python.packages.values():
        imported = copies[0]
        if imported.stated_requires is None or imported.location not in outside:
            continue
        others = [copy for copy in copies if copy.location not in outside]
        if any(copy.version != imported.version for copy in others):
            found.append(Shadowed(imported, others[0]))
    return tuple(found)


def _outside(facts: Facts) -> set[str]:
    """The folders on the search path that come from PYTHONPATH or the user's home."""
    named = (facts.environment.get("PYTHONPATH") or "").split(":")
    user = [facts.python.user_site] if facts.python.user_site else []
    return {folder.rstrip("/") for folder in (*named, *user) if folder and not folder.startswith(facts.python.prefix + "/")}


def with_cause(finding: Finding, facts: Facts) -> Finding:
    """The finding, caused by the shadowing if it is about a copy outside the environment."""
    pairs = known(lambda: shadowed(facts), ()) if finding.packages else ()
    from_outside = {canonicalize_name(pair.imported.name) for pair in pairs}
    if finding.problem.id == PROBLEM or from_outside.isdisjoint(map(canonicalize_name, finding.packages)):
        return finding
    return replace(finding, causes=(PROBLEM, *finding.causes))


def files(facts: Facts, words: str) -> Iterator[Finding]:
    """The file of a user that a traceback goes through although it only has the name of a module of Python or of a package."""
    folders = [folder for folder in _outside(facts) if folder.startswith("/")]
    for path in dict.fromkeys((*_FILE.findall(words), *_imported(facts, words))):
        folder = next((each for each in folders if path.startswith(each + "/")), "")
        name = path.removeprefix(folder + "/").split("/")[0].removesuffix(".py")
        if folder and name and _is_elsewhere(facts, name, folder):
            is_users = folder == facts.python.user_site
            evidence = {"variable": "PYTHONPATH", "file": path, "module": name, "folder": folder}
            problem = replace(FILE, fixes=(NO_USER_SITE, *FILE.fixes[1:])) if is_users else FILE
            text = f"{path} is imported in place of the module {name} that programs expect"
            yield replace(problem.found(text, evidence, confidence=Confidence.LIKELY), causes=(PROBLEM,))
            return


def _imported(facts: Facts, words: str) -> list[str]:
    """The files of the modules in which the words miss something, as far as gpudoctor imported them."""
    imports = known(lambda: facts.measured.imports, {})
    replies = (imports.get(name) for name in _MISSES.findall(words))
    return [reply.value["file"] for reply in replies if reply and reply.status == "ok" and reply.value.get("file")]


def _is_elsewhere(facts: Facts, name: str, folder: str) -> bool:
    """Whether a module belongs to Python itself, or to a package that is installed in another folder."""
    if name in sys.stdlib_module_names or name in ("sitecustomize", "usercustomize"):
        return True
    copies = facts.python.packages.get(canonicalize_name(name), ())
    return any(copy.location.rstrip("/") != folder for copy in copies)
