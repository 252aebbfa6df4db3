"""A page for each node of a fleet that differs from the others: its own report, made from its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gpudoctor import checkup
from gpudoctor.checkup import Checkup
from gpudoctor.cli import output
from gpudoctor.errors import UserError
from gpudoctor.files import opening
from gpudoctor.fleet.model import Fleet
from gpudoctor.fleet.nodesets import is_name
from gpudoctor.fleet.redacting import Redactor
from gpudoctor.report.fleet.html import differs


def write(
    fleet: Fleet, folder: Path, files: Mapping[str, str], redactor: Redactor | None, tell: Callable[[str], object]
) -> dict[str, Path]:
    """Name of a node in the report -> its page. files: real name of a node -> its file."""
    wanted = {node.name for node in fleet.nodes if differs(node) and node.state.has_answered and is_name(node.name)}
    shown = {(redactor.shown(name) if redactor else name): (name, path) for name, path in files.items()}
    pages: dict[str, Path] = {}
    for node in filter(shown.__contains__, sorted(wanted)):
        tell(f"Writing page {len(pages) + 1} of {len(wanted)}")
        try:
            found = checkup.load(shown[node][1])
        except UserError:  # changed since it was judged
            continue
        pages[node] = folder / f"{node}.html"
        output.write(pages[node], _redacted(found, shown[node][0], redactor).to_html().encode("utf-8", "replace"))
    return pages


def _redacted(found: Checkup, name: str, redactor: Redactor | None) -> Checkup:
    if redactor is None:
        return found
    taken = redactor.snapshot(found.snapshot or opening.as_answers(found.report), (name,))
    return Checkup(snapshot=taken) if found.snapshot else Checkup(opening.of_answers(taken))
