"""Where the ranks part, by the counts that NCCL's RAS threads report: a collective that some launched and others did not.

The text of NCCL before 2.28.7 names only ranks that are few; the report in JSON has the counts of all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gpudoctor.facts.job.recorded import Answer, Communicator, RasReport
from gpudoctor.judging.jobs.hanging.standing import BEHIND, DIFFER, TOGETHER, Parting

SOURCE = "NCCL's RAS threads"
_BLOCK = re.compile(r"^#(\d+-\d+) \(([0-9a-f]+)\) (\w+)\n((?:[ \t]+.*\n?)*)", re.MULTILINE)
_COUNTS = re.compile(r"different (\w+) operation counts")
_SEVERAL = re.compile(r"^\s+(\d+) ranks have (?:launched up to operation (\d+)|not launched any)")
_ONE = re.compile(r"^\s+Rank (\d+) has (?:launched up to operation (\d+)|not launched any)")
_LISTED = re.compile(r"^\s+Rank (\d+) -- ")
_MISSING = re.compile(r"The missing ranks?: ([\d, -]+)")
_DEAD = re.compile(r"^\s+Process (\d+) on node (\S+) managing GPUs? ([\d,]+)", re.MULTILINE)


def gone(answers: Sequence[Answer]) -> dict[int, dict[str, Any]]:
    """Rank -> {"pid", "host", "dead"} of those that NCCL cannot reach."""
    report = answers[-1].report if answers else RasReport()
    found: dict[int, Any] = {rank["rank"]: rank for one in report.get("communicators", ()) for rank in one["missing"]}
    if not found and answers and answers[-1].text:
        for _, _, status, body in _BLOCK.findall(answers[-1].text):
            if status == "INCOMPLETE":
                numbers = [*_ranks(body), *(int(n) for match in _MISSING.findall(body) for n in re.findall(r"\d+", match))]
                found |= {rank: {"rank": rank, "pid": 0, "host": "", "dead": "DEAD" in answers[-1].text} for rank in numbers}
    return found


def grows(answers: Sequence[Answer]) -> bool:
    """Between two answers some rank launched more."""
    if len(answers) < 2 or not (answers[0].report and answers[1].report):
        return len(answers) == 2 and bool(answers[0].text) and _counts_in(answers[0].text) != _counts_in(answers[1].text)
    return _totals(answers[0].report) != _totals(answers[1].report)


def partings(answers: Sequence[Answer]) -> Iterator[Parting]:
    if not answers:
        return
    last = answers[-1]
    if last.report:
        for one in last.report.get("communicators", ()):
            if one["size"] > 1 and (found := _of_counts(one)):
                yield found
    elif last.text:
        yield from _of_text(last.text)


def _of_counts(one: Communicator) -> Parting | None:
    counts: dict[int, dict[str, int]] = {rank["rank"]: rank["counts"] for rank in one["ranks"]}
    if len(counts) < 2:
        return None
    totals = {rank: sum(found.values()) for rank, found in counts.items()}
    names = sorted({name for found in counts.values() for name in found})
    most = {name: max(found.get(name, 0) for found in counts.values()) for name in names}
    uneven = [name for name in names if any(found.get(name, 0) != most[name] for found in counts.values())]
    if not uneven:
        return Parting(TOGETHER, "", max(totals.values()), tuple(sorted(counts)), group=one["hash"], source=SOURCE)
    ahead = tuple(sorted(rank for rank in totals if totals[rank] == max(totals.values())))
    details = {"launched": {rank: counts[rank] for rank in sorted(counts)[:8]}}
    first = counts[ahead[0]]
    for rank in sorted(counts):
        more = [name for name in names if counts[rank].get(name, 0) > first.get(name, 0)]
        less = [name for name in names if counts[rank].get(name, 0) < first.get(name, 0)]
        if more and less:
            same = tuple(other for other in sorted(counts) if counts[other] == first)
            odd = tuple(other for other in sorted(counts) if other not in same)
            return Parting(DIFFER, less[0], totals[ahead[0]], same, odd, more[0], one["hash"], {}, details, SOURCE)
    behind = tuple(sorted(rank for rank in totals if totals[rank] < max(totals.values())))
    lowest = min(behind, key=lambda rank: totals[rank])
    operation = next((name for name in names if counts[lowest].get(name, 0) < first.get(name, 0)), names[0])
    return Parting(BEHIND, operation, totals[lowest] + 1, ahead, behind, "", one["hash"], {}, details, SOURCE)


def _of_text(text: str) -> Iterator[Parting]:
    for _, hash, status, body in _BLOCK.findall(text):
        if status != "MISMATCH":
            continue
        for part in re.split(r"(?=\n?[^\n]*different \w+ operation counts)", body):
            if (name := _COUNTS.search(part)) and (counts := _counts_of(part)):
                top, low = max(counts), min(counts)
                if top != low:
                    yield Parting(BEHIND, name[1], low + 1, counts[top], counts[low], "", hash, {}, {}, SOURCE)


def _counts_of(body: str) -> dict[int, tuple[int, ...]]:
    """Number of launched operations -> the ranks that are named for it."""
    found: dict[int, list[int]] = {}
    current = 0
    for line in body.splitlines():
        if match := _SEVERAL.match(line):
            current = int(match[2] or 0)
            found.setdefault(current, [])
        elif match := _ONE.match(line):
            found.setdefault(int(match[2] or 0), []).append(int(match[1]))
        elif found and (match := _LISTED.match(line)):
            found[current].append(int(match[1]))
    return {count: tuple(ranks) for count, ranks in found.items()}


def _ranks(body: str) -> list[int]:
    return [int(match[1]) for line in body.splitlines() if (match := _LISTED.match(line))]


def _counts_in(text: str) -> list[str]:
    return re.findall(r"launched up to operation \d+", text)


def _totals(report: RasReport) -> dict[tuple[str, int], int]:
    return {
        (one["hash"], rank["rank"]): sum(rank["counts"].values())
        for one in report.get("communicators", ())
        for rank in one["ranks"]
    }
