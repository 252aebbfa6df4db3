"""The command line: one module per command, imported only when that command is used."""

# No builtin `list` in this file: importing the command of that name makes it an attribute of this package.
from __future__ import annotations

import os
import traceback
from typing import Any, NoReturn

import click

from gpudoctor.cli import ending
from gpudoctor.cli.lazy import LazyGroup
from gpudoctor.errors import UserError, WorkError
from gpudoctor.version import __version__

COMMANDS = {
    "check": "Say what is wrong with this machine or container, and how to fix it.",
    "fix": "Print what repairs this machine as a shell script, or run it step by step.",
    "report": "Write a report to attach: a page, a ticket, a bundle, for CI; also of what was saved.",
    "diff": "Say how two machines differ, or one on two days, and which difference explains the problem.",
    "verify": "Run again what failed in a report, and say what is well now.",
    "run": "Run a container of an image, with the GPUs and what they need.",
    "images": "Look up, pull, build, pin and lint container images.",
    "baseline": "Keep what the GPUs reached when all was well, to compare with later.",
    "explain": "Say what a log, a message, a code, a check or a problem means, and how to fix it.",
    "list": "List the checks: what each reads, at which level it runs, what it needs.",
    "knowledge": "Say what state the tables of known GPUs, drivers, codes and messages are in.",
    "schema": "Print the JSON Schema of a report, a difference or a bundle.",
}
_EPILOG = """\
\b
Examples:
  gpudoctor check                        what is wrong here?
  gpudoctor check --python .venv/bin/python
  gpudoctor fix                          what to type, as a script
  gpudoctor explain train.log            what a log tells; also: Xid 79
\b
Shell completion, for example in ~/.bashrc:
  eval "$(_GPUDOCTOR_COMPLETE=bash_source gpudoctor)"
(zsh_source and fish_source are there too.)
"""


class Commands(LazyGroup):
    """gpudoctor's commands, and how each of them may end."""

    package = "gpudoctor.cli"
    helps = COMMANDS

    def invoke(self, context: click.Context) -> Any:
        try:
            with ending.by_signal():
                return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            _end(_interrupted(context.meta.get("gpudoctor.written", ())), 130)
        except UserError as error:
            _end(f"Error: {error}", 2)
        except WorkError as error:
            _end(f"Error: {error}", 3)
        except Exception as bug:
            if os.environ.get("GPUDOCTOR_DEBUG") == "1":
                traceback.print_exc()
            _end(_bug(bug), 3)


def _end(line: str, code: int) -> NoReturn:
    click.echo(line, err=True)
    raise click.exceptions.Exit(code)


def _interrupted(written: tuple[str, ...]) -> str:
    return f"Interrupted; only {' and '.join(written)} was written." if written else "Interrupted; nothing was written."


def _bug(bug: Exception) -> str:
    first_line = next(iter(str(bug).splitlines()), "")
    return (
        f"Error: this is a bug of gpudoctor {__version__}: {type(bug).__name__}: {first_line} "
        "(GPUDOCTOR_DEBUG=1 shows where; please report it, with the snapshot of --save if you have one)"
    )


@click.group(cls=Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpudoctor")
def main() -> None:
    """What is wrong with this GPU machine, container or Python environment, and what exactly to type to fix it."""
