"""Machines for the page's tests: measured ones, with a history and a timeline made up, since they are from before those."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import machine

from gpudoctor import catalog, doctor
from gpudoctor.model import Reply, Report, Snapshot

EVERY_SECONDS, POINTS = 0.5, 140
ONCE = {"rung-load-inline": [3.0, 22.0]}  # for all GPUs alike, on the first
EACH = {
    "memory-bandwidth": [3.0, 3.4],
    "gemm": [4.0, 15.0],
    "training-step": [16.0, 17.0],
    "convolution": [18.0, 30.0],
    "memory-pattern": [31.0, 43.0],
}
LATER = 20.0  # seconds by which the first GPU comes to them
TOGETHER = {"distributed": [66.0, 68.5]}
TIMELINE = {"compute": [[0.0, 10.02]], "copy": [[0.05 + 0.6 * piece, 0.65 + 0.6 * piece] for piece in range(16)]}


def busy(gpus: int = 8) -> Snapshot:
    """Eight measured H200, or more of the same, at level full."""
    taken = machine.load("hgx-h200-x8-measured")
    replies, measured = dict(taken.replies), dict(taken.measured)
    if gpus != 8:
        machine.multiply(replies, gpus)
        measured |= {
            f"{id[:-1]}{gpu}": reply for id, reply in taken.measured.items() if id.endswith("gpu0") for gpu in range(gpus)
        }
    measured |= {f"history:gpu{gpu}": Reply("ok", history(gpu)) for gpu in range(gpus)}
    for gpu in range(gpus):
        run = dict(measured[f"stream-overlap:gpu{gpu}"].value)
        run |= {way: {**run[way], "timeline": TIMELINE} for way in ("to GPU", "from GPU")}
        measured[f"stream-overlap:gpu{gpu}"] = Reply("ok", run, seconds=0.7)
    return replace(taken, replies=replies, measured=measured)


def history(gpu: int) -> dict[str, Any]:
    """Made up."""
    ran = workloads(gpu)
    load = [0.1 + 0.8 * any(began <= at * EVERY_SECONDS <= ended for began, ended in ran.values()) for at in range(POINTS)]
    watts = [round(120 + 580 * share * (0.9 + 0.1 * math.sin(at / 7 + gpu)), 1) for at, share in enumerate(load)]
    return {
        "every_seconds": EVERY_SECONDS,
        "sm_mhz": [None if at == 3 else 1980.0 - round(500 * (power > 600)) - gpu for at, power in enumerate(watts)],
        "watts": watts,
        "celsius": [round(30 + sum(watts[max(0, at - 20) : at + 1]) / 21 / 20 + gpu, 1) for at in range(POINTS)],
        "workloads": ran,
    }


def workloads(gpu: int) -> dict[str, list[float]]:
    """When each ran: no GPU keeps the time of another."""
    later = 0.1 * gpu if gpu else LATER
    own = {name: [round(at + later, 2) for at in span] for name, span in EACH.items()}
    return {**({} if gpu else ONCE), **own, **TOGETHER}


def judged(taken: Snapshot, level: str = "full") -> Report:
    return doctor.judge(taken, doctor.select(catalog.checks(), level))
