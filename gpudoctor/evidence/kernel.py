"""The kernel messages in a text, in the form of the probe `kernel-log`."""

from __future__ import annotations

import re
from dataclasses import replace

from gpudoctor.evidence.excerpt import Excerpt
from gpudoctor.facts.kernel_log import boots_of, log_line
from gpudoctor.model import Reply
from gpudoctor.worker.probes.kernel_log import is_relevant

# Literal parts of the messages that the probe keeps.
ANCHORS = (
    *("NVRM", "nvidia", "nouveau", "nova_core", "Xid", "vfio-pci", "nvswitch", "Linux version", "-- Boot ", "-- Reboot --"),
    *(
        "AER:",
        "PCIe Bus Error",
        "DPC:",
        "pciehp",
        "thunderbolt ",
        "Hardware Error",
        "limited by",
        "BAR ",
        "bridge window",
        "request_free_mem_region",
    ),
    *(
        "module verification failed",
        "Lockdown:",
        "unsigned module",
        "Key was rejected",
        "PKCS#7",
        "taints kernel",
        "unavailable key",
    ),
    *(
        "PM: suspend",
        "PM: hibernation",
        "dxgk",
        "hv_dxg",
        "avc:",
        "oom-kill",
        "Out of memory",
        "out of memory",
        "blocked for more",
    ),
    *("segfault", "general protection", "trap invalid", "DMAR:", "IO_PAGE_FAULT", "Machine check"),
)
_BY_KERNEL = re.compile(
    r"""
    ^\s*(?:<\d+>)?\[\s*\d+\.\d+\]                               # dmesg
    | ^\[[A-Z][a-z]{2}\ [A-Z][a-z]{2}\ +\d+\ [\d:]+\ \d{4}\]    # dmesg -T
    | \bkernel(?:\[\d*\])?:[ ]                                  # syslog, the journal
    | ^(?:kern|user)\s*:\w+\s*:                                 # dmesg -x
    | \bNVRM:[ ]
    | \bnvidia-nvswitch\d*:\ SXid
    | \bXid\ \(PCI
    """,
    re.VERBOSE,
)
_REBOOT = "-- Reboot --"
_BOOT = re.compile(r"Linux version \d|-- (?:Boot (?:[0-9a-f]{32}|serial-\d+)|Reboot) --")
_OTHER_FILE = re.compile(r"Linux version ")  # the start of /proc/version: not a log line


def reply(excerpt: Excerpt) -> Reply | None:
    """None without kernel messages."""
    by_kernel = [text for _, text in sorted(excerpt.lines.items()) if _is_of_log(text)]
    relevant = [is_relevant(text) for text in by_kernel]
    if not any(relevant):
        return None
    lines = [text for text, counts in zip(by_kernel, relevant, strict=True) if counts or _BOOT.search(text)]
    complete = bool(_BOOT.search(by_kernel[0])) and not excerpt.left_out
    left_out = {"left_out": excerpt.left_out} if excerpt.left_out else {}
    return Reply("ok", {"source": "text", "lines": lines, "complete": complete, "total": len(by_kernel), **left_out})


def _is_of_log(text: str) -> bool:
    return bool(_BY_KERNEL.search(text) or (_BOOT.search(text) and not _OTHER_FILE.match(text)))


def joined(known: Reply | None, more: Reply) -> Reply:
    """Joins two given logs, the older one first: a line in both counts once, except lines that separate boots."""
    if known is None or known.status != "ok":
        return more
    told = set(known.value["lines"])
    lines = [*known.value["lines"], *(line for line in more.value["lines"] if line not in told or _BOOT.search(line))]
    total = known.value["total"] + more.value["total"]
    joint = {"source": known.value["source"], "lines": lines, "complete": known.value["complete"], "total": total}
    left_out = known.value.get("left_out", 0) + more.value.get("left_out", 0)
    return Reply("ok", {**joint, "left_out": left_out} if left_out else joint)


def beside(live: Reply | None, given: Reply) -> Reply:
    """Joins a machine's own log with a given one, whose last boot counts as the current boot; earlier ones are history."""
    if live is None or live.status != "ok":
        return given
    boots = boots_of(map(log_line, given.value["lines"]))
    known = {log_line(line).text for line in live.value["lines"]}
    before = [line for boot in boots[:-1] for line in (_REBOOT, *(line.text for line in boot))]
    now = [line.text for line in boots[-1] if line.text not in known and not _BOOT.search(line.text)]
    return replace(live, value={**live.value, "lines": [*before, *[_REBOOT] * bool(before), *live.value["lines"], *now]})
