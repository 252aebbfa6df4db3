"""The firmware of the GPUs' system processor (GSP) runs where the driver uses it by default.

What it means
Since Turing, GPUs have a processor (GSP) on which most of the driver's resource manager runs. It can be disabled by an option
of the proprietary module, which was a workaround for timeouts of the firmware (Xid 119 and 120) with drivers of 2022 and 2023.

How it is judged
NVML reports for each GPU whether the firmware runs, and whether it would by default. If it does not run although it is the
default, and the module was loaded with EnableGpuFirmware=0, this warns. The version of the firmware is part of the summary.

Known exceptions
Where the firmware is not the default, as on older GPUs, nothing is judged. The open module always uses it. A vGPU does not
answer.

References
https://download.nvidia.com/XFree86/Linux-x86_64/580.95.05/README/gsp.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.model import NEW_INITRAMFS, Action, Check, Finding, Fix, Problem, Skip, Status

LOOK = "nvidia-smi -q | grep -i 'gsp firmware'"
README = "https://download.nvidia.com/XFree86/Linux-x86_64/580.95.05/README/gsp.html"

DISABLED = Problem(
    id="gsp-firmware-disabled",
    title="The GPU's system processor (GSP) is disabled by an option",
    why="NVreg_EnableGpuFirmware=0 was a workaround for timeouts of early firmware, and stayed. The driver's resource manager "
    "then runs on the CPU, which is no longer the default on these GPUs, and the open module cannot work with this option.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    latent=True,
    fixes=(
        Fix(
            "Remove the option, rebuild the initramfs, then reboot",
            "grep -rl EnableGpuFirmware= /etc/modprobe.d | xargs -r sudo sed -i.bak '\\,EnableGpuFirmware=,d' && "
            + NEW_INITRAMFS,
            verify=LOOK,
            on=("host",),
            kind="set",
            reboot=True,
        ),
        look("If Xid 119 or 120 comes back: update the driver instead of disabling the firmware", LOOK),
        Fix("Ask the owner of the host: the option cannot be changed from inside a container", on=("container",), verify=LOOK),
    ),
    references=(README,),
)


def judge(facts: Facts) -> Iterator[Finding]:
    modes = {gpu.index: mode for gpu in facts.nvml.reachable.values() if (mode := known(lambda: gpu.gsp_mode))}  # noqa: B023
    if not modes:
        raise Skip("NVML does not report the GSP's mode", Skip.UNSUPPORTED)
    if known(lambda: facts.driver.parameters.get("EnableGpuFirmware")) != "0":
        return
    off = [index for index, (is_enabled, by_default) in modes.items() if by_default and not is_enabled]
    if off:
        words = f"GPU {', '.join(map(str, off))}: the GSP firmware is disabled, and enabled by default"
        yield DISABLED.found(words, {"gpus": off}, off[0] if len(off) == 1 else None)


def summary(facts: Facts) -> str:
    versions = {known(lambda: gpu.gsp_firmware) for gpu in facts.nvml.reachable.values()}  # noqa: B023
    shown = sorted(version for version in versions if version and version != "N/A")
    return f"GSP firmware {', '.join(shown)}" if shown else "the GSP is in its default mode"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(DISABLED,),
    needs=("nvml",),
)
