"""`gpudoctor gate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudoctor.cli import COMMANDS, completing, options
from gpudoctor.cli.times import Time

if TYPE_CHECKING:
    from gpudoctor.gating import Gate

_EPILOG = """\
\b
Examples:
  gpudoctor gate                          this node, quiet if it is fit
  gpudoctor gate --expect-gpus 8          also fail if GPUs are missing
  gpudoctor gate --also nvlink-link-down  also fail if an NVLink is down
  gpudoctor gate --replay node017.json    judge a snapshot

\b
Only faults that are certain, and that a second look finds again, make a node
unfit: see docs/gate.md for the list. Warnings, time limits and checks that
could not look do not.

\b
Exit code: 0 fit, or unsure; 1 unfit; 2 wrong usage; 3 unsure, with --strict.
"""


def _ids(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    return options.several(values)


@click.command(help=COMMANDS["gate"], epilog=_EPILOG)
@options.expect_gpus
@click.option(
    "--also",
    metavar="ID,…",
    multiple=True,
    callback=_ids,
    shell_complete=completing.anything,
    help="Also fail on these problems.",
)
@click.option(
    "--allow",
    "allowed",
    metavar="ID,…",
    multiple=True,
    callback=_ids,
    shell_complete=completing.anything,
    help="Do not fail on these problems.",
)
@click.option("--cuda", is_flag=True, help="Also start CUDA on each idle GPU, which takes seconds.")
@click.option("--strict", is_flag=True, help="Exit with 3 instead of 0 if the GPUs could not be examined.")
@options.replay("Judge a saved snapshot instead of this node.")
@options.printed_format()
@click.option(
    "--timeout",
    metavar="TIME",
    type=Time(1, 600),
    default="10s",
    show_default=True,
    help="Time limit for both looks together.",
)
@click.pass_context
def command(
    context: click.Context,
    /,
    expect_gpus: int | None,
    also: tuple[str, ...],
    allowed: tuple[str, ...],
    cuda: bool,
    strict: bool,
    replay: Path | None,
    form: str,
    timeout: float,
) -> None:
    from gpudoctor import gating
    from gpudoctor.cli import configured, output

    rules = gating.Rules(expect_gpus, also, allowed, cuda)
    if also or allowed:
        rules.must_exist()
    if replay:
        from gpudoctor.files import opening

        found = gating.judged(opening.taken_in(str(replay)), rules)
    else:
        rules = gating.Rules(expect_gpus, also, allowed, cuda, configured.ignored())
        found = gating.gate(gating.here(rules), rules, timeout)
    if form == "json":
        output.deliver(_as_json(found), None)
    elif found.reason:
        output.deliver(f"{found.reason}\n", None)
    context.exit({"fit": 0, "unfit": 1, "unsure": 3 if strict else 0}[found.verdict])


def _as_json(found: Gate) -> str:
    import json
    from dataclasses import asdict

    return json.dumps(asdict(found), ensure_ascii=False) + "\n"
