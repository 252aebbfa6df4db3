"""Dumps of PyTorch's flight recorder: which collectives each rank entered, from which line, and how far they came.

https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import stat
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpudoctor.errors import UserError
from gpudoctor.jobs.hanging import pickled

MOST_BYTES = 64 << 20
MOST_DUMPS = 1024
LAST = 24  # finished operations of a group that are kept, so that ranks can be compared
PENDING = 24  # unfinished ones: the first and the last of them
MOST_GROUPS, MOST_FRAMES, MOST_SIZES, MOST_RANKS = 64, 24, 8, 4096
MOST_ENTRIES = 200_000  # a ring of PyTorch's has some thousands
MOST_VALUES = 16_000_000  # of JSON, in which a list of 70 bytes takes three
# Where dumps lie, if no variable says so: the first was the default until PyTorch 2.8.
DEFAULTS = ("/tmp/nccl_trace_rank_", "~/.cache/torch/comm_lib_trace_rank_")
VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_NUMBER = re.compile(r"(\d+)(?:\.\w+)?$")


def is_dump(beginning: bytes) -> bool:
    """A pickle, or the JSON form."""
    return beginning[:1] == b"\x80" or (beginning.lstrip()[:1] == b"{" and b'"entries"' in beginning[:4096])


def places(variables: Iterable[Mapping[str, str]]) -> list[str]:
    """The paths at which the dumps of these processes lie, without the number of the rank."""
    found = dict.fromkeys(one[name] for one in variables for name in VARIABLES if one.get(name))
    return [*found, *map(os.path.expanduser, DEFAULTS)]


def beside(prefixes: Iterable[str], since: float, owners: Collection[int]) -> Iterator[str]:
    """The dumps with these names that were written after a time, in seconds since 1970, by one of these users.

    In /tmp, anybody can put a file with such a name.
    """
    for prefix in prefixes:
        for path in sorted(glob.glob(glob.escape(prefix) + "*"))[:MOST_DUMPS]:  # noqa: PTH207 (a prefix, not a folder)
            with contextlib.suppress(OSError):
                about = Path(path).stat()
                if stat.S_ISREG(about.st_mode) and about.st_mtime >= since and about.st_uid in owners:
                    yield path


def read(path: str, owners: Collection[int] = ()) -> dict[str, Any]:
    """{"rank", "path", "groups", "entries"} of a dump. UserError if it cannot be read or is none.

    owners: whose file it may be; () if the user named it.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if owners and os.fstat(file.fileno()).st_uid not in owners:
                raise UserError(f"{path} belongs to another user than the program")
            data = file.read(MOST_BYTES + 1)
    except OSError as failure:
        raise UserError(f"{path}: {failure.strerror}") from None
    if len(data) > MOST_BYTES:
        raise UserError(f"{path} is larger than {MOST_BYTES >> 20} MiB: not a dump of the flight recorder")
    return of_bytes(data, path)


def of_bytes(data: bytes, path: str) -> dict[str, Any]:
    try:
        if data[:1] != b"\x80" and data.count(b",") + data.count(b"[") + data.count(b"{") > MOST_VALUES:
            raise UserError("it has too many values for a dump of the flight recorder")
        said = pickled.plain(data) if data[:1] == b"\x80" else json.loads(data)
        entries = said["entries"]
        if not isinstance(entries, list):
            raise TypeError
        if len(entries) > MOST_ENTRIES:
            raise UserError(f"it has more than {MOST_ENTRIES:,} operations")
        return {"path": path, "rank": _rank(said, path), **_reduced(said, entries)}
    except UserError as failure:
        raise UserError(f"{path}: {failure}") from None
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, RecursionError):
        raise UserError(f"{path} is not a dump of PyTorch's flight recorder") from None


def _rank(said: Mapping[str, Any], path: str) -> int:
    """The file's name ends with it."""
    if isinstance(said.get("rank"), int):
        return _whole(said["rank"])
    number = _NUMBER.search(Path(path).name)
    return _whole(number[1]) if number else -1


