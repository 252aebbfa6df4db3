"""`gpudoctor check`: what was asked for becomes a checkup, which is written; exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli import COMMANDS, completion, options, sharing
from gpudoctor.cli.check_options import forbid_contradictions, names, wanted_of
from gpudoctor.cli.paths import PATH

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
    **given: Any,
) -> None:
    from gpudoctor import checkup, examining
    from gpudoctor.cli import output

    how = sharing.chosen(given)
    forbid_contradictions(context.params)
    wanted = wanted_of(given)
    if wanted.only or wanted.skip:  # a misspelt name is said before the machine is asked
        wanted.checks()
    for path in filter(None, (destination, save)):
        output.must_be_writable(path)
    told = examining.evidence_of(logs, "--log takes texts; a snapshot is judged with --replay FILE")
    found, cut_off_by = (examining.replayed(replay, wanted, told), 0) if replay else examined(wanted, told)
    to_terminal = sharing.goes_to_terminal(destination)
    leaving = sharing.leaving(found, how, to_terminal and not save)
    if save:
        output.write(save, checkup.saved(leaving))
    shown = found if to_terminal else leaving
    output.deliver(_rendered(shown, form, destination, verbose), destination)
    if cut_off_by:
        click.echo("Interrupted: the report holds what was measured until then.", err=True)
    context.exit(128 + cut_off_by if cut_off_by else exit_code(shown.report, fail_on))


def checked(words: Sequence[str]) -> tuple[Checkup, int]:
    """As `gpudoctor check` with these words, and the signal (0: none) that cut the measuring off."""
    with command.make_context("check", list(words)) as context:
        wanted = wanted_of(dict(context.params))
    return examined(wanted)


def examined(wanted: Wanted, told: Evidence | None = None) -> tuple[Checkup, int]:
    """As examining.examined, with its progress at a terminal."""
    from gpudoctor import examining
    from gpudoctor.cli import output

    with output.progress() as tell:
        return examining.examined(wanted, told, tell, sharing.warn)


def _rendered(shown: Checkup, form: Format | None, destination: Path | None, verbose: bool) -> str:
    """The report in the chosen format; the terminal's width and colours only where it goes to one."""
    from gpudoctor.cli import output
    from gpudoctor.report import formats, terminal

    form = form or formats.named(destination) or "text"
    if form != "text":
        return shown.render(form)
    return shown.sweep(terminal.render(shown.report, *output.look(destination), verbose=verbose))


def exit_code(report: Report, fail_on: str) -> int:
    """0, 1, or 3 where nothing was found, but a check broke or none could look: that machine was not shown to be healthy."""
    from gpudoctor.model import Status

    found = {entry.status for entry in report.diagnosis}
    if Status.FAIL in found or (found and fail_on == "warn"):
        return 1
    looked = {result.status for result in (*report.checks, *report.host)}
    return 3 if Status.ERROR in looked or not looked & {Status.PASS, Status.WARN} else 0
