"""Settings of desktops and laptops: the devices of an Xorg configuration, and the clocks that a CPU may use."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_DEVICE = re.compile(r'^\s*Section\s+"Device"')
_OPTION = re.compile(r'^\s*(Identifier|Driver|BusID)\s+"([^"]*)"', re.IGNORECASE)
_LIMITS = re.compile(r"^\s*hardware limits:\s+[\d.]+ [MG]Hz - (?P<most>[\d.]+) (?P<unit>[MG]Hz)")
_POLICY = re.compile(r"should be within [\d.]+ [MG]Hz and (?P<most>[\d.]+) (?P<unit>[MG]Hz)")
_DRIVER = re.compile(r"^\s*driver: (?P<driver>[a-z][\w-]+)\s*$")
_GOVERNOR = re.compile(r'The governor "(\w+)"')
_MHZ = {"MHz": 1.0, "GHz": 1000.0}


def _device(text: str) -> dict[str, Reply] | None:
    said = {match[1].lower(): match[2].strip() for match in map(_OPTION.match, text.splitlines()) if match}
    name = said.get("identifier", "")
    return {"shown-xorg-devices": Reply("ok", {name: said})} if "busid" in said else None


def _clocks(text: str) -> dict[str, Reply] | None:
    """The first CPU stands for all."""
    most, allowed, governor = _LIMITS.search(text), _POLICY.search(text), _GOVERNOR.search(text)
    if not (most and allowed):
        return None
    clocks = {"most": _mhz(most), "allowed": _mhz(allowed), "governor": governor[1] if governor else ""}
    scaling = {"shown-cpu-scaling": Reply("ok", {"governor": governor[1]})} if governor else {}
    return {"shown-cpu-clocks": Reply("ok", clocks), **scaling}


def _driver(text: str) -> dict[str, Reply] | None:
    match = _DRIVER.match(text)
    return {"shown-cpu-scaling": Reply("ok", {"driver": match["driver"]})} if match else None


def _scaling(command: str, output: str) -> dict[str, Reply] | None:
    """The first CPU stands for all; cat of several files prints a line for each."""
    word = next((line.strip().rsplit(":")[-1].split()[-1] for line in output.splitlines() if line.strip()), "")
    name = "governor" if "governor" in command else "driver"
    return {"shown-cpu-scaling": Reply("ok", {name: word})} if re.fullmatch(r"[a-z][\w-]+", word) else None


def _mhz(match: re.Match[str]) -> float:
    return float(match["most"]) * _MHZ[match["unit"]]


READERS = (
    Reader("a device of Xorg", ('Section "Device"',), _DEVICE, _device, re.compile(r"^\s*EndSection"), 40),
    prompts.reader(
        "the CPU's frequency settings",
        ("scaling_governor", "scaling_driver"),
        r"(?:cat|grep\ (?:-\S+\ )*\S+)\ .*/scaling_(?:governor|driver)(?:\ *\|.*)?",
        _scaling,
        most_lines=8,
    ),
    Reader("", ("  driver: ",), _DRIVER, _driver, re.compile(""), 1),
    Reader("cpupower frequency-info", ("hardware limits:",), _LIMITS, _clocks, re.compile(r"^analyzing|^\S+[$#>]|^\s*$"), 12),
)
