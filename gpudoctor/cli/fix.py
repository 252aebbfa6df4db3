"""`gpudoctor fix`."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor import screen
from gpudoctor.cli import COMMANDS, completing, options
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
  gpudoctor fix                          print a script of all fixes
  gpudoctor fix no-driver-found          fixes for one problem
  gpudoctor fix -o fix.sh                write the script; then: sh fix.sh
  gpudoctor fix --run                    ask before each step, then run it
  gpudoctor fix --replay machine.json    fixes for a saved snapshot

\b
--run never reboots and never resets a GPU; it shows what to type. It does not
touch a GPU in use, and it stops at the first step that fails.

\b
Exit code: 0 printed, or all problems fixed; 1 a step failed or problems
remain; 2 wrong usage; 3 gpudoctor itself failed; 130 interrupted.
"""


@dataclass(frozen=True)
class Options:
    """The options of the command."""

    wanted: Wanted
    problems: tuple[str, ...]
    replay: Path | None
    logs: tuple[str, ...]
    destination: Path | None
    run: bool
    journal: Path | None
    form: str | None


@click.command(help=COMMANDS["fix"], epilog=_EPILOG)
@click.argument("problems", nargs=-1, metavar="[PROBLEM]…", shell_complete=completing.problems)
@options.python("Examine this interpreter or environment.")
@options.replay("Use a saved snapshot instead of this machine.")
@options.logs("Also analyse this log or traceback (-: standard input).")
@options.script_or_json
@options.output("Write the script to FILE.")
@click.option("--run", is_flag=True, help="Ask before each step, then run it.")
@click.option(
    "--journal", metavar="FILE", type=PATH, help="Log file of --run.  [default: a new file in ~/.local/state/gpudoctor]"
)
@options.timeout
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    asked = Options(Wanted(**options.taken_out(Wanted, given)), **{**given, "form": _form(given["form"], given["destination"])})
    _forbid_contradictions(asked)
    _must_be_known(asked.problems)
    from gpudoctor.cli import output

    if asked.destination:
        output.must_be_writable(asked.destination)
    found = _found(asked)
    report = found.report
    steps, notes = _steps(asked, found)
    if asked.form == "json":
        from gpudoctor.repair import as_json

        output.deliver(as_json.render(steps, notes, report), asked.destination)
    elif not steps:
        output.show(f"# {_nothing(report)} There is nothing to fix.\n")
    elif asked.run:
        context.exit(_run(asked, steps, notes, report))
    else:
        _print(asked, steps, notes, report)


def _forbid_contradictions(asked: Options) -> None:
    if asked.replay and asked.wanted.python:
        raise click.UsageError("--replay uses a snapshot: --python cannot be used with it.")
    if asked.journal and not asked.run:
        raise click.UsageError("--journal requires --run.")
    if not asked.run:
        return
    for name, value in {"--replay": asked.replay, "-o": asked.destination, "--format json": asked.form == "json"}.items():
        if value:
            raise click.UsageError(f"--run changes this machine: {name} cannot be used with it.")
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty()):
        raise click.UsageError("--run asks before each step and needs a terminal. Without --run the script is printed.")


def _form(form: str | None, destination: Path | None) -> str:
    """sh or json: as chosen, or as the file's name implies; UsageError for the name of another format."""
    from gpudoctor.report import formats

    by_name = formats.of(destination) if destination else None
    if form or by_name in (None, "text", "json"):
        return form or ("json" if by_name == "json" else "sh")
    raise click.UsageError(f"a script or JSON is written here, but -o {destination} means {by_name}.")


def _must_be_known(names: tuple[str, ...]) -> None:
    from gpudoctor import catalog
    from gpudoctor.report import words

    known, checks = catalog.problems(), catalog.checks()
    for name in names:
        if name in checks and name not in known:
            found = words.listed([problem.id for problem in catalog.found_by(checks[name])], _LISTED)
            raise UserError(f"{name} is a check; give one of its problems: {found} (gpudoctor explain {name})")
        if name not in known:
            raise UserError(unknown("problem", name, known))


def _found(asked: Options) -> Checkup:
    """This machine, without measurements, or a snapshot."""
    from gpudoctor import examining
    from gpudoctor.checkup import Checkup
    from gpudoctor.files import opening
    from gpudoctor.redaction import remembering

    told = examining.evidence_of(asked.logs, "--log takes texts; for a snapshot use --replay FILE")
    taken = remembering.restored(opening.taken_in(str(asked.replay))) if asked.replay else _answers(asked.wanted)
    return Checkup(snapshot=examining.with_evidence(taken, told))


