"""What limits a GPU from outside, by the values of a text: a charger, a battery, a slot whose link stays slow under load."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.calm import prose
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding, Fix, Skip

OF_LAPTOPS = 20.0  # W: the least limit of a card for desktops is far higher
LOWERED = 0.9  # of the default limit
WORKS = 50  # percent
SLOW_GT_S, LEAST_GT_S = 5.0, 8.0
WHY_WEAK = (
    "The firmware of a laptop divides what its charger delivers. With a weaker one than the laptop came with, it lowers the "
    "limit of the GPU below the default."
)
_LAPTOP = re.compile(r"\blaptop\b|\bnotebook\b|\bMobile\b|Max-Q", re.IGNORECASE)
_WEAK = re.compile(
    r"""
    \b(?P<watts>\d{2,3})\ ?W\b[^\n.]{0,30}\b(?:charger|adapter|power\ (?:brick|supply)|usb[- ]?c|pd)\b
    | \b(?:usb[- ]?c|smaller|weaker|third[- ]party|other|travel|dock\w*)\b[^\n.]{0,20}
      \b(?:charger|adapter|power\ (?:brick|supply)|dock)\b
    | \b(?:power\w*|charg\w+)\ (?:by|from|over|via|through)\ (?:a\ |the\ |my\ )?(?:usb[- ]?c|dock\w*|monitor)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ON_BATTERY = re.compile(
    r"""
    \bon\ battery\b | \bunplugged\b | \bwithout\ (?:the\ )?(?:charger|adapter)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def weak_supply(facts: Facts) -> Iterator[Finding]:
    """A laptop's GPU may take less than its default, and the text tells what feeds it."""
    text = "\n".join(passages(facts))
    charger, battery = _WEAK.search(text), _ON_BATTERY.search(text)
    for gpu in known(lambda: facts.nvml.gpus, ()) if charger or battery else ():
        with suppress(Skip):
            now, usual = gpu.enforced_power_limit_watts, gpu.default_power_limit_watts
            if now < LOWERED * usual and _is_of_laptop(gpu, text):
                watts = charger["watts"] if charger else None
                fed = "a battery" if battery else f"a charger of {watts} W" if watts else "another charger"
                words = f"GPU {gpu.index} may take {now:.0f} W, its default is {usual:.0f} W, and it is fed by {fed}"
                problem = facts.problems["gpu-on-battery" if battery else "gpu-power-supply-too-weak"]
                problem = problem if battery else replace(problem, why=WHY_WEAK)
                evidence = {"address": gpu.selector, "limit_watts": round(now), "default_watts": round(usual)}
                yield problem.found(words, evidence, gpu.index, Confidence.LIKELY)


def _is_of_laptop(gpu: Gpu, text: str) -> bool:
    return bool(_LAPTOP.search(text)) or known(lambda: gpu.minimum_power_limit_watts, OF_LAPTOPS) < OF_LAPTOPS


_LINK = re.compile(
    r"""
    LnkCap:[^\n]*?Speed\ (?P<most>[\d.]+)GT/s[^\n]*\n
    (?: [^\n]*\n ){0,6}?
    [ \t]*LnkSta:\s*Speed\ (?P<now>[\d.]+)GT/s\ \(downgraded\)
    """,
    re.VERBOSE,
)
_PLACE = re.compile(
    r"""
    lspci\b[^\n]*?-[sd]\s*(?P<asked>[\da-f:.]+)
    | ^(?P<listed>[\da-f:]+\.0)\ (?:VGA|3D)\ [^\n]*NVIDIA
    """,
    re.MULTILINE | re.VERBOSE,
)
_NEAR = 3000  # characters of lspci -vv for one device
_LOADED = re.compile(
    r"""
    \b(?: while | under | during | with )\b[^\n.]{0,40}\b(?: load | gpu[-_ ]?burn | training | benchmark\w* | stress | running
      | game )\b
    | \b(?: load | 100\ ?% )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def slow_link(facts: Facts) -> Iterator[Finding]:
    """lspci shows a GPU's link at a generation for idle cards, while the same text shows the GPU at work."""
    text = "\n".join(passages(facts))
    loads = [known(lambda gpu=gpu: gpu.get("UtilizationRates.gpu"), 0) for gpu in known(lambda: facts.nvml.gpus, ())]  # type: ignore[misc]
    is_busy = any(isinstance(load, int) and load >= WORKS for load in loads) or (not loads and _LOADED.search(text))
    for match in _LINK.finditer(text) if is_busy else ():
        place = list(_PLACE.finditer(text, max(0, match.start() - _NEAR), match.start()))[-1:]
        now, most = float(match["now"]), float(match["most"])
        if place and now <= SLOW_GT_S and most >= LEAST_GT_S:
            words = f"the link runs at {match['now']} of {match['most']} GT/s while the GPU works"
            evidence = {"link": place[0]["asked"] or place[0]["listed"], "gt_s": now, "most_gt_s": most}
            yield facts.problems["pcie-gen-low-under-load"].found(words, evidence, confidence=Confidence.LIKELY)
            return


MANY_REPLAYS, FAR_TOO_MANY = 1000, 100_000
_FELT = re.compile(r"(?i)\b(?:stutter|crash|slow|hang|freez|drop|unstable|riser|random)\w*")
_REPLAYS = re.compile(r"(?m)^\s*Replays Since Reset\s*:\s*(?P<count>\d+)\s*$")


def many_replays(facts: Facts) -> Iterator[Finding]:
    """nvidia-smi -q counts replays of a link, far more than a good one has since any boot."""
    counts = [int(match["count"]) for text in passages(facts) for match in _REPLAYS.finditer(text)]
    is_felt = any(map(_FELT.search, passages(facts)))
    if counts and max(counts) > (MANY_REPLAYS if is_felt else FAR_TOO_MANY):
        words = f"the PCIe link of GPU {counts.index(max(counts))} has repeated {max(counts):,} transfers"
        evidence = {"replays": max(counts)}
        yield facts.problems["pcie-replays-high"].found(words, evidence, confidence=Confidence.LIKELY)


_TEGRA = re.compile(
    r"""
    \bGR3D_FREQ\ (?P<load>\d+)%@\[?(?P<mhz>\d+)[^\n]*?\b(?:gpu|GPU|tj)@(?P<degrees>[\d.]+)C
    """,
    re.VERBOSE,
)
HOT_JETSON, SLOWED = 95.0, 0.75
COOLER = (
    Fix(
        "Set the fan to its highest speed",
        "sudo jetson_clocks --fan",
        verify="tegrastats",
        on=("host",),
        kind="set",
        needs=("root",),
    ),
    Fix("Without a fan, or if it is at its highest already: improve the heatsink and the air around it"),
)


def hot_jetson(facts: Facts) -> Iterator[Finding]:
    """tegrastats shows a busy GPU whose clock falls when it is hot."""
    rows = [match for text in passages(facts) for match in _TEGRA.finditer(text) if int(match["load"]) >= WORKS]
    best = max((int(row["mhz"]) for row in rows), default=0)
    slowed = [row for row in rows if float(row["degrees"]) >= HOT_JETSON and int(row["mhz"]) < SLOWED * best]
    if slowed:
        row = slowed[0]
        words = f"the GPU's clock falls from {best} to {row['mhz']} MHz at {float(row['degrees']):.0f} °C"
        problem = replace(facts.problems["gpu-too-hot"], fixes=COOLER)
        yield problem.found(words, {"degrees": float(row["degrees"])}, confidence=Confidence.LIKELY)


_TEGRA_MEMORY = re.compile(r"\bRAM (?P<ram>\d+)/(?P<all>\d+)MB[^\n]*?\bSWAP (?P<swap>\d+)/(?P<most>\d+)MB")
FULL = 0.95


def full_jetson(facts: Facts) -> Iterator[Finding]:
    """tegrastats shows a board whose memory and swap are both used up."""
    for match in (match for text in passages(facts) for match in _TEGRA_MEMORY.finditer(text)):
        ram, every, swap, most = (int(match[name]) for name in ("ram", "all", "swap", "most"))
        if most and ram > FULL * every and swap > 0.9 * most:
            words = (
                f"{ram:,} of {every:,} MB of memory and {swap:,} of {most:,} MB of swap are in use: the board waits for its disk"
            )
            yield facts.problems["host-memory-exhausted"].found(words, {"swap_mb": swap}, confidence=Confidence.LIKELY)
            return


_TARGET = re.compile(
    r"""
    GPU\ Current\ Temp\s*:\ (?P<now>\d+)\ C\b
    (?: [^\n]*\n ){1,6}?
    \s*GPU\ Max\ Operating\ Temp\s*:\ (?P<most>\d+)\ C\s*\n
    (?: [^\n]*\n ){0,2}?
    \s*GPU\ Target\ Temperature\s*:\ (?P<target>\d+)\ C\b
    """,
    re.VERBOSE,
)
_SLOWED = re.compile(r"SW Thermal Slowdown\s*:\s*Active\b")
FAR_BELOW = 12  # degrees


def low_target(facts: Facts) -> Iterator[Finding]:
    """A GPU is at its target temperature, far below the highest for it, and heat lowers its clocks."""
    text = "\n".join(passages(facts))
    match = _TARGET.search(text)
    if match and _SLOWED.search(text):
        now, most, target = (int(match[name]) for name in ("now", "most", "target"))
        if now >= target - 1 and target <= most - FAR_BELOW:
            words = f"the GPU is at its target of {target} °C, and {most} °C are its highest operating temperature"
            evidence = {"target_c": target}
            yield facts.problems["gpu-target-temperature-lowered"].found(words, evidence, 0, Confidence.LIKELY)


_OPERATING = re.compile(
    r"""
    GPU\ Current\ Temp\s*:\ (?P<now>\d+)\ C\b
    (?: [^\n]*\n ){1,4}?
    \s*GPU\ Slowdown\ Temp\s*:\ (?P<slow>\d+)\ C\s*\n
    \s*GPU\ Max\ Operating\ Temp\s*:\ (?P<most>\d+)\ C\b
    """,
    re.VERBOSE,
)
_SLOW = re.compile(r"(?i)\b(?:slow\w*|throttl\w+|lag(?:gy|s)?|stutter\w*|fps)\b")
LEAST_OPERATING, FAR_APART = 65, 20  # degrees
FIRMWARE = (
    Fix("Install or update thermald, which handles the laptop's own temperature settings", on=("host",)),
    Fix(
        "Update the firmware of the machine (BIOS and embedded controller), and select its performance profile there",
        on=("host",),
    ),
    Fix("Read the limits again", "nvidia-smi -q -d TEMPERATURE,PERFORMANCE", kind="read"),
)


def low_operating_limit(facts: Facts) -> Iterator[Finding]:
    """A GPU is at its highest operating temperature, which the machine's firmware has set far below where the GPU slows down."""
    text = "\n".join(passages(facts))
    match = _OPERATING.search(text)
    said = (sentence for one in facts.texts.all for sentence in prose(one.lines))
    if match and not _SLOWED.search(text) and any(map(_SLOW.search, said)):
        now, slow, most = (int(match[name]) for name in ("now", "slow", "most"))
        if now >= most - 3 and most < LEAST_OPERATING and most <= slow - FAR_APART:
            words = (
                f"the GPU is at {now} °C; its highest operating temperature is {most} °C, though it slows down only at {slow} °C"
            )
            why = "The machine's firmware sets this limit, far below what the GPU supports. The driver then keeps the clocks low."
            problem = replace(facts.problems["gpu-at-temperature-limit"], why=why, fixes=FIRMWARE)
            evidence = {"temperature_celsius": now, "limit_celsius": most}
            yield problem.found(words, evidence, 0, Confidence.LIKELY)


RULES = (low_operating_limit, weak_supply, slow_link, many_replays, hot_jetson, full_jetson, low_target)
