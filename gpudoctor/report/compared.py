"""How two machines differ, as text and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import msgspec
from rich.text import Text

from gpudoctor.comparing import ABSENT, Change, Comparison, unchecked
from gpudoctor.comparing.deciding import HOST
from gpudoctor.comparing.parts import STATUS, WHOLE
from gpudoctor.model import Diagnosis, Opened, Report, Status
from gpudoctor.plain import plain
from gpudoctor.report import findings, heading, overview, words
from gpudoctor.report.json import INTERNAL, hide
from gpudoctor.report.layout import Lines, Page, cut, signed

SCHEMA = "gpudoctor.diff/1"
LETTERS = ("A", "B")
_SHOWN, _FIGURES, _ALIKE = 12, 10, 3  # -v shows all
_INDENT = " " * 5
_OF_SNAPSHOTS = {"on": [], "recipe": ""}
_HEX, _OCTAL = ("vendor", "device", "class", "subsystem_vendor", "subsystem_device"), ("mode",)
_LABELS = (
    (r"environment", "variable {part}"),
    (r"packages", "Python package {part}"),
    (r"os-packages", "system package {part}"),
    (r"libraries", "library {part}"),
    (r"nvml:gpu(\d+)", "GPU {0}, {part}"),
    (r"file:(.*)", "{0}"),
    (r"glob:(.*)", "files {0}"),
    (r"command:(.*)", "`{0}`"),
    (r"machine|fact", "{part}"),
)


def render(
    one: Opened, other: Opened, comparison: Comparison, width: int = 80, colours: bool = False, verbose: bool = False
) -> str:
    page = Page.fitting(width, verbose)
    return page.printed(_Lines(page, one, other, comparison).all(), colours)


def as_json(one: Opened, other: Opened, comparison: Comparison) -> str:
    plain = msgspec.to_builtins(comparison, enc_hook=str, str_keys=True)
    entries = [*plain["only"][0], *plain["only"][1], *plain["both"]]
    hide(entries, INTERNAL)
    for entry in entries:  # a report leaves out what a snapshot tells
        entry["fixes"] = [{**_OF_SNAPSHOTS, **fix} for fix in entry["fixes"]]
    names = {"schema": SCHEMA, "a": one.name, "b": other.name}
    return msgspec.json.format(msgspec.json.encode({**names, **plain}), indent=2).decode() + "\n"


@dataclass(frozen=True)
class _Lines:
    page: Page
    one: Opened
    other: Opened
    comparison: Comparison

    def all(self) -> Lines:
        for letter, verdict, opened in zip(LETTERS, self.comparison.verdicts, (self.one, self.other), strict=True):
            report = opened.report
            taken = report.target.get("taken", "at an unknown time")
            about = f"{opened.name}: {heading.system(report)}; {heading.gpus(report)}; taken {taken}"
            yield from signed(verdict, self.page.wrap(about, f"{letter}  {words.label(verdict)}  ", " " * 11))
        yield Text()
        yield from self._overview()
        if self.comparison.is_same:
            moved = " that tells anything: only times, numbers of parts, readings that always move, and what only one was asked"
            moved *= bool(self.comparison.changes)
            yield from self.page.paragraph(f"Nothing differs{moved}.")
            return
        yield from self._problems()
        yield from self._changes()
        yield from self._figures()
        yield from self._rates()

    def _overview(self) -> Lines:
        """What people compare first."""
        one, other = overview.rows(self.one.report), overview.rows(self.other.report)
        for name in dict.fromkeys((*one, *other)):
            a, b = one.get(name, "none"), other.get(name, "none")
            said = a if a == b else f"A {a}; B {b}"
            yield from self.page.paragraph(said, f"{'  ' if a == b else '≠ '}{name:<8} ", " " * 11)
        if one or other:
            yield Text()

    def _problems(self) -> Lines:
        for letter, found, other in zip(LETTERS, self.comparison.only, (self.other, self.one), strict=True):
            yield from self._found(f"Only in {letter}", found, other.report)
        yield from self._found("In both", self.comparison.both)
        if not any((*self.comparison.only, self.comparison.both)):
            yield from self.page.paragraph(self._nothing_wrong())
            yield Text()

    def _nothing_wrong(self) -> str:
        verdicts = tuple(zip(LETTERS, self.comparison.verdicts, strict=True))
        but = [f"no check could run in {letter}" for letter, verdict in verdicts if verdict is Status.SKIP]
        but += [f"a check stopped with an error in {letter}" for letter, verdict in verdicts if verdict is Status.ERROR]
        return f"No problems found, but {' and '.join(but)}." if but else "No problems found in either of them."

    def _found(self, title: str, found: tuple[Diagnosis, ...], other: Report | None = None) -> Lines:
        if not found:
            return
        yield Text(title, "bold")
        for group in findings.groups(found):
            first = group[0]
            said = f"{first.problem}: {'; '.join(findings.seen_by_all(group))}"
            yield from signed(first.status, self.page.short(said, f"  {words.SIGNS[first.status]} ", _INDENT))
            if other and (reason := unchecked(first, other)):
                letter = LETTERS[other is self.other.report]
                yield from map(Text, self.page.short(f"{letter} was not checked for it: {reason}", _INDENT, _INDENT))
        yield Text()

    def _changes(self) -> Lines:
        telling = [change for change in self.comparison.changes if not change.is_noise]
        shown = [(change, 0) for change in self.comparison.changes] if self.page.verbose else _first(telling)
        if not shown:
            return
        worse = self.comparison.worse
        title = "Differences"
        if worse is not None and any(change.decides for change, _ in shown):
            title += f", most likely cause of the problems in {LETTERS[worse]} first"
        elif worse is not None and self.comparison.only[worse]:
            title += f", none of which is proven to cause the problems in {LETTERS[worse]}"
        yield Text(title, "bold")
        for change, alike in shown:
            yield from self._change(change, alike)
        told = sum(1 + alike for _, alike in shown)
        if more := len(self.comparison.changes) - told:
            yield Text(f"{more} more, {len(telling) - told} of them possibly relevant (-v)")
        yield Text()

    def _change(self, change: Change, alike: int) -> Lines:
        sign = "→" if change.decides else "·"
        said = label(change) + (f", and {alike} more like it (-v)" if alike else "")
        yield from map(Text, self.page.wrap(said, f"  {sign} ", _INDENT))
        room = self.page.width - len(_INDENT) - 3
        for letter, line in zip(LETTERS, shown(change, room), strict=True):
            yield Text(f"{_INDENT}{letter}  {line}")
        if change.decides and self.comparison.worse is not None:
            better, worse = LETTERS[1 - self.comparison.worse], LETTERS[self.comparison.worse]
            gone = f"With the value of {better}, {worse} would not have {' and '.join(change.decides)}."
            yield from self.page.paragraph(gone, _INDENT, _INDENT)

    def _figures(self) -> Lines:
        figures = self.comparison.figures
        for number, each in enumerate(figures):
            if number == 0:
                yield Text("Different measurements", "bold")
            if number >= _FIGURES and not self.page.verbose:
                yield Text(f"  and {len(figures) - number} more (-v)")
                return
            gpu = "" if each.one.gpu is None else f"GPU {each.one.gpu} "
            values = f"{each.one.value:.4g} {each.one.unit} in A, {each.other.value:.4g} in B"
            yield Text(f"  {gpu}{each.one.what}: {values} ({each.ratio:.0%})")

    def _rates(self) -> Lines:
        """The error counters that rose, the unusual ones first."""
        rates = sorted(self.comparison.rates, key=lambda rate: (not rate.limit, rate.gpu, rate.counter))
        if not rates:
            return
        if self.comparison.figures:
            yield Text()
        yield Text("Error counters that rose from the earlier to the later snapshot", "bold")
        for number, rate in enumerate(rates):
            if number >= _FIGURES and not self.page.verbose:
                yield Text(f"  and {len(rates) - number} more (-v)")
                return
            since = f" since the {rate.since}" if rate.since else ""
            unusual = ", unusually fast" if rate.limit else ""
            yield Text(f"  GPU {rate.gpu} {rate.counter}: {rate.before:,} to {rate.now:,}, {rate.words}{since}{unusual}")


def _first(telling: list[Change]) -> list[tuple[Change, int]]:
    """All deciding changes and some of the others. Many changes in one reply are shown as the first and a count."""
    deciding = [(change, 0) for change in telling if change.decides]
    shown = list(deciding)
    for _, found in groupby((change for change in telling if not change.decides), key=lambda change: change.question):
        changes = list(found)
        shown += [(changes[0], len(changes) - 1)] if len(changes) > _ALIKE else [(change, 0) for change in changes]
    return shown[: max(_SHOWN, len(deciding))]


def label(change: Change) -> str:
    """`variable NCCL_P2P_DISABLE`, `GPU 0, PowerManagementLimit`, `/etc/nccl.conf`."""
    if change.question.startswith(HOST):
        return f"on the host, {label(replace(change, question=change.question.removeprefix(HOST)))}"
    part = "" if change.part in (WHOLE, STATUS) else change.part
    for pattern, name in _LABELS:
        if match := re.fullmatch(pattern, change.question, re.DOTALL):
            said = name.format(*match.groups(), part=part)
            return said.rstrip(", ") if not part or "{part}" in name else f"{said}, {part}"
    return f"{change.question}, {part}" if part else change.question


def shown(change: Change, room: int) -> tuple[str, str]:
    """Each value in one line; lists and records show only what differs."""
    one, other = change.one, change.other
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [key for key in dict.fromkeys((*one, *other)) if one.get(key) != other.get(key)]
        one, other = ({key: value[key] for key in keys if key in value} for value in (one, other))
    if isinstance(one, list) and isinstance(other, list):
        one, other = _without(one, other), _without(other, one)
    one, other = _readable(one), _readable(other)
    lines = _line(one, room), _line(other, room)
    if lines[0] != lines[1] or one == other:
        return lines
    pairs = zip(str(one), str(other), strict=False)  # the difference is after the end of the cut line
    same = next((place for place, (first, second) in enumerate(pairs) if first != second), 0)
    start = max(0, same - room // 4)
    return _line(f"…{str(one)[start:]}", room), _line(f"…{str(other)[start:]}", room)


def _readable(value: Any, key: str = "") -> Any:
    """Ids of PCI as lspci prints them, modes of files as chmod takes them."""
    if isinstance(value, dict):
        return {name: _readable(item, str(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [_readable(item, key) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and key in (*_HEX, *_OCTAL):
        return f"{value:0{6 if key == 'class' else 4}x}" if key in _HEX else f"{value & 0o7777:04o}"
    return value


def _without(items: list[Any], others: list[Any]) -> list[Any]:
    return [item for item in items if item not in others]


def _line(value: Any, room: int) -> str:
    if value == ABSENT:
        return "absent"
    said = " ".join(_words(value))
    return cut(plain(" ".join(said.split())) or "nothing", room)


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, list) and value and not any(isinstance(item, (dict, list)) for item in value):
        yield f"{len(value)} more: " if len(value) > 1 else ""
        yield findings.value(value[:20])
    else:
        yield findings.value(value)
