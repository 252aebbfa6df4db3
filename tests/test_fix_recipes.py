"""What to type on each platform: recipes by distribution, version, package source, GPUs and Python environment."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from typing import Any

import machine
import pytest
from each import each

from gpudoctor import catalog
from gpudoctor.facts import Facts
from gpudoctor.fixes import RECIPES, FixContext, available, environment, fitting
from gpudoctor.fixes.distribution import Distribution, distribution, is_server, source
from gpudoctor.fixes.environment import Environment
from gpudoctor.knowledge import apt
from gpudoctor.model import Fix, Reply

AMPERE, PASCAL, BLACKWELL = frozenset({"Ampere"}), frozenset({"Pascal"}), frozenset({"Blackwell"})
NVIDIA = "https://developer.download.nvidia.com/compute/cuda/repos"
NOBLE = Distribution("ubuntu", "24.04", "debian", kernel="6.8.0-60-generic", generations=AMPERE)
OF_UBUNTU = replace(
    NOBLE, packages={"nvidia-driver-580-open": "580.95.05-0ubuntu0.24.04.2"}, source="distribution", driver="580.95.05"
)
SERVER = replace(
    OF_UBUNTU, packages={"nvidia-driver-580-server-open": "580.95.05-0ubuntu0.24.04.2"}, is_server=True, kernel="6.8.0-1024-aws"
)
DKMS = replace(OF_UBUNTU, packages={"nvidia-dkms-580-open": "580.95.05-0ubuntu0.24.04.2"})
OF_NVIDIA = replace(NOBLE, packages={"cuda-keyring": "1.1-1"}, source="nvidia", driver="580.95.05")
BOOKWORM = Distribution("debian", "12", "debian", kernel="6.1.0-30-amd64", generations=AMPERE)
ROCKY = Distribution("rocky", "9.7", "rhel", kernel="5.14.0-611.el9.x86_64", generations=AMPERE)
OF_ROCKY = replace(ROCKY, source="nvidia", driver="570.124.06", packages={"kmod-nvidia-open-dkms": "3:570", "dkms": "3"})
RHEL10 = Distribution("rhel", "10.1", "rhel", generations=AMPERE, source="nvidia", driver="580.95.05", packages={"dkms": "3"})
AMAZON = Distribution("amzn", "2023", "rhel", kernel="6.12.1.amzn2023.x86_64", generations=AMPERE, cloud="aws")
ORACLE = Distribution("ol", "9.5", "rhel", kernel="5.15.0-300.el9uek.x86_64", generations=AMPERE)
FEDORA = Distribution("fedora", "43", "rhel", kernel="6.17.1-300.fc43.x86_64", generations=AMPERE)
FUSION = replace(FEDORA, source="rpmfusion", driver="580.95.05")
SLES = Distribution("sles", "15.6", "suse", kernel="6.4.0-150600.23-default", generations=AMPERE)
LEAP = replace(
    SLES,
    distribution="opensuse-leap",
    packages={"nvidia-compute-utils-G06": "580.95.05"},
    driver="580.95.05",
    source="distribution",
)
ARCH = Distribution("arch", "", "arch", kernel="6.17.1-arch1-1", generations=AMPERE)
NIXOS = Distribution("nixos", "25.05", "nixos", kernel="6.12.58", generations=AMPERE)
RUNFILE = replace(NOBLE, source="runfile", driver="580.95.05")

COMMANDS = [
    (NIXOS, "driver 580", "nvidiaPackages.production; hardware.nvidia.open = lib.mkForce true;"),
    (replace(NIXOS, generations=PASCAL), "driver 580", "nvidiaPackages.legacy_580; hardware.nvidia.open = lib.mkForce false;"),
    (replace(NIXOS, generations=frozenset()), "driver 470 last", "nvidiaPackages.legacy_470; "),
    (NIXOS, "module", "sudo nixos-rebuild boot"),
    (RUNFILE, "sign", "--import /root/nvidia-module.der && sudo reboot"),
    (NOBLE, "driver 580", "linux-image-generic linux-modules-nvidia-580-open-generic nvidia-driver-580-open"),
    (NOBLE, "driver 590", "nvidia-driver-595-open"),
    (replace(NOBLE, generations=PASCAL), "driver", "nvidia-driver-580 "),
    (replace(NOBLE, module_is_open=False), "driver 570", "nvidia-driver-580 "),
    (replace(NOBLE, module_is_open=False, generations=BLACKWELL), "driver 570", "nvidia-driver-580-open"),
    (replace(NOBLE, generations=frozenset({"Kepler"})), "driver 470", "nvidia-driver-470 "),
    (SERVER, "driver 595", "linux-image-aws linux-modules-nvidia-595-server-open-aws nvidia-driver-595-server-open"),
    (DKMS, "driver 595", "linux-headers-generic nvidia-dkms-595-open nvidia-driver-595-open"),
    (OF_NVIDIA, "driver 580", "apt install linux-image-generic linux-headers-generic nvidia-open-580"),
    (
        OF_NVIDIA,
        "driver 595",
        "apt install nvidia-driver-pinning-595 && sudo apt install linux-image-generic linux-headers-generic nvidia-open",
    ),
    (replace(OF_NVIDIA, generations=PASCAL), "driver 580", "cuda-drivers-580"),
    (OF_UBUNTU, "driver", "nvidia-driver-595-open"),
    (replace(OF_NVIDIA, driver="595.71.05"), "reinstall", """--reinstall '?installed?name("^(lib)?nvidia-")"""),
    (OF_UBUNTU, "reinstall", """--reinstall '?installed?name("nvidia-.*-580")'"""),
    (OF_UBUNTU, "module", "linux-modules-nvidia-580-open-$(uname -r)"),
    (DKMS, "module", "apt install dkms linux-headers-$(uname -r) && sudo dkms autoinstall"),
    (OF_UBUNTU, "libraries", "'libnvidia-compute-580=580.95.05-*' 'nvidia-utils-580=580.95.05-*'"),
    (SERVER, "libraries", "'libnvidia-compute-580-server=580.95.05-*' 'nvidia-utils-580-server=580.95.05-*'"),
    (SERVER, "fabric-manager", "'nvidia-fabricmanager-580=580.95.05-*' 'libnvidia-nscq-580=580.95.05-*'"),
    (OF_UBUNTU, "fabric-manager", "nvidia-driver-580-server-open"),
    (OF_NVIDIA, "fabric-manager", "'nvidia-fabricmanager=580.95.05-*' 'libnvidia-nscq=580.95.05-*'"),
    (replace(OF_NVIDIA, driver="570.124.06"), "fabric-manager", "'nvidia-fabricmanager-570=570.124.06-*' 'libnvidia-nscq-570="),
    (replace(OF_NVIDIA, driver="595.71.05"), "fabric-manager", "'nvidia-fabricmanager=595.71.05-*' 'libnvidia-nscq=595.71.05-*'"),
    (NOBLE, "toolkit 12.8", f"{NVIDIA}/ubuntu2404/x86_64/cuda-keyring_1.1-1_all.deb"),
    (replace(NOBLE, place="wsl2"), "toolkit 12.8", f"{NVIDIA}/wsl-ubuntu/x86_64/cuda-keyring_1.1-1_all.deb"),
    (replace(NOBLE, architecture="aarch64"), "toolkit 12.8", f"{NVIDIA}/ubuntu2404/sbsa/"),
    (OF_NVIDIA, "toolkit 12.8", "sudo apt update && sudo apt install cuda-toolkit-12-8"),
    (DKMS, "sign", "update-secureboot-policy --enroll-key"),
    (replace(NOBLE, kernel="6.17.0-42-generic"), "driver 580", "linux-modules-nvidia-580-open-generic-hwe-24.04"),
    (replace(NOBLE, kernel="6.9.1-custom"), "driver 580", "apt install linux-headers-$(uname -r) nvidia-dkms-580-open"),
    (replace(NOBLE, version="26.04", generations=frozenset({"Kepler"})), "driver 470", "NVIDIA-Linux-x86_64-470.*.run"),
    (replace(OF_UBUNTU, driver="570.211.01"), "driver 580", "nvidia-driver-580-open"),
    (OF_UBUNTU, "sign", "linux-modules-nvidia-580-open-generic"),
    (DKMS, "without-runfile", "sudo nvidia-uninstall && sudo apt update && sudo apt install --reinstall"),
    (BOOKWORM, "driver 535", "contrib non-free non-free-firmware/"),
    (BOOKWORM, "driver 535", "linux-image-amd64 linux-headers-amd64 nvidia-driver"),
    (replace(BOOKWORM, module_is_open=True), "driver 535", "nvidia-open-kernel-dkms nvidia-driver"),
    (BOOKWORM, "driver 580", f"{NVIDIA}/debian12/x86_64/cuda-keyring"),
    (BOOKWORM, "driver 580", "nvidia-driver-pinning-580"),
    (replace(BOOKWORM, generations=frozenset({"Kepler"})), "driver 470", "nvidia-tesla-470-driver"),
    (replace(BOOKWORM, kernel="6.12.95+deb12-amd64"), "driver 535", "linux-headers-amd64/bookworm-backports"),
    (replace(BOOKWORM, kernel="6.1.0-30-cloud-amd64"), "driver 535", "linux-headers-cloud-amd64"),
    (replace(BOOKWORM, version="13", generations=frozenset({"Kepler"})), "driver 470", "NVIDIA-Linux-x86_64-470.*.run"),
    (
        replace(BOOKWORM, driver="535.216.03", source="distribution"),
        "fabric-manager",
        "nvidia-fabricmanager-580 libnvidia-nscq-580",
    ),
    (BOOKWORM, "libraries", "libcuda1 libnvidia-ml1 nvidia-smi"),
    (ROCKY, "driver 580", f"--add-repo {NVIDIA}/rhel9/x86_64/cuda-rhel9.repo"),
    (ROCKY, "driver 580", "--set-enabled crb && sudo dnf install epel-release"),
    (ROCKY, "driver 580", "dnf module enable nvidia-driver:580-open && sudo dnf install --allowerasing nvidia-open"),
    (replace(ROCKY, generations=PASCAL), "driver 580", "nvidia-driver:580-dkms && sudo dnf install --allowerasing cuda-drivers"),
    (replace(ROCKY, distribution="rhel"), "driver 580", "epel-release-latest-9.noarch.rpm"),
    (OF_ROCKY, "driver 580", "dnf module switch-to nvidia-driver:580-open --allowerasing"),
    (OF_ROCKY, "module", "kernel-devel-$(uname -r) kernel-headers && sudo dkms autoinstall"),
    (replace(OF_ROCKY, packages={"kmod-nvidia-open-570": "1"}), "module", "dnf upgrade 'kmod-nvidia*' 'nvidia*'"),
    (RHEL10, "fabric-manager", "nvidia-fabricmanager-580.95.05 libnvidia-nscq-580.95.05"),
    (OF_ROCKY, "fabric-manager", "nvidia-fabric-manager-570.124.06 libnvidia-nscq-570-570.124.06"),
    (OF_ROCKY, "toolkit 13.0", "sudo dnf install cuda-toolkit-13-0"),
    (RHEL10, "driver 595", "dnf versionlock add '*nvidia*595*' && sudo dnf install --allowerasing nvidia-open"),
    (AMAZON, "driver 580", f"{NVIDIA}/amzn2023/x86_64/cuda-amzn2023.repo"),
    (AMAZON, "driver 580", "kernel-devel-$(uname -r) kernel-modules-extra-$(uname -r)"),
    (AMAZON, "driver 580", "dnf module enable nvidia-driver:580-open"),
    (ORACLE, "driver 580", "dnf install oracle-epel-release-el9 && sudo dnf install dkms kernel-uek-devel-$(uname -r)"),
    (FEDORA, "driver", "rpmfusion-nonfree-release-$(rpm -E %fedora).noarch.rpm"),
    (FEDORA, "driver", "akmod-nvidia xorg-x11-drv-nvidia-cuda"),
    (FEDORA, "driver", "/etc/rpm/macros.nvidia-kmod"),
    (replace(FEDORA, generations=PASCAL), "driver 580", "akmod-nvidia-580xx xorg-x11-drv-nvidia-580xx-cuda"),
    (FUSION, "module", "sudo akmods --force && sudo modprobe nvidia"),
    (FUSION, "sign", "/etc/pki/akmods/certs/public_key.der"),
    (replace(FEDORA, source="nvidia", packages={"dkms": "3"}), "driver 595", "dnf versionlock add '*nvidia*595*'"),
    (SLES, "driver 580", f"{NVIDIA}/sles15/x86_64/"),
    (replace(SLES, version="16.0"), "driver 580", f"{NVIDIA}/suse16/x86_64/"),
    (replace(SLES, distribution="opensuse-tumbleweed", version="20261101"), "driver 595", f"{NVIDIA}/suse16/x86_64/"),
    (SLES, "driver 580", "zypper install nvidia-open-driver-G06-signed-cuda-kmp-default"),
    (replace(SLES, generations=PASCAL), "driver 580", "nvidia-driver-G06-kmp-default"),
    (replace(SLES, kernel="6.4.0-150600.8-azure"), "driver 580", "kmp-azure"),
    (SLES, "driver 595", "nvidia-open-driver-G07-signed-cuda-kmp-default"),
    (LEAP, "libraries", "'nvidia-compute-utils-G06=580.95.05'"),
    (LEAP, "fabric-manager", "'nvidia-fabricmanager=580.95.05' 'libnvidia-nscq=580.95.05'"),
    (replace(LEAP, driver="570.124.06"), "fabric-manager", "'nvidia-fabric-manager=570.124.06' 'libnvidia-nscq-570=570.124.06'"),
    (ARCH, "driver", "pacman -Syu nvidia-open nvidia-utils"),
    (replace(ARCH, kernel="6.12.9-1-lts"), "driver", "nvidia-open-lts"),
    (replace(ARCH, kernel="6.17.1-zen1-1-zen"), "driver", "nvidia-open-dkms linux-zen-headers"),
    (replace(ARCH, generations=PASCAL), "driver", "yay -S nvidia-580xx-dkms nvidia-580xx-utils"),
    (RUNFILE, "driver 580", "sh NVIDIA-Linux-x86_64-580.*.run -M=open"),
    (RUNFILE, "libraries", "NVIDIA-Linux-x86_64-580.95.05.run --no-kernel-module"),
    (RUNFILE, "module", "tesla/580.95.05/NVIDIA-Linux-x86_64-580.95.05.run && sudo sh NVIDIA-Linux-x86_64-580.95.05.run -K"),
    (replace(NOBLE, distribution="gentoo", family="other"), "driver 580", "sh NVIDIA-Linux-x86_64-580.*.run -M=open"),
]


