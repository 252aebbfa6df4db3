"""`gpudoctor baseline save|show|remove`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudoctor.cli import COMMANDS, options
from gpudoctor.cli.paths import PATH
from gpudoctor.errors import UserError, WorkError

if TYPE_CHECKING:
    from gpudoctor.files.baseline import Baseline

_FILE = click.option(
    "--file", metavar="FILE", type=PATH, help="The baseline file.  [default: ~/.local/state/gpudoctor/baseline.json]"
)


@click.group(help=COMMANDS["baseline"])
def command() -> None:
    pass


@command.command()
@click.argument("snapshot", type=PATH)
@_FILE
@click.option("--force", is_flag=True, help="Save even if the measurements found problems.")
def save(snapshot: Path, file: Path | None, force: bool) -> None:
    """Save the results of SNAPSHOT as the baseline.

    SNAPSHOT is a file of `gpudoctor check --save` from a healthy machine. Later runs of `gpudoctor check` on this machine are
    compared with it, GPU by GPU. GPUs that are not in SNAPSHOT keep their saved results.
    """
    from gpudoctor import catalog
    from gpudoctor.checkup import Checkup
    from gpudoctor.cli import output
    from gpudoctor.files import baseline, opening
    from gpudoctor.redaction import remembering

    taken = opening.taken_in(str(snapshot))
    report = Checkup(snapshot=opening.at(taken, "full")).report
    measured = {id for id, check in catalog.checks().items() if check.workloads}
    sick = sorted({entry.problem for entry in report.diagnosis if measured & {entry.check, *entry.explains}})
    if sick and not force:
        raise UserError(f"this run found problems: {', '.join(sick)}; --force saves it anyway")
    path = file or baseline.default_path()
    new = baseline.of(taken, report)
    new = baseline.of_gpus(new, lambda uuid: remembering.recognised(uuid, taken.taken))
    _keep(path, new, is_state=file is None)
    figures = sum(len(saved.figures) for saved in new.gpus.values())
    output.show(f"Saved {figures} figures of {_gpus(len(new.gpus))} in {path}.\n")


def _keep(path: Path, new: Baseline, is_state: bool) -> None:
    """Adds the GPUs. Other processes of this user, on nodes with the same home, save theirs before or after."""
    from gpudoctor import state
    from gpudoctor.cli import output
    from gpudoctor.files import baseline

    try:
        with state.locked(path) if is_state else contextlib.nullcontext():
            output.must_be_writable(path)
            output.write(path, baseline.dump(baseline.merged(baseline.kept(path), new)))
    except OSError as failure:
        raise WorkError(f"cannot write {path}: {failure.strerror}") from None


@command.command()
@_FILE
@options.text_or_json
@options.output()
def show(file: Path | None, form: str | None, destination: Path | None) -> None:
    """Show the baseline."""
    from gpudoctor.cli import output
    from gpudoctor.files import baseline

    form = output.prepared(form, destination)
    found = baseline.read(file)
    if not found.gpus:
        raise UserError(
            "no baseline saved yet: on a healthy machine run gpudoctor check --save FILE, then gpudoctor baseline save FILE"
        )
    output.deliver(baseline.dump(found).decode() if form == "json" else baseline.as_text(found), destination)


@command.command()
@click.argument("gpus", nargs=-1, metavar="[GPU]…")
@click.option("--all", "everything", is_flag=True, help="Remove all GPUs.")
@_FILE
def remove(gpus: tuple[str, ...], everything: bool, file: Path | None) -> None:
    """Remove GPUs, by UUID or name, from the baseline."""
    from gpudoctor.cli import output
    from gpudoctor.files import baseline

    if everything and gpus:
        raise click.UsageError("give the GPUs to remove, or --all.")
    if not everything and not any(name.strip() for name in gpus):
        raise click.UsageError("give the GPUs to remove (gpudoctor baseline show), or --all.")

    path, found = file or baseline.default_path(), baseline.read(file)
    if not found.gpus:
        raise UserError("no baseline saved yet: there is nothing to remove")
    left = baseline.without(found, tuple(found.gpus) if everything else gpus)
    output.must_be_writable(path)
    output.write(path, baseline.dump(left))
    output.show(f"Removed {_gpus(len(found.gpus) - len(left.gpus))} from {path}.\n")


def _gpus(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"
