"""When a GPU has to stop a long load: slowdown temperature, uncorrectable memory errors, fatal Xids, work of another program."""

from __future__ import annotations

from typing import Any, Dict, List

from gpudoctor.worker.measuring.sampler import Sampler
from gpudoctor.worker.measuring.watching.record import Xid

# Xids after which a GPU computes nothing more, or nothing right, until it is reset: "fatal" in knowledge/xids.yaml.
FATAL_XIDS = frozenset(
    (46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, *range(143, 152), 155, 156, 158, 167, 169, 171, 172, 173, 175)
)
EITHER = range(144, 151)  # they come with both severities, and the text of the kernel log has it


def dangers(sampler: Sampler) -> Dict[int, str]:
    """GPU -> why its work has to stop now."""
    found = {gpu: _of(sampler, gpu) for gpu in sampler.samples}
    return {gpu: why for gpu, why in found.items() if why}


def _of(sampler: Sampler, gpu: int) -> str:
    counters = sampler.counters.get(gpu, {})
    sample = sampler.samples[gpu].last
    limit = sampler.limits.get(gpu, {}).get("slowdown_celsius")
    if limit and sample.get("celsius", 0) >= limit:
        return "GPU %d reached %d °C, its slowdown temperature" % (gpu, limit)
    if sampler.record.rose(gpu, "ecc_uncorrected") > 0 or _uncorrected(counters, "during") > _uncorrected(counters, "before"):
        return "GPU %d had an uncorrectable memory error" % gpu
    code = next((xid.code for xid in sampler.record.xids if xid.gpu == gpu and is_fatal(xid)), None)
    if code is not None:
        return "GPU %d reported Xid %d, which is fatal" % (gpu, code)
    others: List[Dict[str, Any]] = sample.get("others", [])
    if others:
        return "%s (pid %d) began to use GPU %d" % (others[0]["name"], others[0]["pid"], gpu)
    return ""


def is_fatal(xid: Xid) -> bool:
    return xid.code in FATAL_XIDS and (xid.code not in EITHER or " Fatal" in xid.text)


def _uncorrected(counters: Dict[str, Dict[str, int]], when: str) -> int:
    return counters.get(when, {}).get("ecc_uncorrected", 0)
