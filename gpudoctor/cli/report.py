"""`gpudoctor report`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gpudoctor import screen
from gpudoctor.choices import PROJECTS
from gpudoctor.cli import COMMANDS, options, sharing
from gpudoctor.cli.check_options import forbid_contradictory_targets, wanted_of
from gpudoctor.cli.paths import NAME, PATH
from gpudoctor.wanted import Request

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.choices import Format, Project
    from gpudoctor.cli.sharing import Sharing
    from gpudoctor.wanted import Wanted

_EXAMINING = ("only", "skip", "python", "image", "container", "engine", "gpus", "expect_gpus", "expect", "logs", "timeout")
_EPILOG = """\
\b
Examples:
  gpudoctor report -o report.html               an HTML page
  gpudoctor report --for pytorch -o issue.md    a ticket for that project
  gpudoctor report --bundle report.tar.gz       everything, to attach
  gpudoctor report --container trainer -o c.md  a running container
  gpudoctor report machine.json -o report.xml   from a snapshot, as JUnit

\b
The report is redacted, even on a terminal, unless --no-redact is given.
FILE is a file from gpudoctor: a snapshot (check --save), a JSON or HTML
report, or a bundle. Without FILE this machine is checked first.

\b
Exit code: 0 written, 2 wrong usage, 3 gpudoctor itself failed.
"""


@click.command(help=COMMANDS["report"], epilog=_EPILOG)
@click.argument("file", required=False, metavar="[FILE]", type=NAME)
@options.report_format("markdown")
@click.option("--for", "project", type=click.Choice(PROJECTS), help="Write a ticket in the form of this project.")
@click.option("--bundle", metavar="FILE.tar.gz", type=PATH, help="Write all formats, the snapshot and raw replies to an archive.")
@click.option("--copy", is_flag=True, help="Copy the report to the clipboard.")
@options.output("Write the report to FILE.")
@options.level("How much to check (see gpudoctor check).  [default: standard; with FILE, the level of the snapshot]")
@options.only
@options.skip
@options.own_checks
@options.python()
@options.image("Diagnose a new container of this image, and its host.")
@options.container
@options.engine
@options.gpus
@options.expect_gpus
@options.expect
@options.logs("Also analyse this log or traceback (-: standard input).")
@options.timeout
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
    logs: tuple[str, ...],
    **given: Any,
) -> None:
    how = sharing.chosen(given)
    if file:
        _forbid_examining(context)
    forbid_contradictory_targets(given)
    wanted = wanted_of(given)
    _forbid_contradictions(form, project, bundle, copy, destination)
    from gpudoctor import checkup
    from gpudoctor.cli import configured, delivering, output
    from gpudoctor.report import formats

    if destination and formats.is_bundle(destination) and not (form or project):
        bundle, destination = destination, None
    for path in filter(None, (destination, bundle)):
        output.must_be_writable(path)
    if not file:
        wanted = configured.applied(wanted)
        wanted.checks()  # reports a misspelt name before the machine is examined
    found, cut_off_by = _found(file, wanted, logs, project, bool(bundle))
    leaving = sharing.leaving(found, how)
    if destination or bundle:
        delivering.sum_up(leaving)
    if bundle:
        output.write(bundle, checkup.bundled(leaving))
        sharing.tell_written(bundle, leaving)
    elif project:
        again = shlex.join(["gpudoctor", "report", *_again(file, wanted, logs, how)])
        made, attachment = f"{again} --for {project}", f"{again} --bundle report.tar.gz"
        _deliver(checkup.ticket(leaving, project, made, attachment), destination, copy, leaving)
    else:
        _deliver(leaving.render(form or formats.named(destination) or "markdown"), destination, copy, leaving)
    if cut_off_by:
        screen.note("Interrupted: the report contains what was measured until then.")
        context.exit(128 + cut_off_by)


def _forbid_examining(context: click.Context) -> None:
    """FILE was examined already: UsageError for an option that says what to examine."""
    for parameter in context.command.params:
        if parameter.name in _EXAMINING and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} cannot be used with FILE.")


def _forbid_contradictions(
    form: str | None, project: Project | None, bundle: Path | None, copy: bool, destination: Path | None
) -> None:
    if project and form not in (None, "markdown"):
        raise click.UsageError("--for writes Markdown: --format cannot be used with it.")
    if destination == Path("-"):
        raise click.UsageError("- is not a file name: without -o the report goes to standard output.")
    if bundle and (form or project or copy or destination):
        raise click.UsageError("--bundle contains every format: --format, --for, --copy and -o cannot be used with it.")
    from gpudoctor.report import formats

    if bundle and not formats.is_bundle(bundle):
        raise click.UsageError(f"--bundle writes an archive: its name must end in {' or '.join(formats.PACKED)}.")
    would_be_bundle = bool(destination and formats.is_bundle(destination))
    if would_be_bundle and (project or form):
        raise click.UsageError(f"-o {destination} is the name of a bundle: --for and --format cannot be used with it.")
    by_name = None if form or would_be_bundle else formats.named(destination)
    if project and by_name not in (None, "markdown"):
        raise click.UsageError(f"--for writes Markdown, but -o {destination} means {by_name}.")
    if copy and destination:
        raise click.UsageError("--copy and -o cannot be used together.")


def _again(file: str | None, wanted: Wanted, logs: tuple[str, ...], how: Sharing) -> Iterator[str]:
    """The arguments that repeat this examination, without the folders of files and without redacted words."""
    yield from (Path(file).name,) if file else ()
    inside = wanted.inside or Request()
    gpus = ",".join(map(str, wanted.gpus)) or (inside.gpus if inside.gpus != "auto" else "")
    named = {
        "--level": wanted.level,
        "--only": ",".join(wanted.only),
        "--skip": ",".join(wanted.skip),
        "--python": wanted.python,
        "--image": inside.image,
        "--container": inside.container,
        "--engine": inside.engine,
        "--gpus": gpus,
        "--expect-gpus": wanted.expect_gpus,
        "--expect": wanted.expect and Path(wanted.expect).name,
    }
    for name, value in named.items():
        yield from (name, str(value)) if value else ()
    for log in logs:
        yield from ("--log", Path(log).name)
    yield from ("--no-redact",) * how.no_redact
    yield from ("--keep", ",".join(how.keep)) if how.keep else ()
    yield from ("--redact-word", "WORD") * len(how.words)
    yield from ("--same-map",) * how.same_map


def _found(
    file: str | None, wanted: Wanted, logs: tuple[str, ...], project: Project | None, is_bundle: bool
) -> tuple[Checkup, int]:
    """The checkup, and the signal that interrupted measuring (0: none)."""
    from gpudoctor import checkup, examining
    from gpudoctor.cli import check

    if file:
        return checkup.load(file, wanted.level), 0
    told = examining.evidence_of(logs, "--log takes texts; for a snapshot use gpudoctor report FILE")
    found, cut_off_by = check.examined(wanted, told)
    is_quoted = (project or is_bundle) and not wanted.inside  # the tools that are quoted run on this machine
    return _with_quotes(found, project) if is_quoted else found, cut_off_by


def _with_quotes(found: Checkup, project: Project | None) -> Checkup:
    """The checkup with the output of the tools that the project's form asks for; without a project, of all tools."""
    from gpudoctor import checkup, quoting
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
        screen.note(f"no output of {needed[0]} from {python}: {why} (for another Python: --python PATH)")
    return checkup.with_replies(found, said)


def _deliver(text: str, destination: Path | None, copy: bool, of: Checkup) -> None:
    from gpudoctor.cli import output

    if copy:
        from gpudoctor.cli import clipboard

        clipboard.copy(text)
        sharing.tell_shown(of)
    else:
        output.deliver(text, destination, of)
