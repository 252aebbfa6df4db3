"""A machine with GPUs for every program at once: a mount namespace with a driver's files, and stub driver libraries.

The stubs are those of the tests (tests/stubs), under the names and in the folder of the real ones; nvidia-smi is a script. What
no program can tell from a real machine without a GPU's registers is left out: CUDA contexts are empty. Needs root, gcc and Linux.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import stat
import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

STUBS = Path(__file__).parent.parent / "tests" / "stubs"
LIBRARIES = f"/usr/lib/{platform.machine()}-linux-gnu"
NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
NVIDIA, DISPLAY = 0x10DE, 0x030200
CONTROL_MAJOR, MEMORY_MAJOR = 195, 238
MODULES = Path("/proc/modules")  # a kernel without modules has none
PARAMETERS = "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\nEnableGpuFirmware: 18\n"
BOUND = ("/proc/driver", str(MODULES), "/proc/devices", "/proc/meminfo", "/sys/module", "/sys/bus/pci/devices")
GIB_FOR_EACH_GPU = 256
NOT_COMMUNICATING = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)


@dataclass(frozen=True)
class Gpu:
    name: str
    device: int
    compute_major: int
    memory_mib: int


H100 = Gpu("NVIDIA H100 80GB HBM3", 0x2330, 9, 81920)
RTX_5090 = Gpu("NVIDIA GeForce RTX 5090", 0x2B85, 12, 81920)


@dataclass(frozen=True)
class Machine:
    """module: the version of the loaded kernel module where it is not the libraries'; empty: none is loaded.
    stub: how the libraries misbehave (tests/stubs/stub.h).
    smi: exit code and words of nvidia-smi; None: as on a healthy one. docker: whether the machine's own Docker is seen.
    modules: the kernel releases that have the driver's module on disk. libcuda: the version that libcuda.so.1 leads to."""

    gpu: Gpu | None = H100
    gpus: int = 1
    driver: str = "580.159.04"
    cuda: int = 13000
    module: str | None = None
    bound: str = "nvidia"
    stub: Mapping[str, str] = field(default_factory=dict)
    smi: tuple[int, str] | None = None
    smi_hangs: bool = False
    toolkit: bool = False
    docker: bool = False
    modules: tuple[str, ...] = ()
    libcuda: str = ""

    @property
    def loaded(self) -> str:
        return self.driver if self.module is None else self.module

    @property
    def environment(self) -> dict[str, str]:
        """What a program on this machine must have in its environment for the stubs to behave as told."""
        if self.gpu is None:
            return {}
        told = {name: value for name, value in self.stub.items() if name != "STUB_VALUES"}
        counts = f"nvmlDeviceGetCount_v2={self.gpus},cuDeviceGetCount={self.gpus},cuDriverGetVersion={self.cuda}"
        versions = f"nvmlSystemGetCudaDriverVersion={self.cuda},nvmlSystemGetCudaDriverVersion_v2={self.cuda}"
        return {**told, "STUB_VALUES": ",".join(filter(None, (self.stub.get("STUB_VALUES"), counts, versions)))}


def enter(machine: Machine, folder: Path) -> None:
    """From here on, this process and those that it starts are on that machine. folder: where its files may be written."""
    own_mounts()
    write(machine, folder)
    if not machine.docker:
        mount("-t", "tmpfs", "none", "/run")
    hide(machine, folder)
    if machine.gpu is None:
        return
    for top in ("/usr/lib", "/usr/bin"):
        mount("-t", "overlay", "none", top, "-o", f"lowerdir={folder}{top}:{top}")
    for path in (*BOUND, "/var/lib/dpkg/status"):
        if (folder / path[1:]).exists():
            mount("--bind", f"{folder}{path}", path)
    devices(machine, folder)
    subprocess.run(["ldconfig", "-C", f"{folder}/ld.so.cache"], check=True, stderr=subprocess.DEVNULL)
    mount("--bind", f"{folder}/ld.so.cache", "/etc/ld.so.cache")


