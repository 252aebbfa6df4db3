"""`gpudoctor check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor import screen
from gpudoctor.cli import COMMANDS, options, sharing
from gpudoctor.cli.check_options import forbid_contradictions, wanted_of
from gpudoctor.cli.paths import PATH
from gpudoctor.cli.times import Time

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.choices import Format
    from gpudoctor.evidence import Evidence
    from gpudoctor.model import Report
    from gpudoctor.wanted import Wanted

_EPILOG = """\
\b
Examples:
  gpudoctor check                                  this machine, this Python
  gpudoctor check --level quick                    no benchmarks, about a second
  gpudoctor check --python ~/train/.venv           another environment
  gpudoctor check --expect-gpus 8 --fail-on warn   before a job starts
  gpudoctor check --expect p5.48xlarge             is all of it there?
  gpudoctor check --redact -o report.md            for a ticket
  gpudoctor check --save machine.json              save a snapshot, redacted
  gpudoctor check --replay machine.json            diagnose a saved snapshot
  gpudoctor check --replay a.json --save b.json    redact it, to share it
  gpudoctor check --image pytorch-24.08            a container of an image
  gpudoctor check --container trainer              a running container
  gpudoctor check --log train.log                  this machine and a log

\b
Exit code: 0 nothing at or above --fail-on, 1 problems found, 2 wrong usage,
3 gpudoctor itself failed.
"""


@click.command(help=COMMANDS["check"], epilog=_EPILOG)
@options.level(
    "quick: no load on any GPU. standard: benchmark each GPU. full: also test GPU memory, compilers and profilers.  "
    "[default: standard; with --replay, the level of the snapshot]"
)
@options.only
@options.skip
@options.own_checks
@options.python()
@options.image("Diagnose a new container of this image, and its host.")
@options.container
@options.gpus
@click.option("--force", is_flag=True, help="Also measure GPUs in use; start an image even if the driver is too old for it.")
@options.expect_gpus
@options.expect
@options.report_format("text")
@options.output("Write the report to FILE.")
@options.save("Write a snapshot to FILE, for --replay.")
@options.replay("Diagnose a saved snapshot instead of this machine.")
@options.logs("Also analyse this log or traceback (-: standard input).")
@options.fail_on
@options.timeout
@click.option(
    "--measure-timeout",
    metavar="TIME",
    type=Time(1, 36000),
    help="Time limit for all measurements.  [default: 4m; with --level full 20m]",
)
@click.option(
    "--no-experiments",
    "experiments",
    flag_value=False,
    default=True,
    help="Do not repeat failed measurements to find the setting that breaks them.",
)
@click.option(
    "--experiment-timeout",
    metavar="TIME",
    type=Time(1, 36000),
    default="60s",
    show_default=True,
    help="Time limit for all experiments.",
)
@click.option("--baseline", metavar="FILE", type=PATH, help="Compare with this baseline (see gpudoctor baseline).")
@options.engine
@options.docker_option
@options.gpu_mode("How the container gets its GPUs.")
@options.registry
@options.locked("Use the digest of the image in gpudoctor.lock.")
@options.verbose("Show every check, every fix and all evidence.")
@options.quiet
@options.sharing
@click.pass_context
def command(
    context: click.Context,
    /,
    form: Format | None,
    destination: Path | None,
    save: Path | None,
    replay: Path | None,
    logs: tuple[str, ...],
    fail_on: str,
    verbose: bool,
    quiet: bool,
    **given: Any,
) -> None:
    from gpudoctor import examining
    from gpudoctor.cli import configured, delivering, last_report, next_steps, output

    how = sharing.chosen(given)
    forbid_contradictions(context.params)
    wanted = wanted_of(given) if replay else configured.applied(wanted_of(given))
    wanted.must_name_checks()  # before the machine is examined
    if wanted.only and not save:  # a saved snapshot can be judged by all checks
        wanted = replace(wanted, whole=False)
    for path in filter(None, (destination, save)):
        output.must_be_writable(path)
    told = examining.evidence_of(logs, "--log takes texts; for a snapshot use --replay FILE")
    found, cut_off_by = (examining.replayed(replay, wanted, told), 0) if replay else examined(wanted, told)
    is_for_all = how.is_for_all(save is not None)
    leaving = sharing.leaving(found, how) if save or is_for_all else found
    shown = leaving if is_for_all else found
    failure = delivering.save(leaving, save) if save else None
    delivered = delivering.Form(form, destination, verbose, quiet)
    hints = "" if replay else next_steps.lines(shown.report, wanted, logs, delivered)
    if destination:
        delivering.write(shown, delivered, destination, hints)
    else:
        sharing.tell_shown(shown)
        delivering.show(shown, delivered, hints)
    if not replay:
        last_report.keep(shown.report)
    if failure:
        raise failure
    if save:
        sharing.tell_written(save, leaving)
    if cut_off_by:
        screen.note("Interrupted: the report contains what was measured until then.")
    context.exit(128 + cut_off_by if cut_off_by else exit_code(shown.report, fail_on))


def checked(words: Sequence[str], expectation: dict[str, Any] | None = None) -> tuple[Checkup, int]:
    """The checkup of `gpudoctor check` with these arguments, and the signal that interrupted measuring (0: none).

    expectation: the one of an earlier run.
    """
    from dataclasses import replace

    with command.make_context("check", list(words), help_option_names=["-h", "--help"]) as context:
        wanted = replace(wanted_of(dict(context.params)), expected_before=expectation or {})
    return examined(wanted)


def examined(wanted: Wanted, told: Evidence | None = None) -> tuple[Checkup, int]:
    """Like examining.examined, with progress on a terminal."""
    from gpudoctor import examining
    from gpudoctor.cli import output

    with output.progress() as tell:
        return examining.examined(wanted, told, tell, sharing.warn)


def exit_code(report: Report, fail_on: str) -> int:
    """0, 1, or 3 if nothing was found but a check stopped with an error or no check could run."""
    from gpudoctor.model import Status

    found = {entry.status for entry in report.diagnosis}
    if Status.FAIL in found or (found and fail_on == "warn"):
        return 1
    looked = {result.status for result in (*report.checks, *report.host)}
    return 3 if Status.ERROR in looked or not looked & {Status.PASS, Status.WARN} else 0
