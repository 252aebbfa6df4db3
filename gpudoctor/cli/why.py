"""`gpudoctor why`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor import screen
from gpudoctor.cli import COMMANDS, completing, options, sharing
from gpudoctor.cli.paths import NAME
from gpudoctor.cli.times import Time

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.choices import Format
    from gpudoctor.cli.delivering import Form
    from gpudoctor.cli.sharing import Sharing
    from gpudoctor.trying.start import Goal
    from gpudoctor.why.case import Case

OUT, ERR = 1, 2

_HELP = f"""{COMMANDS["why"]}

The command runs once as it is: with your terminal, your input and your signals. If it fails, is killed, does not end in time
(--timeout) or is too slow (--faster-than, --at-least), gpudoctor explains its output with the facts of this machine, like
gpudoctor check --level quick --log.

Then it asks whether it may repeat the command without suspected variables, search path entries, low limits, folders for temporary
files and the like, one at a time or several, until it works. What decides is the cause. A repeat has no input and no terminal,
and writes and sends all that the command writes and sends. Nothing is changed outside the repeats.

The report goes to standard error, since standard output belongs to the command. With another --format than text it goes to
standard output, and the command's output to standard error.
"""
_EPILOG = """\
\b
Examples:
  gpudoctor why -- python train.py
  gpudoctor why --yes -- python train.py           repeat it without asking
  gpudoctor why --until 'step 10/' -- torchrun train.py
  gpudoctor why --timeout 60 -- python hangs.py
  gpudoctor why --metric '([0-9.]+) tokens/s' --at-least 900 -- python bench.py
  gpudoctor why --like good.json -- python train.py
  gpudoctor why --container trainer -- python train.py

\b
Exit code: 0 the command worked, 1 it did not and a cause was found, 2 wrong
usage, 3 it did not and no cause was found.
"""


def _pattern(context: click.Context, parameter: click.Parameter, value: str | None) -> re.Pattern[str] | None:
    try:
        return None if value is None else re.compile(value)
    except re.error as failure:
        raise click.BadParameter(f"{value!r} is not a regular expression: {failure}.") from None


@click.command(help=_HELP, epilog=_EPILOG, context_settings={"allow_interspersed_args": False})
@click.option("--timeout", metavar="TIME", type=Time(0.1, 86400), help="End the command after TIME, such as 90s: it hangs.")
@click.option("--until", metavar="REGEX", callback=_pattern, help="It works once it prints this; it is ended there.")
@click.option("--faster-than", metavar="TIME", type=Time(0.001, 7 * 86400), help="It works if it takes less than TIME.")
@click.option(
    "--metric",
    metavar="REGEX",
    callback=_pattern,
    help="A number that it prints, such as '([0-9.]+) tokens/s'; the last one counts.",
)
@click.option("--at-least", metavar="N", type=float, help="It works if the metric is at least N.")
@click.option("-y", "--yes", is_flag=True, help="Repeat the command without asking.")
@click.option(
    "--attempts", metavar="N", type=click.IntRange(1, 200), default=16, show_default=True, help="Repeat it at most N times."
)
@click.option("--like", metavar="FILE", type=NAME, help="Suspect what differs from this snapshot of a machine where it works.")
@options.python("The Python that runs the command.  [default: found from the command]")
@options.image("Run the command in a new container of this image.")
@click.option(
    "--container", metavar="ID", shell_complete=completing.containers, help="Run the command in this running container."
)
@options.engine
@options.docker_option
@options.gpu_mode("How the container gets its GPUs.")
@options.registry
@options.locked("Use the digest of the image in gpudoctor.lock.")
@options.report_format("text")
@options.output("Write the report to FILE.")
@options.save("Write a snapshot to FILE, for gpudoctor check --replay.")
@options.verbose("Show every check, every fix, all evidence and every repeat.")
@options.quiet
@options.sharing
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND…", type=click.UNPROCESSED)
@click.pass_context
def command(
    context: click.Context,
    /,
    command: tuple[str, ...],
    form: Format | None,
    destination: Path | None,
    save: Path | None,
    verbose: bool,
    quiet: bool,
    like: str | None,
    **given: Any,
) -> None:
    from gpudoctor.cli import delivering, output, solving
    from gpudoctor.cli.check_options import forbid_contradictions
    from gpudoctor.wanted import Request
    from gpudoctor.why import places
    from gpudoctor.why.case import started
    from gpudoctor.why.like import opened

    how = sharing.chosen(given)
    forbid_contradictions({**context.params, "replay": None, "logs": (), "gpus": None, "force": False, "measure_timeout": None})
    goal, repeating = _goal(given), solving.Repeating(**options.taken_out(solving.Repeating, given))
    for path in filter(None, (destination, save)):
        output.must_be_writable(path)
    delivered = delivering.Form(form, destination, verbose, quiet)
    is_for_program = delivered.name != "text" and not destination
    good = opened(like) if like else None
    place, wanted = places.of(command, given["python"], Request(**options.taken_out(Request, given)))
    case = started(place, goal, ERR if is_for_program else OUT, ERR)
    if not case.failure:
        context.exit(_worked(case))
    found, ended_by = solving.solved(case, wanted, repeating, good)
    if case.ended_by and delivered.name == "text" and not (destination or save or found.report.diagnosis):
        context.exit(128 + ended_by)
    _deliver(found, how, delivered, save, is_for_program)
    context.exit(128 + ended_by if ended_by else _exit_code(found))


def _goal(given: dict[str, Any]) -> Goal:
    from gpudoctor.trying.start import Goal

    goal = Goal(**options.taken_out(Goal, given))
    if (goal.metric is None) != (goal.at_least is None):
        raise click.UsageError("--metric and --at-least require each other.")
    if goal.timeout and goal.faster_than and goal.faster_than > goal.timeout:
        raise click.UsageError("--faster-than is longer than --timeout.")
    return goal


def _worked(case: Case) -> int:
    """Says that the command worked; returns the exit code."""
    figure = "" if case.first.figure is None else f", {case.first.figure:g}"
    _note(f"the command worked ({case.first.seconds:.1f} s{figure}): there is nothing to explain.")
    if case.first.left:
        _note(f"it left running: {', '.join(case.first.left)}")
    return 0


def _note(line: str) -> None:
    screen.note(f"gpudoctor: {line}")


def _deliver(found: Checkup, how: Sharing, delivered: Form, save: Path | None, is_for_program: bool) -> None:
    from gpudoctor.cli import delivering, output

    shown = output.saved(found, how, save)
    if delivered.destination:
        delivering.write(shown, delivered, delivered.destination, "")
    elif is_for_program:
        delivering.show(shown, delivered, "")
    else:
        sharing.tell_shown(shown)
        delivering.show_beside(shown, delivered)


def _exit_code(found: Checkup) -> int:
    """1 if a cause was found, 3 if not."""
    from gpudoctor.facts.command import QUESTION

    return 1 if any(QUESTION in entry.explains for entry in found.report.diagnosis) else 3
