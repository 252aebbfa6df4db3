"""`gpudoctor fix`: the fixes of this machine as a shell script, or run step by step."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli import COMMANDS, completion, options
from gpudoctor.cli.paths import PATH
from gpudoctor.errors import UserError, WorkError
from gpudoctor.spelling import unknown
from gpudoctor.wanted import Wanted

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.model import Report, Snapshot
    from gpudoctor.repair.plan import Step
    from gpudoctor.repair.running import Runner

_LISTED = 6
_EPILOG = """\
\b
Examples:
  gpudoctor fix                          a script of all fixes, to read first
  gpudoctor fix no-driver-found          of one problem only
  gpudoctor fix -o fix.sh                into a file; then: sh fix.sh
  gpudoctor fix --run                    ask before each step, and run it
  gpudoctor fix --replay machine.json    for the machine of a snapshot
\b
--run never reboots and never resets a GPU; it says what to type. It leaves a
GPU alone on which somebody works, and stops at the first step that fails.
\b
Exit code: 0 printed, or all is well now; 1 a step failed or a problem is left;
2 wrong usage; 3 gpudoctor could not do its work; 130 interrupted.
"""


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line."""

    wanted: Wanted
    problems: tuple[str, ...]
    replay: Path | None
    logs: tuple[str, ...]
    destination: Path | None
    run: bool
    journal: Path | None


@click.command(help=COMMANDS["fix"], epilog=_EPILOG)
@click.argument("problems", nargs=-1, metavar="[PROBLEM]…", shell_complete=completion.problems)
@options.python("Of this interpreter or environment.")
@options.replay("Of the machine of a saved snapshot; this one is not touched.")
@options.logs("With what a log or a traceback tells (- is standard input).")
@options.output("Write the script here.")
@click.option("--run", is_flag=True, help="Ask before each step, then run it.")
@click.option(
    "--journal", metavar="FILE", type=PATH, help="Where --run writes what it did.  [default: in ~/.local/state/gpudoctor]"
)
@options.timeout
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    asked = Options(Wanted(**options.taken_out(Wanted, given)), **given)
    _forbid_contradictions(asked)
    _must_be_known(asked.problems)
    from gpudoctor.cli import output

    if asked.destination:
        output.must_be_writable(asked.destination)
    found = _found(asked)
    report = found.report
    steps, notes = _steps(asked, found)
    if not steps:
        output.show(f"# {_nothing(report)} There is nothing to fix.\n")
    elif asked.run:
        context.exit(_run(asked, steps, notes, report))
    else:
        _print(asked, steps, notes, report)


def _forbid_contradictions(asked: Options) -> None:
    if asked.replay and asked.wanted.python:
        raise click.UsageError("--replay reads a snapshot and asks no machine: it goes without --python.")
    if asked.journal and not asked.run:
        raise click.UsageError("--journal goes with --run.")
    if not asked.run:
        return
    for name, value in {"--replay": asked.replay, "-o": asked.destination}.items():
        if value:
            raise click.UsageError(f"--run works on this machine, at a terminal: it goes without {name}.")
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty()):
        raise click.UsageError("--run asks before each step: it needs a terminal. Without --run the script is printed.")


def _must_be_known(names: tuple[str, ...]) -> None:
    from gpudoctor import catalog
    from gpudoctor.report import words

    known, checks = catalog.problems(), catalog.checks()
    for name in names:
        if name in checks and name not in known:
            found = words.listed([problem.id for problem in catalog.found_by(checks[name])], _LISTED)
            raise UserError(f"{name} is a check; name one of the problems that it finds: {found} (gpudoctor explain {name})")
        if name not in known:
            raise UserError(unknown("problem", name, known))


def _found(asked: Options) -> Checkup:
    """The machine as it answers now, without measuring, or that of a snapshot."""
    from gpudoctor import examining
    from gpudoctor.checkup import Checkup
    from gpudoctor.files import opening

    told = examining.evidence_of(asked.logs, "--log takes texts; the machine of a snapshot is given by --replay FILE")
    taken = opening.taken_in(str(asked.replay)) if asked.replay else _answers(asked.wanted)
    return Checkup(snapshot=examining.with_evidence(taken, told))


def _answers(wanted: Wanted) -> Snapshot:
    from gpudoctor.cli import output
    from gpudoctor.examining import of_interpreter

    with output.progress() as tell:
        return of_interpreter(wanted, tell)[0]


