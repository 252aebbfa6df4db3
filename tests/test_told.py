"""What words alone say, beside what checks find: effects of a cause, causes that are ruled out, what would decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from gpudoctor import catalog, doctor
from gpudoctor.facts import Facts
from gpudoctor.facts.texts import Text
from gpudoctor.judging.texts import candidates
from gpudoctor.judging.texts import messages as judged
from gpudoctor.knowledge.messages import Message
from gpudoctor.model import Action, Check, Confidence, Diagnosis, Finding, Fix, Problem, Reply, Snapshot

Judge = Callable[[Facts], Iterator[Finding]]


def problem(id: str) -> Problem:
    return Problem(id, f"It is {id}", "So it is.", Action.REBOOT, (Fix("Reboot", reboot=True),))


HANG, CABLE, FIREWALL, FUSE = map(problem, ("hang", "cable-loose", "firewall-closed", "fuse-blown"))


def told(*causes: Problem, confidence: str = "unknown", of: Problem = HANG) -> Finding:
    could_be = {"could_be": [cause.id for cause in causes], "decide": "ping peer"}
    return replace(of.found("it hangs", could_be, confidence=Confidence(confidence)), causes=(of.id, *could_be["could_be"]))


def check(id: str, *found: Finding, problems: tuple[Problem, ...] = ()) -> Check:
    return Check(lambda facts: iter(found), lambda facts: "fine", problems=problems, id=id, area="limits")


def diagnosis(*checks: Check) -> tuple[Diagnosis, ...]:
    taken = Snapshot("", "", "", {"file:/proc/version": Reply("ok", "Linux version 6.1.0")})
    return doctor.judge(taken, {check.id: check for check in checks}).diagnosis


def test_a_message_is_the_effect_of_the_cause_that_a_check_found() -> None:
    found = diagnosis(check("messages", told(CABLE, FUSE)), check("fuses", FUSE.found("fuse 3 is blown"), problems=(FUSE,)))
    assert [entry.problem for entry in found] == ["fuse-blown"]
    assert found[0].explains == ("messages",)
    assert found[0].evidence["effects"] == ["it hangs"]


def test_of_several_causes_that_were_found_the_likeliest_explains_it() -> None:
    fuses = check("fuses", FUSE.found("fuse 3 is blown"), problems=(FUSE,))
    cables = check("cables", CABLE.found("cable 1 is loose"), problems=(CABLE,))
    found = {entry.problem: entry.explains for entry in diagnosis(check("messages", told(CABLE, FUSE)), fuses, cables)}
    assert found == {"fuse-blown": (), "cable-loose": ("messages",)}


def test_a_cause_that_a_check_rules_out_is_no_longer_offered() -> None:
    (entry,) = diagnosis(check("messages", told(CABLE, FIREWALL, FUSE)), check("fuses", problems=(FUSE,)))
    assert entry.confidence is Confidence.UNKNOWN
    assert entry.evidence["could_be"] == ["cable-loose", "firewall-closed"]
    assert entry.evidence["ruled_out"] == ["fuse-blown"]
    assert entry.evidence["decide"] == "ping peer"


def test_what_a_log_tells_and_the_machine_does_not_show_is_not_confirmed() -> None:
    (entry,) = diagnosis(check("messages", told(confidence="confirmed", of=FUSE)), check("fuses", problems=(FUSE,)))
    assert entry.confidence is Confidence.LIKELY
    assert entry.evidence["not_seen_by"] == ["fuses"]


def test_an_unsure_message_does_not_lead_with_a_cause_that_a_check_rules_out() -> None:
    known = catalog.problems()["disk-full"][1]
    (entry,) = diagnosis(check("messages", told(known, CABLE, of=FUSE)), check("fuses", problems=(FUSE,)))
    assert (entry.problem, entry.confidence) == ("disk-full", Confidence.UNKNOWN)
    assert entry.evidence["ruled_out"] == ["fuse-blown"]
    assert entry.evidence["could_be"] == ["cable-loose"]


def test_a_problem_that_check_and_message_tell_of_is_told_once() -> None:
    of_gpu = check("fuses", FUSE.found("fuse 3 is blown", gpu=1), problems=(FUSE,))
    (entry,) = diagnosis(check("messages", told(of=FUSE, confidence="confirmed")), of_gpu)
    assert (entry.check, entry.gpu, entry.explains) == ("fuses", 1, ("messages",))


def row(id: str, pattern: str, of: Problem, sure: Any, *causes: Problem, words: str = "it hangs") -> Message:
    ids = tuple(cause.id for cause in causes)
    return Message(id=id, pattern=pattern, problem=of.id, words=words, confidence=sure, samples=(), causes=ids, decide="ping")


def findings(monkeypatch: Any, text: str, *rows: Message) -> list[Finding]:
    monkeypatch.setattr(candidates, "messages", lambda: rows)
    monkeypatch.setattr(candidates, "_table", candidates._table.__wrapped__)  # as it is without its cache
    lines = tuple(enumerate(text.splitlines(), 1))
    known = {each.id: each for each in (HANG, CABLE, FIREWALL, FUSE)}
    return list(judged.findings([Text("train.log", (), len(lines), 0, lines)], known))


def test_a_message_is_quoted_with_its_place_and_its_groups(monkeypatch: Any) -> None:
    text = "start\n[12.3] kernel: fuse 7 is gone\nfuse 8 is gone\n"
    fuse = row("gone", r"fuse (?P<number>\d) is gone", FUSE, "confirmed", words="fuse {number} has blown")
    (finding,) = findings(monkeypatch, text, fuse)
    assert finding.message == "fuse 7 has blown"
    assert finding.evidence == {"number": "7", "said": "fuse 7 is gone", "where": "train.log, line 2", "times": 2}


def test_several_messages_of_one_problem_are_one_finding_as_sure_as_the_surest(monkeypatch: Any) -> None:
    vague, sure = row("dark", "it is dark here", FUSE, "unknown", CABLE), row("gone", "fuse is gone", FUSE, "confirmed")
    (finding,) = findings(monkeypatch, "it is dark here\nfuse is gone\n", vague, sure)
    assert finding.confidence is Confidence.CONFIRMED
    assert finding.evidence["also_said"] == ["it is dark here"]
    assert "could_be" not in finding.evidence
    assert "decide" not in finding.evidence


def test_a_pattern_may_go_over_lines(monkeypatch: Any) -> None:
    over_two = row("two", r"NVRM: the fuse\s+NVRM: is gone", FUSE, "confirmed")
    (finding,) = findings(monkeypatch, "[    1.5] NVRM: the fuse\n[    1.6] NVRM: is gone\n", over_two)
    assert finding.evidence["said"] == "NVRM: the fuse NVRM: is gone"


def test_of_a_very_long_line_what_is_around_the_message_is_quoted(monkeypatch: Any) -> None:
    text = "x" * 5000 + " fuse is gone " + "y" * 5000
    (finding,) = findings(monkeypatch, text, row("gone", "fuse is gone", FUSE, "confirmed"))
    assert "x fuse is gone y" in finding.evidence["said"]
    assert len(finding.evidence["said"]) < 320
