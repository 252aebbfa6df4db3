"""Which GPU draws the screen in a text, and why none does: nomodeset, the first provider of X, Mesa."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

NO_MODES = Problem(
    id="kernel-started-with-nomodeset",
    title="The kernel runs with nomodeset, which disables graphics drivers",
    why="nomodeset is meant for installing a driver. With it nvidia-drm and the other drivers offer no display, so the desktop "
    "stays at a low resolution and renders on the CPU. CUDA is not affected.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Remove nomodeset from the kernel's parameters, then reboot",
            "sudo sed -i.bak 's/ *\\bnomodeset\\b//' /etc/default/grub && (sudo update-grub || "
            "sudo grub2-mkconfig -o /boot/grub2/grub.cfg)",
            undo="sudo mv /etc/default/grub.bak /etc/default/grub && (sudo update-grub || "
            "sudo grub2-mkconfig -o /boot/grub2/grub.cfg)",
            verify="cat /proc/cmdline",
            on=("host",),
            kind="set",
            reboot=True,
            needs=("root",),
        ),
    ),
    references=("https://www.kernel.org/doc/html/latest/admin-guide/kernel-parameters.html",),
)
NOT_FIRST = Problem(
    id="x-server-starts-on-integrated-gpu",
    title="The X server draws with the integrated GPU, despite NVIDIA's mode",
    why="The first provider of xrandr draws the screen. The configuration of the mode does not make the NVIDIA GPU the first "
    "one, so programs find no driver for it and render on the CPU.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Name the NVIDIA GPU as the primary one for X: in /etc/X11/xorg.conf.d add a section OutputClass with "
            'MatchDriver "nvidia-drm" and Option "PrimaryGPU" "yes", then restart the display manager',
            "grep -rn PrimaryGPU /etc/X11 /usr/share/X11/xorg.conf.d",
            verify="xrandr --listproviders",
            kind="read",
        ),
        Fix(
            "Use the hybrid mode, and start single programs on the NVIDIA GPU",
            "export __NV_PRIME_RENDER_OFFLOAD=1 __GLX_VENDOR_LIBRARY_NAME=nvidia",
            verify="glxinfo -B",
            where="shell",
            kind="set",
        ),
    ),
    references=(
        "https://github.com/bayasdev/envycontrol/issues/226",
        "https://download.nvidia.com/XFree86/Linux-x86_64/580.65.06/README/primerenderoffload.html",
    ),
)
PROBLEMS = (NO_MODES, NOT_FIRST)

_SOFTWARE = re.compile(
    r"""
    (?: ^\s*(?:OpenGL|API:\ OpenGL|GLX)?[^\n]{0,60}\brenderer:\ | ^\s*Device:\ | OpenGL\ renderer\ string:\ )
    (?P<name> llvmpipe | softpipe | swrast )\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_OF_NVIDIA = re.compile(
    r"""
    ^\s*(?:Graphics:\s+)?Device-\d+:\ NVIDIA\b[^\n]*\n?[^\n]*\bdriver:\ nvidia\b   # inxi
    | \bKernel\ driver\ in\ use:\ nvidia\b
    | ^nvidia_drm\ +\d+
    """,
    re.MULTILINE | re.VERBOSE,
)
_OF_SCREEN = re.compile(
    r"""
    \b(?: screen | desktop | display | resolution | \d{3,4}x\d{3,4} | games? | fps | render\w* | llvmpipe | monitors? | xorg
    | wayland | black )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_COMMAND_LINE = re.compile(
    r"""
    ^(?:BOOT_IMAGE=|initrd=|root=|ro\ )[^\n]*\bnomodeset\b|Kernel\ command\ line:[^\n]*\bnomodeset\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_MODE = re.compile(
    r"""
    \b(?: envycontrol\ (?:-s|--switch)\ nvidia | prime-select\ nvidia | optimus-manager\ --switch\ nvidia
      | system76-power\ graphics\ nvidia | nvidia[ ](?:only[ ])?mode )\b
    """,
    re.VERBOSE,
)


def no_modes(facts: Facts) -> Iterator[Finding]:
    """The desktop is missed, and the running kernel has nomodeset among its parameters."""
    text = "\n".join(passages(facts))
    line = known(lambda: facts.system.command_line, "") or ""
    has = re.search(r"\bnomodeset\b", line) or _COMMAND_LINE.search(text)
    rest = _COMMAND_LINE.sub("", text)
    if has and _OF_NVIDIA.search(text) and _OF_SCREEN.search(rest):
        words = "nomodeset is among the parameters of the running kernel"
        yield NO_MODES.found(words, {"parameter": "nomodeset"}, confidence=Confidence.LIKELY)


def other_provider(facts: Facts) -> Iterator[Finding]:
    """A mode in which the NVIDIA GPU draws was chosen, and another is X's first provider, and OpenGL runs on the CPU."""
    text = "\n".join(passages(facts))
    providers = facts.shown.providers or _told_providers(text)
    mode = facts.shown.graphics_mode[1]
    first = providers.get("0", "")
    is_chosen = mode in ("nvidia", "performance") or _MODE.search(text)
    if is_chosen and "NVIDIA" not in first and any("NVIDIA" in name for name in providers.values()) and _SOFTWARE.search(text):
        words = f"X's first provider is {first.split(' @ ')[0]}, the NVIDIA GPU is a later one, and OpenGL runs on the CPU"
        yield NOT_FIRST.found(words, {"first": first, "providers": len(providers)}, confidence=Confidence.LIKELY)


_PROVIDER = re.compile(
    r"""
    \b(?P<name>AMD|Intel|NVIDIA|Nvidia|nvidia|modesetting|NVIDIA-0|NVIDIA-G0)\b[^.\n,;]{0,25}?\b[Pp]rovider\ (?P<number>\d)\b
    """,
    re.VERBOSE,
)


def _told_providers(text: str) -> dict[str, str]:
    """X's providers as a person writes them: the AMD GPU is Provider 0 and Nvidia Provider 1."""
    return {match["number"]: match["name"].upper() for match in _PROVIDER.finditer(text)}


def drawn_by_mesa(facts: Facts) -> Iterator[Finding]:
    """NVIDIA's kernel driver runs the card, and OpenGL is Mesa's software renderer."""
    text = "\n".join(passages(facts))
    found = _SOFTWARE.search(text)
    if found and _OF_NVIDIA.search(text) and not any(other_provider(facts)) and not any(no_modes(facts)):
        words = f"the card uses NVIDIA's kernel driver, and OpenGL renders on the CPU ({found['name']})"
        problem = facts.problems["graphics-on-cpu"]
        yield problem.found(words, {"renderer": found["name"]}, confidence=Confidence.LIKELY)


_VENDORS = re.compile(
    r"""
    \bls\ (?:-\w+\ )?(?P<folder>/(?:usr/share|etc)/(?:glvnd/egl_vendor\.d|vulkan/icd\.d))/?[ \t]*\n
    (?P<files> (?:(?![^\n]*[$\#]\ )[^\n]+(?:\n|\Z))* )
    """,
    re.VERBOSE,
)
_NOT_OFFERED = re.compile(
    r"""
    EGL_NOT_INITIALIZED | EGL_BAD_DISPLAY | [Cc]annot\ initialize\ EGL | eglInitialize
    | failed\ to\ (?:open\ swrast|create\ dri2\ screen|initialize\ EGL)
    | \bllvmpipe\b | \blavapipe\b | ERROR_INCOMPATIBLE_DRIVER | [Ff]ound\ no\ drivers
    """,
    re.VERBOSE,
)


NAME_EGL = Fix(
    "If libEGL_nvidia.so.0 is there (ldconfig -p): write the file that names it",
    """printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "libEGL_nvidia.so.0"}}\\n' | """
    "sudo tee /usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    undo="sudo rm /usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    verify="ls /usr/share/glvnd/egl_vendor.d",
    kind="set",
    needs=("root",),
)
NAME_VULKAN = Fix(
    "If libGLX_nvidia.so.0 is there (ldconfig -p): write the file that names it",
    """printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "libGLX_nvidia.so.0", "api_version": "1.3.0"}}\\n' | """
    "sudo tee /etc/vulkan/icd.d/nvidia_icd.json",
    undo="sudo rm /etc/vulkan/icd.d/nvidia_icd.json",
    verify="vulkaninfo --summary",
    kind="set",
    needs=("root",),
)


def unnamed_driver(facts: Facts) -> Iterator[Finding]:
    """The folder of EGL's vendors or Vulkan's drivers does not name NVIDIA, and a program finds only Mesa."""
    text = "\n".join(passages(facts))
    value = known(lambda: facts.environment.get("NVIDIA_DRIVER_CAPABILITIES"), "") or ""
    if not _NOT_OFFERED.search(text) or (value and not {"all", "graphics"} & set(value.split(","))):
        return
    for listed in _VENDORS.finditer(text):
        if "nvidia" not in listed["files"]:
            is_egl = "egl_vendor" in listed["folder"]
            missing = "10_nvidia.json" if is_egl else "nvidia_icd.json"
            words = f"{listed['folder']} has no {missing}, so the loader does not know NVIDIA's driver"
            problem = facts.problems["graphics-driver-files-missing"]
            problem = replace(problem, fixes=(NAME_EGL if is_egl else NAME_VULKAN, *problem.fixes))
            yield problem.found(words, {"folder": listed["folder"], "missing": missing}, confidence=Confidence.LIKELY)
            return


RULES = (no_modes, other_provider, drawn_by_mesa, unnamed_driver)
