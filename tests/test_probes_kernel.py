"""The kernel-side probes on a fake root, on this machine, and under the oldest Python that is here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from each import each

from gpudoctor.model import Reply
from gpudoctor.worker.probes import devices, kernel_log, modules, pci, system
from gpudoctor.worker.probes.machine import Machine

PROBES = (system, modules, pci, devices, kernel_log)


def ask(probe: Any, root: Path | str = "/") -> dict[str, Reply]:
    return dict(probe.ask(Machine(str(root))))


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def config_with_acs(control: int) -> bytes:
    """A bridge's 4096 bytes: AER at 0x100, then ACS at 0x148."""
    config = bytearray(4096)
    config[:4] = (0x1022).to_bytes(2, "little") + (0x1483).to_bytes(2, "little")
    config[0x100:0x104] = (0x148 << 20 | 2 << 16 | 0x0001).to_bytes(4, "little")
    config[0x148:0x14C] = (1 << 16 | 0x000D).to_bytes(4, "little")
    config[0x14E:0x150] = control.to_bytes(2, "little")
    return bytes(config)


GPU = {
    "vendor": "0x10de\n",
    "device": "0x2330\n",
    "subsystem_vendor": "0x10de\n",
    "subsystem_device": "0x16c1\n",
    "class": "0x030200\n",
    "numa_node": "-1\n",
    "current_link_speed": "32.0 GT/s PCIe\n",
    "current_link_width": "8\n",
    "max_link_speed": "32.0 GT/s PCIe\n",
    "max_link_width": "16\n",
    "resource": "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200\n",
}


def add_function(root: Path, folder: str, attributes: dict[str, str], config: bytes) -> None:
    path = f"/sys/devices/{folder}"
    write(root, {f"{path}/{name}": text for name, text in attributes.items()} | {f"{path}/config": config})
    link = root / "sys/bus/pci/devices" / folder.rsplit("/", 1)[-1]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(root / path.lstrip("/"), link.parent))


@pytest.fixture
def bus(tmp_path: Path) -> Path:
    """A GPU below a bridge with ACS, one below another bridge whose config only root may read, and a BMC's display."""
    bridge = {"vendor": "0x1022", "device": "0x1483", "class": "0x060400", "max_link_width": "16"}
    add_function(tmp_path, "pci0000:00/0000:00:01.1", bridge, config_with_acs(0x1D))
    add_function(tmp_path, "pci0000:00/0000:00:01.1/0000:01:00.0", GPU, b"\xde\x10\x30\x23" + bytes(60))
    add_function(tmp_path, "pci0000:00/0000:00:02.1", bridge, config_with_acs(0)[:64])
    add_function(tmp_path, "pci0000:00/0000:00:02.1/0000:02:00.0", GPU, b"\xff" * 64)
    add_function(tmp_path, "pci0000:00/0000:03:00.0", {"vendor": "0x1a03", "device": "0x2000", "class": "0x030000"}, b"")
    gpu = tmp_path / "sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0"
    (gpu / "driver").symlink_to("../../../../bus/pci/drivers/nvidia")
    (gpu / "iommu_group").mkdir()
    (gpu / "iommu_group/type").write_text("DMA-FQ\n")
    return tmp_path


def test_pci_shows_nvidia_functions_and_the_bridges_above(bus: Path) -> None:
    value = ask(pci, bus)["pci"].value
    first, second = value["functions"]["0000:01:00.0"], value["functions"]["0000:02:00.0"]
    assert (first["driver"], second["driver"]) == ("nvidia", None)
    assert (first["all_ones"], second["all_ones"]) == (False, True)
    assert (first["iommu_group_type"], second["iommu_group_type"]) == ("DMA-FQ", None)
    assert first["parents"] == ["0000:00:01.1"]
    assert first["class"] == 0x030200
    assert value["other_display"] == ["1a03:2000"]


def test_acs_is_read_or_denied_or_not_there(bus: Path) -> None:
    bridges = ask(pci, bus)["pci"].value["bridges"]
    assert bridges["0000:00:01.1"]["acs"] == 0x1D
    assert bridges["0000:00:02.1"]["acs"] == "denied"
    (bus / "sys/devices/pci0000:00/0000:00:01.1/config").write_bytes(bytes(4096))
    assert ask(pci, bus)["pci"].value["bridges"]["0000:00:01.1"]["acs"] is None


@pytest.mark.parametrize("header", [0x100 << 20 | 1, 0xFFFFFFFF, 0xFFC << 20 | 1])
def test_rubbish_in_config_space_does_not_loop(header: int) -> None:
    config = bytes(0x100) + header.to_bytes(4, "little") + bytes(4096 - 0x104)
    assert pci._acs(config) is None


