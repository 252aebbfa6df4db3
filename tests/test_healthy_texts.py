"""Kernel logs of machines on which nothing is wrong, given as texts: no message is found in them."""

from __future__ import annotations

import machine
import pytest

from gpudoctor import catalog, doctor, evidence
from gpudoctor.model import Snapshot

pytestmark = pytest.mark.slow

PAST = ("gpu-came-back", "killed-programs-with-much-room")  # whose logs tell of a fault that is over


def log(taken: Snapshot) -> str:
    reply = taken.replies.get("kernel-log")
    return "".join(f"{line}\n" for line in reply.value["lines"]) if reply and reply.status == "ok" else ""


def healthy() -> list[str]:
    cases = (case for case in machine.cases() if case not in PAST and machine.describe(case).get("problems") == [])
    found = [case for case in cases if log(machine.load(case))]
    assert found
    return found


def test_a_healthy_log_has_no_message() -> None:
    assert {case: found for case in healthy() if (found := problems_of(log(machine.load(case))))} == {}


HARMLESS = (
    "nvidia: loading out-of-tree module taints kernel.",
    "nvidia: module license 'NVIDIA' taints kernel.",
    "Disabling lock debugging due to kernel taint",
    "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    "PKCS#7 signature not signed with a trusted key",
    "misc dxg: dxgk: dxgkio_query_adapter_info: Ioctl failed: -22",
    "misc dxg: dxgk: dxgkio_query_adapter_info: Ioctl failed: -2",
    "nvidia-gpu 0000:01:00.3: i2c timeout error e0000000",
    "ucsi_ccg 0-0008: i2c_transfer failed -110",
    "pci 0000:00:1c.0: BAR 13: failed to assign [io  size 0x1000]",
    "pci 0000:00:01.0: BAR 14: no space for [mem size 0x00200000]",
    "nvidia 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
    "nvidia 0000:01:00.0: enabling device (0000 -> 0003)",
    "nvidia-uvm: Loaded the UVM driver, major device number 234.",
    "NVRM: Persistence mode is deprecated and will be removed in a future release. Please use nvidia-persistenced instead.",
    "NVRM: GPU at PCI:0000:01:00: GPU-12345678-1234-1234-1234-123456789abc",
    "nouveau 0000:01:00.0: Direct firmware load for nvidia/ga102/gsp/gsp-535.113.01.bin failed with error -2",
    "INFO: task jbd2/sda1-8:412 blocked for more than 120 seconds.",
    "PM: suspend entry (deep)",
    "DMAR: DRHD base: 0x000000fed90000 flags: 0x0",
    "WARNING: Unable to find a suitable destination to install 32-bit compatibility libraries.",
    "WARNING: nvidia-installer was forced to guess the X library path '/usr/lib64'",
    "dxcore initialization failed, continuing assuming a non-WSL environment",
    "| N/A   34C    P8              N/A /  80W |      4MiB /  8188MiB |      0%      Default |",
    "        License Status                    : Licensed (Expiry: 2027-1-1 0:0:0 GMT)",
    "nvidia/535.183.01, 6.5.0-41-generic, x86_64: installed",
)


def test_a_harmless_line_has_no_message() -> None:
    assert {line: found for line in HARMLESS if (found := problems_of(f"[   12.345678] {line}\n{line}\n"))} == {}


def test_what_a_long_text_tells_later_counts() -> None:
    """Between the lines of a pod that waits, and then starts, lie more than are kept of a text."""
    other = "I0827 12:00:00.000000  1 controller.go:100] nothing to do\n" * 10_000
    waits = "12s  Warning  FailedScheduling  pod/a-0  0/3 nodes are available: 3 Insufficient nvidia.com/gpu.\n"
    starts = "9s   Normal   Scheduled         pod/a-0  Successfully assigned ml/a-0 to node-1\n"
    found = [problems_of(waits + other + later) for later in (starts, starts.replace("a-0", "b-0"))]
    assert found == [[], ["k8s-no-free-gpu"]]


def problems_of(text: str) -> list[str]:
    report = doctor.judge(evidence.snapshot_of(evidence.of_text(text)), {"messages": catalog.checks()["messages"]})
    return [entry.problem for entry in report.diagnosis]
