"""Reads NCCL's output with NCCL_DEBUG=INFO: version, connections between GPUs, variables that it uses."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Dict

VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
# "Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM", "... [send] via NET/Socket/0/Shared"; older ones: "0[50] -> 1[60] via P2P/IPC"
CONNECTION = re.compile(r"Channel (\d+)(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\] (?:\[send\] )?via (\S+)")
CHANNELS = re.compile(r"(\d+) coll channels(?:, (\d+) collnet channels)?(?:, (\d+) nvls channels)?")
SETTING = re.compile(r"(NCCL_\w+) set by environment to (\S+?)[.,;]*(?=\s|$)")
REFUSED = re.compile(r"(P2P is disabled between .*?GPUs \d+ and \d+)")
WARNING = re.compile(r"NCCL WARN (.+)")


def parsed(text: str) -> Dict[str, Any]:
    """{"version", "connections", "channels", "nvls_channels", "settings", "refused"}, as far as present in the text.

    connections: "P2P/CUMEM", "SHM/direct/direct", "NET/Socket" ... -> number of channels of all ranks that use it. settings:
    variables from the environment or nccl.conf. refused: pairs of GPUs for which NCCL reports that P2P is disabled.
    """
    found: Dict[str, Any] = {}
    version = VERSION.search(text)
    if version:
        found["version"] = version[1]
    connections = Counter(_transport(match[2]) for match in CONNECTION.finditer(text))
    if connections:
        found["connections"] = dict(connections)
    channels = CHANNELS.search(text)
    if channels:
        found.update(channels=int(channels[1]), nvls_channels=int(channels[3] or 0))
    settings = {match[1]: match[2] for match in SETTING.finditer(text) if not match[1].startswith("NCCL_DEBUG")}
    if settings:
        found["settings"] = settings
    refused = sorted({match[1] for match in REFUSED.finditer(text)})
    if refused:
        found["refused"] = refused
    return found


def _transport(words: str) -> str:
    """`NET/Socket/0/Shared` without the number of the adapter."""
    return re.sub(r"/\d+(?:\(\d+\))?(?=/|$)", "", words)


def first_warning(text: str) -> str:
    """NCCL's first warning, "" without warnings."""
    match = WARNING.search(text)
    return match[1].strip() if match else ""
