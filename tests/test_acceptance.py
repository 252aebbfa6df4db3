"""`burn --acceptance` and --resume: what is finished is not run again, the record says every figure by each rule, and the screen
fits a terminal. The GPUs are stubs whose clock is the seconds that they are asked for."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import pytest
from click.testing import CliRunner
from rich.console import Console

from gpudoctor import catalog, doctor, examining, measure, resuming
from gpudoctor.choices import ACCEPTANCE
from gpudoctor.cli import burn_screen, main
from gpudoctor.errors import UserError
from gpudoctor.files import snapshot
from gpudoctor.model import Reply, Snapshot, Status
from gpudoctor.report import formats
from gpudoctor.wanted import Burning, Wanted

STRETCH = 20.0
ALL = ("power", "memory", "pcie", "links")


def stretches(seconds: float, most: float) -> dict[str, Any]:
    """What a GPU does in `seconds` if it is interrupted after `most`."""
    found: dict[str, Any] = {}
    spent = 0.0
    loads = ("power", "bursts", "power", "memory", "pcie")
    while spent + STRETCH <= min(seconds, most):
        load = loads[len(found) % len(loads)]
        value: dict[str, Any] = {
            "load": load,
            "wrong_words": 0,
            "seconds": STRETCH,
            "during": {"celsius": 60, "median_watts": 650.0},
        }
        if load in ("power", "bursts"):
            value |= {"precision": "bf16", "size": 16384, "products": 9, "tflops": 700.0, "checksum": "a", "verified": True}
        else:
            value |= {"gb_per_s": 3000.0, "patterns": 4, "bytes": 1 << 30, "total_bytes": 1 << 31, "wrong": []}
        found[f"{load} {len(found)}"] = value
        spent += STRETCH
    return found | ({"complete": {"seconds": seconds}} if spent + STRETCH > seconds else {})


def copied(options: dict[str, Any]) -> dict[str, Any]:
    seconds = options["burn-links"]["seconds"]
    wrong = {"0>1": 0, "1>0": 0}
    return {"load": "links", "wrong_words": wrong, "copies": 90, "gb_per_s": 380.0, "seconds": seconds}


def added(options: dict[str, Any]) -> dict[str, Any]:
    seconds = options["burn-collectives"]["seconds"]
    return {"load": "sums", "wrong_words": {"0": 0, "1": 0}, "sums": 90, "bus_gb_per_s": 380.0, "products": 9, "seconds": seconds}


class Gpus:
    """Two stubs. asked: (workloads, options) of each run. interrupted_after: seconds of load, None for never."""

    def __init__(self) -> None:
        self.asked: list[tuple[set[str], dict[str, Any]]] = []
        self.interrupted_after: float | None = None
        self.is_cut_in_benchmarks = False

    def measure(
        self, where: Any, plan: Any, level: str, seconds: float, progress: Any, options: Any = None
    ) -> tuple[dict[str, Reply], int]:
        self.asked.append(({*plan.workloads}, dict(options or {})))
        measured = {"plan": Reply("ok", plan.as_value(), seconds=1.0)}
        if not options:
            status = "cut" if self.is_cut_in_benchmarks else "ok"
            real = machine.load("h200-x2-measured").measured
            measured |= {
                id: replace(reply, status=status) for id, reply in real.items() if id.rpartition(":")[0] in plan.workloads
            }
            return measured, 2 if self.is_cut_in_benchmarks else 0
        progress(("burn",), 60.0, {0: {"watts": 700.0, "celsius": 65}, 1: {"watts": 690.0, "celsius": 66}})
        most = self.interrupted_after if self.interrupted_after is not None else 1e9
        measured |= {
            f"{name}:all": Reply("ok", {"ring 0": ring, "complete": {"seconds": ring["seconds"]}}, seconds=ring["seconds"])
            for name, ring in {"burn-links": copied(options), "burn-collectives": added(options)}.items()
            if name in plan.workloads and ring["seconds"]
        }
        wanted = options["burn"]["seconds"]
        done = stretches(wanted, most)
        is_cut = "complete" not in done
        if "burn" in plan.workloads:
            for gpu in (0, 1):
                measured[f"burn:gpu{gpu}"] = Reply("cut" if is_cut else "ok", stretches(wanted, most), seconds=min(wanted, most))
        return measured, 2 if is_cut else 0


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpus:
    stubs = Gpus()

    @contextlib.contextmanager
    def asked(wanted: Wanted, tell: Any, as_judged: Any = None) -> Iterator[tuple[Snapshot, Any]]:
        yield replace(machine.load("h200-x2"), measured={}), object()

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(examining, "_asked", asked)
    monkeypatch.setattr(measure, "measure", stubs.measure)
    return stubs


def test_what_is_finished_is_not_run_again(gpus: Gpus) -> None:
    gpus.interrupted_after = 100.0
    done = CliRunner().invoke(main, ["burn", "--acceptance", "--minutes", "10", "--format", "json"])
    assert done.exit_code == 130, done.output
    first = json.loads(done.stdout)
    assert first["facts"]["acceptance"]["verdict"] == "incomplete"
    assert "gpudoctor burn --resume continues" in done.stderr
    gpus.interrupted_after = 60.0
    assert CliRunner().invoke(main, ["burn", "--resume", "--format", "json"]).exit_code == 130
    gpus.interrupted_after = None
    done = CliRunner().invoke(main, ["burn", "--resume", "--format", "json"])
    assert done.exit_code == 0, done.output
    wanted = [options["burn"]["seconds"] for _, options in gpus.asked if options]
    assert wanted == [480.0, 380.0, 320.0]
    for name in Burning.TOGETHER:
        assert [options[name]["seconds"] for _, options in gpus.asked if options] == [60.0, 0.0, 0.0]
    assert [bool(options) for _, options in gpus.asked] == [False, True, True, True]  # the benchmarks ran once
    last = json.loads(done.stdout)
    acceptance = last["facts"]["acceptance"]
    assert (acceptance["verdict"], acceptance["minutes"]) == ("accepted", 8.0)
    runs = last["measured"]["runs"]["burn:gpu1"]
    assert len([name for name in runs if name != "complete"]) == 24  # 480 s, none replaced another
    again = CliRunner().invoke(main, ["burn", "--resume"])
    assert (again.exit_code, "no interrupted load is known" in again.output) == (2, True)


def test_benchmarks_that_were_interrupted_run_again(gpus: Gpus) -> None:
    gpus.is_cut_in_benchmarks = True
    assert CliRunner().invoke(main, ["burn", "--acceptance", "--minutes", "2", "--format", "json"]).exit_code == 130
    gpus.is_cut_in_benchmarks = False
    assert CliRunner().invoke(main, ["burn", "--resume", "--format", "json"]).exit_code == 0
    assert [bool(options) for _, options in gpus.asked] == [False, False, True]


@pytest.mark.parametrize(
    ("given", "seconds", "loads"),
    [
        ("", 600, ALL),
        ("--level quick", 120, ("power", "memory")),
        ("--level quick --all", 120, ALL),
        ("--level full --memory --minutes 3", 180, ("memory",)),
        ("--level full", 3600, ALL),
        ("--acceptance", 1800, ALL),
    ],
)
def test_a_level_is_a_time_and_loads(
    given: str, seconds: float, loads: tuple[str, ...], gpus: Gpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def keeps(wanted: Wanted) -> Any:
        asked.append(wanted.burning)
        raise UserError("enough")

    monkeypatch.setattr("gpudoctor.cli.burn._burned", keeps)
    CliRunner().invoke(main, ["burn", *given.split()])
    assert asked == [Burning(seconds, loads, "--acceptance" in given)]


def test_resume_continues_what_was_chosen_and_nothing_else(gpus: Gpus) -> None:
    for given in (("--level", "full"), ("--minutes", "3"), ("--memory",), ("--acceptance",), ("--gpus", "0")):
        done = CliRunner().invoke(main, ["burn", "--resume", *given])
        assert (done.exit_code, f"{given[0]} cannot be used with it" in done.output) == (2, True), done.output
    resuming.keep(machine.load("h100"), Burning(60, ALL), ())
    done = CliRunner().invoke(main, ["burn", "--resume"])
    assert (done.exit_code, "other GPUs" in done.output) == (2, True), done.output
    taken = machine.load("h200-x2")
    one, other = (replace(taken, replies={**taken.replies, "boot": Reply("ok", boot)}) for boot in ("a", "b"))
    resuming.must_be_same(one, one)
    with pytest.raises(UserError, match="started again"):
        resuming.must_be_same(one, other)


def test_a_file_of_another_form_is_one_line(gpus: Gpus) -> None:
    resuming.keep(machine.load("h200-x2"), Burning(60, ALL), ())
    file = resuming._file()
    for content in (b"", b"{}", b"\xff", file.read_bytes().replace(b"resume/1", b"resume/9")):
        file.write_bytes(content)
        with pytest.raises(UserError, match="start again"):
            resuming.read()


def accepted() -> Snapshot:
    taken = machine.load("h200-x2-measured")
    plan = taken.measured["plan"]
    workloads = {**plan.value["workloads"], "burn": "burn", "burn-links": "burn-links"}
    burned = {f"burn:gpu{gpu}": Reply("ok", stretches(480.0, 1e9), seconds=480.0) for gpu in (0, 1)}
    replies = {**taken.replies, "serials": Reply("ok", {"machine": "S1234567", "gpu0": "1653023012345", "gpu1": "1653023054321"})}
    measured = {**taken.measured, "plan": Reply("ok", {**plan.value, "workloads": workloads}), **burned}
    return replace(taken, replies=replies, measured=measured, level=ACCEPTANCE)


def test_the_record_has_every_figure_by_each_rule() -> None:
    taken = accepted()
    report = doctor.judge_at_its_level(taken)
    record = report.facts["acceptance"]
    rows = {(row["what"], row["gpu"]): row for row in record["figures"]}
    gemm = rows["GEMM bf16", 0]
    assert gemm["of_expected"] is not None
    assert 0.9 < gemm["of_siblings"] < 1.1
    assert gemm["of_baseline"] is None
    assert [gpu["serial"] for gpu in record["gpus"]] == ["1653023012345", "1653023054321"]
    assert {row.id for row in report.checks} >= {"gemm", "burn", "burn-steadiness", "expectation"}
    assert not {row.id for row in report.checks} & {id for id, check in catalog.checks().items() if check.level == "full"}
    assert doctor.judge_at_its_level(taken).facts["acceptance"]["sha256"] == record["sha256"]
    changed = replace(taken, replies={**taken.replies, "serials": Reply("ok", {"machine": "other"})})
    assert doctor.judge_at_its_level(changed).facts["acceptance"]["sha256"] != record["sha256"]


def test_every_format_shows_it() -> None:
    report = doctor.judge_at_its_level(accepted())
    for form in ("text", "markdown", "html"):
        shown = formats.render(form, report, None)
        for words in (
            "Acceptance: accepted",
            "1653023012345",
            "Signature",
            "Xids (none were read)",
            report.facts["acceptance"]["sha256"][:20],
        ):
            assert words in shown, (form, words)


def test_a_wrong_result_is_not_accepted_and_a_missing_load_is_incomplete() -> None:
    taken = accepted()
    value = taken.measured["burn:gpu0"].value
    name = next(name for name in value if name.startswith("memory"))
    wrong = Reply("ok", {**value, name: {**value[name], "wrong_words": 3}}, seconds=480.0)
    report = doctor.judge_at_its_level(replace(taken, measured={**taken.measured, "burn:gpu0": wrong}))
    assert report.facts["acceptance"]["verdict"] == "not accepted"
    without = {id: reply for id, reply in taken.measured.items() if not id.startswith("burn")}
    report = doctor.judge_at_its_level(replace(taken, measured=without))
    assert report.facts["acceptance"]["verdict"] == "incomplete"
    assert report.status is not Status.FAIL


def test_a_replayed_acceptance_is_one(tmp_path: Path) -> None:
    file = tmp_path / "accepted.json"
    file.write_bytes(snapshot.dump(accepted()))
    done = CliRunner().invoke(main, ["check", "--replay", str(file), "--format", "json"])
    assert json.loads(done.stdout)["facts"]["acceptance"]["verdict"].startswith("accepted")


def test_the_screen_fits_a_terminal() -> None:
    seen = {
        gpu: {"watts": 700.0, "celsius": 65, "sm_mhz": 1755, "pcie_generation": 5, "pcie_width": 16, "reasons": 0x68}
        for gpu in range(40)
    }
    for width, height in ((80, 24), (40, 10)):
        console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True)
        with console.capture() as captured:
            console.print(burn_screen.drawn(("burn", "burn-links"), 400.0, 200.0, seen, height))
        lines = captured.get().splitlines()
        assert len(lines) <= height
    assert "33 %" in lines[0]


def test_the_live_screen_is_drawn_for_each_reading_and_ends_clean() -> None:
    shown = io.StringIO()
    clock = iter(range(100))
    console = Console(file=shown, width=80, height=24, force_terminal=True)
    with burn_screen.Screen(console, lambda: float(next(clock))) as screen:
        screen.say("Collecting nvml")
        screen.update(("burn",), 59.0, {0: {"watts": 701.0, "celsius": 64, "memory_celsius": 83, "errors": 4711}})
    assert all(number in shown.getvalue() for number in ("701", "83", "4711"))
    assert shown.getvalue().rstrip().endswith("\x1b[?25h") or "\x1b[?1049l" in shown.getvalue()
