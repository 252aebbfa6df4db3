"""Which log the probe takes, what it keeps of it, and Xids in every form in which loggers print them; real messages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from each import each
from process import processor_seconds

from gpudoctor.evidence import kernel
from gpudoctor.evidence.excerpt import Excerpt
from gpudoctor.facts import Facts
from gpudoctor.facts.kernel_log import KernelLog, Sxid, Xid, boots_of, log_line
from gpudoctor.facts.replies import Replies
from gpudoctor.facts.xids import xids_by_gpu
from gpudoctor.model import SNAPSHOT_SCHEMA, Reply, Skip, Snapshot, Unavailable
from gpudoctor.worker.probes import kernel_log
from gpudoctor.worker.probes.machine import Machine


def log(*lines: str, **changes: Any) -> KernelLog:
    answer = {"source": "dmesg", "lines": list(lines), "complete": True, "total": 900, **changes}
    return KernelLog(Replies({"kernel-log": Reply("ok", answer)}))


MESSAGE = "NVRM: Xid (PCI:0000:38:00): 43, pid=2924364, name=pt_main_thread, Ch 00000008"


@each(
    ("prefix", "seconds"),
    [
        ("", None),
        ("[  130.456250] ", 130.456250),
        ("<4>[  130.456250] ", 130.456250),
        ("[  130.456250] [   T1946] ", 130.456250),
        ("[2397166.923949] ", 2397166.923949),
        ("[Sun Feb 23 16:24:18 2025] ", None),
        ("[Fri Aug  3 11:43:14 2024] ", None),
        ("Feb 01 14:25:31 archbox kernel: ", None),
        ("Jun  8 21:29:48 archbox kernel: [  265.538924] ", 265.538924),
        ("kern  :warn  : 2025-01-21T04:41:44,287197+00:00 ", None),
        ("2025-01-21T04:41:44+0000 archbox kernel: ", None),
        ("kern  :warn  : [  130.456250] ", 130.456250),
    ],
)
def test_what_loggers_put_before_a_message(prefix: str, seconds: float | None) -> None:
    (line,) = log(prefix + MESSAGE).lines
    assert (line.seconds, line.text) == (seconds, MESSAGE)


@each(
    ("text", "expected"),
    [
        (
            "NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus.",
            Xid("0000:2b:00", 79, "GPU has fallen off the bus.", None, None, None),
        ),
        (
            "NVRM: Xid (PCI:0000:ca:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            Xid("0000:ca:00", 79, "GPU has fallen off the bus.", None, None, None),
        ),
        (
            "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
            Xid("0000:10:1c", 63, "Row Remapper: New row marked for remapping, reset gpu to activate.", None, None, 1896),
        ),
        (
            "NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH TIMEOUT,"
            " Info 0x58005",
            Xid(
                "0000:cb:00",
                109,
                "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",
                None,
                "pt_main_thread",
                1797828,
            ),
        ),
        ("NVRM: Xid (PCI:0000:01:00): 38, pid=1659,", Xid("0000:01:00", 38, "", None, None, 1659)),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", Xid("0000:03:00", 14, "Channel 00000001", None, None, None)),
        ("NVRM: Xid (0001:00): 8, Channel 00000002", Xid("0000:01:00", 8, "Channel 00000002", None, None, None)),
        (
            "NVRM: Xid (PCI:000f:01:00): 120, pid=9111, name=python, GSP task exception: load access fault",
            Xid("000f:01:00", 120, "GSP task exception: load access fault", None, "python", 9111),
        ),
        (
            "[449410.332316] NVRM: Xid (PCI:0003:00:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected",
            Xid("0003:00:00", 74, "NVLink: fatal error detected", 449410.332316, None, None),
        ),
        (
            "[171168.601459] NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x4 (Drain and Reset) to 0x1"
            " (GPU Reset Required)",
            Xid(
                "0008:01:00",
                154,
                "GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (GPU Reset Required)",
                171168.601459,
                None,
                None,
            ),
        ),
        (
            "NVRM: Xid (PCI:0000:C1:00.0): 48, pid=7, name=a b, An uncorrectable double bit error (DBE)",
            Xid("0000:c1:00", 48, "An uncorrectable double bit error (DBE)", None, "a b", 7),
        ),
        ("NVRM: Xid (PCI:0000:01:00): 46", Xid("0000:01:00", 46, "", None, None, None)),
    ],
)
def test_xids(text: str, expected: Xid) -> None:
    assert log(text).xids == (expected,)


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU at PCI:0000:01:00: GPU-462c5715-0000-0000-0000-000000000000",
        "NVRM: GPU 0000:2b:00.0: GPU has fallen off the bus.",
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20009, Non-fatal, Link 04 RX Short Error Rate",
    ],
)
def test_what_is_no_xid(text: str) -> None:
    assert log(text).xids == ()


def test_sxids_without_their_follow_up_lines() -> None:
    found = log(
        "[38889.018130] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20009, Non-fatal, Link 04 RX Short Error Rate",
        "[38889.018131] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20009, Severity 0 Engine instance 04 Sub-engine instance 00",
        "[38889.018132] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20009, Data {0x0000003c, 0x0000003c}",
        "[39108.858286] nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)",
    ).sxids
    assert found == (
        Sxid("0000:06:00", 20009, "Non-fatal, Link 04 RX Short Error Rate", 38889.018130, False, 4),
        Sxid("0000:c3:00", 24007, "Fatal, Link 28 sourcetrack timeout error (First)", 39108.858286, True, 28),
    )


# A healthy machine: two H200, driver 580.159.04.
HEALTHY = """\
[    0.840642] nvidia: loading out-of-tree module taints kernel.
[    0.934142] nvidia-nvlink: Nvlink Core is being initialized, major device number 240
[    0.934153] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder@)  \n\
[    6.169861] NVRM: Persistence mode is deprecated and will be removed in a future release.
[   26.934052] python3[550]: segfault at 1 ip 00007fcd764ca354 sp 00007ffdccd15ba8 error 4 in libnvidia-ml.so.580.159.04[55354]
"""


def test_a_healthy_machine() -> None:
    found = log(*HEALTHY.splitlines())
    assert (found.xids, found.sxids) == ((), ())
    assert [line.seconds for line in found.matching(r"SEGFAULT .* in libnvidia-ml")] == [26.934052]
    assert found.source == "dmesg"
    assert found.complete


def test_a_log_of_which_lines_were_left_out_is_counted_at_least() -> None:
    lines = {number: f"[{number}.0] NVRM: Xid (PCI:0000:3b:00): 31, pid=12, name=python, MMU Fault" for number in range(3)}
    for left_out, words in ((0, "Xid 31, 3 times"), (7, "Xid 31, at least 3 times")):
        whole, cut = kernel.reply(Excerpt(lines)), kernel.reply(Excerpt(lines, left_out=left_out))
        assert whole
        assert cut
        for reply in (cut, kernel.joined(whole, cut), kernel.joined(cut, whole)):
            found = Facts(Snapshot(SNAPSHOT_SCHEMA, "", "2026-01-01T00:00:00Z", {"kernel-log": reply}))
            assert words in next(iter(xids_by_gpu(found))).words([31])


def test_a_message_over_several_lines() -> None:
    found = log(
        "[    4.1] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "[    4.1] NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "[    4.1] NVRM: fallen off the bus and is not responding to commands.",
    )
    assert "installed in this system has\nNVRM: fallen off the bus" in found.text


def test_denied_is_not_healthy() -> None:
    denied = KernelLog(Replies({"kernel-log": Reply("denied", None, "Operation not permitted")}))
    with pytest.raises(Unavailable) as caught:
        _ = denied.xids
    assert caught.value.kind == Skip.NOT_PERMITTED


@pytest.mark.parametrize("changes", [{"total": 0}, {"lines": ["[    0.000000] Starting gVisor..."]}])
def test_a_log_that_is_not_the_kernels(changes: dict[str, Any]) -> None:
    with pytest.raises(Unavailable):
        _ = log(**changes).xids


def ask(root: Path | str = "/") -> Reply:
    return dict(kernel_log.ask(Machine(str(root))))["kernel-log"]


def write_log(root: Path, text: str) -> None:
    (root / "var/log").mkdir(parents=True)
    (root / "var/log/dmesg").write_text(text)


BOOT = "[    0.000000] Linux version 6.8.0-40-generic\n"
FELL_OFF = "NVRM: Xid (PCI:0000:2b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
NOISE = """\
[    1.000000] usb 1-1: new high-speed USB device number 2 using xhci_hcd
[    2.000000] audit: type=1123 audit(1.2:3): pid=7 uid=0 acct="alice" exe="/usr/bin/sudo" cmd=nvidia-smi
"""


def test_kernel_log_keeps_what_matters(tmp_path: Path) -> None:
    write_log(tmp_path, BOOT + NOISE + f"[  130.456250] {FELL_OFF}\n")
    assert ask(tmp_path).value == {
        "source": "dmesg",
        "lines": [f"[  130.456250] {FELL_OFF}"],
        "complete": True,
        "total": 4,
    }


def test_a_wrapped_log_is_not_complete(tmp_path: Path) -> None:
    write_log(tmp_path, f"[ 8130.456250] {FELL_OFF}\n")
    assert ask(tmp_path).value["complete"] is False


@each(
    "line",
    [
        "pci 0000:02:00.0: 16.000 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x8 link at 0000:00:01.1",
        "pci 0000:01:00.0: BAR 1: no space for [mem size 0x800000000 64bit pref]",
        "pci 0000:48:00.0: BAR 0 [mem size 0x800000000 64bit pref]: can't assign; no space",
        "pcieport 0000:00:01.0: AER: Corrected error message received from 0000:01:00.0",
        "Loading of module with unavailable key is rejected",
        "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
        "PM: suspend entry (deep)",
        "misc dxg: dxgk: dxgkio_query_adapter_info: Ioctl failed: -22",
        'audit: type=1400 audit(1.2:3): avc:  denied  { read write } for pid=1 comm="python" name="nvidiactl"',
        "Out of memory: Killed process 51807 (python3) total-vm:412192kB",
        "python3[550]: segfault at 1 ip 00007fcd764ca354 error 4 in libcuda.so.580.159.04[55354,7fcd76490000+17d000]",
        "WARNING: CPU: 3 PID: 1 at kernel/resource.c:1880 __request_free_mem_region+0x1",
        "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)",
        "I/O error, dev nvme0n1, sector 998244912 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 0",
        "EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
        "BTRFS info (device sda2: state E): forced readonly",
    ],
)
def test_relevant_lines(line: str) -> None:
    assert kernel_log.is_relevant(line)


def give_logs(monkeypatch: pytest.MonkeyPatch, ring: list[str] | OSError, journal: list[str]) -> None:
    """A ring buffer, or why it may not be read, and a journal of our making."""

    def ring_buffer(machine: Machine) -> list[str]:
        if isinstance(ring, OSError):
            raise ring
        return ring

    monkeypatch.setattr(kernel_log, "ring_buffer", ring_buffer)
    monkeypatch.setattr(kernel_log, "_journal", lambda machine: journal)


LATE = f"[ 9130.456250] {FELL_OFF}"
DENIED = PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize(
    ("ring", "journal", "source", "complete"),
    [
        ([BOOT.strip(), LATE], [], "dmesg", True),
        ([LATE], [BOOT.strip(), LATE], "journal", True),
        ([LATE], [], "dmesg", False),
        ([LATE], ["[ 9999.0] later"], "dmesg", False),
        (DENIED, [BOOT.strip(), LATE], "journal", True),
    ],
)
def test_which_log(monkeypatch: pytest.MonkeyPatch, ring: Any, journal: list[str], source: str, complete: bool) -> None:
    give_logs(monkeypatch, ring, journal)
    value = ask().value
    assert (value["source"], value["complete"], value["lines"]) == (source, complete, [LATE])


def test_no_log_for_us_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    give_logs(monkeypatch, DENIED, [])
    reply = ask()
    assert (reply.status, reply.detail) == ("denied", "Operation not permitted")


def test_the_journal_comes_without_the_host_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "journalctl"
    program.write_text(f"#!/bin/sh\necho '[    3.141592] secret-host kernel: {FELL_OFF.replace(chr(39), '')}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert kernel_log._journal(Machine()) == [f"[    3.141592] {FELL_OFF.replace(chr(39), '')}"]


@pytest.mark.slow
def test_a_log_of_very_many_boots_is_read_in_time() -> None:
    """Each time that the clock goes back another boot begins; what two of them tell alike is told once."""
    lines = [log_line(f"[{(i * 7919) % 100000:10d}.{i:06d}] NVRM: Xid (PCI:0000:65:00): 31, pid={i}") for i in range(60000)]
    boots: list[Any] = []
    assert processor_seconds(lambda: boots.extend(boots_of([*lines, *lines]))) < 10
    assert sum(map(len, boots)) == len(lines)
