"""Desktops and laptops in a text: the graphics mode, the X server's device, sleep, and limits on clocks and power."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.judging.driver.dynamic_boost import BOOST
from gpudoctor.judging.driver.graphics_modes import SWITCHED_OFF, ways_with
from gpudoctor.judging.texts.rules.driver import is_not_loaded, said
from gpudoctor.judging.texts.rules.places import FAILED
from gpudoctor.model import NEW_INITRAMFS, Action, Confidence, Finding, Fix, Problem, Skip, Status

WITHOUT_NVIDIA = ("intel", "integrated", "igpu", "amd")
CAPPED = 0.6  # of the CPU's highest clock
_BUS_ID = re.compile(r"^(?:PCI:)?(\d+)(?:@\d+)?:(\d+):(\d+)(?::\d+)?$", re.IGNORECASE)
_HEX = re.compile(r"^(?:PCI:)?(?:0000:)?([0-9a-f]{1,2}):([0-9a-f]{1,2})[:.](\d)$", re.IGNORECASE)
_GONE = re.compile(r"(?i)\b(?:missing|disappear\w*|gone|no longer (?:listed|there)|not listed)\b")
_SESSION = re.compile(
    r"""
    \b(?: wayland | hyprland | sway | wlroots | wlr_\w+ | DRM\ device
    | prime\ sync\w* | tearing | gamescope | external\ (?:monitor|display) )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SLEEP = re.compile(
    r"\b(?: suspend\w* | resum\w+ | sleep | hibernat\w+ | wak(?:e|es|ing)[ -]?up | woke )\b", re.IGNORECASE | re.VERBOSE
)
_DAMAGE = re.compile(
    r"""
    \b(?: (?:black|blank)\ screen | garbled | corrupt\w* | garbage | artifacts? | glitch\w* | textures?
    | freez\w+ | frozen | crash\w* | hangs? )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OTHER_RENDERER = re.compile(r"OpenGL renderer string: (?:Mesa )?(?:DRI )?((?:Intel|AMD|Radeon)[^\n]*)")
_OFFLOAD = re.compile(
    r"""
    (?<![${|]) (?<!grep\ ) (?<!printenv\ ) __NV_PRIME_RENDER_OFFLOAD | prime-run
    | OpenGL\ renderer\ string:\ (?: NVIDIA | Quadro | GeForce | Tesla )
    """,
    re.VERBOSE,
)
_D3_OFF = re.compile(r"Runtime D3 status:\s+Disabled")
_IDLE = re.compile(
    r"\b(?: batter(?:y|ies) | idl(?:e|es|ing) | power\ (?:draw|drain|consumption) | watts? )\b", re.IGNORECASE | re.VERBOSE
)
_LAPTOP = re.compile(r"(?i)\blaptop\b|\bnotebook\b|\bMobile\b|Max-Q")

BUS_ID = Problem(
    id="xorg-bus-id-wrong",
    title="The X configuration names a PCI address without an NVIDIA GPU",
    why="A BusID is written in decimal as PCI:bus:device:function, but lspci prints the bus in hexadecimal: 3b:00.0 is "
    "PCI:59:0:0. With an address that no GPU has, the X server finds no screen.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            'In the section "Device" of the NVIDIA driver: set BusID to the decimal address, then restart the display manager',
            "grep -rn BusID /etc/X11 /usr/share/X11/xorg.conf.d  # should be <wanted>",
            verify="nvidia-smi --query-gpu=display_active --format=csv",
            kind="read",
        ),
        Fix("With one NVIDIA GPU: remove the line with BusID, so that the driver takes the only one"),
    ),
    references=(
        "https://www.x.org/releases/current/doc/man/man5/xorg.conf.5.xhtml",
        "https://github.com/Witko/nvidia-xrun/issues/39",
    ),
)
CPU = Problem(
    id="cpu-clock-capped",
    title="The CPU may not use most of its clock range",
    why="A CPU that is held at a low clock cannot launch kernels and prepare data fast enough, so the GPU waits. A power saving "
    "profile, a tool or the firmware set the limit.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Allow the full range again, until the next boot",
            "sudo cpupower frequency-set -g performance -u $(cat /sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq)",
            verify="cpupower frequency-info",
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        Fix(
            "Find what sets the limit: a power profile, TLP, auto-cpufreq, or the firmware (power supply, BMC's power cap)",
            "systemctl is-active power-profiles-daemon tlp auto-cpufreq thermald tuned",
            on=("host",),
            kind="read",
        ),
    ),
    references=("https://www.kernel.org/doc/html/latest/admin-guide/pm/cpufreq.html",),
)
AWAKE = Problem(
    id="gpu-never-powers-down",
    title="The laptop's GPU never powers down",
    why="The NVIDIA GPU can be switched off while nothing uses it (runtime D3), but either the kernel keeps the device on or the "
    "driver does not manage its power. An idle GPU then takes several watts.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Let the driver and the kernel power the GPU down, then reboot",
            "echo 'options nvidia NVreg_DynamicPowerManagement=0x02' | sudo tee /etc/modprobe.d/nvidia-power.conf && "
            """echo 'ACTION=="add|bind", SUBSYSTEM=="pci", DRIVERS=="nvidia", ATTR{vendor}=="0x10de", """
            """TEST=="power/control", ATTR{power/control}="auto"' | sudo tee /etc/udev/rules.d/80-nvidia-power.rules && """
            f"{NEW_INITRAMFS}",
            verify="cat /sys/bus/pci/devices/*/power/runtime_status /proc/driver/nvidia/gpus/*/power",
            on=("host",),
            kind="set",
            reboot=True,
            undo=f"sudo rm /etc/modprobe.d/nvidia-power.conf /etc/udev/rules.d/80-nvidia-power.rules && {NEW_INITRAMFS}",
        ),
        Fix(
            "If it stays awake: find the programs that have it open (monitors and nvidia-smi wake it too)",
            "sudo fuser -v /dev/nvidia*",
            on=("host",),
            kind="read",
            needs=("root",),
        ),
    ),
    references=("https://download.nvidia.com/XFree86/Linux-x86_64/580.65.06/README/dynamicpowermanagement.html",),
)
INTEGRATED = Problem(
    id="renders-on-integrated-gpu",
    title="In hybrid mode, programs render on the integrated GPU unless asked",
    why="In on-demand mode the desktop and all programs use the integrated GPU, which saves power. The NVIDIA GPU renders only "
    "what is started for it; CUDA uses it in any case.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Set these variables in the shell that starts the program",
            "export __NV_PRIME_RENDER_OFFLOAD=1 __GLX_VENDOR_LIBRARY_NAME=nvidia",
            verify="glxinfo -B",
            on=("host",),
            kind="set",
            where="shell",
        ),
        Fix("If everything should use it: choose the mode nvidia in the graphics mode tool, then reboot", on=("host",)),
    ),
    references=("https://download.nvidia.com/XFree86/Linux-x86_64/580.65.06/README/primerenderoffload.html",),
)
PROBLEMS = (BUS_ID, CPU, BOOST, AWAKE, INTEGRATED)