def made(machine: Distribution, recipe: str, platform: tuple[str, ...] = ("host",)) -> tuple[Fix, ...]:
    return fitting((Fix("Do it", "static", recipe=recipe),), FixContext(platform, machine), {})


@each(("machine", "recipe", "expected"), COMMANDS)
def test_the_line_of_a_platform(machine: Distribution, recipe: str, expected: str) -> None:
    first = made(machine, recipe)[0]
    assert expected in first.command
    assert "root" in first.needs
    assert subprocess.run(["sh", "-n"], input=first.command, text=True, capture_output=True).stderr == ""


@pytest.mark.parametrize("recipe", ["driver 580", "module-at-boot", "without-runfile"])
@pytest.mark.parametrize("machine", [DKMS, OF_ROCKY, FUSION, LEAP])
def test_a_new_driver_counts_from_the_next_boot_on(machine: Distribution, recipe: str) -> None:
    first = made(machine, recipe)[0]
    assert first.command.endswith(" && sudo reboot")
    assert (first.risk, "reboot" in first.needs) == ("disruptive", True)


@each("machine", [NOBLE, OF_UBUNTU, BOOKWORM, ROCKY, FEDORA, SLES, ARCH, RUNFILE])
def test_what_a_driver_took_can_be_taken_back(machine: Distribution) -> None:
    assert made(machine, "driver 580")[0].undo


