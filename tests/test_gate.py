"""The gate keeps jobs from a node for a fault that is certain and lasts, and for nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import machine
import pytest
from each import each, try_each
from stand_in import run

from gpudoctor import catalog, gating
from gpudoctor.errors import WorkError
from gpudoctor.files import snapshot
from gpudoctor.gating import Gate, Rules
from gpudoctor.model import Snapshot, Status

UNFIT = {
    "fallen-off-bus": "gpu-fallen-off-bus-probe",
    "xid-79-fallen-off-bus": "gpu-lost",
    "row-remap-failure-one-of-four": "row-remap-failed",
    "sram-errors-need-replacement": "sram-errors-need-replacement",
    "ecc-uncontained-one-of-eight": "ecc-uncorrected-errors",
    "xid-119-gsp-rpc-timeout": "gpu-recovery-action",
    "driver-library-version-mismatch": "driver-library-version-mismatch",
    "fabricmanager-not-running-802": "fabricmanager-not-running-802",
    "fewer-than-expected": "fewer-gpus-than-expected",
}
# What is unsure, timed out, a warning, a setting of a program, or seen from a container that has no GPU.
NOT_UNFIT = (
    *("nvml-hangs", "cuda-init-hangs", "smi-hangs", "driver-mixed-install", "no-driver", "rm-power-cable"),
    *("container-lost-gpu-access", "slurm-without-gpu", "fabricmanager-not-running-seen-from-container", "cuda-999-unexplained"),
    *("ecc-retired-pages-pending-perf", "power-brake-psu-redundancy-lost", "nccl-p2p-hang-acs-iommu", "uvm-missing"),
)
NO_GPU = "no-gpu"
NO_RULES = Rules()


@each("case", UNFIT)
def test_a_certain_fault_of_the_node_makes_it_unfit(case: str) -> None:
    found = gating.judged(machine.load(case), NO_RULES)
    assert (found.verdict, found.problems[0]) == ("unfit", UNFIT[case])
    assert found.reason.startswith(UNFIT[case] + ": ")
    assert len(found.reason) <= gating.LONGEST_LINE + 100
    assert "\n" not in found.reason


@machine.every
def test_nothing_else_does() -> None:
    healthy = [case for case in machine.cases() if machine.describe(case).get("problems") == []]
    try_each(fit_or_unsure, ((case, case) for case in (*NOT_UNFIT, *healthy)))


def fit_or_unsure(case: str) -> None:
    assert gating.judged(machine.load(case), NO_RULES).verdict != "unfit"


@each("case", ["h100", "h100-measured", "hgx-h200-x8", "xid-48-again-after-reset"])
def test_a_healthy_node_is_fit_without_a_word(case: str) -> None:
    assert gating.judged(machine.load(case), NO_RULES) == Gate("fit")


@each(
    ("case", "rules", "verdict"),
    [
        ("hgx-h200-x8", Rules(expect_gpus=8), "fit"),
        ("hgx-h200-x8", Rules(expect_gpus=9), "unfit"),
        ("no-driver", Rules(expect_gpus=1), "unfit"),  # whatever keeps them from being counted
        ("nvml-hangs", Rules(expect_gpus=1), "unsure"),  # except a time limit of ours
        ("ecc-uncorrected-errors", Rules(allowed=("ecc-uncorrected-errors",)), "fit"),
        ("nvlink-link-down", NO_RULES, "fit"),
        ("nvlink-link-down", Rules(also=("nvlink-link-down",)), "unfit"),
    ],
)
def test_the_owner_of_the_node_sets_the_rules(case: str, rules: Rules, verdict: str) -> None:
    assert gating.judged(machine.load(case), rules).verdict == verdict


def test_a_machine_without_a_gpu_is_fit_unless_one_is_expected() -> None:
    taken = machine.load(NO_GPU)
    assert gating.judged(taken, NO_RULES) == Gate("fit")
    assert gating.judged(taken, Rules(expect_gpus=1)).problems == ("no-nvidia-gpu",)


def test_what_is_ignored_in_the_settings_does_not_count() -> None:
    rules = Rules(ignored={"gpu-lost": {"reason": "waits for a part", "until": "2100-01-01"}})
    assert gating.judged(machine.load("xid-79-fallen-off-bus"), rules).verdict != "unfit"


BAD, GOOD = machine.load("xid-79-fallen-off-bus"), machine.load("h100")
OTHER = machine.load("row-remap-failed")


def looks(*found: Snapshot | Exception) -> Iterator[Snapshot | Exception]:
    yield from found


@each(
    ("found", "verdict"),
    [
        ((BAD, BAD), "unfit"),
        ((BAD, GOOD), "unsure"),
        ((BAD, OTHER), "unsure"),
        ((BAD, WorkError("did not start within 5 s")), "unsure"),
        ((WorkError("no temporary folder has room"),), "unsure"),
        ((KeyError("a bug"),), "unsure"),
    ],
)
def test_one_hiccup_drains_no_node(found: tuple[Snapshot | Exception, ...], verdict: str) -> None:
    answers = looks(*found)

    def look(seconds: float) -> Snapshot:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert gating.gate(look, NO_RULES, 10, pause=0).verdict == verdict


def test_only_failures_that_quick_checks_find_are_marked() -> None:
    for id, (check, problem) in catalog.problems().items():
        if problem.unfit:
            assert (problem.status, check.level) == (Status.FAIL, "quick"), id


def test_the_page_lists_what_is_marked() -> None:
    page = (Path(__file__).parent.parent / "docs/gate.md").read_text(encoding="utf-8")
    table = page.partition("| found by | problem | what it is |")[2].partition("\n\n")[0]
    listed = {id for row in table.splitlines() for id in re.findall(r"`([a-z0-9]+-[a-z0-9-]+)`", row)}
    assert listed == {id for id, (_, problem) in catalog.problems().items() if problem.unfit}


@pytest.fixture
def saved(tmp_path: Path) -> str:
    (tmp_path / "bad.json").write_bytes(snapshot.dump(BAD))
    return str(tmp_path / "bad.json")


def test_the_command_says_one_line(saved: str) -> None:
    result = run("gate", "--replay", saved)
    assert (result.exit_code, result.stdout.count("\n"), result.stderr) == (1, 1, "")
    told = run("gate", "--replay", saved, "--format", "json")
    assert (told.exit_code, json.loads(told.stdout)["problems"]) == (1, ["gpu-lost"])


def test_the_command_is_quiet_on_this_machine_and_bounded() -> None:
    result = run("gate", "--timeout", "8")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.count("\n") <= 1


@each("words", [("--also", "no-such-problem"), ("--allow", "gpu-lots"), ("--replay", "no-such-file"), ("--timeout", "0")])
def test_wrong_usage_is_one_line(words: tuple[str, ...]) -> None:
    result = run("gate", *words)
    assert result.exit_code == 2
    assert "Error: " in result.stderr


def test_unsure_has_an_exit_code_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.gating.gate", lambda *given: Gate("unsure", "unsure: NVML did not answer"))
    assert [run("gate", *words).exit_code for words in ((), ("--strict",))] == [0, 3]
