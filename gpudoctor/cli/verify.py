"""`gpudoctor verify`: is what failed well now?"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli import COMMANDS, options, sharing
from gpudoctor.cli.paths import NAME, PATH
from gpudoctor.errors import UserError, WorkError

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.model import Opened, Report
    from gpudoctor.report.verified import Verified

_EPILOG = """\
\b
Examples:
  gpudoctor verify report.json                    run again what failed in it
  gpudoctor verify report.html --append issue.md  and tell the ticket
\b
REPORT is what gpudoctor wrote: a report as JSON or HTML, a snapshot, a bundle.
It must be of this machine; its Python, image or container is looked at again.
\b
Exit code: 0 all of it is well now, 1 something is not, 2 wrong usage,
3 something could not be judged again.
"""


@click.command(help=COMMANDS["verify"], epilog=_EPILOG)
@click.argument("file", metavar="REPORT", type=NAME)
@options.python()
@click.option("--append", metavar="FILE", type=PATH, help="Append before and after to this file, as Markdown.")
@options.verbose()
@options.sharing
@click.pass_context
def command(context: click.Context, /, file: str, python: str | None, append: Path | None, verbose: bool, **given: Any) -> None:
    how = sharing.chosen(given)
    from gpudoctor import checkup
    from gpudoctor.cli import output
    from gpudoctor.redaction import remembering
    from gpudoctor.report import verified

    if append:
        output.must_be_writable(append)
        if append.exists() and not append.is_file():
            raise UserError(f"--append {append}: that is no file to which something can be added")
    then = checkup.load(file)
    again, now = _again(then.opened(file), python)
    to_terminal = sharing.goes_to_terminal(None)
    before = then.to_json()
    tokens = remembering.tokens_of(before, str(then.target.get("taken", ""))) or None
    leaving = sharing.leaving(now, how, to_terminal and not append, beside=before, tokens=tokens)
    if append:
        _append(append, leaving.sweep(verified.as_markdown(again)))
    said = verified.render(again, *output.look(None), verbose=verbose)
    output.show(said if to_terminal else leaving.sweep(said))
    context.exit(_exit_code(again))


def _again(opened: Opened, python: str | None) -> tuple[Verified, Checkup]:
    """And the machine as it is now."""
    from gpudoctor import catalog
    from gpudoctor.cli import check
    from gpudoctor.comparing import same_machine
    from gpudoctor.model import Status
    from gpudoctor.report.verified import Verified, plain, with_host

    well = (Status.PASS, Status.SKIP)
    before = tuple(result for result in with_host(opened.report) if result.status not in well)
    known = {plain(result.id) for result in before} & catalog.checks().keys()
    if opened.report.verdict is Status.SKIP:
        raise UserError(f"nothing could be checked in {opened.name}: there is nothing to verify")
    if not before:
        raise UserError(f"nothing failed in {opened.name}: there is nothing to verify")
    if not known:
        raise UserError(f"this gpudoctor has none of the checks that failed in {opened.name}: it cannot verify them")
    asked = ["--level", "full", "--only", ",".join(sorted(known)), *_where(opened, python)]
    expected = opened.report.target.get("expected_gpus")
    asked += ["--expect-gpus", str(expected)] if expected else []
    found, cut_off_by = check.checked(asked)
    if cut_off_by:
        raise WorkError("cut off before it was all measured again")
    now = found.report
    if differs := same_machine.difference(_as_it_was(opened.report), now):
        raise UserError(f"{opened.name} is of another machine: {differs}")
    after = {result.id: result for result in with_host(now)}
    after = {result.id: after[result.id] for result in before if result.id in after}
    gone = tuple(result.id for result in before if result.id not in after)
    return Verified(opened.name, opened.report, before, after, gone, now), found


def _where(opened: Opened, python: str | None) -> list[str]:
    """The same image, container or Python as before; UserError where that is not here: another would be well or not by itself."""
    from gpudoctor.redaction import remembering
    from gpudoctor.redaction.tokens import PRESENT

    target, taken = opened.report.target, str(opened.report.target.get("taken", ""))
    for kind, name in (("image", "image"), ("container", "container_name"), ("host", "image")):
        if target.get("kind") == kind:
            wanted = remembering.recognised(str(target.get(name)), taken)
            if PRESENT.search(wanted):
                raise UserError(f"{opened.name} is of {wanted}, a name that was redacted, and not known here")
            asked = [remembering.recognised(str(word), taken) for word in target.get("asked", ())]
            return [f"--{kind.replace('host', 'image')}", wanted, *asked]
    path = python or remembering.recognised(str(target.get("python") or ""), taken)
    if python is None and path and not _is_here(path):
        raise UserError(
            f"{opened.name} is of the Python {path}, which is not here: name it (--python PATH), unless it is another machine's"
        )
    return ["--python", path] if path else []


def _is_here(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 (a closed folder is no error)


def _as_it_was(report: Report) -> Report:
    """With the UUIDs of its GPUs, where it was redacted here."""
    from gpudoctor.redaction import remembering

    taken = str(report.target.get("taken", ""))
    gpus = [{**gpu, "uuid": remembering.recognised(str(gpu.get("uuid", "")), taken)} for gpu in report.facts.get("gpus", ())]
    return replace(report, facts={**report.facts, "gpus": gpus})


def _append(path: Path, text: str) -> None:
    from gpudoctor.cli import output

    try:
        before = path.read_bytes() if path.exists() else b""
    except OSError as failure:
        raise WorkError(f"cannot read {path}: {failure.strerror}") from None
    output.write(path, before + text.encode("utf-8", "replace"))


def _exit_code(again: Verified) -> int:
    from gpudoctor.model import Status

    found = {result.status for result in again.after.values()} | {entry.status for entry in again.now.diagnosis}
    if found & {Status.FAIL, Status.WARN}:
        return 1
    return 0 if again.is_well else 3
