"""Recipes for the driver, its kernel module and the packages of exactly its release."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

from gpudoctor.fixes import arch, debian, nixos, ostree, redhat, rpmfusion, runfile, suse, ubuntu
from gpudoctor.fixes.common import APT_DRIVER
from gpudoctor.fixes.distribution import OSTREE, Distribution, Lines
from gpudoctor.knowledge import last_branch
from gpudoctor.knowledge.cuda import table
from gpudoctor.model import Fix

NONE_LAST = 9999
KEEP = "Keep the driver: R{} is the last branch that supports the GPU here; use software that works with it"
NO_PACKAGE = "{}: {} {} has no package of R{}; download it from https://www.nvidia.com/drivers"
TOGETHER = "{}; if apt no longer has that release: upgrade the whole driver"
NEWEST_KERNEL = "If apt no longer has packages for this kernel: install the newest kernel with its module, then reboot"
OLDEST_OF = {"390": ("Fermi",), "470": ("Kepler",), "580": ("Pascal",)}  # the branch -> the generation that ends with it
LONG_TERM = 580  # the maintained branch that supports the most GPUs
LOAD = "sudo modprobe nvidia"
ENABLE, RESTART = "sudo systemctl enable nvidia-fabricmanager", "sudo systemctl restart nvidia-fabricmanager"
UBUNTU = Fix(
    "Let Ubuntu choose the driver, then reboot",
    "sudo apt install ubuntu-drivers-common && sudo ubuntu-drivers install",
    kind="install",
    reboot=True,
)
IN_WINDOWS = "In Windows: install the newest NVIDIA driver, then run wsl --shutdown; never install a driver inside WSL"
ON_WINDOWS = "Install the newest driver for this GPU from https://www.nvidia.com/drivers, then restart Windows"
ENROL = (
    "Secure Boot is on: enrol the key that signs the module; at the next boot, choose 'Enroll MOK' and enter the password again"
)
FAMILIES = {"debian": debian, "rhel": redhat, "suse": suse, "arch": arch, "nixos": nixos}


def of(host: Distribution) -> ModuleType:
    """The package source that the driver of this machine comes from, or would come from."""
    if host.image == OSTREE:
        return ostree
    if host.source == "runfile" or (host.has_only_yum and not host.source):
        return runfile
    if host.is_ubuntu:
        return ubuntu
    if host.source == "rpmfusion" or (host.distribution == "fedora" and not host.source):
        return rpmfusion
    return FAMILIES.get(host.family, runfile)


def elsewhere(host: Distribution, fix: Fix, what: str) -> Iterator[Fix]:
    """No package has it: under WSL2 and in a container, the driver of Windows or of the host is used."""
    if host.place == "wsl2":
        yield Fix(IN_WINDOWS, verify=fix.verify)
    elif host.place == "windows":
        yield Fix(ON_WINDOWS, verify=fix.verify)
    elif host.place == "container":
        yield Fix(f"On the host: {what}, never in the image", verify=fix.verify, where="host")


def install(host: Distribution, fix: Fix, branch: str = "", last: str = "") -> Iterator[Fix]:
    """Installs a branch in the flavour that these GPUs need. last: it is the last branch for GPUs that may be unknown."""
    if last and not host.generations:
        host = replace(host, generations=frozenset(OLDEST_OF.get(branch, ())))
    wanted = int(number[0]) if (number := re.match(r"\d+", branch)) else recommended(host)
    if host.place != "host":
        yield from elsewhere(host, fix, f"install a driver of branch {wanted} or newer")
        return
    if last_of(host) < wanted:
        yield Fix(KEEP.format(last_of(host)))
        return
    source = of(host)
    if source is runfile and host.source != "runfile" and host.family != "other":
        return
    made: Lines = source.install(host, wanted)
    has_package = made.kind != "manual" or source is runfile
    titled = replace(fix, title=NO_PACKAGE.format(fix.title, host.distribution.title(), host.version, wanted))
    yield from _made(fix if has_package else titled, made._replace(reboot=True))
    if host.is_ubuntu and not (host.source or host.driver) and has_package:
        yield replace(UBUNTU, verify=fix.verify)
    if host.secure_boot and (source is not ubuntu or ubuntu.uses_dkms(host)):
        yield from _made(replace(fix, title=ENROL), source.sign(host)._replace(reboot=True))
    yield from of_cloud(host, fix)


def recommended(host: Distribution) -> int:
    """The long-term support branch, or the next one if it is installed, but at most the last for the oldest GPU here."""
    kept = (row.number for row in table().branches if row.kind in ("production", "long-term support"))
    newer = min((number for number in kept if number > (host.branch or 0)), default=LONG_TERM)
    return min(max(LONG_TERM, newer), last_of(host))


def last_of(host: Distribution) -> int:
    """The last branch that supports all GPUs here; NONE_LAST if the newest still does."""
    last = (branch for generation in host.generations if generation and (branch := last_branch(generation)))
    return min(last, default=NONE_LAST)


CLOUDS = {
    "gcp": Fix(
        "On Google Cloud: run Google's installer, which chooses the driver for this machine type",
        "curl -fsSL https://storage.googleapis.com/compute-gpu-installation-us/installer/latest/cuda_installer.pyz "
        "-o cuda_installer.pyz && sudo python3 cuda_installer.pyz install_driver",
        needs=("root", "network"),
    ),
    "azure": Fix(
        "On Azure, with its command line: install the GPU driver extension, which also supports the GRID driver of NV sizes",
        "az vm extension set --publisher Microsoft.HpcCompute --name NvidiaGpuDriverLinux "
        "--resource-group <group_name> --vm-name <chosen_name>",
        needs=("network",),
    ),
    "aws": Fix("On AWS: start the instance from a Deep Learning Base GPU AMI, which includes the driver and Fabric Manager"),
}


def of_cloud(host: Distribution, fix: Fix) -> Iterator[Fix]:
    if host.cloud in CLOUDS:
        yield replace(CLOUDS[host.cloud], verify=fix.verify)


def _is_guessed(host: Distribution, source: ModuleType) -> bool:
    """A text that names no distribution shows no .run file either: the commands for each distribution are better."""
    return source is runfile and host.source != "runfile" and not host.family


def module(host: Distribution, fix: Fix) -> Iterator[Fix]:
    """Installs the module for the running kernel, compiled or prebuilt, like that of the installed driver."""
    source = of(host)
    if host.place != "host" or _is_guessed(host, source):
        return
    yield from _made(fix, source.module(host))
    if source in (debian, ubuntu):
        yield from _made(replace(fix, title=NEWEST_KERNEL), source.module_of_newest_kernel(host)._replace(reboot=True))


def module_at_boot(host: Distribution, fix: Fix) -> Iterator[Fix]:
    """Installs the module after an interrupted upgrade."""
    if host.place != "host" or _is_guessed(host, of(host)):
        return
    made: Lines = of(host).module(host)
    before = "sudo apt install --fix-broken && " if host.family == "debian" and made.command else ""
    yield from _made(fix, made._replace(command=before + made.command, loads=False, reboot=True))
    if host.family == "debian" and of(host) is not runfile:
        yield from _made(replace(fix, title=NEWEST_KERNEL), of(host).module_of_newest_kernel(host)._replace(reboot=True))


def without_runfile(host: Distribution, fix: Fix) -> Iterator[Fix]:
    """Removes a .run installation that lies under the packages, then restores the packages' files that it removed."""
    if host.place == "host" and of(host) is not runfile:
        made: Lines = of(host).reinstall(host)
        yield from _made(fix, Lines("sudo nvidia-uninstall && " + made.command if made.command else "", reboot=True))


