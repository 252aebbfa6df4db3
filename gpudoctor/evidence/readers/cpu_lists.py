"""Which CPUs a process may use: `taskset -cp PID`, and Cpus_allowed_list in /proc/PID/status."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_LIST = r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*"
_TASKSET = re.compile(rf"pid (?P<pid>\d+)'s current affinity list: (?P<cpus>{_LIST})")
_STATUS = re.compile(rf"(?m)^Cpus_allowed_list:\s*(?P<cpus>{_LIST})\s*$")
_MOST = 1 << 14  # CPUs in a range


def numbers(words: str) -> list[int]:
    """The numbers of a list of the kernel; empty if it is not one.

    >>> numbers("0-2,8")
    [0, 1, 2, 8]
    """
    if not re.fullmatch(_LIST, words):
        return []
    ends = [part.split("-") for part in words.split(",")]
    return [cpu for end in ends for cpu in range(int(end[0]), min(int(end[-1]), int(end[0]) + _MOST) + 1)]


def _taskset(text: str) -> dict[str, Reply] | None:
    match = _TASKSET.search(text)
    return {"shown-affinity": Reply("ok", {match["pid"]: numbers(match["cpus"])})} if match else None


def _status(command: str, output: str) -> dict[str, Reply] | None:
    pid, match = re.search(r"/proc/(\d+)/status", command), _STATUS.search(output)
    return {"shown-affinity": Reply("ok", {pid[1]: numbers(match["cpus"])})} if pid and match else None


READERS = (
    Reader("taskset", ("current affinity list",), re.compile(rf"^\s*{_TASKSET.pattern}"), _taskset, re.compile(""), 1),
    prompts.reader("/proc/PID/status", ("/status",), r"(?:cat|grep)\ .*/proc/\d+/status.*", _status, most_lines=80),
)
