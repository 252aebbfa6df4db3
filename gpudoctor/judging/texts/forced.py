"""A variable of a text that forces programs to render on the CPU, as the cause of what they report. Pure."""

from __future__ import annotations

import re
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding, Fix

RENDERING = ("graphics-on-cpu", "egl-without-nvidia", "graphics-driver-files-missing")
_VARIABLE = re.compile(
    r"""
    \b(?: (?P<files>VK_ICD_FILENAMES|VK_DRIVER_FILES|__EGL_VENDOR_LIBRARY_FILENAMES)=(?![^\n]*nvidia)(?P<file>/\S+)
      | (?P<vendor>__GLX_VENDOR_LIBRARY_NAME)=mesa
      | (?P<always>LIBGL_ALWAYS_SOFTWARE)=(?:1|true) )
    """,
    re.VERBOSE,
)
TITLE = "A variable makes programs render on the CPU, not on the GPU"
WHY = (
    "The variable names Mesa's driver, or software rendering, for every program of this shell. NVIDIA's driver is not tried, "
    "even if it is installed and works."
)
UNSET = Fix(
    "Unset the variables (and remove them from ~/.profile, /etc/environment or the Dockerfile)",
    "unset VK_ICD_FILENAMES VK_DRIVER_FILES __EGL_VENDOR_LIBRARY_FILENAMES __GLX_VENDOR_LIBRARY_NAME LIBGL_ALWAYS_SOFTWARE",
    where="shell",
    kind="set",
    verify="vulkaninfo --summary",
)


def by_variable(finding: Finding, facts: Facts) -> Finding:
    """The same problem, with the variable as its cause, if the text sets one."""
    if finding.problem.id not in RENDERING:
        return finding
    match = next(filter(None, map(_VARIABLE.search, passages(facts))), None)
    if match is None:
        return finding
    name = match["files"] or match["vendor"] or match["always"]
    evidence = {key: value for key, value in finding.evidence.items() if key not in ("could_be", "decide")}
    problem = replace(finding.problem, title=TITLE, why=WHY, fixes=(UNSET, *finding.problem.fixes[:1]))
    words = f"{finding.message}; {name} is set"
    return replace(finding, problem=problem, message=words, evidence={**evidence, "variable": name}, confidence=Confidence.LIKELY)