def test_a_machine_without_pci_says_missing(tmp_path: Path) -> None:
    assert ask(pci, tmp_path)["pci"].status == "missing"


def test_system_reads_secure_boot_and_hides_addresses(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c": b"\x06\0\0\0\x01",
            "/proc/cmdline": "BOOT_IMAGE=/vmlinuz ip=10.0.0.7::10.0.0.1:255.255.255.0:node7 BOOTIF=01-aa-bb-cc iommu=pt\n",
            "/proc/sys/kernel/osrelease": "6.8.0-40-generic\n",
            "/proc/sys/kernel/ostype": "Linux\n",
            "/proc/sys/kernel/arch": "x86_64\n",
            "/proc/self/mountinfo": "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /proc rw - proc proc rw\n",
            "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        },
    )
    replies = ask(system, tmp_path)
    assert replies["secure-boot"].value == 1
    assert replies["file:/proc/cmdline"].value == "BOOT_IMAGE=/vmlinuz iommu=pt"
    assert replies["uname"].value == {"release": "6.8.0-40-generic", "machine": "x86_64", "sysname": "Linux"}
    assert replies["file:/sys/class/infiniband/mlx5_0/ports/1/state"].value == "4: ACTIVE\n"
    assert replies["file:/sys/module/nvidia/version"].status == "missing"


def test_modules_of_each_kernel(tmp_path: Path) -> None:
    old, new = "/lib/modules/6.8.0-31-generic", "/lib/modules/6.8.0-40-generic"
    write(
        tmp_path,
        {
            old + "/updates/dkms/nvidia.ko.zst": "",
            old + "/updates/dkms/nvidia-uvm.ko.zst": "",
            old + "/kernel/nvidia-580/nvidia.ko": "",
            old + "/kernel/drivers/video/fbdev/nvidia/nvidiafb.ko": "",
            old + "/kernel/drivers/net/nvidia-elsewhere.ko": "",
            new + "/modules.dep": "",
            "/usr/src/linux-headers-6.8.0-31-generic/Makefile": "",
        },
    )
    (tmp_path / old.lstrip("/") / "build").symlink_to("/usr/src/linux-headers-6.8.0-31-generic")
    (tmp_path / new.lstrip("/") / "build").symlink_to("/usr/src/linux-headers-6.8.0-40-generic")
    files = ["kernel/nvidia-580/nvidia.ko", "updates/dkms/nvidia-uvm.ko.zst", "updates/dkms/nvidia.ko.zst"]
    assert ask(modules, tmp_path)["kernel-modules"].value == {
        "6.8.0-31-generic": {"headers": True, "nvidia": [f"{old}/{file}" for file in files]},
        "6.8.0-40-generic": {"headers": False, "nvidia": []},
    }


def test_options_that_have_to_do_with_the_driver(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "/etc/modprobe.d/blacklist-nouveau.conf": "blacklist nouveau\n",
            "/etc/modprobe.d/alsa.conf": "options snd_hda_intel power_save=1\n",
            "/etc/modprobe.d/nvidia.conf.dpkg-old": "options nvidia NVreg_DeviceFileMode=0660\n",
            "/usr/lib/modprobe.d/nvidia.conf": "options nvidia NVreg_EnableGpuFirmware=0\n",
            "/etc/modules-load.d/uvm.conf": "nvidia_uvm\n",
        },
    )
    (tmp_path / "lib").symlink_to("usr/lib")
    paths = ["/etc/modprobe.d/blacklist-nouveau.conf", "/etc/modules-load.d/uvm.conf", "/usr/lib/modprobe.d/nvidia.conf"]
    assert sorted(ask(modules, tmp_path)["modprobe"].value) == paths


DPKG = """\
Package: nvidia-dkms-580-open
Status: install ok half-configured
Architecture: amd64
Version: 580.95.05-0ubuntu0.24.04.2
Description: NVIDIA DKMS package

Package: nvidia-driver-570
Status: deinstall ok config-files
Version: 570.195.03-0ubuntu0.24.04.1

Package: bash
Status: install ok installed
Version: 5.2.21-2ubuntu4

Package: libnccl2
Status: hold ok installed
Version: 2.27.7-1+cuda13.0
"""


