"""The compilers, profilers and CUDA toolkits of a machine: their paths and versions."""

from __future__ import annotations

import os
import re
import threading
from typing import Any, Dict, Iterable, Iterator, List, Optional

from gpudoctor.worker.probes.interpreter import conda_prefix
from gpudoctor.worker.probes.libraries import real_path, wheel_folders
from gpudoctor.worker.probes.machine import Answer, Machine

_PROGRAMS = (
    *("nvcc", "ptxas", "gcc", "g++", "cc", "clang", "ld", "make", "cmake", "ninja", "uv"),
    *("ncu", "nsys", "cuda-gdb", "compute-sanitizer"),
    *("docker", "podman", "nerdctl", "apptainer", "singularity"),
    *("nvidia-container-cli", "nvidia-container-runtime", "nvidia-container-runtime-hook", "nvidia-ctk"),
    *("nvidia-debugdump", "nvidia-modprobe", "nvidia-settings", "nvidia-smi", "nvidia-uninstall"),
)
_ASKED_FOR_VERSION = ("gcc", "g++", "cc", "clang", "ninja", "ncu", "nsys")
_VERSION_SECONDS = 2.0
_TOOLKITS = ("/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda", "/usr/lib/cuda", "/usr/lib/nvidia-cuda-toolkit")
_TOOLKIT_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
_COMPILER_VARIABLES = ("NVCC_CCBIN", "CUDAHOSTCXX")
_NVVM = (
    "nvvm/lib64/libnvvm.so*",
    "nvvm/lib/libnvvm.so*",
    "lib64/libnvvm.so*",
    "lib/libnvvm.so*",  # the wheels of CUDA 13
    "nvvm/libdevice/libdevice*.bc",
    "libdevice/libdevice*.bc",  # Debian's nvidia-cuda-toolkit
    "lib/libdevice*.bc",  # conda's old cudatoolkit
)
_HEADERS = tuple(
    os.path.join(folder, name)
    for folder in ("include", "targets/*/include")
    for name in ("vector_types.h", "cuda_runtime.h", "cuda_fp16.h")
)
_CUDA_VERSION = re.compile(r"^#define CUDA_VERSION .*$", re.MULTILINE)


def ask(machine: Machine) -> Iterator[Answer]:
    """`toolchain`: programs, versions, toolkits, and files that device compilers need."""
    yield "toolchain", machine.call(lambda: _toolchain(machine))


def _toolchain(machine: Machine) -> Dict[str, Any]:
    folders = _path_folders(machine)
    programs = {name: found for name in _PROGRAMS for found in [_on_path(machine, folders, name)] if found}
    toolkits = _toolkits(machine)
    wheels = wheel_folders(machine, "nvidia/cuda_*", "nvidia/cu[0-9]*")
    conda = conda_prefix(machine)
    roots = toolkits + wheels + ([conda] if conda else [])
    compilers = _compilers(machine, programs, roots)
    return {
        "programs": programs,
        "versions": _versions(machine, compilers),
        "real_paths": {path: real_path(machine, path) for path in compilers},
        "toolkits": [_toolkit(machine, root) for root in toolkits],
        "homes": {path: _folder(machine, path) for path in _named(_TOOLKIT_VARIABLES)},
        "default": _default(machine),
        "nvvm": _found(machine, roots, _NVVM) + machine.matching("/usr/lib/*-linux-gnu/libnvvm.so*"),
        "headers": _found(machine, [*roots, "/usr"], _HEADERS),
    }


def _path_folders(machine: Machine) -> List[str]:
    """The folders of PATH, each once: /bin is usually a link to /usr/bin."""
    folders: Dict[str, str] = {}
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(folder):
            folders.setdefault(real_path(machine, folder), folder)
    return list(folders.values())


def _on_path(machine: Machine, folders: List[str], name: str) -> List[str]:
    return [path for path in (os.path.join(folder, name) for folder in folders) if _is_program(machine, path)]


def _is_program(machine: Machine, path: str) -> bool:
    return os.path.isfile(machine.path(path)) and os.access(machine.path(path), os.X_OK)


def _toolkits(machine: Machine) -> List[str]:
    """The folders of toolkits by their real names, starting with those that variables name."""
    named = [os.path.abspath(path) for path in _named(_TOOLKIT_VARIABLES)]
    found = [path for pattern in _TOOLKITS for path in machine.matching(pattern)]
    real = dict.fromkeys(real_path(machine, path) for path in named + found)
    return [path for path in real if path != "/" and os.path.isdir(machine.path(path))]


def _named(variables: Iterable[str]) -> List[str]:
    return [os.environ[name] for name in variables if os.environ.get(name)]


def _folder(machine: Machine, path: str) -> Optional[str]:
    """The real path, if it is a folder."""
    real = real_path(machine, os.path.abspath(path))
    return real if os.path.isdir(machine.path(real)) else None


def _toolkit(machine: Machine, root: str) -> Dict[str, Optional[str]]:
    header = _CUDA_VERSION.search(_text(machine, root, "include/cuda.h") or "")
    return {
        "root": root,
        "version_json": _text(machine, root, "version.json"),
        "version_txt": _text(machine, root, "version.txt"),
        "cuda_h": header[0] if header else None,
    }


def _text(machine: Machine, folder: str, name: str) -> Optional[str]:
    try:
        return machine.read(os.path.join(folder, name), 1 << 22)
    except OSError:
        return None


def _default(machine: Machine) -> Optional[str]:
    return real_path(machine, "/usr/local/cuda") if os.path.exists(machine.path("/usr/local/cuda")) else None


def _found(machine: Machine, roots: List[str], patterns: Iterable[str]) -> List[str]:
    return [path for root in roots for pattern in patterns for path in machine.matching(os.path.join(root, pattern))]


def _compilers(machine: Machine, programs: Dict[str, List[str]], roots: List[str]) -> List[str]:
    """Every nvcc, and the first of each other program, in the order of PATH."""
    nvccs = programs.get("nvcc", []) + _found(machine, roots, ["bin/nvcc"])
    others = [programs[name][0] for name in _ASKED_FOR_VERSION if name in programs]
    hosts = [path for path in _named(_COMPILER_VARIABLES) if os.path.isabs(path)]
    return list(dict.fromkeys(path for path in nvccs + others + hosts if _is_program(machine, path)))


def _versions(machine: Machine, paths: List[str]) -> Dict[str, Optional[str]]:
    """The output of each for --version; None if it timed out."""
    machine.at("toolchain", "--version of " + ", ".join(paths))
    versions: Dict[str, Optional[str]] = dict.fromkeys(paths)
    threads = [threading.Thread(target=lambda path=path: versions.update({path: _version(machine, path)})) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return versions


def _version(machine: Machine, path: str) -> Optional[str]:
    done = Machine.call(lambda: machine.run((path, "--version"), _VERSION_SECONDS)).value
    return done["out"][:500] if done and done["code"] == 0 else None
