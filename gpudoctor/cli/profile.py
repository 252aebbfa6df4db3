"""`gpudoctor profile`."""

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
    from gpudoctor.jobs.tracing.hooked import Window
    from gpudoctor.jobs.tracing.run import Profiled
    from gpudoctor.model import Snapshot

OUT, ERR = 1, 2
_HELP = f"""{COMMANDS["profile"]}

The command runs once as it is, with your terminal, your input and your signals, and its own exit code. Its code is not edited:
when one of its Pythons imports torch, a tracer starts torch's profiler for some steps of the optimizer after a warm-up, or for
some seconds if there is no optimizer. Programs without torch are traced by cupti-python or Nsight Systems, if installed.

The report says where the time goes: kernels, copies, waits for the GPU with the line of the program, memory, and what can be
changed. It goes to standard error, since standard output belongs to the command. With another --format than text it goes to
standard output, and the command's output to standard error.
"""
_EPILOG = """\
\b
Examples:
  gpudoctor profile -- python train.py
  gpudoctor profile --steps 50 --warmup 20 -- torchrun --nproc-per-node 8 train.py
  gpudoctor profile --after 60s --for 20s -- python serve.py
  gpudoctor profile --traces traces -o profile.html -- python train.py
  gpudoctor profile --save before.json -- python train.py
  gpudoctor profile --kernel layer_norm -- python train.py
  gpudoctor profile --compare before.json after.json

\b
Exit code: that of the command; with --compare 0, or 1 if a step is slower.
2 wrong usage.
"""


@click.command(help=_HELP, epilog=_EPILOG, context_settings={"allow_interspersed_args": False})
@click.option(
    "--steps", metavar="N", type=click.IntRange(1, 10000), default=20, show_default=True, help="Record N steps of the optimizer."
)
@click.option(
    "--for",
    "seconds",
    metavar="TIME",
    type=Time(0.1, 3600),
    default="10s",
    show_default=True,
    help="Record at most about this long; without an optimizer, this long.",
)
@click.option(
    "--warmup", metavar="N", type=click.IntRange(1, 100000), default=10, show_default=True, help="Leave out the first N steps."
)
@click.option(
    "--after",
    metavar="TIME",
    type=Time(0.1, 3600),
    default="3s",
    show_default=True,
    help="Without an optimizer: start this long after the first use of CUDA.",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "torch", "cupti", "nsys"]),
    default="auto",
    show_default=True,
    help="Trace from inside torch, with cupti-python, or with Nsight Systems.",
)
@click.option("--memory", is_flag=True, help="Also record which line allocated the GPU memory (torch's own history).")
@click.option(
    "--kernel",
    metavar="NAME",
    help="Measure some launches of one kernel with Nsight Compute instead.",
)
@click.option("--traces", "traces", metavar="DIR", type=PATH, help="Keep the traces in DIR, for ui.perfetto.dev or nsys-ui.")
@click.option("--compare", is_flag=True, help="Compare two profiles that were saved with --save: what got slower, and why.")
@click.option("--no-check", is_flag=True, help="Report on the program alone; do not examine the machine.")
@options.python("The Python that runs the command.  [default: found from the command]")
@options.report_format("text")
@options.output("Write the report to FILE.")
@options.save("Write a snapshot to FILE, for gpudoctor check --replay and --compare.")
@options.verbose("Show every check, every fix, all evidence and all rows.")
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
    **given: Any,
) -> None:
    from gpudoctor.cli import delivering, output
    from gpudoctor.jobs.tracing.hooked import Window

    how = sharing.chosen(given)
    if given["compare"]:
        context.exit(_compared(command, form, destination))
    if given["kernel"] is not None and not given["kernel"].strip():
        raise click.UsageError("--kernel requires a part of the name of a kernel.")
    for path in filter(None, (destination, save)):
        output.must_be_writable(path)
    delivered = delivering.Form(form, destination, verbose, quiet)
    is_for_program = delivered.name != "text" and not destination
    window = Window(given["steps"], given["seconds"], given["warmup"], given["after"], given["memory"])
    found, answers = _profiled(command, window, given, ERR if is_for_program else OUT)
    if (nothing := found.reply.value["nothing"]) and (destination or is_for_program):
        screen.note(f"gpudoctor: {nothing}")
    shown = output.saved(_checkup(answers), how, save)
    if destination:
        delivering.write(shown, delivered, destination, "")
    elif is_for_program:
        delivering.show(shown, delivered, "")
    else:
        sharing.tell_shown(shown)
        delivering.show_beside(shown, delivered)
    code = found.ran.code
    context.exit(128 + found.ended_by if found.ended_by else 128 - code if code < 0 else code)


def _profiled(argv: tuple[str, ...], window: Window, given: dict[str, Any], out: int) -> tuple[Profiled, Snapshot]:
    import os

    from gpudoctor.jobs.tracing import engines, run
    from gpudoctor.trying import command as commands

    words, variables = commands.unwrapped(argv, os.environ)
    commands.program(words[0], variables)
    name = given["kernel"]
    engine = engines.of_kernel(name) if name else engines.chosen(given["engine"], words, variables)
    found = run.profiled(words, variables, window, engine, given["traces"], out, ERR, _tell)
    if given["traces"]:
        screen.note(f"gpudoctor: the traces are in {given['traces']} (open them in https://ui.perfetto.dev)")
    answers = _machine(given["python"] or commands.python_of(words, variables), given["no_check"] or bool(found.ended_by))
    return found, _with(answers, found)


def _tell(words: str) -> None:
    screen.note(f"gpudoctor: {words}")


def _machine(python: str | None, is_alone: bool) -> Snapshot:
    """A quick check of the machine, or nothing about it."""
    from gpudoctor import examining
    from gpudoctor.cli import output
    from gpudoctor.errors import UserError, WorkError
    from gpudoctor.jobs.tracing import run
    from gpudoctor.wanted import Wanted

    if not is_alone:
        try:
            with output.progress() as tell:
                found, _ = examining.examined(Wanted("quick", python=python), None, tell, sharing.warn)
            assert found.snapshot
            return found.snapshot
        except (UserError, WorkError) as failure:
            sharing.warn(f"only the program is reported: {failure}")
        except KeyboardInterrupt:
            screen.note("Interrupted: the report is about the program alone.")
    return run.alone()


def _with(answers: Snapshot, found: Profiled) -> Snapshot:
    from dataclasses import replace

    from gpudoctor.facts.job.traced import QUESTION

    return replace(answers, level=answers.level or "quick", replies={**answers.replies, QUESTION: found.reply})


def _checkup(answers: Snapshot) -> Checkup:
    from gpudoctor.checkup import Checkup

    return Checkup(snapshot=answers)


def _compared(names: tuple[str, ...], form: Format | None, destination: Path | None) -> int:
    """The exit code: 1 if a step is slower in the second one."""
    from gpudoctor.cli import output
    from gpudoctor.jobs.tracing import comparing

    if len(names) != 2:
        raise click.UsageError("--compare requires two files: gpudoctor profile --compare before.json after.json")
    if form not in (None, "text", "json"):
        raise click.UsageError("--compare writes text and JSON only.")
    found = comparing.compared(*names)
    is_json = form == "json" or (destination is not None and destination.suffix == ".json")
    output.deliver(found.as_json() if is_json else found.as_text(), destination)
    return 1 if found.is_slower else 0
