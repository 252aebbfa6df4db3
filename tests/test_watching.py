"""What is watched each second under load: how it is read, and what is left out. The rules: test_burn_rules.py."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from waiting import until

from gpudoctor.worker.measuring.watching import kernel_messages, numbers
from gpudoctor.worker.measuring.watching.counters import Counters
from gpudoctor.worker.measuring.watching.kernel_messages import KernelMessages, line_of
from gpudoctor.worker.measuring.watching.record import MOST_POINTS, Record, Series
from gpudoctor.worker.probes import kernel_log

XID = "NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus."
RECORD = f"4,1234,987654321,-;{XID}\n SUBSYSTEM=pci\n"
LINE = f"[  987.654321] {XID}"
FIELDS = """
memory_celsius MEMORY_TEMP
ecc_corrected ECC_SBE_VOL_TOTAL
ecc_uncorrected ECC_DBE_VOL_TOTAL
ecc_corrected_l1 ECC_SBE_VOL_L1
ecc_uncorrected_l1 ECC_DBE_VOL_L1
ecc_corrected_l2 ECC_SBE_VOL_L2
ecc_uncorrected_l2 ECC_DBE_VOL_L2
ecc_corrected_dram ECC_SBE_VOL_DEV
ecc_uncorrected_dram ECC_DBE_VOL_DEV
ecc_corrected_registers ECC_SBE_VOL_REG
ecc_uncorrected_registers ECC_DBE_VOL_REG
pcie_replays PCIE_REPLAY_COUNTER
pcie_recoveries PCIE_L0_TO_RECOVERY_COUNTER
pcie_corrected PCIE_COUNT_CORRECTABLE_ERRORS
pcie_non_fatal PCIE_COUNT_NON_FATAL_ERROR
pcie_fatal PCIE_COUNT_FATAL_ERROR
rows_corrected REMAPPED_COR
rows_uncorrected REMAPPED_UNC
rows_pending REMAPPED_PENDING
rows_failed REMAPPED_FAILURE
nvlink_replay NVLINK_ERROR_DL_REPLAY
nvlink_recovery NVLINK_ERROR_DL_RECOVERY
nvlink_crc NVLINK_ERROR_DL_CRC
nvlink_state NVLINK_GET_STATE
nvlink_malformed_packet NVLINK_COUNT_MALFORMED_PACKET_ERRORS
nvlink_buffer_overrun NVLINK_COUNT_BUFFER_OVERRUN_ERRORS
nvlink_receive NVLINK_COUNT_RCV_ERRORS
nvlink_link_integrity NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS
nvlink_recovered NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS
nvlink_failed_recovery NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS
nvlink_effective NVLINK_COUNT_EFFECTIVE_ERRORS
nvlink_effective_ber NVLINK_COUNT_EFFECTIVE_BER
nvlink_symbol NVLINK_COUNT_SYMBOL_ERRORS
nvlink_symbol_ber NVLINK_COUNT_SYMBOL_BER
"""


def test_the_numbers_of_fields_are_those_of_nvml() -> None:
    names = dict(row.split() for row in FIELDS.strip().splitlines())
    known = {**numbers.OF_GPU, **numbers.OF_LINK, **numbers.OF_NEW_LINK}
    assert known == {name: getattr(pynvml, "NVML_FI_DEV_" + of) for name, of in names.items()}


class OldNvml:
    """A driver without the fields of links: an Ampere card with two links, whose getters work. asked: how often each was."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[tuple[int, int]]) -> list[Any]:  # noqa: N802
        for number, link in fields:
            self.asked[f"{number}:{link}"] = self.asked.get(f"{number}:{link}", 0) + 1
        return [SimpleNamespace(nvmlReturn=2, valueType=0) for _ in fields]

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:  # noqa: N802
        return 5 + kind

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:  # noqa: N802
        if link > 1:
            raise OSError("no such link")
        return 1

    def nvmlDeviceGetNvLinkErrorCounter(self, handle: int, link: int, counter: int) -> int:  # noqa: N802
        return 10 * link + counter