def test_under_wsl_and_in_a_container_nothing_is_installed() -> None:
    [windows] = made(replace(NOBLE, place="wsl2"), "driver 580", ("debian", "wsl2"))
    assert (windows.command, windows.title[:11]) == ("", "In Windows:")
    [outside] = made(replace(NOBLE, place="container"), "driver 580", ("debian", "container"))
    assert "On the host: install a driver of branch 580 or newer" in outside.title
    assert made(replace(NOBLE, place="container"), "module", ("debian", "container"))[0].command == "static"


def test_secure_boot_wants_a_key_for_what_is_built_here() -> None:
    assert [fix.command for fix in made(replace(DKMS, secure_boot=True), "driver 580") if "mokutil" in fix.command]
    assert not [fix for fix in made(replace(OF_UBUNTU, secure_boot=True), "driver 580") if "mokutil" in fix.command]


@pytest.mark.parametrize(
    ("cloud", "expected"), [("gcp", "cuda_installer.pyz"), ("azure", "NvidiaGpuDriverLinux"), ("aws", "AMI")]
)
def test_a_cloud_has_a_way_of_its_own(cloud: str, expected: str) -> None:
    last = made(replace(NOBLE, cloud=cloud), "driver 580")[-1]
    assert expected in last.title + last.command


def test_a_branch_without_packages_is_said() -> None:
    [only] = made(replace(NOBLE, version="26.04", generations=frozenset({"Kepler"})), "driver 470")
    assert only.title.startswith("Do it: Ubuntu 26.04 has no package of R470")


