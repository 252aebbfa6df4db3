"""What makes a change of a shell's variable permanent: the line of the file that sets it, if that was found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from gpudoctor.model import Fix

_CHANGES = re.compile(r"(?P<how>unset|export) (?P<name>[A-Za-z_]\w*)")
_LINE = re.compile(r"(?P<file>[/~][\w./~@+-]*):(?P<line>\d+)", re.ASCII)


def also_where_set(fixes: Iterable[Fix], set_in: Callable[[str], tuple[str, ...]]) -> Iterator[Fix]:
    """Before the first command that unsets or changes a variable in this shell only: its line, which a person edits."""
    named: set[str] = set()
    for fix in fixes:
        change = _CHANGES.match(fix.command) if fix.where == "shell" else None
        if change and change["name"] not in named:
            named.add(change["name"])
            yield from _at_source(change["name"], change["how"] == "unset", fix, set_in)
        yield fix


def _at_source(name: str, is_unset: bool, fix: Fix, set_in: Callable[[str], tuple[str, ...]]) -> Iterator[Fix]:
    places = [place for text in set_in(name) if (place := _LINE.fullmatch(text))]
    if places:
        lines = " and ".join(f"line {place['line']} of {place['file']}" for place in places)
        what = f"Delete {lines}" if is_unset else f"Correct {lines}"
        needs = ("root",) if any(place["file"].startswith("/etc/") for place in places) else ()
        yield Fix(f"{what}, which set{'s' * (len(places) == 1)} {name}, and log in again", needs=needs, verify=fix.verify)
