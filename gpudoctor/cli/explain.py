"""`gpudoctor explain`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor import screen
from gpudoctor.cli import COMMANDS, completing, options, sharing

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup

_EPILOG = """\
\b
Examples:
  gpudoctor explain xids                         a check
  gpudoctor explain no-driver-found              a problem
  gpudoctor explain pinned-memory                a practice
  gpudoctor explain Xid 79                       a code; also: CUDA error 802,
                                                 NVML 18, nvidia-smi 9
  gpudoctor explain 'invalid device ordinal'     a message
  gpudoctor explain train.log dmesg.txt          find the cause in these files
  sudo dmesg | gpudoctor explain -

\b
Files: tracebacks and training logs, dmesg and the journal, nvidia-smi (plain,
-q, -q -x), nvidia-bug-report.log(.gz), torch's collect_env, NCCL_DEBUG=INFO
logs, output of Docker, pip and compilers, gpudoctor snapshots.

\b
Exit code: 0 explained, 2 wrong usage, 3 nothing recognised.
"""


class _Command(click.Command):
    """Accepts messages that begin with a dash, such as "-bash: nvidia-smi: command not found"."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        messages = [] if "--" in args else [word for word in args if re.match(r"-(?!o)[^\s=]*\s", word)]
        options = [word for word in args if word not in messages]
        return super().parse_args(context, [*options, "--", *messages] if messages else args)


@click.command(cls=_Command, help=COMMANDS["explain"], epilog=_EPILOG)
@click.argument("what", nargs=-1, metavar="ID|CODE|MESSAGE|FILE…", shell_complete=completing.anything)
@options.own_checks
@options.text_or_json
@options.output()
@options.save("Write what the texts contain to FILE, as a snapshot.")
@options.verbose()
@options.sharing
@click.pass_context
def command(
    context: click.Context,
    /,
    what: tuple[str, ...],
    form: str | None,
    destination: Path | None,
    save: Path | None,
    verbose: bool,
    **given: Any,
) -> None:
    how = sharing.chosen(given)
    if not "".join(what).strip() and (what or sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError("give an id, a code, a message or a file (-: standard input).")
    if what == ("-",) and sys.stdin and sys.stdin.isatty():
        screen.note("Paste the text, then press Ctrl-D on an empty line.")
    from gpudoctor import explaining
    from gpudoctor.cli import output

    form = form or output.text_or_json(destination)
    if destination:
        output.must_be_writable(destination)
    about = explaining.known_as_json(what) if form == "json" else "".join(f"{line}\n" for line in explaining.known(what))
    if about:
        if save:
            raise click.UsageError(f"--save works on logs and messages only, not on {' '.join(what)!r}.")
        output.deliver(about, destination)
        return
    found = explaining.checkup_of(what or ("-",))
    shown = output.saved(found, how, save)
    is_known = explaining.explained_anything(shown.report)
    if form == "text" and not is_known and not explaining.are_files(what or ("-",)):
        text = " ".join(what)
        codes = explaining.mentioned(text)
        if words := codes or explaining.parts_of_messages(text):
            output.deliver("".join(f"{line}\n" for line in words), destination)
            context.exit(0 if codes else 3)
    output.deliver(shown.render("json") if form == "json" else _rendered(shown, destination, verbose), destination, shown)
    context.exit(0 if is_known else 3)


def _rendered(shown: Checkup, destination: Path | None, verbose: bool) -> str:
    from gpudoctor.cli import output
    from gpudoctor.report import explained

    return shown.sweep(explained.render(shown.report, *output.look(destination), verbose=verbose))