def integrated_mode(facts: Facts) -> Iterator[Finding]:
    """A laptop's tool keeps the NVIDIA GPU off, and something in the text misses it."""
    tool, mode = facts.shown.graphics_mode
    if mode not in WITHOUT_NVIDIA or known(lambda: facts.driver.module_version) is not None:
        return
    texts = tuple(_texts(facts))
    is_missed = is_not_loaded(facts) or "False" in facts.shown.answers.values() or said(facts, "NVIDIA-SMI has failed")
    if is_missed or any(FAILED.search(text) or _GONE.search(text) for text in texts):
        words = f"{tool} reports the mode {mode!r}, in which the NVIDIA GPU is off"
        problem = replace(SWITCHED_OFF, fixes=ways_with(tool) or SWITCHED_OFF.fixes)
        yield problem.found(words, {"tool": tool, "mode": mode}, confidence=Confidence.LIKELY)


def hybrid_mode(facts: Facts) -> Iterator[Finding]:
    """A program was meant for the NVIDIA GPU, and the mode renders on the other."""
    tool, mode = facts.shown.graphics_mode
    texts = tuple(_texts(facts))
    on_other = next(filter(None, map(_OTHER_RENDERER.search, texts)), None)
    is_asked = any(_OFFLOAD.search(text) for text in texts)
    if mode in ("on-demand", "hybrid", "offload") and on_other and not is_asked:
        words = f"{tool} reports the mode {mode!r}, and OpenGL renders on {on_other[1].strip()}"
        yield INTEGRATED.found(words, {"tool": tool, "mode": mode}, confidence=Confidence.LIKELY)


def never_asleep(facts: Facts) -> Iterator[Finding]:
    """A laptop's GPU stays on, and runtime power management is off for the device or in the driver."""
    replies = facts.replies.starting_with("file:/")
    files = {name: reply.value for name, reply in replies.items() if reply.status == "ok" and isinstance(reply.value, str)}
    control = any(name.endswith("/power/control") and text.strip() == "on" for name, text in files.items())
    awake = any(name.endswith("/power/runtime_status") and text.strip() == "active" for name, text in files.items())
    off = any("/driver/nvidia/gpus/" in name and _D3_OFF.search(text) for name, text in files.items())
    can = not any("/driver/nvidia/gpus/" in name and "Video Memory Off:          Not" in text for name, text in files.items())
    if (control or off) and (awake or off) and can and any(_IDLE.search(text) for text in _texts(facts)):
        reasons = ["power/control is on"] * control + ["the driver's runtime D3 is disabled"] * off
        yield AWAKE.found(" and ".join(reasons), {"control": "on" if control else "auto"}, confidence=Confidence.LIKELY)


