"""Under full load for minutes, no link fails, no counter of errors grows and no Xid is reported.

What it means
Many faults leave results correct at first: a link repeats transfers, the memory gets too hot, the driver reports an Xid and
recovers. They show while everything works at once, and a look before and after does not say when they began.

How it is judged
During gpudoctor burn, each second: NVLink errors, recoveries, bit error rates and states, the PCIe link, the temperature of the
memory, and the Xids in the kernel log and of NVML. A replay, a recovery or an uncorrectable error of an NVLink is too many; so
are two recoveries that an NVLink 5 survived, 100 CRC errors a second, and a bit error rate of 1e-12. A PCIe link must not lose
lanes, nor run at a lower generation while data is copied over it than before. Uncorrected PCIe errors, Xids, fatal errors of
NVSwitches, and memory at its highest operating temperature are reported. The message names the GPU, the link, when it began,
the rate, and what ran then.

Known exceptions
What a GPU or its driver does not report is listed as not watched. Corrected errors of NVLinks are not judged. Without the kernel
log only those Xids are known that NVML reports. ECC errors and PCIe replays are judged by errors-under-load.

References
https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html
https://docs.nvidia.com/deploy/xid-errors/index.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.kernel_log import sxid_of
from gpudoctor.facts.known import known
from gpudoctor.facts.pcie_links import BUS_ERROR, function_of, way_to
from gpudoctor.facts.xids import GpuXids
from gpudoctor.judging.measured import burning, expect
from gpudoctor.judging.measured.watched import Point, UnderLoad, clock, not_watched, under_load
from gpudoctor.model import Check, Finding, Skip

BROKEN = ("replay", "recovery", "failed_recovery", "malformed_packet", "buffer_overrun", "link_integrity")
# Counter of a link, without "nvlink_" -> its words for one, and for several.
WORDS = {
    "replay": ("replay", "replays"),
    "recovery": ("recovery", "recoveries"),
    "recovered": ("recovery", "recoveries"),
    "failed_recovery": ("failed recovery", "failed recoveries"),
    "malformed_packet": ("malformed packet", "malformed packets"),
    "buffer_overrun": ("buffer overrun", "buffer overruns"),
    "link_integrity": ("integrity error", "integrity errors"),
    "crc": ("CRC error", "CRC errors"),
}
FATAL = {"pcie_fatal": "fatal PCIe error", "pcie_non_fatal": "uncorrected PCIe error"}
NVLINK = "nvlink_"
MOST_CRC_PER_SECOND = 100  # of DCGM: DCGM_LIMIT_MAX_NVLINK_CRC_ERROR
LEAST_RECOVERED = 2  # in a load; a good link has none
MOST_BIT_ERRORS = 1e-12  # as nvlink
OTHERWISE = "xid-contact-support"
LONGEST = 120  # of a line of the log


def judge(facts: Facts) -> Iterator[Finding]:
    seen = under_load(facts)
    for index in seen.gpus:
        gpu = expect.gpu(facts, index)
        evidence = {"index": index, "address": gpu.bus_id if gpu else index}
        for id, words, more in (
            *nvlinks(seen, index),
            *rates(seen, index),
            *pcie(facts, seen, index),
            *memory(gpu, seen, index),
            *xids(facts, seen, index, gpu),
        ):
            yield facts.problems[id].found(f"GPU {index}: {words}", {**evidence, **more}, index, partial=True)
    yield from of_log(facts, seen)


Found = tuple[str, str, dict[str, object]]  # the id of a problem, words, evidence


def nvlinks(seen: UnderLoad, index: int) -> Iterator[Found]:
    """Growing counters of links, and links that went down."""
    errors: dict[str, list[str]] = {}
    links: dict[str, set[int]] = {}
    for growth in seen.growths(index):
        kind = growth.counter.removeprefix(NVLINK)
        if growth.link is None or not growth.counter.startswith(NVLINK):
            continue
        is_flood = kind == "crc" and growth.per_minute / 60 >= MOST_CRC_PER_SECOND
        id = "nvlink-errors" if kind in BROKEN or is_flood else ""
        id = "nvlink-unstable" if kind == "recovered" and growth.rose >= LEAST_RECOVERED else id
        if id:
            name = WORDS[kind][growth.rose > 1]
            errors.setdefault(id, []).append(f"link {growth.link}: {growth.rose:.0f} {name}, {growth.words}")
            links.setdefault(id, set()).add(growth.link)
    for id, words in errors.items():
        yield id, "; ".join(words), {"links": sorted(links[id])}
    yield from links_down(seen, index)


def links_down(seen: UnderLoad, index: int) -> Iterator[Found]:
    for series in seen.moved(index):
        downs = [at for at, value in series.points if series.counter == "nvlink_state" and value == 0]
        if downs:
            when = f"at {clock(downs[0])}{during(seen, index, downs[0])}"
            if series.points[-1][1] == 0:
                yield "nvlink-link-down", f"link {series.link} went down {when}", {"down": [series.link]}
            else:
                yield "nvlink-unstable", f"link {series.link} went down {when}, and came up again", {"links": [series.link]}


def rates(seen: UnderLoad, index: int) -> Iterator[Found]:
    high = {name: rate for name, rate in seen.highest(index).items() if name.startswith(NVLINK) and rate >= MOST_BIT_ERRORS}
    if high:
        words = [f"link {name.partition(':')[2]}: bit error rate {rate:.0e}" for name, rate in sorted(high.items())]
        yield "nvlink-unstable", "; ".join(words), {"rates": {name: f"{rate:.1e}" for name, rate in high.items()}}


def pcie(facts: Facts, seen: UnderLoad, index: int) -> Iterator[Found]:
    for growth in seen.growths(index):
        if growth.counter in FATAL:
            words = f"{growth.rose:.0f} {FATAL[growth.counter]}{'s' if growth.rose > 1 else ''}, {growth.words}"
            yield "pcie-errors-in-log", words, {"count": growth.rose}
    for series in seen.moved(index):
        if series.counter == "pcie_width" and (lost := first_drop(series.points)):
            at, before, lanes = lost
            back = ", and back again" if series.points[-1][1] >= before else ""
            words = f"the PCIe link went from x{before:.0f} to x{lanes:.0f} lanes at {clock(at)}{during(seen, index, at)}{back}"
            yield "pcie-width-downgraded", words, {"lanes": lanes, "possible_lanes": before}
    yield from generation(facts, index)


def first_drop(points: Iterable[Point]) -> tuple[float, float, float] | None:
    """When a value fell for the first time, from which value, to which."""
    for (_, before), (at, after) in pairwise(points):
        if after < before:
            return at, before, after
    return None


def generation(facts: Facts, index: int) -> Iterator[Found]:
    """While data is copied over it, a link does not slow down to save power."""
    burned = next((each for each in known(lambda: burning.burned(facts), ()) if each.index == index), None)
    found = [stretch.values.get("during", {}).get("pcie_generation") for stretch in burned.of("pcie")] if burned else []
    seen = [value for value in found if value]
    if seen and seen[-1] < max(seen):
        words = f"its PCIe link ran at generation {seen[-1]:.0f} in the last copies, at {max(seen):.0f} before"
        yield "pcie-gen-low-under-load", words, {"generation": seen[-1], "possible_generation": max(seen)}


def memory(gpu: Gpu | None, seen: UnderLoad, index: int) -> Iterator[Found]:
    highest = seen.highest(index).get("memory_celsius")
    limit = known(lambda: gpu.temperature_limit_c("memory")) if gpu else None
    if highest is not None and limit is not None and highest >= limit:
        words = f"memory reached {highest:.0f} °C, the highest operating temperature is {limit} °C"
        yield "gpu-memory-at-temperature-limit", words, {"temperature_c": highest, "limit_c": limit}


def xids(facts: Facts, seen: UnderLoad, index: int, gpu: Gpu | None) -> Iterator[Found]:
    found = seen.xids.get(index, ())
    if not found:
        return
    of_gpu = GpuXids(found[0].pci, gpu, found, None)
    for code in of_gpu.faults:
        known_one = knowledge.xid(code)
        if known_one and known_one.problem is None:
            continue
        id = (known_one and known_one.problem) or OTHERWISE
        first = next(xid for xid in found if xid.code == code)
        at = first.seconds or 0.0
        times = sum(xid.code == code for xid in found)
        words = f"Xid {code} at {clock(at)}{during(seen, index, at)}" + (f", {times} times" if times > 1 else "")
        words += f": {first.text[:LONGEST]}" if first.text else f" ({known_one.name})" if known_one else ""
        yield id if id in facts.problems else OTHERWISE, words, {"xids": [code], "count": times, "seconds": at}


def of_log(facts: Facts, seen: UnderLoad) -> Iterator[Finding]:
    """Fatal errors of NVSwitches, and uncorrected ones of PCIe on the way to a GPU."""
    for at, line in seen.lines:
        sxid = sxid_of(line)
        if sxid and sxid.is_fatal:
            words = f"NVSwitch {sxid.pci} reported SXid {sxid.code} at {clock(at)}: {sxid.text[:LONGEST]}"
            yield facts.problems["nvswitch-error"].found(words, {"address": sxid.pci, "seconds": at}, partial=True)
        error = BUS_ERROR.search(line.text)
        if error and not (error["severity"] or "").startswith("Correct"):
            gpu = next((gpu.index for gpu in known(lambda: facts.nvml.gpus, ()) if error[1] in way(facts, gpu)), None)
            if gpu is not None:
                words = f"GPU {gpu}: {line.text[:LONGEST]} at {clock(at)}{during(seen, gpu, at)}"
                yield facts.problems["pcie-errors-in-log"].found(words, {"address": error[1], "seconds": at}, gpu, partial=True)


def way(facts: Facts, gpu: Gpu) -> tuple[str, ...]:
    function = known(lambda: function_of(facts, gpu))
    return way_to(function) if function else (known(lambda: gpu.bus_id, ""),)


def during(seen: UnderLoad, index: int, second: float) -> str:
    ran = seen.ran_at(index, second)
    return f", during {ran}" if ran else ""


def summary(facts: Facts) -> str:
    seen = under_load(facts)
    if not seen.gpus:
        raise Skip("no GPU was watched", Skip.NO_ANSWER)
    if not seen.source and not any(seen.has_events(gpu) for gpu in seen.gpus):
        raise Skip(f"Xids could not be watched: neither in the kernel log ({seen.why_no_log}) nor by NVML", Skip.NO_ANSWER)
    links = max((len({*seen.links(gpu)}) for gpu in seen.gpus), default=0)
    words = f"no Xid, no growing counter of errors on {len(seen.gpus)} GPUs" + (f" with {links} NVLinks each" if links else "")
    missing = not_watched(seen)
    return words + (f"; not watched: {', '.join(missing)}" if missing else "")


CHECK = Check(
    judge=judge,
    summary=summary,
    needs=("cuda-context",),
    after=("burn",),
    level="burn",
    tags=("hardware",),
)
