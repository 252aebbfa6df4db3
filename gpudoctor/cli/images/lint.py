"""`gpudoctor images lint`: read, judge, print, exit code."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudoctor.cli import options
from gpudoctor.cli.images import COMMANDS
from gpudoctor.errors import UserError

if TYPE_CHECKING:
    from gpudoctor.lint.files import Linted

_EPILOG = """\
\b
Examples:
  gpudoctor images lint Dockerfile compose.yaml
  gpudoctor images lint .                       all such files below this folder
  gpudoctor images lint - --kind dockerfile <Dockerfile
  gpudoctor images lint --format json . | jq -r '.[].rule'
  gpudoctor images lint --rules                 list the rules and the reasons
\b
A comment in the line, above it or above its instruction disables a rule:
  # gpudoctor: ignore=RULE,…
\b
Exit code: 0 nothing at or above --fail-on, 1 faults found, 2 wrong usage or
a file that cannot be read. info never counts.
"""


@click.command(help=COMMANDS["lint"], epilog=_EPILOG)
@click.argument("files", nargs=-1, metavar="FILE…")
@options.printed_format("Output format: for people or programs.")
@options.fail_on
@click.option(
    "--kind",
    type=click.Choice(["dockerfile", "compose", "devcontainer"]),
    help="Treat the files as this kind, whatever their names.",
)
@click.option("--rules", is_flag=True, help="List the rules.")
@click.pass_context
def command(context: click.Context, files: tuple[str, ...], form: str, fail_on: str, kind: str | None, rules: bool) -> None:
    from gpudoctor.cli import output
    from gpudoctor.lint import report

    if rules:
        from gpudoctor.lint import catalog

        known = [rule for _, rule in sorted(catalog.all_rules().items())]
        output.show(report.rules_json(known) if form == "json" else report.rules_text(known))
        return
    if not files:
        raise click.UsageError("Missing argument 'FILE…': a Dockerfile, a compose file, a folder, or - for standard input.")
    linted, broken = _linted(files, kind or "")
    if linted or form == "json":
        output.show(report.as_json(linted) if form == "json" else report.as_text(linted, *_look()))
    if broken:
        raise UserError("\n".join(broken))
    found = {fault.status for file in linted for fault in file.faults}
    context.exit(1 if "fail" in found or (fail_on == "warn" and "warn" in found) else 0)


def _look() -> tuple[int, bool]:
    """Width and colours of the terminal."""
    import os

    tty = bool(sys.stdout and sys.stdout.isatty())
    return (shutil.get_terminal_size().columns if tty else 80), tty and not os.environ.get("NO_COLOR")


def _linted(names: tuple[str, ...], kind: str) -> tuple[list[Linted], list[str]]:
    """The results of each file, and the errors of files that cannot be read."""
    from gpudoctor.lint import files

    linted, broken = [], []
    for name in names:
        try:
            paths = _paths(name)
        except UserError as error:
            broken.append(str(error))
            continue
        for path in paths:
            try:
                linted.append(files.lint(path, kind) if path else _standard_input(kind))
            except UserError as error:
                broken.append(str(error))
    return linted, broken


def _paths(name: str) -> list[Path | None]:
    """The files that a name means; None is standard input."""
    from gpudoctor.lint import files

    if name == "-":
        return [None]
    path = Path(name)
    if not path.is_dir():
        return [path]
    found: list[Path | None] = [*files.search(path)]
    if not found:
        raise UserError(f"{name}: no Dockerfile, compose file or devcontainer.json in this folder")
    return found


def _standard_input(kind: str) -> Linted:
    from gpudoctor.lint import files

    if not kind:
        raise click.UsageError("- requires --kind: the kind of standard input is unknown.")
    if sys.stdin is None:
        raise UserError("standard input is closed")
    return files.lint_text(files.read(sys.stdin.buffer, "standard input"), kind, "-")