def own_mounts() -> None:
    """What this process mounts from here on, nobody else sees."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "no mount namespace: " + os.strerror(ctypes.get_errno()))
    mount("--make-rprivate", "/")


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def write(machine: Machine, folder: Path) -> None:
    for path, text in files(machine):
        file = folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755 if "/bin/" in path else 0o644)
    if machine.gpu:
        libraries(machine, machine.gpu, folder / LIBRARIES.lstrip("/"))
    for index in range(machine.gpus if machine.gpu else 0):
        function = folder / "sys/bus/pci/devices" / address(index)
        (function / "config").write_bytes(struct.pack("<HH", NVIDIA, machine.gpu.device if machine.gpu else 0).ljust(256, b"\0"))
        if machine.bound:
            (function / "driver").symlink_to(f"../../../bus/pci/drivers/{machine.bound}")


def address(index: int) -> str:
    return f"0000:00:{6 + index:02x}.0"


def files(machine: Machine) -> Iterator[tuple[str, str]]:
    if machine.gpu is None:
        return
    yield "/usr/bin/nvidia-smi", smi(machine, machine.gpu)
    for name in ("sys/module", "proc/driver", "sys/bus/pci/devices"):
        yield f"/{name}/.keep", ""
    known = Path("/proc/devices").read_text()
    yield "/proc/devices", with_nodes(known) if machine.loaded else known
    yield "/proc/meminfo", memory(machine.gpus * GIB_FOR_EACH_GPU)
    if MODULES.exists():
        yield str(MODULES), "".join(modules(machine)) + MODULES.read_text()
    for index in range(machine.gpus):
        for name, value in pci(machine.gpu).items():
            yield f"/sys/bus/pci/devices/{address(index)}/{name}", value + "\n"
    if machine.loaded:
        yield from module_files(machine, machine.gpu)
    for release in machine.modules:
        yield f"/usr/lib/modules/{release}/updates/dkms/nvidia.ko", ""
    if machine.modules:
        yield f"/usr/lib/modules/{platform.release()}/kernel/.keep", ""
        yield "/var/lib/dpkg/status", Path("/var/lib/dpkg/status").read_text() + packages(machine)


def modules(machine: Machine) -> Iterator[str]:
    if machine.loaded:
        yield "nvidia_uvm 1830912 0 - Live 0x0000000000000000 (O)\nnvidia 14299136 1 nvidia_uvm, Live 0x0000000000000000 (O)\n"
    elif machine.bound == "nouveau":
        yield "nouveau 2420736 0 - Live 0x0000000000000000\n"


def module_files(machine: Machine, gpu: Gpu) -> Iterator[tuple[str, str]]:
    flavour = "NVIDIA UNIX Open Kernel Module for x86_64"
    version = f"NVRM version: {flavour}  {machine.loaded}  Release Build  (builder@)  \nGCC version:  gcc version 12.2.0\n"
    yield "/proc/driver/nvidia/version", version
    yield "/proc/driver/nvidia/params", PARAMETERS
    yield "/sys/module/nvidia/version", machine.loaded + "\n"
    yield "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "N\n"
    for index in range(machine.gpus):
        text = (
            f"Model: \t\t {gpu.name}\nGPU UUID: \t GPU-{index:08x}-0000-4000-8000-{0:012x}\nBus Location: \t {address(index)}\n"
        )
        text += f"Device Minor: \t {index}\nGPU Firmware: \t {machine.loaded}\nGPU Excluded:\t No\n"
        yield f"/proc/driver/nvidia/gpus/{address(index)}/information", text


def pci(gpu: Gpu) -> dict[str, str]:
    speed = {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
    empty = " ".join(["0x" + "0" * 16] * 3)
    bars = ["0x0000102002000000 0x0000102002ffffff 0x000000000014220c", empty]
    bars += ["0x0000100000000000 0x0000101fffffffff 0x000000000014220c", empty]
    bars += ["0x0000102000000000 0x0000102001ffffff 0x000000000014220c", empty]
    numbers = {"vendor": f"{NVIDIA:#06x}", "device": f"{gpu.device:#06x}", "class": f"{DISPLAY:#08x}"}
    subsystem = {"subsystem_vendor": f"{NVIDIA:#06x}", "subsystem_device": "0x16c1", "numa_node": "-1"}
    return {**numbers, **subsystem, **speed, "current_link_width": "16", "max_link_width": "16", "resource": "\n".join(bars)}


def packages(machine: Machine) -> str:
    names = ("nvidia-driver", "nvidia-kernel-open-dkms", "nvidia-smi", "libcuda1", "dkms")
    shape = "\nPackage: {}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {}-1\n"
    return "".join(shape.format(name, "3.0.10-8" if name == "dkms" else machine.driver) for name in names)


def memory(gib: int) -> str:
    names = "MemTotal|MemFree|MemAvailable"
    return re.sub(rf"^({names}): .*$", rf"\1: {gib << 20} kB", Path("/proc/meminfo").read_text(), flags=re.MULTILINE)


def with_nodes(text: str) -> str:
    lines = f"{CONTROL_MAJOR} nvidia\n{CONTROL_MAJOR} nvidiactl\n{MEMORY_MAJOR} nvidia-uvm\n"
    return text.replace("\n\nBlock", f"\n{lines}\nBlock", 1)


def smi(machine: Machine, gpu: Gpu) -> str:
    if machine.smi_hangs:
        return "#!/bin/sh\nexec sleep 1000\n"
    if machine.smi:
        code, words = machine.smi
        return f"#!/bin/sh\ncat <<'END'\n{words}END\nexit {code}\n"
    numbers = range(machine.gpus)
    listed = "".join(f"GPU {i}: {gpu.name} (UUID: GPU-{i:08x}-0000-4000-8000-{0:012x})\n" for i in numbers)
    asked = "".join(f"{i}, {gpu.name}, {gpu.memory_mib} MiB, {gpu.compute_major}.0\n" for i in numbers)
    cuda = f"{machine.cuda // 1000}.{machine.cuda % 1000 // 10}"
    table = f"| NVIDIA-SMI {machine.driver}   Driver Version: {machine.driver}   CUDA Version: {cuda} |\n"
    branches = (("-L", listed), ("*query-gpu*", asked), ("*", table))
    body = "".join(f"{pattern}) cat <<'END'\n{text}END\n;;\n" for pattern, text in branches)
    return f'#!/bin/sh\ncase "$*" in\n{body}esac\n'


def libraries(machine: Machine, gpu: Gpu, folder: Path) -> None:
    """libnvidia-ml and libcuda of the driver, linked as its packages do."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"DRIVER": f'"{machine.driver}"', "NAME": f'"{gpu.name}"', "COMPUTE_MAJOR": str(gpu.compute_major)}
    values["PCI_ID"] = f"{gpu.device << 16 | NVIDIA:#x}"
    flags = ["-std=c11", "-D_DEFAULT_SOURCE", "-shared", "-fPIC", *(f"-D{name}={value}" for name, value in values.items())]
    for source, name in (("nvml.c", "libnvidia-ml.so"), ("cuda.c", "libcuda.so")):
        real = f"{name}.{machine.driver}"
        subprocess.run(["gcc", *flags, f"-Wl,-soname,{name}.1", "-o", folder / real, STUBS / source], check=True)
        (folder / f"{name}.1").symlink_to(real)
        (folder / name).symlink_to(f"{name}.1")
    if machine.libcuda:
        shutil.copy(folder / f"libcuda.so.{machine.driver}", folder / f"libcuda.so.{machine.libcuda}")
        (folder / "libcuda.so.1").unlink()
        (folder / "libcuda.so.1").symlink_to(f"libcuda.so.{machine.libcuda}")
    for name in ("libnvidia-ptxjitcompiler", "libnvidia-nvvm"):
        shutil.copy(folder / f"libcuda.so.{machine.driver}", folder / f"{name}.so.{machine.driver}")
        (folder / f"{name}.so.1").symlink_to(f"{name}.so.{machine.driver}")


