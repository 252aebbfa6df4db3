"""`gpudoctor verify`."""

from __future__ import annotations

import itertools
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli import COMMANDS, options, sharing
from gpudoctor.cli.paths import NAME, PATH
from gpudoctor.errors import UserError, WorkError

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.cli.sharing import Sharing
    from gpudoctor.model import Opened, Report
    from gpudoctor.report.verified import Verified

_EPILOG = """\
\b
Examples:
  gpudoctor verify                                after gpudoctor check
  gpudoctor verify report.json                    re-run what failed in it
  gpudoctor verify report.html --append issue.md  add the result to a ticket

\b
REPORT is a file from gpudoctor: a JSON or HTML report, a snapshot or a bundle.
Without it, the last gpudoctor check of this user is meant.
It must be from this machine. The same Python is examined. Programs, images and
containers that a report names are started only if you name them here, too.

\b
Exit code: 0 everything is fixed, 1 something is not, 2 wrong usage,
3 some checks could not run again.
"""


# Kind of target -> the option that names it, and where the report has the name.
_CONTAINERS = {"image": ("--image", "image"), "container": ("--container", "container_name"), "host": ("--image", "image")}
_LAST = "the last report"
_OF_CONTAINERS = ("--engine", "--gpus", "--gpu-mode", "--docker-option")


@click.command(help=COMMANDS["verify"], epilog=_EPILOG)
@click.argument("file", metavar="[REPORT]", type=NAME, required=False)
@options.python("Examine this interpreter or environment.  [default: that of the report]")
@options.image("Examine a new container of this image, if the report is about one.")
@click.option("--container", metavar="ID", help="Examine this running container, if the report is about one.")
@click.option("--gpus", metavar="N,…", help="With --image, give the container these GPUs.")
@options.engine
@options.docker_option
@options.gpu_mode("How the container gets its GPUs.")
@click.option("--append", metavar="FILE", type=PATH, help="Append the result to FILE, as Markdown.")
@options.text_or_json
@options.output("Write the result to FILE.")
@options.verbose()
@options.sharing
@click.pass_context
def command(
    context: click.Context,
    /,
    file: str | None,
    append: Path | None,
    form: str | None,
    destination: Path | None,
    verbose: bool,
    **given: Any,
) -> None:
    how = sharing.chosen(given)
    typed = _typed(given)
    from gpudoctor import checkup
    from gpudoctor.cli import last_report, output
    from gpudoctor.redaction import remembering
    from gpudoctor.report import verified

    form = output.prepared(form, destination)
    if append:
        output.must_be_writable(append)
        if append.exists() and not append.is_file():
            raise UserError(f"--append {append}: not a regular file")
    then = checkup.load(file or last_report.name())
    again, now = _again(then.opened(file or _LAST), typed)
    is_for_all = how.is_for_all(append is not None)
    shared = _shared(then, now, how) if append or is_for_all else now
    if append:
        _append(append, shared.sweep(verified.as_markdown(again)))
        sharing.tell_written(append, shared, "Appended to")
    said = verified.as_json(again) if form == "json" else verified.render(again, *output.look(destination), verbose=verbose)
    said = shared.sweep(said) if is_for_all else remembering.recognised(said, str(then.target.get("taken", "")))
    output.deliver(said, destination, shared if is_for_all else now)
    context.exit(_exit_code(again))


def _shared(then: Checkup, now: Checkup, how: Sharing) -> Checkup:
    """The new checkup, redacted with the tokens of the report, so that both can stand in one ticket."""
    from gpudoctor.redaction import remembering

    before = then.to_json()
    tokens = remembering.tokens_of(before, str(then.target.get("taken", ""))) or None
    return sharing.leaving(now, how, before, tokens)


def _typed(given: dict[str, Any]) -> list[str]:
    """The options that say what to examine, for `gpudoctor check`."""
    if given["image"] and given["container"]:
        raise click.UsageError("--image and --container cannot be used together.")
    words = [] if given["gpu_mode"] == "auto" else [f"--gpu-mode={given['gpu_mode']}"]
    for name in ("gpus", "engine"):
        words += [f"--{name}={given[name]}"] if given[name] else []
    words += [f"--docker-option={shlex.quote(word)}" for word in given["docker_options"]]
    if words and not (given["image"] or given["container"]):
        raise click.UsageError(f"{words[0].partition('=')[0]} requires --image or --container.")
    where = [(f"--{name}", given[name]) for name in ("image", "container", "python") if given[name]]
    return [*itertools.chain(*where), *words]


