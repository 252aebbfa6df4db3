"""Where the memory image (core) of a crashed command is. Pure.

https://man7.org/linux/man-pages/man5/core.5.html
https://www.freedesktop.org/software/systemd/man/latest/coredumpctl.html
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.model import Fix

CRASHED = re.compile(r"\bSIG(?:SEGV|ABRT|BUS|FPE|ILL|SYS|TRAP|QUIT)\b")
BY_SYSTEMD = look("Show the crash with its stack, as systemd-coredump keeps it", "coredumpctl --no-pager info")
BY_APPORT = look("Look for its crash report", "ls -lt /var/crash /var/lib/apport/coredump | head")
ALLOW = Fix("Allow cores in this shell, then repeat the command: gdb shows its stack", "ulimit -c unlimited", where="shell")
IN_WINDOWS = Fix("Look for its core in Windows: %LOCALAPPDATA%\\Temp\\wsl-crashes")


class Core(NamedTuple):
    """words: where it is, or why there is none; "" if that is not known."""

    words: str = ""
    fixes: tuple[Fix, ...] = ()


def core(facts: Facts, failure: str) -> Core:
    pattern = known(lambda: facts.system.core_pattern) if CRASHED.search(failure) else None
    if pattern is None:
        return Core()
    host = " on the host" if known(lambda: facts.system.is_container, False) else ""
    if pattern.startswith("|"):
        return _handed_on(pattern[1:].split()[0] if pattern[1:].split() else "", host)
    limit = known(lambda: facts.limits.named("Max core file size")[0])
    if not pattern or limit == 0:
        return Core("no core was written (ulimit -c is 0)", (ALLOW,))
    place = pattern if pattern.startswith("/") else f"{pattern} in its working folder"
    return Core(f"its core is {place} (see man 5 core for the % signs)")


def _handed_on(program: str, host: str) -> Core:
    if program.endswith("systemd-coredump"):
        return Core(f"systemd-coredump{host} keeps its core", () if host else (BY_SYSTEMD,))
    if program.endswith("apport"):
        return Core(f"apport{host} gets its core, and keeps only those of packaged programs", () if host else (BY_APPORT,))
    if "wsl" in program:
        return Core("WSL writes its core into Windows' temporary folder", (IN_WINDOWS,))
    return Core(f"the kernel{host} hands its core to {program}" if program else "")
