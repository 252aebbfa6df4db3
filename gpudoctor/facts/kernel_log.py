"""Kernel messages: Xids of GPUs, SXids of NVSwitches, and patterns that checks look for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Skip, Unavailable

# Prefixes of a message; there can be several.
_PREFIX = re.compile(
    r"""
    \s*(?:
        <\d+>                                                   # syslog
        | (?:kern|user|daemon)\s*:[a-z]+\s*:[ ]                 # dmesg -x: "kern  :warn  : "
        | \d{4}-\d\d-\d\d[T ][\d:,.]+(?:Z|[+-]\d\d:?\d\d)?(?:\ \S+\ kernel:)?[ ]
        | \[[A-Z][a-z]{2}\ [A-Z][a-z]{2}\ +\d+\ [\d:]+\ \d{4}\][ ]    # dmesg -T: "[Sun Feb 23 16:24:18 2025] "
        | [A-Z][a-z]{2}\ +\d+\ [\d:]{8}\ \S+\ kernel:[ ]        # syslog, journal: "Feb 01 14:25:31 host kernel: "
        | kernel:[ ]
        | \[\s*(?P<seconds>\d+\.\d+)\]
        | \[\s*[TC]\d+\]                                        # the thread
    )
    """,
    re.VERBOSE,
)
_PCI = r"(?:PCI:)?(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2,4}:[0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?"
_XID = re.compile(rf"NVRM: Xid \({_PCI}\): (\d+)(?:, *(.*))?")
_SXID = re.compile(rf"SXid \({_PCI}\): (\d+), *((Non-fatal|Fatal)\b.*)")
_WHO = re.compile(r"(?:pid='?(?P<pid>[^,']*)'?,? *)?(?:name=(?P<name>[^,]*),? *)?")
_INJECTED = re.compile(r"\bXC\d+ i1\b|\b[Ii]njected\b|\b[Ee]rror [Ii]njection\b")
_LINK = re.compile(r"\bLink (\d+)")
# The start of another boot: the kernel's first message, or journalctl's separator between two boots.
_BEGINS = re.compile(r"Linux version \d")
_BETWEEN = re.compile(r"-- (?:Boot (?:[0-9a-f]{32}|serial-\d+)|Reboot) --")
_BACK_SECONDS = 5.0  # messages of several CPUs are not strictly in order


@dataclass(frozen=True)
class LogLine(Guarded):
    """One message without the logger's prefix, and its time in seconds since the boot, if known."""

    seconds: float | None
    text: str


@dataclass(frozen=True)
class Xid(Guarded):
    """One error of a GPU: https://docs.nvidia.com/deploy/xid-errors/"""

    pci: str  # "0000:38:00"
    code: int
    text: str  # the text after the process: "GPU has fallen off the bus."
    seconds: float | None
    process: str | None
    pid: int | None

    @property
    def is_injected(self) -> bool:
        """A tool provoked it for a test: the driver marks errors of NVLink 5 with i1 (XC: cross-contained, i: injected)."""
        return bool(_INJECTED.search(self.text))


@dataclass(frozen=True)
class Sxid(Guarded):
    """One error of an NVSwitch; its follow-up lines with register contents are left out."""

    pci: str
    code: int
    text: str
    seconds: float | None
    is_fatal: bool
    link: int | None