def _whole(said: Any) -> int:
    """ValueError for a number that no snapshot keeps."""
    number = int(said)
    if abs(number) >> 63:
        raise ValueError
    return number


def _reduced(said: Mapping[str, Any], entries: list[Any]) -> dict[str, Any]:
    by_group: dict[tuple[str, bool], list[Any]] = defaultdict(list)
    for entry in entries:
        of = _group_of(entry)
        if len(by_group) < MOST_GROUPS or of in by_group:
            by_group[of].append(entry)
    kept: list[dict[str, Any]] = []
    last: dict[str, int] = {}
    for (group, is_p2p), held in by_group.items():
        if not is_p2p:
            last[group] = max(map(_sequence, held))
        done = [entry for entry in held if _is_done(entry)]
        pending = [entry for entry in held if not _is_done(entry)]
        pending = pending if len(pending) <= 2 * PENDING else [*pending[:PENDING], *pending[-PENDING:]]
        kept += map(_entry, (*done[-LAST:], *pending))
    return {"version": _text(said.get("version"))[:100], "groups": _groups(said, last), "entries": kept}


def _groups(said: Mapping[str, Any], last: Mapping[str, int]) -> list[dict[str, Any]]:
    status = said.get("pg_status") or {}
    configured = said.get("pg_config") or {}
    found = []
    for name in list(last)[:MOST_GROUPS]:
        counts = status.get(name) or status.get(_first_number(name)) or {}
        of_group = configured.get(name) or (configured.get("") if name == "0" else None) or {}
        ranks = _ranks(of_group.get("ranks"))
        found.append(
            {
                "name": name,
                "ranks": ranks,
                "entered": max(_whole(counts.get("last_enqueued_collective", -1)), last[name]),
                "completed": _whole(counts.get("last_completed_collective", -1)),
            }
        )
    return found


def _ranks(said: Any) -> list[int]:
    """As a text, "[0, 1]", or as a list."""
    if isinstance(said, list):
        return [_whole(number) for number in said[:MOST_RANKS]]
    return [int(number) for number in re.findall(r"\d{1,9}", _text(said)[:20_000])]


def _text(said: Any) -> str:
    """Of a text or a number; "" of a container: in a pickle, a few can stand for any number of them."""
    return str(said) if isinstance(said, (str, int, float)) else ""


def _first_number(name: str) -> str:
    match = re.search(r"\d+", name)
    return match[0] if match else name


def _group_of(said: Mapping[str, Any]) -> tuple[str, bool]:
    group = said.get("process_group") or ("", "")
    return _text(group[0])[:100], bool(said.get("is_p2p"))


def _sequence(said: Mapping[str, Any]) -> int:
    return _whole(said["p2p_seq_id" if said.get("is_p2p") else "collective_seq_id"])


def _is_done(said: Mapping[str, Any]) -> bool:
    return bool(said.get("retired")) or said.get("state") == "completed"


def _entry(said: Mapping[str, Any]) -> dict[str, Any]:
    group, is_p2p = _group_of(said)
    return {
        "group": group,
        "p2p": is_p2p,
        "sequence": _sequence(said),
        "operation": _text(said["profiling_name"]).rpartition(":")[2][:100],
        "backend": _text(said["profiling_name"]).partition(":")[0][:20],
        "state": _text(said.get("state"))[:20],
        "done": _is_done(said),
        "sizes": [[_whole(number) for number in size[:MOST_SIZES]] for size in (said.get("input_sizes") or [])[:MOST_SIZES]],
        "types": [_text(name)[:20] for name in (said.get("input_dtypes") or [])[:MOST_SIZES]],
        "frames": [
            [_text(one["name"])[:200], _text(one["filename"])[:400], _whole(one["line"])]
            for one in (said.get("frames") or [])[:MOST_FRAMES]
        ],
    }
