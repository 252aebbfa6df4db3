"""What became of a node, from the exit code and the error output of what carried the question."""

from __future__ import annotations

import re

from gpudoctor.fleet.model import State
from gpudoctor.plain import plain

LONGEST = 200
SSH_FAILED = 255
NAME_UNKNOWN = "its name cannot be resolved"
_SAID = (
    (State.HOST_KEY, r"host key verification failed|remote host identification has changed|no \S+ host key is known"),
    (State.REFUSED, r"permission denied|too many authentication failures|connection refused|access denied|not authorized"),
    (
        State.UNREACHABLE,
        r"could not resolve|no route to host|timed out|network is (?:unreachable|down)|name or service not known|unknown host"
        r"|connection (?:closed|reset)|invalid node name|node (?:failure|\S+ not responding)|required node not available"
        r"|are (?:down|drained)",
    ),
    (State.BUSY, r"requested nodes are busy|unable to allocate resources|job allocation|invalid (?:account|partition|qos)"),
)
_NOISE = re.compile(r"^(?:warning: permanently added|\*\*|@|\s*$|debug\d:|authorized uses only)", re.IGNORECASE)


def of(code: int | None, said: str) -> tuple[State, str]:
    """The state of a node whose shell did not answer, and the line that says why."""
    lines = [plain(line).strip() for line in said.splitlines() if not _NOISE.match(line)]
    for state, pattern in _SAID:
        found = next((line for line in lines if re.search(pattern, line, re.IGNORECASE)), "")
        if found:
            return state, _short(found)
    last = lines[-1] if lines else ""
    if code == SSH_FAILED:
        return State.UNREACHABLE, _short(last)
    return State.FAILED, _short(last or (f"exit code {code}" if code else "no output"))


def _short(line: str) -> str:
    """Without the name of the node, as all nodes with this state are one group."""
    line = re.sub(r"^ssh: connect to host \S+ port \d+: ", "", line)
    line = re.sub(r"^ssh: Could not resolve hostname \S+: ", f"{NAME_UNKNOWN}: ", line)
    line = re.sub(r"^\S+@\S+: (?=Permission denied)|(?<=^Connection closed) by .*|^srun: error: ", "", line)
    return line[:LONGEST]