class KernelLog(Guarded):
    """The lines that the probe kept. Unavailable if neither the ring buffer nor the journal can be read."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def _answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = self._replies.value("kernel-log")
        if not answer["total"]:
            raise Unavailable("the kernel log is empty: cleared, or not this machine's")
        if any("Starting gVisor" in line for line in answer["lines"]):
            raise Unavailable("the kernel log here is gVisor's own, not the host's", Skip.UNSUPPORTED)
        return answer

    @property
    def source(self) -> str:
        """Where the log was read: dmesg or journal."""
        return str(self._answer["source"])

    @property
    def complete(self) -> bool:
        """Whether the log starts at the boot; otherwise earlier messages may be missing."""
        return bool(self._answer["complete"]) or len(self.boots) > 1

    @property
    def counted(self) -> str:
        """What comes before a number of messages: "at least " if some lines of a long text were left out."""
        return "at least " if self._answer.get("left_out") else ""

    @cached_property
    def boots(self) -> tuple[tuple[LogLine, ...], ...]:
        """The log of each boot, the latest one last; a log given as evidence can hold several."""
        return boots_of(map(log_line, self._answer["lines"]))

    @property
    def lines(self) -> tuple[LogLine, ...]:
        """The lines of the latest boot, which is the machine's present state."""
        return self.boots[-1]

    @cached_property
    def xids(self) -> tuple[Xid, ...]:
        """Without those that were injected."""
        return tuple(xid for xid in self._all_xids if not xid.is_injected)

    @cached_property
    def injected_xids(self) -> tuple[Xid, ...]:
        return tuple(xid for xid in self._all_xids if xid.is_injected)

    @cached_property
    def _all_xids(self) -> tuple[Xid, ...]:
        return tuple(xid for line in self.lines if (xid := xid_of(line)))

    @cached_property
    def sxids(self) -> tuple[Sxid, ...]:
        return tuple(sxid for line in self.lines if (sxid := sxid_of(line)))

    @cached_property
    def earlier_xids(self) -> tuple[tuple[Xid, ...], ...]:
        """The Xids of each boot before the latest one."""
        return tuple(tuple(xid for line in boot if (xid := xid_of(line))) for boot in (*self._journal, *self.boots[:-1]))

    @cached_property
    def earlier_sxids(self) -> tuple[tuple[Sxid, ...], ...]:
        return tuple(tuple(sxid for line in boot if (sxid := sxid_of(line))) for boot in (*self._journal, *self.boots[:-1]))

    @cached_property
    def _journal(self) -> tuple[tuple[LogLine, ...], ...]:
        """From the journal: errors of earlier boots that this boot reported again. Errors that did not recur are left out."""
        try:
            boots = self._replies.value("kernel-log-earlier")
        except Unavailable:
            return ()
        now = {(xid.pci, xid.code) for xid in self.xids} | {(sxid.pci, sxid.code) for sxid in self.sxids}
        return tuple(tuple(line for line in map(log_line, boot) if _code_of(line) in now) for boot in boots)

    def matching(self, regex: str) -> tuple[LogLine, ...]:
        """The lines that match the expression, ignoring case."""
        pattern = re.compile(regex, re.IGNORECASE)
        return tuple(line for line in self.lines if pattern.search(line.text))

    @cached_property
    def nvrm(self) -> str:
        """NVRM's messages joined in one line: one message of the driver can span several log lines."""
        return re.sub(r"\s*NVRM:\s*", " ", " ".join(line.text for line in self.matching("NVRM"))).strip()

    @cached_property
    def text(self) -> str:
        """All messages, one per line: some of NVRM's span several lines."""
        return "\n".join(line.text for line in self.lines)


def log_line(raw: str) -> LogLine:
    seconds = None
    while match := _PREFIX.match(raw):
        seconds = float(match["seconds"]) if match["seconds"] else seconds
        raw = raw[match.end() :]
    return LogLine(seconds, raw.strip())


def boots_of(lines: Iterable[LogLine]) -> tuple[tuple[LogLine, ...], ...]:
    """Splits a log at each boot: at the kernel's first message, at journalctl's separator, or if the time goes backwards.

    A boot logged twice, by dmesg and by the journal, counts once.
    """
    boots: list[list[LogLine]] = [[]]
    last = 0.0
    for line in lines:
        is_back = line.seconds is not None and line.seconds < last - _BACK_SECONDS
        if boots[-1] and (is_back or _BEGINS.search(line.text) or _BETWEEN.search(line.text)):
            boots.append([])
            last = 0.0
        if not _BETWEEN.search(line.text):
            boots[-1].append(line)
        last = last if line.seconds is None else max(last, line.seconds)
    return tuple(tuple(boot) for boot in _told_once(boots))


def _told_once(boots: list[list[LogLine]]) -> list[list[LogLine]]:
    """Joins logs of the same boot: different boots share no message with the same microsecond, except at the very beginning."""
    told: dict[int, list[LogLine]] = {}
    boot_of: dict[LogLine, int] = {}
    for number, boot in enumerate(boots):
        stamped = {line for line in boot if (line.seconds or 0.0) > 1.0}
        same = min((boot_of[line] for line in stamped & boot_of.keys()), default=None)
        if same is not None:
            earlier = told.pop(same)
            known = set(earlier)
            boot = [*earlier, *(line for line in boot if line not in known)]
            stamped |= {line for line in earlier if (line.seconds or 0.0) > 1.0}
        told[number] = boot
        boot_of |= dict.fromkeys(stamped, number)
    return list(told.values())


def xid_of(line: LogLine) -> Xid | None:
    match = _XID.search(line.text)
    if not match:
        return None
    domain, bus_device, code, rest = match.groups()
    who = _WHO.match(rest or "")
    pid, name = (who["pid"], who["name"]) if who else (None, None)
    text = (rest or "")[who.end() if who else 0 :].strip()
    return Xid(
        pci=pci_slot(domain, bus_device),
        code=int(code),
        text=text,
        seconds=line.seconds,
        process=None if name in (None, "", "<unknown>") else name,
        pid=int(pid) if pid and pid.isdigit() else None,
    )


def sxid_of(line: LogLine) -> Sxid | None:
    match = _SXID.search(line.text)
    if not match:
        return None
    domain, bus_device, code, text, severity = match.groups()
    link = _LINK.search(text)
    slot = pci_slot(domain, bus_device)
    return Sxid(slot, int(code), text, line.seconds, severity == "Fatal", int(link[1]) if link else None)


def _code_of(line: LogLine) -> tuple[str, int] | None:
    found = xid_of(line) or sxid_of(line)
    return (found.pci, found.code) if found else None


def pci_slot(domain: str | None, bus_device: str) -> str:
    """ "0000:38:00", lower case, like NVML's bus ids and the folders of /sys; the oldest drivers omit the domain."""
    bus, device = bus_device.split(":")
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{device.lower()}"
