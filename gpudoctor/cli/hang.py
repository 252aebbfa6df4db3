"""`gpudoctor hang`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli import COMMANDS, options, sharing
from gpudoctor.cli.paths import NAME
from gpudoctor.cli.times import Time

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.choices import Format

_HELP = f"""{COMMANDS["hang"]}

Looks at the program for some seconds without stopping it: what each process, rank and thread waits for (/proc), where it is in
Python (py-spy, if installed), what its GPUs do (NVML), how many operations each rank launched (NCCL's RAS socket), and what
PyTorch's flight recorder dumped. Then it says which process holds up the others, where, and what to do.

FILE is a dump of the flight recorder (pickle or JSON), a log of a rank, or a folder of them: of all ranks, so that they can be
compared. In a folder, dumps and files named like logs are read. Nothing in a pickle is executed.
"""
_EPILOG = """\
\b
Examples:
  gpudoctor hang --pid 4711              the program, or any rank of a job
  sudo gpudoctor hang --pid 4711         programs of others, kernel stacks
  gpudoctor hang --job 1234              the processes of a Slurm job here
  gpudoctor hang --pid 4711 --for 20s    look for longer
  gpudoctor hang /tmp/nccl_trace_rank_*  compare the dumps of all ranks
  gpudoctor hang rank0.log rank1.log     after a watchdog gave up

\b
Exit code: 0 nothing hangs, 1 a cause was found, 2 wrong usage, 3 it hangs
and no cause was found, or it could not be judged.
"""


@click.command(help=_HELP, epilog=_EPILOG)
@click.option("--pid", metavar="PID", type=click.IntRange(1, 1 << 22), help="Look at this process and all below it, or its job.")
@click.option("--job", metavar="ID", help="Look at the processes of this Slurm job on this node.")
@click.option("--for", "seconds", metavar="TIME", type=Time(1, 600), default="4s", show_default=True, help="Look for 20s, 2m.")
@click.option("--native", is_flag=True, help="Show C frames too: py-spy pauses each process for an instant.")
@click.option("--dump", is_flag=True, help="Let PyTorch write its flight recorders, if TORCH_NCCL_DEBUG_INFO_PIPE_FILE is set.")
@options.report_format("text")
@options.output("Write the report to FILE.")
@options.save("Write a snapshot to FILE, for gpudoctor check --replay.")
@options.verbose("Show every check, every fix and all evidence.")
@options.quiet
@options.sharing
@click.argument("files", nargs=-1, metavar="[FILE]…", type=NAME)
@click.pass_context
def command(
    context: click.Context,
    /,
    pid: int | None,
    job: str | None,
    seconds: float,
    native: bool,
    dump: bool,
    files: tuple[str, ...],
    form: Format | None,
    destination: Path | None,
    save: Path | None,
    verbose: bool,
    quiet: bool,
    **given: Any,
) -> None:
    from gpudoctor import hanging
    from gpudoctor.cli import delivering, output

    how = sharing.chosen(given)
    if pid is not None and job is not None:
        raise click.UsageError("give either --pid or --job.")
    if pid is None and job is None and not files:
        raise click.UsageError("name the program with --pid or --job, or give dumps or logs of its ranks.")
    if job is not None and (not job.strip() or job.startswith("-")):
        raise click.BadParameter(f"{job!r} is not the id of a Slurm job.", param_hint="'--job'")
    for path in filter(None, (destination, save)):
        output.must_be_writable(path)
    with output.progress() as tell:
        found = hanging.looked(hanging.Asked(pid, job, seconds, native, dump, files), tell)
    shown = output.saved(found, how, save)
    delivered = delivering.Form(form, destination, verbose, quiet)
    is_in_vain = pid is None and job is None and not found.report.diagnosis
    hints = "\nFor faults other than a hang: gpudoctor explain FILE\n" * is_in_vain
    if destination:
        delivering.write(shown, delivered, destination, hints)
    else:
        sharing.tell_shown(shown)
        delivering.show(shown, delivered, hints)
    context.exit(_exit_code(found))


def _exit_code(found: Checkup) -> int:
    """0: it moves; 1: a cause was found; 3: none was found, or it could not be judged."""
    from gpudoctor import hanging

    return hanging.exit_code(found.report)
