"""Machines for the page's tests: measured ones, with a history and a timeline made up, since they are from before those."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import machine

from gpudoctor import catalog, doctor
from gpudoctor.model import Reply, Report, Snapshot

EVERY_SECONDS, POINTS = 0.5, 140
WORKLOADS = {
    "host-transfers": [3.0, 6.5],
    "memory-bandwidth": [7.0, 7.4],
    "gemm": [8.0, 19.0],
    "training-step": [20.0, 21.0],
    "convolution": [22.0, 34.0],
    "memory-pattern": [35.0, 68.0],
}
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
    load = [0.1 + 0.8 * any(began <= at * EVERY_SECONDS <= ended for began, ended in WORKLOADS.values()) for at in range(POINTS)]
    watts = [round(120 + 580 * share * (0.9 + 0.1 * math.sin(at / 7 + gpu)), 1) for at, share in enumerate(load)]
    return {
        "every_seconds": EVERY_SECONDS,
        "sm_mhz": [None if at == 3 else 1980.0 - round(500 * (power > 600)) - gpu for at, power in enumerate(watts)],
        "watts": watts,
        "celsius": [round(30 + sum(watts[max(0, at - 20) : at + 1]) / 21 / 20 + gpu, 1) for at in range(POINTS)],
        "workloads": WORKLOADS,
    }


def judged(taken: Snapshot, level: str = "full") -> Report:
    return doctor.judge(taken, doctor.select(catalog.checks(), level))
