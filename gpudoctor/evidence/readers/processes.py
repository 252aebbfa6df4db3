"""`ps aux`, `ps -ef` with states, `fuser -v` and `lsof` of /dev/nvidia*: who runs, in which state, and who has a GPU open."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_HEAD = re.compile(r"^\s*(?=.*\bPID\b)(?=.*\b(?:STAT|S)\b)(?:[A-Z%]+[+]?\s+)+(?:COMMAND|CMD|ARGS)\b")
_FUSER = re.compile(r"^(?P<path>/dev/nvidia\S*):\s+(?P<user>\S+)\s+(?P<pid>\d+)\ (?P<access>\S+)\ (?P<name>\S+)", re.VERBOSE)
_MORE = re.compile(r"^\s{8,}(?P<user>\S+)\s+(?P<pid>\d+) (?P<access>\S+) (?P<name>\S+)")
_PROGRAM = re.compile(r"python|torchrun|train|pt_data_worker")
_LSOF = re.compile(
    r"""
    ^(?P<name>\S+)\ +(?P<pid>\d+)\ +(?:\d+\ +\S+\ +)?\S+
    \ +\S+\ +CHR\ .*\ /dev/nvidia(?:\d+|ctl|-uvm)\b
    """,
    re.VERBOSE,
)


def _lsof(text: str) -> dict[str, Reply] | None:
    holders = {match["pid"]: match["name"] for match in map(_LSOF.match, text.splitlines()) if match}
    return {"gpu-holders": Reply("ok", holders)} if holders else None


def _ps(text: str) -> dict[str, Reply] | None:
    head, *lines = text.splitlines()
    names = head.split()
    if not _HEAD.match(head):
        return None
    state = names.index("STAT") if "STAT" in names else names.index("S")
    place, last = names.index("PID"), len(names) - 1
    found = {}
    blocked = []
    for line in lines:
        words = line.split(None, last)
        if len(words) <= last or not words[place].isdigit():
            continue
        if words[state].startswith("D") and _PROGRAM.search(words[last]):
            blocked.append(words[place])
        if not _runs(names, words):
            parent = {"parent": words[names.index("PPID")]} if "PPID" in names else {}
            found[words[place]] = {"state": words[state][:1], "command": words[last], "user": words[0], **parent}
    waiting = {"shown-blocked": Reply("ok", blocked)} if blocked else {}
    return {**waiting, **({"shown-processes": Reply("ok", found)} if found else {})} or None


def _filtered(command: str, output: str) -> dict[str, Reply] | None:
    """Rows that grep left, without the head, which the options name."""
    asked = re.search(r"-\w*o\s+(\S+)", command)
    names = [name.partition(":")[0] for name in asked[1].split(",")] if asked else []
    columns = [_COLUMNS.get(name, name.upper()) for name in names] or _OF_AUX
    known = columns if asked or re.search(r"\bps\ -?\w*aux", command) else []
    if not known or known[-1] not in ("COMMAND", "CMD", "ARGS"):
        return None
    return _ps(f"{' '.join(known)}\n{output}")


_COLUMNS = {"args": "COMMAND", "cmd": "COMMAND", "comm": "COMMAND", "command": "COMMAND", "stat": "STAT", "state": "S", "s": "S"}
_OF_AUX = ["USER", "PID", "%CPU", "%MEM", "VSZ", "RSS", "TTY", "STAT", "START", "TIME", "COMMAND"]


def _runs(names: list[str], words: list[str]) -> bool:
    """top shows the load since its last refresh, unlike ps: a process with some is not stuck, although it waits just now."""
    return "VIRT" in names and words[names.index("S")] == "D" and words[names.index("%CPU")] not in ("0.0", "0,0", "0")


def _fuser(text: str) -> dict[str, Reply] | None:
    holders = [match.groupdict() for line in text.splitlines() if (match := _FUSER.match(line) or _MORE.match(line))]
    return {"gpu-holders": Reply("ok", {one["pid"]: one["name"] for one in holders})} if holders else None


READERS = (
    Reader("ps", (" PID ",), _HEAD, _ps, re.compile(r"^\s*$|^\S*[$#>] |^```"), 2000),
    prompts.reader("ps, filtered", ("ps ",), r"ps\ .*\|.*", _filtered, bare=False, most_lines=400),
    Reader("lsof", ("/dev/nvidia",), _LSOF, _lsof, re.compile(r"^(?!.*\ /dev/|.*\ CHR\ )"), 2000),
    Reader("fuser", ("/dev/nvidia",), _FUSER, _fuser, re.compile(r"^(?!/dev/|\s{8,}\S)"), 200),
)