def test_what_ubuntu_replaced_comes_back_from_the_cache_only() -> None:
    replaced = replace(OF_UBUNTU, driver="570.211.01")
    assert "/var/cache/apt/archives" in made(replaced, "driver 595")[0].undo
    assert made(OF_UBUNTU, "driver 595")[0].undo.endswith("linux-modules-nvidia-580-open-generic nvidia-driver-580-open")


def test_headless_machines_get_no_desktop() -> None:
    headless = replace(SERVER, packages={"nvidia-headless-no-dkms-580-server-open": "580.95.05-0ubuntu0.24.04.2"})
    assert "nvidia-headless-no-dkms-595-server-open nvidia-utils-595-server" in made(headless, "driver 595")[0].command


@pytest.mark.parametrize(("machine", "recipe"), [(OF_UBUNTU, "module"), (OF_UBUNTU, "libraries"), (SERVER, "fabric-manager")])
def test_where_apt_has_a_release_no_more_the_newest_goes_together(machine: Distribution, recipe: str) -> None:
    _, newest = made(machine, recipe)
    assert "apt no longer has" in newest.title
    assert "linux-modules-nvidia-580" in newest.command
    assert "reboot" in newest.needs


def test_a_fabric_manager_goes_back_to_what_it_was() -> None:
    before = {"nvidia-fabricmanager-580": "580.82.07-1", "libnvidia-nscq-580": "580.82.07-1"}
    fix = made(replace(OF_NVIDIA, packages={**OF_NVIDIA.packages, **before}), "fabric-manager")[0]
    assert fix.undo.endswith("'nvidia-fabricmanager-580=580.82.07-1' 'libnvidia-nscq-580=580.82.07-1'")
    assert fix.risk == "disruptive"


