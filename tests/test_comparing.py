"""`gpudoctor diff`: what differs, and which difference explains the worse machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from each import each
from machine import load
from stand_in import run
from test_report import HEALTHY, REPORT

from gpudoctor import comparing
from gpudoctor.comparing import Change, deciding, parts
from gpudoctor.doctor import judge_at_its_level as judged
from gpudoctor.files import snapshot
from gpudoctor.model import SNAPSHOT_SCHEMA, Figure, Measurements, Opened, Reply, Snapshot, Status
from gpudoctor.report import compared, formats

MACHINES = Path(__file__).parent / "machines"


def opened(taken: Snapshot, name: str = "machine") -> Opened:
    return Opened(name, judged(taken, "full"), taken)


def with_reply(taken: Snapshot, question: str, part: str, value: object) -> Snapshot:
    other = Reply("ok", {part: value})
    return replace(taken, replies={**taken.replies, question: parts.exchanged(taken.replies[question], part, other)})


def test_what_decides_comes_first_and_is_proven() -> None:
    good = load("dual-4090")
    noisy = with_reply(with_reply(good, "environment", "EDITOR", "vi"), "nvml:gpu0", "Temperature", {"gpu": 60})
    bad = with_reply(noisy, "environment", "NCCL_P2P_DISABLE", "1")
    comparison = comparing.compare(opened(good), opened(bad))
    assert comparison.worse == 1
    first = comparison.changes[0]
    assert (first.question, first.part, first.decides) == ("environment", "NCCL_P2P_DISABLE", ("nccl-env-leftovers",))
    assert [change.part for change in comparison.changes if change.decides] == ["NCCL_P2P_DISABLE"]
    assert next(change for change in comparison.changes if change.part == "Temperature").is_noise


@pytest.mark.parametrize(
    ("case", "problem", "question"),
    [
        ("nvml-missing", "nvml-library-missing", "libraries"),
        ("application-clocks-lowered", "application-clocks-lowered", "nvml:gpu0"),
        ("old-toolkit-in-library-path-harmless", "older-cuda-toolkit-before-wheels", "libraries"),
    ],
)
def test_machines_against_the_one_that_they_were_made_of(case: str, problem: str, question: str) -> None:
    base = next(
        line.split(":", 1)[1].strip()
        for line in (MACHINES / case / "machine.yaml").read_text().splitlines()
        if line.startswith("base:")
    )
    comparison = comparing.compare(opened(load(base)), opened(load(case)))
    assert problem in {entry.problem for entry in comparison.only[1]}
    deciding = [change for change in comparison.changes if problem in change.decides]
    assert question in {change.question for change in deciding}


def test_the_same_machine_does_not_differ() -> None:
    path = str(MACHINES / "h100" / "snapshot.json")
    result = run("diff", path, path)
    assert (result.exit_code, "Nothing differs" in result.stdout) == (0, True)


def without(taken: Snapshot, *questions: str) -> Snapshot:
    return replace(taken, replies={question: reply for question, reply in taken.replies.items() if question not in questions})


def test_what_only_one_was_asked_is_no_difference() -> None:
    taken = load("workstation")
    missing = next(question for question, reply in taken.replies.items() if reply.status == "missing")
    answered = "file:/proc/version"
    before = without(taken, missing, answered)
    for one, other in ((taken, before), (before, taken)):
        comparison = comparing.compare(opened(one), opened(other))
        assert [(change.question, change.is_noise) for change in comparison.changes] == [(answered, True)]
        assert comparison.is_same


def test_a_field_that_an_older_gpudoctor_did_not_ask_is_no_difference() -> None:
    taken = load("workstation")
    fields = dict(taken.replies["nvml:gpu0"].value)
    del fields["MigMode"]
    before = replace(taken, replies={**taken.replies, "nvml:gpu0": Reply("ok", fields)})
    assert comparing.compare(opened(before), opened(taken)).is_same
    variable = with_reply(taken, "environment", "NCCL_DEBUG", "INFO")
    assert not comparing.compare(opened(taken), opened(variable)).is_same


def test_what_only_one_was_asked_is_told_where_it_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    good = load("dual-4090")
    bad = without(with_reply(good, "environment", "NCCL_P2P_DISABLE", "1"), "file:/proc/version")
    place = ("file:/proc/version", "")
    monkeypatch.setattr(deciding, "decided", lambda *given: {place: ("a-problem",)})
    first = comparing.compare(opened(good), opened(bad)).changes[0]
    assert ((first.question, first.part), first.decides, first.is_noise) == (place, ("a-problem",), False)


def test_the_driver_and_libraries_come_before_compilers_and_programs_that_are_not_there() -> None:
    good = load("h100")
    packages = [
        {**package, "version": "0.1"} if package["name"] == "zipp" else package for package in good.replies["packages"].value
    ]
    replies = {
        **with_reply(with_reply(good, "environment", "CC", "/opt/gcc"), "environment", "NCCL_P2P_DISABLE", "1").replies,
        "command:nv-fabricmanager --version": Reply("missing"),
        "file:/a/program": Reply("missing"),
        "packages": Reply("ok", packages),
        "nvml": parts.exchanged(good.replies["nvml"], "library", Reply("ok", {"library": "/opt/libnvidia-ml.so.1"})),
    }
    good = replace(good, replies={**good.replies, "file:/a/program": Reply("ok", "one")})
    comparison = comparing.compare(opened(good), opened(replace(good, replies=replies)))
    told = [(change.question, change.part) for change in comparison.changes if not (change.decides or change.is_noise)]
    wanted = [("nvml", "library"), ("packages", "zipp"), ("environment", "CC"), ("file:/a/program", "")]
    assert [place for place in told if place in wanted] == wanted


def test_what_the_problem_names_comes_first_and_nothing_is_promised_without_a_proof() -> None:
    other, bad = load("h100"), load("h200-full")
    older = [{**each, "version": "0.1"} if each["name"] == "numba" else each for each in other.replies["packages"].value]
    good = replace(other, replies={**other.replies, "packages": Reply("ok", older)})
    a, b = opened(good), opened(bad)
    comparison = comparing.compare(a, b)
    assert [entry.problem for entry in comparison.only[1]] == ["framework-does-not-know-this-numpy"]
    assert (comparison.changes[0].question, comparison.changes[0].part) == ("packages", "numba")
    text = compared.render(a, b, comparison)
    assert "A was not checked for it: no GPU was measured in this run" in text
    assert "none of which is proven to cause the problems in B" in text
    assert comparison.rates == ()  # the counters of another model say nothing about these
    assert "Error counters" not in text


@each("part", ["free_bytes", "free_files"])
def test_what_moves_all_the_time_is_no_difference(part: str) -> None:
    taken = load("workstation")
    replies = {**taken.replies, "home": Reply("ok", {"path": "/x", part: 63_000_000_000})}
    later = with_reply(replace(taken, replies=replies), "home", part, 62_000_000_000)
    assert comparing.compare(opened(replace(taken, replies=replies)), opened(later)).is_same


def test_a_question_that_ran_out_of_time_is_no_difference() -> None:
    taken = load("workstation")
    slow, quick = (
        replace(taken, replies={**taken.replies, "command:podman --version": reply})
        for reply in (Reply("timeout"), Reply("ok", {"code": 0, "out": "podman version 4.3.1\n", "err": ""}))
    )
    assert comparing.compare(opened(slow), opened(quick)).is_same


def test_the_hosts_of_two_containers_are_compared_too() -> None:
    taken = load("image-on-h200-x2-one-hidden")
    host = with_reply(replace(taken, replies=taken.host), "environment", "NCCL_P2P_DISABLE", "1").replies
    one, other = opened(taken), opened(replace(taken, host=host))
    comparison = comparing.compare(one, other)
    [change] = comparison.changes
    assert (change.question, change.part) == ("host:environment", "NCCL_P2P_DISABLE")
    assert compared.label(change) == "on the host, variable NCCL_P2P_DISABLE"


def test_what_decides_on_a_host_is_proven() -> None:
    taken = load("image-on-h200-x2-one-hidden")
    host = with_reply(replace(taken, replies=taken.host), "nvml:gpu0", "EnforcedPowerLimit", 200000).replies
    comparison = comparing.compare(opened(taken), opened(replace(taken, host=host)))
    assert [(entry.problem, entry.on_host) for entry in comparison.only[1]] == [("sw-power-cap-low-limit", True)]
    assert [change.question for change in comparison.changes if change.decides] == ["host:nvml:gpu0"]


def test_reports_without_answers_are_compared_by_what_they_hold(tmp_path: Path) -> None:
    slower = Figure("GEMM bf16", 500.0, "TFLOP/s", 0, 692.3)
    worse = replace(REPORT, measured=Measurements({"gemm": (slower,)}), facts={**REPORT.facts, "driver_version": "1.2"})
    for name, report in (("a.json", replace(REPORT, diagnosis=())), ("b.json", worse)):
        (tmp_path / name).write_text(formats.render("json", report))
    result = run("diff", str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    assert result.exit_code == 1
    assert "Only in B\n  ✗ driver-library-version-mismatch: " in result.stdout
    assert "driver_version\n     A  999.88.77\n     B  1.2\n" in result.stdout
    assert "GPU 0 GEMM bf16: 693 TFLOP/s in A, 500 in B (72%)" in result.stdout


@pytest.mark.parametrize("names", [("empty", "healthy"), ("healthy", "empty")])
def test_what_was_not_looked_at_is_not_called_healthy(names: tuple[str, str], tmp_path: Path) -> None:
    snapshots = {"empty": Snapshot(SNAPSHOT_SCHEMA, "0", "2026-01-01T00:00:00Z", {}), "healthy": load("workstation")}
    paths = [tmp_path / f"{name}.json" for name in names]
    for path, name in zip(paths, names, strict=True):
        path.write_bytes(snapshot.dump(snapshots[name]))
    result = run("diff", *map(str, paths), "--no-redact")
    assert result.exit_code == 1
    assert f"No problems found, but no check could run in {'AB'[names.index('empty')]}.\n" in result.stdout


def test_a_check_that_broke_is_not_called_healthy() -> None:
    broken = replace(HEALTHY, checks=(replace(HEALTHY.checks[0], status=Status.ERROR),))
    one, other = Opened("one", HEALTHY, None), Opened("other", broken, None)
    comparison = comparing.compare(one, other)
    assert not comparison.is_same
    assert "No problems found, but a check stopped with an error in B." in compared.render(one, other, comparison)


def test_a_loss_is_as_large_a_difference_as_the_gain_that_undoes_it() -> None:
    def measured(**values: float) -> Opened:
        figures = {"gemm": tuple(Figure(name, value, "TFLOP/s", 0) for name, value in values.items())}
        return Opened("machine", replace(HEALTHY, measured=Measurements(figures)), None)

    before = measured(gained=100.0, lost=100.0, gone=100.0, same=100.0)
    figures = comparing.compare(before, measured(gained=250.0, lost=25.0, gone=0.0, same=101.0)).figures
    assert [each.one.what for each in figures] == ["gone", "lost", "gained"]


def test_json_names_both(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(formats.render("json", HEALTHY))
    plain = json.loads(run("diff", str(path), str(path), "--format", "json", "--no-redact").stdout)
    assert (plain["schema"], plain["a"], plain["b"]) == ("gpudoctor.diff/1", str(path), str(path))


def test_files_are_named_to_others_as_they_were_typed_but_for_their_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alice-project").mkdir()
    monkeypatch.chdir(tmp_path / "alice-project")
    for name in ("monday.json", "today.json"):
        (tmp_path / name).write_bytes(snapshot.dump(load("workstation")))
    result = run("diff", "../monday.json", str(tmp_path / "today.json"))
    assert "  monday.json: Ubuntu" in result.stdout
    assert "  today.json: Ubuntu" in result.stdout
    plain = run("diff", "../monday.json", "../today.json", "--no-redact")
    assert "  ../monday.json: Ubuntu" in plain.stdout


@pytest.mark.parametrize("hosts", [("falcon-canary", "other-machine"), ("other-machine", "falcon-canary")])
def test_a_file_that_is_called_as_one_of_the_machines_does_not_tell_its_name(hosts: tuple[str, str], tmp_path: Path) -> None:
    paths = [tmp_path / "falcon-canary.json", tmp_path / "b.json"]
    for path, host in zip(paths, hosts, strict=True):
        taken = load("workstation")
        path.write_bytes(snapshot.dump(with_reply(taken, "identity", "hostname", host)))
    result = run("diff", *map(str, paths))
    assert "falcon" not in result.stdout
    assert result.exit_code == 0


@each(
    ("value", "part", "other", "wanted"),
    [
        ({"a": 1, "b": 2}, "a", {"a": 3}, {"a": 3, "b": 2}),
        ({"a": 1, "b": 2}, "a", {"b": 2}, {"b": 2}),
        (
            [{"name": "x", "v": 1}, {"name": "y", "v": 1}],
            "x",
            [{"name": "x", "v": 2}],
            [{"name": "x", "v": 2}, {"name": "y", "v": 1}],
        ),
        ("ID=a\nV=1\n", "V", "ID=b\nV=2\n", "ID=a\nV=2\n"),
        (
            {"code": 0, "out": "a\nb\n", "err": ""},
            "code",
            {"code": 9, "out": "", "err": ""},
            {"code": 9, "out": "a\nb\n", "err": ""},
        ),
        ("one", "", "two", "two"),
        (3, "", 4, 4),
    ],
)
def test_one_part_is_exchanged(value: object, part: str, other: object, wanted: object) -> None:
    assert parts.exchanged(Reply("ok", value), part, Reply("ok", other)).value == wanted


def test_of_many_in_one_answer_one_is_shown() -> None:
    changes = [Change("libraries", f"lib{number}", 1, 2) for number in range(70)] + [Change("nvml", "count", 1, 2)]
    assert [(change.part, alike) for change, alike in compared._first(changes)] == [("lib0", 69), ("count", 0)]


def test_long_texts_are_shown_where_they_differ() -> None:
    first, second = compared.shown(Change("x", "", "same " * 100 + "old end", "same " * 100 + "new"), 40)
    assert (first.endswith("old end"), second.endswith("new"), first[0]) == (True, True, "…")


def test_lines_are_short_and_show_what_is_not_the_same() -> None:
    change = Change("pci", "functions", {"same": 1, "width": 16}, {"same": 1, "width": 4})
    assert compared.shown(change, 40) == ("width (16)", "width (4)")
    lists = Change("glob:/etc/*", "", ["a", "b"], ["b"])
    assert compared.shown(lists, 40) == ("a", "nothing")
    assert compared.label(lists) == "files /etc/*"
    assert len(compared.shown(Change("x", "", "y" * 500, ""), 40)[0]) == 40
