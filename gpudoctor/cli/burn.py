"""`gpudoctor burn`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor import screen
from gpudoctor.cli import COMMANDS, options, sharing

if TYPE_CHECKING:
    from gpudoctor.choices import Format

LOADS = ("power", "memory", "pcie", "links")
_HELP = f"""{COMMANDS["burn"]}

All GPUs work at the same time: matrix products at full power and in bursts, patterns in nearly all memory, copies to and from
the host and between the GPUs. Every result is compared bit for bit. The report says whether a result was wrong, and whether a GPU
gets slower or hotter than its siblings.

It stops before its time if a GPU reaches its slowdown temperature, has an uncorrectable memory error, or is used by another
program. ^C ends it with a report of what was done until then.
"""
_EPILOG = """\
\b
Examples:
  gpudoctor burn                           10 minutes, all GPUs, all loads
  gpudoctor burn --minutes 60 --gpus 0,3
  gpudoctor burn --minutes 2 --memory      only the memory patterns
  gpudoctor burn --save burn.json -o burn.html
\b
Exit code: 0 nothing at or above --fail-on, 1 problems found, 2 wrong usage,
3 gpudoctor itself failed.
"""


@click.command(help=_HELP, epilog=_EPILOG)
@click.option(
    "--minutes", metavar="N", type=click.FloatRange(0.1, 10080), default=10, show_default=True, help="How long the load lasts."
)
@click.option("--power", is_flag=True, help="Matrix products at full power, in each precision, and bursts of 1 to 100 ms.")
@click.option("--memory", is_flag=True, help="Patterns in nearly all free memory, written and read back.")
@click.option("--pcie", is_flag=True, help="Copies between host and GPU, both ways at once.")
@click.option("--links", is_flag=True, help="Copies between all GPUs at once.")
@click.option("--all", "everything", is_flag=True, help="All of these.  [default]")
@options.python()
@options.image("Run in a new container of this image.")
@options.container
@options.gpus
@click.option("--force", is_flag=True, help="Also load GPUs in use; start an image even if the driver is too old for it.")
@options.report_format("text")
@options.output("Write the report to FILE.")
@options.save("Write a snapshot to FILE, for gpudoctor check --replay.")
@options.fail_on
@options.timeout
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
    minutes: float,
    everything: bool,
    form: Format | None,
    destination: Path | None,
    save: Path | None,
    fail_on: str,
    verbose: bool,
    quiet: bool,
    **given: Any,
) -> None:
    from dataclasses import replace

    from gpudoctor.cli import check, delivering, last_report, output
    from gpudoctor.cli.check_options import forbid_contradictions, wanted_of
    from gpudoctor.wanted import Burning

    how = sharing.chosen(given)
    forbid_contradictions({**context.params, "replay": None, "logs": (), "measure_timeout": None, "experiments": True})
    chosen = tuple(name for name in LOADS if given.pop(name))
    burning = Burning(60 * minutes, LOADS if everything or not chosen else chosen)
    for path in filter(None, (destination, save)):
        output.must_be_writable(path)
    wanted = replace(wanted_of(given), burning=burning, experiments=False)
    found, ended_by = check.examined(wanted)
    shown = output.saved(found, how, save)
    delivered = delivering.Form(form, destination, verbose, quiet)
    if destination:
        delivering.write(shown, delivered, destination, "")
    else:
        sharing.tell_shown(shown)
        delivering.show(shown, delivered, "")
    last_report.keep(shown.report)
    if ended_by:
        screen.note("Interrupted: the report contains what was measured until then.")
    context.exit(128 + ended_by if ended_by else check.exit_code(shown.report, fail_on))
