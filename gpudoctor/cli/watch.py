"""`gpudoctor watch`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli import COMMANDS, completing, options, sharing
from gpudoctor.cli.times import Time

if TYPE_CHECKING:
    from gpudoctor.choices import Format
    from gpudoctor.jobs.watching.target import Target
    from gpudoctor.model import Reply

OUT, ERR = 1, 2
_HELP = f"""{COMMANDS["watch"]}

Without a target, all GPUs and everything on them are watched. A command after -- runs as it is, with your terminal and your
signals, and its exit code is that of gpudoctor. ^C or q ends a watch with the report.

The program is not touched: gpudoctor reads NVML and /proc, and takes less than a hundredth of a core. On Hopper and newer GPUs
the driver counts what the multiprocessors do (GPM), elsewhere DCGM does if its daemon runs; without them the report says what
utilisation alone cannot show.

With a command, the report goes to standard error, and with another --format than text to standard output.
"""
_EPILOG = """\
\b
Examples:
  gpudoctor watch                                  all GPUs, until ^C
  gpudoctor watch -- python train.py
  gpudoctor watch --pid 4711 --for 1m
  gpudoctor watch --container trainer --for 30s -o watch.html
  gpudoctor watch --job 1234 --stream > watch.jsonl
  gpudoctor watch --for 30s --save watch.json && gpudoctor check --replay watch.json

\b
Exit code: that of the command; without one 0, or 1 with problems at or above
--fail-on. 2 wrong usage, 3 nothing could be watched.
"""


@click.command(help=_HELP, epilog=_EPILOG, context_settings={"allow_interspersed_args": False})
@click.option("--pid", metavar="PID", type=click.IntRange(min=1), help="Watch this process and what it started.")
@click.option("--container", metavar="ID", shell_complete=completing.containers, help="Watch this running container.")
@click.option("--job", metavar="SLURM_JOB", help="Watch the processes of this Slurm job on this node.")
@click.option(
    "--for",
    "seconds",
    metavar="TIME",
    type=Time(1, 7 * 86400),
    help="Watch for 30s, 5m, 1h.  [default: until ^C; 30s without a terminal]",
)
@click.option("--stacks", "with_stacks", is_flag=True, help="Also read the stacks of the busiest Python process with py-spy.")
@click.option("--stream", is_flag=True, help="Print a line of JSON each second, and the report as the last one.")
@options.engine
@options.report_format("text")
@options.output("Write the report to FILE; watch.html has the timeline.")
@options.save("Write a snapshot to FILE, for gpudoctor check --replay.")
@options.verbose("Show every check, every fix and all evidence.")
@options.quiet
@options.fail_on
@options.sharing
@click.argument("command", nargs=-1, metavar="[-- COMMAND…]", type=click.UNPROCESSED)
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
    fail_on: str,
    stream: bool,
    **given: Any,
) -> None:
    from gpudoctor.cli import delivering, output, watching

    how = sharing.chosen(given)
    _forbid_contradictions(command, stream, form, destination, given)
    for path in filter(None, (destination, save)):
        output.must_be_writable(path)
    delivered = delivering.Form(form, destination, verbose, quiet)
    is_for_program = bool(command) and delivered.name != "text" and not destination
    target = _target(command, stream, given)
    code: int | None = None
    if command:
        reply, code = watching.of_command(command, target, ERR if is_for_program or stream else OUT, ERR)
    else:
        reply = watching.until_over(target, stream, quiet)
    found = _judged(reply)
    shown = output.saved(found, how, save)
    if stream:
        watching.show_line({"report": watching.as_object(shown)})
    elif destination:
        delivering.write(shown, delivered, destination, "")
    elif command and not is_for_program:
        sharing.tell_shown(shown)
        delivering.show_beside(shown, delivered)
    else:
        sharing.tell_shown(shown)
        delivering.show(shown, delivered, "")
    context.exit(watching.exit_code(found, fail_on) if code is None else code)


def _forbid_contradictions(
    command: tuple[str, ...], stream: bool, form: str | None, destination: Path | None, given: dict[str, Any]
) -> None:
    named = [f"--{name}" for name in ("pid", "container", "job") if given[name]] + ["a command"] * bool(command)
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} contradict each other: watch one of them.")
    if stream and (form or destination):
        raise click.UsageError("--stream prints lines of JSON: it takes no --format and no -o (--save writes the snapshot).")
    if given["engine"] and not given["container"]:
        raise click.UsageError("--engine requires --container.")


def _target(command: tuple[str, ...], stream: bool, given: dict[str, Any]) -> Target:
    import shlex
    import shutil
    import sys
    from dataclasses import replace

    from gpudoctor.errors import UserError
    from gpudoctor.jobs.watching import finding
    from gpudoctor.jobs.watching.target import COMMAND, GPUS, Target

    seconds, with_stacks = given["seconds"], given["with_stacks"]
    if with_stacks and not shutil.which("py-spy"):
        raise UserError("--stacks requires py-spy, which is not installed here (pip install py-spy)")
    if command:
        found = Target(COMMAND, shlex.join(command))
    elif given["pid"]:
        found = finding.process(given["pid"])
    elif given["container"]:
        found = finding.container(given["container"], given["engine"])
    elif given["job"]:
        found = finding.slurm_job(given["job"])
    else:
        found = Target(GPUS, "all GPUs")
    if seconds is None and not command and not (sys.stdout and sys.stdout.isatty()) and not stream:
        seconds = 30.0
    return replace(found, seconds=seconds, with_stacks=with_stacks)


def _judged(reply: Reply) -> Any:
    from gpudoctor.checkup import Checkup
    from gpudoctor.errors import WorkError
    from gpudoctor.jobs.watching import snapshots

    if reply.status != "ok":
        raise WorkError(reply.detail)
    return Checkup(snapshot=snapshots.of(reply), checks=snapshots.checks())
