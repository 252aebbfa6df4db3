"""Windows lends its GPU to this WSL2: /dev/dxg, the driver's libraries, and an adapter that may be opened.

What it means
WSL2 is a virtual machine. Windows shares the GPU with it through one device, /dev/dxg, and lends the libraries of its own
driver in /usr/lib/wsl. There is neither a PCI device nor a kernel module of NVIDIA's.

How it is judged
Without /dev/dxg the causes are ruled out in this order: WSL 1, GPUs switched off in /etc/wsl.conf, a kernel built without
the device's driver, a kernel older than it. With the device, libcuda.so.1 and libnvidia-ml.so.1 must have been lent, and
NVML must not say that the operating system blocks it.

Known exceptions
/dev/dxg is there on a machine without an NVIDIA GPU too (Intel and AMD use it). Outside WSL there is nothing to judge.

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
LENT = ("libcuda.so.1", "libnvidia-ml.so.1")
SMI = "/usr/lib/wsl/lib/nvidia-smi -L"
UPDATE = shut_down_wsl("Update WSL and its kernel, from Windows", verify=SMI, before="wsl.exe --update")

WSL1 = Problem(
    id="wsl1-has-no-gpu",
    title="This is WSL 1, which has no GPU",
    why="WSL 1 translates Linux's system calls and has no virtual devices; only WSL 2 can use the GPU.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "From Windows (PowerShell): convert this distribution; NAME is its name in the list",
            "wsl.exe --list --verbose; wsl.exe --set-version NAME 2",
            risk="disruptive",
            verify=SMI,
        ),
    ),
    references=("https://github.com/microsoft/WSL/issues/6809",),
)

SWITCHED_OFF = Problem(
    id="wsl-gpu-disabled",
    title="The GPU is switched off in /etc/wsl.conf",
    why="[gpu] enabled=false keeps Windows from lending its GPU to this distribution.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Switch it on, then shut WSL down and start it again",
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
    title="This WSL kernel was built without the driver of the shared GPU",
    why="/dev/dxg comes from the kernel's option CONFIG_DXGKRNL, which Microsoft's own kernel has; a custom one was chosen.",
    action=Action.FIX_CONFIG,
    fixes=(
        shut_down_wsl("In Windows: take the line 'kernel=' out of %UserProfile%\\.wslconfig, then"),
        Fix("Build the kernel with CONFIG_DXGKRNL=y", verify="zcat /proc/config.gz | grep DXGKRNL"),
    ),
    references=("https://github.com/zhenruyan/WSL-libre-linux-kernel/issues/5",),
)

OLD_KERNEL = Problem(
    id="wsl-kernel-too-old",
    title="The WSL kernel is too old to share a GPU",
    why="The shared GPU came with kernel 4.19.121 and works well since 5.10.16.3.",
    action=Action.INSTALL,
    fixes=(UPDATE,),
    references=(GUIDE,),
)

NO_DXG = Problem(
    id="wsl-dxg-missing",
    title="Windows lends no GPU to this WSL",
    why="/dev/dxg is missing, and this side of the machine gives no reason. Windows is older than 10 21H2 (build 19044), its "
    "driver is too old or was just replaced, or it has no GPU.",
    action=Action.FIX_CONFIG,
    fixes=(
        UPDATE,
        shut_down_wsl("In Windows: install the newest driver from https://www.nvidia.com/Download, then"),
        Fix("In Windows: does it see the GPU itself?", "nvidia-smi.exe"),
    ),
    references=("https://github.com/NVIDIA/nvidia-docker/issues/1542",),
)

NO_LIBRARIES = Problem(
    id="wsl-windows-driver-missing",
    title="Windows lends no NVIDIA driver libraries",
    why="WSL shares a GPU, but /usr/lib/wsl/lib lacks libcuda or NVML: the NVIDIA driver of Windows is missing, older than R495, "
    "or was replaced while WSL ran. A machine without an NVIDIA GPU looks the same.",
    action=Action.INSTALL,
    fixes=(
        shut_down_wsl("In Windows: install the newest driver from https://www.nvidia.com/Download, then"),
        Fix("In Windows: does it see the GPU itself?", "nvidia-smi.exe", verify=SMI),
    ),
    references=(GUIDE, "https://github.com/NVIDIA/nvidia-docker/issues/1225"),
)

BLOCKED = Problem(
    id="wsl-nvml-blocked-by-os",
    title="GPU access is blocked by the operating system",
    why="The shared adapter cannot be opened. Either Windows runs the GPU in TCC mode (data-center boards), which WSL cannot "
    "use, or WSL and the Windows driver do not fit together.",
    action=Action.FIX_CONFIG,
    fixes=(
        UPDATE,
        Fix(
            "In Windows: which mode is the GPU in, TCC or WDDM?",
            "nvidia-smi.exe --query-gpu=name,driver_model.current --format=csv",
        ),
        Fix(
            "If it is TCC, as administrator in Windows, then restart Windows",
            "nvidia-smi.exe -dm 0",
            needs=("reboot",),
            verify=SMI,
        ),
        shut_down_wsl("In Windows: install the newest driver from https://www.nvidia.com/Download, then"),
    ),
    references=("https://github.com/microsoft/WSL/issues/11865", "https://github.com/microsoft/WSL/issues/9938"),
)


def wsl1(facts: Facts) -> Finding | None:
    return WSL1.found(f"kernel {facts.system.kernel} is that of WSL 1") if facts.system.wsl == 1 else None


def switched_off(facts: Facts) -> Finding | None:
    section = re.search(r"(?ims)^\s*\[gpu\]\s*$(.*?)(?=^\s*\[|\Z)", facts.wsl.configuration or "")
    setting = re.search(r"(?im)^\s*enabled\s*=\s*false\b", section[1] if section else "")
    return SWITCHED_OFF.found("/etc/wsl.conf says [gpu] enabled=false") if setting else None


def no_dxgkrnl(facts: Facts) -> Finding | None:
    built_with, kernel = facts.wsl.kernel_config_dxgkrnl, facts.system.kernel
    if built_with is False:
        return NO_DXGKRNL.found(f"kernel {kernel} has no CONFIG_DXGKRNL", {"kernel": kernel})
    if built_with is None and "microsoft-standard" not in kernel:
        return NO_DXGKRNL.found(f"{kernel} is no kernel of Microsoft's", {"kernel": kernel}, confidence=Confidence.LIKELY)
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
        raise Skip("what a container was given is judged by container-gpu-access")
    missing = [name for name in LENT if name not in facts.wsl.library_directory]
    if not facts.wsl.has_dxg:
        yield from first_cause(CAUSES, facts, NO_DXG.found(f"/dev/dxg is not there, kernel {facts.system.kernel}"))
    elif missing:
        where = ", ".join(facts.wsl.driver_store) or "nothing"
        evidence = {"missing": missing, "driver_store": facts.wsl.driver_store}
        yield NO_LIBRARIES.found(f"/usr/lib/wsl/lib lacks {' and '.join(missing)}; the driver store has {where}", evidence)
    elif _nvml(facts) == BLOCKED_BY_SYSTEM:
        yield BLOCKED.found(f"{facts.nvml.library} says NVML_ERROR_OPERATING_SYSTEM (17)", {"library": facts.nvml.library})


def _nvml(facts: Facts) -> int | None:
    """NVML that cannot be loaded or does not answer has a check of its own."""
    return known(lambda: facts.nvml.init_code)


def summary(facts: Facts) -> str:
    return f"/dev/dxg and the libraries of the Windows driver, kernel {facts.system.kernel}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(*(cause.problem for cause in CAUSES), NO_DXG, NO_LIBRARIES, BLOCKED),
    needs=("wsl-driver",),
)
