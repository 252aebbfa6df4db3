"""`gpudoctor burn`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor import screen
from gpudoctor.cli import COMMANDS, options, sharing
from gpudoctor.cli.paths import PATH
from gpudoctor.cli.times import Time

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.choices import Format
    from gpudoctor.wanted import Wanted

LOADS = ("power", "memory", "pcie", "links")
PRESETS = {"quick": (2, ("power", "memory")), "standard": (10, LOADS), "full": (60, LOADS)}  # level -> minutes, loads
ACCEPTANCE_MINUTES = 30
_HELP = f"""{COMMANDS["burn"]}

All GPUs work at the same time: matrix products at full power and in bursts, patterns in nearly all memory, copies to and from
the host and between the GPUs. Every result is compared bit for bit. The report says whether a result was wrong, and whether a GPU
gets slower or hotter than its siblings.

Meanwhile clocks, power, temperatures, errors of memory, PCIe and NVLink, and Xids are watched. The load on a GPU stops before its
time if the GPU reaches its slowdown temperature, has an uncorrectable memory error or a fatal Xid, or is used by another
program. ^C ends all of it with a report of what was done until then.
"""
_EPILOG = """\
\b
Examples:
  gpudoctor burn                           10 minutes, all GPUs, all loads
  gpudoctor burn --level quick             2 minutes of matrix products and memory
  gpudoctor burn --minutes 60 --gpus 0,3
  gpudoctor burn --minutes 2 --memory      only the memory patterns
  gpudoctor burn --save burn.json -o burn.html
  gpudoctor burn --acceptance --expect rack7.yaml --serials -o accepted.html
  gpudoctor burn --resume                  after ^C: the rest of it

\b
Exit code: 0 nothing at or above --fail-on, 1 problems found, 2 wrong usage,
3 gpudoctor itself failed.
"""


@click.command(help=_HELP, epilog=_EPILOG)
@options.level(
    "quick: 2 minutes of --power and --memory. standard: 10 minutes of all loads. full: 60 minutes of all loads.  "
    "[default: standard]"
)
@click.option(
    "--minutes",
    metavar="N",
    type=Time(0.1, 10080, "m"),
    help="How long the load lasts, in minutes, or as 90s, 2h.  [default: of the --level; with --acceptance 30]",
)
@click.option(
    "--acceptance",
    is_flag=True,
    help="Benchmark each GPU first, load it for 30 minutes, and write a report to sign: every figure against datasheet, siblings "
    "and baseline.",
)
@click.option("--serials", is_flag=True, help="Read serial numbers and keep them in the report.")
@click.option("--resume", is_flag=True, help="Continue the load that ^C interrupted; what is finished is not run again.")
@click.option("--power", is_flag=True, help="Matrix products at full power, in each precision, and bursts of 1 to 100 ms.")
@click.option("--memory", is_flag=True, help="Patterns in nearly all free memory, written and read back.")
@click.option("--pcie", is_flag=True, help="Copies between host and GPU, both ways at once.")
@click.option("--links", is_flag=True, help="Copies between all GPUs at once, and sums over all of them.")
@click.option("--all", "everything", is_flag=True, help="All of these.  [default: those of the --level]")
@options.python()
@options.image("Run in a new container of this image.")
@options.container
@options.gpus
@options.expect
@click.option("--baseline", metavar="FILE", type=PATH, help="Compare with this baseline (see gpudoctor baseline).")
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
    level: str | None,
    minutes: float | None,
    acceptance: bool,
    resume: bool,
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

    from gpudoctor import resuming
    from gpudoctor.cli import check, delivering, last_report, output
    from gpudoctor.cli.check_options import forbid_contradictions, wanted_of
    from gpudoctor.wanted import Burning

    how = sharing.chosen(given)
    if given["serials"] and not how.no_redact and (save or how.is_for_all()):
        how = replace(how, keep=tuple(dict.fromkeys((*how.keep, "serials"))))
    forbid_contradictions({**context.params, "replay": None, "logs": (), "measure_timeout": None, "experiments": True})
    if level and acceptance:
        raise click.UsageError("--acceptance takes 30 minutes of all loads: use --minutes instead of --level to change that.")
    usual, loads = PRESETS[level or "standard"]
    chosen = tuple(name for name in LOADS if given.pop(name))
    loads = LOADS if everything else chosen or loads
    burning = Burning(60 * (minutes or (ACCEPTANCE_MINUTES if acceptance else usual)), loads, acceptance)
    kept = _resumed(context, resuming) if resume else None
    for path in filter(None, (destination, save)):
        output.must_be_writable(path)
    wanted = replace(wanted_of(given), burning=burning, experiments=False)
    if kept:
        earlier = kept.snapshot
        wanted = replace(wanted, burning=kept.burning, gpus=kept.gpus, earlier=earlier)
        wanted = wanted if wanted.expect else replace(wanted, expected_before=earlier.expectation)
    found, ended_by = _burned(wanted)
    assert found.snapshot
    assert wanted.burning
    why_not = ""
    if ended_by:
        why_not = resuming.keep(found.snapshot, wanted.burning, wanted.gpus)
    else:
        resuming.forget()
    shown = output.saved(found, how, save)
    delivered = delivering.Form(form, destination, verbose, quiet)
    if destination:
        delivering.write(shown, delivered, destination, "")
    else:
        sharing.tell_shown(shown)
        delivering.show(shown, delivered, "")
    last_report.keep(shown.report)
    if ended_by:
        more = f"it cannot be resumed ({why_not})" if why_not else "gpudoctor burn --resume continues"
        screen.note(f"Interrupted: the report contains what was measured until then; {more}.")
    context.exit(128 + ended_by if ended_by else check.exit_code(shown.report, fail_on))


def _resumed(context: click.Context, resuming: Any) -> Any:
    """What was interrupted. What it does was chosen when it began."""
    from click.core import ParameterSource

    for name in ("level", "minutes", "acceptance", "power", "memory", "pcie", "links", "everything", "gpus"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            shown = "all" if name == "everything" else name
            raise click.UsageError(f"--resume continues what was chosen before: --{shown} cannot be used with it.")
    return resuming.read()


def _burned(wanted: Wanted) -> tuple[Checkup, int]:
    """With a live screen at a terminal, else with a line of progress, or none."""
    from rich.console import Console

    from gpudoctor import examining
    from gpudoctor.cli import check
    from gpudoctor.cli.burn_screen import Screen

    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        return check.examined(wanted)
    with Screen(console) as shown:
        return examining.examined(wanted, None, shown.say, sharing.warn, shown.update)
