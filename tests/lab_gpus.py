"""A machine that seems to have GPUs: what its kernel, its driver's libraries and its device nodes show.

There are no GPUs: the nodes have the driver's numbers and no driver behind them, and the libraries are the stubs. What a program
sees of it, it sees in a mount namespace of its own (`argv`) or in a container that tests/stubs/lab-hook has had in hand.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import lab_cdi

STUBS = Path(__file__).parent / "stubs"
MODEL = "NVIDIA H100 80GB HBM3"
MOST = 8
MAJOR, UVM_MAJOR = 195, 510  # assigned to the driver; one of those that the kernel hands out, on few machines in use
PARAMETERS = {"ModifyDeviceFiles": 1, "DeviceFileUID": 0, "DeviceFileGID": 0, "DeviceFileMode": 438, "RmProfilingAdminOnly": 1}
PCI = {
    "vendor": "0x10de",
    "device": "0x2330",
    "subsystem_vendor": "0x10de",
    "subsystem_device": "0x16c1",
    "class": "0x030200",
    "numa_node": "-1",
    "current_link_speed": "32.0 GT/s PCIe",
    "max_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "16",
    "max_link_width": "16",
}
CUDA = {
    580: "13.0",
    575: "12.9",
    570: "12.8",
    560: "12.6",
    550: "12.4",
    535: "12.2",
    525: "12.0",
    515: "11.7",
    470: "11.4",
    450: "11.0",
}

# /dev and the like are laid over, and what lies below them is put back.
# Arguments: the machine's folder, the folders to lay over, the command.
ENTER = """\
set -e
home=$1 over=$2 where=$PWD
shift 2
mkdir -p "$home/work" && mount --rbind /dev "$home/work"
mount -t overlay -o "ro,lowerdir=$home/dev:/dev" overlay /dev
for below in pts shm mqueue; do mountpoint -q "$home/work/$below" && mount --rbind "$home/work/$below" "/dev/$below"; done
umount --lazy --recursive "$home/work" 2>/dev/null || umount --lazy "$home/work"
for folder in /sys/bus/pci/devices /sys/module; do mount -t overlay -o "ro,lowerdir=$home$folder:$folder" overlay $folder; done
for folder in $over; do mount -t overlay -o "ro,lowerdir=$home/over$folder:$folder" overlay "$folder"; done
mount --bind "$home/proc/driver" /proc/driver
for file in devices modules; do
  test ! -e /proc/$file || test ! -e "$home/proc/$file" || mount --bind "$home/proc/$file" /proc/$file
