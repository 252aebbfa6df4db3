"""A GPU's PCIe link, as the sampler saw it during a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.pcie_links import possible_width
from gpudoctor.model import Skip


class Low(NamedTuple):
    """A link below what it can do. is_narrow: it ran with fewer lanes, not only at a lower generation."""

    is_narrow: bool
    words: str


def low(facts: Facts, gpu: Gpu | None, during: Mapping[str, Any]) -> Low | None:
    """The link, if it ran below what it can do; Skip if the sampler did not see it."""
    width, generation = during.get("pcie_width"), during.get("pcie_generation")
    if gpu is None or not width or not generation:
        raise Skip("the link was not sampled", Skip.NO_ANSWER)
    possible, fastest = possible_width(facts, gpu), gpu.maximum_pcie_generation
    if width >= possible and generation >= fastest:
        return None
    return Low(width < possible, f"ran at generation {generation} x{width} of {fastest} x{possible}")
