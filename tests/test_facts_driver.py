"""The driver's versions, modules, packages and nvidia-smi, from the texts that real machines gave."""

from __future__ import annotations

from typing import Any

import pytest
from each import each

from gpudoctor.facts.driver import DkmsEntry, Driver, InstalledModule, OsPackage, dkms_entries, nvrm_version
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Reply, Unavailable

MISSING = Reply("missing")
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder@)  \n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
)
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"


def driver(changes: dict[str, Any]) -> Driver:
    values = {
        "file:/proc/driver/nvidia/version": MISSING,
        "file:/sys/module/nvidia/version": MISSING,
        "uname": {"release": "6.8.0-40-generic", "machine": "x86_64", "sysname": "Linux"},
        **changes,
    }
    return Driver(Replies({q: value if isinstance(value, Reply) else Reply("ok", value) for q, value in values.items()}))


@each(
    ("text", "expected"),
    [
        (OPEN, "580.159.04"),
        (CLOSED, "535.183.01"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build\n", "540.4.0"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  999.88.77  Thu Jan  1\n", "999.88.77"),
        ("GCC version:  gcc version 12.2.0\n", None),
        ("", None),
    ],
)
def test_nvrm_version(text: str, expected: str | None) -> None:
    assert nvrm_version(text) == expected


@pytest.mark.parametrize(
    ("text", "sys_version", "version", "is_open", "branch"),
    [
        (OPEN, "580.159.04\n", "580.159.04", True, 580),
        (CLOSED, MISSING, "535.183.01", False, 535),
        (MISSING, "999.88.77\n", "999.88.77", None, 999),
    ],
)
def test_loaded_module(text: Any, sys_version: Any, version: str, is_open: bool | None, branch: int) -> None:
    loaded = driver({"file:/proc/driver/nvidia/version": text, "file:/sys/module/nvidia/version": sys_version})
    assert (loaded.module_version, loaded.module_is_open, loaded.branch) == (version, is_open, branch)


def test_no_module() -> None:
    assert driver({}).module_version is None
    assert driver({}).module_is_open is None


def test_loaded_modules_and_character_devices() -> None:
    found = driver(
        {
            "file:/proc/modules": "nvidia_uvm 4096 0 - Live 0x0\nnvidia 16384 2 nvidia_uvm, Live 0x0 (OE)\n",
            "file:/proc/devices": "Character devices:\n195 nvidia\n507 nvidia-uvm\n\nBlock devices:\n259 blkext\n",
        }
    )
    assert found.loaded_modules == {"nvidia", "nvidia_uvm"}
    assert found.character_devices == {"nvidia": 195, "nvidia-uvm": 507}


def test_parameters() -> None:
    text = 'ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 0\nImexChannelCount: 2048\nRegistryDwords: ""\n'
    assert driver({"file:/proc/driver/nvidia/params": text}).parameters == {
        "ResmanDebugLevel": "4294967295",
        "RmProfilingAdminOnly": "0",
        "ImexChannelCount": "2048",
        "RegistryDwords": "",
    }


def test_gpu_information() -> None:
    pattern, path = "/proc/driver/nvidia/gpus/*/information", "/proc/driver/nvidia/gpus/0000:00:06.0/information"
    text = "Model: \t\t NVIDIA H100 80GB HBM3\nVideo BIOS: \t 96.00.99.00.01\nBus Location: \t 0000:00:06.0\n"
    found = driver({"glob:" + pattern: [path], "file:" + path: text}).gpu_information
    assert found["0000:00:06.0"]["Model"] == "NVIDIA H100 80GB HBM3"
    assert found["0000:00:06.0"]["Bus Location"] == "0000:00:06.0"


def library(path: str, real_path: str, size: int | None = 1) -> dict[str, Any]:
    return {"path": path, "real_path": real_path, "size": size, "via": "default"}


LIB = "/usr/lib/x86_64-linux-gnu/"


