"""A fleet for a person at a terminal: what is usual, and who differs, what costs most GPUs first."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from gpudoctor.fleet import draining, majority, nodesets
from gpudoctor.fleet.model import Fleet, Group, Item, Kind
from gpudoctor.model import Status
from gpudoctor.report import words
from gpudoctor.report.layout import Lines, Page, signed, to_paste

_GROUPS, _ITEMS, _SETTINGS = 20, 4, 2  # -v shows all
_INDENT = " " * 4
_USUAL = ("driver", "CUDA", "kernel", "distribution", "torch", "NCCL")


def render(fleet: Fleet, width: int = 80, colours: bool = False, verbose: bool = False, drain: bool = True) -> str:
    page = Page.fitting(width, verbose)
    return page.printed(_lines(page, fleet, drain), colours)


def headline(fleet: Fleet) -> str:
    """`118 of 128 nodes agree. 3 gave no answer. 26 of 1,024 GPUs are lost.`"""
    nodes = f"{fleet.total:,} node{'s' * (fleet.total != 1)}"
    silent = fleet.total - fleet.answered
    are_compared = any(kind.nodes >= majority.FEWEST for kind in fleet.kinds)
    parts = [f"{fleet.agree:,} of {nodes} agree." if are_compared else f"{nodes}."]
    parts += [f"Too few are alike to be compared ({majority.FEWEST} or more)."] if fleet.total > 1 and not are_compared else []
    parts += [f"{silent:,} gave no answer."] if silent else []
    parts += [f"{fleet.lost_gpus:,} of {fleet.gpus:,} GPUs are lost."] if fleet.lost_gpus else []
    return " ".join(parts)


def _lines(page: Page, fleet: Fleet, drain: bool) -> Lines:
    yield from signed(fleet.status, page.wrap(headline(fleet), f"{words.label(fleet.status)}: ", _INDENT))
    for kind in fleet.kinds:
        yield from page.paragraph(about_kind(kind), "  ", _INDENT)
    for title, groups in (("Differences, what costs most GPUs first", fleet.groups), ("On most nodes", fleet.common)):
        yield from _groups(page, title, groups)
    if drain:
        yield from _drains(page, fleet)


def about_kind(kind: Kind) -> str:
    """`128 nodes, NVIDIA H200: 8 GPUs, driver 580.95.05, …`."""
    usual = ", ".join(f"{name} {kind.usual[name]}" for name in _USUAL if name in kind.usual)
    count = f"{kind.usual['GPUs']} GPUs each, " if "GPUs" in kind.usual else ""
    return f"{kind.nodes:,} node{'s' * (kind.nodes != 1)}, {kind.name}: {count}{usual}".rstrip(", :")


def _groups(page: Page, title: str, groups: tuple[Group, ...]) -> Lines:
    if not groups:
        return
    yield Text()
    yield Text(title, "bold")
    most = len(groups) if page.verbose else _GROUPS
    for group in groups[:most]:
        yield from _group(page, group)
    if len(groups) > most:
        yield Text(f"  and {len(groups) - most} more (-v)")


def _group(page: Page, group: Group) -> Lines:
    parts = [f"{len(group.names)} nodes"] if len(group.names) > 1 else []
    parts += [lost(group.lost_gpus)] if group.lost_gpus else []
    count = f" ({', '.join(parts)})" if parts else ""
    if group.status is Status.PASS:
        yield from map(Text, page.wrap(f"{group.nodes}{count}", "  · ", _INDENT))
    else:
        yield from signed(group.status, page.wrap(f"{group.nodes}{count}", f"  {words.SIGNS[group.status]} ", _INDENT))
    for line in told(group, page.verbose):
        yield from map(Text, page.short(line, _INDENT, _INDENT + "  "))


def lost(gpus: int) -> str:
    return f"{gpus:,} GPU{'s' * (gpus != 1)} lost"


def told(group: Group, all: bool = False, hint: str = "-v") -> Iterator[str]:
    """What the nodes have in common. hint: where the rest of a long list is."""
    leading = [item for item in group.items if item.kind != "setting"]
    settings = [item for item in group.items if item.kind == "setting"]
    shown = leading if all else leading[:_ITEMS]
    shown += settings if all else settings[: 0 if len(leading) > 1 else _SETTINGS if not leading else 1]
    yield from (_of_item(item, len(group.names)) for item in shown)
    if more := len(group.items) - len(shown):
        yield f"and {more} more difference{'s' * (more != 1)} ({hint})"


def _of_item(item: Item, nodes: int) -> str:
    """With its GPUs of each node, if they are not the same."""
    explained = f" ({item.id})" if item.kind == "problem" else ""
    numbers = [(node, gpus) for node, gpus in item.gpus.items() if gpus]
    if nodes > 1 and numbers and len({gpus for _, gpus in numbers}) > 1:
        places = [f"{node} GPU {','.join(map(str, gpus))}" for node, gpus in numbers]
        return f"{item.words}{explained}: {words.listed(places, 6)}"
    return item.words + explained


def _drains(page: Page, fleet: Fleet) -> Lines:
    kept = draining.kept(fleet.nodes)
    if fleet.drains:
        yield Text()
        yield Text("To take bad nodes out of service, with Slurm or Kubernetes", "bold")
    for drain in fleet.drains:
        yield from to_paste(drain.slurm)
    if fleet.drains:
        cordon = "kubectl cordon "
        yield from to_paste(cordon + " ".join(drain.kubernetes.removeprefix(cordon) for drain in fleet.drains))
    if kept:
        yield Text()
        yield Text("Bad, but no reason to take them out of service", "bold")
    for reason, names in kept.items():
        yield from map(Text, page.short(f"{nodesets.folded(names)}: {reason}", "  · ", _INDENT))
