"""Rules about the outputs in a text: two that do not fit each other, or one value that is wrong for its kind. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from types import ModuleType

from gpudoctor.facts import Facts
from gpudoctor.facts.guarded import comparable
from gpudoctor.model import Finding, Problem, Skip

IN_ORDER = (
    "releases driver gpus python environments places loads desktops kernels hosts inputs starts node_offers node_pools "
    "pod_shares batch virtual inside cluster_setup containers cluster pods networks nodes jobs fabric configured "
    "versions_used guests access compared effective picked apart assigned daemons asked scopes engines drawing siblings "
    "built values links rates supplies unused modes kept misspelt applied numbering peers chosen installed counts "
    "architectures interpreters in_code ranks tested surroundings workloads elsewhere complained"
)
"""Each module has RULES, and PROBLEMS if nothing else finds them. They are many, and loaded when the first text is judged."""


@cache
def problems() -> tuple[Problem, ...]:
    """Those that only these rules find."""
    return tuple(problem for module in _modules() for problem in getattr(module, "PROBLEMS", ()))


def findings(facts: Facts) -> Iterator[Finding]:
    """A rule whose facts are not in the text finds nothing. What two rules find is said once, in the words of the first."""
    found: set[tuple[str, int | None]] = set()
    for rule in (rule for module in _modules() for rule in module.RULES):
        with suppress(Skip):
            for finding in comparable(rule(facts)):
                if (key := (finding.problem.id, finding.gpu)) not in found:
                    found.add(key)
                    yield finding


@cache
def _modules() -> tuple[ModuleType, ...]:
    return tuple(import_module(f"{__name__}.{name}") for name in IN_ORDER.split())
