"""What people paste about a Linux machine, and nvidia-bug-report.log, become the answers of the probes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gpudoctor import catalog, doctor, evidence
from gpudoctor.evidence.readers import device_nodes, lspci, os_packages, system_texts
from gpudoctor.explaining import gather
from gpudoctor.facts import Facts
from gpudoctor.model import Reply, Unavailable

RULE = "_" * 44
LSPCI = """\
00:00.0 Host bridge [0600]: Intel Corporation 12th Gen Core Processor Host Bridge [8086:4660] (rev 02)
00:02.0 VGA compatible controller [0300]: Intel Corporation AlderLake-S GT1 [8086:4680] (rev 0c)
01:00.0 VGA compatible controller [0300]: NVIDIA Corporation AD102 [GeForce RTX 4090] [10de:2684] (rev a1)
01:00.1 Audio device [0403]: NVIDIA Corporation AD102 High Definition Audio Controller [10de:22ba] (rev a1)
"""
WITH_DRIVERS = """\
01:00.0 VGA compatible controller [0300]: NVIDIA Corporation AD102 [GeForce RTX 4090] [10de:2684] (rev a1)
\tSubsystem: Micro-Star International Co., Ltd. [MSI] Device [1462:5103]
\tKernel driver in use: vfio-pci
\tKernel modules: nvidiafb, nouveau, nvidia_drm, nvidia
"""


def facts(text: str) -> Facts:
    return Facts(evidence.snapshot_of(evidence.of_text(text)))


def problems(text: str) -> list[str]:
    report = doctor.judge(evidence.snapshot_of(evidence.of_text(text)), doctor.select(catalog.checks(), "quick"))
    assert not [row for row in report.checks if row.status.value == "error"]
    return [entry.problem for entry in report.diagnosis]


def test_lspci() -> None:
    pci = facts(LSPCI).pci
    (gpu,) = pci.gpus
    assert (gpu.address, gpu.device_id, gpu.class_code) == ("0000:01:00.0", 0x2684, 0x0300)
    assert (len(pci.functions), pci.other_display) == (2, ("8086:4680",))
    with pytest.raises(Unavailable, match="is unknown"):
        gpu.driver  # noqa: B018


def test_lspci_with_drivers() -> None:
    (gpu,) = facts(WITH_DRIVERS).pci.gpus
    assert (gpu.driver, gpu.subsystem) == ("vfio-pci", "1462:5103")
    (unbound,) = facts(WITH_DRIVERS.replace("\tKernel driver in use: vfio-pci\n", "")).pci.gpus
    assert unbound.driver is None


def test_device_that_reads_as_ones() -> None:
    assert problems(LSPCI.replace("(rev a1)", "(rev ff)")) == ["gpu-fallen-off-bus-probe"]


def test_no_gpu_is_told_by_a_whole_listing_only() -> None:
    whole = "".join(line for line in LSPCI.splitlines(True) if "NVIDIA" not in line)
    assert facts(whole).pci.gpus == ()
    assert problems(whole) == ["no-nvidia-gpu"]
    assert lspci.read("00:02.0 VGA compatible controller [0300]: Intel Corporation Device [8086:4680]\n") is None


def test_listing_without_ids_names_the_chip() -> None:
    line = "01:00.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3090] (rev a1)\n"
    (gpu,) = facts(line).pci.gpus
    assert (gpu.address, gpu.model, gpu.generation) == ("0000:01:00.0", "GA102", "Ampere")
    with pytest.raises(Unavailable):
        gpu.device_id  # noqa: B018
    (unnamed,) = facts("5a:00.0 3D controller: NVIDIA Corporation Device 1db6 (rev a1)\n").pci.gpus
    assert (unnamed.model, unnamed.generation) == ("10de:1db6", "Volta")
    assert lspci.read("01:00.1 Audio device: NVIDIA Corporation Device 10f0 (rev a1)\n") is None


def test_link_of_lspci() -> None:
    listing = (
        LSPCI.splitlines()[2]
        + "\n\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1\n\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x4\n"
    )
    (gpu,) = facts(listing).pci.gpus
    assert (gpu.link_speed_gts, gpu.link_width, gpu.maximum_link_speed_gts, gpu.maximum_link_width) == (2.5, 4, 16.0, 16)


PASTED = """\
$ uname -a
Linux somehost 6.8.0-52-generic #53~22.04.1-Ubuntu SMP PREEMPT_DYNAMIC Wed Jan 15 19:18:46 UTC 2 x86_64 x86_64 x86_64 GNU/Linux
$ cat /etc/os-release
PRETTY_NAME="Ubuntu 22.04.5 LTS"
NAME="Ubuntu"
VERSION_ID="22.04"
ID=ubuntu
ID_LIKE=debian
$ cat /proc/driver/nvidia/version
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  (dvs-builder@U16)
GCC version:  gcc version 12.3.0
$ dpkg -l | grep -i nvidia
ii  libnvidia-compute-570:amd64                570.86.10-0ubuntu1                      amd64        NVIDIA libcompute package
rc  nvidia-dkms-535                            535.183.01-0ubuntu1                     amd64        NVIDIA DKMS package
iF  nvidia-dkms-570-open                       570.86.10-0ubuntu1                      amd64        NVIDIA DKMS package
$ ls -l /dev/nvidia*
crw-rw-rw- 1 root root 195,   0 Jan 20 10:00 /dev/nvidia0
crw-rw---- 1 root video 195, 255 Jan 20 10:00 /dev/nvidiactl
$ env | grep CUDA
CUDA_HOME=/usr/local/cuda-12.4
CUDA_VISIBLE_DEVICES=0,1
"""


def test_commands_pasted_one_after_the_other() -> None:
    known = facts(PASTED)
    assert (known.system.kernel, known.system.architecture, known.system.distribution_version) == (
        "6.8.0-52-generic",
        "x86_64",
        "22.04",
    )
    assert (known.driver.module_version, known.driver.module_is_open) == ("570.86.10", True)
    assert [(package.name, package.state) for package in known.driver.packages] == [
        ("libnvidia-compute-570", "installed"),
        ("nvidia-dkms-570-open", "half-configured"),
    ]
    assert {path: node.mode for path, node in known.devices.nodes.items()} == {"/dev/nvidia0": 0o666, "/dev/nvidiactl": 0o660}
    assert known.environment.variables == {"CUDA_HOME": "/usr/local/cuda-12.4", "CUDA_VISIBLE_DEVICES": "0,1"}


def test_rpm() -> None:
    found = os_packages.read("kmod-nvidia-open-dkms-570.86.15-1.el9.noarch\nbash-5.1.8-9.el9.x86_64\n")
    assert found is not None
    assert [(package["name"], package["version"]) for package in found["os-packages"].value] == [
        ("kmod-nvidia-open-dkms", "570.86.15-1.el9")
    ]


NVCC = """\
nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Wed_Aug_20_01:58:59_PM_PDT_2025
Cuda compilation tools, release 13.0, V13.0.88
Build cuda_13.0.r13.0/compiler.36424714_0
"""


def test_nvcc() -> None:
    nvcc = facts(NVCC).toolchain.nvcc
    assert nvcc is not None
    assert (nvcc.version, nvcc.on_path) == ((13, 0, 88), True)
    with pytest.raises(Unavailable, match="is unknown"):
        facts(NVCC).toolchain.toolkits  # noqa: B018
    assert problems(NVCC) == []


def test_lsmod_counts_as_a_whole_only() -> None:
    rows = "".join(f"module_{number}   16384  0\n" for number in range(40))
    whole = f"Module                  Size  Used by\n{rows}nouveau  2000000  1\n"
    assert "nouveau" in facts(whole).driver.loaded_modules
    assert "file:/proc/modules" not in evidence.of_text("Module                  Size  Used by\nnvidia  100  0\n").replies


def test_what_looks_like_something_else() -> None:
    assert system_texts.uname("Linux is great #1 x86_64") is None
    assert device_nodes.read("crw-rw-rw- 1 root root 1, 3 Jan 1 00:00 /dev/null\n") is None


BUG_REPORT = f"""\
{RULE}