def hide(machine: Machine, folder: Path) -> None:
    """Takes this machine's own toolkits and Docker away: a whiteout of overlayfs is a character device 0:0."""
    own = Path("/usr/local")
    toolkits = [] if machine.toolkit else [*own.glob("cuda*"), *own.glob("bin/nvcc"), *own.glob("bin/ptxas")]
    docker = [] if machine.docker else [*own.glob("bin/docker*")]
    layer = folder / "hidden"
    (layer / "bin").mkdir(parents=True, exist_ok=True)
    for path in toolkits + docker:
        os.mknod(layer / path.relative_to(own), stat.S_IFCHR, os.makedev(0, 0))
    mount("-t", "overlay", "none", str(own), "-o", f"lowerdir={layer}:{own}")


def devices(machine: Machine, folder: Path) -> None:
    new = new_devices(folder)
    if machine.loaded:
        for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
            node(new / name, Path("/dev/null").stat().st_rdev)  # which opens: there is no driver behind the real numbers
        for index in range(machine.gpus):
            node(new / f"nvidia{index}", os.makedev(CONTROL_MAJOR, index))
    mount("--move", str(new), "/dev")


def new_devices(folder: Path) -> Path:
    """A /dev without GPUs, to be moved there: nodes made in the real one would be there for everybody."""
    new = folder / "dev"
    new.mkdir()
    mount("-t", "tmpfs", "none", str(new))
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        node(new / name, Path(f"/dev/{name}").stat().st_rdev)
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, target in links.items():
        (new / name).symlink_to(target)
    for name in ("shm", "pts"):
        (new / name).mkdir()
        mount("--rbind", f"/dev/{name}", str(new / name))
    return new


def node(path: Path, number: int) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, number)
    path.chmod(0o666)


MISMATCHED = Machine(
    driver="580.173.02",
    module="580.159.04",
    stub={"STUB_CODES": "nvmlInitWithFlags=18,cuInit=803"},
    smi=(18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.173\n"),
)
