"""A checkup of one machine, for the command line and the Python API: judged once, redacted before it leaves the machine."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from gpudoctor.choices import FORMATS, PROJECTS, Format, Project
from gpudoctor.errors import UserError
from gpudoctor.files import writing
from gpudoctor.model import Coverage, Diagnosis, Measurements, Reply, Report, Result, Snapshot, Status

if TYPE_CHECKING:
    from gpudoctor.model import Opened
    from gpudoctor.redaction import Redacted

PathLike = Union[str, "os.PathLike[str]"]


class Checkup:
    """The verdict on one machine. snapshot: the questions and answers; None if only a report was kept.

    Text for the screen is not redacted. Files are redacted, unless `redact=False`.
    """

    def __init__(
        self,
        report: Report | None = None,
        snapshot: Snapshot | None = None,
        checks: Collection[str] | None = None,
        redaction: Redacted | None = None,
    ) -> None:
        """report: None until the snapshot is judged. checks: ids of the checks that judge it; None: those of the snapshot's
        level."""
        self.snapshot = snapshot
        self.redaction = redaction
        self._report = report
        if report and checks is None:
            checks = [row.id for row in report.checks]
        self._checks = None if checks is None else frozenset(checks)

    @property
    def report(self) -> Report:
        """The whole report. The snapshot is judged when this is first read, and only once.

        Redaction comes before judging, so that all formats are redacted alike. A machine is therefore judged twice only if both
        the original and the redacted report are read.
        """
        if self._report is None:
            self._report = self._judged()
        return self._report

    def _judged(self) -> Report:
        from gpudoctor import catalog, doctor

        assert self.snapshot
        if self._checks is None:
            return doctor.judge_at_its_level(self.snapshot)
        return doctor.judge(self.snapshot, catalog.named(self._checks))

    @property
    def status(self) -> Status:
        """PASS, WARN or FAIL."""
        return self.report.status

    @property
    def diagnosis(self) -> tuple[Diagnosis, ...]:
        """What is wrong, the most severe first, each with its fixes for this machine."""
        return self.report.diagnosis

    @property
    def checks(self) -> tuple[Result, ...]:
        """One row for each check, whatever its result."""
        return self.report.checks

    @property
    def coverage(self) -> Coverage:
        """How many of the applicable checks ran."""
        return self.report.coverage

    @property
    def measured(self) -> Measurements:
        return self.report.measured

    @property
    def target(self) -> Mapping[str, Any]:
        """What was examined: the system, the Python and the container."""
        return self.report.target

    @property
    def facts(self) -> Mapping[str, Any]:
        """GPUs, driver, packages and the other facts that the report lists."""
        return self.report.facts

    def render(self, form: Format = "text") -> str:
        from gpudoctor.report import formats

        if form not in FORMATS:
            raise UserError(f"unknown format {form!r}; known are {', '.join(FORMATS)}")
        return self.sweep(formats.render(form, self.report, self.snapshot))

    def to_json(self) -> str:
        """The JSON report. Its names are stable."""
        return self.render("json")

    def to_markdown(self) -> str:
        """The report for a ticket."""
        return self.render("markdown")

    def to_html(self) -> str:
        """One page with everything in it."""
        return self.render("html")

    def ticket(self, project: Project) -> str:
        """Markdown with the sections that the issue form of this project asks for."""
        if project not in PROJECTS:
            raise UserError(f"unknown project {project!r}; known are {', '.join(PROJECTS)}")
        made, attachment = f'report.ticket("{project}")', 'report.write("report.tar.gz")'
        return ticket(self, project, made, attachment)

    def write(self, path: PathLike, form: Format | None = None, *, redact: bool = True) -> None:
        """Writes a report in the format given by the file's name, or a bundle if the name ends in .tar.gz."""
        from gpudoctor.report import formats

        path = Path(path)
        chosen = form or formats.of(path)
        if chosen is None and not formats.is_bundle(path):
            raise UserError(f"{path}: unknown ending; give a format with form=…")
        shown = self._leaving() if redact else self
        writing.write(path, shown.render(chosen).encode("utf-8", "replace") if chosen else bundled(shown))

    def save(self, path: PathLike, *, redact: bool = True) -> None:
        """Writes the snapshot, from which this report can be made again."""
        if self.snapshot is None:
            raise UserError("this was loaded from a report, which contains no snapshot")
        writing.write(Path(path), saved(self._leaving() if redact else self))

    def redacted(self, keep: Collection[str] = (), words: Collection[str] = ()) -> Checkup:
        """The same verdict without names, addresses and ids. keep: kinds to leave in. words: further words to redact."""
        return self._leaving(keep, words)

    def _leaving(self, keep: Collection[str] = (), words: Collection[str] = ()) -> Checkup:
        return redacted(self, keep, words, warn=lambda said: warnings.warn(said, stacklevel=5))

    def sweep(self, text: str) -> str:
        """A text made from this checkup; if the checkup is redacted, the text is checked once more for values to redact."""
        return self.redaction.sweep(text) if self.redaction else text

    def opened(self, name: str) -> Opened:
        """This checkup as if it had been opened from a file of this name."""
        from gpudoctor.model import Opened

        return Opened(name, self.report, self.snapshot)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkup) and (self.report, self.snapshot) == (other.report, other.snapshot)

    def __reduce__(self) -> tuple[type[Checkup], tuple[Report, Snapshot | None]]:
        """Leaves out `redaction`, which knows what the tokens replace."""
        return Checkup, (self.report, self.snapshot)

    def __str__(self) -> str:
        return self.render("text")

    def __repr__(self) -> str:
        return f"<gpudoctor.Checkup: {in_short(self.report)}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from gpudoctor.report import notebook

        return notebook.render(self.report)


