"""The settings: where they come from, what is allowed in them, and what an ignored problem is in a report."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import machine
import pytest
from click.testing import Result
from stand_in import run

from gpudoctor import checkup, doctor, ignoring, settings
from gpudoctor.cli import configured
from gpudoctor.containers.images import catalog as images
from gpudoctor.errors import UserError
from gpudoctor.files import snapshot
from gpudoctor.model import Report, Skip, Status
from gpudoctor.wanted import Request, Wanted

RULE = {"reason": "replaced in spring", "until": "2099-01-31"}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The current folder, with the user's settings in `config`."""
    (tmp_path / "config").mkdir()
    (tmp_path / "project" / "deep").mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("GPUDOCTOR_REGISTRY", raising=False)
    monkeypatch.chdir(tmp_path / "project" / "deep")
    settings._merged.cache_clear()
    return tmp_path


def own(folder: Path, text: str) -> Path:
    path = folder / "config" / "gpudoctor.toml"
    path.write_text(text)
    return path


def of_project(folder: Path, text: str) -> Path:
    path = folder / "project" / "pyproject.toml"
    path.write_text(text)
    return path


def test_nothing_is_set_without_files(folder: Path) -> None:
    assert settings.current() == settings.Settings()
    assert configured.applied(Wanted()) == Wanted()


def test_a_project_overrides_the_user_and_an_option_both(folder: Path) -> None:
    own(folder, 'level = "full"\npython = "/opt/py"\nregistry = "mirror.example.com"\n')
    of_project(folder, '[tool.gpudoctor]\nlevel = "quick"\n')
    assert (settings.current().level, settings.current().python) == ("quick", "/opt/py")
    assert (configured.applied(Wanted()).level, configured.applied(Wanted(level="standard")).level) == ("quick", "standard")
    assert configured.applied(Wanted(inside=Request(image="x"))).python is None
    assert images.resolve("pytorch-24.08").reference.startswith("mirror.example.com/")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('levle = "quick"', "unknown key 'levle'; did you mean level? Allowed: level, python, redact, registry, ignore"),
        ('level = "quik"', "level is 'quik', not one of quick, standard, full"),
        ("level = 3", "level is 3, not one of"),
        ('redact = "yes"', "redact is 'yes', not true or false"),
        ("python = ['a']", "python is ['a'], not a text in quotes"),
        ('python = ""', "not a text in quotes"),
        ("ignore = 1", "ignore is not a table of problems"),
        ("[ignore]\nxids = 1", "ignore.xids needs a reason and a last day"),
        ('[ignore.xids]\nreason = "x"', "ignore.xids needs a reason and a last day"),
        ('[ignore.xids]\nreason = ""\nuntil = 2027-01-01', "reason is '', not a text in quotes"),
        ('[ignore.xids]\nreason = "x"\nuntil = "soon"', "until is 'soon', not a day such as"),
        ('[ignore.xids]\nreason = "x"\nuntil = 2027-01-01T00:00:00Z', "not a day such as"),
        (
            '[ignore.no-nvidia-gpo]\nreason = "x"\nuntil = 2027-01-01',
            "unknown problem 'no-nvidia-gpo'; did you mean no-nvidia-gpu",
        ),
        ("level", "is not valid TOML"),
        ("a = " + "[" * 5000, "is not valid TOML"),
        ("\x1b[31m = 1", "is not valid TOML"),
        ("#" * 2_000_000, "is larger than 1 MiB"),
        (".".join("a" * 400_000) + " = 1", "line 1 has more than 400 dots"),
    ],
)
def test_a_broken_file_is_one_line(folder: Path, text: str, words: str) -> None:
    path = own(folder, text)
    result = run("check", "--level", "quick")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith(f"Error: {path}")
    assert words in result.stderr
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('python = "./python"', "python cannot be set in a project (allowed: level, redact, ignore)"),
        ('registry = "evil.example.com"', "registry cannot be set in a project"),
        ("redact = false", "a project cannot turn redaction off"),
    ],
)
def test_a_project_names_no_program_and_no_host(folder: Path, line: str, words: str) -> None:
    path = of_project(folder, f"[tool.gpudoctor]\n{line}\n")
    with pytest.raises(UserError, match=str(path)) as error:
        settings.current()
    assert words in str(error.value)


def test_what_is_not_about_gpudoctor_is_not_its_business(folder: Path) -> None:
    of_project(folder, "[tool.ruff\nthis is not TOML")
    assert settings.current() == settings.Settings()


