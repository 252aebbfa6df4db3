"""The variables that gpudoctor was started with: hooks of the Python that runs it (sitecustomize.py, .pth files) can
have changed them.

What it starts would inherit such a change, and no experiment could take it away.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path


def _given() -> dict[str, str]:
    """Those of this process when it began; empty if that is not known."""
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if b"=" in entry)
    return {name: value for name, _, value in pairs}


GIVEN, HOOKED = _given(), dict(os.environ)


def restore(now: MutableMapping[str, str], given: Mapping[str, str] = GIVEN, hooked: Mapping[str, str] = HOOKED) -> None:
    """Undoes what the hooks did to the variables that matter to GPU programs. hooked: the variables after the hooks."""
    changed = [name for name in {*given, *hooked} if given.get(name) != hooked.get(name) == now.get(name)]
    if not given or not changed:
        return
    from gpudoctor.worker.probes.environment import matters

    for name in filter(matters, changed):
        if name in given:
            now[name] = given[name]
        else:
            now.pop(name, None)
