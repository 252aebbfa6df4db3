"""`gpudoctor fleet check`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor import screen
from gpudoctor.cli import options, output
from gpudoctor.cli.fleet import COMMANDS, delivering
from gpudoctor.cli.paths import NAME, PATH
from gpudoctor.cli.times import Time

if TYPE_CHECKING:
    from gpudoctor.fleet.conversation import Asked
    from gpudoctor.fleet.how import Ask

ENGINES = ("ssh", "slurm", "kubernetes", "local")
_BEYOND = 40.0  # seconds beside questions and measurements: to connect, to start, to plan
_EPILOG = """\
\b
Examples:
  gpudoctor fleet check -w node[001-128]                 by ssh
  gpudoctor fleet check -w node[001-128] --level standard --save day1
  gpudoctor fleet check -g gpu --fanout 128 -o fleet.html
  gpudoctor fleet check -w gpu[01-16] --engine slurm --engine-options --gres=gpu:8
  gpudoctor fleet check --engine kubernetes -o fleet.html
  gpudoctor fleet check -w node[001-128] --drain slurm   ask, then drain

\b
A node needs a Python 3.8+ and nothing else; nothing is installed or left there.

\b
Exit code: 0 nothing at or above --fail-on, 1 problems found, 2 wrong usage,
3 no node answered, 130 interrupted.
"""


@click.command(help=COMMANDS["check"], epilog=_EPILOG)
@click.option("-w", "--nodes", metavar="NODES", multiple=True, help="Nodes in ClusterShell's syntax: node[001-128],login1.")
@click.option("-g", "--group", "groups", metavar="GROUP", multiple=True, help="A group of nodes that ClusterShell knows.")
@click.option("-x", "--exclude", metavar="NODES", multiple=True, help="Leave these nodes out.")
@click.option("--engine", type=click.Choice(ENGINES), default="ssh", show_default=True, help="How to reach the nodes.")
@delivering.ENGINE_OPTIONS
@click.option(
    "--fanout", metavar="N", type=click.IntRange(1, 4096), default=64, show_default=True, help="Nodes at the same time."
)
@click.option("--namespace", default="default", show_default=True, help="With Kubernetes: where the Jobs run.")
@click.option("--context", "cluster", metavar="NAME", help="With Kubernetes: the context of kubectl.  [default: the current one]")
@click.option(
    "--view",
    type=click.Choice(["host", "driver", "pod"]),
    default="host",
    show_default=True,
    help="With Kubernetes: examine the host, the root of its driver container, or a pod with all its GPUs.",
)
@click.option("--image", metavar="NAME", default="", help="With Kubernetes: the image of the Jobs.")
@options.level(
    "quick: no load on any GPU. standard: benchmark each GPU. full: also test GPU memory and compilers.  [default: quick]"
)
@options.only
@options.skip
@options.own_checks
@click.option("--python", metavar="PATH", type=NAME, help="The Python on each node.  [default: python3 on its PATH]")
@options.expect_gpus
@click.option("--force", is_flag=True, help="Also measure GPUs in use.")
@options.timeout
@click.option(
    "--measure-timeout",
    metavar="TIME",
    type=Time(1, 36000),
    help="Time limit for all measurements of a node.  [default: 4m; with --level full 20m]",
)
@click.option("--save", "folder", metavar="DIR", type=PATH, help="Write the snapshot of each node to DIR when it has answered.")
@delivering.shared
@click.pass_context
def command(
    context: click.Context,
    /,
    nodes: tuple[str, ...],
    groups: tuple[str, ...],
    exclude: tuple[str, ...],
    engine: str,
    engine_options: str,
    fanout: int,
    namespace: str,
    cluster: str | None,
    view: str,
    image: str,
    folder: Path | None,
    **given: Any,
) -> None:
    from gpudoctor.errors import UserError
    from gpudoctor.fleet import nodesets
    from gpudoctor.fleet.asking import Asking
    from gpudoctor.fleet.how import How

    delivery = delivering.Delivery.chosen(given)
    asked = _asked(given)
    names = nodesets.parsed(nodes, groups) if nodes or groups or engine != "kubernetes" else ()
    left_out = set(nodesets.parsed(exclude)) if exclude else set()
    if folder:
        delivering.make_folder(folder)
    elif delivery.pages:
        raise UserError("--pages needs --save: a page is made from the saved snapshot of its node")
    ask, found = _carrier(engine, namespace, cluster, view, image)
    if engine == "kubernetes" and not (names or found):
        raise UserError("no node of the cluster offers nvidia.com/gpu: name the nodes with -w")
    names = nodesets.without(nodesets.some(names or found), left_out)
    redactor, saving = delivery.redactor, None if delivery.how.no_redact or not folder else delivery.redacting()
    asking = Asking(names, redactor.node if redactor else None, folder, saving.snapshot if saving else lambda taken: taken)
    seconds = asked.seconds + _BEYOND + (asked.measure_seconds if _measures(asked) else 0)
    how = How(engine, fanout, seconds, engine_options)
    with output.progress(delivering.LOG_SECONDS) as tell:
        is_interrupted = _is_interrupted(lambda: ask(names, asked, how, asking.done, tell))
    fleet = asking.fleet()
    for each in filter(None, (redactor, saving)):
        each.remember()
    files = {name: str(folder / f"{name}.json") for name in names} if folder else {}
    code = delivering.deliver(fleet, delivery, files, redactor)
    context.exit(130 if is_interrupted else code)


def _carrier(engine: str, namespace: str, cluster: str | None, view: str, image: str) -> tuple[Ask, tuple[str, ...]]:
    """What asks the nodes, and the nodes that it knows."""
    if engine != "kubernetes":
        from gpudoctor.fleet import engine as engines

        return engines.ask, ()
    from gpudoctor.fleet.cluster import Place
    from gpudoctor.fleet.jobs import Jobs

    jobs = Jobs(Place(namespace, cluster, view, image))
    return jobs.ask, jobs.names


def _is_interrupted(ask: Callable[[], None]) -> bool:
    """What was answered until ^C is kept."""
    try:
        ask()
    except KeyboardInterrupt:
        screen.note("Interrupted: the report contains what was answered until then.")
        return True
    return False


def _asked(given: dict[str, Any]) -> Asked:
    from gpudoctor import measure
    from gpudoctor.cli import configured
    from gpudoctor.fleet.conversation import Asked
    from gpudoctor.wanted import Wanted

    level = given.pop("level") or "quick"
    seconds = given.pop("measure_timeout") or measure.SECONDS.get(level, measure.SECONDS["standard"])
    wanted = configured.applied(Wanted(level=level, **options.taken_out(Wanted, given)))
    return Asked(
        wanted.checks(),
        level,
        wanted.timeout,
        seconds,
        wanted.python or "",
        wanted.force,
        wanted.expected,
        wanted.ignored,
    )


def _measures(asked: Asked) -> bool:
    return any(check.workloads for check in asked.checks.values())
