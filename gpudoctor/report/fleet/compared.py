"""How a fleet changed between two days, as text and as JSON."""

from __future__ import annotations

import msgspec
from rich.text import Text

from gpudoctor.fleet.comparing import SCHEMA, Comparison
from gpudoctor.model import Status
from gpudoctor.report import words
from gpudoctor.report.layout import Lines, Page, signed

_TITLES = {"worse": "Worse", "changed": "Changed", "better": "Better"}
_SHOWN = 20  # of each kind; -v shows all


def render(comparison: Comparison, width: int = 80, colours: bool = False, verbose: bool = False) -> str:
    page = Page.fitting(width, verbose)
    return page.printed(_lines(page, comparison), colours)


def _lines(page: Page, comparison: Comparison) -> Lines:
    rows = zip(("Old", "New"), comparison.verdicts, comparison.nodes, comparison.lost_gpus, strict=True)
    for name, verdict, nodes, lost in rows:
        yield Text(f"{name}  {words.label(verdict)}  {nodes:,} node{'s' * (nodes != 1)}, {lost:,} GPU{'s' * (lost != 1)} lost")
    if comparison.is_same:
        yield Text("\nNo node changed.")
    for kind, title in _TITLES.items():
        changes = [change for change in comparison.changes if change.kind == kind]
        if not changes:
            continue
        yield Text()
        yield Text(title, "bold")
        for change in changes if page.verbose else changes[:_SHOWN]:
            count = f" ({len(change.names)} nodes)" if len(change.names) > 1 else ""
            sign = "·" if change.status is Status.PASS else words.SIGNS[change.status]
            said = page.wrap(f"{change.nodes}{count}: {change.what}", f"  {sign} ", "    ")
            yield from map(Text, said) if sign == "·" else signed(change.status, said)
        if not page.verbose and len(changes) > _SHOWN:
            yield Text(f"  and {len(changes) - _SHOWN} more (-v)")


def as_json(comparison: Comparison) -> str:
    plain = msgspec.to_builtins(comparison, enc_hook=str)
    return msgspec.json.format(msgspec.json.encode({"schema": SCHEMA, **plain}), indent=2).decode() + "\n"
