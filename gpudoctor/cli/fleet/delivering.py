"""Where the report about a fleet goes: the screen and files; the options that its commands share."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor import screen
from gpudoctor.cli import options, output, sharing
from gpudoctor.cli.paths import PATH

if TYPE_CHECKING:
    from gpudoctor.cli.sharing import Sharing
    from gpudoctor.fleet.model import Fleet
    from gpudoctor.fleet.redacting import Redactor


def _engine_options(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        shlex.split(value)
    except ValueError as failure:
        raise click.BadParameter(f"{value!r} is not a list of words: {str(failure).lower()}.") from None
    return value


ENGINE_OPTIONS = click.option(
    "--engine-options",
    metavar="TEXT",
    default="",
    callback=_engine_options,
    help="Options for ssh or srun, such as '-l root' or --gres=gpu:8.",
)
LOG_SECONDS = 10.0  # between lines about the progress where there is no terminal
FORMATS = ("text", "html", "json", "junit", "sarif", "prometheus")
_SHARED = (
    click.option(
        "--format", "form", type=click.Choice(FORMATS), help="Output format.  [default: from the name of -o, else text]"
    ),
    click.option(
        "-o", "--output", "destinations", metavar="FILE", type=PATH, multiple=True, help="Write to FILE. Can be repeated."
    ),
    click.option(
        "--pages", metavar="DIR", type=PATH, help="Write the HTML report of each node that differs to DIR; fleet.html links them."
    ),
    click.option("--good", metavar="FILE", type=PATH, help="Write the nodes that can be used to FILE, as a NodeSet."),
    click.option("--bad", metavar="FILE", type=PATH, help="Write the nodes that cannot be used to FILE, as a NodeSet."),
    click.option(
        "--drain", type=click.Choice(["slurm", "kubernetes"]), help="Ask, then drain the bad nodes with scontrol or kubectl."
    ),
    options.fail_on,
    options.verbose("Show every group and every difference."),
    options.quiet,
)


def shared(function: Any) -> Any:
    for option in reversed(_SHARED):
        function = option(function)
    return options.sharing(function)


@dataclass(frozen=True)
class Delivery:
    """The options of `shared`."""

    form: str | None
    destinations: tuple[Path, ...]
    pages: Path | None
    good: Path | None
    bad: Path | None
    drain: str | None
    fail_on: str
    verbose: bool
    quiet: bool
    how: Sharing

    @classmethod
    def chosen(cls, given: dict[str, Any]) -> Delivery:
        """Takes the options out of a command's parameters. Reports before the work that a file cannot be written."""
        how = sharing.chosen(given)
        made = cls(**options.taken_out(cls, given), how=how)
        for path in made.destinations:
            made.format_of(path)
        for path in filter(None, (*made.destinations, made.good, made.bad)):
            output.must_be_writable(path)
        if made.pages:
            make_folder(made.pages)
        if made.drain:
            from gpudoctor.cli.fleet import draining

            draining.must_be_possible(made.drain, made.how)
        return made

    def format_of(self, path: Path) -> str:
        from gpudoctor.errors import UserError
        from gpudoctor.report import formats

        named = self.form or formats.named(path) or "text"
        if named not in FORMATS:
            raise UserError(f"{path}: a fleet is written as {', '.join(FORMATS)}")
        return named

    @property
    def redactor(self) -> Redactor | None:
        """What redacts each node, if that was asked for."""
        return self.redacting() if self.how.is_for_all() else None

    def redacting(self) -> Redactor:
        from gpudoctor.fleet.redacting import Redactor

        return Redactor(self.how.keep, self.how.words, sharing.warn, self.how.same_map)


def make_folder(folder: Path) -> None:
    from gpudoctor.errors import WorkError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise WorkError(f"cannot create the folder {folder}: {failure.strerror}") from None


def deliver(fleet: Fleet, delivery: Delivery, files: Mapping[str, str] | None = None, redactor: Redactor | None = None) -> int:
    """Writes and prints the report. Returns the exit code. files: the file of each node, for pages. redactor: of the nodes."""
    pages: Mapping[str, Path] = {}
    if delivery.pages:
        from gpudoctor.cli.fleet import paging

        with output.progress(LOG_SECONDS) as tell:
            pages = paging.write(fleet, delivery.pages, files or {}, redactor, tell)
        output.wrote(delivery.pages)
    if delivery.destinations:
        screen.note(_summary(fleet).rstrip("\n"))
        for path in delivery.destinations:
            output.write(path, _rendered(fleet, delivery.format_of(path), path, delivery, pages).encode("utf-8", "replace"))
            output.wrote(path)
    elif delivery.quiet:
        output.show(_summary(fleet))
    else:
        output.show(_rendered(fleet, delivery.form or "text", None, delivery, pages))
    for listed, nodes in ((delivery.good, fleet.good), (delivery.bad, fleet.bad)):
        if listed:
            output.write(listed, f"{nodes}\n".encode() if nodes else b"")
            output.wrote(listed)
    if delivery.drain and fleet.drains:
        from gpudoctor.cli.fleet import draining

        draining.drain(fleet, delivery.drain)
    return exit_code(fleet, delivery.fail_on)


def _summary(fleet: Fleet) -> str:
    from gpudoctor.report import words
    from gpudoctor.report.fleet import text

    bad = f"\nBad nodes: {fleet.bad}" if fleet.bad else ""
    return f"{words.label(fleet.status)}: {text.headline(fleet)}{bad}\n"


def _rendered(fleet: Fleet, form: str, path: Path | None, delivery: Delivery, pages: Mapping[str, Path]) -> str:
    from gpudoctor.report.fleet import formats, html, text

    if form == "text":
        return text.render(fleet, *output.look(path), verbose=delivery.verbose)
    if form == "html" and pages:
        beside = path.parent if path else Path()
        return html.render(fleet, {name: os.path.relpath(page, beside) for name, page in pages.items()})
    return formats.render(form, fleet)


def exit_code(fleet: Fleet, fail_on: str) -> int:
    """3 if no node could be judged."""
    from gpudoctor.model import Status

    if not fleet.answered:
        return 3
    failed = (Status.FAIL, Status.ERROR) if fail_on == "fail" else (Status.FAIL, Status.ERROR, Status.WARN)
    return 1 if fleet.status in failed else 0
