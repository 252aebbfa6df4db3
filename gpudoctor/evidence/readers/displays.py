"""Which GPU drives the display: `xrandr --listproviders`, and the renderer that `glxinfo` names."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_PROVIDER = re.compile(r"^\s*Provider (?P<number>\d+):.*\bname:(?P<name>\S.*?)\s*$")


def _providers(text: str) -> dict[str, Reply]:
    """The first provider draws the screen."""
    found = {match["number"]: match["name"] for match in map(_PROVIDER.match, text.splitlines()) if match}
    return {"shown-providers": Reply("ok", found)}


READERS = (
    Reader("xrandr --listproviders", ("associated providers",), _PROVIDER, _providers, re.compile(r"^(?!\s*Provider \d)"), 12),
)
