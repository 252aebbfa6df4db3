"""The CUDA libraries in the places where a loader or framework looks, and the packages that own them."""

from __future__ import annotations

import glob
import os
import re
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from gpudoctor.worker.probes.interpreter import conda_prefix, import_path
from gpudoctor.worker.probes.machine import Answer, Machine
from gpudoctor.worker.reply import Reply

_LIBRARY = re.compile(
    r"""
    lib(
        # the driver's
        cuda | cuda_dlopen | cudadebugger
        # the toolkit's, and what is built on it
        | cudart | cudnn\w* | cublas\w* | cufft\w* | cufile\w* | cupti | curand | cusolver\w* | cusparse\w* | cutensor\w*
        | nccl[\w-]* | nvJitLink
        | nvcuvid | nvidia-( cfg | encode | gpucomp | ml | nvvm\w* | opencl | ptxjitcompiler )
        | nvinfer\w* | nvrtc[\w-]* | nvshmem\w* | nvvm
        # of others
        | ibverbs | mlx5 | (GLX|EGL)_nvidia
    )\.so(\.\d+)*
    """,
    re.VERBOSE,
)
_CACHED = re.compile(r"=> (/\S.*)$", re.MULTILINE)
_DPKG = ("dpkg-query", "-S")
_RPM = ("rpm", "-qf", "--queryformat", "%{NAME}\\n")

# The loader's default folders: ld.so(8), and for each distribution the folders built into its C library.
_DEFAULT = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
)
# Other folders of drivers and toolkits; patterns.
_ELSEWHERE = (
    ("wsl", "/usr/lib/wsl/lib"),
    ("driver", "/usr/local/nvidia/lib*"),
    ("driver", "/run/opengl-driver/lib"),
    ("driver", "/.singularity.d/libs"),
    ("local", "/usr/local/lib"),
    ("compat", "/usr/local/cuda*/compat"),
    ("compat", "/usr/local/cuda*/compat/lib*"),
    ("stubs", "/usr/local/cuda*/lib64/stubs"),
    ("stubs", "/usr/local/cuda*/targets/*/lib/stubs"),
    ("toolkit", "/usr/local/cuda*/lib64"),
    ("toolkit", "/usr/local/cuda*/targets/*/lib"),
    ("toolkit", "/opt/cuda/lib64"),
    ("stubs", "/opt/cuda/lib64/stubs"),
)


def ask(machine: Machine) -> Iterator[Answer]:
    """`libraries`: one record per path, in search order; `library-owners`: the packages that own them."""
    cache = _cache(machine)
    yield "command:ldconfig -p", cache
    yield machine.file("/etc/ld.so.preload")
    yield machine.file("/etc/ld.so.conf")
    yield from machine.files("/etc/ld.so.conf.d/*")
    libraries = machine.call(lambda: _libraries(machine, cache))
    yield "libraries", libraries
    yield "library-owners", machine.call(lambda: _owners(machine, libraries.value or []))


def real_path(machine: Machine, path: str) -> str:
    """The real path, as seen on the machine."""
    root = os.path.realpath(machine.root).rstrip("/")
    real = os.path.realpath(machine.path(path))
    return real[len(root) :] if real.startswith(root + "/") else real


def wheel_folders(machine: Machine, *patterns: str) -> List[str]:
    """The matching folders in the target's sites: NVIDIA's wheels are unpacked to nvidia/<library> or nvidia/cu13."""
    return [
        folder
        for site in import_path()
        for pattern in patterns
        for folder in machine.matching(os.path.join(glob.escape(site), pattern))
    ]


def _cache(machine: Machine) -> Reply:
    _, reply = machine.command("ldconfig", "-p")
    if reply.status == "missing":  # /sbin is not on every user's PATH
        _, reply = machine.command("/sbin/ldconfig", "-p")
    return reply


