"""The driver belongs to the host: no part of it may be in an image."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.lint.budget import once
from gpudoctor.lint.dockerfile import Dockerfile, Step
from gpudoctor.lint.installs import SystemInstall, system_installs, system_removals
from gpudoctor.lint.model import Fault, Rule

_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/"
_CUDA_GUIDE = "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/#meta-packages"

INSTALLED = Rule(
    id="driver-installed-in-image",
    title="Part of the NVIDIA driver is installed in the image",
    why="The container toolkit mounts the driver's libraries from the host, in exactly the version of the kernel module. A "
    "second set in the image shadows them or makes the mount fail: 'Failed to initialize NVML: Driver/library version mismatch'.",
    write="# nothing; --gpus all adds nvidia-smi and libcuda.so.1 to the container",
    references=(_TOOLKIT + "docker-specialized.html", "https://github.com/NVIDIA/nvidia-docker/issues/76"),
    status="fail",
)
METAPACKAGE = Rule(
    id="cuda-metapackage-brings-driver",
    title="The package 'cuda' also installs the NVIDIA driver",
    why="cuda and cuda-runtime are metapackages that depend on cuda-drivers. In an image the driver is useless, takes about a "
    "gigabyte and shadows the host's. cuda-toolkit has the same compilers and libraries without the driver.",
    write="apt-get install -y --no-install-recommends cuda-toolkit-12-9",
    references=(_CUDA_GUIDE,),
    status="fail",
)
COPIED = Rule(
    id="driver-library-copied",
    title="A driver library is copied into the image",
    why="libcuda and libnvidia-* only work with a kernel module of exactly the same version. The copy shadows the libraries "
    "that the container toolkit mounts. Every other host reports error 803 or a version mismatch.",
    write="# nothing; start the container with --gpus all; to link, use -L/usr/local/cuda/lib64/stubs",
    references=("https://github.com/NVIDIA/nvidia-docker/issues/76", "https://github.com/NVIDIA/nvidia-docker/issues/1504"),
    status="fail",
)
TOOLKIT = Rule(
    id="container-toolkit-in-image",
    title="The NVIDIA container toolkit is installed in the image",
    why="It belongs on the host, next to the engine that starts containers. Inside a container it does nothing.",
    write="# nothing in the image; on the host: apt-get install nvidia-container-toolkit",
    references=(_TOOLKIT + "install-guide.html",),
)
RULES = (INSTALLED, METAPACKAGE, COPIED, TOOLKIT)

_DRIVER = re.compile(
    r"""
    nvidia-(?:open-)?(?:driver(?!-assistant)|headless|dkms|kernel|utils|compute-utils|smi)(?:-.*)?
    | cuda-(?:open-)?drivers?(?:-(?!dev).*)?
    | nvidia-open(?:-\d.*)?
    | libnvidia-(?:compute|ml|decode|encode|gl|fbc1|cfg1|common|extra)(?:-?\d.*)?(?:-server)?
    | libcuda1 | libnvcuvid1 | libnvidia-encode1
    | xserver-xorg-video-nvidia.*
    | nvidia-legacy-.*
    """,
    re.VERBOSE,
)
_METAPACKAGE = re.compile(r"cuda(?:-runtime)?(?:-\d+-\d+)?|cuda-demo-suite-.*")
_RUNFILE = re.compile(r"NVIDIA-Linux-(?:x86_64|aarch64)-[\w.$*{}]+\.run")
_LIBRARY = re.compile(
    r"""
    (?: libcuda | libnvidia-(?!container|egl-)[\w-]+ | libnvcuvid )\.so(?:[.\d*]*)
    | nvidia-smi
    """,
    re.VERBOSE,
)
_STAND_IN = re.compile(r"stub|fake|mock|dummy")
_CONTAINER_TOOLKIT = re.compile(
    r"nvidia-docker2? | nvidia-container-(?:toolkit|runtime)(?:-base)? | libnvidia-container(?:1|-tools)",
    re.VERBOSE,
)
_OF_A_HOST = re.compile(  # booted, not run
    r"bootc | coreos | silverblue | kinoite | ublue | kairos | talos | nvidia/(?:driver|gpu-driver)\b",
    re.VERBOSE,
)
_ENGINES = re.compile(
    r"docker(?:-ce|\.io|-engine)? | containerd(?:\.io)? | podman | moby-engine | cri-o | k3s | buildah",
    re.VERBOSE,
)


def dockerfile(file: Dockerfile) -> Iterator[Fault]:
    for stage in file.stages:
        if stage not in file.shipped or _OF_A_HOST.search(stage.root.image):
            continue
        wsl = any("wsl-ubuntu" in step.instruction.body.text for step in stage.history)  # no driver in that repository
        has_engine = "dind" in stage.root.image or any(
            _ENGINES.fullmatch(package.text)
            for step in stage.history
            for install in system_installs(step)
            for package in install.packages
        )
        for step in stage.steps:
            for install in system_installs(step):
                yield from _packages(install, system_removals(step), has_engine, wsl)
            yield from _files(step)


def _packages(install: SystemInstall, removed: set[str], has_engine: bool, wsl: bool) -> Iterator[Fault]:
    for package in install.packages:
        if package.text in removed:
            continue
        if _DRIVER.fullmatch(package.text):
            yield INSTALLED.at(package.line, f"{package.text} is part of the driver")
        elif _METAPACKAGE.fullmatch(package.text) and not wsl:
            version = re.search(r"\d+-\d+", package.text)
            wanted = "cuda-libraries" if "runtime" in package.text else "cuda-toolkit"
            line = f"{install.command.program} install -y {wanted}-{version[0] if version else '12-9'}"
            yield METAPACKAGE.at(package.line, f"{package.text} depends on cuda-drivers", line)
        elif _CONTAINER_TOOLKIT.fullmatch(package.text) and not has_engine:
            yield TOOLKIT.at(package.line, f"{package.text} is for the host")


@once
def _is_stand_in(step: Step) -> bool:
    return bool(_STAND_IN.search(step.instruction.body.text))


def _files(step: Step) -> Iterator[Fault]:
    for command in step.commands:
        run = _RUNFILE.search(command.program) or (command.program in ("sh", "bash") and any(map(_RUNFILE.search, command.texts)))
        if run and not {"-x", "--extract-only", "--check", "-A", "--info"} & set(command.texts):
            yield INSTALLED.at(command.line, "the driver installer is run")
    if step.name in ("COPY", "ADD"):
        for word in step.words:
            if _LIBRARY.fullmatch(word.text.rsplit("/", 1)[-1]) and not _is_stand_in(step):
                yield COPIED.at(word.line, f"{word.text} belongs to the driver of one host")
