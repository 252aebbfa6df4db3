"""What the Python API gives: a report with what it was judged from, an explanation, a comparison."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from gpudoctor.choices import FORMATS, PROJECTS, Format, Project
from gpudoctor.errors import UserError
from gpudoctor.files import writing
from gpudoctor.model import Coverage, Diagnosis, Measurements, Report, Result, Snapshot, Status

if TYPE_CHECKING:
    from gpudoctor.comparing import Change, Comparison
    from gpudoctor.model import Opened

PathLike = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True, repr=False)
class Checkup:
    """The verdict on one machine. snapshot: what was asked and answered; None where only a report was kept.

    What is given as text is as the machine said it; what is written to a file is redacted, unless `redact=False`.
    """

    report: Report
    snapshot: Snapshot | None = None

    @property
    def status(self) -> Status:
        """PASS, WARN or FAIL."""
        return self.report.status

    @property
    def diagnosis(self) -> tuple[Diagnosis, ...]:
        """What is wrong, the most severe first; each with its fixes for this machine."""
        return self.report.diagnosis

    @property
    def checks(self) -> tuple[Result, ...]:
        """One row for each check, whatever came of it."""
        return self.report.checks

    @property
    def coverage(self) -> Coverage:
        """How much of what could be looked at was looked at."""
        return self.report.coverage

    @property
    def measured(self) -> Measurements:
        return self.report.measured

    @property
    def target(self) -> Mapping[str, Any]:
        """What was examined: its system, its Python, its container."""
        return self.report.target

    @property
    def facts(self) -> Mapping[str, Any]:
        """GPUs, driver, packages and the rest that the report lists."""
        return self.report.facts

    def render(self, form: Format = "text") -> str:
        from gpudoctor.report import formats

        if form not in FORMATS:
            raise UserError(f"no format is called {form!r}: there are {', '.join(FORMATS)}")
        return formats.render(form, self.report, self.snapshot)

    def to_json(self) -> str:
        """The JSON report, whose names are a contract."""
        return self.render("json")

    def to_markdown(self) -> str:
        """For a ticket."""
        return self.render("markdown")

    def to_html(self) -> str:
        """One page with everything in it."""
        return self.render("html")

    def ticket(self, project: Project) -> str:
        """Markdown with the sections that this project's form asks for."""
        from gpudoctor.report import tickets

        if project not in PROJECTS:
            raise UserError(f"there is no ticket for {project!r}, only for {', '.join(PROJECTS)}")
        made, attachment = f'report.ticket("{project}")', 'report.write("report.tar.gz")'
        return tickets.render(project, self.report, self.snapshot, made, attachment)

    def write(self, path: PathLike, form: Format | None = None, *, redact: bool = True) -> None:
        """Writes a report in the format of the file's name, or a bundle to a name that ends in .tar.gz."""
        from gpudoctor.report import formats

        path = Path(path)
        chosen = form or formats.of(path)
        if chosen is None and not formats.is_bundle(path):
            raise UserError(f"{path}: no format has such a name; say which, form=…")
        shared, sweep = self._shared() if redact else (self, str)
        if chosen is None:
            from gpudoctor.report import bundle

            writing.write(path, bundle.packed(shared.report, shared.snapshot, sweep))
        else:
            writing.write(path, sweep(shared.render(chosen)).encode("utf-8", "replace"))

    def save(self, path: PathLike, *, redact: bool = True) -> None:
        """Writes the snapshot, from which this report can be made again."""
        from gpudoctor.files import snapshot

        if self.snapshot is None:
            raise UserError("only a report was kept here: there is no snapshot to save")
        taken = self.redacted().snapshot if redact else self.snapshot
        assert taken
        writing.write(Path(path), snapshot.dump(taken))

    def redacted(self, keep: Collection[str] = (), words: Collection[str] = ()) -> Checkup:
        """The same verdict without names, addresses and ids. keep: kinds of them that stay. words: more that must go."""
        return self._shared(keep, words)[0]

    def _shared(self, keep: Collection[str] = (), words: Collection[str] = ()) -> tuple[Checkup, Callable[[str], str]]:
        """Redacted before it is judged; and what a rendered text goes through once more."""
        from gpudoctor import catalog, doctor, redaction
        from gpudoctor.files import opening
        from gpudoctor.redaction import remembering

        taken = self.snapshot or opening.as_answers(self.report)
        done = redaction.redacted(taken, keep, words)
        if failure := remembering.remember(taken.taken, done):
            warnings.warn(failure, stacklevel=3)
        if self.snapshot is None:
            return Checkup(opening.of_answers(done.snapshot)), done.sweep
        ran = {result.id for result in self.report.checks}
        report = doctor.judge(done.snapshot, {id: check for id, check in catalog.checks().items() if id in ran})
        return Checkup(report, done.snapshot), done.sweep

    def opened(self, name: str) -> Opened:
        """As a file of that name would be."""
        from gpudoctor.model import Opened

        return Opened(name, self.report, self.snapshot)

    def __str__(self) -> str:
        return self.render("text")

    def __repr__(self) -> str:
        return f"<gpudoctor.Checkup: {_short(self.report)}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from gpudoctor.report import notebook

        return notebook.render(self.report)


@dataclass(frozen=True, repr=False)
class Explanation:
    """What an id, a code, a message or a log means. checkup: what the text proves, and what is wrong by it; None for an id.

    is_known: False where nothing in it is known.
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
        return f"<gpudoctor.Explanation: {_short(self.checkup.report) if self.diagnosis and self.checkup else first}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text)

    def _repr_html_(self) -> str:
        from gpudoctor.report import notebook

        return notebook.problems(self.checkup.report) if self.diagnosis and self.checkup else notebook.text(self.text)


@dataclass(frozen=True, repr=False)
class Compared:
    """Two machines, or one on two days."""

    one: Opened
    other: Opened
    comparison: Comparison

    @property
    def is_same(self) -> bool:
        """Whether nothing differs that tells anything."""
        return self.comparison.is_same

    @property
    def changes(self) -> tuple[Change, ...]:
        """What differs, the likeliest to explain the worse verdict first."""
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


def _short(report: Report) -> str:
    """`fail, driver-library-version-mismatch and 2 more; 30 of 72 applicable checks ran`."""
    from gpudoctor.report import words

    problems = list(dict.fromkeys(entry.problem for entry in report.diagnosis))
    found = f", {words.listed(problems, 1)}" if problems else ""
    return f"{report.verdict.value}{found}; {report.coverage.sentence.partition(';')[0].rstrip('.')}"
