"""`gpudoctor fleet collective`."""

from __future__ import annotations

import click

from gpudoctor.cli import options, output
from gpudoctor.cli.fleet import COMMANDS, delivering
from gpudoctor.cli.times import Time

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
set, until the node that makes it slow or fail is found. What decided is then
measured again, in turn with the other nodes; a node is named only if it repeats.

\b
Exit code: 0 no node is at fault, 1 a node is slow, fails or did not start,
2 wrong usage, 3 not sure or fewer than two nodes could start, 130 interrupted.
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
@delivering.ENGINE_OPTIONS
@click.option("--python", metavar="PATH", default="python3", show_default=True, help="The Python with torch, on every node.")
@click.option("--backend", type=click.Choice(["nccl", "gloo"]), help="[default: nccl, or gloo without a GPU]")
@click.option(
    "--ranks", metavar="N", type=click.IntRange(1, 64), help="Ranks on each node.  [default: one for each GPU, or for each CPU]"
)
@click.option("--sizes", metavar="N,…", default="1M,64M", callback=_sizes, show_default=True, help="Bytes of each rank.")
@click.option(
    "--expect", metavar="GB/S", type=click.FloatRange(0), default=0.0, help="Slower than this all-reduce is slow, on any group."
)
@click.option("--timeout", metavar="TIME", type=Time(5, 3600), default="2m", show_default=True, help="Time limit of each round.")
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
    from gpudoctor.report.fleet import collective as report

    names = nodesets.parsed(nodes, groups)
    if len(names) < 2:
        raise click.UsageError("a collective needs at least two nodes.")
    how = collective.How(engine, python, str(ranks or "auto"), backend or "", sizes, timeout, engine_options)
    with output.progress(delivering.LOG_SECONDS) as tell:
        found = collective.collective(names, how, expect, tell)
    text = report.as_json(found) if form == "json" else "".join(f"{line}\n" for line in report.as_text(found))
    output.deliver(text, None)
    context.exit({"healthy": 0, "fault": 1}.get(report.status(found), 3))