def test_no_way_back_takes_the_kernel_away() -> None:
    for recipe in ("module", "driver 580", "sign", "libraries"):
        for one in (NOBLE, OF_UBUNTU, SERVER, DKMS, BOOKWORM):
            assert not any(re.search(r"remove [^&]*linux-image", fix.undo) for fix in made(one, recipe))


@each("machine", [NOBLE, SERVER, BOOKWORM, ROCKY, FEDORA, SLES, ARCH, RUNFILE, Distribution()])
def test_every_problem_has_its_general_fixes_everywhere(machine: Distribution) -> None:
    for _, problem in catalog.problems().values():
        fitting(problem.fixes, FixContext(("debian", "host"), machine), {})


def test_there_is_no_newer_driver_for_a_gpu_that_is_too_old() -> None:
    [only] = made(replace(NOBLE, generations=frozenset({"Kepler"})), "driver 580")
    assert "R470 is the last branch" in only.title


def test_where_a_recipe_cannot_be_made_the_general_line_stays() -> None:
    assert made(replace(NOBLE, driver=""), "libraries")[0].command == "static"
    assert made(NOBLE, "toolkit <cuda>")[0].command == "static"
    assert made(Distribution(family=""), "toolkit 12.8")[0].command == "static"


def test_every_recipe_that_a_fix_names_exists() -> None:
    named = {fix.recipe.split()[0] for _, problem in catalog.problems().values() for fix in problem.fixes if fix.recipe}
    assert named <= set(RECIPES)
    assert set(RECIPES) - named == set()


SOURCES = [
    ({"nvidia-driver-580-open": "580.95.05-0ubuntu0.24.04.2"}, "ubuntu", "distribution"),
    ({"nvidia-driver-580": "580.95.05-0ubuntu1"}, "ubuntu", "nvidia"),
    ({"nvidia-driver-580": "580.95.05-0ubuntu0~gpu24.04.1"}, "ubuntu", "ppa"),
    ({"nvidia-driver": "535.247.01-1~deb12u1"}, "debian", "distribution"),
    ({"nvidia-driver": "580.95.05-1"}, "debian", "nvidia"),
    ({"nvidia-open": "590.48.01-1ubuntu1"}, "ubuntu", "nvidia"),
    ({"akmod-nvidia": "3:580.95.05-1.fc43"}, "fedora", "rpmfusion"),
    ({"kmod-nvidia-open-dkms": "3:580.95.05-1.el9"}, "rocky", "nvidia"),
    ({"nvidia-x11-drv": "580.95.05-1.el9.elrepo"}, "almalinux", "elrepo"),
    ({"nvidia-open-driver-G06-signed-kmp-default": "580.95.05"}, "opensuse-leap", "distribution"),
    ({"nvidia-open": "590.48.01-1"}, "arch", "distribution"),
    ({"nvidia-container-toolkit": "1.18.2-1", "cuda-toolkit-13-0": "13.0.2-1"}, "ubuntu", ""),
    ({}, "arch", ""),
]


@each(("packages", "distribution", "expected"), SOURCES)
def test_the_source_of_the_driver(packages: dict[str, str], distribution: str, expected: str) -> None:
    assert source(packages, distribution) == expected


RTX_4090, H100 = 0x2684, 0x2330
FLAVOURS = [
    ({"nvidia-driver-570-open": ""}, {H100}, False),
    ({"nvidia-driver-570-server-open": ""}, {RTX_4090}, True),
    ({"nvidia-headless-no-dkms-580-server": ""}, {RTX_4090}, True),
    ({"linux-modules-nvidia-580-open-generic": ""}, {H100}, False),
    ({"mysql-server-8.0": "", "nvidia-container-toolkit": ""}, {RTX_4090}, False),
    ({}, {H100}, True),
    ({}, {H100, RTX_4090}, False),
    ({}, set(), False),
]


@each(("packages", "devices", "expected"), FLAVOURS)
def test_who_has_a_driver_keeps_its_flavour(packages: dict[str, str], devices: set[int], expected: bool) -> None:
    assert is_server(packages, devices) is expected


def facts(**changed: Any) -> Facts:
    taken = machine.load("h100")
    replies = {question.replace("__", ":"): Reply("ok", value) for question, value in changed.items()}
    return Facts(replace(taken, replies={**taken.replies, **replies}))


def test_a_distribution_that_is_built_on_ubuntu_takes_its_packages() -> None:
    mint = 'ID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_ID="22.2"\nUBUNTU_CODENAME=noble\n'
    known = distribution(facts(**{"file:/etc/os-release": mint}))
    assert (known.distribution, known.version, known.family) == ("ubuntu", "24.04", "debian")


