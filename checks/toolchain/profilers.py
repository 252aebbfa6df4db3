"""The profilers that are installed are allowed to profile.

What it means
Nsight Systems (nsys) samples the CPU, which the kernel must allow. Nsight Compute (ncu) reads the GPU's performance counters,
which the driver restricts to administrators by default: ERR_NVGPUCTRPERM.

How it is judged
nsys: kernel.perf_event_paranoid is 2 or less. ncu: RmProfilingAdminOnly is 0 in /proc/driver/nvidia/params. A process with
CAP_SYS_ADMIN (root on a host) needs neither; since driver 565, CAP_PERFMON is enough for the counters.

Known exceptions
A profiler that is not installed is not a fault. nsys can trace CUDA without sampling the CPU. Under WSL2, the counters are
enabled in Windows (the NVIDIA Control Panel), which cannot be seen from here.

References
https://developer.nvidia.com/nvidia-development-tools-solutions-ERR_NVGPUCTRPERM-permission-issue-performance-counters
https://docs.kernel.org/admin-guide/sysctl/kernel.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.engines import again
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, fix_on

COUNTERS = (
    "https://developer.nvidia.com/nvidia-development-tools-solutions-ERR_NVGPUCTRPERM-permission-issue-performance-counters"
)
MOST_FOR_SAMPLING = 2
FIRST_WITH_PERFMON = 565
OPTION = "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/nvidia-profiling.conf"
ADD_CAPABILITY = again(
    "Restart the container with permission to profile",
    "run --rm <all_gpus> --cap-add=SYS_ADMIN <image>",
    spec="add the capability SYS_ADMIN to securityContext.capabilities",
    verify="grep CapEff /proc/self/status",
    on=("container",),
)

PARANOID = Problem(
    id="nsys-perf-paranoid",
    title="The kernel does not allow Nsight Systems to sample the CPU",
    why="kernel.perf_event_paranoid is too high for users to sample. CUDA is still traced, but backtraces and thread times are "
    "missing.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    latent=True,
    fixes=(
        Fix(
            "Allow it now and after reboots (on the host)",
            "echo kernel.perf_event_paranoid=2 | sudo tee /etc/sysctl.d/90-nsys.conf && sudo sysctl --system",
            verify="nsys status --environment",
            kind="set",
            where="host",
            needs=("root",),
            undo="sudo rm /etc/sysctl.d/90-nsys.conf",
        ),
        *ADD_CAPABILITY,
    ),
    references=("https://docs.kernel.org/admin-guide/sysctl/kernel.html",),
)

RESTRICTED = Problem(
    id="profiler-counters-restricted",
    title="Nsight Compute may not read the GPU's counters (ERR_NVGPUCTRPERM)",
    why="The driver restricts performance counters to administrators, since counters can reveal what other users compute.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    latent=True,
    fixes=(
        *fix_on(
            "Allow it for all users: set the module option, then reboot",
            verify="grep RmProfilingAdminOnly /proc/driver/nvidia/params",
            debian=f"{OPTION} && sudo update-initramfs -u",
            rhel=f"{OPTION} && sudo dracut --force",
            suse=f"{OPTION} && sudo dracut --force",
            arch=f"{OPTION} && sudo mkinitcpio -P",
            other=f"{OPTION}",
            kind="set",
            reboot=True,
            undos={
                "debian": "sudo rm /etc/modprobe.d/nvidia-profiling.conf && sudo update-initramfs -u",
                "rhel": "sudo rm /etc/modprobe.d/nvidia-profiling.conf && sudo dracut --force",
                "suse": "sudo rm /etc/modprobe.d/nvidia-profiling.conf && sudo dracut --force",
                "arch": "sudo rm /etc/modprobe.d/nvidia-profiling.conf && sudo mkinitcpio -P",
                "other": "sudo rm /etc/modprobe.d/nvidia-profiling.conf",
            },
        ),
        Fix("Profile as root", "sudo -E env PATH=$PATH ncu <python> <program>.py", needs=("root",)),
    ),
    references=(COUNTERS,),
)
IN_CONTAINER = replace(
    RESTRICTED,
    fixes=(
        *ADD_CAPABILITY,
        Fix(
            "On the host: allow it for all users, then reboot",
            OPTION,
            needs=("root", "reboot"),
            where="host",
            undo="sudo rm /etc/modprobe.d/nvidia-profiling.conf",
        ),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if not {"nsys", "ncu"} & set(facts.toolchain.programs):
        raise Skip("neither nsys nor ncu is installed")
    if "nsys" in facts.toolchain.programs:
        yield from sampling(facts)
    if "ncu" in facts.toolchain.programs:
        yield from counters(facts)


def sampling(facts: Facts) -> Iterator[Finding]:
    level = facts.system.perf_event_paranoid
    if level is not None and level > MOST_FOR_SAMPLING and not may(facts, "CAP_SYS_ADMIN", "CAP_PERFMON"):
        message = f"kernel.perf_event_paranoid is {level}; nsys samples the CPU up to {MOST_FOR_SAMPLING}"
        yield PARANOID.found(message, {"level": level})


def counters(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL, Windows controls access to the GPU's counters", Skip.UNSUPPORTED)
    setting = facts.driver.parameters.get("RmProfilingAdminOnly")
    if setting is None:
        raise Skip("no NVIDIA driver is loaded, so nothing restricts profiling")
    perfmon = ("CAP_PERFMON",) if (facts.driver.branch or 0) >= FIRST_WITH_PERFMON else ()
    if setting != "0" and not may(facts, "CAP_SYS_ADMIN", *perfmon):
        in_container = facts.container.engine is not None
        message = f"RmProfilingAdminOnly is {setting}, and this {'container' if in_container else 'user'} lacks CAP_SYS_ADMIN"
        yield (IN_CONTAINER if in_container else RESTRICTED).found(message, {"setting": setting})


def may(facts: Facts, *capabilities: str) -> bool:
    """Whether this process has one of the capabilities. Those in a user namespace have no effect outside it."""
    return bool(facts.container.capabilities & set(capabilities)) and not facts.container.user_namespace


def summary(facts: Facts) -> str:
    names = [name for name in ("nsys", "ncu") if name in facts.toolchain.programs]
    return f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} allowed to profile"


CHECK = Check(judge=judge, summary=summary, problems=(PARANOID, RESTRICTED))
