"""The kernel module and the user-space driver libraries come from one driver release.

What it means
A driver has two parts: a kernel module, loaded at boot, and libraries (libcuda, libnvidia-ml) that programs load. They use a
private protocol that changes with every release, so both parts must have exactly the same version.

How it is judged
NVML reports a mismatch (code 18: driver/library version mismatch). If NVML does not answer, the check compares the version of
the loaded module with the one in the library's file name. The module on disk shows what the next boot would load. If it has the
libraries' release, or a newer kernel with its own module is installed, a reboot fixes the mismatch. Otherwise a reboot does not
help: two installations or packages from two sources are mixed, or an upgrade stopped half-way. In a container, the host's module
meets libraries from the image, or the libraries that the host had when the container was started.

Known exceptions
Libraries of another release that are installed but not loaded do no harm. Forward-compatibility libraries (cuda-compat) have
another version by design; their own check judges them. Under WSL2 the module is in Windows.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
https://github.com/tinygrad/open-gpu-kernel-modules/issues/47
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.facts.driver_changes import that_installed
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import install_on
from gpudoctor.fixes.engines import restarted
from gpudoctor.judging.driver.driver_packages import FOR_LXC, MIXED_PACKAGES, PURGE, mixed_packages
from gpudoctor.judging.driver.next_boot import is_same_on_disk, next_kernel, on_disk, stays, waits_for_boot
from gpudoctor.model import Action, Cause, Check, Confidence, Finding, Fix, Problem, Skip, first_cause, fix_on

IN_IMAGE = Problem(
    id="driver-libraries-in-image",
    title="The image contains driver libraries of another release than the host",
    why="Driver libraries must come from the host: the container toolkit adds them when the container starts. A driver package "
    "that is installed in the image takes precedence over them.",
    action=Action.INSTALL,
    fixes=(
        *fix_on(
            "Remove them from the image (Dockerfile: RUN), then recreate the container",
            verify="nvidia-smi",
            risk="disruptive",
            debian=f"{PURGE} && ldconfig",
            rhel="dnf remove -y 'libnvidia*' 'nvidia-driver*' && ldconfig",
            kind="install",
        ),
        Fix("Remove the driver packages from the image, then recreate the container", on=("suse", "arch", "other")),
    ),
)
OLDER_IN_CONTAINER = Problem(
    id="container-libraries-older-than-driver",
    title="The container was started before the host's driver was upgraded",
    why="Driver libraries are added to a container when it starts. The host has loaded a newer driver since, which does not work "
    "with them.",
    action=Action.RESTART_APP,
    fixes=(*restarted("Restart the container, so that it gets the host's libraries", "nvidia-smi"),),
)

MIXED_INSTALL = Problem(
    id="driver-library-mismatch-mixed-install",
    title="Two driver installations of different versions are mixed",
    why="A .run installer and the package manager each installed a driver. The module of one does not work with the libraries of "
    "the other, and a reboot does not change that.",
    action=Action.INSTALL,
    fixes=install_on(
        "Remove the .run installation, then reinstall the packages",
        recipe="without-runfile",
        verify="nvidia-smi",
        debian="sudo nvidia-uninstall && sudo apt install --reinstall '?installed?name(nvidia-.*-<branch>)'",
        rhel="sudo nvidia-uninstall && sudo dnf reinstall '*nvidia*'",
        arch="sudo nvidia-uninstall && sudo pacman -S nvidia-open-dkms nvidia-utils",
        suse="sudo nvidia-uninstall && sudo zypper install --force '*nvidia*'",
        other="sudo nvidia-uninstall",
        reboot=True,
        kinds={},
    ),
    references=("https://github.com/tinygrad/open-gpu-kernel-modules/issues/47",),
)

INCOMPLETE = Problem(
    id="driver-upgrade-incomplete",
    title="The driver's libraries were upgraded, but its kernel module was not",
    why="The module on disk still has the old release, so a reboot does not help: the new module was not built or not installed.",
    action=Action.INSTALL,
    unfit=True,
    fixes=install_on(
        "Build and install the module of the libraries' release, then reboot",
        recipe="module-at-boot",
        verify="nvidia-smi",
        debian="sudo apt install --fix-broken && sudo dkms autoinstall",
        rhel="sudo dnf upgrade '*nvidia*' && (sudo akmods --force || sudo dkms autoinstall)",
        suse="sudo zypper update '*nvidia*' && sudo dkms autoinstall",
        arch="sudo pacman -Syu && sudo dkms autoinstall",
        other="sudo dkms autoinstall",
        reboot=True,
        kinds={},
    ),
)
INSTALL_READY_MADE = install_on(
    "Install the module of the libraries' release, then reboot",
    recipe="module-at-boot",
    verify="nvidia-smi",
    debian="sudo apt install --fix-broken",
    rhel="sudo dnf upgrade '*nvidia*' && (! command -v akmods || sudo akmods --force)",
    suse="sudo zypper update '*nvidia*'",
    arch="sudo pacman -Syu",
    other="sudo sh NVIDIA-Linux-*.run",
    reboot=True,
)

MISMATCH = Problem(
    id="driver-library-version-mismatch",
    title="The driver was upgraded, but the old kernel module is still loaded",
    why="An upgrade (often an automatic one) replaced the libraries on disk. The old module stays in memory until it is "
    "reloaded. Until then no program can use the GPU.",
    action=Action.REBOOT,
    unfit=True,
    fixes=(
        Fix(
            "Reboot to load the new module",
            verify="nvidia-smi",
            on=("host",),
            reboot=True,
        ),
        Fix(
            "On the host, where the driver was upgraded: reboot, or reload the module; then restart the container",
            risk="disruptive",
            on=("container",),
        ),
    ),
    references=("https://github.com/NVIDIA/ubuntu-packaging-nvidia-driver/issues/3",),
)

SERVICES = {"nv-fabricmanager": "nvidia-fabricmanager", "nv-hostengine": "nvidia-dcgm"}
RELOAD = Fix(
    "Without a reboot: stop every program that uses a GPU, then reload the module",
    "sudo systemctl stop <services>; sudo modprobe -r <modules> && sudo modprobe nvidia; sudo systemctl start <services>",
    risk="disruptive",
    needs=("root", "drain"),
    verify="nvidia-smi",
    on=("host",),
    kind="restart",
)

KEEP = Fix(
    "Afterwards: keep automatic upgrades from replacing the driver under running programs, and upgrade it by hand",
    """echo 'Unattended-Upgrade::Package-Blacklist { "nvidia"; "libnvidia"; "linux-modules-nvidia"; };' | """
    "sudo tee /etc/apt/apt.conf.d/51-keep-nvidia",
    verify="apt-config dump Unattended-Upgrade::Package-Blacklist",
    on=("debian",),
    kind="set",
    needs=("root",),
    undo="sudo rm /etc/apt/apt.conf.d/51-keep-nvidia",
)
VERSION_MISMATCH = 18  # NVML's code


def judge(facts: Facts) -> Iterator[Finding]:
    module = facts.driver.module_version
    if module is None:
        raise Skip("no NVIDIA kernel module is loaded")
    if agree(facts, module):
        return
    words = f"the loaded kernel module is {module}, the libraries are {', '.join(facts.driver.library_versions) or 'not found'}"
    words += f"; the module on disk is {on_disk(facts)}" if on_disk(facts) else ""
    words += f"; kernel {next_kernel(facts)} is not booted yet" if is_same_on_disk(facts) and next_kernel(facts) else ""
    evidence: dict[str, object] = {"module": module, "libraries": facts.driver.library_versions, "module_on_disk": on_disk(facts)}
    causes = (
        Cause(IN_IMAGE, lambda facts: in_image(facts).found(words, evidence) if brought_along(facts) else None),
        Cause(OLDER_IN_CONTAINER, lambda facts: OLDER_IN_CONTAINER.found(words, evidence) if is_older(facts, module) else None),
        Cause(MIXED_INSTALL, lambda facts: mixed_install(facts, words, evidence)),
        Cause(MIXED_PACKAGES, lambda facts: mixed_packages(facts, words, evidence) if is_same_on_disk(facts) else None),
        Cause(INCOMPLETE, lambda facts: incomplete(facts).found(words, evidence) if stays(facts) else None),
        Cause(MISMATCH, lambda facts: upgraded(facts, words, evidence)),
    )
    yield from first_cause(causes, facts, MISMATCH.found(words, evidence))


def agree(facts: Facts, module: str) -> bool:
    """Whether both versions match: by NVML's code, else by the name of the library file that the loader picks."""
    code = known(lambda: facts.nvml.init_code)
    if code in (0, VERSION_MISMATCH):
        return code == 0
    library = facts.driver.library_version
    if library is None:
        raise Skip("no driver library was found in the standard folders", Skip.NOT_INSTALLED)
    return library == module


