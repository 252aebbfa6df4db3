"""The kernel's messages: Xids of GPUs, SXids of NVSwitches, and whatever a check looks for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpudoctor.facts.replies import Replies
from gpudoctor.model import Skip, Unavailable

# What may stand before a message, again and again: "<4>" (syslog), "kern  :warn  :" (dmesg -x), an ISO date, "[Sun Feb 23
# 16:24:18 2025]" (dmesg -T), "Feb 01 14:25:31 host kernel:" (syslog, journal), "[  130.456250]" and the thread "[   T1946]".
_PREFIX = re.compile(
    r"\s*(?:"
    r"<\d+>"
    r"|(?:kern|user|daemon)\s*:[a-z]+\s*: "
    r"|\d{4}-\d\d-\d\d[T ][\d:,.]+(?:Z|[+-]\d\d:?\d\d)?(?: \S+ kernel:)? "
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]+ \d{4}\] "
    r"|[A-Z][a-z]{2} +\d+ [\d:]{8} \S+ kernel: "
    r"|kernel: "
    r"|\[\s*(?P<seconds>\d+\.\d+)\]"
    r"|\[\s*[TC]\d+\]"
    r")"
)
_PCI = r"(?:PCI:)?(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2,4}:[0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?"
_XID = re.compile(rf"NVRM: Xid \({_PCI}\): (\d+)(?:, *(.*))?")
_SXID = re.compile(rf"SXid \({_PCI}\): (\d+), *((Non-fatal|Fatal)\b.*)")
_WHO = re.compile(r"(?:pid='?(?P<pid>[^,']*)'?,? *)?(?:name=(?P<name>[^,]*),? *)?")
_LINK = re.compile(r"\bLink (\d+)")


@dataclass(frozen=True)
class LogLine:
    """One message without what the logger put before it; seconds since the boot, where they are told."""

    seconds: float | None
    text: str


@dataclass(frozen=True)
class Xid:
    """One error of a GPU: https://docs.nvidia.com/deploy/xid-errors/"""

    pci: str  # "0000:38:00"
    code: int
    text: str  # what follows the process: "GPU has fallen off the bus."
    seconds: float | None
    process: str | None
    pid: int | None


@dataclass(frozen=True)
class Sxid:
    """One error of an NVSwitch; its follow-up lines with register contents are left out."""

    pci: str
    code: int
    text: str
    seconds: float | None
    is_fatal: bool
    link: int | None


class KernelLog:
    """The lines that the probe kept. Unavailable where neither the ring buffer nor the journal may be read."""

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
        """dmesg or journal."""
        return str(self._answer["source"])

    @property
    def complete(self) -> bool:
        """Whether the log reaches back to the boot; where it does not, what is not in it may have happened."""
        return bool(self._answer["complete"])

    @cached_property
    def lines(self) -> tuple[LogLine, ...]:
        return tuple(map(log_line, self._answer["lines"]))

    @cached_property
    def xids(self) -> tuple[Xid, ...]:
        return tuple(xid for line in self.lines if (xid := xid_of(line)))

    @cached_property
    def sxids(self) -> tuple[Sxid, ...]:
        return tuple(sxid for line in self.lines if (sxid := sxid_of(line)))

    def matching(self, regex: str) -> tuple[LogLine, ...]:
        """The lines in which the expression is found, whatever its case."""
        pattern = re.compile(regex, re.IGNORECASE)
        return tuple(line for line in self.lines if pattern.search(line.text))

    @cached_property
    def nvrm(self) -> str:
        """NVRM's words in one line: a message of the driver goes over several of the log's lines."""
        return re.sub(r"\s*NVRM:\s*", " ", " ".join(line.text for line in self.matching("NVRM"))).strip()

    @cached_property
    def text(self) -> str:
        """All messages, one per line: some of NVRM's go over several."""
        return "\n".join(line.text for line in self.lines)


def log_line(raw: str) -> LogLine:
    seconds = None
    while match := _PREFIX.match(raw):
        seconds = float(match["seconds"]) if match["seconds"] else seconds
        raw = raw[match.end() :]
    return LogLine(seconds, raw.strip())


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


def pci_slot(domain: str | None, bus_device: str) -> str:
    """ "0000:38:00", lower case, as the bus id of NVML and the folders of /sys begin; the oldest drivers omit the domain."""
    bus, device = bus_device.split(":")
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{device.lower()}"