@each(
    ("libraries", "version", "versions"),
    [
        ([], None, ()),
        (
            [library(LIB + "libnvidia-ml.so.1", LIB + "libnvidia-ml.so.580.159.04")],
            "580.159.04",
            ("580.159.04",),
        ),
        (  # half upgraded: what libnvidia-ml.so.1 leads to counts
            [
                library(LIB + "libcuda.so.1", LIB + "libcuda.so.580.95.05"),
                library(LIB + "libnvidia-ml.so.1", LIB + "libnvidia-ml.so.570.195.03"),
            ],
            "570.195.03",
            ("580.95.05", "570.195.03"),
        ),
        (  # forward compatibility, stubs, a conda environment and a link to nowhere are not the driver
            [
                library("/usr/local/cuda/compat/libcuda.so.1", "/usr/local/cuda-12.9/compat/libcuda.so.575.57.08"),
                library("/usr/local/cuda/lib64/stubs/libcuda.so", "/usr/local/cuda-12.9/lib64/stubs/libcuda.so"),
                library("/opt/conda/lib/libcuda.so.1", "/opt/conda/lib/libcuda.so.550.54.15"),
                library(LIB + "libcuda.so.1", LIB + "libcuda.so.470.86", None),
                library(LIB + "libcuda.so.1", LIB + "nvidia/current/libcuda.so.535.183.01"),
            ],
            "535.183.01",
            ("535.183.01",),
        ),
        ([library("/usr/lib/wsl/lib/libcuda.so.1.1", "/usr/lib/wsl/lib/libcuda.so.1.1")], None, ()),
    ],
)
def test_library_version(libraries: list[Any], version: str | None, versions: tuple[str, ...]) -> None:
    found = driver({"libraries": libraries})
    assert (found.library_version, found.library_versions) == (version, versions)


@each(
    ("file", "name"),
    [
        ("nvidia.ko", "nvidia"),
        ("nvidia.ko.zst", "nvidia"),
        ("nvidia-uvm.ko.xz", "nvidia-uvm"),
        ("nvidia-current.ko", "nvidia"),
        ("nvidia-current-modeset.ko", "nvidia-modeset"),
        ("nvidia-tesla-470-drm.ko", "nvidia-drm"),
    ],
)
def test_module_names(file: str, name: str) -> None:
    assert InstalledModule("6.8.0", "/lib/modules/6.8.0/updates/dkms/" + file).name == name


def kernels(running: list[str], headers: bool) -> dict[str, Any]:
    old = "6.8.0-31-generic"
    return {
        old: {"headers": True, "nvidia": [f"/lib/modules/{old}/updates/dkms/nvidia.ko.zst"]},
        "6.8.0-40-generic": {"headers": headers, "nvidia": running},
    }


def test_module_not_built_for_the_running_kernel() -> None:
    found = driver({"kernel-modules": kernels([], headers=False)})
    assert [module.kernel for module in found.installed_modules] == ["6.8.0-31-generic"]
    assert found.module_for_running_kernel is None
    assert not found.kernel_headers


def test_module_for_the_running_kernel() -> None:
    folder = "/lib/modules/6.8.0-40-generic/updates/dkms/"
    found = driver({"kernel-modules": kernels([folder + "nvidia-uvm.ko", folder + "nvidia.ko"], headers=True)})
    assert found.module_for_running_kernel == InstalledModule("6.8.0-40-generic", folder + "nvidia.ko")
    assert found.kernel_headers


DKMS = """\
nvidia/580.82.07, 6.8.0-40-generic, x86_64: installed
nvidia/580.82.07: added
nvidia, 470.86, 5.13.18-21.09.16.amdgpu.ubuntu, x86_64: installed (WARNING! Diff between built and installed module!)
nvidia/550.54.14, 5.14.0-427.el9.x86_64, x86_64: installed-weak from 5.14.0-362.el9.x86_64
Error! Could not locate dkms.conf file.
"""