def test_what_cannot_be_read_costs_no_fix() -> None:
    known = distribution(Facts(replace(machine.load("h100"), replies={})))
    assert known == Distribution(family=known.family)


PIP = "/opt/env/bin/python -m pip"
WHEELS = "torch==2.8.0 torchvision --index-url https://download.pytorch.org/whl/cu128"
PYTORCH = "https://download.pytorch.org/whl/cu128"
INSTALL = f"<python> -m pip uninstall -y torch && <python> -m pip install {WHEELS}"
ENVIRONMENTS = [
    ("pip", "/opt/env", f"{PIP} uninstall -y torch && {PIP} install {WHEELS}"),
    (
        "uv",
        "/opt/env",
        f"uv pip uninstall --python /opt/env/bin/python torch && uv pip install --python /opt/env/bin/python {WHEELS}",
    ),
    (
        "uv-project",
        "/work/train/.venv",
        "cp /work/train/pyproject.toml /work/train/pyproject.toml.before && "
        f"uv add --project /work/train --frozen --index pytorch-cu128={PYTORCH} torch==2.8.0 torchvision && "
        """sed -i '/^name = "pytorch-cu128"/a explicit = true' /work/train/pyproject.toml && uv sync --project /work/train""",
    ),
    (
        "poetry",
        "/work/train/.venv",
        "cp /work/train/pyproject.toml /work/train/pyproject.toml.before && "
        "cp /work/train/poetry.lock /work/train/poetry.lock.before && "
        f"poetry -C /work/train source add --priority=explicit pytorch-cu128 {PYTORCH} && "
        "poetry -C /work/train add --source pytorch-cu128 torch==2.8.0 'torchvision>=0'",
    ),
    ("pipenv", "/home/u/.local/share/virtualenvs/t-1", f"pipenv install --index {PYTORCH} torch==2.8.0 torchvision"),
    (
        "image",
        "/usr",
        f"{PIP} uninstall -y --break-system-packages torch && {PIP} install --break-system-packages {WHEELS}",
    ),
    (
        "system",
        "/usr",
        f"/opt/env/bin/python -m venv ~/gpu-env && ~/gpu-env/bin/python -m pip install {WHEELS}",
    ),
    (
        "bare",
        "/opt/env",
        f"/opt/env/bin/python -m ensurepip && {PIP} uninstall -y torch && {PIP} install {WHEELS}",
    ),
]


def said(command: str, kind: str, prefix: str, **installed: str) -> Fix:
    here = Environment(
        kind, "/opt/env/bin/python", prefix, lambda name: installed.get(name.replace("-", "_"), "1" if name == "pip" else None)
    )
    fix = Fix("Do it", command, verify="<python> -c 'import torch'")
    [made] = fitting((fix,), FixContext(("debian", "host"), python=here, values={"python": here.python}), {})
    return made


@each(("kind", "prefix", "expected"), ENVIRONMENTS)
def test_packages_come_by_the_tool_of_the_environment(kind: str, prefix: str, expected: str) -> None:
    assert said(INSTALL, kind, prefix).command == expected


def test_the_check_of_a_new_environment_uses_its_python() -> None:
    fix = said(INSTALL, "system", "/usr")
    assert (fix.verify, fix.undo) == ("~/gpu-env/bin/python -c 'import torch'", "rm -r ~/gpu-env")
    assert "pip must not install into the system's Python" in fix.title


def test_undo_brings_back_what_is_installed_now() -> None:
    fix = said(INSTALL, "pip", "/opt/env", torch="2.7.0+cu126")
    index = "https://download.pytorch.org/whl/cu126"
    assert fix.undo == f"{PIP} uninstall -y torch torchvision && {PIP} install torch==2.7.0+cu126 --index-url {index}"


@pytest.mark.parametrize("kernel", ["3.10.0-1160.119.1.el7.x86_64", "5.10.230-223.885.amzn2.x86_64"])
def test_releases_without_dnf_get_the_words_of_yum(kernel: str) -> None:
    old = Distribution("centos", "", "rhel", kernel=kernel)
    where = FixContext(("rhel", "host"), old)
    for problem in (problem for check in catalog.checks().values() for problem in check.problems):
        for fix in fitting(problem.fixes, where, {}):
            assert not re.search(r"\bdnf\b", fix.command + fix.undo), fix
    [compiler] = fitting((Fix("Install it", "sudo dnf install gcc", on=("rhel",)),), where, {})
    assert compiler.command == "sudo yum install gcc"
    assert not any(fix.command for fix in fitting((Fix("Do it", recipe="driver 580"),), where, {}))


IMAGES = [("fedora", "43", "rhel", "ostree"), ("opensuse-microos", "20261110", "suse", "transactional")]
IMAGES += [("flatcar", "4230.2.1", "other", "fixed"), ("steamos", "3.7.13", "arch", "fixed")]


