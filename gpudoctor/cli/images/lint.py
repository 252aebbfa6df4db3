"""`gpudoctor images lint`: read, judge, print, exit code."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from gpudoctor.cli import options
from gpudoctor.cli.images import COMMANDS
from gpudoctor.errors import UserError

if TYPE_CHECKING:
    from gpudoctor.lint.files import Linted

FORMATS = ("text", "json", "sarif", "github")
_EPILOG = """\
\b
Examples:
  gpudoctor images lint Dockerfile compose.yaml
  gpudoctor images lint .                       all such files below this folder
  gpudoctor images lint run.sh README.md        their docker run lines
  gpudoctor images lint - --kind dockerfile <Dockerfile
  gpudoctor images lint --ignore cpu-wheel-in-gpu-image .
  gpudoctor images lint --format json . | jq -r '.[].rule'
  gpudoctor images lint . -o lint.sarif         for code scanning
  gpudoctor images lint --format github .       as annotations on GitHub
  gpudoctor images lint --rules                 list the rules and the reasons

\b
A comment in the line, above it or above its instruction disables a rule:
  # gpudoctor: ignore=RULE,…

\b
Exit code: 0 nothing at or above --fail-on, 1 faults found, 2 wrong usage or
a file that cannot be read. info never counts.
"""


def _rules(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """`--ignore a,b --ignore c` is a, b, c."""
    names = options.several(values)
    if names:
        from gpudoctor.lint import catalog
        from gpudoctor.spelling import unknown

        known = catalog.all_rules()
        for name in names:
            if name not in known:
                raise UserError(unknown("rule", name, known))
    elif values:
        raise click.BadParameter("no rule given.")
    return names


def _known(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from gpudoctor.lint import catalog

    before, comma, last = incomplete.rpartition(",")
    return [CompletionItem(before + comma + name) for name in sorted(catalog.all_rules()) if name.startswith(last)]


@click.command(help=COMMANDS["lint"], epilog=_EPILOG)
@click.argument("files", nargs=-1, metavar="FILE…")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="text for people, json for programs, sarif for code scanning, github for annotations in a workflow.  "
    "[default: from the name of -o, else text]",
)
@options.output()
@click.option("--select", metavar="RULE,…", multiple=True, callback=_rules, shell_complete=_known, help="Look for these only.")
@click.option("--ignore", metavar="RULE,…", multiple=True, callback=_rules, shell_complete=_known, help="Ignore these rules.")
@options.fail_on
@click.option(
    "--kind",
    type=click.Choice(["dockerfile", "compose", "devcontainer", "script", "makefile", "markdown"]),
    help="Treat the files as this kind, whatever their names.",
)
@click.option("--rules", is_flag=True, help="List the rules.")
@click.pass_context
def command(
    context: click.Context,
    /,
    files: tuple[str, ...],
    form: str | None,
    destination: Path | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: str,
    kind: str | None,
    rules: bool,
) -> None:
    from gpudoctor.cli import output
    from gpudoctor.lint import report

    if destination:
        output.must_be_writable(destination)
    form = form or _named(destination)

    if rules:
        from gpudoctor.lint import catalog

        known = [rule for _, rule in sorted(catalog.all_rules().items())]
        output.deliver(report.rules_json(known) if form == "json" else report.rules_text(known), destination)
        return
    if not files:
        raise click.UsageError(
            "Missing argument 'FILE…': a Dockerfile, a compose file, a script, a folder, or - for standard input."
        )
    linted, broken = _linted(files, kind or "")
    linted = [_chosen(file, select, ignore) for file in linted]
    if linted or form != "text":
        output.deliver(_rendered(linted, form, destination), destination)
    if broken:
        raise UserError("\n".join(broken))
    found = {fault.status for file in linted for fault in file.faults}
    context.exit(1 if "fail" in found or (fail_on == "warn" and "warn" in found) else 0)


def _chosen(file: Linted, select: tuple[str, ...], ignore: tuple[str, ...]) -> Linted:
    faults = [fault for fault in file.faults if (fault.rule.id in select or not select) and fault.rule.id not in ignore]
    return replace(file, faults=faults)


def _named(destination: Path | None) -> str:
    """The format that the file name implies; UsageError for that of a report."""
    from gpudoctor.report import formats

    form = formats.named(destination, ("text", "json", "sarif")) or "text"
    if form not in FORMATS:
        raise click.UsageError(f"only text, JSON and SARIF can be written here, but -o {destination} means {form}.")
    return form


def _rendered(linted: list[Linted], form: str, destination: Path | None) -> str:
    from gpudoctor.lint import annotations, catalog, report

    if form == "sarif":
        return annotations.sarif(linted, catalog.all_rules().values())
    if form == "github":
        return annotations.github(linted)
    if form == "json":
        return report.as_json(linted)
    return report.as_text(linted, *((80, False) if destination else _look()))


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
        raise UserError(
            f"{name}: no Dockerfile, compose file, devcontainer.json or script that starts a container in this folder"
        )
    return found


def _standard_input(kind: str) -> Linted:
    from gpudoctor.lint import files

    if not kind:
        raise click.UsageError("- requires --kind: the kind of standard input is unknown.")
    if sys.stdin is None:
        raise UserError("standard input is closed")
    return files.lint_text(files.read(sys.stdin.buffer, "standard input"), kind, "-")