def test_dkms() -> None:
    assert dkms_entries(DKMS) == (
        DkmsEntry("nvidia", "580.82.07", "6.8.0-40-generic", "installed", ""),
        DkmsEntry("nvidia", "580.82.07", None, "added", ""),
        DkmsEntry(
            "nvidia",
            "470.86",
            "5.13.18-21.09.16.amdgpu.ubuntu",
            "installed",
            "WARNING! Diff between built and installed module!",
        ),
        DkmsEntry("nvidia", "550.54.14", "5.14.0-427.el9.x86_64", "installed", "weak from 5.14.0-362.el9.x86_64"),
    )


def test_no_dkms() -> None:
    found = driver({"command:dkms status": MISSING})
    assert (found.has_dkms, found.dkms) == (False, ())


MODINFO = """\
filename:       /lib/modules/6.8.0-40-generic/updates/dkms/nvidia.ko.zst
import_ns:      DMA_BUF
alias:          char-major-195-*
version:        580.95.05
license:        Dual MIT/GPL
alias:          pci:v000010DEd*sv*sd*bc06sc80i00*
signer:         ubuntu Secure Boot Module Signature key
parm:           NVreg_ResmanDebugLevel:int
"""


def test_modinfo() -> None:
    modinfo = driver({"command:modinfo nvidia": {"code": 0, "out": MODINFO, "err": ""}}).modinfo
    assert (modinfo["version"], modinfo["license"]) == ("580.95.05", "Dual MIT/GPL")
    assert modinfo["signer"] == "ubuntu Secure Boot Module Signature key"


def test_no_such_module() -> None:
    answer = {"code": 1, "out": "", "err": "modinfo: ERROR: Module nvidia not found.\n"}
    assert driver({"command:modinfo nvidia": answer}).modinfo == {}


def test_without_modinfo_nothing_is_known() -> None:
    with pytest.raises(Unavailable):
        _ = driver({"command:modinfo nvidia": MISSING}).modinfo


def test_packages() -> None:
    raw = {"manager": "dpkg", "name": "nvidia-dkms-580-open", "version": "580.95.05-0ubuntu1", "state": "half-configured"}
    assert driver({"os-packages": [raw]}).packages == (
        OsPackage("nvidia-dkms-580-open", "580.95.05-0ubuntu1", "dpkg", "half-configured"),
    )


@pytest.mark.parametrize("trace", ["/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer", "/var/lib/nvidia", ""])
def test_runfile(trace: str) -> None:
    paths = ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer", "/var/lib/nvidia")
    found = driver({"glob:" + path: [path] if path == trace else [] for path in paths})
    assert found.runfile_install is bool(trace)


def test_nvidia_smi() -> None:
    out = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n"
    answer = driver({"command:nvidia-smi -L": Reply("ok", {"code": 0, "out": out, "err": ""}, "", 0.04)}).nvidia_smi
    assert answer is not None
    assert (answer.code, answer.seconds, answer.out, answer.timed_out) == (0, 0.04, out, False)


@pytest.mark.parametrize("status", ["timeout", "died"])
def test_nvidia_smi_that_hangs_is_an_answer(status: str) -> None:
    answer = driver({"command:nvidia-smi -L": Reply(status, None, "no answer in 6 s", 6.0)}).nvidia_smi
    assert answer is not None
    assert (answer.timed_out, answer.seconds, answer.error) == (True, 6.0, "no answer in 6 s")


def test_no_nvidia_smi() -> None:
    assert driver({"command:nvidia-smi -L": MISSING}).nvidia_smi is None


@pytest.mark.parametrize(("text", "expected"), [("N\n", False), ("Y\n", True), (MISSING, None)])
def test_uvm_disable_hmm(text: Any, expected: bool | None) -> None:
    assert driver({"file:/sys/module/nvidia_uvm/parameters/uvm_disable_hmm": text}).uvm_disable_hmm is expected