def load(path: PathLike, level: str | None = None) -> Checkup:
    """Opens a file: a report as it is, or a snapshot to be judged, by the checks of `level` if given."""
    from gpudoctor.files import opening

    found = opening.read(os.fspath(path))
    return Checkup(found) if isinstance(found, Report) else Checkup(snapshot=opening.at(found, level))


def redacted(
    whole: Checkup,
    keep: Collection[str] = (),
    words: Collection[str] = (),
    tokens: Mapping[str, Mapping[str, str]] | None = None,
    beside: str = "",
    *,
    warn: Callable[[str], None],
) -> Checkup:
    """The checkup redacted. The private map remembers what its tokens replace; `warn` is called if it could not be written.

    tokens: from an earlier report, to use again. `beside`: redacted text that is shown together with this checkup.
    """
    from gpudoctor import redaction
    from gpudoctor.files import opening
    from gpudoctor.redaction import remembering

    taken = whole.snapshot or opening.as_answers(whole.report)
    done = redaction.redacted(taken, keep, words, tokens, beside)
    if failure := remembering.remember(taken.taken, done):
        warn(failure)
    if whole.snapshot is None:
        return Checkup(opening.of_answers(done.snapshot), redaction=done)
    return Checkup(snapshot=done.snapshot, checks=whole._checks, redaction=done)


def restored(found: Checkup) -> Checkup:
    """The checkup with the names that its tokens replaced, as far as the private map knows them. For its owner only."""
    from gpudoctor.redaction import remembering

    taken = found.snapshot and remembering.restored(found.snapshot)
    return found if taken == found.snapshot else Checkup(snapshot=taken, checks=found._checks)


def alike(one: Checkup, other: Checkup) -> tuple[Checkup, Checkup]:
    """Both redacted, with the same token for the same name."""

    def warn(said: str) -> None:
        warnings.warn(said, stacklevel=4)

    left = redacted(restored(one), warn=warn)
    tokens = left.redaction.tokens.private() if left.redaction else None
    return left, redacted(restored(other), tokens=tokens, warn=warn)


def saved(found: Checkup) -> bytes:
    """The snapshot as a file."""
    from gpudoctor.files import snapshot

    assert found.snapshot
    return snapshot.dump(found.snapshot)


def bundled(found: Checkup) -> bytes:
    from gpudoctor.report import bundle

    return bundle.packed(found.report, found.snapshot, found.sweep)


def ticket(found: Checkup, project: Project, made: str, attachment: str) -> str:
    """made: the command that makes this ticket. attachment: the command that makes a bundle."""
    from gpudoctor.report import tickets

    return found.sweep(tickets.render(project, found.report, found.snapshot, made, attachment))


def with_replies(of: Checkup, replies: Mapping[str, Reply]) -> Checkup:
    """A checkup with more replies, judged by the same checks."""
    assert of.snapshot
    return Checkup(snapshot=replace(of.snapshot, replies={**of.snapshot.replies, **replies}), checks=of._checks)


def in_short(report: Report) -> str:
    """`fail, driver-library-version-mismatch and 2 more; 30 of 72 applicable checks ran`."""
    from gpudoctor.report import words

    problems = list(dict.fromkeys(entry.problem for entry in report.diagnosis))
    found = f", {words.listed(problems, 1)}" if problems else ""
    return f"{report.verdict.value}{found}; {report.coverage.sentence.partition(';')[0].rstrip('.')}"