def test_a_project_of_another_user_in_a_shared_folder_sets_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = of_project(folder, "[tool.gpudoctor]\nlevel = 'full'\n")
    assert settings.current().level == "full"
    path.parent.chmod(0o1777)
    assert settings.current().level == "full"
    foreign = os.stat_result((0o100644, 0, 0, 1, os.geteuid() + 1, 0, 0, 0, 0, 0))
    monkeypatch.setattr(Path, "lstat", lambda self: foreign)
    assert settings.current().level is None
    path.parent.chmod(0o755)
    assert settings.current().level == "full"


def test_the_project_is_found_from_below_and_cannot_turn_redaction_off(folder: Path) -> None:
    own(folder, "redact = true")
    of_project(folder, "[tool.gpudoctor]\nredact = true\n")
    assert settings.current().redact is True


def shown(*words: str) -> Result:
    return run("config", *words)


def test_config_shows_what_applies_and_from_where(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "level     standard  (default)" in shown().stdout
    mine = own(folder, f'level = "quick"\n[ignore.no-nvidia-gpu]\nreason = "{RULE["reason"]}"\nuntil = 2099-01-31\n')
    monkeypatch.setenv("GPUDOCTOR_REGISTRY", "r.example.com")
    rows = {row["key"]: (row["value"], row["source"]) for row in json.loads(shown("--format", "json").stdout)["settings"]}
    assert rows["level"] == ("quick", str(mine))
    assert rows["registry"] == ("r.example.com", "GPUDOCTOR_REGISTRY")
    assert rows["ignore.no-nvidia-gpu"] == ("until 2099-01-31: replaced in spring", str(mine))


def test_what_is_over_counts_again_and_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own(folder, '[ignore.no-nvidia-gpu]\nreason = "x"\nuntil = 2020-01-31\n')
    configured.applied(Wanted())
    assert "no-nvidia-gpu counts again: it was ignored until 2020-01-31" in capsys.readouterr().err


def judged(case: str, until: str = RULE["until"], *problems: str) -> Report:
    taken = machine.load(case)
    rules = {problem: {"reason": "replaced in spring", "until": until} for problem in problems}
    return doctor.judge_at_its_level(replace(taken, ignored=rules))


def test_an_ignored_problem_is_shown_and_does_not_count() -> None:
    before, after = judged("no-driver"), judged("no-driver", RULE["until"], "no-driver-found")
    assert [entry.problem for entry in before.diagnosis] == ["no-driver-found"]
    assert (before.status, after.status, after.diagnosis) == (Status.FAIL, Status.PASS, ())
    [entry] = after.ignored
    assert (entry.problem, entry.reason, entry.until) == ("no-driver-found", "replaced in spring", "2099-01-31")
    rows = {row.id: row for row in after.checks}
    found = next(row.id for row in before.checks if row.status is Status.FAIL)
    assert (rows[found].status, rows[found].reason) == (Status.SKIP, Skip.IGNORED)
    assert after.coverage == before.coverage


def test_it_counts_again_after_its_last_day() -> None:
    taken = machine.load("no-driver").taken[:10]
    assert judged("no-driver", taken, "no-driver-found").diagnosis == ()
    assert judged("no-driver", "2001-01-01", "no-driver-found").diagnosis


def test_another_problem_of_the_check_still_fails() -> None:
    report = judged("no-driver")
    twice = replace(report, diagnosis=(*report.diagnosis, replace(report.diagnosis[0], problem="another")))
    left = ignoring.applied(twice, {"another": RULE})
    assert (left.status, left.checks) == (Status.FAIL, report.checks)


@pytest.mark.parametrize("line", ["tool = 1", "tool = [1]", "other = 1"])
def test_a_project_without_a_table_of_tools_sets_nothing(folder: Path, line: str) -> None:
    of_project(folder, f"{line} # tool.gpudoctor\n")
    assert settings.current() == settings.Settings()


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json", "sarif", "junit"])
def test_every_format_shows_it(form: str, tmp_path: Path) -> None:
    taken = replace(machine.load("no-driver"), ignored={"no-driver-found": RULE})
    file = tmp_path / "s.json"
    file.write_bytes(snapshot.dump(taken))
    result = run("check", "--replay", str(file), "--format", form)
    assert result.exit_code == 0
    assert "replaced in spring" in " ".join(result.stdout.split())


def test_its_reason_is_redacted_with_the_rest() -> None:
    taken = machine.load("no-driver")
    secret = {"no-driver-found": {**RULE, "reason": "ask ann@example.com"}}
    whole = checkup.Checkup(snapshot=replace(taken, ignored=secret))
    assert "ann@example.com" not in whole.redacted().to_json()


def test_a_folder_that_is_closed_has_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: object, **more: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(os, "stat", closed)
    assert [*settings.files()] == []
