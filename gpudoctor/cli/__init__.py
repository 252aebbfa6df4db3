"""The command line: one module per command, imported only when that command is used."""

# No builtin `list` in this file: importing the command of that name makes it an attribute of this package.
from __future__ import annotations

import io
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from gpudoctor import screen
from gpudoctor.cli import ending, started
from gpudoctor.cli.lazy import Args, LazyGroup
from gpudoctor.errors import UserError, WorkError
from gpudoctor.version import __version__

COMMANDS = {
    "check": "Diagnose this machine or a container.",
    "why": "Run a command that fails or is slow, and prove the cause.",
    "hang": "Find out why a running program does not move.",
    "profile": "Run a command with a profiler: where its GPU time goes, and why.",
    "watch": "Watch a running program, and say what limits it.",
    "fix": "Print the fixes as a shell script, or run them step by step.",
    "report": "Write a report to share: HTML, a ticket, a bundle or a CI format.",
    "diff": "Compare two machines, or one at two times, to find the cause.",
    "fleet": "Check many machines at once, and find those that differ.",
    "verify": "Re-run the checks that failed in a report and show what is fixed.",
    "run": "Run a container image with GPUs and suitable limits.",
    "plan": "Show which release of a GPU package runs on this machine.",
    "images": "Look up, pull, build, pin and lint container images.",
    "burn": "Load the GPUs for minutes and verify every result.",
    "gate": "Check whether this node may get jobs (Slurm, Kubernetes, systemd).",
    "baseline": "Save benchmark results of healthy GPUs to compare with later.",
    "expect": "List what machines should have, or write it from this one.",
    "explain": "Explain a log, an error message, a code, a check or a problem.",
    "list": "List or search the checks, or the problems that they find.",
    "mcp": "Serve the read-only commands to an MCP client, over stdio.",
    "completion": "Print the completion script for bash, zsh or fish.",
    "config": "Show the settings that apply and where they come from.",
    "knowledge": "Show the version and age of the built-in tables.",
    "schema": "Print the JSON Schema of a report, a diff or another format.",
}
_EPILOG = """\
\b
Examples:
  gpudoctor check                        diagnose this machine
  gpudoctor check --python .venv/bin/python
  gpudoctor fix                          print the fixes as a script
  gpudoctor explain train.log            find the cause in a log
  gpudoctor explain Xid 79               look up a code

\b
Shell completion: gpudoctor completion --help
"""


class Commands(LazyGroup):
    """gpudoctor's commands, and their exit codes."""

    package = "gpudoctor.cli"
    helps = COMMANDS

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """As click's, but what its messages quote from the command line is plain."""
        started.restore(os.environ)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            if not standalone_mode:
                return code
        except click.ClickException as wrong:
            if not standalone_mode:
                raise
            said = io.StringIO()
            _with_suggestion(wrong).show(said)
            screen.note(said.getvalue().rstrip("\n"))
            code = wrong.exit_code
        except click.Abort:
            if not standalone_mode:
                raise
            screen.note("Aborted!")
            code = 1
        sys.exit(code if isinstance(code, int) else 0)

    def parse_args(self, context: click.Context, args: Args) -> Args:
        return super().parse_args(context, _as_options(args))

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


def _with_suggestion(wrong: click.ClickException) -> click.ClickException:
    """Also names the choice that was probably meant."""
    given = re.match(r"'([^']*)' is not one of ", wrong.message)
    if not (given and isinstance(wrong, click.BadParameter) and wrong.param and isinstance(wrong.param.type, click.Choice)):
        return wrong
    from gpudoctor.spelling import nearest

    near = nearest(given[1], map(str, wrong.param.type.choices))
    said = f"{wrong.message} Did you mean {near[0]!r}?" if near else wrong.message
    return click.BadParameter(said, wrong.ctx, wrong.param, wrong.param_hint)


def _as_options(args: Args) -> Args:
    """`help COMMAND` and `version`, as other programs have them, as options."""
    if args[:1] == ["help"]:
        return [*(word for word in args if word != "help"), "--help"]
    return ["--version"] if args == ["version"] else args


def _end(line: str, code: int) -> NoReturn:
    screen.note(line)
    raise click.exceptions.Exit(code)


def _interrupted(written: tuple[str, ...]) -> str:
    return f"Interrupted; only {' and '.join(written)} was written." if written else "Interrupted; nothing was written."


def _bug(bug: Exception) -> str:
    first_line = next(iter(str(bug).splitlines()), "")
    return (
        f"Error: internal error in gpudoctor {__version__}: {type(bug).__name__}: {first_line} "
        "(GPUDOCTOR_DEBUG=1 shows a traceback; please report it, with a snapshot from --save if possible)"
    )


@click.group(cls=Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="gpudoctor")
def main() -> None:
    """Find out what is wrong with a GPU machine, container or Python environment, and how to fix it."""
