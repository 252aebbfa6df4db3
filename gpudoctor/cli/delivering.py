"""Where the report of `gpudoctor check` goes: the screen, a pipe or files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor import screen
from gpudoctor.cli import output, sharing
from gpudoctor.errors import WorkError

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.choices import Format


@dataclass(frozen=True)
class Form:
    """How the report is written: the format, None for the one that the name of `destination` implies."""

    form: Format | None
    destination: Path | None
    verbose: bool
    quiet: bool

    @property
    def name(self) -> Format:
        from gpudoctor.report import formats

        return self.form or formats.named(self.destination) or "text"


def save(leaving: Checkup, path: Path) -> WorkError | None:
    """Writes the snapshot. A failure is returned: what was measured is still to be reported."""
    from gpudoctor import checkup

    try:
        output.write(path, checkup.saved(leaving))
    except WorkError as failure:
        return failure
    return None


def show(shown: Checkup, how: Form, hints: str) -> None:
    if how.quiet:
        output.show(_in_two_lines(shown))
    else:
        output.show(rendered(shown, how) + (hints if how.name == "text" else ""))


def show_beside(shown: Checkup, how: Form) -> None:
    """Text for standard error, as standard output belongs to another program."""
    output.show_beside(_in_two_lines(shown) if how.quiet else "\n" + rendered(shown, how, is_beside=True))


def write(shown: Checkup, how: Form, path: Path, hints: str) -> None:
    """Writes the file, and its verdict to stderr: stdout may be captured, or be the file."""
    if how.quiet:
        screen.note(_in_two_lines(shown).rstrip("\n"))
    else:
        sum_up(shown)
    output.write(path, rendered(shown, how).encode("utf-8", "replace"))
    if not how.quiet:
        sharing.tell_written(path, shown)
        if hints:
            screen.note(hints.rstrip("\n"))


def sum_up(shown: Checkup) -> None:
    """Prints the verdict of a file, which need not be opened for it."""
    from gpudoctor.report import quiet

    screen.note(shown.sweep(quiet.summary(shown.report)).rstrip("\n"))


def rendered(shown: Checkup, how: Form, is_beside: bool = False) -> str:
    """The report in the chosen format, with the width and colours of the terminal if it goes there."""
    from gpudoctor.report import terminal

    if how.name != "text":
        return shown.render(how.name)
    return shown.sweep(terminal.render(shown.report, *output.look(how.destination, is_beside), verbose=how.verbose))


def _in_two_lines(shown: Checkup) -> str:
    from gpudoctor.report import quiet

    return shown.sweep(quiet.render(shown.report))
