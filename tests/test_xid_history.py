"""Logs of several boots: the last is the present, the earlier ones make what came back graver."""

from __future__ import annotations

import pytest
from each import each

from gpudoctor import catalog, doctor
from gpudoctor.facts.kernel_log import boots_of, log_line
from gpudoctor.model import SNAPSHOT_SCHEMA, Action, Confidence, Diagnosis, Reply, Snapshot, Status

XIDS = ("xids", "memory-xids", "program-xids", "sxids", "recovery-action", "adapter-init")
BEGIN = "[    0.000000] Linux version 6.8.0-79-generic"
MARK = "-- Boot 4f2f2a9d0c7b4c5e9d3a5b7c1e2f3a4b --"
RESET_ASKED = "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
RESET_DONE = "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


def xid(seconds: float, said: str, slot: str = "0000:3b:00") -> str:
    return f"[{seconds:12.6f}] NVRM: Xid (PCI:{slot}): {said}"


def diagnosed(*lines: str, complete: bool = True) -> tuple[Diagnosis, ...]:
    """What is found where nothing but a log is known."""
    log = {"source": "text", "lines": list(lines), "complete": complete, "total": len(lines)}
    taken = Snapshot(SNAPSHOT_SCHEMA, "0", "2026-11-21T00:00:00Z", {"kernel-log": Reply("ok", log)})
    return doctor.judge(taken, doctor.select(catalog.checks(), "quick", XIDS)).diagnosis


def one(*lines: str) -> Diagnosis:
    (found,) = diagnosed(*lines)
    return found


@each(
    ("lines", "sizes"),
    [
        ([xid(5, "79"), xid(6, "45")], [2]),
        ([BEGIN, xid(5, "79"), BEGIN, xid(6, "79")], [2, 2]),
        ([xid(500, "79"), MARK, xid(6, "79")], [1, 1]),
        (["Nov 20 08:01:12 node kernel: NVRM: a", "-- Reboot --", "Nov 20 09:01:12 node kernel: NVRM: b"], [1, 1]),
        ([xid(500, "79"), xid(6, "79"), xid(7, "45")], [1, 2]),
        ([xid(500, "79"), xid(499.9, "45")], [2]),  # two processors
        ([xid(500, "79"), MARK], [1, 0]),  # nothing since
        ([MARK, xid(500, "79")], [1]),
        ([xid(50, "79"), xid(500, "31"), xid(50, "79"), xid(500, "31"), xid(600, "43")], [3]),  # dmesg, then the journal
        ([], [0]),
    ],
)
def test_a_log_is_split_into_boots(lines: list[str], sizes: list[int]) -> None:
    assert [len(boot) for boot in boots_of(map(log_line, lines))] == sizes


def test_the_same_boot_told_twice_stays_the_last_one() -> None:
    now, before = [xid(50, "79"), xid(60, "45")], [BEGIN, xid(800, "13")]
    assert [line.text for line in boots_of(map(log_line, [*now, *before, BEGIN, *now]))[-1]][:2] == [
        log_line(line).text for line in now
    ]


def test_a_gpu_that_fell_off_again_after_a_reboot_is_replaced() -> None:
    found = one(BEGIN, xid(9000, "79, GPU has fallen off the bus."), BEGIN, xid(700, "79, GPU has fallen off the bus."))
    assert (found.problem, found.action, found.status) == ("xid-79-fallen-off-bus", Action.REPLACE_HARDWARE, Status.FAIL)
    assert "recurred after a reboot" in found.message
    assert found.evidence["earlier_boots"] == 1


def test_another_gpu_does_not_make_it_graver() -> None:
    found = {entry.evidence["address"]: entry for entry in diagnosed(BEGIN, xid(9, "79"), BEGIN, xid(7, "79", "0000:5e:00"))}
    assert found["0000:5e:00.0"].action is Action.REBOOT
    assert (found["0000:3b:00.0"].action, found["0000:3b:00.0"].status) == (Action.WATCH, Status.WARN)


def test_what_only_an_earlier_boot_had_warns() -> None:
    found = one(
        xid(9000, "79, GPU has fallen off the bus."), MARK, "[    5.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95"
    )
    assert (found.problem, found.status, found.action) == ("xid-79-fallen-off-bus", Status.WARN, Action.WATCH)
    assert "has not recurred since" in found.message


def test_what_two_earlier_boots_had_is_as_grave_as_if_it_came_back() -> None:
    found = one(BEGIN, xid(9, "62"), BEGIN, xid(8, "62"), BEGIN)
    assert (found.status, found.action) == (Status.WARN, Action.REPLACE_HARDWARE)


@pytest.mark.parametrize(("boots", "action"), [(1, Action.RESET_GPU), (2, Action.REBOOT), (3, Action.REPLACE_HARDWARE)])
def test_a_firmware_that_stops_is_first_the_drivers_fault(boots: int, action: Action) -> None:
    found = one(*[line for boot in range(boots) for line in (BEGIN, xid(70 + boot / 3, "119, pid=1, name=smi, Timeout"))])
    assert (found.problem, found.action) == ("xid-119-gsp-rpc-timeout", action)


def test_memory_that_fails_again_after_a_reset_is_replaced() -> None:
    found = one(xid(10, "48"), xid(11, RESET_ASKED), xid(90, RESET_DONE), xid(200, "48"))
    assert (found.problem, found.action) == ("xid-48-double-bit-ecc", Action.REPLACE_HARDWARE)
    assert "recurred after a reset" in found.message


def test_48_and_95_are_one_fault_of_the_memory() -> None:
    found = one(BEGIN, xid(10, "48"), BEGIN, xid(10, "95"))
    assert (found.problem, found.action) == ("xid-95-uncontained-ecc", Action.REPLACE_HARDWARE)


