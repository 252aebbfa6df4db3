"""Files of GPU packages that differ from their RECORD, as the cause of failures."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace

from packaging.utils import canonicalize_name

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.packages import Differing
from gpudoctor.model import Finding

TRUNCATED_ID, MISSING_ID, CHANGED_ID = "package-files-truncated", "package-files-missing", "package-files-changed"
IDS = {"truncated": TRUNCATED_ID, "missing": MISSING_ID, "changed": CHANGED_ID, "other": CHANGED_ID}
FAILURES = ("framework-imports", "measurements", "toolchain-ladder", "command", "messages")
OF_COMMANDS = ("command", "messages")
CRASHED, CRASH = "measurement-crashed", re.compile("SIG(SEGV|BUS|ABRT|ILL)")


def with_cause(finding: Finding, facts: Facts, check: str) -> Finding:
    """A failure with the damaged files that it is about as a further cause."""
    if check not in FAILURES:
        return finding
    is_killed = check in OF_COMMANDS and known(lambda: facts.command.kind == "killed", False)
    has_crashed = is_killed or (finding.problem.id == CRASHED and CRASH.search(finding.message) is not None)
    found = [
        IDS[differing.kind]
        for differing in known(lambda: facts.python.differing_files, ())
        if _is_about(finding, differing) or (has_crashed and differing.kind == "truncated")
    ]
    return replace(finding, causes=(*finding.causes, *dict.fromkeys(found))) if found else finding


def _is_about(finding: Finding, differing: Differing) -> bool:
    """It names one of the files, or goes through the module of a file, or is about the import of the package."""
    words = f"{finding.message} {finding.evidence.get('last_words', '')}"
    imported = {canonicalize_name(str(name)) for name in finding.evidence.get("packages") or ()}
    modules = (file.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for file in differing.files)
    return (
        canonicalize_name(differing.package) in imported
        or any(posixpath.basename(file) in words for file in differing.files if file.endswith((".py", ".bc")) or ".so" in file)
        or any(f"'{module}'" in words for module in modules)
        or any(f"/{file}" in words for file in differing.files)
    )
