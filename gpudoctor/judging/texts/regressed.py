"""A driver branch that a text names as one with which it works: going back to it comes first. Pure."""

from __future__ import annotations

import re
from dataclasses import replace

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import install_on
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Finding

OF_DRIVER = (
    *("power-reading-impossible", "gpu-initialisation-failed", "gpu-does-not-resume", "gpu-never-powers-down"),
    *("xid-62-pmu-halt", "xid-109-ctxsw-timeout", "xid-119-gsp-rpc-timeout", "xid-120-gsp-error", "xid-143-gpu-init-error"),
)
"""Problems that a release of the driver can have, and another not."""
_NAMED = r"(?:the\ )?(?:nvidia[- ])?(?:driver\ |version\ |branch\ )?(?P<{}>[3-6]\d\d)(?:\.\d+){{0,2}}(?:\.?xx)?\b{}"
_NO_UNIT = r"(?!\ ?(?:W|MHz|[MG]i?B|fps|ms|s|%|GPUs?|nodes?|steps?|samples?|tok\w*|users?)\b)"
_FINE = r"\b(?:work(?:s|ed)|fine|ok(?:ay)?|good|stable|no\ (?:such\ )?(?:problems?|issues?|errors?)|never\ happened)\b"
_WITH = r"\b(?:with|on|in|under|using)\ "
_WORKS_WITH = re.compile(
    rf"""
    {_WITH}{_NAMED.format("before", _NO_UNIT)}[^\n.]{{0,40}}{_FINE}
    | {_FINE}[^\n.]{{0,20}}\ {_WITH}{_NAMED.format("after", _NO_UNIT)}
    | \b(?:downgrad\w+|roll\w*\ back|revert\w*|go(?:ing|ne)?\ back|went\ back)[^\n.]{{0,20}}
      \ to\ {_NAMED.format("back", _NO_UNIT)}[^\n.]{{0,40}}(?:\b(?:fix|help|solv|cur)\w*|{_FINE})
    """,
    re.IGNORECASE | re.VERBOSE,
)
BACK = install_on(
    "Go back to the driver branch that works here, until a newer release cures it",
    verify="nvidia-smi",
    reboot=True,
    debian="sudo apt install nvidia-driver-<wanted_branch>",
    rhel="sudo dnf install nvidia-driver-<wanted_branch>*",
    arch="yay -S nvidia-<wanted_branch>xx-dkms",
)


def with_way_back(finding: Finding, facts: Facts) -> Finding:
    """With the branch that works as the first fix, if the text names one other than the installed."""
    if finding.problem.id not in OF_DRIVER or not facts.texts.alone:
        return finding
    match = next(filter(None, map(_WORKS_WITH.search, passages(facts))), None)
    if match is None:
        return finding
    branch = match["before"] or match["after"] or match["back"]
    if knowledge.branch(int(branch)) is None or f"{known(lambda: facts.nvml.driver_version, '')}.".startswith(f"{branch}."):
        return finding
    problem = replace(finding.problem, fixes=(*BACK, *finding.problem.fixes))
    words = f"{finding.message}; it works with driver {branch}"
    return replace(finding, problem=problem, message=words, evidence={**finding.evidence, "wanted_branch": branch})
