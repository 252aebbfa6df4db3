"""Windows shares its GPU with this WSL2: /dev/dxg, the driver's libraries, and an adapter that can be opened.

What it means
WSL2 is a virtual machine. Windows shares the GPU with it through one device, /dev/dxg, and provides the libraries of the Windows
driver in /usr/lib/wsl. WSL2 has neither an NVIDIA PCI device nor an NVIDIA kernel module.

How it is judged
If /dev/dxg is missing, the causes are ruled out in this order: WSL 1, GPUs disabled in /etc/wsl.conf, a kernel built without
the device's driver, a kernel older than that driver. If the device exists, libcuda.so.1 and libnvidia-ml.so.1 must be present,
and NVML must not report that the operating system blocks access. GPUs disabled in /etc/wsl.conf explain either.

Known exceptions
/dev/dxg also exists on a machine without an NVIDIA GPU, because Intel and AMD use it. Outside WSL the check does not apply.

References
https://docs.nvidia.com/cuda/wsl-user-guide/index.html
https://github.com/microsoft/WSL/issues/11865
https://github.com/MicrosoftDocs/WSL/blob/main/WSL/wsl-config.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import shut_down_wsl
from gpudoctor.model import Action, Cause, Check, Confidence, Finding, Fix, Problem, Skip, first_cause

GUIDE = "https://docs.nvidia.com/cuda/wsl-user-guide/index.html"
FIRST_KERNEL = (5, 10, 16)
BLOCKED_BY_SYSTEM = 17
PROVIDED = ("libcuda.so.1", "libnvidia-ml.so.1")
SMI = "/usr/lib/wsl/lib/nvidia-smi -L"
UPDATE = shut_down_wsl("Update WSL and its kernel from Windows", verify=SMI, before="wsl.exe --update")

WSL1 = Problem(
    id="wsl1-has-no-gpu",
    title="This is WSL 1, which does not support GPUs",
    why="WSL 1 translates Linux system calls and has no virtual devices; only WSL 2 can use the GPU.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "In Windows (PowerShell): convert this distribution to WSL 2",
            "wsl.exe --list --verbose; wsl.exe --set-version <chosen_name> 2",
            risk="disruptive",
            verify=SMI,
        ),
    ),
    references=("https://github.com/microsoft/WSL/issues/6809",),
)

SWITCHED_OFF = Problem(
    id="wsl-gpu-disabled",
    title="The GPU is disabled in /etc/wsl.conf",
    why="With [gpu] enabled=false, Windows does not share its GPU with this distribution.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Enable it, then shut WSL down and start it again",
            "sudo sed -i.bak -E '/^\\[gpu\\]/,/^\\[/ s/^( *enabled *= *).*/\\1true/I' /etc/wsl.conf && wsl.exe --shutdown",
            risk="disruptive",
            verify=SMI,
            kind="reset",
            needs=("root",),
        ),
    ),
    references=("https://github.com/MicrosoftDocs/WSL/blob/main/WSL/wsl-config.md",),
)

NO_DXGKRNL = Problem(
    id="wsl-kernel-without-dxgkrnl",
    title="This WSL kernel was built without the driver for the shared GPU",
    why="/dev/dxg requires the kernel option CONFIG_DXGKRNL. Microsoft's kernel has it; this is a custom kernel.",
    action=Action.FIX_CONFIG,
    fixes=(
        shut_down_wsl("In Windows: remove the line 'kernel=' from %UserProfile%\\.wslconfig, then shut WSL down"),
        Fix("Build the kernel with CONFIG_DXGKRNL=y", verify="zcat /proc/config.gz | grep DXGKRNL"),
    ),
    references=("https://github.com/zhenruyan/WSL-libre-linux-kernel/issues/5",),
)

OLD_KERNEL = Problem(
    id="wsl-kernel-too-old",
    title="The WSL kernel is too old to share a GPU",
    why="GPU sharing was added in kernel 4.19.121 and works well since 5.10.16.3.",
    action=Action.INSTALL,
    fixes=(UPDATE,),
    references=(GUIDE,),
)

NO_DXG = Problem(
    id="wsl-dxg-missing",
    title="Windows shares no GPU with this WSL",
    why="/dev/dxg is missing, and the reason cannot be seen from inside WSL. Windows is older than 10 21H2 (build 19044), its "
    "driver is too old or was just replaced, or it has no GPU.",
    action=Action.FIX_CONFIG,
    fixes=(
        UPDATE,
        shut_down_wsl("In Windows: install the newest driver from https://www.nvidia.com/Download, then shut WSL down"),
        Fix("In Windows: check whether nvidia-smi lists the GPU", "nvidia-smi.exe"),
    ),
    references=("https://github.com/NVIDIA/nvidia-docker/issues/1542",),
)

NO_LIBRARIES = Problem(
    id="wsl-windows-driver-missing",
    title="Windows provides no NVIDIA driver libraries",
    why="WSL has a shared GPU, but libcuda or NVML is missing in /usr/lib/wsl/lib. The Windows NVIDIA driver is missing, older "
    "than R495, or was replaced while WSL ran. A machine without an NVIDIA GPU looks the same.",
    action=Action.INSTALL,
    fixes=(
        shut_down_wsl("In Windows: install the newest driver from https://www.nvidia.com/Download, then shut WSL down"),
        Fix("In Windows: check whether nvidia-smi lists the GPU", "nvidia-smi.exe", verify=SMI),
        shut_down_wsl("In Windows: remove gpuSupport=false from %UserProfile%\\.wslconfig, if it is there, then shut WSL down"),
    ),
    references=(GUIDE, "https://github.com/NVIDIA/nvidia-docker/issues/1225"),
)

BLOCKED = Problem(
    id="wsl-nvml-blocked-by-os",
    title="The operating system blocks access to the GPU",
    why="The shared adapter cannot be opened. Either Windows runs the GPU in TCC mode (data-center boards), which WSL cannot "
    "use, or WSL and the Windows driver are not compatible.",
    action=Action.FIX_CONFIG,
    fixes=(
        UPDATE,
        Fix(
            "In Windows: check whether the GPU is in TCC or WDDM mode",
            "nvidia-smi.exe --query-gpu=name,driver_model.current --format=csv",
        ),
        Fix(
            "If it is TCC: switch to WDDM as administrator in Windows, then restart Windows",
            "nvidia-smi.exe -dm 0",
            needs=("reboot",),
            verify=SMI,
        ),
        shut_down_wsl("In Windows: install the newest driver from https://www.nvidia.com/Download, then shut WSL down"),
    ),
    references=("https://github.com/microsoft/WSL/issues/11865", "https://github.com/microsoft/WSL/issues/9938"),
)


def wsl1(facts: Facts) -> Finding | None:
    return WSL1.found(f"kernel {facts.system.kernel} is the WSL 1 kernel") if facts.system.wsl == 1 else None


def switched_off(facts: Facts) -> Finding | None:
    section = re.search(r"(?ims)^\s*\[gpu\]\s*$(.*?)(?=^\s*\[|\Z)", facts.wsl.configuration or "")
    setting = re.search(r"(?im)^\s*enabled\s*=\s*false\b", section[1] if section else "")
    return SWITCHED_OFF.found("/etc/wsl.conf sets [gpu] enabled=false") if setting else None


def no_dxgkrnl(facts: Facts) -> Finding | None:
    built_with, kernel = facts.wsl.kernel_config_dxgkrnl, facts.system.kernel
    if built_with is False:
        return NO_DXGKRNL.found(f"kernel {kernel} has no CONFIG_DXGKRNL", {"kernel": kernel})
    if built_with is None and "microsoft-standard" not in kernel:
        return NO_DXGKRNL.found(f"kernel {kernel} is not from Microsoft", {"kernel": kernel}, confidence=Confidence.LIKELY)
    return None


def old_kernel(facts: Facts) -> Finding | None:
    version = tuple(map(int, re.findall(r"\d+", facts.system.kernel)[:3]))
    return OLD_KERNEL.found(f"kernel {facts.system.kernel}", {"kernel": facts.system.kernel}) if version < FIRST_KERNEL else None


CAUSES = (
    Cause(WSL1, wsl1),
    Cause(SWITCHED_OFF, switched_off),
    Cause(OLD_KERNEL, old_kernel),
    Cause(NO_DXGKRNL, no_dxgkrnl),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if not facts.system.wsl:
        raise Skip("this is not WSL")
    if facts.container.engine:
        raise Skip("in a container, container-gpu-access judges this")
    missing = [name for name in PROVIDED if name not in facts.wsl.library_directory]
    if not facts.wsl.has_dxg:
        yield from first_cause(CAUSES, facts, NO_DXG.found(f"/dev/dxg does not exist, kernel {facts.system.kernel}"))
    elif missing:
        where = ", ".join(facts.wsl.driver_store) or "nothing"
        evidence = {"missing": missing, "driver_store": facts.wsl.driver_store}
        words = f"{' and '.join(missing)} missing in /usr/lib/wsl/lib; the driver store has {where}"
        yield switched_off(facts) or NO_LIBRARIES.found(words, evidence)
    elif _nvml(facts) == BLOCKED_BY_SYSTEM:
        words = f"{facts.nvml.library} fails with NVML_ERROR_OPERATING_SYSTEM (17)"
        yield switched_off(facts) or BLOCKED.found(words, {"library": facts.nvml.library})


def _nvml(facts: Facts) -> int | None:
    """None if NVML cannot be loaded or does not answer: another check judges that."""
    return known(lambda: facts.nvml.init_code)


def summary(facts: Facts) -> str:
    return f"/dev/dxg and the libraries of the Windows driver, kernel {facts.system.kernel}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(*(cause.problem for cause in CAUSES), NO_DXG, NO_LIBRARIES, BLOCKED),
    needs=("wsl-driver",),
)