@pytest.mark.parametrize(("name", "version", "family", "kind"), IMAGES)
def test_a_system_that_is_an_image_gets_no_line_of_a_package_manager(name: str, version: str, family: str, kind: str) -> None:
    host = Distribution(name, version, family, kernel="6.17.7-300.fc43.x86_64", generations=frozenset({"Ada"}), image=kind)
    where = FixContext((family, "host"), host)
    offered = [
        fix for check in catalog.checks().values() for problem in check.problems for fix in fitting(problem.fixes, where, {})
    ]
    offered += [fix for recipe in RECIPES for fix in fitting((Fix("Do it", recipe=f"{recipe} 580"),), where, {})]
    assert len(offered) > 500
    for fix in offered:
        assert not re.search(r"sudo (apt|dnf|yum|zypper (?!refresh)|pacman|dkms|akmods)\b", fix.command + fix.undo), fix
    by = {"suse": "sudo zypper install gcc", "arch": "sudo pacman -S gcc"}.get(family, "sudo dnf install gcc")
    [compiler] = fitting((Fix("Install it", by),), where, {})
    layered = {"ostree": "sudo rpm-ostree install gcc", "transactional": "sudo transactional-update pkg install gcc", "fixed": ""}
    assert compiler.before_reboot == layered[kind]


@pytest.mark.parametrize("kind", ["conda", "pixi"])
def test_pip_does_not_change_what_conda_installed(kind: str) -> None:
    spec = {"torch": "pytorch=2.8.0=cpu_mkl_py312_h7b2d5fe_100"}
    here = Environment(kind, "/opt/env/bin/python", "/opt/env", lambda name: "2.8.0", of_conda=spec.get)
    where = FixContext(("debian",), python=here, values={"python": here.python})
    for packages, by_hand in (("torch", True), ("einops torch", True), ("einops", False)):
        [made] = fitting((Fix("Do it", f"<python> -m pip install {packages}", kind="install"),), where, {})
        assert (made.command == "", "conda" in made.title, made.kind == "manual") == (by_hand, by_hand, by_hand), packages


def test_a_folder_is_no_package_to_undo() -> None:
    assert not said("<python> -m pip install -e .", "pip", "/opt/env").undo


def test_undo_builds_again_what_was_built() -> None:
    build = "<python> -m pip install --force-reinstall --no-deps --no-build-isolation flash-attn"
    fix = said(f"{INSTALL} && {build}", "pip", "/opt/env", torch="2.9.1", flash_attn="2.8.3")
    assert fix.undo.endswith(f"{PIP} install torch==2.9.1 && {PIP} install --no-deps --no-build-isolation flash-attn==2.8.3")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("uv-project", "mv /w/t/pyproject.toml.before /w/t/pyproject.toml && uv sync --project /w/t"),
        ("poetry", "mv /w/t/poetry.lock.before /w/t/poetry.lock && poetry -C /w/t install"),
    ],
)
def test_undo_of_a_project_brings_back_its_file(kind: str, expected: str) -> None:
    assert said(INSTALL, kind, "/w/t/.venv", torch="2.9.1").undo.endswith(expected)


def test_uv_takes_pytorch_by_its_own_word_where_other_indexes_count_too() -> None:
    command = (
        f"<python> -m pip install vllm==0.20.0 --extra-index-url https://wheels.vllm.ai/0.20.0/cu128 --extra-index-url {PYTORCH}"
    )
    assert said(command, "uv", "/opt/env").command.endswith("https://wheels.vllm.ai/0.20.0/cu128 --torch-backend=cu128")


@pytest.mark.parametrize(
    ("kind", "prefix", "expected"),
    [
        ("conda", "/opt/conda/envs/ml", "conda install -p /opt/conda/envs/ml -c conda-forge pytorch-gpu"),
        ("pixi", "/work/train/.pixi/envs/default", "pixi add --manifest-path /work/train pytorch-gpu"),
    ],
)
def test_conda_names_the_environment(kind: str, prefix: str, expected: str) -> None:
    assert said("conda install -c conda-forge pytorch-gpu", kind, prefix).command == expected


def test_conda_fills_no_venv() -> None:
    here = Environment("pip", "/opt/env/bin/python", "/opt/env")
    assert fitting((Fix("By conda", "conda install x"),), FixContext(("debian", "conda"), python=here), {}) == ()


def interpreter(**changed: Any) -> dict[str, Any]:
    return {**machine.load("h100").replies["interpreter"].value, **changed}