def upgraded(facts: Facts, words: str, evidence: dict[str, object]) -> Finding:
    """The list of modules and services to reload is omitted if it cannot be read."""
    sure = Confidence.CONFIRMED if waits_for_boot(facts) else Confidence.LIKELY
    change = known(lambda: that_installed(facts.driver.library_versions[0], facts.replies))
    if change:
        words, evidence = f"{words}; {change.words}", {**evidence, "changed_by": change.by, "changed_on": change.when}
    fixes = (KEEP,) if change and change.is_automatic else ()
    try:
        found = mismatch(facts).found(words, {**evidence, **reload_of(facts)}, confidence=sure)
    except Skip:
        found = MISMATCH.found(words, evidence, confidence=sure)
    return replace(found, problem=replace(found.problem, fixes=(*found.problem.fixes, *fixes)))


def mismatch(facts: Facts) -> Problem:
    """The module cannot be reloaded if an upgrade of the kernel removed the module file for the running kernel."""
    is_gone = facts.driver.installed_modules and not facts.driver.module_for_running_kernel and on_disk(facts) is None
    return MISMATCH if is_gone else replace(MISMATCH, fixes=(*MISMATCH.fixes, RELOAD))


def reload_of(facts: Facts) -> dict[str, object]:
    """What uses the module: services, and modules that depend on it."""
    others = sorted(name for name in facts.driver.loaded_modules if name in ("nvidia_peermem", "nvidia_fs", "gdrdrv"))
    running = [unit for process, unit in SERVICES.items() if is_running(facts, process)]
    return {
        "services": [*running, "nvidia-persistenced"],
        "modules": [*others, "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"],
    }