REMOVE = {
    "debian": f"sudo apt purge '{APT_DRIVER}'",
    "rhel": "sudo dnf remove --noautoremove 'kmod-nvidia*' 'akmod-nvidia*' 'nvidia-driver*' 'xorg-x11-drv-nvidia*'",
}


IGNORED = Fix(
    "Show the packages that pacman ignores: the driver's must not be in IgnorePkg",
    "grep -n '^IgnorePkg' /etc/pacman.conf",
    kind="read",
)


def one_source(host: Distribution, fix: Fix, newest: str = "") -> Iterator[Fix]:
    """If packages of two sources are mixed: removes all, then installs the driver from one, NVIDIA's if it is set up."""
    if host.place != "host":
        return
    if host.family == "debian" and host.has("^cuda-(keyring|drivers)"):
        host = replace(host, source="nvidia")
    wanted = min(max(recommended(host), int(newest) if newest.isdigit() else 0), last_of(host))
    made: Lines = of(host).install(host, wanted)
    before = f"{REMOVE[host.family]} && " if host.family in REMOVE else ""
    if host.family == "arch":
        yield IGNORED
    fix = fix if before else replace(fix, title="Install one release from one source, then reboot")
    yield from _made(fix, made._replace(command=before + made.command, undo="", reboot=True))


def reinstall(host: Distribution, fix: Fix) -> Iterator[Fix]:
    """Reinstalls the same release with all of its files."""
    if host.place == "host":
        yield from _made(fix, of(host).reinstall(host))


def libraries(host: Distribution, fix: Fix) -> Iterator[Fix]:
    """Installs the driver's libraries and tools in the release of the running module."""
    if host.place != "host":
        return
    source = of(host)
    yield from _made(fix, source.libraries(host))
    if source in (debian, ubuntu):
        yield from _made(replace(fix, title=TOGETHER.format(fix.title)), source.together(host)._replace(reboot=True))


def fabric_manager(host: Distribution, fix: Fix) -> Iterator[Fix]:
    if host.place != "host":
        return
    source = of(host)
    made: Lines = source.fabric_manager(host)
    if made.reboot:
        yield from _made(fix, made, ENABLE)
    else:
        yield from (replace(step, risk="disruptive") for step in _made(fix, made, ENABLE, RESTART))
    if host.is_ubuntu and source is ubuntu and not made.reboot:
        yield from _made(replace(fix, title=TOGETHER.format(fix.title)), ubuntu.with_fabric_manager(host), ENABLE)


def toolkit(host: Distribution, fix: Fix, release: str = "") -> Iterator[Fix]:
    if release and "<" not in release and of(host) is not runfile:
        yield from _made(fix, of(host).toolkit(host, release))
    elif release and "<" not in release and host.family in FAMILIES:
        source = ubuntu if host.is_ubuntu else FAMILIES[host.family]
        yield from _made(fix, source.toolkit(host, release))


def sign(host: Distribution, fix: Fix) -> Iterator[Fix]:
    """Makes Secure Boot accept the module."""
    if host.place == "host" and of(host) is runfile and host.source == "runfile" and not host.has("^dkms$"):
        for title, made in runfile.with_own_key(host):
            yield from _made(replace(fix, title=title), made)
    elif host.place == "host":
        yield from _made(fix, of(host).sign(host)._replace(reboot=True))


def _made(fix: Fix, lines: Lines, *then: str) -> Iterator[Fix]:
    """then: the commands to run after the lines and before the reboot."""
    if lines.command:
        command = " && ".join((lines.command, *then, *((LOAD,) if lines.loads else ())))
        undo, kind, reboot = lines.undo, lines.kind, lines.reboot
        yield Fix(fix.title, command, needs=lines.needs, verify=fix.verify, undo=undo, kind=kind, reboot=reboot)