def test_dpkg(tmp_path: Path) -> None:
    write(tmp_path, {"/var/lib/dpkg/status": DPKG})
    packages = ask(modules, tmp_path)["os-packages"].value
    assert [(p["name"], p["version"], p["state"]) for p in packages] == [
        ("nvidia-dkms-580-open", "580.95.05-0ubuntu0.24.04.2", "half-configured"),
        ("libnccl2", "2.27.7-1+cuda13.0", "installed"),
    ]


def test_pacman(tmp_path: Path) -> None:
    for name in ("nvidia-open-dkms-580.95.05-1", "linux-6.17.1.arch1-1", "lib32-nvidia-utils-580.95.05-1"):
        write(tmp_path, {f"/var/lib/pacman/local/{name}/desc": ""})
    packages = ask(modules, tmp_path)["os-packages"].value
    assert [(p["name"], p["version"]) for p in packages] == [
        ("lib32-nvidia-utils", "580.95.05-1"),
        ("nvidia-open-dkms", "580.95.05-1"),
    ]


def test_no_package_manager_is_not_no_package(tmp_path: Path) -> None:
    assert ask(modules, tmp_path)["os-packages"].status == "missing"


def test_a_program_that_is_not_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sbin/modinfo"
    write(tmp_path, {"sbin/modinfo": "#!/bin/sh\necho version: 999.88.77 $1\n"})
    program.chmod(0o755)
    monkeypatch.setattr(modules, "ADMINISTRATOR_FOLDERS", (str(program.parent),))
    reply = ask(modules)["command:modinfo nvidia"]
    assert (reply.value["code"], reply.value["out"]) == (0, "version: 999.88.77 nvidia\n")


def test_a_program_that_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "ADMINISTRATOR_FOLDERS", ())
    monkeypatch.setenv("PATH", "/nowhere")
    assert ask(modules)["command:dkms status"].status == "missing"


def test_make_log_is_the_end_of_a_long_one(tmp_path: Path) -> None:
    path = "/var/lib/dkms/nvidia/470.86/build/make.log"
    write(tmp_path, {path: "a line\n" * 20000 + "make[2]: *** Error 1\n"})
    text = ask(modules, tmp_path)["file:" + path].value
    assert len(text) == 64 << 10
    assert text.endswith("Error 1\n")


@each("probe", PROBES, ids=lambda probe: str(probe.__name__))
def test_this_machine_answers_without_an_error(probe: Any) -> None:
    replies = ask(probe)
    assert replies
    assert {question: reply.detail for question, reply in replies.items() if reply.status == "error"} == {}
    json.dumps([vars(reply) for reply in replies.values()])


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: str(probe.__name__))
def test_an_empty_root_answers_without_an_error(probe: Any, tmp_path: Path) -> None:
    assert {question for question, reply in ask(probe, tmp_path).items() if reply.status == "error"} == set()


def test_xids_of_earlier_boots_come_from_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    entries = [("a" * 32, "NVRM: Xid (PCI:0000:65:00): 79, lost"), ("b" * 32, "NVRM: Xid (PCI:0000:65:00): 48, DBE")]
    told = [*entries, (now, "NVRM: Xid (of now")]
    lines = [json.dumps({"_BOOT_ID": boot, "MESSAGE": message}) for boot, message in told]
    journal = tmp_path / "journalctl"
    journal.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    journal.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(kernel_log, "_kernel_log", lambda machine: {"lines": ["NVRM: Xid (PCI:0000:65:00): 79, lost"]})
    assert ask(kernel_log)["kernel-log-earlier"].value == [[entries[0][1]], [entries[1][1]]]
    monkeypatch.setattr(kernel_log, "_kernel_log", lambda machine: {"lines": ["nvidia: loading"]})
    assert set(ask(kernel_log)) == {"kernel-log"}


def old_python() -> str | None:
    found = sorted(Path.home().glob(".pyenv/versions/3.8.*/bin/python"))
    return str(found[0]) if found else None


SCRIPT = """
import sys
from gpudoctor.worker.probes import devices, kernel_log, modules, pci, system
from gpudoctor.worker.probes.machine import Machine
for probe in (devices, kernel_log, modules, pci, system):
    for root in ("/", sys.argv[1]):
        for question, reply in probe.ask(Machine(root)):
            assert reply.status != "error", (question, reply)
"""


@pytest.mark.skipif(old_python() is None, reason="Python 3.8 is not here")
def test_python_3_8(bus: Path) -> None:
    environment = dict(os.environ, PYTHONPATH=str(Path(system.__file__).parents[3]), PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([old_python() or sys.executable, "-c", SCRIPT, str(bus)], env=environment, capture_output=True)
    assert done.stderr.decode() == ""