def test_a_link_that_fails_again_after_a_reset_wants_a_reboot() -> None:
    found = one(xid(10, "74"), xid(11, RESET_ASKED), xid(90, RESET_DONE), xid(200, "74"), xid(201, RESET_ASKED))
    assert (found.problem, found.action) == ("xid-74-nvlink-error", Action.REBOOT)


def test_one_error_and_its_reset_are_over() -> None:
    found = one(xid(10, "119"), xid(11, RESET_ASKED), xid(90, RESET_DONE))
    assert (found.status, found.action) == (Status.WARN, Action.RESET_GPU)


def test_a_program_that_fails_in_two_boots_is_still_the_program() -> None:
    found = one(BEGIN, xid(10, "31, pid=1, name=python"), BEGIN, xid(10, "31, pid=1, name=python"))
    assert (found.problem, found.action) == ("xid-application-error", Action.RESTART_APP)


@each(
    ("codes", "problem"),
    [
        ((45, 43, 154, 31), "xid-application-error"),
        ((43, 13), "xid-13-graphics-exception"),
        ((45, 79), "xid-79-fallen-off-bus"),
        ((43,), "xid-application-error"),
        ((159, 48), "xid-48-double-bit-ecc"),
        ((159,), "xid-contact-support"),
    ],
)
def test_echoes_are_never_the_cause(codes: tuple[int, ...], problem: str) -> None:
    found = one(*[xid(10 + place, f"{code}, pid=1, name=python, Ch 8") for place, code in enumerate(codes)])
    assert found.problem == problem
    assert {43, 45, 154, 159}.isdisjoint(found.evidence["xids"]) or len(codes) == 1


@pytest.mark.parametrize("codes", [(45,), (174,), (45, 174)])
def test_echoes_alone_are_no_fault(codes: tuple[int, ...]) -> None:
    assert not diagnosed(*[xid(10, f"{code}, pid=1, name=python") for code in codes])


def test_an_echo_that_stands_alone_is_not_certain() -> None:
    assert one(xid(10, "43, pid=1, name=python, Ch 8")).confidence is Confidence.LIKELY


def test_a_recovery_that_is_asked_for_without_a_reason_is_told() -> None:
    found = one(xid(10, RESET_ASKED))
    assert (found.problem, found.evidence["address"]) == ("gpu-recovery-action", "0000:3b:00.0")
    assert not diagnosed(xid(10, RESET_ASKED), xid(90, RESET_DONE))


def test_a_switch_that_fails_in_two_boots_is_replaced() -> None:
    fatal = "nvidia-nvswitch0: SXid (PCI:0000:a3:00.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)"
    once, again = f"[  100.000000] {fatal}", f"[   90.000000] {fatal}"
    assert one(once).action is Action.REBOOT
    assert one(BEGIN, once, BEGIN, again).action is Action.REPLACE_HARDWARE
    past = one(BEGIN, once, BEGIN)
    assert (past.status, past.action) == (Status.WARN, Action.WATCH)


def gave_up(*lines: str) -> Diagnosis:
    return one("[ 5.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.142  Tue", *lines)


def test_the_first_failure_to_initialise_counts() -> None:
    found = gave_up(
        "[ 5.1] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x1f:2028)",
        "[ 5.2] NVRM: _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP",
        "[ 5.3] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2028)",
    )
    assert found.problem == "gpu-firmware-does-not-start"
    assert found.evidence["code"] == "0x62:0x1f:2028"


def test_a_module_that_was_loaded_anew_starts_from_the_beginning() -> None:
    found = gave_up(
        "[ 5.1] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:897)",
        "[ 95.0] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.142  Release Build",
        "[ 95.1] NVRM: GPU 0000:01:00.0: GPU does not have the necessary power cables connected.",
        "[ 95.2] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x24:0x1c:1603)",
    )
    assert found.problem == "xid-54-power-cable"


@pytest.mark.parametrize(
    ("before", "code", "problem", "confidence"),
    [
        ("The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85)", "0x22:0x56:897", "gpu-initialisation-failed", "unknown"),
        (
            "installed in this system requires use of the NVIDIA open kernel modules.",
            "0x22:0x56:897",
            "blackwell-needs-open-module",
            "confirmed",
        ),
        ("BAR1 is 0M @ 0x0 (PCI:0000:01:00.0)", "0x24:0x72:1447", "bar-not-assigned-above-4g", "confirmed"),
        ("RmFetchGspRmImages: No firmware image found", "0x61:0x56:1927", "gsp-firmware-missing", "confirmed"),
        ("", "0x11:0x45:2525", "gpu-interrupts-lost", "likely"),
        ("", "0x31:0xffff:2780", "gpu-vbios-fails", "likely"),
        ("", "0x62:0xffffffff:2780", "gpu-firmware-does-not-start", "likely"),
        ("", "0x55:0x1:99", "gpu-initialisation-failed", "confirmed"),
    ],
)
def test_what_the_driver_wrote_before_counts_more_than_the_numbers(before: str, code: str, problem: str, confidence: str) -> None:
    found = gave_up(f"[ 5.1] NVRM: {before}", f"[ 5.2] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! ({code})")
    assert (found.problem, found.confidence.value) == (problem, confidence)


def test_a_gpu_that_broke_before_explains_that_it_does_not_start() -> None:
    found = one(
        xid(400, "79, GPU has fallen off the bus.", "0000:01:00"),
        "[  500.0] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0xffff:1290)",
    )
    assert (found.problem, found.explains) == ("xid-79-fallen-off-bus", ("adapter-init",))