def _again(opened: Opened, typed: list[str]) -> tuple[Verified, Checkup]:
    """The result, and the new checkup."""
    from gpudoctor import catalog
    from gpudoctor.cli import check
    from gpudoctor.comparing import same_machine
    from gpudoctor.model import Status
    from gpudoctor.report.verified import Verified, plain, with_host

    well = (Status.PASS, Status.SKIP)
    before = tuple(result for result in with_host(opened.report) if result.status not in well)
    known = {plain(result.id) for result in before} & catalog.checks().keys()
    if opened.report.verdict is Status.SKIP:
        raise UserError(f"no check could run in {opened.name}: there is nothing to verify")
    if not before:
        raise UserError(f"nothing failed in {opened.name}: there is nothing to verify")
    if not known:
        raise UserError(f"the checks that failed in {opened.name} do not exist in this version of gpudoctor")
    asked = ["--level", "full", "--only", ",".join(sorted(known)), *_where(opened, typed)]
    expected = opened.report.target.get("expected_gpus")
    asked += ["--expect-gpus", str(expected)] if expected else []
    expectation = opened.taken.expectation if opened.taken else {}
    if "expectation" in known and not opened.taken:
        known -= {result.id for result in before if result.status is Status.BLOCKED}
    if "expectation" in known and not opened.taken:
        raise UserError(f"{opened.name} is a report, which does not contain the expectation: verify a snapshot (--save FILE)")
    found, cut_off_by = check.checked(asked, expectation)
    if cut_off_by:
        raise WorkError("interrupted before all checks had run again")
    now = found.report
    if differs := same_machine.difference(_as_it_was(opened.report), now):
        raise UserError(f"{opened.name} is from another machine: {differs}")
    after = {result.id: result for result in with_host(now)}
    after = {result.id: after[result.id] for result in before if result.id in after}
    gone = tuple(result.id for result in before if result.id not in after)
    return Verified(opened.name, opened.report, before, after, gone, now), found


def _where(opened: Opened, typed: list[str]) -> list[str]:
    """Options for the same image, container or Python as before. Never a program, an image or an option that the file names: the
    file may be someone else's. UserError with what to type if nothing was."""
    from gpudoctor import remembered

    target, taken = opened.report.target, str(opened.report.target.get("taken", ""))
    if kind := _CONTAINERS.get(str(target.get("kind"))):
        option, name = kind
        if not {"--image", "--container"} & {*typed}:
            raise UserError(_to_type(opened, option, str(target.get(name)), taken))
        return typed
    if typed:
        return typed
    path = _then(str(target.get("python") or ""), taken)
    is_this = bool(path) and os.path.abspath(path) == sys.executable  # noqa: PTH100 (a link stays a link)
    if not is_this and (known := remembered.of(taken)):
        return ["--python", known]
    if path and not is_this:
        raise UserError(
            f"{opened.name} was made with {path}. If you trust that program: --python {shlex.quote(path)}"
            if os.path.exists(path)  # noqa: PTH110 (no error for a folder without access)
            else f"{opened.name} was made with {_unknown(path)}. Name the Python with --python, "
            "or run verify on the machine it came from"
        )
    return ["--python", sys.executable] if path else []


def _unknown(path: str) -> str:
    from gpudoctor.redaction.tokens import PRESENT

    return (
        "a Python that is not found here (its path is redacted)" if PRESENT.search(path) else f"{path}, which is not found here"
    )


def _then(text: str, taken: str) -> str:
    """A name as it was before redaction, if the report was redacted here."""
    from gpudoctor.redaction import remembering

    return remembering.recognised(text, taken)


def _to_type(opened: Opened, option: str, redacted: str, taken: str) -> str:
    from gpudoctor.redaction.tokens import PRESENT

    wanted = _then(redacted, taken)
    if PRESENT.search(wanted):
        return f"{opened.name} is about {wanted}, a redacted name that is unknown here. Name it: {option} NAME"
    asked = opened.report.target.get("asked", ())
    words = [_then(str(word), taken) for word in asked] if isinstance(asked, (list, tuple)) else []
    pairs = [pair for pair in itertools.pairwise(words) if pair[0] in _OF_CONTAINERS]
    named = [] if opened.name == _LAST else [opened.name]
    line = shlex.join(["gpudoctor", "verify", *named, option, wanted, *(f"{name}={value}" for name, value in pairs)])
    return f"{opened.name} is about {wanted}. verify does not start what a file names. If you trust it, type: {line}"


def _as_it_was(report: Report) -> Report:
    """The report with its GPUs' UUIDs restored if it was redacted on this machine."""
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
