"""Why a GPU was lost, as far as the words and readings of a text tell: its power, its link, heat, the board. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import power_off
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix

LOST = ("xid-79-fallen-off-bus", "gpu-lost", "gpu-answers-with-errors", "gpu-fallen-off-bus-probe")
HOT, COOL = 86, 80  # °C
PHYSICAL = ("physical",)

_LIMITED = r"""(?:
    nvidia-smi\ -(?:pl|lgc) | power[ -]?limit\w* | limit\w*\ (?:the\ )?(?:power|clocks?|tdp)
    | under-?clock\w* | under-?volt\w* | capp\w+
)"""
_STABLE = r"""(?:
    surviv\w* | stable | (?:does|do)\ not\ (?:crash|happen) | n['’]t\ (?:crash|happen) | no\ crash\w*
    | works? | fine | helps? | fixes
)"""
_BY_LIMIT = re.compile(
    rf"{_LIMITED}[^.\n]{{0,60}}\b{_STABLE}\b|\b{_STABLE}\b[^.\n]{{0,40}}{_LIMITED}", re.IGNORECASE | re.VERBOSE
)
_UNDER_LOAD = re.compile(
    r"""
    \b(?: only | always | as\ soon\ as | whenever | when | once | under | after\ (?:a\ (?:few|couple\ of)\ |some\ |about\ |\d+\ )?
      (?:seconds?|minutes?)(?:\ of)? )\b [^\n.]{0,60}?
    \b(?: load | training | train | inference | game | games | gaming | benchmark\w* | stress\w* | gpu[- _]?burn | render\w* )\b
    | \bnever\ (?:at|when)\ idle | \bidles?\b[^\n.]{0,30}\b(?:fine|ok|hours|days)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_AT_IDLE = re.compile(
    r"""
    \b(?: only | always | while | when | after )\b [^\n.]{0,40} \b(?: idle | idling | nothing\ (?:runs|is\ running) )\b
    | \bnever\ under\ load
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NOT_UNDER_LOAD = re.compile(r"\b(?:never|not)\ (?:under|at|during|with)\ (?:any\ |full\ )?load\b", re.IGNORECASE | re.VERBOSE)
_SUPPLY = re.compile(
    r"""
    \b(?:PSU|power\ supply|\d{3,4}\ ?W(?:att)?s?\ (?:PSU|supply|platinum|gold|bronze))\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ON_A_WAY = re.compile(
    r"""
    \b(?: risers? | oculink | extender | extension\ cable | m\.2\ (?:adapter|to\ pcie)\w* | e-?gpu | mining\ board | adt-link
    | vertical\w*\ (?:mount\w*|bracket) | bifurcation\ (?:card|board|adapter) | slimsas | mcio )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_WITH_CARD = re.compile(
    r"""
    \b(?:fail\w*|fault|error|problem|issue|crash\w*|it)\ (?:\w+\ ){0,2}?
    (?:moved?|follow\w*|went|goes|stay\w*|travel\w*)\ (?:with\ )?(?:the|that|this)\ (?:same\ )?(?:card|gpu|board)\b
    | \bsame\ (?:card|gpu)\b[^\n.]{0,60}\b(?:in|other|another|every|any)\b[^\n.]{0,20}\bslot
    """,
    re.IGNORECASE | re.VERBOSE,
)
_TEMPERATURE = re.compile(
    r"""
    \b(?i:temp\w*|heat|hotspot)\b[^\n.]{0,60}?(?<![\w.-])(?P<before>\d{2,3})\b(?!\ ?(?:%|W\b|GB|MHz|fps|min|s\b|[-.]\d))
    | (?<![\w.-])(?P<after>\d{2,3})\ ?[°º]?C\b(?!-)
    """,
    re.VERBOSE,
)
_COOL = re.compile(
    r"""
    \b(?:temp\w*|thermals?)\b[^\n.]{0,30}\b(?:fine|ok|okay|good|normal|low)\b
    | \b(?:not|n['’]t)\ (?:overheat\w*|(?:too\ )?hot|a\ (?:heat|thermal|temperature)|thermal) | \bit['’]?s\ cool\b
    | \b(?:low|cool|normal|fine|good)\ (?:\w+\ )?(?:temp\w*|thermals?)\b | \bno\ (?:thermal|heat|temperature)\b
    | \bcold[ -]start\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NO_LINK_ERRORS = re.compile(
    r"""
    \b(?:AER|PCIe?(?:\ bus)?|correctable|replay)\b[^\n.]{0,40}\b(?:at\ zero|are\ zero|is\ zero|all\ 0|=\ ?0|none|clean|silent)\b
    | \b(?:no|zero|without(?:\ any)?)\ (?:\w+\ ){0,2}(?:AER|PCIe)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
LINK_ERRORS = r"PCIe Bus Error: severity=Corrected, type=(?:Physical|Data Link) Layer"

TEST_CLOCKS = Fix(
    "Test it: keep the clocks from boosting, which avoids the peaks of power, and repeat the load",
    "sudo nvidia-smi -lgc 300,1500",
    on=("host",),
    kind="set",
    needs=("root",),
    undo="sudo nvidia-smi -rgc",
)
BETTER_SUPPLY = Fix(
    "Connect each plug of the card with its own cable from the PSU, without splitters; replace a PSU that is old or too small "
    "for the peaks of this card",
    on=PHYSICAL,
)
NO_POWER = (TEST_CLOCKS, BETTER_SUPPLY, Fix("If it also happens with low clocks: reseat the card, try another slot", on=PHYSICAL))
BAD_LINK = (
    power_off("Switch off, take the riser, adapter or extension out, and seat the card in a slot of the mainboard"),
    Fix("If the cable must stay: set the slot to a lower PCIe generation in the firmware setup (Gen 3), and use a shorter cable"),
    Fix(
        "Watch the errors of the link",
        "sudo dmesg | grep -E 'AER|PCIe Bus Error|Xid' | tail -n 30; nvidia-smi -q | grep -i replay",
        kind="read",
        needs=("root",),
    ),
)
COOLING = (
    Fix(
        "Improve the airflow: passive server cards need a duct and a strong fan, others free fans and clean heatsinks",
        on=PHYSICAL,
    ),
    Fix("Watch temperature and clocks until it happens", "nvidia-smi dmon -s pct", kind="read"),
)
BAD_BOARD = (
    Fix("Have the card replaced: the fault stays with it in another slot", on=PHYSICAL),
    Fix("Collect NVIDIA's report for the vendor", "sudo nvidia-bug-report.sh", kind="read", needs=("root",)),
)
AWAKE = (
    Fix(
        "Test it: keep the PCIe links awake (add pcie_aspm=off to GRUB_CMDLINE_LINUX), then reboot",
        "sudo sed -i.bak 's/^GRUB_CMDLINE_LINUX=\"/&pcie_aspm=off /' /etc/default/grub && (sudo update-grub || "
        "sudo grub2-mkconfig -o /boot/grub2/grub.cfg)",
        undo="sudo mv /etc/default/grub.bak /etc/default/grub && (sudo update-grub || "
        "sudo grub2-mkconfig -o /boot/grub2/grub.cfg)",
        verify="cat /proc/cmdline",
        on=("host",),
        kind="set",
        reboot=True,
        needs=("root",),
    ),
    Fix("Update the firmware of the mainboard, and disable ASPM of the slot there", on=PHYSICAL),
)


EACH_CAUSE = (
    BETTER_SUPPLY,
    Fix("Plug the machine into another socket or circuit, without a UPS or a power strip in between", on=PHYSICAL),
    TEST_CLOCKS,
    Fix("If it also happens with low clocks: reseat the card, try another slot or another card", on=PHYSICAL),
)


class Cause(NamedTuple):
    """What is said instead of the problem's own words, and with its fixes."""

    title: str
    why: str
    fixes: tuple[Fix, ...]
    action: Action


BOARD = Cause(
    "A failing board loses its connection in every slot",
    "The fault moved with the card to another slot, so slot, riser and mainboard are not the cause.",
    BAD_BOARD,
    Action.REPLACE_HARDWARE,
)
PEAKS = Cause(
    "A GPU loses its power at peaks of load",
    "It works with less power or lower clocks. At peaks the PSU switches off or its voltage drops, a cable or plug has too much "
    "resistance, or the regulators of the card are weak.",
    (BETTER_SUPPLY, TEST_CLOCKS),
    Action.REPLACE_HARDWARE,
)
HEAT = Cause(
    "A GPU switches off because it gets too hot",
    "A few degrees above its limit a GPU switches itself off. Its memory and regulators are hotter than this sensor shows.",
    COOLING,
    Action.FIX_CONFIG,
)
LINK = Cause(
    "The PCIe connection of a GPU breaks down",
    "A loose contact, or a signal too weak for the PCIe generation, breaks the connection, most often under load. The driver is "
    "not the cause.",
    BAD_LINK,
    Action.REPLACE_HARDWARE,
)
LOAD = Cause(
    "A GPU loses its power under load",
    "The GPU is not hot, so power is the likely cause: short peaks exceed what the PSU or a cable delivers, although the average "
    "is within its rating.",
    NO_POWER,
    Action.REPLACE_HARDWARE,
)
EXCLUDED = Cause(
    "A GPU loses its power, or its board fails",
    "The text rules out heat and errors of the PCIe connection. What is left is power (PSU, cables, the socket's circuit) "
    "or the board itself. A test with low clocks separates them.",
    EACH_CAUSE,
    Action.REPLACE_HARDWARE,
)
ASLEEP = Cause(
    "A GPU is lost when its link saves power",
    "The link and the card save power while there is no work. A card or a mainboard that does not wake up from this state loses "
    "the connection.",
    AWAKE,
    Action.FIX_CONFIG,
)


def told(finding: Finding, facts: Facts) -> Finding:
    """A lost GPU with the cause that the text's own words and readings point to; as it was if they point to none."""
    if finding.problem.id not in LOST or not facts.texts.alone or "external" in finding.problem.title:
        return finding
    cause, seen = _cause("\n".join(passages(facts)), facts)
    if cause is None:
        return finding
    code = " (Xid 79)" if finding.problem.id == LOST[0] else ""
    problem = replace(finding.problem, title=cause.title + code, why=cause.why, fixes=cause.fixes, action=cause.action)
    evidence = {name: value for name, value in finding.evidence.items() if name not in ("could_be", "decide")}
    words = f"{finding.message}; {seen}"
    return replace(finding, problem=problem, message=words, evidence=evidence, confidence=Confidence.LIKELY)


def _cause(text: str, facts: Facts) -> tuple[Cause | None, str]:
    """The cause and what shows it, the surest first."""
    hottest = _hottest(text, facts)
    way, by_load = _ON_A_WAY.search(text), None if _NOT_UNDER_LOAD.search(text) else _UNDER_LOAD.search(text)
    is_cool = bool(_COOL.search(text))
    if _WITH_CARD.search(text):
        return BOARD, "the fault moved with the card"
    if _BY_LIMIT.search(text):
        return PEAKS, "it works with a lower limit of power or clocks"
    if hottest >= HOT and not is_cool:
        return HEAT, f"the text shows {hottest} °C"
    if way:
        return LINK, f"the card is connected by: {' '.join(way[0].split()).lower()}"
    if known(lambda: facts.kernel_log.matching(LINK_ERRORS), ()):
        return LINK, "the kernel corrected errors of the link before"
    rules_out_link = _NO_LINK_ERRORS.search(text)
    if rules_out_link and not way and (is_cool or 0 < hottest < COOL):
        return EXCLUDED, f"the text rules out heat{f' ({hottest} °C)' if hottest else ''} and PCIe errors"
    if by_load and (is_cool or 0 < hottest < COOL or _SUPPLY.search(text)):
        return LOAD, "it happens under load" + (f", at {hottest} °C" if hottest else "")
    if _AT_IDLE.search(text) and not by_load:
        return ASLEEP, "it happens while the GPU is idle"
    return None, ""


def _hottest(text: str, facts: Facts) -> int:
    """The highest temperature in the readings and the words; 0 if there is none."""
    read = [known(lambda gpu=gpu: gpu.temperature_c, 0) for gpu in known(lambda: facts.nvml.gpus, ())]  # type: ignore[misc]
    said = [int(match["before"] or match["after"]) for match in _TEMPERATURE.finditer(text)]
    return max((degrees for degrees in (*read, *said) if 20 <= degrees <= 120), default=0)
