"""The words of a text around its outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts

_LXC = re.compile(
    r"""
    \bpct\ (?:enter|exec|start|config)\b
    | /etc/pve/ | \blxc\.\w+
    | \b(?:lxc|incus)\ (?:exec|config|shell|list|launch)\b
    """,
    re.VERBOSE,
)


def is_lxc(facts: Facts) -> bool:
    """Whether the text shows a container of LXC, Proxmox, LXD or Incus."""
    return any(_LXC.search(text) for text in passages(facts))


def passages(facts: Facts) -> Iterator[str]:
    yield from (passage.text for text in facts.texts.all for passage in text.passages)