def is_running(facts: Facts, process: str) -> bool:
    return known(lambda: facts.services.is_running(process), False)


def in_image(facts: Facts) -> Problem:
    """An LXC container has no Dockerfile, and no toolkit adds the host's libraries to it."""
    return replace(IN_IMAGE, fixes=(FOR_LXC,)) if facts.container.engine == "lxc" else IN_IMAGE


def is_older(facts: Facts, module: str) -> bool:
    """In a container: whether its libraries are older than the host's module."""
    versions = facts.driver.library_versions
    return facts.container.engine is not None and bool(versions) and Version(versions[0]) < Version(module)


def incomplete(facts: Facts) -> Problem:
    """Without DKMS the module comes prebuilt from packages."""
    has_dkms = known(lambda: facts.driver.has_dkms, True)
    return INCOMPLETE if has_dkms else replace(INCOMPLETE, fixes=INSTALL_READY_MADE)


def brought_along(facts: Facts) -> bool:
    """In a container: whether libraries are used that were not mounted into it."""
    if facts.container.engine is None:
        return False
    libraries = [library for name in ("libnvidia-ml", "libcuda") for library in facts.libraries.named(name)]
    own = (library for library in libraries if not (library.is_stub or library.is_compat or library.owner == "container"))
    return any(
        library.version in facts.driver.library_versions and library.version != facts.driver.module_version for library in own
    )


def mixed_install(facts: Facts, words: str, evidence: dict[str, object]) -> Finding | None:
    packaged = sorted({package.version for package in facts.driver.packages if package.name.startswith("libnvidia-")})
    if not (facts.driver.runfile_install and packaged) or waits_for_boot(facts):
        return None
    sure = Confidence.LIKELY if on_disk(facts) is None else Confidence.CONFIRMED
    words += "; both a .run installation and packages exist"
    return MIXED_INSTALL.found(words, {**evidence, "packages": packaged}, confidence=sure)


def summary(facts: Facts) -> str:
    flavour = "open" if facts.driver.module_is_open else "proprietary"
    return f"driver {facts.driver.module_version}, {flavour} kernel module"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(IN_IMAGE, OLDER_IN_CONTAINER, MIXED_INSTALL, MIXED_PACKAGES, INCOMPLETE, MISMATCH),
    needs=("kernel-module",),
)