done
ldconfig -C "$home/ld.so.cache" 2>/dev/null
mount --bind "$home/ld.so.cache" /etc/ld.so.cache
cd "$where"
exec "$@"
"""


@dataclass(frozen=True)
class Settings:
    """What the machine has, and what its container hook does (tests/stubs/lab-hook reads them)."""

    gpus: int = 2
    driver: str = "580.159.04"
    given: int | None = None  # how many GPUs reach a container; all of them for None
    fails: str = ""  # no-library, not-loaded, mismatch, cgroup, cdi-mode
    silent: bool = False  # the request is accepted, and no GPU arrives
    loaded: bool = True  # the kernel has the driver: else no nodes, and nothing in /proc and /sys but the PCI devices

    @property
    def cuda(self) -> str:
        branch = int(self.driver.split(".")[0])
        return next((cuda for first, cuda in CUDA.items() if branch >= first), "11.0")


class Machine:
    """A folder that holds it all; `set` changes what it has, at once for those who look."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings()
        for part in ("hookbin", "bin", "work"):
            (folder / part).mkdir(parents=True)
        self._program("hookbin/nvidia-container-runtime-hook", "lab-hook")
        self._program("hookbin/nvidia-container-runtime", "lab-runtime")
        self._program("hookbin/runc", "lab-runc")
        (folder / "enter").write_text(ENTER)
        shutil.copy(STUBS / "lab-nvidia-smi", folder / "bin" / "nvidia-smi")
        (folder / "bin" / "nvidia-smi").chmod(0o755)
        for source, name in (("lab_nvml.c", "libnvidia-ml"), ("lab_cuda.c", "libcuda")):
            _compile(STUBS / source, folder / "compiled" / name)
        self.set()

    @property
    def cdi(self) -> Path:
        """The specification of its GPUs; `set` writes it anew."""
        return self.folder / "cdi" / "nvidia.yaml"

    def set(self, **changes: object) -> None:
        """Another number of GPUs, driver or behaviour; what is not named is as it is at first."""
        self.settings = replace(Settings(), **changes)  # type: ignore[arg-type]
        self._libraries()
        self._nodes()
        self._proc()
        self._sys()
        lab_cdi.write(self.folder, self.settings.gpus, self.settings.driver)
        (self.folder / "settings.json").write_text(json.dumps({**asdict(self.settings), "cuda": self.settings.cuda}))

    def argv(self, *command: str, files: Mapping[str, str] | None = None, libraries: bool = True) -> list[str]:
        """A command as it runs on this machine. files: path -> text, for files of /etc and the like, which it sees too."""
        over = self.folder / "over"
        shutil.rmtree(over, ignore_errors=True)
        folders = [self._cover(over, path, text) for path, text in (files or {}).items()]
        if libraries:
            place = f"/usr/lib/{os.uname().machine}-linux-gnu"
            shutil.copytree(self.folder / "lib", over / place.lstrip("/"), symlinks=True)
            shutil.copytree(self.folder / "bin", over / "usr/bin")
            folders += [place, "/usr/bin"]
        return [
            "unshare",
            "--mount",
            "sh",
            str(self.folder / "enter"),
            str(self.folder),
            " ".join(sorted(set(folders))),
            *command,
        ]

    def _cover(self, over: Path, path: str, text: str) -> str:
        """The folder that is there and has to be laid over so that this file seems to be in it."""
        file = over / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return str(next(parent for parent in Path(path).parents if parent.is_dir()))

    def _program(self, path: str, stub: str) -> None:
        program = self.folder / path
        program.write_text(f"#!{os.path.realpath(sys.executable)} -SE\n{(STUBS / stub).read_text()}")
        program.chmod(0o755)

    def _libraries(self) -> None:
        folder = self.folder / "lib"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for compiled in (self.folder / "compiled").iterdir():
            name = f"{compiled.name}.so.{self.settings.driver}"
            shutil.copy(compiled, folder / name)
            (folder / f"{compiled.name}.so.1").symlink_to(name)

    def _nodes(self) -> None:
        folder = self.folder / "dev"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if not self.settings.loaded:
            return
        numbers = {f"nvidia{gpu}": (MAJOR, gpu) for gpu in range(self.settings.gpus)}
        numbers |= {"nvidiactl": (MAJOR, 255), "nvidia-uvm": (UVM_MAJOR, 0), "nvidia-uvm-tools": (UVM_MAJOR, 1)}
        for name, number in numbers.items():
            os.mknod(folder / name, 0o666 | stat.S_IFCHR, os.makedev(*number))
            (folder / name).chmod(0o666)

    def _proc(self) -> None:
        folder = self.folder / "proc"
        shutil.rmtree(folder, ignore_errors=True)
        driver = folder / "driver" / "nvidia"
        if not self.settings.loaded:
            driver.parent.mkdir(parents=True)
            return
        _write(driver / "params", "".join(f"{name}: {value}\n" for name, value in PARAMETERS.items()))
        _write(
            driver / "version",
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {self.settings.driver}  Release Build  (lab@lab)  \n"
            "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04) \n",
        )
        for gpu in range(self.settings.gpus):
            lines = {
                "Model": f"\t\t {MODEL}",
                "IRQ": "  \t\t 41",
                "GPU UUID": f"\t GPU-{gpu:08x}-0000-4000-8000-000000000000",
                "Bus Type": "\t PCIe",
                "Bus Location": f"\t {bus(gpu)}",
                "Device Minor": f"\t {gpu}",
                "GPU Firmware": f"\t {self.settings.driver}",
            }
            _write(driver / "gpus" / bus(gpu) / "information", "".join(f"{name}: {text}\n" for name, text in lines.items()))
        ours = f"{MAJOR} nvidia\n{MAJOR} nvidiactl\n{UVM_MAJOR} nvidia-uvm\n"
        _write(folder / "devices", Path("/proc/devices").read_text().replace("\nBlock", f"{ours}\nBlock", 1))
        loaded = "nvidia_uvm 1830912 0 - Live 0x0000000000000000 (O)\nnvidia 14299136 1 nvidia_uvm, Live 0x0000000000000000 (O)\n"
        modules = Path("/proc/modules")
        _write(folder / "modules", loaded + (modules.read_text() if modules.exists() else ""))

    def _sys(self) -> None:
        folder = self.folder / "sys"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "module").mkdir(parents=True)
        if self.settings.loaded:
            _write(folder / "module/nvidia/version", f"{self.settings.driver}\n")
            _write(folder / "module/nvidia_uvm/parameters/uvm_disable_hmm", "N\n")
        (folder / "bus/pci/devices").mkdir(parents=True)
        for gpu in range(self.settings.gpus):
            device = folder / "bus/pci/devices" / bus(gpu)
            for name, text in PCI.items():
                _write(device / name, f"{text}\n")
            _write(device / "resource", _regions(gpu))
            (device / "config").write_bytes(bytes.fromhex("de103023") + bytes(60))
            if self.settings.loaded:
                (device / "driver").symlink_to("../../../bus/pci/drivers/nvidia")


def bus(gpu: int) -> str:
    """Where the stubs say that a GPU is."""
    return f"0000:00:{6 + gpu:02x}.0"


def _regions(gpu: int) -> str:
    """Registers, framebuffer and the third region of a GPU, each where no other GPU has one; a region takes two lines."""
    first, nothing = 0x100000000000 + gpu * 0x4000000000, f"0x{0:016x} 0x{0:016x} 0x{0:016x}\n"
    starts = {0x2002000000: 0x1000000, 0: 0x2000000000, 0x2000000000: 0x2000000}
    lines = [f"0x{first + start:016x} 0x{first + start + size - 1:016x} 0x000000000014220c\n" for start, size in starts.items()]
    return nothing.join(lines) + nothing * 2


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _compile(source: Path, library: Path) -> None:
    library.parent.mkdir(exist_ok=True)
    flags = ("-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run(["gcc", *flags, f"-Wl,-soname,{library.name}.so.1", "-o", library, source], check=True)
