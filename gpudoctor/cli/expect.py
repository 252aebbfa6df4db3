"""`gpudoctor expect write|list|show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudoctor.cli import COMMANDS, options
from gpudoctor.cli.paths import NAME
from gpudoctor.errors import UserError

if TYPE_CHECKING:
    from gpudoctor.knowledge.expectations import Type

_UNHEALTHY = ("hardware", "driver", "health", "links", "multi-gpu")
_HELP = f"""{COMMANDS["expect"]}

gpudoctor check --expect FILE|NAME compares a machine with such a file, or with a known type of machine.
"""


@click.group(help=_HELP)
def command() -> None:
    pass


@command.command()
@click.option("--name", metavar="NAME", default="", help="What this kind of machine is called.")
@options.replay("Use a saved snapshot instead of this machine.")
@click.option("--force", is_flag=True, help="Write it even if problems were found.")
@options.output()
def write(name: str, replay: Path | None, force: bool, destination: Path | None) -> None:
    """Write what this machine has as an expectation.

    The machine should be healthy: with problems of hardware, driver or links, nothing is written.
    """
    from gpudoctor import examining
    from gpudoctor.cli import check, output
    from gpudoctor.facts import Facts
    from gpudoctor.files import expectation
    from gpudoctor.model import Status
    from gpudoctor.wanted import Wanted

    if destination:
        output.must_be_writable(destination)
    wanted = Wanted(level="quick", skip=("expectation",))
    found = examining.replayed(replay, wanted, None) if replay else check.examined(wanted)[0]
    assert found.snapshot
    areas = {result.id: result.area for result in found.report.checks}
    sick = {
        entry.problem for entry in found.report.diagnosis if entry.status is Status.FAIL and areas.get(entry.check) in _UNHEALTHY
    }
    if sick and not force:
        raise UserError(f"this machine has problems: {', '.join(sorted(sick))}; --force writes it anyway")
    made = expectation.of(Facts(found.snapshot), name)
    if not made.gpus and not force:
        raise UserError("no GPU is known here; --force writes the rest")
    output.deliver(expectation.dump(made), destination)


@command.command(name="list")
@click.argument("words", nargs=-1)
@options.text_or_json
@options.output()
def list_(words: tuple[str, ...], form: str | None, destination: Path | None) -> None:
    """List the known types of machines, or those whose name, provider or GPU contains all WORDS."""
    from gpudoctor.cli import output
    from gpudoctor.knowledge import expectations

    form = output.prepared(form, destination)
    found = [kind for kind in expectations.table().types if _is_meant(kind, words)]
    if not found:
        raise UserError(f"no known type of machine contains {' '.join(words)}")
    output.deliver(_as_json(found) if form == "json" else "".join(map(_line, found)), destination)


@command.command()
@click.argument("name", type=NAME)
@options.text_or_json
@options.output()
def show(name: str, form: str | None, destination: Path | None) -> None:
    """Show what a known type of machine, or the one in a file, should have."""
    from gpudoctor.cli import output
    from gpudoctor.files import expectation
    from gpudoctor.knowledge import expectations

    form = output.prepared(form, destination)
    kind = expectations.named(name)
    if kind and form == "json":
        text = _as_json([kind])
    elif kind:
        sources = "".join(f"# Source: {source}\n" for source in expectations.table().references(kind))
        text = sources + expectation.dump(kind.expectation)
    else:
        text = expectation.dump(expectation.checked(name))
    output.deliver(text, destination)


def _is_meant(kind: Type, words: tuple[str, ...]) -> bool:
    about = " ".join([kind.name, kind.provider, *(gpus.model for gpus in kind.gpus)]).lower()
    return all(word.lower() in about for word in words)


def _line(kind: Type) -> str:
    gpus = ", ".join(f"{gpus.count} × {gpus.model}" for gpus in kind.gpus)
    return f"{kind.name:<32} {kind.provider:<8} {gpus}\n"


def _as_json(kinds: list[Type]) -> str:
    import json

    from gpudoctor.knowledge import expectations

    rows = [
        {
            **expectations.plain(kind.expectation),
            "provider": kind.provider,
            "verified": kind.verified,
            "sources": list(expectations.table().references(kind)),
        }
        for kind in kinds
    ]
    return json.dumps(rows, indent=2) + "\n"
