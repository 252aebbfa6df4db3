"""One run judges a snapshot once: as it is, or as it leaves the machine."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import machine
import pytest
from stand_in import run

import gpudoctor
from gpudoctor import catalog, doctor, examining
from gpudoctor.checkup import Checkup, load
from gpudoctor.files import snapshot
from gpudoctor.model import Report, Snapshot
from gpudoctor.wanted import Wanted

CASE = "driver-library-version-mismatch"
HERE, GONE = b"/home/user/venv", b"/home/user-1/venv"


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Snapshot]:
    """Each snapshot that is judged from here on."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    real: Callable[..., Report] = doctor.judge
    found: list[Snapshot] = []

    def judge(taken: Snapshot, checks: doctor.Checks) -> Report:
        found.append(taken)
        return real(taken, checks)

    monkeypatch.setattr(doctor, "judge", judge)
    return found


@pytest.fixture
def saved(tmp_path: Path) -> str:
    (tmp_path / "machine.json").write_bytes(snapshot.dump(machine.load(CASE)))
    return str(tmp_path / "machine.json")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("check", "--level", "quick", "--replay"),
        ("check", "--level", "quick", "--no-redact", "--replay"),
        ("check", "--level", "quick", "-o", "report.html", "--replay"),
        ("report",),
        ("report", "--bundle", "report.tar.gz"),
        ("report", "--for", "pytorch"),
        ("explain",),
        ("explain", "--save", "again.json"),
        ("fix", "--replay"),
    ],
    ids=" ".join,
)
def test_a_command_judges_once(
    words: tuple[str, ...], saved: str, judged: list[Snapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(saved).parent)
    assert run(*words, saved).exit_code in (0, 1)
    assert len(judged) == 1


def test_what_is_shown_is_judged_and_not_what_is_saved_beside(
    saved: str, judged: list[Snapshot], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(examining, "examined", lambda *given: (load(saved), 0))
    shown = run("check", "--save", str(tmp_path / "again.json"))
    assert HERE.decode() in shown.stdout
    assert GONE in (tmp_path / "again.json").read_bytes()
    assert [HERE in snapshot.dump(taken) for taken in judged] == [True]


def test_in_python_only_what_is_read_is_judged(saved: str, judged: list[Snapshot], tmp_path: Path) -> None:
    found = gpudoctor.load(saved)
    found.save(tmp_path / "again.json")
    assert judged == []
    found.write(tmp_path / "report.html")
    assert [GONE in snapshot.dump(taken) for taken in judged] == [True]
    assert found.status is found.report.status is found.report.status
    assert [HERE in snapshot.dump(taken) for taken in judged] == [False, True]


def test_a_redacted_one_is_judged_by_the_same_checks(judged: list[Snapshot]) -> None:
    wanted = Wanted(only=("driver-version",), skip=("kernel-module",))
    checks = wanted.checks()
    found = Checkup(snapshot=machine.load(CASE), checks=checks)
    assert {row.id for row in found.checks} == {row.id for row in found.redacted().checks} == set(checks) != set(catalog.checks())
    again = Checkup(found.report, found.snapshot)
    assert again == found
    assert {row.id for row in again.redacted().checks} == set(checks)


@pytest.mark.slow
def test_every_text_of_a_redacted_one_is_looked_through_once_more(judged: list[Snapshot]) -> None:
    """A word that is nowhere but in the words of a report."""
    found = Checkup(snapshot=machine.load(CASE)).redacted(words=("zaphod",))
    assert found.sweep("it belongs to zaphod") == "it belongs to word-1"
    assert Checkup(snapshot=machine.load(CASE)).sweep("it belongs to zaphod") == "it belongs to zaphod"


def test_a_redacted_one_holds_no_names_where_it_is_kept(judged: list[Snapshot]) -> None:
    found = Checkup(snapshot=machine.load(CASE)).redacted()
    kept = pickle.dumps(found)
    assert HERE not in kept
    assert GONE in kept
    assert pickle.loads(kept) == found


def test_only_a_report_is_redacted_too(judged: list[Snapshot], tmp_path: Path) -> None:
    Checkup(snapshot=machine.load(CASE)).write(tmp_path / "report.json", redact=False)
    judged.clear()
    kept = load(tmp_path / "report.json")
    assert kept.snapshot is kept.redacted().snapshot is None
    assert HERE in kept.to_json().encode()
    assert GONE in kept.redacted().to_json().encode()
    assert judged == []