Start of NVIDIA bug report log file.  Please include this file, along
with a detailed description of your problem, when reporting a graphics
driver bug via the NVIDIA Linux forum (see forums.developer.nvidia.com)
or by sending email to 'linux-bugs@nvidia.com'.

nvidia-bug-report.sh Version: 31831145

Date: Thu Oct 27 08:50:11 PM -03 2022
uname: Linux somehost 6.0.1-arch2-1 #1 SMP PREEMPT_DYNAMIC Thu, 13 Oct 2022 18:58:49 +0000 x86_64 GNU/Linux
command line flags:

{RULE}

*** /etc/issue
*** ls: -rw-r--r-- 1 root root 20 2021-12-06 23:41:28.000000000 -0300 /etc/issue
Arch Linux \\r (\\l)


{RULE}

*** /var/log/nvidia-installer.log does not exist

{RULE}

/usr/bin/lspci -d "10de:*" -v -xxx

01:00.0 VGA compatible controller: NVIDIA Corporation GA106M [GeForce RTX 3060 Mobile / Max-Q] (rev ff) (prog-if ff)
\t!!! Unknown header type 7f
\tKernel driver in use: nvidia
\tKernel modules: nouveau, nvidia_drm, nvidia
00: ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff
10: ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff
20: ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff
30: ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff

