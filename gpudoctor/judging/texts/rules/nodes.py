"""Nodes of a cluster that start nothing new, while a job or pod of the text waits for one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding

_ROW = re.compile(
    r"""
    ^\s*(?P<name>[a-z0-9][\w.-]*)\ +(?P<states>(?:Not)?Ready(?:,SchedulingDisabled)?)\ +\S+\ +\w+\ +v\d
    """,
    re.MULTILINE | re.VERBOSE,
)
_CORDONED = "SchedulingDisabled"
_NO_NODES = ("control-plane", "master")  # roles whose nodes run no jobs
_PENDING = re.compile(
    r"""
    ^\s*(?:\S+\ +)?[a-z][\w.-]*\ +0/\d+\ +Pending\ +\d
    | \b(?:stay|remain|keep|is|are|stuck)\w*\ (?:in\ )?[Pp]ending\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_SINFO = re.compile(
    r"""
    ^\s*\S+ \ +up \ +\S+ \ +\d+
    \ +(?P<state> down | drain(?:ed|ing)? | drng | fail(?:ing)? | maint | boot | idle | mix(?:ed)? | alloc(?:ated)? | comp )
    [*~\#!%$@^-]?
    \ +(?P<nodes>\S+)\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_UNUSABLE = ("down", "drain", "drained", "draining", "drng", "fail", "failing", "maint")
_WAITS = re.compile(
    r"""
    (?: ^|\s )PD\s+0:00 | \((?:Resources|Priority|ReqNodeNotAvail[^)]*)\)
    | \bpending\b | \b(?:not|never|n't)\s+start | \bwait(?:s|ing)?\b | \bqueued?\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def cordoned(facts: Facts) -> Iterator[Finding]:
    """A pod is pending, and kubectl get nodes shows nodes that take no new ones and none that does."""
    text = "\n".join(each for each in passages(facts) if _CORDONED in each or _PENDING.search(each))
    rows = [row for row in _ROW.finditer(text) if not any(role in row[0] for role in _NO_NODES)]
    closed = [row["name"] for row in rows if _CORDONED in row["states"]]
    if closed and len(closed) == len(rows) and _PENDING.search(text):
        words = f"kubectl get nodes shows SchedulingDisabled for {', '.join(closed[:4])}, and a pod is pending"
        yield facts.problems["k8s-node-cordoned"].found(words, {"nodes": closed}, confidence=Confidence.LIKELY)


def down_in_slurm(facts: Facts) -> Iterator[Finding]:
    """A job waits, and sinfo shows a node that the text names, or all nodes, as down or drained."""
    for text in passages(facts):
        rows = list(_SINFO.finditer(text))
        lost = [row for row in rows if row["state"] in _UNUSABLE]
        rest = _SINFO.sub("", text)
        named = [row for row in lost if row["nodes"] in rest]
        if lost and (len(lost) == len(rows) or named) and _WAITS.search(rest):
            shown = named[0] if named else lost[0]
            words = f"sinfo shows {shown['nodes']} as {shown['state']}, and a job waits"
            yield facts.problems["slurm-node-unusable"].found(words, {"node_name": shown["nodes"]}, confidence=Confidence.LIKELY)
            return


RULES = (cordoned, down_in_slurm)
