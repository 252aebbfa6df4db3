"""What only a text shows: a part of a list, another process's state, the date. A machine is not asked for these."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from gpudoctor.facts.replies import Replies
from gpudoctor.facts.shown_clusters import ShownClusters
from gpudoctor.facts.shown_hosts import ShownHosts
from gpudoctor.facts.shown_jobs import ShownJobs


class Shown(ShownClusters, ShownHosts, ShownJobs):
    """The parts of outputs in a text; empty if a text does not show them."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    def _value(self, name: str, otherwise: Any) -> Any:
        reply = self._replies.starting_with(name).get(name)
        return reply.value if reply and reply.status == "ok" else otherwise

    def output(self, kind: str) -> str:
        """The rows of an output that is kept as it is; "" if the text does not show it."""
        return str(self._value("shown-outputs", {}).get(kind, ""))

    @cached_property
    def modules(self) -> Mapping[str, list[str]]:
        """lsmod | grep: {"asked": [...], "loaded": [...]}."""
        return dict(self._value("shown-modules", {"asked": [], "loaded": []}))

    def is_loaded(self, module: str) -> bool | None:
        """None if the text does not show it."""
        if module in self.modules["loaded"]:
            return True
        return False if any(word in module for word in self.modules["asked"]) else None

    @cached_property
    def graphics_mode(self) -> tuple[str, str]:
        """The tool and the mode that it reports on a laptop with two GPUs; empty if the text does not show them."""
        by_rule = self._value("shown-graphics-rule", {"tool": "", "mode": ""})
        shown = self._value("shown-graphics-mode", by_rule)
        return shown["tool"], shown["mode"]

    @cached_property
    def xorg_devices(self) -> Mapping[str, Mapping[str, str]]:
        """Identifier -> the options of a device in Xorg's configuration, in small letters: driver, busid."""
        return dict(self._value("shown-xorg-devices", {}))

    @cached_property
    def cpu_clocks(self) -> Mapping[str, Any]:
        """most and allowed, in MHz, and the governor; empty if the text does not show them."""
        return dict(self._value("shown-cpu-clocks", {}))

    @cached_property
    def cpu_scaling(self) -> Mapping[str, str]:
        """governor and driver of the CPU's clock, from files of cpufreq."""
        return dict(self._value("shown-cpu-scaling", {}))

    @cached_property
    def every_cpu(self) -> int:
        """The CPUs of the machine, from nproc --all and lscpu; 0 if the text does not show them."""
        return int(self._value("shown-every-cpu", 0))

    @cached_property
    def allowed_cpus(self) -> int:
        """The CPUs that a process may use, from nproc and taskset; 0 if the text does not show them."""
        counts = [len(cpus) for cpus in self.pinned.values() if cpus]
        return min([*counts, int(self._value("shown-cpus", 0) or 1 << 30)]) % (1 << 30)

    @cached_property
    def lacks_libcuda(self) -> bool:
        """A search for libcuda in the loader's cache found nothing."""
        return bool(self._value("shown-no-libcuda", False))

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """The kernels that have a folder in /lib/modules, or that the installed package has."""
        return tuple(self._value("shown-kernels", ()))

    @cached_property
    def flatpak_drivers(self) -> tuple[str, ...]:
        """The releases of NVIDIA's driver for which flatpak has a GL runtime."""
        return tuple(self._value("shown-flatpak-drivers", {}))

    @cached_property
    def nix_drivers(self) -> tuple[str, ...]:
        """The releases of the driver in paths of /nix/store."""
        return tuple(self._value("shown-nix-drivers", {}))

    @cached_property
    def library_links(self) -> Mapping[str, str]:
        """Path -> target of the links to the driver's libraries, from ls -l."""
        return dict(self._value("shown-library-links", {}))

    @cached_property
    def load_of_jetson(self) -> int:
        """The highest load of a Jetson's GPU in tegrastats, in percent."""
        return int(self._value("shown-tegra-load", 0))

    @cached_property
    def programs(self) -> tuple[Mapping[str, Any], ...]:
        """The programs on GPUs, from nvidia-smi --query-compute-apps: pid, name, mib."""
        return tuple(self._value("shown-programs", ()))

    @cached_property
    def processes(self) -> Mapping[str, Mapping[str, str]]:
        """pid -> state, command and user, from ps."""
        return dict(self._value("shown-processes", {}))

    @cached_property
    def holders(self) -> Mapping[str, str]:
        """pid -> name of the processes that have a GPU's device open, from fuser."""
        return dict(self._value("gpu-holders", {}))

    @cached_property
    def answers(self) -> Mapping[str, str]:
        """Expression -> value, in Python: torch.cuda.is_available() and so on."""
        return dict(self._value("python-answers", {}))

    @cached_property
    def node(self) -> Mapping[str, int] | None:
        """The GPUs in a Kubernetes node's capacity and allocatable resources."""
        node: Mapping[str, int] | None = self._value("kubernetes-node", None)
        return node

    @cached_property
    def identity(self) -> Mapping[str, Any] | None:
        """uid, gid and groups, from id."""
        identity: Mapping[str, Any] | None = self._value("shown-identity", None)
        return identity

    @cached_property
    def year(self) -> int | None:
        year: int | None = self._value("shown-year", None)
        return year

    @cached_property
    def disks(self) -> Mapping[str, Mapping[str, int]]:
        """Mount point -> size, used and free bytes, from df."""
        return dict(self._value("disks", {}))

    @cached_property
    def free_inodes(self) -> Mapping[str, int]:
        """Mount point -> free inodes, from df -i."""
        return dict(self._value("inodes", {}))

    @cached_property
    def nodes(self) -> Mapping[str, Mapping[str, Any]]:
        """Path -> a device node, from ls -l."""
        return dict(self._value("devices", {}))

    @cached_property
    def fabric(self) -> str:
        """The state of the NVSwitch fabric, in small letters; "" if the text does not show it."""
        return str(self._value("shown-fabric", ""))

    @cached_property
    def libcuda(self) -> tuple[str, ...]:
        """The paths of libcuda.so.1 in the loader's cache; it takes the first."""
        return tuple(self._value("shown-libcuda", ()))

    @cached_property
    def memory(self) -> Mapping[str, float] | None:
        """Shares of the host's memory: available, and of swap, if there is any: swap_free."""
        memory: Mapping[str, float] | None = self._value("shown-memory", None)
        return memory

    @cached_property
    def pinned(self) -> Mapping[str, tuple[int, ...]]:
        """pid -> the CPUs that it may use, from taskset and /proc/PID/status."""
        return {pid: tuple(cpus) for pid, cpus in self._value("shown-affinity", {}).items()}

    @cached_property
    def near_cpus(self) -> Mapping[str, Mapping[str, Any]]:
        """Index of a GPU -> cpus and node, its NUMA node and the CPUs of it, from nvidia-smi topo -m."""
        return dict(self._value("shown-near-cpus", {}))

    @cached_property
    def power_mode(self) -> str:
        """The mode that nvpmodel reports on a Jetson."""
        return str(self._value("shown-power-mode", ""))

    @cached_property
    def has_no_devices(self) -> bool:
        return bool(self._value("no-devices", False))

    @cached_property
    def system_packages(self) -> tuple[str, ...]:
        """The words by which the list of system packages was filtered."""
        return tuple(self._value("os-packages-shown", ()))

    @cached_property
    def is_windows(self) -> bool:
        """The text is from Windows, and nothing in it from a Linux."""
        linux = ("shown-linux", "uname", "file:/etc/os-release", "file:/proc/version")
        return bool(self._value("shown-windows", False)) and not any(self._value(name, None) for name in linux)

    @cached_property
    def is_mac(self) -> bool:
        """The text is from a Mac, which has no CUDA."""
        return bool(self._value("shown-mac", False)) and not self._value("nvml", None)

    @cached_property
    def is_notebook(self) -> bool:
        """The text names paths or modules of Colab or Kaggle."""
        return bool(self._value("shown-notebook", False))

    @cached_property
    def pythons(self) -> Mapping[str, str]:
        """Paths: python and pip (as which prints them), pip_site, conda (the environment of a list); pip_version: its Python."""
        return dict(self._value("shown-pythons", {}))

    @cached_property
    def executables(self) -> tuple[str, ...]:
        """The values of sys.executable in the sessions of the text."""
        return tuple(self._value("shown-executables", {}))

    @cached_property
    def listed(self) -> Mapping[str, str]:
        """Package -> version in the lists of pip and conda."""
        return dict(self._value("shown-listed", {}))

    @property
    def reported(self) -> str:
        """PyTorch's version in a report of an environment; "" without one."""
        return str(self._value("shown-reported", {}).get("torch", ""))

    @cached_property
    def runtime(self) -> Mapping[str, Any]:
        """name; build and driver: CUDA releases such as 12060, from cupy.show_config() and numba -s."""
        return dict(self._value("shown-runtime", {}))

    @cached_property
    def cmake(self) -> Mapping[str, str]:
        """nvcc and toolkit: their releases, such as 12.4; path of nvcc, and folder of the toolkit."""
        return dict(self._value("shown-cmake", {}))

    @cached_property
    def unmet(self) -> Mapping[str, Mapping[str, str]]:
        """Package -> its unmet requirement, and the name and version that are installed instead, from pip check."""
        return dict(self._value("shown-unmet", {}))

    @cached_property
    def toolkits(self) -> tuple[str, ...]:
        """The folders of CUDA toolkits that ls lists below /usr/local."""
        return tuple(self._value("shown-toolkits", ()))

    @cached_property
    def ollama_on_cpu(self) -> bool | None:
        """ollama ps: whether a model runs on the CPU, in whole or in part."""
        on_cpu: bool | None = self._value("shown-ollama", None)
        return on_cpu

    @cached_property
    def has_gpu_request(self) -> bool | None:
        """docker inspect: whether the container was started with a request for GPUs."""
        request: bool | None = self._value("shown-request", None)
        return request

    @cached_property
    def wsl(self) -> Mapping[str, Any]:
        """wsl --list --verbose: {"versions": {name: 1 or 2}, "default": name}."""
        return dict(self._value("shown-wsl", {"versions": {}, "default": ""}))

    @cached_property
    def is_in_container(self) -> bool:
        """A prompt of the text is a container's."""
        return bool(self._value("prompt-of-container", ""))
