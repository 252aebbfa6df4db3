"""The table of loaded libraries."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model import Report
from gpudoctor.plain import plain
from gpudoctor.report.section import Section

HEAD = ("Library", "Loaded by", "From", "Also installed")
_UNKNOWN = "unknown"  # as an owner


def sections(report: Report) -> Iterator[Section]:
    found = report.facts.get("loaded_libraries")
    if isinstance(found, list) and found:
        by_row: dict[tuple[str, ...], list[str]] = {}
        for row in found:
            by_row.setdefault(_row(row), []).append(str(row["framework"]))
        rows = ((library, ", ".join(frameworks), *rest) for (library, *rest), frameworks in by_row.items())
        yield Section("Loaded GPU libraries", HEAD, tuple(tuple(map(plain, row)) for row in rows))


def _row(row: dict[str, object]) -> tuple[str, ...]:
    """Without the files: JSON has them, and the finding about a file names it."""
    others = row["also_installed"]
    versions = [str(other).partition(" ")[0] for other in others] if isinstance(others, list) else []
    owner = str(row["owner"])
    return str(row["soname"]), str(row["path"]) if owner == _UNKNOWN else owner, ", ".join(versions) or "-"