def _answers(wanted: Wanted) -> Snapshot:
    from gpudoctor.cli import configured, output
    from gpudoctor.examining import of_interpreter

    wanted = configured.applied(wanted)
    with output.progress() as tell:
        return replace(of_interpreter(wanted, tell)[0], ignored=wanted.ignored)


def _steps(asked: Options, found: Checkup) -> tuple[list[Step], list[str]]:
    """The steps for all problems found, or for the named ones; a named problem that was not found gets its general fixes."""
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
    notes = [f"{name} was not found here; these are its general fixes for this platform." for name in absent]
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
        screen.note(f"Read it, then run: sh {asked.destination}")


def _run(asked: Options, steps: Sequence[Step], notes: Sequence[str], before: Report) -> int:
    from gpudoctor.repair import asking
    from gpudoctor.repair.running import Failed, Quit, Runner

    path = asked.journal or _default_journal()
    with _opened(path) as journal:
        journal.write(_head(before))
        runner = Runner(asking.ask, journal, _busy)
        for note in notes:
            _say(note)
        try:
            runner.run(steps)
            failed = False
        except Failed:
            failed = True
        except Quit:
            failed = False
        except (KeyboardInterrupt, asking.Ended, SystemExit) as ending:
            _say("\nInterrupted.")
            _said(runner, path)
            return ending.code if isinstance(ending, SystemExit) and isinstance(ending.code, int) else 130
    _said(runner, path)
    after = _found(asked).report if runner.has_run else before
    _log_outcome(path, before, after)
    heading = "After the fixes:" if runner.has_run else "Nothing was changed:"
    return _compared(heading, before, after, failed, runner.reboots)


def _head(before: Report) -> bytes:
    from gpudoctor.repair import journal

    now = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    return journal.head(before, platform.node(), now).encode("utf-8", "replace")


def _log_outcome(path: Path, before: Report, after: Report) -> None:
    from gpudoctor.repair import journal

    with _opened(path) as log:
        lines = ("\n== Looked again" if after is not before else "\n== Nothing was changed", *journal.outcome(before, after))
        log.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))


def _say(text: str, end: str = "\n") -> None:
    from gpudoctor.cli import output

    output.show(text + end)


def _said(runner: Runner, path: Path) -> None:
    _say("")
    for line in runner.done:
        _say(line[0].upper() + line[1:])
    if not runner.has_run:
        _say("Nothing was run.")
    if runner.for_later:
        _say("For you to run:")
        _say("".join(f"  {line}\n" for command in dict.fromkeys(runner.for_later) for line in command.splitlines()), end="")
    if runner.reboots:
        _say("Save all work, then reboot: sudo reboot")
    if runner.has_run:
        _say(f"Log of all commands and their output: {path}")


def _compared(heading: str, before: Report, after: Report, failed: bool, waits_for_boot: bool) -> int:
    """Prints which problems are fixed, remain or are new."""
    from gpudoctor.model import Status
    from gpudoctor.repair import journal

    lines = journal.outcome(before, after)
    _say(f"\n{heading}" if lines else "\nNo problems found.")
    for line in lines:
        _say(f"  {line}")
    if waits_for_boot and after.diagnosis:
        _say("Some of these may need the reboot.")
    left = any(entry.status is Status.FAIL for entry in after.diagnosis)
    return 1 if failed or (left and not waits_for_boot) else 0


def _busy() -> list[str]:
    from gpudoctor.facts import Facts
    from gpudoctor.repair import busy

    return busy.users(Facts(_answers(Wanted())))


def _default_journal() -> Path:
    from gpudoctor import folders, state

    try:
        state.make_folder(folders.state())
    except OSError as failure:
        raise WorkError(f"cannot create the folder {folders.state()}: {failure.strerror}") from None
    return folders.state() / f"fix-{datetime.now():%Y-%m-%d-%H%M%S}.log"


@contextlib.contextmanager
def _opened(path: Path):  # type: ignore[no-untyped-def]
    """Commands may print secrets: only the owner may read it."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as journal:
            yield journal
    except OSError as failure:
        raise WorkError(f"cannot write {path}: {failure.strerror}") from None
