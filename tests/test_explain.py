"""`gpudoctor list`, `gpudoctor explain`, and what the shell completes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.shell_completion import BashComplete
from stand_in import CHECKS, few_checks, run

from gpudoctor import explaining
from gpudoctor.cli import list as list_command
from gpudoctor.cli import main
from gpudoctor.report import explanation

pytestmark = pytest.mark.usefixtures("catalog_of_two")


@pytest.fixture
def catalog_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    few_checks(monkeypatch)
    monkeypatch.setattr(explaining, "here", explanation.Here)


def test_list_is_a_line_per_check_by_area() -> None:
    assert run("list").stdout.splitlines() == [
        "CHECK     AREA     TAGS  LEVEL  NEEDS     WHAT A PASS MEANS",
        "battery   machine  -     full   pressure  The battery has power.",
        "pressure  limits   -     quick  -         The tyres are hard.",
    ]


def test_list_in_a_narrow_terminal() -> None:
    lines = list_command.as_text(CHECKS.values(), 40).splitlines()
    assert lines[2:4] == ["pressure  limits   -     quick  -", "    The tyres are hard."]


def test_list_for_programs() -> None:
    rows = json.loads(run("list", "--format", "json").stdout)
    assert rows[0] == {
        "id": "battery",
        "area": "machine",
        "tags": [],
        "level": "full",
        "needs": ["pressure"],
        "title": "The battery has power.",
        "problems": ["battery-flat"],
    }


def test_explain_a_check() -> None:
    shown = run("explain", "battery").stdout
    assert shown.startswith("battery: a check in the area machine, level full\n\nThe battery has power.\n")
    assert "\nWhat it means\nA battery that is flat gives none.\n" in shown
    assert "\nNeeds: pressure\n" in shown
    assert "\nProblem battery-flat\nThe battery is flat\n" in shown
    assert "\n      sudo charge\n" in shown


def test_explain_a_problem() -> None:
    assert run("explain", "battery-flat").stdout.splitlines() == [
        "battery-flat: a problem found by the check battery",
        "",
        "The battery is flat",
        "  ✗ fail, what to do: change the configuration",
        "  Nobody charged it.",
        "",
        "  Fix: Charge it (needs root)",
        "  on debian, arch:",
        "      sudo charge",
        "  on rhel:",
        "      sudo charge --red-hat",
        "  Check that it worked:",
        "      charge --status",
        "",
        "For this machine: gpudoctor fix battery-flat",
        "",
        "How it is judged",
        "By its voltage.",
        "",
        "References",
        "https://example.org/battery",
    ]


@pytest.mark.parametrize(("typed", "offered"), [("batt", ["battery", "battery-flat"]), ("zebra", [])])
def test_explain_completes(typed: str, offered: list[str]) -> None:
    complete(["explain"], typed, offered)


def test_only_completes_the_last_of_a_list() -> None:
    complete(["check", "--only"], "battery,pre", ["battery,pressure"])


def complete(args: list[str], typed: str, offered: list[str]) -> None:
    found = BashComplete(main, {}, "gpudoctor", "_GPUDOCTOR_COMPLETE").get_completions(args, typed)
    assert [item.value for item in found] == offered


def test_a_problem_that_several_checks_find_names_them_all() -> None:
    battery = CHECKS["battery"]
    first, *rest = explanation.of_problem([battery, replace(battery, id="engine")], battery.problems[0])
    assert first == "battery-flat: a problem found by these checks: battery, engine"
    assert "How it is judged" not in rest
