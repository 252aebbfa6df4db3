"""Packages of an environment that are hidden by copies from PYTHONPATH or the user's site-packages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.packages import Package
from gpudoctor.model import Finding

PROBLEM = "python-path-shadows-environment"


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
