"""A laptop's NVIDIA GPU that was switched off: by a tool for graphics modes, a udev rule, or the firmware's switch."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.model import NEW_INITRAMFS, Action, Finding, Fix, Problem

KEEPS_OUT = re.compile(
    r"""
    ^\s*( blacklist\s+nvidia | alias\s+nvidia\s+off | install\s+nvidia\s+(?:/usr)?/bin/(?:true|false) )\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
"""Rules in modprobe.d that keep the nvidia module from loading."""
REMOVES = r'^[^#\n]*ATTRS?\{vendor\}=="0x10de"[^\n]*ATTR\{remove\}="1"'
BBSWITCH = "echo ON | sudo tee /proc/acpi/bbswitch && sudo systemctl disable --now bumblebeed"


@dataclass(frozen=True)
class Tool:
    """named: a pattern for the names or the content of its files."""

    name: str
    named: str
    switch_on: str


TOOLS = (
    Tool("EnvyControl", "EnvyControl|50-remove-nvidia", "sudo envycontrol -s hybrid"),
    Tool("supergfxctl", "supergfx", "sudo supergfxctl -m Hybrid"),
    Tool("system76-power", "system76-power", "sudo system76-power graphics hybrid"),
    Tool("optimus-manager", "optimus-manager", "optimus-manager --switch hybrid --no-confirm"),
    Tool("prime-select", "nvidia-prime|pm-nvidia", "sudo prime-select on-demand"),
)

SWITCHED_OFF = Problem(
    id="gpu-switched-off-by-graphics-mode",
    title="The NVIDIA GPU of this laptop is switched off",
    why="In integrated mode the GPU is removed from the PCI bus or powered off to save battery. The driver cannot see it until "
    "the mode is hybrid (on demand) or dedicated again.",
    action=Action.FIX_CONFIG,
    fixes=(Fix("In the graphics mode tool or in the firmware: choose hybrid graphics, then reboot", verify="nvidia-smi"),),
    references=("https://github.com/bayasdev/envycontrol/issues/198", "https://wiki.archlinux.org/title/Hybrid_graphics"),
)
VERIFY = "nvidia-smi"
FIRMWARE = Fix(
    "On an ASUS laptop: enable it through the firmware's interface, then reboot",
    "echo 0 | sudo tee /sys/devices/platform/asus-nb-wmi/dgpu_disable",
    verify=VERIFY,
    kind="set",
    reboot=True,
)
AWAKE = Fix("Power it on again", BBSWITCH, risk="disruptive", verify=VERIFY, kind="restart", needs=("root",))
BY_HAND = Fix(
    "Remove the rule that switches it off, then reboot",
    f"sudo mv <file> <file>.off && {NEW_INITRAMFS}",
    verify=VERIFY,
    undo="sudo mv <file>.off <file>",
    kind="set",
    reboot=True,
)


def switched_off(facts: Facts) -> Finding | None:
    """Why no GPU is on the bus, if a file or the firmware shows it."""
    for file, text in (*known(lambda: _removing(facts), ()), *known(lambda: _kept_out(facts), ())):
        tool = tool_of(file, text)
        problem = replace(SWITCHED_OFF, fixes=(*_ways(tool), BY_HAND))
        by = f"{tool.name} wrote {file}, which" if tool else file
        return problem.found(f"no NVIDIA GPU is on the PCI bus; {by} {_effect(text)}", {"file": file, "tool": tool and tool.name})
    if known(lambda: facts.driver.is_off_in_asus_firmware):
        words = "no NVIDIA GPU is on the PCI bus; dgpu_disable of asus-nb-wmi is 1"
        return replace(SWITCHED_OFF, fixes=(FIRMWARE,)).found(words)
    return None


def without_power(facts: Facts, address: str) -> Finding | None:
    """Report a listed GPU that does not answer because bbswitch cut its power."""
    has_switch = known(lambda: facts.driver.loaded_modules & {"bbswitch"}) or facts.shown.is_loaded("bbswitch")
    if not has_switch or facts.driver.module_version is not None:
        return None
    return replace(SWITCHED_OFF, fixes=(AWAKE,)).found(f"{address} does not answer; bbswitch is loaded", {"gpu": address})


def tool_of(file: str, text: str) -> Tool | None:
    return next((tool for tool in TOOLS if re.search(tool.named, f"{file}\n{text}")), None)


def ways_of(file: str, text: str) -> tuple[Fix, ...]:
    """The tool's own command, which also reverts the files that it wrote elsewhere."""
    return _ways(tool_of(file, text))


def ways_with(name: str) -> tuple[Fix, ...]:
    return _ways(next((tool for tool in TOOLS if tool.name == name), None))


def _ways(tool: Tool | None) -> tuple[Fix, ...]:
    if tool is None:
        return ()
    return (
        Fix(f"With {tool.name}: choose hybrid graphics, then reboot", tool.switch_on, verify=VERIFY, kind="set", reboot=True),
    )


def _removing(facts: Facts) -> list[tuple[str, str]]:
    """The udev rules that remove the GPU from the bus."""
    return [(file, text) for file, text in facts.driver.udev_rules.items() if re.search(REMOVES, text, re.M)]


def _kept_out(facts: Facts) -> list[tuple[str, str]]:
    """Files by which a tool keeps the module from loading, if a driver is installed."""
    if not facts.driver.installed_modules:
        return []
    files = facts.driver.modprobe_options.items()
    return [(file, text) for file, text in files if KEEPS_OUT.search(text) and tool_of(file, text)]


def _effect(text: str) -> str:
    return "removes it" if re.search(REMOVES, text, re.M) else "disables its driver"
