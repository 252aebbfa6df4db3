"""WSL: what Windows lends, and what of a Linux driver is in its way."""

from __future__ import annotations

from typing import Any

import pytest
from each import each

from gpudoctor.facts.replies import Replies
from gpudoctor.facts.wsl import DRIVER_PACKAGE, Wsl
from gpudoctor.model import Reply, Skip, Unavailable

WSL2: dict[str, Any] = {
    "wsl": {"is_wsl": True, "marks": {"/dev/dxg": True, "/run/WSL": True}},
    "wsl-libraries": {
        "libcuda.so": {"kind": "file", "bytes": 161192},
        "libcuda.so.1": {"kind": "file", "bytes": 161192},
        "libcuda.so.1.1": {"kind": "file", "bytes": 161192},
        "libdxcore.so": {"kind": "file", "bytes": 909120},
    },
    "glob:/usr/lib/wsl/drivers/*": ["/usr/lib/wsl/drivers/nv_dispi.inf_amd64_0afec3f20050014a"],
    "file:/etc/wsl.conf": "[boot]\nsystemd=true\n",
    "kernel-config": "CONFIG_DXGKRNL=y\n",
}


def wsl(**changes: Any) -> Wsl:
    answers = {**WSL2, **changes}
    return Wsl(Replies({q: a if isinstance(a, Reply) else Reply("ok", a) for q, a in answers.items()}))


def test_what_windows_lends() -> None:
    facts = wsl()
    assert facts.is_wsl
    assert facts.has_dxg
    assert facts.library_directory["libcuda.so.1"] == "file"
    assert facts.driver_store == ("nv_dispi.inf_amd64_0afec3f20050014a",)
    assert facts.configuration == "[boot]\nsystemd=true\n"


@each("field", ["has_dxg", "library_directory", "driver_store", "configuration", "kernel_config_dxgkrnl", "linux_libraries"])
def test_elsewhere_nothing_applies(field: str) -> None:
    elsewhere = Wsl(Replies({"wsl": Reply("ok", {"is_wsl": False})}))
    assert not elsewhere.is_wsl
    with pytest.raises(Unavailable) as refusal:
        getattr(elsewhere, field)
    assert refusal.value.kind == Skip.NOT_APPLICABLE


def test_no_library_folder_is_an_answer() -> None:
    assert wsl(**{"wsl-libraries": Reply("missing")}).library_directory == {}


@each(
    ("reply", "built"),
    [
        ("CONFIG_DXGKRNL=y\n", True),
        ("CONFIG_DXGKRNL=m\n", True),
        ("# CONFIG_DXGKRNL is not set\n", False),
        ("", False),
        (Reply("missing"), None),
    ],
)
def test_kernel_configuration(reply: Any, built: bool | None) -> None:
    assert wsl(**{"kernel-config": reply}).kernel_config_dxgkrnl is built


@each(
    ("name", "brings_a_driver"),
    [
        ("nvidia-driver-550", True),
        ("nvidia-utils-550-server", True),
        ("libnvidia-compute-550", True),
        ("libcuda1", True),
        ("cuda-drivers", True),
        ("cuda-drivers-560", True),
        ("cuda", True),
        ("cuda-12-4", True),
        ("nvidia-open", True),
        ("kmod-nvidia-latest-dkms", True),
        ("cuda-toolkit-12-4", False),
        ("nvidia-cuda-toolkit", False),
        ("nvidia-container-toolkit", False),
        ("libnvidia-container1", False),
        ("cuda-keyring", False),
        ("libcudnn9-cuda-12", False),
    ],
)
def test_packages_of_a_linux_driver(name: str, brings_a_driver: bool) -> None:
    package = {"name": name, "version": "999.88.77", "manager": "dpkg", "state": "installed"}
    assert wsl(**{"os-packages": [package]}).linux_driver_packages == ((name,) if brings_a_driver else ())
    assert bool(DRIVER_PACKAGE.fullmatch(name)) is brings_a_driver


def test_a_removed_package_is_not_installed() -> None:
    package = {"name": "libcuda1", "version": "999.88.77", "manager": "dpkg", "state": "config-files"}
    assert wsl(**{"os-packages": [package]}).linux_driver_packages == ()


def library(path: str, real_path: str = "", via: str = "default", mounted: bool = False) -> dict[str, Any]:
    return {"path": path, "real_path": real_path or path, "size": 9, "via": via, "index": 0, "mounted": mounted}


def test_linux_libraries_are_those_that_nobody_else_brings() -> None:
    folder = "/usr/lib/x86_64-linux-gnu"
    records = [
        library("/usr/lib/wsl/lib/libcuda.so.1", via="wsl"),
        library(folder + "/libnvidia-ml.so.1", "/usr/lib/wsl/drivers/nv_dispi/libnvidia-ml.so.1"),
        library(folder + "/libcuda.so.1", folder + "/libcuda.so.550.54.15"),
        library("/usr/local/cuda/compat/libcuda.so.1", via="compat"),
        library("/usr/local/cuda/lib64/stubs/libcuda.so", via="stubs"),
        library("/usr/lib64/libcuda.so.1", mounted=True),
        library(folder + "/libcudart.so.12"),
    ]
    facts = wsl(**{"libraries": records, "library-owners": Reply("missing"), "interpreter": {"conda_prefix": None}})
    assert facts.linux_libraries == (folder + "/libcuda.so.1",)
