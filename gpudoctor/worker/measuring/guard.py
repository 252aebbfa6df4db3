"""When a long load has to stop: slowdown temperature, uncorrectable memory errors, work of another program."""

from __future__ import annotations

from typing import Any, Dict, List

from gpudoctor.worker.measuring.sampler import Sampler


def danger(sampler: Sampler) -> str:
    """Why the load has to stop now; "" if it can go on."""
    return next(filter(None, (_of(sampler, gpu) for gpu in sampler.samples)), "")


def _of(sampler: Sampler, gpu: int) -> str:
    counters = sampler.counters.get(gpu, {})
    sample = sampler.samples[gpu].last
    limit = sampler.limits.get(gpu, {}).get("slowdown_celsius")
    if limit and sample.get("celsius", 0) >= limit:
        return "GPU %d reached %d °C, its slowdown temperature" % (gpu, limit)
    if _uncorrected(counters, "during") > _uncorrected(counters, "before"):
        return "GPU %d had an uncorrectable memory error" % gpu
    others: List[Dict[str, Any]] = sample.get("others", [])
    if others:
        return "%s (pid %d) began to use GPU %d" % (others[0]["name"], others[0]["pid"], gpu)
    return ""


def _uncorrected(counters: Dict[str, Dict[str, int]], when: str) -> int:
    return counters.get(when, {}).get("ecc_uncorrected", 0)
