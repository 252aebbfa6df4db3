"""Whatever is in a file, gpudoctor reports or refuses it: mutations of fixed seeds, through all that opens and renders it.

GPUDOCTOR_FUZZ multiplies their number (`make fuzz`), GPUDOCTOR_FUZZ_SEED begins elsewhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import machine
import msgspec
import mutating
import pytest
from each import in_parts
from test_report import REPORT

from gpudoctor import catalog, comparing, doctor, evidence, hanging, protocol, redaction, settings
from gpudoctor.containers.images import lock
from gpudoctor.errors import UserError, WorkError
from gpudoctor.files import baseline, bundle, expectation, opening, page, snapshot
from gpudoctor.knowledge import expectations
from gpudoctor.lint import files as lint
from gpudoctor.model import Opened, Report, Snapshot, Status
from gpudoctor.repair import plan, script
from gpudoctor.report import bundle as packing
from gpudoctor.report import compared, formats, tickets

TIMES = int(os.environ.get("GPUDOCTOR_FUZZ", "1"))
SEED = int(os.environ.get("GPUDOCTOR_FUZZ_SEED", "0"))
HERE = Path(__file__).parent
CASES = (
    *("h100-measured", "container-beside-dead-gpu", "container-start-with-gpu", "no-gpu", "h200-x2-measured"),
    *("hang-nccl-recorders", "command-slow", "profiled-compiles-in-steps", "watched-cpu-job"),
)
REFUSED = (UserError, WorkError)
PIN = f"reference: nvcr.io/b:1\n    digest: sha256:{'0' * 64}\n    date: '2026-01-02'"


def seeds(count: int) -> range:
    return range(SEED, SEED + count * TIMES)


@functools.cache
def plain(case: str) -> tuple[Any, list[tuple[Any, ...]]]:
    found = json.loads(snapshot.dump(machine.load(case)))
    return found, mutating.places(found)


def mutated_snapshot(by: random.Random) -> bytes:
    """Questions are chosen first, so that those with long answers are not chosen more often."""
    value, places = plain(by.choice(CASES))
    question = by.choice(sorted({place[:2] for place in places if len(place) > 1}, key=str))
    among = [place for place in places if place[:2] == question]
    return json.dumps(mutating.changed(value, among if by.random() < 0.85 else places, by)).encode()


def opened(data: bytes) -> Snapshot | None:
    try:
        return opening.safely(opening._snapshot, data, "x.json")
    except REFUSED:
        return None


@functools.cache
def unhurt() -> Opened:
    taken = machine.load("no-gpu")
    return Opened("b", doctor.judge_at_its_level(taken), taken)


@pytest.mark.slow
@in_parts("seed", seeds(20), size=5)
def test_a_snapshot(seed: int) -> None:
    by = random.Random(seed)
    taken = opened(mutated_snapshot(by))
    if taken is None:
        return
    report = doctor.judge_at_its_level(taken)
    assert [row for row in report.checks if row.status is Status.ERROR] == []
    for form in by.sample(sorted(formats.FORMATS), 2):
        formats.render(form, report, taken).encode()
    script.render(plan.ordered(plan.of_report(report.diagnosis)), str(report.target.get("distribution", "")), [])
    redacted = redaction.redacted(taken)
    packing.packed(doctor.judge_at_its_level(redacted.snapshot), redacted.snapshot, redacted.sweep)
    redacted.summary()
    tickets.render(by.choice(tuple(tickets.FORMS)), report, taken)
    as_opened = Opened("a", report, taken)
    other = unhurt()
    comparison = comparing.compare(other, as_opened)
    compared.render(other, as_opened, comparison)
    compared.as_json(other, as_opened, comparison)


@pytest.mark.slow
@in_parts("seed", seeds(60))
def test_a_report(seed: int) -> None:
    by, value = random.Random(seed), json.loads(formats.render("json", REPORT))
    data = json.dumps(mutating.changed(value, mutating.places(value), by)).encode()
    try:
        report = opening.safely(opening._report, data, "x.json")
    except REFUSED:
        return
    assert isinstance(report, Report)
    for form in formats.FORMATS:
        formats.render(form, report).encode()
    opening.of_answers(redaction.redacted(opening.as_answers(report)).snapshot)
    script.render(plan.ordered(plan.of_report(report.diagnosis)), "", [])


@functools.cache
def packed() -> bytes:
    return gzip.decompress(packing.packed(REPORT, machine.load("no-gpu")))


@pytest.mark.slow
@in_parts("seed", seeds(50))
def test_a_bundle(seed: int) -> None:
    by = random.Random(seed)
    size = by.choice((1, 7, 512, 1 << 20))
    data = mutating.data(packed(), by)
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    with contextlib.suppress(*REFUSED):
        opening.safely(opening._snapshot, bundle.snapshot_in(pieces, "b"), "b")


@functools.cache
def html() -> str:
    return formats.render("html", REPORT, machine.load("no-gpu"))


@in_parts("seed", seeds(60))
def test_a_page(seed: int) -> None:
    by = random.Random(seed)
    around = html().index(page.TYPE)
    text = html()[around - 300 : around + 3000] if by.random() < 0.5 else html()
    opened(mutating.text(text, by).encode("utf-8", "replace"))


@in_parts("seed", seeds(150))
def test_a_baseline(seed: int, tmp_path: Path) -> None:
    by = random.Random(seed)
    value = {"schema": baseline.SCHEMA, "gpus": {"GPU-1": {"name": "H100", "taken": "2026", "figures": {"copy": 1.5}}}}
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps(mutating.changed(value, mutating.places(value), by)))
    with contextlib.suppress(*REFUSED):
        baseline.as_text(baseline.read(file))


@in_parts("seed", seeds(50), size=5)
def test_an_expectation(seed: int, tmp_path: Path) -> None:
    by = random.Random(seed)
    (tmp_path / "e.yaml").write_text(mutating.text(by.choice(expected()), by))
    with contextlib.suppress(*REFUSED):
        judged = dataclasses.replace(machine.load("no-gpu"), expectation=expectation.named(str(tmp_path / "e.yaml")))
        formats.render("text", doctor.judge(judged, doctor.select(catalog.checks(), "quick", ["expectation"])), judged)


@functools.cache
def expected() -> tuple[str, ...]:
    kinds = expectations.table().types[:: max(1, len(expectations.table().types) // 20)]
    return tuple(expectation.dump(kind.expectation) for kind in kinds)


@in_parts("seed", seeds(60), size=5)
def test_settings_of_a_project(seed: int, tmp_path: Path) -> None:
    by = random.Random(seed)
    text = '[project]\nname = "x"\n[tool.gpudoctor]\nlevel = "quick"\nredact = true\n'
    text += '[tool.gpudoctor.ignore]\nxids = { reason = "known", until = 2099-01-31 }\n'
    (tmp_path / "pyproject.toml").write_text(mutating.text(text, by))
    with contextlib.suppress(*REFUSED):
        settings._merged.__wrapped__(((tmp_path / "pyproject.toml", by.random() < 0.5),))


@in_parts("seed", seeds(20), size=5)
def test_a_dump_of_the_flight_recorder(seed: int, tmp_path: Path) -> None:
    by = random.Random(seed)
    value, among = recorded()
    data = json.dumps(mutating.changed(value, among, by)).encode()
    if by.random() < 0.4:
        data = mutating.data((HERE / "recorders" / "trace_rank_1").read_bytes(), by)
    (tmp_path / "trace_rank_0").write_bytes(data)
    files = (str(tmp_path / "trace_rank_0"), str(HERE / "recorders" / "trace_rank_1"))
    with contextlib.suppress(*REFUSED):
        found = hanging.looked(hanging.Asked(None, None, 1, False, False, files), lambda words: None)
        found.render("text")
        assert found.snapshot
        snapshot.parse(snapshot.dump(found.snapshot), "it")


@functools.cache
def recorded() -> tuple[Any, list[tuple[Any, ...]]]:
    value = json.loads((HERE / "recorders" / "trace_rank_0.json").read_text())
    return value, mutating.places(value)


@in_parts("seed", seeds(150))
def test_a_lock_file(seed: int, tmp_path: Path) -> None:
    text = mutating.text(f"images:\n  a:\n    {PIN}\n  b:\n    {PIN}\n", random.Random(seed))
    (tmp_path / "lock").write_text(text)
    with contextlib.suppress(*REFUSED):
        lock.dump(lock.read(tmp_path / "lock"))


@functools.cache
def pasted() -> list[str]:
    texts = sorted((HERE / "texts").glob("*.yaml"))[::40]
    shown = [path.read_text() for path in sorted((HERE / "evidence").iterdir()) if path.suffix in (".txt", ".log", ".xml")]
    return [*shown, *(path.read_text() for path in texts)]


@pytest.mark.slow
@in_parts("seed", seeds(30))
def test_a_pasted_text(seed: int) -> None:
    by = random.Random(seed)
    text = "".join(mutating.text(by.choice(pasted())[:20_000], by) for _ in range(by.choice((1, 2))))
    taken = evidence.snapshot_of(evidence.of_text(text))
    report = doctor.judge_at_its_level(taken)
    formats.render("text", report, taken)
    redaction.redacted(taken)


@functools.cache
def linted() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted((HERE / "lint").rglob("*.*")):
        if path.is_file() and (kind := lint.kind_of_name(path.name)):
            found.setdefault(kind, []).append(path.read_text())
    return found


@in_parts("seed", seeds(400))
def test_a_file_to_lint(seed: int) -> None:
    by = random.Random(seed)
    kind = by.choice(sorted(linted()))
    with contextlib.suppress(*REFUSED):
        lint.lint_text(mutating.text(by.choice(linted()[kind]), by), kind, "x")


@in_parts("seed", seeds(200))
def test_a_reply_of_a_child(seed: int) -> None:
    by = random.Random(seed)
    value, _ = plain("h100-measured")
    question, reply = by.choice(sorted(value["replies"].items()))
    whole = {"status": "ok", "value": None, "detail": "", "seconds": 0.0, **reply}
    said = {"question": question, "reply": whole}
    line = json.dumps(mutating.changed(said, mutating.places(said), by)).encode()
    heard = protocol.message(mutating.data(line, by) if by.random() < 0.3 else line)
    if "question" in heard:
        kept = protocol.reply(heard)
        assert msgspec.json.decode(msgspec.json.encode(kept))["status"] in protocol.STATUSES
