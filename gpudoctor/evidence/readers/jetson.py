"""The power mode of a Jetson, from `nvpmodel -q` and `jetson_clocks --show`."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_MODE = re.compile(r"^\s*(?:NVPM (?:WARN|VERB)[^\n]*)?NV (?:Fan|Power) Mode:\s*(?P<mode>\w+)\s*$")


def _mode(text: str) -> dict[str, Reply] | None:
    match = _MODE.match(text)
    return {"shown-power-mode": Reply("ok", match["mode"])} if match and "Power" in text else None


READER = Reader("nvpmodel -q", ("NV Power Mode",), _MODE, _mode, re.compile(""), 1)
