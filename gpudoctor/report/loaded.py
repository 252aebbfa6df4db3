"""The table of loaded libraries."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model import Report
from gpudoctor.plain import plain
from gpudoctor.report.section import Section

HEAD = ("Library", "Version", "Loaded by", "Owner", "File", "Also installed")


def sections(report: Report) -> Iterator[Section]:
    found = report.facts.get("loaded_libraries")
    if isinstance(found, list) and found:
        rows = tuple(tuple(map(plain, _row(row))) for row in found)
        yield Section("Loaded GPU libraries", HEAD, rows)


def _row(row: dict[str, object]) -> tuple[str, ...]:
    others = row["also_installed"]
    also = ", ".join(str(other) for other in others) if isinstance(others, list) else ""
    return str(row["soname"]), str(row["version"]) or "-", str(row["framework"]), str(row["owner"]), str(row["path"]), also or "-"