NO_PIP = [{"name": "torch", "version": "2.8.0", "location": "/x", "installer": "uv"}]
WITH_PIP = [*NO_PIP, {"name": "pip", "version": "25", "location": "/x"}]
KINDS = [
    ({"prefix": "/w/.venv", "venv_settings": ["home", "uv"]}, NO_PIP, "uv"),
    ({"prefix": "/w/.venv", "venv_settings": ["home", "uv"], "project_files": ["uv.lock"]}, NO_PIP, "uv-project"),
    ({"prefix": "/w/.venv", "venv_settings": ["home"]}, WITH_PIP, "pip"),
    ({"prefix": "/w/.venv", "venv_settings": ["home"]}, NO_PIP, "bare"),
    ({"prefix": "/w/.venv", "project_files": ["poetry.lock"]}, NO_PIP, "poetry"),
    ({"prefix": "/h/.cache/pypoetry/virtualenvs/t-1-py3.12"}, NO_PIP, "poetry"),
    ({"prefix": "/w/.venv", "project_files": ["Pipfile"]}, WITH_PIP, "pipenv"),
    ({"prefix": "/w/.pixi/envs/default", "base_prefix": "/w/.pixi/envs/default", "conda_prefix": "/w"}, NO_PIP, "pixi"),
    ({"prefix": "/opt/conda", "base_prefix": "/opt/conda", "conda_prefix": "/opt/conda"}, WITH_PIP, "conda"),
    ({"prefix": "/usr", "base_prefix": "/usr", "externally_managed": False}, WITH_PIP, "pip"),
]


@each(("answers", "packages", "expected"), KINDS)
def test_the_kind_of_environment(answers: dict[str, Any], packages: list[dict[str, str]], expected: str) -> None:
    assert environment.of(facts(interpreter=interpreter(**answers), packages=packages)).kind == expected


@each(
    ("machine", "command", "expected"),
    [
        (NOBLE, "sudo apt install passt", "sudo apt install passt"),
        (replace(NOBLE, version="22.04"), "sudo apt install passt", None),
        (NOBLE, "sudo apt install nvidia-utils-580 || sudo apt install nvidia-smi", "sudo apt install nvidia-utils-580"),
        (BOOKWORM, "sudo apt install nvidia-utils-580 || sudo apt install nvidia-smi", "sudo apt install nvidia-smi"),
        (BOOKWORM, "sudo apt install linux-modules-extra-$(uname -r)", None),
        (replace(BOOKWORM, source="nvidia"), "sudo apt install nvidia-driver-580", "sudo apt install nvidia-driver-580"),
        (replace(NOBLE, version="20.04"), "sudo apt-get -y install dkms 'nvidia-driver-580-open=1-*'", None),
        (replace(NOBLE, version="31.10"), "sudo apt install g++-99", "sudo apt install g++-99"),
        (NOBLE, "sudo apt install g++-99", None),
        (NOBLE, "sudo apt install nvidia-container-toolkit", "sudo apt install nvidia-container-toolkit"),
        (NOBLE, "sudo apt install a-package-in-no-table", "sudo apt install a-package-in-no-table"),
    ],
)
def test_what_a_release_does_not_have_is_not_offered(machine: Distribution, command: str, expected: str | None) -> None:
    found = fitting((Fix("Install it", command),), FixContext(("host",), machine), {})
    assert [fix.command for fix in found] == ([expected] if expected else [])


def test_every_package_of_apt_is_in_the_table() -> None:
    """So that a name that does not exist is noticed; names with a placeholder are checked where it is filled."""
    fixes = [fix for _, problem in catalog.problems().values() for fix in problem.fixes]
    names = {name for fix in fixes for name in available.installed_by_apt(fix.command) if "<" not in fix.command}
    names -= {name for name in names if name.endswith("-")}  # the rest is what a $(…) gives
    assert len(names) > 40
    assert sorted(name for name in names if not any(apt.offers(release, name) for release in apt.releases())) == []


WRITTEN = [
    (ROCKY, "driver 580", "sudo dnf remove nvidia-open"),
    (OF_ROCKY, "driver 580", ""),
    (FEDORA, "driver", "sudo dnf remove akmod-nvidia xorg-x11-drv-nvidia-cuda"),
    (FUSION, "driver", ""),
    (LEAP, "driver 580", ""),
    (ARCH, "driver", "sudo pacman -Rs nvidia-open nvidia-utils"),
    (replace(ARCH, source="distribution"), "driver", ""),
    (SLES, "sign", "sudo mokutil --delete /var/lib/dkms/mok.pub"),
    (replace(DKMS, secure_boot=True), "module", ""),
]


@each(("machine", "recipe", "expected"), WRITTEN)
def test_an_undo_is_written_where_it_is_exact(machine: Distribution, recipe: str, expected: str) -> None:
    assert made(machine, recipe)[0].undo == expected


def test_what_is_not_known_to_be_installed_is_not_removed() -> None:
    fix = Fix("Do it", "<python> -m pip install --force-reinstall torch")
    here = Environment("pip", "python", "/opt/env", is_listed=False)
    [made_here] = fitting((fix,), FixContext(("debian", "host"), python=here, values={"python": "python"}), {})
    assert made_here.undo == ""
