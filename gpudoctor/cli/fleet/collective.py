"""`gpudoctor fleet collective`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli import options, output
from gpudoctor.cli.fleet import COMMANDS

if TYPE_CHECKING:
    from gpudoctor.fleet.collective import Result
    from gpudoctor.fleet.halving import Found

_EPILOG = """\
\b
Examples:
  gpudoctor fleet collective -w node[01-16]
  gpudoctor fleet collective -w node[01-16] --python /opt/train/bin/python
  gpudoctor fleet collective -w gpu[01-04] --engine slurm --engine-options --gres=gpu:8
  gpudoctor fleet collective -w node[01-16] --expect 180
\b
Each node needs a Python with torch; the nodes must reach each other by these
names. All nodes run all-reduce, all-gather and all-to-all; then halves of the
set, until the node that makes it slow or fail is named.
\b
Exit code: 0 no node is at fault, 1 a node is slow, fails or did not start,
2 wrong usage, 3 fewer than two nodes could start, 130 interrupted.
"""
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _sizes(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    found = []
    for word in options.several([value]):
        number, unit = (word[:-1], word[-1].lower()) if word[-1:].isalpha() else (word, "")
        if not (number.isdecimal() and number.isascii()) or unit not in ("", *_UNITS) or len(number) > 6 + 6 * (not unit):
            raise click.BadParameter(f"{word!r} is not a size such as 64M.")
        found.append(int(number) * _UNITS.get(unit, 1))
    if not found or min(found) < 1024 or max(found) > 16 << 30:
        raise click.BadParameter("sizes are from 1k to 16G.")
    return tuple(sorted(found))


@click.command(help=COMMANDS["collective"], epilog=_EPILOG)
@click.option("-w", "--nodes", metavar="NODES", multiple=True, help="Nodes in ClusterShell's syntax: node[01-16].")
@click.option("-g", "--group", "groups", metavar="GROUP", multiple=True, help="A group of nodes that ClusterShell knows.")
@click.option(
    "--engine", type=click.Choice(["ssh", "slurm", "local"]), default="ssh", show_default=True, help="How to reach them."
)
@click.option("--engine-options", metavar="TEXT", default="", help="Options for ssh or srun, such as '-l root' or --gres=gpu:8.")
@click.option("--python", metavar="PATH", default="python3", show_default=True, help="The Python with torch, on every node.")
@click.option("--backend", type=click.Choice(["nccl", "gloo"]), help="[default: nccl, or gloo without a GPU]")
@click.option(
    "--ranks", metavar="N", type=click.IntRange(1, 64), help="Ranks on each node.  [default: one for each GPU, or for each CPU]"
)
@click.option("--sizes", metavar="N,…", default="1M,64M", callback=_sizes, show_default=True, help="Bytes of each rank.")
@click.option(
    "--expect", metavar="GB/S", type=click.FloatRange(0), default=0.0, help="Slower than this all-reduce is slow, on any group."
)
@click.option(
    "--timeout", metavar="S", type=click.FloatRange(5, 3600), default=120, show_default=True, help="Time limit of each round."
)
@options.printed_format()
@click.pass_context
def command(
    context: click.Context,
    /,
    nodes: tuple[str, ...],
    groups: tuple[str, ...],
    engine: str,
    engine_options: str,
    python: str,
    backend: str | None,
    ranks: int | None,
    sizes: tuple[int, ...],
    expect: float,
    timeout: float,
    form: str,
) -> None:
    from gpudoctor.fleet import collective, nodesets

    names = nodesets.parsed(nodes, groups)
    if len(names) < 2:
        raise click.UsageError("a collective needs at least two nodes.")
    how = collective.How(engine, python, str(ranks or "auto"), backend or "", sizes, timeout, engine_options)
    with output.progress() as tell:
        found = collective.collective(names, how, expect, tell)
    if form == "json":
        import json

        text = json.dumps(as_json(found), indent=2, ensure_ascii=False) + "\n"
    else:
        text = "".join(f"{line}\n" for line in as_text(found))
    output.deliver(text, None)
    if found.found is None:
        context.exit(3)
    context.exit(0 if found.found.is_healthy and not found.silent and not _fails(found.found) else 1)


def _fails(judged: Found) -> bool:
    """Whether the whole set fails, even if no node could be named."""
    return next(iter(judged.rounds[0].values())).figure is None


def as_json(found: Result) -> dict[str, Any]:
    from gpudoctor.fleet import collective

    judged = found.found
    return {
        "schema": "gpudoctor.collective/1",
        "nodes": list(found.nodes),
        "silent": found.silent,
        "figures": found.figures,
        "transports": collective.transports(found.said),
        "doubts": collective.doubts(found.said),
        "named": judged.named if judged else {},
        "likely": list(judged.likely) if judged else [],
        "between": [list(group) for group in judged.between] if judged and judged.between else [],
        "rounds": [
            [{"nodes": list(group), "gb_per_s": each.figure, "words": each.words} for group, each in done.items()]
            for done in (judged.rounds if judged else ())
        ],
    }


def as_text(found: Result) -> Iterator[str]:
    for node, why in found.silent.items():
        yield f"{node}: torch does not start: {why}"
    judged = found.found
    if judged is None:
        yield "Fewer than two nodes could start torch."
        return
    yield from _of_all(found, judged)
    yield from _of_halves(judged)


def _of_all(found: Result, judged: Found) -> Iterator[str]:
    from gpudoctor.fleet import collective
    from gpudoctor.fleet.nodesets import folded

    (whole, reached), *_ = judged.rounds[0].items()
    yield f"{folded(whole)}: " + (f"fails: {reached.words}" if reached.figure is None else "works")
    for row in found.figures:
        wrong = "  WRONG RESULT" if row["wrong"] else ""
        yield f"  {row['what']:<11} {row['bytes'] / (1 << 20):>9.2f} MiB {row['gb_per_s']:>9.2f} GB/s{wrong}"
    used = collective.transports(found.said)
    if connections := used.get("connections"):
        yield f"  transport: {', '.join(f'{name} ({count})' for name, count in sorted(connections.items()))}"
    if used.get("nvls_channels") or used.get("mnnvl"):
        yield "  transport: NVLS" * bool(used.get("nvls_channels")) + "  transport: MNNVL" * bool(used.get("mnnvl"))
    yield from collective.doubts(found.said)


def _of_halves(judged: Found) -> Iterator[str]:
    from gpudoctor.fleet.nodesets import folded

    for number, done in enumerate(judged.rounds[1:], 2):
        for group, each in done.items():
            yield f"round {number}: {folded(group)}: " + (each.words if each.figure is None else f"{each.figure:.2f} GB/s")
    for node, why in judged.named.items():
        yield f"{node} is at fault: {why}"
    if judged.likely:
        yield f"One of these is at fault, and no test can tell which: {folded(judged.likely)}"
    if judged.between:
        one, other = map(folded, judged.between)
        yield f"{one} and {other} are fast alone, but not together: look at the switches and cables between them."
    if judged.is_healthy and not _fails(judged):
        yield "No node is slower than the others."
