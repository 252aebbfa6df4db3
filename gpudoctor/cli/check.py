"""`gpudoctor check`: collect or replay, judge, render, exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli import COMMANDS, completion, container_options, sharing
from gpudoctor.cli.check_options import FORMATS, Options, forbid_contradictions, names, options_of
from gpudoctor.cli.paths import NAME, PATH
from gpudoctor.errors import UserError

if TYPE_CHECKING:
    from gpudoctor.containers.examine import Request
    from gpudoctor.evidence import Evidence
    from gpudoctor.model import Check, Report, Snapshot
    from gpudoctor.target import Target

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
    from gpudoctor import snapshot
    from gpudoctor.cli import output

    options = options_of(given)
    forbid_contradictions(options)
    if options.only or options.skip:  # a misspelt name is said before the machine is asked
        _selected(options)
    for path in filter(None, (options.destination, options.save)):
        output.must_be_writable(path)
    told = _evidence(options)
    taken, cut_off_by = (_replayed(options), 0) if options.replay else _taken(options)
    if told:
        taken = _with(taken, told)
    to_terminal = sharing.goes_to_terminal(options.destination)
    leaving = sharing.shared(taken, options.sharing, to_terminal=to_terminal and not options.save)
    if options.save:
        output.write(options.save, snapshot.dump(leaving.snapshot))
    shown = sharing.as_it_is(taken) if to_terminal else leaving
    report = _judged(shown.snapshot, options)
    _deliver(report, shown, options)
    if cut_off_by:
        click.echo("Interrupted: the report holds what was measured until then.", err=True)
    context.exit(128 + cut_off_by if cut_off_by else exit_code(report, options.fail_on))


def checked(words: Sequence[str]) -> tuple[Report, Snapshot, int]:
    """As `gpudoctor check` with these words: the report, what was asked, and the signal (0: none) that cut the measuring off."""
    with command.make_context("check", list(words)) as context:
        options = options_of(context.params)
    taken, cut_off_by = _taken(options)
    return _judged(taken, options), taken, cut_off_by


def _evidence(options: Options) -> Evidence | None:
    """Read before the machine is asked, so that a wrong name costs no time."""
    if not options.logs:
        return None
    from gpudoctor import evidence

    told = evidence.gather(options.logs)
    if told.snapshot:
        raise UserError("--log takes texts; a snapshot is judged with --replay FILE")
    return told


def _with(taken: Snapshot, told: Evidence) -> Snapshot:
    from gpudoctor import evidence

    return evidence.added(taken, told)


def _selected(options: Options, level: str | None = None) -> dict[str, Check]:
    from gpudoctor import catalog, doctor

    return doctor.select(catalog.checks(), level or options.live_level, options.only, options.skip)


def _deepest_level(options: Options) -> str:
    from gpudoctor import doctor

    return doctor.deepest_level(_selected(options))


def _judged(taken: Snapshot, options: Options) -> Report:
    from gpudoctor import doctor

    return doctor.judge(taken, _selected(options, doctor.level_of(taken)))


def _replayed(options: Options) -> Snapshot:
    from gpudoctor import opening

    taken = opening.at(opening.taken_in(str(options.replay)), options.level)
    baseline = _baseline(options) if options.baseline else taken.baseline
    return replace(taken, expected={**taken.expected, **_expected(options)}, baseline=baseline)


def _taken(options: Options) -> tuple[Snapshot, int]:
    """Collected and measured, and the signal (0: none) that cut the measuring off."""
    from gpudoctor.cli import output

    baseline = _baseline(options)
    with output.progress() as tell:

        def asking(names: tuple[str, ...]) -> None:
            tell(f"Asking {', '.join(names)}" if names else "")

        with _examined(options, asking) as (taken, where):
            taken = replace(taken, baseline=baseline, level=_deepest_level(options))
            return _measured(taken, options, where, tell) if where else (taken, 0)


@contextlib.contextmanager
def _examined(options: Options, asking: Callable[[tuple[str, ...]], None]) -> Iterator[tuple[Snapshot, Target | None]]:
    """What the target answered, and the target as long as it can be measured; None where it cannot."""
    if options.in_container:
        from gpudoctor.containers import examine

        with examine.examined(_request(options), options.timeout, _expected(options), asking) as examined:
            yield examined
        return
    from gpudoctor import target
    from gpudoctor.collect import collect

    where = target.Interpreter(options.python) if options.python else target.this_interpreter()
    yield collect(where, options.timeout, _expected(options), asking), where


def _request(options: Options) -> Request:
    from gpudoctor.containers.examine import Request

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


def _measured(taken: Snapshot, options: Options, where: Target, tell: Callable[[str], None]) -> tuple[Snapshot, int]:
    from gpudoctor import measure

    planned = measure.plan(taken, _selected(options), options.measured_gpus, options.force)
    if not planned.workloads:
        return taken, 0
    seconds = options.measure_timeout or measure.SECONDS.get(options.live_level, measure.SECONDS["standard"])

    def progress(running: tuple[str, ...], left: float) -> None:
        tell(f"Measuring, about {left:.0f} s left: {', '.join(running)}")

    measured, cut_off_by = measure.measure(where, planned, options.live_level, seconds, progress)
    return replace(taken, measured=measured), cut_off_by


def _baseline(options: Options) -> dict[str, dict[str, float]]:
    """One that was not asked for, and cannot be read, must not cost the report."""
    from gpudoctor import baseline

    try:
        return baseline.load(options.baseline)
    except UserError as error:
        if options.baseline:
            raise
        click.echo(f"Warning: {error}. It is not used; save another with gpudoctor baseline save.", err=True)
        return {}


def _expected(options: Options) -> dict[str, int]:
    return {} if options.expect_gpus is None else {"gpus": options.expect_gpus}


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
