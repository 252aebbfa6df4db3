"""One value of an output in a text that is wrong for its kind: a clock, a temperature, a speed, a width, a counter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.places import is_slow
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
        Fix("Watch the temperatures under load", "watch -n 2 sensors", kind="read", on=("host",)),
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
SLOW_NETWORK = Problem(
    id="network-between-nodes-slow",
    title="The network between the nodes is far slower than the job needs",
    why="In each step the ranks exchange their gradients over this interface. At 1 Gb/s, 100 MB take almost a second, so more "
    "nodes make the training slower.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "If the nodes have a faster network: let NCCL use its interface",
            "export NCCL_SOCKET_IFNAME=<interface>  # ip -br addr; ethtool INTERFACE | grep Speed",
            where="shell",
            kind="read",
        ),
        Fix("If a card should be faster than its Speed line says: replace its cable, and check the switch's port"),
        Fix("If there is no faster network: train on one node, or exchange less (gradient accumulation, LoRA, pipeline stages)"),
    ),
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
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
PROBLEMS = (HOT_CPU, SAVING, SLOW_NETWORK, POWER_SUPPLY)

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
        if most - 2 <= now <= 130 and _complains(facts):
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


SLOW_MBIT = 1000
_SPEED = re.compile(r"(?m)^\s*Speed:\s*(?P<mbit>\d+)Mb/s")
_OF_INTERFACE = re.compile(r"^ethtool\s+(?P<name>[\w.@-]+)")
_USES = re.compile(r"NET/Socket : Using \[0\](?P<log>[\w.-]+):|\b(?:NCCL|GLOO)_SOCKET_IFNAME=[\"']?(?P<set>[\w.-]+)")
_MANY = re.compile(
    r"--nnodes[=\ ](?:\d+:)?[2-9]|\b(?:two|2|four|4|three|3|eight|8|several|both|other)\ (?:nodes|machines|servers|hosts)\b"
)
_BITRATE = re.compile(r"(?P<number>[\d.]+)\s+(?P<unit>[MG])bits/sec[^\n]*\bsender\b")


def slow_network(facts: Facts) -> Iterator[Finding]:
    """Ranks of several nodes exchange data over an interface of 1 Gb/s, or iperf3 measures so little."""
    text = "\n".join(passages(facts))
    shown = facts.shown.output("ethtool")
    speed, interface = _SPEED.search(shown), _OF_INTERFACE.search(shown)
    used = {match["log"] or match["set"] for match in _USES.finditer(text)}
    measured = _BITRATE.search(facts.shown.output("iperf3"))
    mbit = float(measured["number"]) * (1000 if measured["unit"] == "G" else 1) if measured else 0.0
    of_nodes = _MANY.search(text) or used
    if not (of_nodes and (is_slow(facts) or re.search(r"(?i)scal|bandwidth|longer", text))):
        return
    if speed and interface and int(speed["mbit"]) <= SLOW_MBIT and (interface["name"] in used or not used):
        words = f"the ranks exchange data over {interface['name']}, which runs at {speed['mbit']} Mb/s"
        yield SLOW_NETWORK.found(words, {"used": interface["name"], "mbit": int(speed["mbit"])}, confidence=Confidence.LIKELY)
    elif 0 < mbit <= SLOW_MBIT:
        words = f"iperf3 measures {mbit:.0f} Mb/s between the nodes"
        yield SLOW_NETWORK.found(words, {"mbit": round(mbit)}, confidence=Confidence.LIKELY)


_LINK = re.compile(
    r"^\s*(?:0x[\da-f]+\s+)?(?P<row>[^\n]*?)==\(\s*(?P<lanes>\d+)X\s+(?P<rate>[\d.]+)\s+Gbps\s+Active[^\n]*", re.MULTILINE
)
_WIDTH = re.compile(r"(?m)^\s*Width\s+:\s*(?P<lanes>\d+)x\b")
FULL = 4  # lanes of a cable
FEWER = "An InfiniBand link uses fewer lanes than its cable has"


def narrow_cable(facts: Facts) -> Iterator[Finding]:
    """iblinkinfo or mlxlink shows an active link with one or two lanes."""
    lanes = [int(match["lanes"]) for match in _LINK.finditer(facts.shown.output("iblinkinfo"))]
    lanes += [int(match["lanes"]) for match in _WIDTH.finditer(facts.shown.output("mlxlink"))]
    narrow = [number for number in lanes if 0 < number < FULL]
    if narrow and (len(narrow) < len(lanes) or is_slow(facts) or _MEASURED.search("\n".join(passages(facts)))):
        words = f"a link is active with {narrow[0]} of {FULL} lanes"
        problem = replace(facts.problems["ib-link-slow"], title=FEWER, fixes=CABLE)
        yield problem.found(words, {"lanes": narrow[0]}, confidence=Confidence.LIKELY)


CABLE = (
    Fix("Plug the cable of this link out and in again at both ends, or replace it"),
    Fix("Show the links and what they could be", "sudo iblinkinfo | grep -i 'could be'", kind="read", needs=("root",)),
)
_MEASURED = re.compile(r"(?i)\bGb/s|bandwidth|busbw|throughput")
_COUNTERS = re.compile(
    r"(?m)^(?P<name>SymbolErrorCounter|LinkErrorRecoveryCounter|LinkDownedCounter|PortRcvErrors):\.*(?P<count>\d+)\s*$"
)
MOST = {"SymbolErrorCounter": 1000, "LinkErrorRecoveryCounter": 10, "LinkDownedCounter": 10, "PortRcvErrors": 1000}


def port_errors(facts: Facts) -> Iterator[Finding]:
    """perfquery shows counters of a damaged cable, in a text about speed or lost connections."""
    for match in _COUNTERS.finditer(facts.shown.output("perfquery")):
        if int(match["count"]) >= MOST[match["name"]] and _complains(facts):
            words = f"perfquery shows {match['name']} {match['count']}"
            evidence = {"counter": match["name"], "count": int(match["count"])}
            yield facts.problems["network-port-errors"].found(words, evidence, confidence=Confidence.LIKELY)
            return


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
    if found and not _RESTORED.search(shown) and _complains(facts):
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
_SMALL = re.compile(r"(?i)laptop|mobile|max-q|eGPU|thunderbolt|oculink|usb4|jetson|riser x1|mining|m\.2")
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
    if speed < SLOW_STORAGE and _complains(facts) and any(map(_LOADS.search, passages(facts))):
        words = f"fio reads {speed:.1f} MB/s from the storage of the data"
        problem = facts.problems["data-loading-limits-training"]
        yield problem.found(words, {"mb_s": round(speed, 1)}, confidence=Confidence.LIKELY)


def _complains(facts: Facts) -> bool:
    """The text is about work that suffers from it, and not an inventory."""
    return is_slow(facts) or any(map(_SUFFERS.search, passages(facts)))


_SUFFERS = re.compile(
    r"""
    \b(?: throttl\w+ | drops? | dropped | hang\w* | idle | low\ util\w* | starv\w+ | wait(?:s|ing)
    | half\ (?:the\ )?(?:speed|clock) | unstable | flapping | retransmi\w+ | limited | power\ brake | degrad\w+ | stutter\w* )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def ray_without_gpus(facts: Facts) -> Iterator[Finding]:
    """`ray status` counts CPUs and no GPU, and nvidia-smi lists some on the node."""
    shown, listed = facts.shown.output("ray status"), known(lambda: facts.nvml.count, 0)
    has_cpus = re.search(r"(?m)^\s*[\d.]+/[\d.]+ CPU\b", shown)
    if listed and has_cpus and not re.search(r"(?m)^\s*[\d.]+/[1-9][\d.]* GPU\b", shown):
        words = f"Ray counts no GPU, and nvidia-smi lists {listed}"
        yield facts.problems["ray-has-too-few-gpus"].found(words, {"listed": listed}, confidence=Confidence.LIKELY)


RULES = (
    *(held_clock, hot_cpu, saving_profile, slow_network, narrow_cable, port_errors),
    *(failed_supply, slow_copies, slow_storage, ray_without_gpus),
)
