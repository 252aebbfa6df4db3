"""The table of torch's operators: time on the host and on the GPU, and what they reach."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from gpudoctor.jobs.tracing.host import Host
from gpudoctor.jobs.tracing.rows import CALL, KERNEL, OPERATOR, Rows

PRODUCTS = {"aten::mm": (0, 1), "aten::addmm": (1, 2), "aten::bmm": (0, 1), "aten::baddbmm": (1, 2), "aten::_scaled_mm": (0, 1)}
TUNED = ("aten::cudnn_convolution", "aten::_convolution", "aten::convolution")
MOST_SHAPES = MOST_KERNELS = 6
MOST_NAME = 200


def table(rows: Rows, host: Host, most: int) -> list[dict[str, Any]]:
    """Self time of the host, time of the kernels that an operator launched itself, and for products of matrices the FLOP/s."""
    own_us: Counter[int] = Counter()
    calls: Counter[int] = Counter()
    gpu_us: Counter[int] = Counter()
    whole_us: Counter[int] = Counter()
    flops: Counter[int] = Counter()
    dispatched: dict[int, Counter[int]] = {}
    launched = {rows.h_link[number]: number for number, kind in enumerate(rows.h_kind) if kind == CALL and rows.h_link[number]}
    for number, kind in enumerate(rows.h_kind):
        if kind == OPERATOR:
            name, lasts = rows.h_name[number], rows.h_end[number] - rows.h_start[number]
            own_us[name] += lasts  # type: ignore[assignment]
            calls[name] += 1
            flops[name] += _flops(rows, number)
            above = host.inner[number]
            if above >= 0:
                own_us[rows.h_name[above]] -= lasts  # type: ignore[assignment]
    for number, kind in enumerate(rows.g_kind):
        call = launched.get(rows.g_link[number], -1) if kind == KERNEL else -1
        operator, outermost = (host.inner[call], host.outer[call]) if call >= 0 else (-1, -1)
        if operator >= 0:
            gpu_us[rows.h_name[operator]] += rows.g_end[number] - rows.g_start[number]  # type: ignore[assignment]
            dispatched.setdefault(rows.h_name[operator], Counter())[rows.g_name[number]] += 1
            whole_us[rows.h_name[outermost]] += rows.g_end[number] - rows.g_start[number]  # type: ignore[assignment]
    order = sorted(calls, key=lambda name: (-max(gpu_us[name], whole_us[name]), -own_us[name]))[:most]
    return [
        _row(rows.name(name), calls[name], own_us[name], (gpu_us[name], whole_us[name]), flops[name])
        | _kernels(rows, dispatched.get(name))
        for name in order
    ]


def _kernels(rows: Rows, launched: Counter[int] | None) -> dict[str, Any]:
    """Those that an operator launched itself, the most frequent first."""
    if not launched:
        return {}
    return {
        "kernels": [{"name": rows.name(name)[:MOST_NAME], "calls": calls} for name, calls in launched.most_common(MOST_KERNELS)]
    }


def _row(name: str, calls: int, own_us: float, of_gpu: tuple[float, float], flops: int) -> dict[str, Any]:
    """of_gpu: of the kernels that it launched itself, and of all below it if it is the outermost operator."""
    gpu_us, whole_us = of_gpu
    row = {"name": name[:MOST_NAME], "calls": calls, "host_s": round(own_us / 1e6, 9), "gpu_s": round(gpu_us / 1e6, 9)}
    row |= {"gpu_whole_s": round(whole_us / 1e6, 9)} if whole_us else {}
    return {**row, "tflops": round(flops / gpu_us / 1e6, 3)} if flops and gpu_us else row


def _flops(rows: Rows, number: int) -> int:
    """Of a product of matrices: twice the elements of the result times the common length; 0 if unknown."""
    places = PRODUCTS.get(rows.name(rows.h_name[number]))
    if places is None or number not in rows.shapes:
        return 0
    dims = rows.shapes[number][0]
    try:
        one, other = dims[places[0]], dims[places[1]]
        return 2 * int(math.prod(one)) * int(other[-1])
    except (LookupError, TypeError, ValueError):
        return 0


def changing_shapes(rows: Rows) -> list[dict[str, Any]]:
    """Convolutions by weight: how many different inputs each saw."""
    seen: dict[str, set[str]] = {}
    for number, (dims, _) in rows.shapes.items():
        if rows.name(rows.h_name[number]) in TUNED and len(dims) > 1:
            seen.setdefault(f"{rows.name(rows.h_name[number])} {dims[1]}", set()).add(str(dims[0]))
    found = [{"operator": name, "shapes": len(shapes), "some": sorted(shapes)[:MOST_SHAPES]} for name, shapes in seen.items()]
    return sorted(found, key=lambda row: -int(str(row["shapes"])))[:MOST_SHAPES]
