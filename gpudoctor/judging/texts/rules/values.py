"""One value of an output in a text that is wrong for its kind: a clock, a temperature, a speed, a width, a counter."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.places import complains, is_slow
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

HOT_CPU = Problem(
    id="cpu-too-hot",
    title="The CPU is at its temperature limit and lowers its clocks",
    why="A CPU at its limit cannot launch kernels and prepare data fast enough, so the GPU waits. Its fan, its contact with the "
    "cooler or the air flow is at fault.",
    action=Action.REPLACE_HARDWARE,
    status=Status.WARN,
    fixes=(
        Fix("Watch the temperatures under load", "grep . /sys/class/thermal/thermal_zone*/temp", kind="read", on=("host",)),
        Fix("Clean the cooler and its fans, check that they turn, and renew the thermal paste", on=("host",)),
    ),
    references=("https://www.kernel.org/doc/html/latest/hwmon/coretemp.html",),
)
SAVING = Problem(
    id="power-profile-saves-energy",
    title="A power-saving profile is active and keeps clocks low",
    why="The profile limits the clocks of the CPU, and on laptops the power of the GPU too. Programs that start many short "
    "kernels or prepare data on the CPU become slow.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("With power-profiles-daemon: select another profile", "powerprofilesctl set performance", on=("host",), kind="set"),
        Fix(
            "With tuned: select a profile for throughput",
            "sudo tuned-adm profile throughput-performance",
            verify="tuned-adm active",
            on=("host",),
            kind="set",
            needs=("root",),
        ),
    ),
    references=(
        "https://docs.redhat.com/en/documentation/red_hat_enterprise_linux/9/html/monitoring_and_managing_system_status_and_performance/",
    ),
)
POWER_SUPPLY = Problem(
    id="power-supply-failed",
    title="A power supply of the server has failed",
    why="With one supply less the server lowers the power of its GPUs, by the power brake or by limits of the BMC, so that the "
    "remaining supplies are not overloaded.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        Fix("Show which one", "sudo ipmitool sdr type 'Power Supply'", on=("host",), kind="read", needs=("root",)),
        Fix("Check its cable and the power behind it; if its lamp stays red, replace it", on=("host",)),
    ),
    references=("https://docs.nvidia.com/deploy/nvidia-smi/index.html",),
)
BELOW_LIMIT = Problem(
    id="power-capped-below-limit",
    title="The GPU is capped far below its own power limit",
    why="The driver reports SW Power Cap, but the draw is far below the limit that is set. Then the board or the chassis limits "
    "it: a BMC without settings for this card, a missing power cable, or a limit of the slot.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Show the draw and all limits under load", "nvidia-smi -q -d POWER,PERFORMANCE", kind="read"),
        Fix(
            "Check the card's power cables and supplies, and the BMC's settings for third-party cards and power limits",
            on=("host",),
        ),
    ),
    references=("https://github.com/l4rz/reverse-engineering-dell-idrac-to-get-rid-of-gpu-throttling/issues/3",),
)
PROBLEMS = (HOT_CPU, SAVING, POWER_SUPPLY, BELOW_LIMIT)
BELOW = 0.75  # of the limit
POWER_CAP = 0x4  # of NVML's reasons

HELD = 0.5  # of the clock that is written on the processor
WORKS = 20.0  # percent
_OF_WORK = re.compile(r"(?i)\bGPU|\btrain|\binfer|\bslow|\bfps\b|tok(?:en)?s?/s|\bepoch|\bidle\b|\bstep")
_TURBOSTAT = ("Busy%", "Bzy_MHz", "TSC_MHz")


def held_clock(facts: Facts) -> Iterator[Finding]:
    """turbostat shows CPUs that work, far below their base clock."""
    rows = [line.split() for line in facts.shown.output("turbostat").splitlines()]
    head = next((row for row in rows if set(_TURBOSTAT) <= set(row)), [])
    places = [head.index(name) for name in _TURBOSTAT] if head else []
    for row in rows[rows.index(head) + 1 :] if head else ():
        cells = [row[place] for place in places] if len(row) == len(head) else []
        if len(cells) == len(places) and all(re.fullmatch(r"[\d.]+", cell) for cell in cells):
            busy, clock, base = map(float, cells)
            if busy >= WORKS and clock < HELD * base:
                words = f"the CPUs work at {clock:.0f} MHz, and their base clock is {base:.0f} MHz"
                evidence = {"allowed_mhz": round(clock), "most_mhz": round(base)}
                yield facts.problems["cpu-clock-capped"].found(words, evidence, confidence=Confidence.LIKELY)
            return


_DEGREES = re.compile(
    r"""
    ^\s*(?P<name>Package\ id\ \d+|Tctl|Tdie|Core\ \d+):\s+\+(?P<now>[\d.]+)°?C
    \s+\(high\ =\ \+(?P<high>[\d.]+)°?C,\ crit\ =\ \+(?P<crit>[\d.]+)°?C\)
    """,
    re.MULTILINE | re.VERBOSE,
)


def hot_cpu(facts: Facts) -> Iterator[Finding]:
    """sensors shows a CPU within two degrees of the temperature that must not be exceeded."""
    for match in _DEGREES.finditer(facts.shown.output("sensors")):
        now, most = float(match["now"]), max(float(match["high"]), float(match["crit"]))
        if most - 2 <= now <= 130 and complains(facts):
            words = f"{match['name']} is at {now:.0f} °C, and the limit is {most:.0f} °C"
            yield HOT_CPU.found(words, {"temperature_celsius": now, "limit_celsius": most}, confidence=Confidence.LIKELY)
            return


def saving_profile(facts: Facts) -> Iterator[Finding]:
    """The active profile saves energy, and the text is about something slow."""
    active = re.search(r"(?m)^\s*\*\ ?power-saver\b|^power-saver\s*$", facts.shown.output("powerprofilesctl"))
    tuned = re.search(r"(?m)^Current active profile: ([\w-]*(?:powersave|battery)[\w-]*)", facts.shown.output("tuned-adm"))
    if (active or tuned) and is_slow(facts):
        name = tuned[1] if tuned else "power-saver"
        yield SAVING.found(f"the active profile is {name}", {"profile": name}, confidence=Confidence.LIKELY)


_SUPPLY = re.compile(
    r"""
    ^[^\n]*\b(?:PSU?\s?\d*|Power\ Supply|PS\d)\b[^\n]*\|\s*(?: 0x[\da-f]+\s*\|\s*cr\b
      | [^\n|]*(?:Failure\ detected|AC\ lost|Predictive\ failure)[^\n|]*(?:\|\s*Asserted)?\s*$ )
    """,
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
_RESTORED = re.compile(r"(?i)(?:Failure detected|AC lost)[^\n]*\|\s*Deasserted")


def failed_supply(facts: Facts) -> Iterator[Finding]:
    """ipmitool reports a power supply as failed, and GPUs are slow or lost power."""
    shown = facts.shown.output("ipmitool")
    found = _SUPPLY.search(shown)
    if found and not _RESTORED.search(shown) and complains(facts):
        words = f"the BMC reports: {' '.join(found[0].split())[:90]}"
        yield POWER_SUPPLY.found(words, {"entry": " ".join(found[0].split())[:120]}, confidence=Confidence.LIKELY)


LITTLE_GB_S = 6.5  # less than sixteen lanes of PCIe 2, or eight of PCIe 3, carry
_PINNED = re.compile(
    r"""
    Host\ to\ Device\ Bandwidth[^\n]*\n[ \t]*PINNED[^\n]*\n[^\n]*Bandwidth\((?P<unit>[MG]B/s)\)[^\n]*\n
    [ \t]*\d+[ \t]+(?P<speed>[\d.]+)
    """,
    re.VERBOSE,
)
_NVBANDWIDTH = re.compile(
    r"""
    memcpy\ CE\ CPU\(row\)\ ->\ GPU\(column\)\ bandwidth\ \(GB/s\)\s*\n[ \t]+0[^\n]*\n[ \t]*0[ \t]+(?P<speed>[\d.]+)
    """,
    re.VERBOSE,
)
_LANES = re.compile(r"PCIe GEN (?P<gen>\d)@ ?(?P<lanes>\d+)x")
_SMALL = re.compile(
    r"""
    laptop|mobile|max-q|eGPU|thunderbolt|oculink|usb4|jetson|riser\ x1
        |mining|m\.2
    """,
    re.IGNORECASE | re.VERBOSE,
)
NARROW = 4


def slow_copies(facts: Facts) -> Iterator[Finding]:
    """A benchmark copies to the GPU as slowly as over a few lanes, and nothing else of the text explains it."""
    text = "\n".join(passages(facts))
    found, by_nv = _PINNED.search(facts.shown.output("bandwidthTest")), _NVBANDWIDTH.search(facts.shown.output("nvbandwidth"))
    speed = float((found or by_nv)["speed"]) if found or by_nv else 0.0  # type: ignore[index]
    speed /= 1000 if found and found["unit"] == "MB/s" else 1
    is_judged = "LnkSta:" in text or facts.shown.output("numactl --show") or "numactl" in text
    if 0 < speed < LITTLE_GB_S and not is_judged and not _SMALL.search(text) and is_slow(facts):
        words = f"copies to the GPU reach {speed:.1f} GB/s, which a link with all its lanes exceeds"
        yield facts.problems["pcie-width-downgraded"].found(words, {"gb_s": round(speed, 1)}, confidence=Confidence.LIKELY)
    for match in _LANES.finditer(facts.shown.output("nvtop")):
        if int(match["lanes"]) <= NARROW and is_slow(facts) and not _SMALL.search(text) and not is_judged:
            words = f"nvtop shows a link of {match['lanes']} lanes"
            evidence = {"lanes": int(match["lanes"])}
            yield facts.problems["pcie-width-downgraded"].found(words, evidence, confidence=Confidence.LIKELY)
            return


SLOW_STORAGE = 100.0  # MB/s
_READ = re.compile(r"\bread:\ IOPS=\S+,\ BW=[^\n(]*\((?P<number>[\d.]+)(?P<unit>[kMG]B)/s\)", re.VERBOSE)
_LOADS = re.compile(r"(?i)data ?load|num_workers|data ?set|epoch|\bIO\b|i/o|images|loading")


def slow_storage(facts: Facts) -> Iterator[Finding]:
    """fio reads slowly from where the data set lies, and the GPU waits for data."""
    match = _READ.search(facts.shown.output("fio"))
    speed = float(match["number"]) * {"kB": 0.001, "MB": 1.0, "GB": 1000.0}[match["unit"]] if match else SLOW_STORAGE
    if speed < SLOW_STORAGE and complains(facts) and any(map(_LOADS.search, passages(facts))):
        words = f"fio reads {speed:.1f} MB/s from the storage of the data"
        problem = facts.problems["data-loading-limits-training"]
        yield problem.found(words, {"mb_s": round(speed, 1)}, confidence=Confidence.LIKELY)


def ray_without_gpus(facts: Facts) -> Iterator[Finding]:
    """`ray status` counts CPUs and no GPU, and nvidia-smi lists some on the node."""
    shown, listed = facts.shown.output("ray status"), known(lambda: facts.nvml.count, 0)
    has_cpus = re.search(r"(?m)^\s*[\d.]+/[\d.]+ CPU\b", shown)
    if listed and has_cpus and not re.search(r"(?m)^\s*[\d.]+/[1-9][\d.]* GPU\b", shown):
        words = f"Ray counts no GPU, and nvidia-smi lists {listed}"
        yield facts.problems["ray-has-too-few-gpus"].found(words, {"listed": listed}, confidence=Confidence.LIKELY)


def capped_below_limit(facts: Facts) -> Iterator[Finding]:
    """SW Power Cap is active, although the draw is far below the enforced limit."""
    for gpu in known(lambda: facts.nvml.gpus, ()):
        reasons = known(lambda gpu=gpu: gpu.clock_reasons, 0) or 0  # type: ignore[misc]
        limit = known(lambda gpu=gpu: gpu.enforced_power_limit_watts, 0.0) or 0.0  # type: ignore[misc]
        draw = known(lambda gpu=gpu: gpu.get("PowerUsage"), 0) / 1000  # type: ignore[misc]
        clock = known(lambda gpu=gpu: gpu.clocks_mhz["sm"], 0)  # type: ignore[misc]
        most = known(lambda gpu=gpu: gpu.maximum_clocks_mhz["sm"], 0)  # type: ignore[misc]
        is_low = clock and most and clock < BELOW * most
        if reasons & POWER_CAP and is_low and 0 < draw < BELOW * limit:
            words = f"GPU {gpu.index} is capped at {draw:.0f} W, and its limit is {limit:.0f} W"
            evidence = {"draw_watts": round(draw), "limit_watts": round(limit)}
            yield BELOW_LIMIT.found(words, evidence, gpu.index, Confidence.LIKELY)


RULES = (
    capped_below_limit,
    held_clock,
    hot_cpu,
    saving_profile,
    failed_supply,
    slow_copies,
    slow_storage,
    ray_without_gpus,
)
