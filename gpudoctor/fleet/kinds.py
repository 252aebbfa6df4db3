"""Which nodes are compared with each other: those of the same machine, with the same GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpudoctor.fleet.collected import Seen
from gpudoctor.fleet.model import State
from gpudoctor.model import Status

UNKNOWN, NO_GPUS = "GPUs unknown", "no NVIDIA GPU"
OWN_KIND, FEWEST = 0.1, 3  # of the nodes with these GPUs have another number of them, and are sound


def of(nodes: Sequence[Seen]) -> list[str]:
    """The kind of each node, in order. A node without a visible GPU is of the kind of its product, or of the only kind."""
    names = [_name(node) for node in nodes]
    known = Counter(name for name in names if name)
    of_product: dict[str, Counter[str]] = {}
    for node, name in zip(nodes, names, strict=True):
        if name and node.product:
            of_product.setdefault(node.product, Counter())[name] += 1
    has_none = bool(nodes) and all(node.state is State.NO_GPU for node in nodes)
    usual = known.most_common(1)[0][0] if known else NO_GPUS if has_none else UNKNOWN
    filled = []
    for node, name in zip(nodes, names, strict=True):
        alike = of_product.get(node.product)
        filled.append(name or (alike.most_common(1)[0][0] if alike else usual))
    return _with_counts(nodes, filled)


def _name(node: Seen) -> str:
    gpus = ", ".join(dict.fromkeys(node.gpu_names))
    return ", ".join(filter(None, (node.product, gpus))) if gpus else ""


def _with_counts(nodes: Sequence[Seen], names: Sequence[str]) -> list[str]:
    """Nodes that were bought with another number of GPUs are another kind; a node that lost one is not."""
    counts: dict[str, Counter[int]] = {}
    for node, name in zip(nodes, names, strict=True):
        if node.gpu_names and node.status is not Status.FAIL:
            counts.setdefault(name, Counter())[node.gpus] += 1
    apart = {name: _apart(counted) for name, counted in counts.items()}
    return [
        f"{node.gpus} × {name}" if node.gpus in apart.get(name, ()) else name for node, name in zip(nodes, names, strict=True)
    ]


def _apart(counted: Counter[int]) -> set[int]:
    total = sum(counted.values())
    (usual, _), *others = counted.most_common()
    return {count for count, nodes in others if count != usual and nodes >= max(FEWEST, OWN_KIND * total)}
