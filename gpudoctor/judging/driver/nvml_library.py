"""Why NVML's library cannot be loaded: it is missing, hidden from the loader, or broken. Pure."""

from __future__ import annotations

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import install_on
from gpudoctor.judging.python.driver_libraries import in_operator, misfit
from gpudoctor.model import Action, Finding, Fix, Problem

SMI = "nvidia-smi -L"

LIBRARY_MISSING = Problem(
    id="nvml-library-missing",
    title="The driver's library libnvidia-ml is not installed",
    why="The kernel module is loaded, but the driver's libraries are missing: nvidia-smi, monitoring and frameworks cannot use "
    "it.",
    action=Action.INSTALL,
    fixes=install_on(
        "Install the libraries of the module's release",
        recipe="libraries",
        verify=SMI,
        debian="sudo apt install libnvidia-compute-<branch> nvidia-utils-<branch> || sudo apt install libcuda1 nvidia-smi",
        rhel="sudo dnf install nvidia-driver-cuda nvidia-driver-libs",
        suse="sudo zypper install nvidia-compute-utils-G06",
        arch="sudo pacman -S nvidia-utils",
        other="sudo sh NVIDIA-Linux-*-<driver>.run --no-kernel-module",
        undos={"suse": "sudo zypper remove nvidia-compute-utils-G06"},
    ),
)

NOT_FOUND_BY_LOADER = Problem(
    id="nvml-library-not-on-loader-path",
    title="libnvidia-ml is in a folder that the loader does not search",
    why="The file exists, but its folder is neither in the loader's cache nor in LD_LIBRARY_PATH, so no program can load it.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Add its folder to the loader's configuration",
            command="echo <folder> | sudo tee /etc/ld.so.conf.d/gpudoctor.conf && sudo ldconfig",
            verify="ldconfig -p | grep libnvidia-ml",
            kind="set",
            needs=("root",),
            undo="sudo rm /etc/ld.so.conf.d/gpudoctor.conf && sudo ldconfig",
        ),
    ),
)

LIBRARY_BROKEN = Problem(
    id="nvml-library-cannot-be-loaded",
    title="libnvidia-ml exists but cannot be loaded",
    why="The file is damaged, empty, not readable for this user, or for another architecture (32 bits).",
    action=Action.INSTALL,
    fixes=install_on(
        "Reinstall the driver's libraries",
        recipe="reinstall",
        verify=SMI,
        debian="sudo apt install --reinstall '?installed?name(^libnvidia-compute-)'",
        rhel="sudo dnf reinstall '*nvidia*'",
        suse="sudo zypper install --force nvidia-compute-G06",
        arch="sudo pacman -S nvidia-utils",
        other="sudo sh NVIDIA-Linux-*.run --no-kernel-module",
    ),
)


def not_loadable(facts: Facts) -> Finding:
    error = facts.nvml.load_error or ""
    if "cannot open shared object file: No such file" not in error:
        return misfit(facts, error) or LIBRARY_BROKEN.found(error, {"error": error})
    usable = (
        each for each in facts.libraries.named("libnvidia-ml") if each.size is not None and each.via not in ("wheel", "conda")
    )
    hidden = [library for library in usable if not (library.is_stub or library.is_compat)]
    if hidden:
        return NOT_FOUND_BY_LOADER.found(f"the loader does not find {hidden[0].path}", {"folder": hidden[0].directory})
    return in_operator(facts) or LIBRARY_MISSING.found("libnvidia-ml.so.1 was not found on this machine", {"error": error})