def test_an_older_driver_is_asked_by_getters_and_not_twice_for_what_it_lacks() -> None:
    nvml = OldNvml()
    counters = Counters(nvml, 0)
    assert counters.read() == {
        "ecc_corrected": 5,
        "ecc_uncorrected": 6,
        "nvlink_state:0": 1,
        "nvlink_state:1": 1,
        "nvlink_replay:0": 0,
        "nvlink_recovery:0": 1,
        "nvlink_crc:0": 2,
        "nvlink_replay:1": 10,
        "nvlink_recovery:1": 11,
        "nvlink_crc:1": 12,
    }
    assert counters.not_watched["nvlink_symbol_ber"] == "this driver has no such field"
    assert "no attribute" in counters.not_watched["ecc_corrected_sram"]
    assert nvml.asked["222:0"] == nvml.asked["82:0"] == 1
    assert "222:1" not in nvml.asked


def test_a_series_keeps_its_first_change_and_its_end() -> None:
    series = Series()
    for second in range(10 * MOST_POINTS):
        series.keep(float(second), float(max(0, second - 20)))
    assert series.points[:2] == [(0.0, 0.0), (21.0, 1.0)]
    assert series.points[-1][0] == 10 * MOST_POINTS - 1
    assert len(series.points) <= MOST_POINTS


def test_records_of_dev_kmsg_become_lines_of_dmesg(tmp_path: Path) -> None:
    assert line_of(RECORD) == LINE
    assert [line_of(text) for text in ("", " SUBSYSTEM=pci", "4,x,y,-;text", "no record")] == [""] * 4
    file = tmp_path / "kmsg"
    file.write_text("6,1,5,-;NVRM: of before the load\n")
    messages = KernelMessages(str(file))
    assert (messages.source, messages.read()) == ("kmsg", [])
    for record, kept in ((RECORD, [LINE]), ("6,1235,99,-;usb 1-1: new device\n", []), (RECORD, [LINE])):
        with file.open("a") as log:
            log.write(record)
        assert messages.read() == kept
    messages.close()


def test_without_dev_kmsg_the_ring_buffer_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ["[    1.000000] NVRM: loading", "[   10.000000] NVRM: a"]
    monkeypatch.setattr(kernel_log, "ring_buffer", lambda machine: list(log))
    monkeypatch.setattr(kernel_messages, "RING_BUFFER_EVERY", 0.0)
    messages = KernelMessages(str(tmp_path / "none"))
    assert (messages.source, messages.read()) == ("ring buffer", [])
    log[:] = [
        *log[1:],
        "[   10.000000] NVRM: b",
        "[   11.500000] usb 1-1: new",
        "[   12.000000] NVRM: c",
    ]  # the first was overwritten
    assert messages.read() == ["[   10.000000] NVRM: b", "[   12.000000] NVRM: c"]
    assert messages.read() == []


def refused(machine: Any) -> list[str]:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_without_a_readable_log_it_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_messages, "JOURNAL", ("false",))
    for buffer, words in ((refused, "Operation not permitted"), (lambda machine: ["[ 0.0] Starting gVisor..."], "gVisor's own")):
        monkeypatch.setattr(kernel_log, "ring_buffer", buffer)
        messages = KernelMessages(str(tmp_path / "none"))
        assert (messages.source, messages.read()) == ("", [])
        assert "kmsg: No such file or directory; ring buffer: " in messages.why
        assert words in messages.why
        assert messages.why.endswith("journal: journalctl ended with exit code 1")


def test_the_journal_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "ring_buffer", refused)
    monkeypatch.setattr(kernel_messages, "JOURNAL", ("sh", "-c", f"echo '[  987.654321] node7 kernel: {XID}'; exec sleep 600"))
    monkeypatch.setattr(kernel_messages, "JOURNAL_STARTS_SECONDS", 0.01)
    messages = KernelMessages(str(tmp_path / "none"))
    heard: list[str] = []

    def hears() -> bool:
        heard.extend(messages.read())
        return bool(heard)

    assert until(hears)
    messages.close()
    assert (messages.source, heard) == ("journal", [LINE])


def test_errors_so_far_are_counted_once() -> None:
    record = Record([0, 1], 0.0)
    for at, replays, corrected in ((1.0, 7, 5), (2.0, 9, 15)):
        counts = {"pcie_replays": replays, "ecc_corrected": corrected, "ecc_corrected_dram": corrected, "pcie_recoveries": at}
        record.hear({"gpu": 0, "at": at, "counts": counts})
    record.hear({"watching": {"source": "kmsg", "why": ""}, "events": {}, "slots": {"0000:05:00": 0}})
    record.hear({"at": 2.0, "lines": [LINE]})
    record.hear({"gpu": 0, "at": 2.1, "xid": 79})
    assert (record.errors(0), record.errors(1)) == (2 + 10 + 1, 0)
