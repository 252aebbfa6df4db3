"""`gpudoctor check`: collect or replay, judge, render, exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from gpudoctor import examining
from gpudoctor.cli import COMMANDS, completion, options, sharing
from gpudoctor.cli.check_options import Options, forbid_contradictions, names, options_of
from gpudoctor.cli.paths import PATH
from gpudoctor.errors import UserError
from gpudoctor.examining import Wanted

if TYPE_CHECKING:
    from gpudoctor.collect_container import Request
    from gpudoctor.evidence import Evidence
    from gpudoctor.model import Report, Snapshot

_EPILOG = """\
\b
Examples:
  gpudoctor check                                  this machine, this Python
  gpudoctor check --level quick                    without measuring, in a second
  gpudoctor check --python ~/train/.venv           somebody's environment
  gpudoctor check --expect-gpus 8 --fail-on warn   before a job starts
  gpudoctor check --format markdown -o report.md   for a ticket
  gpudoctor check --save machine.json              keep all that was asked,
                                                   redacted (or: --no-redact)
  gpudoctor check --replay machine.json            judge it again, anywhere
  gpudoctor check --image pytorch-24.08            inside that image, and its host
  gpudoctor check --container trainer              inside a running container
  gpudoctor check --log train.log                  with what a log tells
\b
Exit code: 0 nothing at or above --fail-on, 1 problems found,
2 wrong usage, 3 gpudoctor could not do its work.
"""


@click.command(help=COMMANDS["check"], epilog=_EPILOG)
@options.level(
    "quick: no GPU works. standard: each is measured. full: memory, compilers and profilers too.  "
    "[default: standard; with --replay, the level it was taken at]"
)
@click.option(
    "--only",
    metavar="ID,…",
    multiple=True,
    callback=names,
    shell_complete=completion.checks,
    help="Run these checks only, of whatever level, and those they need.",
)
@click.option(
    "--skip", metavar="ID,…", multiple=True, callback=names, shell_complete=completion.checks, help="Leave these checks out."
)
@options.python()
@options.image("Examine a container of this image, and its host.")
@click.option("--container", metavar="ID", help="Examine this running container, and its host.")
@click.option("--gpus", metavar="N,…", help="Measure these GPUs only, as nvidia-smi numbers them; with --image, give it these.")
@click.option(
    "--force", is_flag=True, help="Measure GPUs that others are using, too; start an image that this driver cannot run."
)
@click.option("--expect-gpus", metavar="N", type=click.IntRange(min=1), help="How many GPUs there should be.")
@options.report_format("text")
@options.output("Write the report here.")
@options.save("Write the snapshot here, to be judged again.")
@options.replay("Judge a saved snapshot; this machine is not touched.")
@options.logs("Judge this evidence too: a log, a traceback … (- is standard input).")
@options.fail_on
@options.timeout
@click.option(
    "--measure-timeout",
    metavar="S",
    type=click.FloatRange(1, 36000),
    help="Seconds for all measurements together.  [default: 240; with --level full 1200]",
)
@click.option("--baseline", metavar="FILE", type=PATH, help="Compare with this baseline (see: gpudoctor baseline).")
@options.engine
@options.docker_option
@options.gpu_mode("How --image gets its GPUs.")
@options.registry
@options.locked("Take the --image that gpudoctor.lock names.")
@options.verbose("Show every check and all of the evidence.")
@options.sharing
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    from gpudoctor.cli import output
    from gpudoctor.files import snapshot

    asked_for = options_of(given)
    forbid_contradictions(asked_for)
    wanted = _wanted(asked_for)
    if asked_for.only or asked_for.skip:  # a misspelt name is said before the machine is asked
        wanted.checks()
    for path in filter(None, (asked_for.destination, asked_for.save)):
        output.must_be_writable(path)
    told = _evidence(asked_for)
    taken, cut_off_by = (_replayed(asked_for), 0) if asked_for.replay else asked(wanted)
    if told:
        from gpudoctor import evidence

        taken = evidence.added(taken, told)
    to_terminal = sharing.goes_to_terminal(asked_for.destination)
    leaving = sharing.shared(taken, asked_for.sharing, to_terminal=to_terminal and not asked_for.save)
    if asked_for.save:
        output.write(asked_for.save, snapshot.dump(leaving.snapshot))
    shown = sharing.as_it_is(taken) if to_terminal else leaving
    report = examining.judged(shown.snapshot, wanted)
    _deliver(report, shown, asked_for)
    if cut_off_by:
        click.echo("Interrupted: the report holds what was measured until then.", err=True)
    context.exit(128 + cut_off_by if cut_off_by else exit_code(report, asked_for.fail_on))


def checked(words: Sequence[str]) -> tuple[Report, Snapshot, int]:
    """As `gpudoctor check` with these words: the report, what was asked, and the signal (0: none) that cut the measuring off."""
    with command.make_context("check", list(words)) as context:
        wanted = _wanted(options_of(context.params))
    taken, cut_off_by = asked(wanted)
    return examining.judged(taken, wanted), taken, cut_off_by


def asked(wanted: Wanted) -> tuple[Snapshot, int]:
    """As examining.taken, with its progress at a terminal."""
    from gpudoctor.cli import output

    with output.progress() as tell:
        return examining.taken(wanted, tell, lambda said: click.echo(f"Warning: {said}", err=True))


def _evidence(given: Options) -> Evidence | None:
    """Read before the machine is asked, so that a wrong name costs no time."""
    if not given.logs:
        return None
    from gpudoctor import explaining

    told = explaining.gather(given.logs)
    if told.snapshot:
        raise UserError("--log takes texts; a snapshot is judged with --replay FILE")
    return told


def _replayed(given: Options) -> Snapshot:
    from gpudoctor.files import baseline, opening

    taken = opening.at(opening.taken_in(str(given.replay)), given.level)
    saved = baseline.load(given.baseline) if given.baseline else taken.baseline
    return replace(taken, expected={**taken.expected, **given.expected}, baseline=saved)


def _wanted(given: Options) -> Wanted:
    return Wanted(
        level=given.level or "standard",
        only=given.only,
        skip=given.skip,
        python=given.python or "",
        container=_request(given) if given.in_container else None,
        expected=given.expected,
        gpus=given.measured_gpus,
        force=given.force,
        timeout=given.timeout,
        measure_timeout=given.measure_timeout,
        baseline=given.baseline,
    )


def _request(given: Options) -> Request:
    from gpudoctor.collect_container import Request

    return Request(
        image=given.image or "",
        container=given.container or "",
        engine=given.engine,
        registry=given.registry,
        locked=given.locked,
        force=given.force,
        gpus=given.gpus or "auto",
        mode=given.gpu_mode,
        arguments=given.docker_options,
        python=given.python or "",
    )


def _deliver(report: Report, shown: sharing.Shared, given: Options) -> None:
    from gpudoctor.cli import output

    text = shown.sweep(rendered(report, shown.snapshot, given))
    if given.destination:
        output.write(given.destination, text.encode("utf-8", "replace"))
    else:
        output.show(text)


def rendered(report: Report, taken: Snapshot, given: Options) -> str:
    """The report in the chosen format; the terminal's width and colours only where it goes to one."""
    from gpudoctor.report import formats, terminal

    form = given.form or formats.named(given.destination) or "text"
    if form != "text":
        return formats.render(form, report, taken)
    if given.destination:
        return terminal.render(report, verbose=given.verbose)
    return terminal.render(report, *terminal.look(), verbose=given.verbose)


def exit_code(report: Report, fail_on: str) -> int:
    """0, 1, or 3 where nothing was found, but a check broke or none could look: that machine was not shown to be healthy."""
    from gpudoctor.model import Status

    found = {entry.status for entry in report.diagnosis}
    if Status.FAIL in found or (found and fail_on == "warn"):
        return 1
    looked = {result.status for result in (*report.checks, *report.host)}
    return 3 if Status.ERROR in looked or not looked & {Status.PASS, Status.WARN} else 0
