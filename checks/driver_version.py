"""The kernel module and the user-space driver libraries come from one driver release.

What it means
A driver is two halves: a kernel module, loaded at boot, and libraries (libcuda, libnvidia-ml) that programs load. They
speak a private protocol that changes with every release, so the halves must have exactly the same version.

How it is judged
The version of the loaded module (/proc/driver/nvidia/version) against the versions in the libraries' file names.
After an upgrade the old module stays loaded until the next boot. Where two installations are mixed (a .run file and
packages), a reboot does not help.

Known exceptions
Forward-compatibility libraries (cuda-compat) are meant to differ and are judged by their own check. Under WSL2 the
module lives in Windows.

References
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.model import Action, Cause, Check, Finding, Fix, Problem, Skip, first_cause, fix_on

MIXED_INSTALL = Problem(
    id="driver-library-mismatch-mixed-install",
    title="Two driver installations of different versions are mixed",
    why="A .run installer and the package manager each installed a driver. A reboot cannot make the module of one and the "
    "libraries of the other agree.",
    action=Action.INSTALL,
    fixes=fix_on(
        "Remove the .run installation, then reinstall the packages",
        verify="nvidia-smi",
        debian="sudo nvidia-uninstall && sudo apt install --reinstall '^nvidia-.*-<branch>.*' && sudo reboot",
        rhel="sudo nvidia-uninstall && sudo dnf reinstall '*nvidia*' && sudo reboot",
        arch="sudo nvidia-uninstall && sudo pacman -S nvidia-open-dkms nvidia-utils && sudo reboot",
        suse="sudo nvidia-uninstall && sudo zypper install --force '*nvidia*' && sudo reboot",
        other="sudo nvidia-uninstall && sudo reboot",
    ),
    references=("https://github.com/tinygrad/open-gpu-kernel-modules/issues/47",),
)

MISMATCH = Problem(
    id="driver-library-version-mismatch",
    title="The driver was upgraded, but the old kernel module is still loaded",
    why="An upgrade (often an automatic one) replaced the libraries on disk. The module in memory is the old one until it is "
    "loaded again, and until then no program can talk to the GPU.",
    action=Action.REBOOT,
    fixes=(
        Fix(
            "Boot into the new module",
            command="sudo reboot",
            verify="nvidia-smi",
            on=("host",),
        ),
        Fix(
            "Without a reboot: stop every program that uses a GPU, then load the module again",
            command="sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
            risk="disruptive",
            needs=("drain",),
            verify="nvidia-smi",
            on=("host",),
        ),
        Fix(
            "Start the container again, so that it gets the host's libraries; never install driver packages in an image",
            risk="disruptive",
            on=("container",),
        ),
    ),
    references=("https://github.com/NVIDIA/ubuntu-packaging-nvidia-driver/issues/3",),
)


def mixed_install(facts: Facts) -> Finding | None:
    packaged = sorted({package.version for package in facts.driver.packages if package.name.startswith("libnvidia-")})
    if not (facts.driver.runfile_install and packaged):
        return None
    return MIXED_INSTALL.found(
        f"kernel module {facts.driver.module_version}, libraries {facts.driver.library_version}, "
        "and both a .run installation and packages are there",
        {"module": facts.driver.module_version, "library": facts.driver.library_version, "packages": packaged},
    )


def judge(facts: Facts) -> Iterator[Finding]:
    module, libraries = facts.driver.module_version, facts.driver.library_versions
    if module is None:
        raise Skip("no NVIDIA kernel module is loaded here")
    if not libraries:
        raise Skip("no driver library was found in the usual places", Skip.NOT_INSTALLED)
    if set(libraries) == {module}:
        return
    mismatch = MISMATCH.found(
        f"the loaded kernel module is {module}, the libraries are {', '.join(libraries)}",
        {"module": module, "libraries": libraries},
    )
    yield from first_cause((Cause(MIXED_INSTALL, mixed_install), Cause(MISMATCH, lambda facts: mismatch)), facts, mismatch)


def summary(facts: Facts) -> str:
    flavour = "open" if facts.driver.module_is_open else "proprietary"
    return f"{facts.driver.module_version}, {flavour} kernel module"


CHECK = Check(
    judge=judge,
    summary=summary,
    area="driver",
    problems=(MIXED_INSTALL, MISMATCH),
    needs=("kernel-module",),
)
