"""`gpudoctor report`: a report in any format, of this machine or of what was saved."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.choices import PROJECTS, Project
from gpudoctor.cli import COMMANDS, options, sharing
from gpudoctor.cli.paths import NAME, PATH

if TYPE_CHECKING:
    from gpudoctor.cli.sharing import Sharing
    from gpudoctor.model import Opened, Report, Snapshot

_EPILOG = """\
\b
Examples:
  gpudoctor report -o report.html              this machine, for a browser
  gpudoctor report --for pytorch -o issue.md   what that project asks for
  gpudoctor report --bundle report.tar.gz      all of it, to attach
  gpudoctor report machine.json -o report.xml  any format, from a snapshot
\b
It is for others, so it is redacted, also on a terminal (or: --no-redact).
FILE is what gpudoctor wrote: a snapshot (check --save), a report as JSON or
HTML, or a bundle. Without FILE this machine is checked first.
\b
Exit code: 0 written, 2 wrong usage, 3 gpudoctor could not do its work.
"""


@click.command(help=COMMANDS["report"], epilog=_EPILOG)
@click.argument("file", required=False, metavar="[FILE]", type=NAME)
@options.report_format("markdown")
@click.option("--for", "project", type=click.Choice(PROJECTS), help="A ticket with the sections that this project asks for.")
@click.option("--bundle", metavar="FILE.tar.gz", type=PATH, help="Write all formats, the snapshot and the raw evidence here.")
@click.option("--copy", is_flag=True, help="Put it on the clipboard.")
@options.output("Write the report here.")
@options.level(
    "How much is checked, or judged of a snapshot (see gpudoctor check).  "
    "[default: standard; with FILE, the level it was taken at]"
)
@options.python("Without FILE: examine this interpreter or environment.")
@options.sharing
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    how = sharing.chosen(given)
    _forbid_contradictions(**given)
    from gpudoctor.cli import output
    from gpudoctor.report import formats

    if given["destination"] and formats.is_bundle(given["destination"]) and not (given["form"] or given["project"]):
        given |= {"bundle": given["destination"], "destination": None}
    for path in filter(None, (given["destination"], given["bundle"])):
        output.must_be_writable(path)
    found, cut_off_by = _found(given["file"], given["level"], given["python"], given["project"], bool(given["bundle"]))
    opened, shared = sharing.leaving(found, given["file"] or "this machine", how)
    if given["bundle"]:
        from gpudoctor.report import bundle

        output.write(given["bundle"], bundle.packed(opened.report, opened.taken, shared.sweep))
    else:
        again = shlex.join(["gpudoctor", "report", *_again(given["file"], given["level"], given["python"], how)])
        text = shared.sweep(_text(opened, given["form"], given["project"], given["destination"], again))
        _deliver(text, given["destination"], given["copy"])
    if cut_off_by:
        click.echo("Interrupted: the report holds what was measured until then.", err=True)
        context.exit(128 + cut_off_by)


def _forbid_contradictions(
    file: str | None,
    form: str | None,
    project: Project | None,
    bundle: Path | None,
    copy: bool,
    destination: Path | None,
    **live: Any,
) -> None:
    if file and live["python"]:
        raise click.UsageError("--python examines this machine: it goes without FILE.")
    if project and form not in (None, "markdown"):
        raise click.UsageError("--for writes a ticket as Markdown: it goes without --format.")
    if destination == Path("-"):
        raise click.UsageError("- is no file: without -o the report goes to standard output.")
    if bundle and (form or project or copy or destination):
        raise click.UsageError("--bundle holds every format: it goes without --format, --for, --copy and -o.")
    from gpudoctor.report import formats

    if bundle and not formats.is_bundle(bundle):
        raise click.UsageError(f"--bundle writes a packed archive: its name must end in {' or '.join(formats.PACKED)}.")
    would_be_bundle = bool(destination and formats.is_bundle(destination))
    if would_be_bundle and (project or form):
        raise click.UsageError(f"-o {destination} would be a bundle: it goes without --for and --format.")
    by_name = None if form or would_be_bundle else formats.named(destination)
    if project and by_name not in (None, "markdown"):
        raise click.UsageError(f"--for writes a ticket as Markdown: -o {destination} would be {by_name}.")
    if copy and destination:
        raise click.UsageError("--copy and -o are two places: give one of them.")


def _again(file: str | None, level: str | None, python: str | None, how: Sharing) -> Iterator[str]:
    """The words that examine the same once more; without the folder of a file, and words that nobody should see."""
    yield from (Path(file).name,) if file else ()
    yield from ("--level", level) if level else ()
    yield from ("--python", python) if python else ()
    yield from ("--no-redact",) * how.no_redact
    yield from ("--keep", ",".join(how.keep)) if how.keep else ()
    yield from ("--redact-word", "WORD") * len(how.words)
    yield from ("--same-map",) * how.same_map


def _found(
    file: str | None, level: str | None, python: str | None, project: Project | None, is_bundle: bool
) -> tuple[Report | Snapshot, int]:
    """And the signal (0: none) that cut the measuring off."""
    from gpudoctor.files import opening
    from gpudoctor.model import Report

    if file:
        found = opening.read(file)
        return found if isinstance(found, Report) else opening.at(found, level), 0
    from gpudoctor.cli import check
    from gpudoctor.examining import Wanted

    taken, cut_off_by = check.asked(Wanted(level=level or "standard", python=python or ""))
    return _with_quotes(taken, project) if project or is_bundle else taken, cut_off_by


def _with_quotes(taken: Snapshot, project: Project | None) -> Snapshot:
    """And what other tools say, which that project, or without one any, wants to read unchanged."""
    from gpudoctor import quoting
    from gpudoctor.cli import output
    from gpudoctor.facts import Facts, overview
    from gpudoctor.report import tickets

    python = str(overview.target(Facts(taken)).get("python") or "python3")
    names = tickets.FORMS[project].quotes if project else tuple(quoting.COMMANDS)
    with output.progress() as tell:
        said = quoting.quoted(names, python, tell)
    needed = [name for name in names if name in quoting.OF_PYTHON]
    if project and needed and not any(quoting.said(said, name) for name in needed):
        why = next(filter(None, (quoting.failed(said, name) for name in needed)), "")
        click.echo(f"{python} has nothing to say of {needed[0]}: {why} (another: --python PATH)", err=True)
    return replace(taken, replies={**taken.replies, **said})


def _text(opened: Opened, form: str | None, project: Project | None, destination: Path | None, again: str) -> str:
    from gpudoctor.report import formats

    if project:
        from gpudoctor.report import tickets

        made, attachment = f"{again} --for {project}", f"{again} --bundle report.tar.gz"
        return tickets.render(project, opened.report, opened.taken, made, attachment)
    return formats.render(form or formats.named(destination) or "markdown", opened.report, opened.taken)


def _deliver(text: str, destination: Path | None, copy: bool) -> None:
    from gpudoctor.cli import output

    if copy:
        from gpudoctor.cli import clipboard

        clipboard.copy(text)
    elif destination:
        output.write(destination, text.encode("utf-8", "replace"))
    else:
        output.show(text)
