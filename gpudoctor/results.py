"""The results of explain and diff in Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpudoctor.checkup import Checkup, in_short
from gpudoctor.model import Diagnosis

if TYPE_CHECKING:
    from gpudoctor.comparing import Change, Comparison
    from gpudoctor.model import Opened


@dataclass(frozen=True, repr=False)
class Explanation:
    """The meaning of an id, a code, a message or a log. checkup: what the text proves, and the problems in it; None for an id.

    is_known: False if nothing in it is known.
    """

    text: str
    checkup: Checkup | None = None
    is_known: bool = True

    @property
    def diagnosis(self) -> tuple[Diagnosis, ...]:
        return self.checkup.diagnosis if self.checkup else ()

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        first = self.text.strip().partition("\n")[0]
        return f"<gpudoctor.Explanation: {in_short(self.checkup.report) if self.diagnosis and self.checkup else first}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text)

    def _repr_html_(self) -> str:
        from gpudoctor.report import notebook

        return notebook.problems(self.checkup.report) if self.diagnosis and self.checkup else notebook.text(self.text)


@dataclass(frozen=True, repr=False)
class Compared:
    """The differences of two machines, or of two days of one machine."""

    one: Opened
    other: Opened
    comparison: Comparison

    @property
    def is_same(self) -> bool:
        """Whether there is no meaningful difference."""
        return self.comparison.is_same

    @property
    def changes(self) -> tuple[Change, ...]:
        """The differences, starting with the one that most likely explains the worse verdict."""
        return self.comparison.changes

    def to_json(self) -> str:
        from gpudoctor.report import compared

        return compared.as_json(self.one, self.other, self.comparison)

    def __str__(self) -> str:
        from gpudoctor.report import compared

        return compared.render(self.one, self.other, self.comparison)

    def __repr__(self) -> str:
        said = "nothing differs" if self.is_same else f"{len(self.changes)} differences"
        return f"<gpudoctor.Compared: {said}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from gpudoctor.report import notebook

        return notebook.text(str(self))
