"""Fixes that several checks offer, each with one command and one risk."""

from __future__ import annotations

from collections.abc import Mapping

from gpudoctor.model import Fix, Kind, Place, fix_on

# A pattern that matches nothing is no error for apt, unlike a glob or a regular expression. CUDA's own packages and the container
# toolkit stay.
APT_DRIVER = (
    '?installed?name("^(lib)?nvidia-|^cuda-drivers|^libcuda1")?not(?name("container|docker|^nvidia-cuda-|profiler|opencl-dev"))'
)
HOST, ROOT = ("host",), ("root",)
PHYSICAL, BMC = ("physical",), ("bmc",)  # its boards are within reach; ipmitool reaches its controller
BY_HAND: Mapping[str, Kind] = {"nixos": "set", "other": "manual"}


def look(title: str, command: str, verify: str = "", on: tuple[str, ...] = (), root: bool = False, where: Place = "here") -> Fix:
    """A fix that only reads."""
    return Fix(title, command, needs=ROOT * root, verify=verify, on=on, kind="read", where=where)


FANS = look("In a server: look for failed fans", "sudo ipmitool sdr type Fan; sudo ipmitool sel list | tail", on=BMC, root=True)
BMC_ON_POWER = look(
    "Read the BMC's sensors and event log about power",
    "sudo ipmitool sel list | tail -n 30; sudo ipmitool sdr type 'Power Supply'",
    on=BMC,
    root=True,
)
ASK_OWNER = Fix("Ask the owner of the host: this cannot be repaired from inside a container", on=("container",))
ASK_PROVIDER = Fix(
    "Ask the provider, or whoever runs the hypervisor: hardware and firmware cannot be repaired from inside a virtual machine",
    on=("vm",),
)
ASK_OWNER_OF_GPU = Fix("Ask the owner of the host: this cannot be done from inside a container", on=("container", "wsl2"))
NEWER_DRIVER = Fix("Install a newer driver, then reboot", needs=("root", "reboot"), verify="nvidia-smi", recipe="driver")
SLOWED_LAUNCHES = look("Look for variables that slow down kernel launches", "env | grep -E 'CUDA_|NSIGHT|PROFILE'")
PROCESSOR = look("Check whether the processor is busy, and how many cores this process may use", "uptime; nproc; taskset -pc $$")
GOVERNOR = look(
    "Check whether the processor saves power; the governor should be performance",
    "cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor | sort | uniq -c",
)


def install_on(
    title: str,
    verify: str = "",
    risk: str = "safe",
    needs: tuple[str, ...] = (),
    recipe: str = "",
    reboot: bool = False,
    kinds: Mapping[str, Kind] = BY_HAND,
    undos: Mapping[str, str] | None = None,
    **commands: str,
) -> tuple[Fix, ...]:
    """Fixes with each platform's package manager, as root. On an unknown platform, a person must first download an installer."""
    return fix_on(title, verify, risk, ("root", *needs), "", recipe, "install", reboot, kinds, undos, **commands)


def reset(title: str = "Stop what uses the GPU, then reset it", gpu: str = "<address>", verify: str = "") -> Fix:
    """gpu: the GPU to reset, as nvidia-smi accepts it; "" for all."""
    return reset_by(title, f"sudo nvidia-smi --gpu-reset{f' -i {gpu}' if gpu else ''}", verify)


def reset_by(title: str, command: str, verify: str = "") -> Fix:
    return Fix(title, command, "disruptive", ("root", "drain"), verify, HOST, kind="reset")


def reboot(title: str = "Reboot", verify: str = "") -> Fix:
    """Only where the machine itself can be rebooted, not in a container."""
    return Fix(title, verify=verify, on=HOST, reboot=True)


def airflow(verify: str) -> Fix:
    title = "Improve airflow: check dust, fans, neighbouring cards, room and rack temperature"
    return Fix(title, verify=verify, on=(*PHYSICAL, "container", "wsl2"))


def power_off(title: str, verify: str = "", needs: tuple[str, ...] = ROOT) -> Fix:
    return Fix(title, "sudo poweroff", "disruptive", needs, verify, HOST, kind="reset")


def shut_down_wsl(title: str, verify: str = "", on: tuple[str, ...] = (), before: str = "") -> Fix:
    """before: the command to run first."""
    command = " && ".join(filter(None, (before, "wsl.exe --shutdown")))
    return Fix(title, command, "disruptive", verify=verify, on=on, kind="reset")


def kernel_log(title: str, grep: str, on: tuple[str, ...] = (), verify: str = "") -> Fix:
    """grep: its arguments, and the commands that its output is piped through."""
    return look(title, f"sudo dmesg | grep {grep}", verify, on, root=True)


def vendor_test(title: str, options: str, risk: str = "safe", verify: str = "") -> Fix:
    return Fix(title, f"dcgmi diag {options}", risk, ("drain",), verify, HOST, kind="read")


def report_to_vendor(title: str, on: tuple[str, ...] = HOST) -> Fix:
    return Fix(title, "sudo nvidia-bug-report.sh", needs=ROOT, on=on, kind="set")
