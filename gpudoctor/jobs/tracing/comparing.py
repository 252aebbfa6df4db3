"""The differences between two saved profiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from gpudoctor.errors import UserError
from gpudoctor.facts import Facts
from gpudoctor.facts.guarded import WRONG
from gpudoctor.facts.job.traced import QUESTION, Traced
from gpudoctor.files import opening
from gpudoctor.judging.jobs import traced_changes
from gpudoctor.judging.jobs.traced_changes import Change, Compared
from gpudoctor.model import Skip
from gpudoctor.plain import plain

LEAST = 0.0005
TITLES = {"part": "Parts of a {}", "kernel": "Kernels", "wait": "Waits of the host for the GPU"}


@dataclass(frozen=True)
class Both:
    """ranks: (number, how its two profiles differ). names: of the two programs."""

    names: tuple[str, str]
    ranks: tuple[tuple[int | None, Compared], ...]

    @property
    def is_slower(self) -> bool:
        return any(compared.is_slower for _, compared in self.ranks)

    def as_json(self) -> str:
        ranks = [{"rank": number, **compared.as_value()} for number, compared in self.ranks]
        value = {"before": self.names[0], "after": self.names[1], "slower": self.is_slower, "ranks": ranks}
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"

    def as_text(self) -> str:
        return "\n".join(plain(line) for line in self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        for number, found in self.ranks:
            where = "" if number is None else f"rank {number}: "
            ratio = found.after / found.before if found.before else 0.0
            said = f"{abs(ratio - 1):.1%} {'slower' if ratio > 1 else 'faster'}".replace("%", " %")
            said = said if abs(ratio - 1) >= LEAST else "unchanged"
            yield f"{where}a {found.unit} takes {found.after:.3f} ms instead of {found.before:.3f} ms ({said})"
            for name, (before, after) in found.settings.items():
                yield f"  setting {name}: {before} before, {after} after"
            for kind, title in TITLES.items():
                rows = [change for change in found.changes if change.kind == kind]
                if rows:
                    yield ""
                    yield f"{title.format(found.unit)}, in ms"
                    yield from _table(rows)
            yield ""


def _table(rows: list[Change]) -> Iterator[str]:
    width = min(70, max(len(row.name) for row in rows))
    yield f"  {'':<{width}}  {'before':>10}  {'after':>10}  {'change':>10}"
    for row in rows:
        name = row.name if len(row.name) <= width else row.name[: width - 1] + "…"
        yield f"  {name:<{width}}  {row.before:>10.3f}  {row.after:>10.3f}  {row.by:>+10.3f}"


def compared(before: str, after: str) -> Both:
    """UserError if one of the files is no snapshot with a profile of a GPU program."""
    one, other = _opened(before), _opened(after)
    ranks = {rank.number: rank for rank in other.ranks}
    pairs = [(rank, ranks[rank.number]) for rank in one.ranks if rank.number in ranks]
    if not pairs:
        pairs = [(one.ranks[0], other.ranks[0])]
    try:
        return Both((one.line, other.line), tuple((rank.number, traced_changes.compared(rank, match)) for rank, match in pairs))
    except (Skip, *WRONG) as failure:
        raise UserError(f"these profiles cannot be compared: {failure}") from None


def _opened(name: str) -> Traced:
    taken = opening.taken_in(name)
    if QUESTION not in taken.replies:
        raise UserError(f"{name} contains no profile (gpudoctor profile --save FILE -- COMMAND)")
    traced = Facts(taken).job.traced
    try:
        _ = traced.ranks
    except Skip as skip:
        raise UserError(f"{name}: {skip.reason}") from None
    return traced
