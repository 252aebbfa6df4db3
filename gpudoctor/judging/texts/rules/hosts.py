"""The machine around the GPU in a text: processors, package sources, the clock's reasons, and who draws the screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.judging.texts.rules.said import is_lxc, passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Skip, Status

WHERE = "https://wiki.archlinux.org/title/PRIME"
DISPLAY = Problem(
    id="display-on-integrated-gpu",
    title="The monitor is connected to the integrated GPU",
    why="The desktop and its programs render on the GPU whose connector the monitor uses. With the cable in the mainboard, that "
    "is the processor's own GPU, and the NVIDIA GPU only computes.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Plug the monitor into a connector of the graphics card, then log in again", verify="glxinfo -B | grep renderer"),
        Fix(
            "Keep the cable there and render single programs on the NVIDIA GPU: set these in the shell that starts them",
            "export __NV_PRIME_RENDER_OFFLOAD=1 __GLX_VENDOR_LIBRARY_NAME=nvidia",
            verify="glxinfo -B | grep renderer",
            on=("host",),
            kind="set",
            where="shell",
        ),
    ),
    references=(WHERE, "https://download.nvidia.com/XFree86/Linux-x86_64/580.65.06/README/primerenderoffload.html"),
)
REPOSITORIES = Problem(
    id="driver-packages-from-two-repositories",
    title="Driver packages come from two repositories with different releases",
    why="NVIDIA's repository and the distribution's offer the same package names with other versions. Each package requires the "
    "same version of the others, so a mixture cannot be installed.",
    action=Action.INSTALL,
    fixes=(
        look("Show which repository offers which version", "apt policy nvidia-driver-580 libnvidia-compute-580 cuda-drivers"),
        Fix(
            "Take the driver from the distribution only: give NVIDIA's repository a lower priority for driver packages",
            "printf 'Package: *nvidia* cuda-drivers* libxnvctrl*\\nPin: origin developer.download.nvidia.com\\n"
            "Pin-Priority: 400\\n' | sudo tee /etc/apt/preferences.d/nvidia-driver && sudo apt update",
            verify="apt policy libnvidia-compute-580",
            on=("debian",),
            kind="set",
            needs=("root", "network"),
            undo="sudo rm /etc/apt/preferences.d/nvidia-driver && sudo apt update",
        ),
        Fix("Remove the driver packages of the other release, and install the driver again"),
    ),
    references=("https://manpages.debian.org/stable/apt/apt_preferences.5.en.html",),
)
SENSOR = Problem(
    id="power-reading-impossible",
    title="The GPU reports a power draw that is impossible",
    why="The reading is far above the limit of the board, so the driver lowers the clocks as if the limit were exceeded. The "
    "firmware's sensor data is wrong, usually after an update of kernel, firmware or driver.",
    action=Action.REBOOT,
    status=Status.WARN,
    fixes=(
        Fix(
            "Switch the computer off and take it off the power for a minute, which restarts the sensor's controller", on=("host",)
        ),
        Fix("If the reading stays: boot the kernel and firmware from before the update, or install another driver", on=("host",)),
    ),
    references=("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1236",),
)
PROBLEMS = (DISPLAY, REPOSITORIES, SENSOR)
NEEDED = ("avx", "avx2")
_CRASH = re.compile(
    r"""
    illegal\ instruction
    | invalid\ opcode
    | \bSIGILL\b
    | exit(?:ed)?(?:\ with)?(?:\ code)?\ \(?132\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_VIRTUAL = re.compile(
    r"""
    QEMU\ Virtual\ CPU
    | Common\ (?:32-bit\ )?KVM\ processor
    | Westmere
    | Nehalem
    | Penryn
    | Conroe
    | Opteron_G[12]
    """,
    re.VERBOSE,
)
_OTHER_RENDERER = re.compile(r"OpenGL renderer string: (?:Mesa )?((?:Intel|AMD|Radeon|llvmpipe)[^\n]*)")
_LAPTOP = re.compile(
    r"""
    \blaptop\b
    | \bnotebook\b
    | \bMobile\b
    | Max-Q
    | \beDP
    | prime-select
    | optimus
    | envycontrol
    | supergfx
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ASKED = re.compile(r"__NV_PRIME_RENDER_OFFLOAD|prime-run")
_RELEASE = re.compile(r"^(?:\d+:)?(\d{3}\.\d+(?:\.\d+)?)")
_OF_DRIVER = re.compile(r"nvidia|cuda-drivers|libcuda")
_TIME = re.compile(r"\btime (?:sudo )?nvidia-smi\b[\s\S]{0,20000}?^real\s+(\d+)m([\d.,]+)s", re.MULTILINE)
_TIME_OF_ZSH = re.compile(r"^(?:sudo )?nvidia-smi\b[^\n]* cpu ([\d.]+) total", re.MULTILINE)
HOT_SHARE, HOT = 0.5, 80  # of the samples; degrees


def lacking_instructions(facts: Facts) -> Iterator[Finding]:
    """A program was stopped by an illegal instruction, and the processor lacks what such programs are built for."""
    cpu = facts.shown.cpu
    lacks = [name for name in NEEDED if name in cpu.get("lacks", ()) or (cpu.get("flags") and name not in cpu["flags"])]
    model = cpu.get("model", "")
    if not (lacks or _VIRTUAL.search(model)) or not any(_CRASH.search(text) for text in passages(facts)):
        return
    words = f"the processor{f' ({model})' if model else ''} does not offer {' and '.join(lacks) or 'newer instructions'}"
    words += ": the virtual machine hides them" if _VIRTUAL.search(model) else ""
    yield facts.problems["cpu-lacks-instructions"].found(words, {"lacks": lacks, "model": model}, confidence=Confidence.LIKELY)


def draws_on_other_gpu(facts: Facts) -> Iterator[Finding]:
    """On a desktop computer, OpenGL renders on the integrated GPU, and the NVIDIA GPU drives no monitor."""
    texts = tuple(passages(facts))
    other = next(filter(None, map(_OTHER_RENDERER.search, texts)), None)
    if not other or "llvmpipe" in other[1] or any(_LAPTOP.search(text) or _ASKED.search(text) for text in texts):
        return
    gpus = known(lambda: facts.nvml.gpus, ())
    dark = bool(gpus) and not any(known(lambda gpu=gpu: gpu.display_active, True) for gpu in gpus)  # type: ignore[misc]
    providers = facts.shown.providers
    second = any("NVIDIA" in name for name in providers.values()) and "NVIDIA" not in providers.get("0", "")
    if dark or second:
        words = f"OpenGL renders on {other[1].strip()}, and no display is active on the NVIDIA GPU"
        yield DISPLAY.found(words, {"renderer": other[1].strip()}, confidence=Confidence.LIKELY)


def two_repositories(facts: Facts) -> Iterator[Finding]:
    """apt would take packages of one driver from two repositories, which offer different releases of it."""
    chosen: dict[str, dict[str, str]] = {}
    for name, package in facts.shown.policy.items():
        release = _RELEASE.match(package["candidate"])
        hosts = package["offered"].get(package["candidate"], [])
        if release and hosts and _OF_DRIVER.search(name):
            chosen.setdefault(release[1].split(".")[0], {})[name] = f"{release[1]} from {hosts[0]}"
    for packages in chosen.values():
        name, first = next(iter(packages.items()))
        other = next((each for each, source in packages.items() if source != first), None)
        if other and packages[other].split(" from ")[1] != first.split(" from ")[1]:
            words = f"{name} would be {first}, and {other} {packages[other]}"
            yield REPOSITORIES.found(words, confidence=Confidence.LIKELY)
            return
    for name, package in facts.shown.policy.items():
        hosts = {host: version for version, found in package["offered"].items() for host in found}
        nvidia = next((version for host, version in hosts.items() if "nvidia.com" in host), None)
        others = [version for host, version in hosts.items() if "nvidia.com" not in host and version != nvidia]
        if nvidia and others and _OF_DRIVER.search(name) and any(_UNMET.search(text) for text in passages(facts)):
            words = f"{name} is offered as {nvidia} by NVIDIA's repository and as {others[0]} by the distribution"
            yield REPOSITORIES.found(words, confidence=Confidence.LIKELY)
            return


_UNMET = re.compile(r"unmet dependencies|held broken packages")


def slow_nvidia_smi(facts: Facts) -> Iterator[Finding]:
    """`time` shows how long nvidia-smi took, and persistence mode is off."""
    text = "\n".join(passages(facts))
    bash, zsh = _TIME.search(text), _TIME_OF_ZSH.search(text)
    seconds = int(bash[1]) * 60 + float(bash[2].replace(",", ".")) if bash else float(zsh[1]) if zsh else 0.0
    off = [gpu.index for gpu in known(lambda: facts.nvml.gpus, ()) if known(lambda gpu=gpu: not gpu.persistence_mode, False)]  # type: ignore[misc]
    counted = _COUNTED.search(text)
    if (off or counted) and seconds > SLOW:
        where = f"GPU {', '.join(map(str, off))}" if off else f"{counted[1]} GPUs" if counted else ""
        words = f"nvidia-smi took {seconds:.0f} s, and persistence mode is off on {where}"
        evidence = {"seconds": round(seconds, 1), "gpus": off}
        yield facts.problems["persistence-mode-off-slow-init"].found(words, evidence, confidence=Confidence.LIKELY)


SLOW = 3.0  # seconds
_COUNTED = re.compile(r"persistence_mode\b[^\n]*\| *uniq -c[^\n]*\n\s*(\d+) Disabled\s*$", re.MULTILINE)


def hot_samples(facts: Facts) -> Iterator[Finding]:
    """nvidia-smi dmon reports violations of the thermal limit in most of its rows."""
    for index, share in facts.shown.hot.items():
        gpu = next((gpu for gpu in known(lambda: facts.nvml.gpus, ()) if str(gpu.index) == index), None)
        heat = known(lambda gpu=gpu: gpu.temperature_c, 0) if gpu else 0  # type: ignore[misc]
        if share >= HOT_SHARE:
            words = f"heat lowered the clocks of GPU {index} in {share:.0%} of the samples of nvidia-smi dmon"
            words += f", at {heat} °C" if heat else ""
            yield facts.problems["gpu-too-hot"].found(words, {"share": share}, int(index), Confidence.LIKELY)


def slow_busy_link(facts: Facts) -> Iterator[Finding]:
    """A GPU at full load, whose link is slower than card and slot allow: an idle one slows down to save power."""
    for gpu in known(lambda: facts.nvml.gpus, ()):
        with suppress(Skip):
            now, most, load = gpu.get("CurrPcieLinkGeneration"), gpu.get("MaxPcieLinkGeneration"), gpu.get("UtilizationRates.gpu")
            if load >= BUSY and now < most:
                words = f"GPU {gpu.index} is {load} % busy, and its PCIe link runs at generation {now} of {most}"
                evidence = {"generation": now, "possible_generation": most, "link": gpu.selector}
                yield facts.problems["pcie-gen-low-under-load"].found(words, evidence, gpu.index, Confidence.LIKELY)


BUSY = 90  # percent


def after_sleep(facts: Facts) -> Iterator[Finding]:
    """CUDA fails with an unknown error, and the text tells that the computer slept."""
    if any(_UNKNOWN.search(text) for text in passages(facts)) and any(_SLEPT.search(text) for text in passages(facts)):
        words = "CUDA fails with an unknown error after the computer slept"
        yield facts.problems["cuda-999-after-suspend"].found(words, confidence=Confidence.LIKELY)


_UNKNOWN = re.compile(
    r"""
    CUDA\ unknown\ error | CUDA_ERROR_UNKNOWN | cudaErrorUnknown | \b999:\ unknown\ error
    | \b(?: err(?:or)? | failure | failed | code | status | returned | result )\b[:=\ (]*999\b
    """,
    re.VERBOSE,
)
_SLEPT = re.compile(
    r"""
    \b(?: after | when | once | following | since )\b [^.\n]{0,60}?
    \b(?: suspend\w* | sleep\w* | resum\w+ | hibernat\w+ | wak(?:es?|ing)[ -]?up | clos(?:ed|ing)\ (?:the\ )?(?:laptop\ )?lid )\b
    | \b(?:systemd-sleep|PM:\ suspend\ (?:entry|exit))\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def half_installed(facts: Facts) -> Iterator[Finding]:
    """dpkg lists a driver package that was unpacked, but not configured, and no driver works."""
    packages = [one for one in known(lambda: facts.driver.packages, ()) if _OF_DRIVER.search(one.name)]
    half = [one for one in packages if one.state in ("half-configured", "unpacked", "half-installed")]
    if half and not known(lambda: facts.nvml.count, 0):
        words = f"the package {half[0].name} is {half[0].state}: its installation ended with an error"
        evidence = {"package": half[0].name, "state": half[0].state}
        yield facts.problems["driver-package-not-configured"].found(words, evidence, confidence=Confidence.LIKELY)


def impossible_power(facts: Facts) -> Iterator[Finding]:
    """A reading of several times the limit, which no board draws."""
    for gpu in known(lambda: facts.nvml.gpus, ()):
        with suppress(Skip):
            draw, limit = gpu.power_watts, gpu.enforced_power_limit_watts
            if draw and limit and draw > TOO_MUCH * limit:
                words = f"GPU {gpu.index} reports {draw:.0f} W at a limit of {limit:.0f} W"
                yield SENSOR.found(words, {"watts": round(draw), "limit_watts": round(limit)}, gpu.index, Confidence.LIKELY)


TOO_MUCH = 3.0  # times the limit


def unlicensed(facts: Facts) -> Iterator[Finding]:
    """A virtual GPU without a licence is fast at first, and the text tells that it is slow."""
    texts = tuple(passages(facts))
    if any("Unlicensed (Unrestricted" in text for text in texts) and any(_SLOWS.search(text) for text in texts):
        words = "the virtual GPU has no licence: its speed is limited some time after the boot"
        yield facts.problems["vgpu-unlicensed-throttled"].found(words, confidence=Confidence.LIKELY)


_SLOWS = re.compile(r"(?i)\bslow\w*|\bfps\b|\bdrop\w*|\blag\w*|performance|throttl\w+")


def files_for_devices(facts: Facts) -> Iterator[Finding]:
    """A regular file where a device belongs: a mount of a node that did not exist creates one."""
    if is_lxc(facts):  # its configuration makes the file, and its rules are judged apart
        return
    found = next(filter(None, (_FILE_FOR_DEVICE.search(text) for text in passages(facts))), None)
    if found:
        id = "render-node-not-accessible" if "render" in found["path"] or "card" in found["path"] else "device-nodes-missing"
        words = f"{found['path']} is a regular file, not a device: it was created where the node did not exist yet"
        yield facts.problems[id].found(words, {"node": found["path"]}, confidence=Confidence.LIKELY)


_FILE_FOR_DEVICE = re.compile(
    r"""
    ^\s*-[rwx-]{9}[.+]?\s+\d+\s+\S+\s+\S+\s+\d+\s+\S+\s+\d+\s+[\d:]+\s+
    (?P<path> (?:/dev/)?(?:nvidia(?:\d+|ctl|-uvm) | (?:dri/)?(?:renderD|card)\d+) )\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
RULES = (
    *(lacking_instructions, draws_on_other_gpu, two_repositories, slow_nvidia_smi, hot_samples),
    *(slow_busy_link, after_sleep, half_installed, unlicensed, impossible_power, files_for_devices),
)
