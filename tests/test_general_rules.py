"""Rules about failed system calls count only where no other row and no engine explains a line; known Xids are never silent."""

from __future__ import annotations

import pytest

from gpudoctor import catalog, doctor, evidence, knowledge
from gpudoctor.facts.kernel_log import LogLine, xid_of
from gpudoctor.facts.texts import Text
from gpudoctor.judging.texts import messages as judged
from gpudoctor.knowledge import messages, xids
from gpudoctor.model import Report

NVLINK = "NVRM: Xid (PCI:0000:18:00): 149, NETIR_LINK_EVT  Fatal   XC0 {mark} Link 00 (0x000008c4 0x00000000)"


def found(text: str) -> list[str]:
    lines = tuple(enumerate(text.splitlines(), 1))
    return [match.message.id for match in judged.matches([Text("sample", (), len(lines), 0, lines)])]


def report_of(text: str) -> Report:
    return doctor.judge(evidence.snapshot_of(evidence.of_text(text + "\n")), doctor.select(catalog.checks(), "quick"))


def problems_of(text: str) -> list[str]:
    return [entry.problem for entry in report_of(text).diagnosis]


def test_a_rule_counts_only_on_lines_that_no_other_row_explains() -> None:
    known = "NCCL WARN Error: failed to extend /dev/shm/nccl-a to 33030532 bytes, error: No space left on device (28)"
    assert not [id for id in found(known) if id.startswith("call-")]
    assert "call-finds-shm-full" in found(f"{known}\nfallocate: No space left on device")


@pytest.mark.parametrize("call", ["frobnicate_reg", "ibv_reg_newest_mr", "mlock2"])
@pytest.mark.parametrize(
    "said", ["{} failed: Cannot allocate memory", "{}() = NULL, errno ENOMEM", "{}: cannot allocate memory (12)"]
)
def test_a_call_is_known_by_its_family_and_not_by_its_sentence(call: str, said: str) -> None:
    expected = ["call-locks-too-much-memory"] if call != "frobnicate_reg" else []
    assert found(said.format(call)) == expected


def test_of_several_rules_the_first_counts() -> None:
    assert found("inotify_init1: too many open files") == ["call-watches-too-much"]


@pytest.mark.parametrize(
    "line", ["docker: Error response from daemon: bind: address already in use.", "runc: shm_open: permission denied"]
)
def test_a_line_of_an_engine_belongs_to_another_check(line: str) -> None:
    assert not [row for row in messages.messages() if row.general and row.id in found(line)]


def test_a_rule_is_a_row_like_any_other() -> None:
    rules = [row for row in messages.messages() if row.general]
    assert len(rules) > 30
    assert {row.problem for row in rules} <= set(catalog.problems())


def test_an_injected_xid_is_no_fault_of_the_hardware() -> None:
    assert problems_of(NVLINK.format(mark="i1")) == ["xid-injected"]
    assert problems_of(NVLINK.format(mark="i0")) == ["xid-74-nvlink-error"]
    real = xid_of(LogLine(None, NVLINK.format(mark="i0")))
    assert real
    assert not real.is_injected


@pytest.mark.slow
def test_no_known_xid_is_silent() -> None:
    """Except those that only follow from another one."""
    codes = [row.code for row in xids.table().xids if row.follows != "always" and row.code not in range(144, 151)]
    silent = [code for code in codes if not problems_of(f"NVRM: Xid (PCI:0000:18:00): {code}, pid=1, name=python, words")]
    assert silent == []
    assert knowledge.xid(38)


def test_a_fallback_says_only_what_it_looked_at() -> None:
    text = (
        "host:1:2 [0] NCCL WARN Call to cuFoo failed in a new way\n"
        "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled system error, NCCL version 2.20.5"
    )
    entry = report_of(text).diagnosis[0]
    assert entry.problem == "nccl-failed"
    assert "Call to cuFoo failed in a new way" in entry.message
    assert "not name" not in entry.title
    assert "works" not in report_of("bash: nvidia-smi: command not found").diagnosis[0].title


XID_31 = "NVRM: Xid (PCI:0000:{bus}:00): 31, pid={pid}, name=python, Ch 00000010"


def test_the_same_error_on_several_gpus_is_the_programs() -> None:
    log = "\n".join(XID_31.format(bus=bus, pid=7) for bus in ("18", "2a"))
    assert all("points to the program" in entry.message for entry in report_of(log).diagnosis)


def test_the_same_error_of_several_programs_on_one_gpu_is_not() -> None:
    log = "\n".join(XID_31.format(bus="18", pid=pid) for pid in (7, 8, 9))
    assert "3 processes met it on this GPU and on no other" in report_of(log).diagnosis[0].message
    assert "processes met" not in report_of(XID_31.format(bus="18", pid=7)).diagnosis[0].message