{RULE}

/usr/bin/lspci -nn

00:00.0 Host bridge [0600]: Advanced Micro Devices, Inc. [AMD] Renoir/Cezanne Root Complex [1022:1630]
01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA106M [GeForce RTX 3060 Mobile / Max-Q] [10de:2520] (rev a1)

{RULE}

Scanning kernel log files for NVIDIA kernel messages:

  journalctl -b -0:
Oct 27 08:40:11 somehost kernel: NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.

{RULE}

*** /proc/modules
*** ls: -r--r--r-- 1 root root 0 2022-10-27 20:50:33.974169298 -0300 /proc/modules
nvidia_uvm 1400832 0 - Live 0x0000000000000000 (POE)
nvidia 53719040 1 nvidia_uvm, Live 0x0000000000000000 (POE)

{RULE}

*** /proc/version
*** ls: -r--r--r-- 1 root root 0 2022-10-27 20:50:33.974169298 -0300 /proc/version
Linux version 6.0.1-arch2-1 (linux@archlinux) (gcc (GCC) 12.2.0) #1 SMP PREEMPT_DYNAMIC Thu, 13 Oct 2022 18:58:49 +0000

{RULE}

*** /proc/driver/nvidia/./version
*** ls: -r--r--r-- 1 root root 0 2022-10-27 20:50:33.974169298 -0300 /proc/driver/nvidia/./version
NVRM version: NVIDIA UNIX x86_64 Kernel Module  520.56.06  Thu Oct  6 21:38:55 UTC 2022
GCC version:  gcc version 12.2.0 (GCC)

{RULE}

*** /proc/driver/nvidia/./gpus/0000:01:00.0/information
*** ls: -r--r--r-- 1 root root 0 2022-10-27 20:50:33.974169298 -0300 /proc/driver/nvidia/./gpus/0000:01:00.0/information
Model: \t\t NVIDIA GeForce RTX 3060 Laptop GPU
Device Minor: \t 0
GPU Excluded:\t No

{RULE}

/usr/bin/nvidia-smi --query

Unable to determine the device handle for GPU 0000:01:00.0: Unknown Error

{RULE}

End of NVIDIA bug report log file.
"""


def test_bug_report() -> None:
    known = facts(BUG_REPORT)
    assert (known.system.kernel, known.system.distribution, known.system.wsl, known.container.engine) == (
        "6.0.1-arch2-1",
        "arch",
        0,
        None,
    )
    assert (known.driver.module_version, known.driver.module_is_open) == ("520.56.06", False)
    assert known.driver.loaded_modules == {"nvidia", "nvidia_uvm"}
    assert known.driver.gpu_information["0000:01:00.0"]["GPU Excluded"] == "No"
    (gpu,) = known.pci.gpus
    assert (gpu.device_id, gpu.driver, gpu.responds) == (0x2520, "nvidia", False)
    assert [xid.code for xid in known.kernel_log.xids] == [79]


def test_bug_report_names_the_gpu_that_fell_off_the_bus() -> None:
    assert problems(BUG_REPORT)[0] in ("gpu-fallen-off-bus-probe", "gpu-fallen-off-bus")


def test_bug_report_as_it_is_attached(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-bug-report.log.gz"
    path.write_bytes(gzip.compress(BUG_REPORT.encode()))
    replies = gather([str(path)]).replies
    assert replies["file:/proc/version"].value.startswith("Linux version 6.0.1-arch2-1")
    assert replies[f"text:{path}"].value["kinds"][:1] == ["nvidia-bug-report.log"]


def test_files_that_a_bug_report_does_not_have_are_missing() -> None:
    text = BUG_REPORT.replace("*** /proc/modules\n*** ls", "*** /proc/modules does not exist\n*** ls")
    assert evidence.of_text(text).replies["file:/proc/modules"] == Reply("missing")
