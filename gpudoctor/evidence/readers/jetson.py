"""The power mode of a Jetson, from `nvpmodel -q` and `jetson_clocks --show`."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_MODE = re.compile(
    r"""
    ^\s*(?:NVPM\ (?:WARN|VERB)[^\n]*)?NV\ (?:Fan|Power)\ Mode(?:\[\d+\])?:\s*(?P<mode>\w+)\s*$
    """,
    re.VERBOSE,
)


def _mode(text: str) -> dict[str, Reply] | None:
    match = _MODE.match(text)
    return {"shown-power-mode": Reply("ok", match["mode"])} if match and "Power" in text else None


def _load(text: str) -> dict[str, Reply] | None:
    loads = [int(load) for load in _LOAD.findall(text)]
    return {"shown-tegra-load": Reply("ok", max(loads))} if loads else None


_LOAD = re.compile(r"\bGR3D_FREQ (\d+)%")
READERS = (
    Reader(
        "tegrastats",
        ("GR3D_FREQ ",),
        re.compile(r"^\s*(?:[\d-]+ [\d:]+ )?RAM \d+/\d+MB"),
        _load,
        re.compile(r"^(?!.*GR3D_FREQ)"),
        500,
    ),
    Reader("nvpmodel -q", ("NV Power Mode",), _MODE, _mode, re.compile(""), 1),
)
