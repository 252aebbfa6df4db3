"""The lines of dnf as yum reads them, on releases without dnf: RHEL and CentOS 7, Amazon Linux 2.

https://dnf.readthedocs.io/en/latest/cli_vs_yum.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpudoctor.fixes.distribution import Distribution
from gpudoctor.model import Fix

_CONFIG = re.compile(r"sudo dnf install 'dnf-command\(config-manager\)' && ")
_ONLY_DNF = re.compile(
    r"""
    \b(?:dnf|yum)\ (?: module | versionlock | config-manager\ (?!--add-repo) )
    | --allowerasing | --noautoremove | --oldinstallonly | dnf5
    """,
    re.VERBOSE,
)


def spoken(fixes: Iterable[Fix], machine: Distribution) -> Iterator[Fix]:
    """A fix that yum has no words for is left to a person."""
    for fix in fixes:
        if not machine.has_only_yum or "dnf" not in fix.command + fix.undo + fix.verify:
            yield fix
        elif _ONLY_DNF.search(fix.command):
            yield replace(fix, command="", kind="manual", undo="", verify=_by_yum(fix.verify), reboot=False)
        else:
            undo = "" if _ONLY_DNF.search(fix.undo) else _by_yum(fix.undo)
            yield replace(fix, command=_by_yum(fix.command), undo=undo, verify=_by_yum(fix.verify))


def _by_yum(line: str) -> str:
    line = _CONFIG.sub("sudo yum install yum-utils && ", line)
    line = line.replace(" --refresh", "")  # an option of dnf
    return re.sub(r"\bdnf\b(?! config)", "yum", line.replace("dnf config-manager --add-repo", "yum-config-manager --add-repo"))
