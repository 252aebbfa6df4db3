"""Which commands show what the collector asks a machine: question (or a pattern of questions) -> commands.

A person types the first command; the others are further forms whose output the readers of texts understand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

SMI = ("nvidia-smi", "nvidia-smi -q", "nvidia-smi -q -x", "nvidia-smi -L", "nvidia-smi --query-gpu=… --format=csv")
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "nvml": SMI,
    "nvml:gpu*": (*SMI, "nvidia-smi dmon"),
    "nvml:peers": ("nvidia-smi topo -m", "nvidia-smi topo -p2p r"),
    "cuda": ("nvidia-smi", "python -m torch.utils.collect_env"),
    "command:nvidia-smi -L": ("nvidia-smi -L",),
    "pci": ("lspci -nnk", "lspci -vvv", "lspci"),
    "packages": ("pip list", "pip freeze", "pip show NAME", "conda list", "python -m torch.utils.collect_env"),
    "conda": ("conda list",),
    "torch": ('python -c "import torch; print(torch.__version__, torch.version.cuda)"', "pip list"),
    "interpreter": ("python -V", "python -m torch.utils.collect_env"),
    "os-packages": ("dpkg -l", "rpm -qa", "apt list --installed"),
    "environment": ("env", "export", "printenv NAME", "echo $NAME"),
    "toolchain": ("nvcc --version", "gcc --version"),
    "command:modinfo nvidia": ("modinfo nvidia",),
    "command:dkms status": ("dkms status",),
    "glob:/var/lib/dkms/nvidia*/*/build/make.log": ("cat /var/lib/dkms/nvidia/VERSION/build/make.log",),
    "file:/proc/modules": ("lsmod", "cat /proc/modules"),
    "file:/proc/meminfo": ("free -h", "cat /proc/meminfo"),
    "file:/proc/version": ("cat /proc/version",),
    "file:/etc/os-release": ("cat /etc/os-release",),
    "file:*": ("cat FILE",),
    "uname": ("uname -a", "uname -r"),
    "secure-boot": ("mokutil --sb-state",),
    "limits": ("ulimit -a", "ulimit -l", "prlimit"),
    "shm": ("df -h /dev/shm",),
    "tmp": ("df -h /tmp",),
    "devices": ("ls -l /dev/nvidia*",),
    "modprobe": ("cat /etc/modprobe.d/FILE", "grep -r nvidia /etc/modprobe.d"),
    "udev-rules": ("cat /etc/udev/rules.d/FILE",),
    "kernel-modules": ("find /lib/modules -name 'nvidia*.ko*'", "modinfo nvidia", "dkms status"),
    "cdi": ("cat /etc/cdi/nvidia.yaml",),
    "docker": ("docker info",),
    "docker-context": ("docker context ls", "docker context show"),
    "container-start": ("docker run …",),
    "runtime-programs": ("which docker nvidia-ctk",),
    "command:systemctl show *": ("systemctl status UNIT", "systemctl is-active UNIT"),
    "command:ldconfig -p": ("ldconfig -p",),
    "command:nvidia-ctk --version": ("nvidia-ctk --version",),
    "command:nvidia-container-cli --version": ("nvidia-container-cli --version",),
    "command:podman --version": ("podman --version",),
    "command:nv-fabricmanager --version": ("nv-fabricmanager --version",),
    "glob:/sys/class/infiniband/*/ports/*/state": ("ibstat", "ibv_devinfo", "ibdev2netdev", "rdma link"),
    "glob:/sys/class/infiniband/*/ports/*/*": ("cat /sys/class/infiniband/DEVICE/ports/1/link_layer",),
    "glob:/sys/class/net/*": ("ip addr",),
    "kernel-log*": ("dmesg", "journalctl -k"),
    "nccl-log": ("NCCL_DEBUG=INFO …",),
    "processes": ("ps aux", "top -b -n 1"),
    "processor": ("lscpu", "grep -c avx /proc/cpuinfo"),
    "cpus": ("nproc",),
    "identity": ("id",),
}
AS_SHOWN = {"processes": "shown-processes", "processor": "shown-cpu", "cpus": "shown-cpus", "identity": "shown-identity"}
"""Questions whose text shows less than the machine answers, and the names under which that part is kept."""

BY_NO_COMMAND: Mapping[str, str] = {
    "cuda:*": "libcuda's own answers, which only a program prints",
    "probe:*": "how the collector fared",
    "reduced": "how the collector fared",
    "text:*": "the text itself",
    "bitsandbytes": "names of files in a package, which are not pasted",
    "onnxruntime": "names of files in a package, which are not pasted",
    "libraries": "every folder of the loader: messages of the loader name the file that matters",
    "library-owners": "every folder of the loader: messages of the loader name the file that matters",
    "wsl*": "folders of WSL; the prompt and the kernel's release show WSL",
    "kernel-config": "a compressed file",
    "boot": "a hash of the boot's id",
    "cache-folders": "which of them this user can write to, only the machine shows",
    "cloud": "files of cloud-init and DMI",
    "cpu-frequency": "files of every processor",
    "cpu-topology": "files of every processor; lscpu is read for the processor's name",
    "disks": "files of every disk",
    "package-sources": "files of APT, which are rarely pasted; apt's own messages name what is wrong",
    "driver-changes": "logs of the package manager, which a person cuts to a few lines",
    "power-supply": "files of every supply; a text shows the state of nvidia-powerd",
    "node-tests": "results of other programs that test a node: dcgmi diag -j, SuperBench, Health Validation, NVSentinel",
    "serials": "numbers that name one machine, asked for only with --serials",
    "infiniband-rates": "ibstat is read for the state of the ports",
    "own-address": "where the machine's own name leads, which only the machine shows",
    "socket-interfaces": "flags of every interface; ip addr is read for their names",
    "network-interfaces": "files of every interface; ip addr is read for their names",
    "container-marks": "files that exist; the prompt and the variables show a container",
    "kubernetes-marks": "files that exist; kubectl shows a cluster",
    "root-filesystem": "files that exist; the prompt shows a container",
    "service-files": "files that exist",
    "command": "what gpudoctor why ran; a text shows the output itself",
    "chosen-python": "how gpudoctor found the Python to examine; the prompt and the paths show which one it is",
    "not-collected": "what gpudoctor check --only had no need to ask",
    "refused-processes": "what happened to gpudoctor itself",
    "no-temporary-folder": "what happened to gpudoctor itself",
    "working-folder": "files next to those of Python; ls shows names without what they hide",
    "job-watch": "what gpudoctor watch saw of a running program",
    "job-hang": "what gpudoctor hang saw of a running program",
    "job-profile": "what gpudoctor profile recorded in a program",
    "home": "df does not say which file system holds the home folder",
    "package-files": "sizes of thousands of files",
    "package-hashes:*": "contents of thousands of files",
    "variable-sources": "lines of profiles and units; which of them count, only the machine shows",
    "licence-tokens": "files with secrets",
    "runtime-file-times": "times of files, which are rarely pasted",
    "runtime-processes": "start times of daemons, which are rarely pasted",
    "nccl-segments": "ages of files in /dev/shm; df shows its size",
    "mounts": "mountinfo; df and the prompt show the parts that matter in a text",
    "cgroup-limits": "all folders of a cgroup; kubectl describe and the kernel log show the limit",
    "broken-python": "the Python did not start",
    "glob:*": "which files exist",
}

BY_GPUDOCTOR = "gpudoctor check -v"
SEEN_IN: Mapping[str, str] = {
    "text:*": "*",
    "command": "the output of the command",
    "nccl-log": "the log of the job",
    "node-tests": "the results of the test program",
    "container-start": "the output of the engine's run command",
    "job-watch": "gpudoctor watch",
    "job-hang": "gpudoctor hang",
    "job-profile": "gpudoctor profile",
    "nvml:gpu*": "nvidia-smi -q",
    "cuda": "cuInit of libcuda.so.1",
    "cuda:*": "libcuda.so.1",
    "glob:/sys/class/net/*": "ip addr",
    "glob:*": "*",
    "file:*": "*",
    "command:systemctl show *": "systemctl status",
    "command:*": "*",
    "kernel-log": "journalctl -k",
    "kernel-log-earlier": "journalctl -k",
    "kernel-modules": "find /lib/modules -name 'nvidia*.ko*'",
    "kernel-config": "/proc/config.gz",
    "modprobe": "/etc/modprobe.d",
    "udev-rules": "/etc/udev/rules.d",
    "cdi": "nvidia-ctk cdi list",
    "package-sources": "grep -rn nvidia /etc/apt/sources.list /etc/apt/sources.list.d",
    "driver-changes": "the log of the package manager, such as /var/log/apt/history.log",
    "libraries": "ldconfig -p and the folders of $LD_LIBRARY_PATH",
    "library-owners": "dpkg -S or rpm -qf",
    "wsl*": "/usr/lib/wsl/lib",
    "boot": "/proc/sys/kernel/random/boot_id",
    "cache-folders": "ls -ld ~/.cache ~/.triton ~/.nv",
    "cgroup-limits": "/sys/fs/cgroup",
    "cloud": "/sys/class/dmi/id",
    "cpu-frequency": "/sys/devices/system/cpu/cpu*/cpufreq",
    "cpu-topology": "/sys/devices/system/cpu",
    "cpus": "taskset -p $$",
    "chosen-python": "which -a python3 python",
    "broken-python": "python3 -V",
    "bitsandbytes": "pip show -f bitsandbytes",
    "onnxruntime": "pip show -f onnxruntime-gpu",
    "package-files": "pip show -f",
    "package-hashes:*": "pip show -f *",
    "disks": "lsblk",
    "home": "df -h ~",
    "infiniband-rates": "ibstat",
    "network-interfaces": "ip addr",
    "socket-interfaces": "ip addr",
    "own-address": "getent hosts $(hostname)",
    "kubernetes-marks": "/etc/kubernetes",
    "container-marks": "/run",
    "power-supply": "/sys/class/power_supply and /sys/firmware/acpi/platform_profile",
    "root-filesystem": "/proc/self/mountinfo",
    "mounts": "/proc/self/mountinfo",
    "licence-tokens": "/etc/nvidia/ClientConfigToken",
    "nccl-segments": "ls -l /dev/shm",
    "runtime-file-times": "ls -l --time-style=full-iso /etc/docker",
    "runtime-processes": "ps -eo lstart,comm",
    "runtime-programs": "which docker podman nvidia-ctk",
    "serials": "nvidia-smi -q",
    "service-files": "ls /etc/nvidia-imex",
    "variable-sources": "grep -n export ~/.profile ~/.bashrc /etc/environment /etc/profile.d/*",
    "working-folder": "ls",
    "no-temporary-folder": "df -h /tmp /dev/shm",
    **dict.fromkeys(("probe:*", "reduced", "refused-processes", "not-collected"), BY_GPUDOCTOR),
}
"""Question -> the command, file or program with which a person sees the answer, if not by the first of `commands`. A * stands for
the rest of the question."""


_SECTION = "nvidia-smi -q -d "
OF_FIELDS = {
    "NvLink*": "nvidia-smi nvlink -s",
    **dict.fromkeys(("Temperature*", "MarginTemperature"), "nvidia-smi -q -d TEMPERATURE"),
    **dict.fromkeys(("Power*", "EnforcedPowerLimit"), "nvidia-smi -q -d POWER"),
    "Current*Reasons": "nvidia-smi -q -d PERFORMANCE",
    "*Clock*": "nvidia-smi -q -d CLOCK",
    "*Ecc*": "nvidia-smi -q -d ECC",
    "RetiredPages*": "nvidia-smi -q -d PAGE_RETIREMENT",
    **dict.fromkeys(("RemappedRows", "RowRemapper*", "RepairStatus"), "nvidia-smi -q -d ROW_REMAPPER"),
    "*RunningProcesses": "nvidia-smi",
    "UtilizationRates": "nvidia-smi -q -d UTILIZATION",
    "*MemoryInfo*": "nvidia-smi -q -d MEMORY",
    "ComputeMode": "nvidia-smi -q -d COMPUTE",
}
"""Part of what NVML answers about a GPU -> the command that shows this part."""


def of_fields(fields: Iterable[str]) -> str:
    """The command that shows the first of these parts for which there is one; for two, if they are sections of one output.

    >>> of_fields(["PciInfo", "NvLinks"]), of_fields(["Name"])
    ('nvidia-smi nvlink -s', 'nvidia-smi -q')
    >>> of_fields(["CurrentClocksEventReasons", "Temperature", "PowerUsage"])
    'nvidia-smi -q -d PERFORMANCE,TEMPERATURE'
    """
    shown = dict.fromkeys(map(_of_field, fields))
    first, second = [*filter(None, shown), SEEN_IN["nvml:gpu*"], ""][:2]
    both = first.startswith(_SECTION) and second.startswith(_SECTION)
    return f"{first},{second.removeprefix(_SECTION)}" if both else first


def _of_field(field: str) -> str:
    return next((command for pattern, command in OF_FIELDS.items() if fnmatchcase(field, pattern)), "")


def seen_in(question: str) -> str:
    """The command or file in which a person sees the answer.

    >>> seen_in("file:/proc/driver/nvidia/params"), seen_in("nvml:gpu3"), seen_in("secure-boot")
    ('/proc/driver/nvidia/params', 'nvidia-smi -q', 'mokutil --sb-state')
    """
    for pattern, shown in SEEN_IN.items():
        if fnmatchcase(question, pattern):
            return shown.replace("*", question.removeprefix(pattern.removesuffix("*"))) if pattern.endswith(":*") else shown
    return next(iter(commands(question)), "")


def commands(question: str) -> tuple[str, ...]:
    """The commands that show the answer; empty if no command does.

    >>> commands("secure-boot")
    ('mokutil --sb-state',)
    """
    return next((found for pattern, found in COMMANDS.items() if fnmatchcase(question, pattern)), ())


def reason(question: str) -> str:
    """Why no command shows a question; "" if that is not known."""
    return next((words for pattern, words in BY_NO_COMMAND.items() if fnmatchcase(question, pattern)), "")