def _libraries(machine: Machine, cache: Reply) -> List[Dict[str, Any]]:
    mounts = _mount_points(machine)
    seen: Set[str] = set()
    libraries = []
    for via, index, folder in _folders(machine):
        real = real_path(machine, folder)
        if real not in seen:
            seen.add(real)
            libraries += [_library(machine, path, via, index, mounts) for path in _paths_in(machine, folder)]
    listed = {library["path"] for library in libraries}
    cached = (path for path in _cached_paths(cache) if path not in listed and not _is_32_bit(machine, path))
    return libraries + [_library(machine, path, "ld-cache", None, mounts) for path in cached]


def _folders(machine: Machine) -> Iterator[Tuple[str, Optional[int], str]]:
    """(how it is found, which entry of LD_LIBRARY_PATH, the folder), in a loader's search order."""
    entries = re.split("[:;]", os.environ.get("LD_LIBRARY_PATH", ""))
    for index, entry in enumerate(filter(None, entries)):
        yield "LD_LIBRARY_PATH", index, os.path.abspath(entry)
    for folder in _DEFAULT:
        yield "default", None, folder
    for via, pattern in _ELSEWHERE:
        for folder in machine.matching(pattern):
            yield via, None, folder
    for folder in wheel_folders(machine, "nvidia/*/lib", "torch/lib"):
        yield "wheel", None, folder
    prefix = conda_prefix(machine)
    if prefix:
        yield "conda", None, os.path.join(prefix, "lib")
        yield "compat", None, os.path.join(prefix, "cuda-compat")


def _paths_in(machine: Machine, folder: str) -> List[str]:
    try:
        with os.scandir(machine.path(folder)) as entries:
            paths = sorted(os.path.join(folder, entry.name) for entry in entries if _LIBRARY.fullmatch(entry.name))
    except OSError:  # does not exist, or the loader cannot read it either
        return []
    return [path for path in paths if folder not in ("/lib", "/usr/lib") or not _is_32_bit(machine, path)]


def _is_32_bit(machine: Machine, path: str) -> bool:
    """Fedora and RHEL have 32-bit libraries in /usr/lib; Arch has its 64-bit ones there."""
    try:
        with open(machine.path(path), "rb") as file:
            return file.read(5) == b"\x7fELF\x01"
    except OSError:
        return False


def _cached_paths(cache: Reply) -> List[str]:
    output = (cache.value or {}).get("out", "")
    return [path for path in _CACHED.findall(output) if _LIBRARY.fullmatch(os.path.basename(path))]


def _library(machine: Machine, path: str, via: str, index: Optional[int], mounts: Set[str]) -> Dict[str, Any]:
    real = real_path(machine, path)
    try:
        size = os.stat(machine.path(path)).st_size
    except OSError:  # a dangling link
        size = None
    mounted = real in mounts or os.path.dirname(real) in mounts
    return {"path": path, "real_path": real, "size": size, "via": via, "index": index, "mounted": mounted}


def _mount_points(machine: Machine) -> Set[str]:
    """Container engines mount each of the driver's libraries, or their folder."""
    try:
        return {line.split()[4] for line in machine.read("/proc/self/mountinfo").splitlines()}
    except (OSError, IndexError):
        return set()


def _owners(machine: Machine, libraries: List[Dict[str, Any]]) -> Dict[str, Any]:
    """{"manager", "paths" that were queried, "code", "out"} of one call of the installed package manager."""
    owned = (library for library in libraries if library["real_path"].startswith(("/usr/lib", "/lib", "/opt")))
    paths = sorted({library["real_path"] for library in owned if library["size"] is not None})
    if not paths:
        return {"manager": None, "paths": [], "code": 0, "out": ""}
    # dpkg knows a file only by the path in its package, which may be from before /lib became a link to /usr/lib.
    before_merge = [path[len("/usr") :] for path in paths if path.startswith("/usr/lib")]
    has_dpkg = os.path.exists(machine.path("/var/lib/dpkg/status"))
    command = (*_DPKG, *paths, *before_merge) if has_dpkg else (*_RPM, *paths)
    machine.at("library-owners", command[0])
    done = machine.run(command, timeout=3)
    return {"manager": "dpkg" if has_dpkg else "rpm", "paths": paths, "code": done["code"], "out": done["out"]}
