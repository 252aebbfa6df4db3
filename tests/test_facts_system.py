"""Distributions, kernels, WSL, containers and the kernel's settings."""

from __future__ import annotations

from typing import Any

import pytest
from each import each

from gpudoctor.facts.replies import Replies
from gpudoctor.facts.system import InfinibandPort, System, hypervisor_of, memory_mib, number_list, wsl_of
from gpudoctor.model import Reply, Skip, Unavailable

UBUNTU = 'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nVERSION_ID="24.04"\nID=ubuntu\nID_LIKE=debian\n'
MISSING = Reply("missing")
HOST: dict[str, Any] = {
    "file:/etc/os-release": UBUNTU,
    "file:/proc/version": "Linux version 6.8.0-40-generic (buildd@x) (gcc 13) #40-Ubuntu SMP",
    "file:/proc/2/comm": "kthreadd\n",
    "file:/proc/filesystems": "nodev\tsysfs\n",
    "file:/run/systemd/container": MISSING,
    "file:/sys/fs/selinux/enforce": MISSING,
    "uname": {"release": "6.8.0-40-generic", "machine": "x86_64", "sysname": "Linux"},
    "mounts": [{"point": "/", "type": "ext4", "options": "rw"}],
    "container-marks": {},
    "secure-boot": 1,
    "file:/proc/1/cgroup": "0::/init.scope\n",
    "file:/proc/self/cgroup": "0::/user.slice\n",
}
DOCKER = {"container-marks": {"/.dockerenv": True}, "file:/proc/2/comm": MISSING}
WSL2 = {
    "file:/proc/version": "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@x) (gcc) #1 SMP",
    "uname": {"release": "5.15.153.1-microsoft-standard-WSL2", "machine": "x86_64", "sysname": "Linux"},
    "file:/run/systemd/container": "wsl\n",
    "file:/proc/2/comm": "init\n",
}


def system(changes: dict[str, Any] | None = None) -> System:
    values = {**HOST, **(changes or {})}
    return System(Replies({q: value if isinstance(value, Reply) else Reply("ok", value) for q, value in values.items()}))


@each(
    ("text", "family"),
    [
        (UBUNTU, "debian"),
        ("ID=pop\nID_LIKE='ubuntu debian'\n", "debian"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "rhel"),
        ('ID="amzn"\n', "rhel"),
        ("ID=manjaro\nID_LIKE=arch\n", "arch"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "suse"),
        ("ID=nixos\n", "nixos"),
        ("ID=gentoo\n", "other"),
        ("", "other"),
    ],
)
def test_family(text: str, family: str) -> None:
    assert system({"file:/etc/os-release": text}).family == family


def test_distribution() -> None:
    this = system()
    assert (this.distribution, this.distribution_like, this.distribution_version) == ("ubuntu", ("debian",), "24.04")
    assert this.distribution_name == "Ubuntu 24.04.1 LTS"


def test_kernel_from_proc_version_where_uname_was_not_asked() -> None:
    this = system({"uname": MISSING})
    assert this.kernel == "6.8.0-40-generic"
    with pytest.raises(Unavailable):
        _ = this.architecture


@each(
    ("release", "expected"),
    [
        ("4.4.0-19041-Microsoft", 1),
        ("5.15.153.1-microsoft-standard-WSL2", 2),
        ("4.19.128-microsoft-standard", 2),
        ("6.6.36.3-microsoft-standard-WSL2+", 2),
        ("6.8.0-1014-azure", 0),
    ],
)
def test_wsl(release: str, expected: int) -> None:
    assert wsl_of(release, "Linux version " + release) == expected