def bus_id(facts: Facts) -> Iterator[Finding]:
    """The X server is configured for a device at an address that no GPU of the listing has."""
    addresses = [gpu.address for gpu in known(lambda: facts.pci.gpus, ())]
    for device in facts.shown.xorg_devices.values():
        given = device.get("busid", "")
        is_right = any(_decimal(given) == _place(address) for address in addresses)
        if not addresses or device.get("driver", "nvidia").lower() != "nvidia" or is_right:
            continue
        meant = next((address for address in addresses if _place(address) == _hexadecimal(given)), addresses[0])
        wanted = "PCI:{}:{}:{}".format(*_place(meant))
        words = f"BusID is {given!r}, but lspci lists the GPU at {meant}, which is {wanted} in decimal"
        yield BUS_ID.found(words, {"bus_id": given, "gpu": meant, "wanted": wanted})


def _decimal(bus_id: str) -> tuple[int, ...] | None:
    match = _BUS_ID.match(bus_id.strip())
    return tuple(map(int, match.groups())) if match else None


def _hexadecimal(bus_id: str) -> tuple[int, ...] | None:
    match = _HEX.match(bus_id.strip())
    return tuple(int(number, 16) for number in match.groups()) if match else None


def _place(address: str) -> tuple[int, ...]:
    """bus, device and function of a PCI address."""
    return tuple(int(number, 16) for number in re.split("[:.]", address)[-3:])


def no_modeset(facts: Facts) -> Iterator[Finding]:
    """A Wayland session or a display on the other GPU needs nvidia-drm's mode setting, which is off."""
    is_off = known(lambda: facts.replies.file("/sys/module/nvidia_drm/parameters/modeset"), "") or ""
    if is_off.strip() == "N" and any(_SESSION.search(text) for text in _texts(facts)):
        words = "the parameter modeset of nvidia_drm is N, which a Wayland session and displays on both GPUs need"
        found = facts.problems["wayland-without-modeset"].found(words, {"modeset": "N"}, confidence=Confidence.LIKELY)
        yield replace(found, because="kernel-options-not-in-effect")


def unsaved_memory(facts: Facts) -> Iterator[Finding]:
    """After sleep the screen shows garbage, and the driver does not save the GPU's memory."""
    unit = known(lambda: facts.services.unit("nvidia-suspend"))
    is_kept = known(lambda: facts.driver.parameters.get("PreserveVideoMemoryAllocations"))
    texts = tuple(_texts(facts))
    is_off = (unit is not None and unit.enabled == "disabled") or is_kept == "0"
    if is_off and any(_SLEEP.search(text) and _DAMAGE.search(text) for text in texts):
        words = "the driver does not save the GPU's memory during sleep"
        words += (
            ": nvidia-suspend is disabled" if unit and unit.enabled == "disabled" else ": PreserveVideoMemoryAllocations is 0"
        )
        yield facts.problems["gpu-does-not-resume"].found(words, {"preserves": is_kept}, confidence=Confidence.LIKELY)


def slow_cpu(facts: Facts) -> Iterator[Finding]:
    clocks = facts.shown.cpu_clocks
    if clocks and clocks["allowed"] < CAPPED * clocks["most"]:
        words = f"the CPU may use at most {clocks['allowed']:.0f} MHz of {clocks['most']:.0f} MHz"
        yield CPU.found(words, {"allowed_mhz": round(clocks["allowed"]), "most_mhz": round(clocks["most"])})


def no_dynamic_boost(facts: Facts) -> Iterator[Finding]:
    """A laptop's GPU stays at its default limit, although its board allows more, and the service that raises it does not run."""
    unit = known(lambda: facts.services.unit("nvidia-powerd"))
    if unit is None or unit.active not in ("inactive", "failed"):
        return
    is_laptop = any(_LAPTOP.search(text) for text in _texts(facts))
    for gpu in known(lambda: facts.nvml.gpus, ()):
        with suppress(Skip):
            if is_laptop or gpu.minimum_power_limit_watts < LEAST_OF_DESKTOPS:
                yield from _below_most(gpu, unit.active)


LEAST_OF_DESKTOPS = 20  # W: the lowest limit that can be set is far higher on their cards


def _below_most(gpu: Gpu, state: str) -> Iterator[Finding]:
    now, most = gpu.enforced_power_limit_watts, gpu.maximum_power_limit_watts
    if now and most and now < most:
        words = f"nvidia-powerd is {state}, and the power limit is {now:.0f} W of at most {most:.0f} W"
        yield BOOST.found(words, {"limit_watts": round(now), "most_watts": round(most)}, gpu.index, Confidence.LIKELY)


def _texts(facts: Facts) -> Iterator[str]:
    yield from (passage.text for text in facts.texts.all for passage in text.passages)


RULES = (integrated_mode, hybrid_mode, never_asleep, bus_id, no_modeset, unsaved_memory, slow_cpu, no_dynamic_boost)
