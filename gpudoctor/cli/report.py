"""`gpudoctor report`: a report in any format, of this machine or of what was saved."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.choices import PROJECTS
from gpudoctor.cli import COMMANDS, options, sharing
from gpudoctor.cli.paths import NAME, PATH
from gpudoctor.wanted import Wanted

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.choices import Format, Project
    from gpudoctor.cli.sharing import Sharing

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
def command(
    context: click.Context,
    /,
    file: str | None,
    form: Format | None,
    project: Project | None,
    bundle: Path | None,
    copy: bool,
    destination: Path | None,
    **given: Any,
) -> None:
    how = sharing.chosen(given)
    wanted = Wanted(**options.taken_out(Wanted, given))
    _forbid_contradictions(file, form, project, bundle, copy, destination, wanted.python)
    from gpudoctor import checkup
    from gpudoctor.cli import output
    from gpudoctor.report import formats

    if destination and formats.is_bundle(destination) and not (form or project):
        bundle, destination = destination, None
    for path in filter(None, (destination, bundle)):
        output.must_be_writable(path)
    found, cut_off_by = _found(file, wanted, project, bool(bundle))
    leaving = sharing.leaving(found, how)
    if bundle:
        output.write(bundle, checkup.bundled(leaving))
    elif project:
        again = shlex.join(["gpudoctor", "report", *_again(file, wanted, how)])
        made, attachment = f"{again} --for {project}", f"{again} --bundle report.tar.gz"
        _deliver(checkup.ticket(leaving, project, made, attachment), destination, copy)
    else:
        _deliver(leaving.render(form or formats.named(destination) or "markdown"), destination, copy)
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
    python: str | None,
) -> None:
    if file and python:
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


def _again(file: str | None, wanted: Wanted, how: Sharing) -> Iterator[str]:
    """The words that examine the same once more; without the folder of a file, and words that nobody should see."""
    yield from (Path(file).name,) if file else ()
    yield from ("--level", wanted.level) if wanted.level else ()
    yield from ("--python", wanted.python) if wanted.python else ()
    yield from ("--no-redact",) * how.no_redact
    yield from ("--keep", ",".join(how.keep)) if how.keep else ()
    yield from ("--redact-word", "WORD") * len(how.words)
    yield from ("--same-map",) * how.same_map


def _found(file: str | None, wanted: Wanted, project: Project | None, is_bundle: bool) -> tuple[Checkup, int]:
    """And the signal (0: none) that cut the measuring off."""
    from gpudoctor import checkup
    from gpudoctor.cli import check

    if file:
        return checkup.load(file, wanted.level), 0
    found, cut_off_by = check.examined(wanted)
    return _with_quotes(found, project) if project or is_bundle else found, cut_off_by


def _with_quotes(found: Checkup, project: Project | None) -> Checkup:
    """And what other tools say, which that project, or without one any, wants to read unchanged."""
    from gpudoctor import quoting
    from gpudoctor.checkup import Checkup
    from gpudoctor.cli import output
    from gpudoctor.facts import Facts, overview
    from gpudoctor.report import tickets

    taken = found.snapshot
    assert taken
    python = str(overview.target(Facts(taken)).get("python") or "python3")
    names = tickets.FORMS[project].quotes if project else tuple(quoting.COMMANDS)
    with output.progress() as tell:
        said = quoting.quoted(names, python, tell)
    needed = [name for name in names if name in quoting.OF_PYTHON]
    if project and needed and not any(quoting.said(said, name) for name in needed):
        why = next(filter(None, (quoting.failed(said, name) for name in needed)), "")
        click.echo(f"{python} has nothing to say of {needed[0]}: {why} (another: --python PATH)", err=True)
    return Checkup(snapshot=replace(taken, replies={**taken.replies, **said}))


def _deliver(text: str, destination: Path | None, copy: bool) -> None:
    from gpudoctor.cli import output

    if copy:
        from gpudoctor.cli import clipboard

        clipboard.copy(text)
    else:
        output.deliver(text, destination)
