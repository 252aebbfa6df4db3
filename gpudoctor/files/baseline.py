"""The baseline: figures of this machine's healthy GPUs, in a file that later runs are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpudoctor import folders
from gpudoctor.errors import UserError
from gpudoctor.facts import Facts
from gpudoctor.facts import counters as error_counters
from gpudoctor.judging.measured import expect
from gpudoctor.model import Figure, Report, Skip, Snapshot

SCHEMA = "gpudoctor.baseline/1"

Values = dict[str, dict[str, float]]


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """UUID of a GPU -> its name, when it was measured, and figure -> value."""

    schema: str
    gpus: dict[str, Saved]


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    taken: str
    figures: dict[str, float]
    units: dict[str, str] = {}  # empty in files of older versions
    counters: dict[str, Any] = {}  # likewise; facts/counters.py


def default_path() -> Path:
    return folders.state() / "baseline.json"


def load(path: Path | None = None) -> Values:
    """UUID -> figure -> value; empty if none was saved. UserError if a given file cannot be read."""
    return {uuid: saved.figures for uuid, saved in read(path).gpus.items()}


def counters(path: Path | None = None) -> dict[str, dict[str, Any]]:
    """UUID -> its error counters at that time, of GPUs of which they were saved."""
    return {uuid: saved.counters for uuid, saved in read(path).gpus.items() if saved.counters}


def read(path: Path | None = None) -> Baseline:
    try:
        file = path or default_path()
    except folders.NoHome:
        return Baseline(schema=SCHEMA, gpus={})
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Baseline)
    except OSError as failure:
        if path is None:
            return Baseline(schema=SCHEMA, gpus={})
        raise UserError(f"cannot read {file}: {failure.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as failure:
        raise UserError(f"{file} is not a gpudoctor baseline: {failure}") from None
    if found.schema != SCHEMA:
        raise UserError(f"{file} is not a baseline that this version can read: its schema is {found.schema!r}")
    return found


def kept(path: Path) -> Baseline:
    """The content of a file that is about to be replaced; empty if it is not a baseline."""
    try:
        if path.is_file():
            return read(path)
    except UserError:
        pass
    return Baseline(schema=SCHEMA, gpus={})


def of(taken: Snapshot, report: Report) -> Baseline:
    """The figures of one report, by GPU. UserError if nothing was measured."""
    facts = Facts(taken)
    counted = error_counters.of(facts)
    gpus = {}
    for index, figures in _by_gpu(report.measured.figures).items():
        gpu = expect.gpu(facts, index)
        try:
            uuid, name = (gpu.uuid, gpu.name) if gpu else ("", "")
        except Skip:
            continue
        if uuid:
            values = {figure.what: round(figure.value, 4) for figure in figures}
            units = {figure.what: figure.unit for figure in figures}
            counts = counted[uuid].plain if uuid in counted else {}
            gpus[uuid] = Saved(name=name, taken=taken.taken, figures=values, units=units, counters=counts)
    if not gpus:
        raise UserError(
            "the snapshot contains no measurements: take it with gpudoctor check --save FILE, at level standard or full"
        )
    return Baseline(schema=SCHEMA, gpus=gpus)


def _by_gpu(figures: Mapping[str, Sequence[Figure]]) -> dict[int, list[Figure]]:
    found: dict[int, list[Figure]] = {}
    for figure in (figure for each in figures.values() for figure in each):
        if figure.gpu is not None and not figure.wrong:
            found.setdefault(figure.gpu, []).append(figure)
    return found


def of_gpus(new: Baseline, name: Callable[[str], str]) -> Baseline:
    """The baseline with other UUIDs: those of this machine if the snapshot was redacted."""
    return Baseline(schema=SCHEMA, gpus={name(uuid): saved for uuid, saved in new.gpus.items()})


def merged(old: Baseline, new: Baseline) -> Baseline:
    """GPUs that were not measured this time keep their old values."""
    return Baseline(schema=SCHEMA, gpus={**old.gpus, **new.gpus})


def without(old: Baseline, names: Sequence[str]) -> Baseline:
    """Without the GPUs whose UUIDs or names begin so; UserError for one that is not in it."""

    def is_meant(uuid: str, name: str) -> bool:
        return uuid.startswith(name) or uuid.removeprefix("GPU-").startswith(name) or old.gpus[uuid].name == name

    for name in names:
        if not name.strip() or not any(is_meant(uuid, name) for uuid in old.gpus):
            raise UserError(f"no GPU {name or repr(name)} in the baseline; it has {', '.join(old.gpus) or 'none'}")
    gone = {uuid for uuid in old.gpus for name in names if is_meant(uuid, name)}
    return Baseline(schema=SCHEMA, gpus={uuid: saved for uuid, saved in old.gpus.items() if uuid not in gone})


def dump(baseline: Baseline) -> bytes:
    return msgspec.json.format(msgspec.json.encode(baseline), indent=1) + b"\n"


def as_text(baseline: Baseline) -> str:
    """One line per figure, readable and easy to grep."""
    rows: list[str] = []
    for uuid, saved in baseline.gpus.items():
        rows.append(f"{saved.name}  {uuid}  measured {saved.taken}")
        rows += [
            f"  {figure:<44} {_number(value)} {saved.units.get(figure, '')}".rstrip() for figure, value in saved.figures.items()
        ]
    return "\n".join(rows) + "\n"


def _number(value: Any) -> str:
    return f"{value:10.4g}"