@each(
    ("changes", "expected"),
    [
        ({}, ("debian", "host", "physical", "bmc")),
        ({"file:/sys/class/dmi/id/chassis_type": "10\n"}, ("debian", "host", "physical")),
        ({"file:/sys/class/dmi/id/product_name": "PRIME Z690-P D4\n"}, ("debian", "host", "physical")),
        ({"file:/sys/class/dmi/id/product_name": "DGXA100 920-23687-2530-000\n"}, ("debian", "host", "physical", "bmc")),
        (
            {
                "file:/sys/class/dmi/id/sys_vendor": "QEMU\n",
                "file:/sys/class/dmi/id/product_name": "PC\n",
                "processor": "flags\t\t: fpu hypervisor\n",
            },
            ("debian", "host", "vm"),
        ),
        ({"interpreter": {"conda_prefix": "/opt/conda"}}, ("debian", "host", "physical", "bmc", "conda")),
        ({"interpreter": {"conda_prefix": None}}, ("debian", "host", "physical", "bmc")),
        ({"interpreter": Reply("timeout")}, ("debian", "host", "physical", "bmc")),
        (WSL2, ("debian", "wsl2")),
        ({**WSL2, **DOCKER}, ("debian", "wsl2", "container")),
    ],
)
def test_platform(changes: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert system(changes).platform == expected


FLAGS = "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n"


@each(
    ("product", "processor", "expected"),
    [
        ("Microsoft Corporation Virtual Machine", FLAGS, "hyper-v"),
        ("Amazon EC2 p5.48xlarge", FLAGS, "amazon"),
        ("Amazon EC2 g5g.metal", "processor\t: 0\nFeatures\t: fp asimd\n", None),
        ("Google Google Compute Engine", FLAGS, "google"),
        ("QEMU Standard PC (Q35 + ICH9, 2009)", FLAGS, "kvm"),
        ("", FLAGS, "unknown"),
        ("Supermicro SYS-821GE-TNHR", FLAGS.replace("hypervisor ", ""), None),
        ("NVIDIA DGX Spark", "processor\t: 0\nFeatures\t: fp asimd\n", None),
    ],
)
def test_hypervisor(product: str, processor: str, expected: str | None) -> None:
    assert hypervisor_of(product, processor) == expected


@pytest.mark.parametrize(("value", "expected"), [(1, True), (0, False), (MISSING, None)])
def test_secure_boot(value: Any, expected: bool | None) -> None:
    assert system({"secure-boot": value}).secure_boot is expected


@pytest.mark.parametrize("field", ["secure_boot", "selinux_enforcing"])
def test_what_a_container_does_not_show_is_not_off(field: str) -> None:
    hidden = {
        **DOCKER,
        "secure-boot": MISSING,
        "file:/proc/filesystems": "nodev\tselinuxfs\n",
    }
    with pytest.raises(Unavailable) as caught:
        getattr(system(hidden), field)
    assert caught.value.kind == Skip.UNSUPPORTED


@pytest.mark.parametrize(("text", "expected"), [("1", True), ("0\n", False), (MISSING, False)])
def test_selinux(text: Any, expected: bool) -> None:
    assert system({"file:/sys/fs/selinux/enforce": text}).selinux_enforcing is expected


def test_infiniband_ports() -> None:
    folder = "/sys/class/infiniband/mlx5_0/ports/1"
    this = system(
        {
            "glob:/sys/class/infiniband/*/ports/*/state": [folder + "/state"],
            f"file:{folder}/state": "4: ACTIVE\n",
            f"file:{folder}/phys_state": "5: LinkUp\n",
            f"file:{folder}/link_layer": "InfiniBand\n",
        }
    )
    assert this.infiniband_ports == (InfinibandPort("mlx5_0", 1, "ACTIVE", "LinkUp", "InfiniBand"),)


def test_memory() -> None:
    text = "MemTotal:       24684084 kB\nHugePages_Total:       0\nActive(anon):       2048 kB\n"
    assert memory_mib(text) == {"MemTotal": 24105, "Active(anon)": 2}


@pytest.mark.parametrize(("text", "expected"), [("0\n", (0,)), ("0-1,4\n", (0, 1, 4)), ("", ())])
def test_number_list(text: str, expected: tuple[int, ...]) -> None:
    assert number_list(text) == expected


def test_what_was_not_asked_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        _ = System(Replies({})).uptime_seconds
