"""`gpudoctor check`: collect or replay, judge, render, exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from gpudoctor import examining
from gpudoctor.choices import FORMATS
from gpudoctor.cli import COMMANDS, completion, container_options, sharing
from gpudoctor.cli.check_options import Options, forbid_contradictions, names, options_of
from gpudoctor.cli.paths import NAME, PATH
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
@click.option(
    "--level",
    type=click.Choice(["quick", "standard", "full"]),
    help="quick: no GPU works. standard: each is measured. full: memory, compilers and profilers too.  "
    "[default: standard; with --replay, the level it was taken at]",
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
@click.option("--python", metavar="PATH", type=NAME, help="Examine this interpreter or environment.")
@click.option(
    "--image", metavar="NAME", shell_complete=container_options.complete, help="Examine a container of this image, and its host."
)
@click.option("--container", metavar="ID", help="Examine this running container, and its host.")
@click.option("--gpus", metavar="N,…", help="Measure these GPUs only, as nvidia-smi numbers them; with --image, give it these.")
@click.option(
    "--force", is_flag=True, help="Measure GPUs that others are using, too; start an image that this driver cannot run."
)
@click.option("--expect-gpus", metavar="N", type=click.IntRange(min=1), help="How many GPUs there should be.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="What to write.  [default: by the name of -o, else text]",
)
@click.option("-o", "--output", "destination", metavar="FILE", type=PATH, help="Write the report here.")
@click.option("--save", metavar="FILE", type=PATH, help="Write the snapshot here, to be judged again.")
@click.option("--replay", metavar="FILE", type=PATH, help="Judge a saved snapshot; this machine is not touched.")
@click.option(
    "--log",
    "logs",
    metavar="FILE",
    type=NAME,
    multiple=True,
    help="Judge this evidence too: a log, a traceback … (- is standard input).",
)
@click.option(
    "--fail-on", type=click.Choice(["warn", "fail"]), default="fail", show_default=True, help="What makes the exit code 1."
)
@click.option(
    "--timeout",
    metavar="S",
    type=click.FloatRange(1, 3600),
    default=20,
    show_default=True,
    help="Seconds for all questions together.",
)
@click.option(
    "--measure-timeout",
    metavar="S",
    type=click.FloatRange(1, 36000),
    help="Seconds for all measurements together.  [default: 240; with --level full 1200]",
)
@click.option("--baseline", metavar="FILE", type=PATH, help="Compare with this baseline (see: gpudoctor baseline).")
@container_options.engine
@container_options.docker_option
@click.option(
    "--gpu-mode",
    type=click.Choice(["auto", "cdi", "runtime", "gpus", "none"]),
    default="auto",
    show_default=True,
    help="How --image gets its GPUs.",
)
@container_options.registry
@click.option("--locked", is_flag=True, help="Take the --image that gpudoctor.lock names.")
@click.option("-v", "--verbose", is_flag=True, help="Show every check and all of the evidence.")
@sharing.options
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    from gpudoctor.cli import output
    from gpudoctor.files import snapshot

    options = options_of(given)
    forbid_contradictions(options)
    wanted = _wanted(options)
    if options.only or options.skip:  # a misspelt name is said before the machine is asked
        wanted.checks()
    for path in filter(None, (options.destination, options.save)):
        output.must_be_writable(path)
    told = _evidence(options)
    taken, cut_off_by = (_replayed(options), 0) if options.replay else asked(wanted)
    if told:
        from gpudoctor import evidence

        taken = evidence.added(taken, told)
    to_terminal = sharing.goes_to_terminal(options.destination)
    leaving = sharing.shared(taken, options.sharing, to_terminal=to_terminal and not options.save)
    if options.save:
        output.write(options.save, snapshot.dump(leaving.snapshot))
    shown = sharing.as_it_is(taken) if to_terminal else leaving
    report = examining.judged(shown.snapshot, wanted)
    _deliver(report, shown, options)
    if cut_off_by:
        click.echo("Interrupted: the report holds what was measured until then.", err=True)
    context.exit(128 + cut_off_by if cut_off_by else exit_code(report, options.fail_on))


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


def _evidence(options: Options) -> Evidence | None:
    """Read before the machine is asked, so that a wrong name costs no time."""
    if not options.logs:
        return None
    from gpudoctor import explaining

    told = explaining.gather(options.logs)
    if told.snapshot:
        raise UserError("--log takes texts; a snapshot is judged with --replay FILE")
    return told


def _replayed(options: Options) -> Snapshot:
    from gpudoctor.files import baseline, opening

    taken = opening.at(opening.taken_in(str(options.replay)), options.level)
    saved = baseline.load(options.baseline) if options.baseline else taken.baseline
    return replace(taken, expected={**taken.expected, **options.expected}, baseline=saved)


def _wanted(options: Options) -> Wanted:
    return Wanted(
        level=options.level or "standard",
        only=options.only,
        skip=options.skip,
        python=options.python or "",
        container=_request(options) if options.in_container else None,
        expected=options.expected,
        gpus=options.measured_gpus,
        force=options.force,
        timeout=options.timeout,
        measure_timeout=options.measure_timeout,
        baseline=options.baseline,
    )


def _request(options: Options) -> Request:
    from gpudoctor.collect_container import Request

    return Request(
        image=options.image or "",
        container=options.container or "",
        engine=options.engine,
        registry=options.registry,
        locked=options.locked,
        force=options.force,
        gpus=options.gpus or "auto",
        mode=options.gpu_mode,
        arguments=options.docker_options,
        python=options.python or "",
    )


def _deliver(report: Report, shown: sharing.Shared, options: Options) -> None:
    from gpudoctor.cli import output

    text = shown.sweep(rendered(report, shown.snapshot, options))
    if options.destination:
        output.write(options.destination, text.encode("utf-8", "replace"))
    else:
        output.show(text)


def rendered(report: Report, taken: Snapshot, options: Options) -> str:
    """The report in the chosen format; the terminal's width and colours only where it goes to one."""
    from gpudoctor.report import formats, terminal

    form = options.form or formats.named(options.destination) or "text"
    if form != "text":
        return formats.render(form, report, taken)
    if options.destination:
        return terminal.render(report, verbose=options.verbose)
    return terminal.render(report, *terminal.look(), verbose=options.verbose)


def exit_code(report: Report, fail_on: str) -> int:
    """0, 1, or 3 where nothing was found, but a check broke or none could look: that machine was not shown to be healthy."""
    from gpudoctor.model import Status

    found = {entry.status for entry in report.diagnosis}
    if Status.FAIL in found or (found and fail_on == "warn"):
        return 1
    looked = {result.status for result in (*report.checks, *report.host)}
    return 3 if Status.ERROR in looked or not looked & {Status.PASS, Status.WARN} else 0
