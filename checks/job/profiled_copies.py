"""The profiled program copies from pinned memory while the GPU works, and keeps on the GPU what the GPU computed.

What it means
A copy from ordinary (pageable) host memory goes through a buffer of the driver, and the call returns only after it. A copy from
pinned memory runs at the full speed of the link, at the same time as kernels and the host.

How it is judged
gpudoctor profile records each copy with the kind of its host memory. Copies from pageable memory are a problem if they are
repeated in about every step and cost 3 % of the time or more: the time in which only they ran, and the time in which the GPU
was idle after the host had waited for them. A program that waits for such a copy for every 20 kernels and copies or fewer never
gets ahead of the GPU: then the time between its launches counts, too.

Copies to the host are a problem if they are repeated in about every step and nothing else ran on the GPU for 5 % of the time.

Known exceptions
Copies at the same time as kernels cost the GPU nothing and are not reported.

References
https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
https://docs.pytorch.org/docs/stable/data.html#memory-pinning
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs.traced_ranks import (
    at,
    between_launches,
    evidence,
    is_repeated,
    line,
    never_gets_ahead,
    per_step,
    percent,
    times,
    waits_for_pageable,
    where,
    worst,
)
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

LEAST = 0.03
MIB = 1 << 20
PAGEABLE = Problem(
    id="copies-from-pageable-memory",
    title="The GPU waits for copies from pageable host memory",
    why="The driver first copies pageable memory into its own pinned buffer, and the host waits meanwhile. From "
    "pinned memory "
    "the copy runs at the same time as kernels, at the speed of the link.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Use DataLoader(…, pin_memory=True) and copy with batch.to(device, non_blocking=True)"),
        Fix("Use one host buffer again and again if there is no DataLoader: torch.empty(…, pin_memory=True)"),
        Fix("Copy many small tensors as one: torch.stack(tensors) on the host, then .to(device)"),
        Fix("Keep what does not change between steps on the GPU"),
    ),
    references=("https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",),
)

TO_HOST = Problem(
    id="results-copied-to-host-in-steps",
    title="The GPU waits while its results are copied to the host",
    why="The host needs the copy before it goes on, so no kernel runs meanwhile. What is computed from the results, such as a "
    "metric, takes the GPU a fraction of that time, and leaves a few bytes to copy.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Compute on the GPU what the program needs (argmax, mean, a metric), and copy only that"),
        Fix("Copy the results only every so many steps"),
        Fix("If all are needed: copy into a pinned buffer with non_blocking=True, and read it in the next step"),
    ),
    references=("https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",),
)
LEAST_TO_HOST = 0.05


def rows(rank: Rank) -> list[Mapping[str, Any]]:
    """Repeated copies from pageable memory to the GPU."""
    found = [row for row in rank.rows("copies") if "HtoD" in row["name"] and "Pageable" in row["name"]]
    return [row for row in found if is_repeated(times(row), rank)]


def lost(rank: Rank) -> float:
    if not rows(rank):
        return 0.0
    waiting = waits_for_pageable(rank)
    after = rank.of_window(sum(row["exposed_s"] for row in rows(rank)) + sum(row["idle_s"] for row in waiting))
    return after + (between_launches(rank) if never_gets_ahead(rank, waiting) else 0.0)


def to_host(rank: Rank) -> list[Mapping[str, Any]]:
    """Repeated copies of results."""
    return [row for row in rank.rows("copies") if "DtoH" in row["name"] and is_repeated(times(row), rank)]


def lost_to_host(rank: Rank) -> float:
    return rank.of_window(sum(row["exposed_s"] for row in to_host(rank)))


def judge(facts: Facts) -> Iterator[Finding]:
    rank, share = worst(facts, lost)
    if share >= LEAST:
        place = next(filter(None, map(line, waits_for_pageable(rank))), "")
        yield _found(PAGEABLE, "pageable memory is copied to the GPU", rank, rows(rank), place, share)
    rank, share = worst(facts, lost_to_host)
    if share >= LEAST_TO_HOST:
        waiting = [row for row in rank.rows("waits") if "DtoH" in (row.get("copied") or "")]
        place = next(filter(None, map(line, waiting)), "")
        yield _found(TO_HOST, "results are copied to the host", rank, to_host(rank), place, share)


def _found(problem: Problem, what: str, rank: Rank, found: list[Mapping[str, Any]], place: str, share: float) -> Finding:
    count, size = sum(row["count"] for row in found), sum(row["bytes"] for row in found)
    speed = size / max(1e-9, sum(row["seconds"] for row in found)) / 1e9
    said = f"{what} {per_step(count, rank)}{at(place)}{where(rank)} "
    said += f"({of_size(size / count)} each, {speed:.1f} GB/s), which costs {percent(share)} of the time"
    return problem.found(said, evidence(rank, share, copies=count, mean_mib=round(size / count / MIB, 3), line=place))


def of_size(size: float) -> str:
    """
    >>> of_size(256), of_size(3 << 20)
    ('256 bytes', '3.0 MiB')
    """
    return f"{size / MIB:.1f} MiB" if size >= MIB / 10 else f"{size:.0f} bytes"


def summary(facts: Facts) -> str:
    rank, _ = worst(facts, lost)
    return f"copies leave the GPU idle for {percent(rank.share('exposed_copying_s'))} of the time"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(PAGEABLE, TO_HOST),
    tags=("performance",),
)