def _steps(asked: Options, found: Checkup) -> tuple[list[Step], list[str]]:
    """Of all that was found, or of the problems that were named: those that are not here have their general fixes."""
    from gpudoctor import catalog, fixes
    from gpudoctor.facts import Facts
    from gpudoctor.repair import plan

    assert found.snapshot
    wanted = [entry for entry in found.diagnosis if not asked.problems or entry.problem in asked.problems]
    steps = plan.of_report(wanted)
    absent = [name for name in dict.fromkeys(asked.problems) if name not in {entry.problem for entry in wanted}]
    for name in absent:
        problem = catalog.problems()[name][1]
        steps += plan.of_problem(problem, fixes.fitting(problem.fixes, fixes.context(Facts(found.snapshot)), {}))
    notes = [f"{name} was not found here: these are its general fixes for this platform." for name in absent]
    return plan.ordered(steps), notes


def _nothing(report: Report) -> str:
    from gpudoctor.report import words

    return words.headline(report, on_terminal=True)


def _print(asked: Options, steps: Sequence[Step], notes: Sequence[str], report: Report) -> None:
    from gpudoctor.cli import output
    from gpudoctor.repair import script

    text = script.render(steps, str(report.target.get("distribution", "")), notes)
    output.deliver(text, asked.destination)
    if asked.destination:
        click.echo(f"Written: {asked.destination}. Read it, then: sh {asked.destination}", err=True)


def _run(asked: Options, steps: Sequence[Step], notes: Sequence[str], before: Report) -> int:
    from gpudoctor.repair import asking
    from gpudoctor.repair.running import Failed, Quit, Runner

    path = asked.journal or _default_journal()
    with _opened(path) as journal:
        runner = Runner(asking.ask, journal, _busy)
        for note in notes:
            click.echo(note)
        try:
            runner.run(steps)
            failed = False
        except Failed:
            failed = True
        except Quit:
            failed = False
        except (KeyboardInterrupt, asking.Ended, SystemExit) as ending:
            click.echo("\nInterrupted." if isinstance(ending, SystemExit) else "\nInterrupted by you.")
            _said(runner, path)
            return ending.code if isinstance(ending, SystemExit) and isinstance(ending.code, int) else 130
    _said(runner, path)
    if not runner.has_run:
        return _compared("Nothing has changed:", before, before, failed, runner.reboots)
    return _compared("Looked again:", before, _found(asked).report, failed, runner.reboots)


def _said(runner: Runner, path: Path) -> None:
    click.echo("")
    for line in runner.done:
        click.echo(line[0].upper() + line[1:])
    if not runner.has_run:
        click.echo("Nothing was run.")
    if runner.for_later:
        click.echo("Left to you:")
        click.echo(
            "".join(f"  {line}\n" for command in dict.fromkeys(runner.for_later) for line in command.splitlines()), nl=False
        )
    if runner.reboots:
        click.echo("Now reboot, when all work is saved; that is not done for you: sudo reboot")
    if runner.has_run:
        click.echo(f"All commands with their output are in {path}")


def _compared(heading: str, before: Report, after: Report, failed: bool, waits_for_boot: bool) -> int:
    """Says what became of each problem."""
    from gpudoctor.model import Status

    was, now = ({entry.problem: entry for entry in report.diagnosis} for report in (before, after))
    click.echo(f"\n{heading}" if was or now else "\nNothing is wrong here.")
    for problem, entry in {**was, **now}.items():
        state = "fixed" if problem not in now else "still there" if problem in was else "new"
        click.echo(f"  {state + ':':<13}{entry.title} ({problem})")
    if waits_for_boot and now:
        click.echo("What is still there may need the reboot.")
    left = any(entry.status is Status.FAIL for entry in after.diagnosis)
    return 1 if failed or (left and not waits_for_boot) else 0


def _busy() -> list[str]:
    from gpudoctor.facts import Facts
    from gpudoctor.repair import busy

    return busy.users(Facts(_answers(Wanted())))


def _default_journal() -> Path:
    from gpudoctor import folders
    from gpudoctor.cli import output

    output.make_folder(folders.state())
    return folders.state() / f"fix-{datetime.now():%Y-%m-%d-%H%M%S}.log"


@contextlib.contextmanager
def _opened(path: Path):  # type: ignore[no-untyped-def]
    """Commands may print secrets: only its owner reads it."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as journal:
            yield journal
    except OSError as failure:
        raise WorkError(f"cannot write {path}: {failure.strerror}") from None
