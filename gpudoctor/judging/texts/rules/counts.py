"""Two numbers of a text that should be equal, or one that has reached its limit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding

NEARLY = 0.95  # of a limit
HALF = 0.5
LITTLE = 0.1  # of the memory
BUSY = 90  # percent

_OFFERED = re.compile(r"^\s*nvidia\.com/gpu:\s+(\d+)\s*$", re.MULTILINE)
_DESCRIBES_NODE = re.compile(r"\bdescribe\s+nodes?\b|^Capacity:", re.MULTILINE)
_DISABLED_PEERS = re.compile(r"^\s*(?:export )?NCCL_P2P_DISABLE=1\s*$", re.MULTILINE)
_LINKED = re.compile(r"^\s*GPU\d+[ \t].*\bNV\d+\b", re.MULTILINE)
_OPEN = re.compile(r"\bls (?:-\w+ )?/proc/(?P<pid>\d+)/fd\b[^\n]*\bwc -l[^\n]*\n\s*(?P<count>\d+)\s*$", re.MULTILINE)
_MOST_OPEN = re.compile(r"^Max open files\s+(\d+)\s+(\d+)\b", re.MULTILINE)
_DEVICE_MAP = re.compile(
    r"""
    hf_device_map[^\n{]*\n?[^\n{]*\{(?P<map>[^}\n]{20,})\}
    | \bdevice_map\b[^\n{]*\{(?P<other>[^}\n]{20,})\}
    """,
    re.VERBOSE,
)
_ON_GPU, _OUTSIDE = re.compile(r":\s*\d+\b"), re.compile(r":\s*['\"](cpu|disk)['\"]")
_PAGES = {name: re.compile(rf"^{name}:\s+(\d+)", re.MULTILINE) for name in ("HugePages_Free", "HugePages_Rsvd", "Hugepagesize")}
_MEMORY = re.compile(r"^Mem:\s+(\d+\S*)\s+\S+\s+\S+\s+\S+\s+\S+\s+(\d+\S*)\s*$", re.MULTILINE)
_HOT = re.compile(r"^\s*HW Thermal Slowdown\s*:\s*Active\s*$", re.MULTILINE)
_DEGREES = re.compile(r"^\s*GPU (Current Temp|Slowdown Temp)\s*:\s*(\d+) C\s*$", re.MULTILINE)
_PATHS = re.compile(r"^\s*(/\S+)/(python3?|pip3?)\s*$", re.MULTILINE)
_TYPED_WHICH = re.compile(r"\bwhich (?:-a )?python3?(?: | ?(?:;|&&) ?which )pip3?\b")
_NOT_FOUND = re.compile(r"ModuleNotFoundError: No module named '(\w+)'")


def fewer_allocatable(facts: Facts) -> Iterator[Finding]:
    """kubectl describe node: what a node has, then what it gives to pods."""
    for text in passages(facts):
        counts = [int(count) for count in _OFFERED.findall(text)][:2]
        if len(counts) == 2 and counts[0] > counts[1] and _DESCRIBES_NODE.search(text):
            words = f"the node has {counts[0]} GPUs, but offers {counts[1]} to pods: the device plugin took the others out"
            evidence = {"capacity": counts[0], "allocatable": counts[1]}
            yield facts.problems["k8s-gpu-unhealthy"].found(words, evidence, confidence=Confidence.LIKELY)
            return


def peers_switched_off(facts: Facts) -> Iterator[Finding]:
    """NCCL_P2P_DISABLE in spite of NVLinks."""
    text = "\n".join(passages(facts))
    if _DISABLED_PEERS.search(text) and _LINKED.search(text):
        words = "NCCL_P2P_DISABLE=1 is set, although NVLink connects the GPUs: all their traffic crosses the host's memory"
        evidence = {"names": ["NCCL_P2P_DISABLE"]}
        yield facts.problems["nccl-env-leftovers"].found(words, evidence, confidence=Confidence.LIKELY)


def slower_than_siblings(facts: Facts) -> Iterator[Finding]:
    """Of several busy GPUs of one model, one runs at less than half of the clock of the others."""
    clocks = {}
    for gpu in known(lambda: facts.nvml.gpus, ()):
        load, clock = known(lambda gpu=gpu: gpu.get("UtilizationRates.gpu"), 0), known(lambda gpu=gpu: gpu.clocks_mhz["sm"], 0)  # type: ignore[misc]
        reasons = known(lambda gpu=gpu: gpu.clock_reasons, None)  # type: ignore[misc]
        is_judged_alone = reasons is not None and known(lambda gpu=gpu: gpu.maximum_clocks_mhz["sm"], 0)  # type: ignore[misc]
        if load >= BUSY and clock and not reasons and not is_judged_alone:
            clocks[gpu.index] = clock
    most = max(clocks.values(), default=0)
    for index, clock in clocks.items():
        if clock < HALF * most:
            words = f"GPU {index} is busy at {clock} MHz, and another busy one runs at {most} MHz"
            evidence = {"index": index, "address": index, "sm_mhz": clock, "most_mhz": most}
            found = facts.problems["clocks-locked-low"].found(words, evidence, index, Confidence.LIKELY)
            yield replace(found, because="gpu-fan-stopped")


def files_used_up(facts: Facts) -> Iterator[Finding]:
    """As many open files as the limit of the process allows."""
    text = "\n".join(passages(facts))
    counted, limit = _OPEN.search(text), _MOST_OPEN.search(text)
    if counted and limit and NEARLY * int(limit[1]) <= int(counted["count"]) <= int(limit[1]):
        words = f"process {counted['pid']} has {counted['count']} files open, and its limit is {limit[1]}"
        evidence = {"open": int(counted["count"]), "limit": int(limit[1]), "possible": int(limit[2])}
        yield facts.problems["open-files-limited"].found(words, evidence, confidence=Confidence.LIKELY)


def outside_of_gpu(facts: Facts) -> Iterator[Finding]:
    """Transformers' device map puts some layers on a GPU, and others elsewhere."""
    for text in passages(facts):
        for match in _DEVICE_MAP.finditer(text):
            placed = match["map"] or match["other"] or ""
            outside = _OUTSIDE.findall(placed)
            if outside and _ON_GPU.search(placed):
                words = f"{len(outside)} parts of the model lie on {' and '.join(sorted(set(outside)))}, not on the GPU"
                yield facts.problems["model-offloaded-from-gpu"].found(
                    words, {"outside": len(outside)}, confidence=Confidence.LIKELY
                )
                return


def idle_huge_pages(facts: Facts) -> Iterator[Finding]:
    """Reserved huge pages that nothing uses hold most of the memory."""
    text = "\n".join(passages(facts))
    found = {name: int(match[1]) for name, pattern in _PAGES.items() if (match := pattern.search(text))}
    memory = _MEMORY.search(text)
    if len(found) < len(_PAGES) or not memory:
        return
    idle = (found["HugePages_Free"] - found["HugePages_Rsvd"]) * found["Hugepagesize"] >> 20  # GiB, of KiB
    total, available = (float(re.match(r"[\d.]+", number)[0]) for number in memory.groups())  # type: ignore[index]
    if idle >= 8 and total and available < LITTLE * total:
        words = f"{found['HugePages_Free']} huge pages are reserved and unused: {idle} GiB that no program gets"
        evidence = {"idle_gib": idle, "pages": found["HugePages_Free"]}
        yield facts.problems["huge-pages-unused"].found(words, evidence, confidence=Confidence.LIKELY)


def hot_now(facts: Facts) -> Iterator[Finding]:
    """Lines of nvidia-smi -q without the GPU's head."""
    text = "\n".join(passages(facts))
    degrees = {name: int(value) for name, value in _DEGREES.findall(text)}
    now, limit = degrees.get("Current Temp", 0), degrees.get("Slowdown Temp", 0)
    reasons = [known(lambda gpu=gpu: gpu.clock_reasons, ()) for gpu in known(lambda: facts.nvml.gpus, ())]  # type: ignore[misc]
    if _HOT.search(text) and now and not any(reasons):
        words = f"the GPU is at {now} °C and its hardware lowers the clocks" + (f" from {limit} °C on" if limit else "")
        yield facts.problems["hw-thermal-slowdown"].found(words, {"temperature": now}, confidence=Confidence.LIKELY)


def pip_elsewhere(facts: Facts) -> Iterator[Finding]:
    """`which python pip` shows two folders, and the Python does not find a package."""
    for text in passages(facts):
        typed, missing = _TYPED_WHICH.search(text), _NOT_FOUND.search(text)
        if not typed or not missing:
            continue
        paths = {name.rstrip("3"): folder for folder, name in _PATHS.findall(text[typed.end() :])[:2]}
        if len(set(paths.values())) == 2 and paths.keys() == {"python", "pip"}:
            words = f"pip is in {paths['pip']}, and python in {paths['python']}, which does not find {missing[1]}"
            problem = facts.problems["pip-of-another-python"]
            evidence = {"python": f"{paths['python']}/python", "package": missing[1]}
            yield problem.found(words, evidence, confidence=Confidence.LIKELY)
            return


RULES = (
    fewer_allocatable,
    peers_switched_off,
    slower_than_siblings,
    files_used_up,
    outside_of_gpu,
    idle_huge_pages,
    hot_now,
    pip_elsewhere,
)
