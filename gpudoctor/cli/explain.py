"""`gpudoctor explain`: an id, a code, a message, or evidence in files."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

from gpudoctor.cli import COMMANDS, completion, options, sharing

_EPILOG = """\
\b
Examples:
  gpudoctor explain xids                         a check
  gpudoctor explain no-driver-found              a problem
  gpudoctor explain Xid 79                       a code; also: CUDA error 802,
                                                 NVML 18, nvidia-smi 9
  gpudoctor explain 'invalid device ordinal'     a message
  gpudoctor explain train.log dmesg.txt          all that these files tell
  sudo dmesg | gpudoctor explain -
\b
Files: tracebacks and training logs, dmesg and the journal, nvidia-smi (plain,
-q, -q -x), nvidia-bug-report.log(.gz), torch's collect_env, NCCL_DEBUG=INFO,
messages of Docker, pip and compilers, a snapshot of gpudoctor.
\b
Exit code: 0 explained, 2 wrong usage, 3 nothing in it is known.
"""


class _Command(click.Command):
    """A message may begin with a dash, such as "-bash: nvidia-smi: command not found"."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        messages = [] if "--" in args else [word for word in args if re.match(r"-(?!o)[^\s=]*\s", word)]
        options = [word for word in args if word not in messages]
        return super().parse_args(context, [*options, "--", *messages] if messages else args)


@click.command(cls=_Command, help=COMMANDS["explain"], epilog=_EPILOG)
@click.argument("what", nargs=-1, metavar="ID|CODE|MESSAGE|FILE…", shell_complete=completion.anything)
@options.text_or_json
@options.output()
@options.save("Write what the evidence tells as a snapshot.")
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
        raise click.UsageError("give an id, a code, a message or files; - reads standard input.")
    from gpudoctor import evidence, explaining
    from gpudoctor.cli import output
    from gpudoctor.files import snapshot

    form = form or sharing.text_or_json(destination)
    about = list(explaining.known(what))
    if about:
        if form == "json" or save:
            raise click.UsageError(f"{' '.join(what)!r} is no evidence: --format json and --save are about evidence.")
        _deliver("".join(f"{line}\n" for line in about), destination)
        return
    taken = evidence.snapshot_of(explaining.gathered(what or ("-",)))
    to_terminal = sharing.goes_to_terminal(destination)
    leaving = sharing.shared(taken, how, to_terminal=to_terminal and not save)
    if save:
        output.write(save, snapshot.dump(leaving.snapshot))
    shown = sharing.as_it_is(taken) if to_terminal else leaving
    report = explaining.verdict(shown.snapshot)
    if form == "text" and not explaining.explained_anything(report) and not explaining.are_files(what or ("-",)):
        about = explaining.about_words(" ".join(what))
        if about:
            _deliver("".join(f"{line}\n" for line in about), destination)
            return
    if form == "json":
        from gpudoctor.report import json

        _deliver(shown.sweep(json.render(report)), destination)
    else:
        from gpudoctor.report import explained, terminal

        look = (80, False) if destination else terminal.look()
        _deliver(shown.sweep(explained.render(report, *look, verbose=verbose)), destination)
    context.exit(0 if explaining.explained_anything(report) else 3)


def _deliver(text: str, destination: Path | None) -> None:
    from gpudoctor.cli import output

    if destination:
        output.write(destination, text.encode("utf-8", "replace"))
    else:
        output.show(text)
