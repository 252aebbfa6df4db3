"""The lines of the kernel log that concern GPUs, PCIe, modules, memory and sleep."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any, Dict, Iterator, List, Optional

from gpudoctor.worker.captured import TooMuch, captured
from gpudoctor.worker.probes.machine import Answer, Machine

try:
    import ctypes
except ImportError:  # python3-minimal does not have it
    ctypes = None  # type: ignore[assignment]

# What a line has to contain, in lower case, and the pattern that it then has to match, if the words alone are not enough: a log
# has up to 50,000 lines, and a pattern of all of them takes thirty times as long.
_RELEVANT = {
    # drivers
    **dict.fromkeys(("nvrm", "nvidia", "nouveau", "nova_core", "vfio-pci", "gvisor"), ""),
    "xid": r"\bS?Xid\b",
    "uvm": r"\buvm\b",
    "nvswitch": r"\bnvswitch",
    # the bus
    **dict.fromkeys(("pcie bus error", "pciehp", "available pcie bandwidth, limited by", "hardware error"), ""),
    **dict.fromkeys(("request_free_mem_region", "bridge firmware"), ""),
    "aer": r"\bAER\b",
    "dpc:": r"\bDPC:",
    "thunderbolt": r"thunderbolt \S+:",
    "bar": r"BAR ?\d+.*(?:no space|failed to assign|can't assign|can't claim|bogus alignment)",
    "bridge window": r"bridge window .*(?:no space|failed to assign|can't assign)",
    # whether the module may be loaded
    **dict.fromkeys(("module verification failed", "lockdown:", "unsigned module", "unavailable key", "key was rejected"), ""),
    **dict.fromkeys(("pkcs#7", "taints kernel"), ""),
    # sleep, WSL
    "pm: ": r"PM: (?:suspend|hibernation)",
    "dxg": r"\bdxgk?\b|hv_dxg",
    # what was refused, killed, or hangs
    **dict.fromkeys(("oom-kill", "out of memory", "blocked for more than"), ""),
    "avc: ": r"avc: .*denied.*(?:nvidia|xserver_misc_device|cuda|infiniband|/dri)",
    " in lib": r"(?:segfault|general protection|trap ).* in lib(?:nvidia|cuda|cu|nccl|nv|torch)",
    # network adapters
    **dict.fromkeys(
        ("mlx4_core ", "mlx5_core ", "bnxt_en ", "irdma "),
        "(?:mlx[45]_core|bnxt_en|irdma) .*(?:health|timeout|fatal error|syndrome|compromised)",
    ),
    # disks
    **dict.fromkeys(
        ("remounting filesystem read-only", "ext4-fs error", "i/o error, dev", "aborting journal", "forced readonly"), ""
    ),
    # memory
    **dict.fromkeys(("io_page_fault", "machine check"), ""),
    "dmar:": "DMAR:.*fault",
}
_ALONE = tuple(words for words, pattern in _RELEVANT.items() if not pattern)
_WITH_PATTERN = tuple((words, re.compile(pattern, re.IGNORECASE)) for words, pattern in _RELEVANT.items() if pattern)
# Audit messages of user space (types 1100 to 1199) contain user names.
PRIVATE = re.compile(r"audit: type=11\d\d")
JOURNAL_HOST = re.compile(r"^(\[\s*\d+\.\d+\]) \S+ kernel: ")
FIRST_SECONDS = re.compile(r"^(?:<\d+>)?\[\s*(\d+)\.\d+\]")
MAXIMUM_LINES = 4000
MAXIMUM_JOURNAL_LINES = 50000
EARLIER = ("--since=-60d", "--lines=2000", "--grep=Xid [(]")
EARLIER_SECONDS = 2.0
EARLIER_BOOTS = 5
JOURNAL_SECONDS = 3.0
BOOT_SECONDS = 30  # a log whose first line is not later than this starts at the boot
SYSLOG_ACTION_READ_ALL = 3
SYSLOG_ACTION_SIZE_BUFFER = 10


def ask(machine: Machine) -> Iterator[Answer]:
    question, reply = machine.ask("kernel-log", lambda: _kernel_log(machine))
    yield question, reply
    if reply.status == "ok" and any("Xid (" in line for line in reply.value["lines"]):  # does it recur?
        yield machine.ask("kernel-log-earlier", lambda: _earlier_boots(machine))


def _kernel_log(machine: Machine) -> Dict[str, Any]:
    """The ring buffer; or the journal if the ring buffer cannot be read or no longer holds the boot."""
    refused: Optional[OSError] = None
    lines: List[str] = []
    try:
        lines = ring_buffer(machine)
    except OSError as failure:
        refused = failure
    if _reaches_boot(lines):
        return _answer("dmesg", lines)
    machine.at("kernel-log", "journalctl")
    journal = _journal(machine)
    if journal and (not lines or _first_seconds(journal) < _first_seconds(lines)):
        return _answer("journal", journal)
    if refused and not lines:
        raise refused
    return _answer("dmesg", lines)


def is_relevant(line: str) -> bool:
    """Whether it concerns GPUs, or what they depend on, and no user."""
    lower = line.lower()
    for words in _ALONE:
        if words in lower:
            return not PRIVATE.search(line)
    return any(words in lower and pattern.search(line) for words, pattern in _WITH_PATTERN) and not PRIVATE.search(line)


def _answer(source: str, lines: List[str]) -> Dict[str, Any]:
    kept = [line for line in lines if is_relevant(line)]
    return {
        "source": source,
        "lines": kept[-MAXIMUM_LINES:],
        "complete": _reaches_boot(lines) and len(kept) <= MAXIMUM_LINES,
        "total": len(lines),
    }


def _reaches_boot(lines: List[str]) -> bool:
    return bool(lines) and ("Linux version" in lines[0] or _first_seconds(lines) <= BOOT_SECONDS)


def _first_seconds(lines: List[str]) -> float:
    stamps = (match for match in map(FIRST_SECONDS.match, lines) if match)
    return next((float(match.group(1)) for match in stamps), float("inf"))


def ring_buffer(machine: Machine) -> List[str]:
    if machine.root != "/":
        return machine.read("/var/log/dmesg").splitlines()
    if ctypes is not None:
        return _system_log().splitlines()
    done = machine.run(("dmesg",), 2.0)
    if done["code"]:
        raise PermissionError(1, done["err"].strip() or "dmesg failed without a message")
    return str(done["out"]).splitlines()


def _system_log() -> str:
    """The ring buffer from syslog(2)."""
    library = ctypes.CDLL(None, use_errno=True)
    size = library.klogctl(SYSLOG_ACTION_SIZE_BUFFER, None, 0)
    if size < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    buffer = ctypes.create_string_buffer(size)
    length = library.klogctl(SYSLOG_ACTION_READ_ALL, buffer, size)
    if length < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return buffer.raw[:length].decode("utf-8", "replace")


def _journal(machine: Machine) -> List[str]:
    """This boot's kernel messages in the journal, without the host name; empty if it cannot be read."""
    if machine.root != "/":
        return []
    lines = str(MAXIMUM_JOURNAL_LINES)
    try:
        argv = ["journalctl", "-k", "-b", "--no-pager", "-q", "-o", "short-monotonic", "-n", lines]
        done = captured(argv, JOURNAL_SECONDS, dict(os.environ, LC_ALL="C"))
    except (OSError, subprocess.TimeoutExpired, TooMuch):
        return []
    return [JOURNAL_HOST.sub(r"\1 ", line) for line in done.out.decode("utf-8", "replace").splitlines()]


def _earlier_boots(machine: Machine) -> List[List[str]]:
    """The Xids of earlier boots in the journal, the oldest boot first."""
    current = machine.read("/proc/sys/kernel/random/boot_id").strip().replace("-", "")
    argv = ("journalctl", "_TRANSPORT=kernel", *EARLIER, "--no-pager", "--quiet", "--output=json", "--output-fields=MESSAGE")
    done = machine.run(argv, EARLIER_SECONDS)
    if done["code"] not in (0, 1):  # 1: no match
        raise OSError(done["err"].strip() or "journalctl failed without a message")
    boots: Dict[str, List[str]] = {}
    for entry in map(json.loads, done["out"].splitlines()):
        if entry.get("_BOOT_ID") != current and isinstance(entry.get("MESSAGE"), str):
            boots.setdefault(entry["_BOOT_ID"], []).append(entry["MESSAGE"])
    return list(boots.values())[-EARLIER_BOOTS:]
