"""What `gpudoctor watch` saw, for people: a row for each GPU with utilisation and memory, and a line of verdict each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.facts.guarded import WRONG
from gpudoctor.model import Report
from gpudoctor.plain import plain

HEAD = ("GPU", "Busy", "SM", "Tensor", "DRAM", "Power", "Memory", "Processes")
READINGS = ("busy", "graphics", "sm", "tensor", "dram", "watts", "celsius", "memory_used_mib")
_KERNELS = "watched-kernels"
_MOST_USERS = 3

Watched = Mapping[str, Any]
Row = tuple[str, ...]


def of(report: Report) -> Watched | None:
    """None if no program was watched, or if a report from elsewhere says it in another form."""
    found = report.facts.get("watched")
    try:
        shown = [heading(found), rows(found), list(verdicts(report, found))] if found else []
    except WRONG:
        return None
    return found if shown else None


def heading(watched: Watched) -> str:
    """`python train.py for 31 s (gpudoctor took 0.4 % of a core and 31 MiB)`."""
    code = watched.get("exit_code")
    end = "" if code is None else f"; it was killed by signal {-code}" if code < 0 else f"; it ended with exit code {code}"
    end += "; it has ended" if watched["ended"] == "gone" else ""
    if start := watched.get("first_kernel"):
        end += f"; its first kernel ran after {start:.0f} s"
    if unreadable := watched.get("unreadable"):
        end += f"; {unreadable} processes of another user, of which root can read more"
    if why := watched.get("no_gpu"):
        end += f"; no GPU was watched: {plain(why)}"
    own = f"gpudoctor took {100 * watched['own_cores']:.1f} % of a core and {watched['own_mib']:.0f} MiB"
    return f"{watched['target']['name']} for {watched['seconds']:.0f} s{end} ({own})"


def rows(watched: Watched) -> list[Row]:
    """Below HEAD."""
    return [_row(gpu) for gpu in watched["gpus"]]


def _row(gpu: Mapping[str, Any]) -> Row:
    used, all = gpu.get("memory_used_mib"), gpu.get("memory_mib")
    memory = f"{used / 1024:.1f} of {all / 1024:.0f} GiB" if used is not None and all else "-"
    watts = gpu.get("watts")
    return (
        str(gpu["index"]),
        _percent(gpu.get("graphics", gpu.get("busy"))),
        *(_percent(gpu.get(name)) for name in ("sm", "tensor", "dram")),
        "-" if watts is None else f"{watts:.0f} W",
        memory,
        _users(gpu["users"]),
    )


def _users(users: Any) -> str:
    shown = [
        " ".join(filter(None, (user.get("name"), str(user["pid"]), "" if user["is_of_job"] else "(other)")))
        for user in users[:_MOST_USERS]
    ]
    more = f" and {len(users) - _MOST_USERS} more" if len(users) > _MOST_USERS else ""
    return ", ".join(shown) + more or "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"


def verdicts(report: Report, watched: Watched) -> Iterator[str]:
    """One line for each GPU: its problems, or what limits it."""
    told = next((row.message for row in report.checks if row.id == _KERNELS), "")
    limits = {words.split()[1].rstrip(":"): words for words in told.split("; ") if words.startswith("GPU ")}
    for gpu in watched["gpus"]:
        index = gpu["index"]
        titles = [entry.title for entry in (*report.diagnosis, *report.notes) if index in _gpus(entry.gpu, entry.evidence)]
        if titles:
            yield plain(f"GPU {index}: {'; '.join(dict.fromkeys(titles))}")
        elif str(index) in limits:
            yield plain(limits[str(index)])
        else:
            busy = gpu.get("graphics", gpu.get("busy"))
            yield (
                f"GPU {index}: no kernel ran" if not busy else f"GPU {index}: busy in {busy:.0f} % of the time, no problem found"
            )


def _gpus(gpu: int | None, evidence: Mapping[str, Any]) -> set[int]:
    return {gpu} if gpu is not None else {int(index) for index in str(evidence.get("gpus", "")).split(",") if index.isdigit()}
