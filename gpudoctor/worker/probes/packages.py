"""The Python packages on sys.path, read from folder names and metadata without importing anything."""

from __future__ import annotations

import json
import os
import re
from typing import Any, Dict, Iterator, List, Optional

from gpudoctor.worker.probes.interpreter import conda_prefix, import_path
from gpudoctor.worker.probes.machine import Answer, Machine
from gpudoctor.worker.probes.working_folder import hiding

# "torch-2.8.0+cu128.dist-info", "apex-0.1-py3.10-linux-x86_64.egg", "project.egg-info"
_METADATA_FOLDER = re.compile(r"(.+?)(?:-(v?\d[^-]*))?(?:-py\d.*)?\.(?:dist-info|egg-info|egg)")
# Normalised names of the packages whose requirements, installer and build are read too.
_RELEVANT = re.compile(
    r"""
    (
        torch | pytorch | triton | nvidia- | cupy | numba | jax | tensorflow | tf-nightly | onnxruntime | bitsandbytes
        | flash-attn | flashinfer | vllm | transformer-engine | tensorrt | cuda- | cudf | cuml | cugraph | rmm | pylibraft | ucx
    ).*
    | numpy | keras | xformers | ctranslate2 | faster-whisper | whisperx | llvmlite | deepspeed | apex | pycuda | pynvml
    | warp-lang | dask-cuda | mamba-ssm | causal-conv1d | auto-gptq | autoawq | sglang | sgl-kernel
    """,
    re.VERBOSE,
)
_RELEVANT_CONDA = re.compile(
    r"""
    ( cudatoolkit | cuda | cudnn | nccl | libcu | libnv | libtorch | libstdcxx | gcc | gxx | sysroot | ld_impl ).*
    | python
    """,
    re.VERBOSE,
)
_TORCH_LIBRARY = re.compile(r"lib(torch_cuda|c10_cuda|cu|nccl|nvrtc|nvJitLink|nvToolsExt|nvshmem).*\.so.*")
_CHANNEL = re.compile(r'"channel"\s*:\s*"([^"]*)"')


def ask(machine: Machine) -> Iterator[Answer]:
    """`packages`: a list in the order of sys.path, with duplicates; then build facts from files of some packages,
    and what the current folder hides."""
    sites = import_path()
    yield "packages", machine.call(lambda: [package for site in sites for package in _packages(machine, site)])
    yield "torch", machine.call(lambda: _torch(machine, sites))
    yield "bitsandbytes", machine.call(lambda: _bitsandbytes(machine, sites))
    yield "onnxruntime", machine.call(lambda: _onnxruntime(machine, sites))
    yield "conda", machine.call(lambda: _conda(machine))
    yield machine.ask("working-folder", lambda: hiding(machine))


def _names(machine: Machine, folder: str) -> List[str]:
    with os.scandir(machine.path(folder)) as entries:
        return sorted(entry.name for entry in entries)


def _packages(machine: Machine, site: str) -> Iterator[Dict[str, Any]]:
    try:
        names = _names(machine, site)
    except OSError:  # a zip file, or a folder that this Python cannot import from either
        return
    for name in names:
        match = _METADATA_FOLDER.fullmatch(name)
        if match:
            yield _package(machine, site, name, match[1], match[2])


def _package(machine: Machine, site: str, folder: str, name: str, version: Optional[str]) -> Dict[str, Any]:
    metadata = os.path.join(site, folder, "EGG-INFO" if folder.endswith(".egg") else "")
    relevant = _RELEVANT.fullmatch(re.sub(r"[-_.]+", "-", name).lower())
    details = _details(machine, metadata) if relevant else {}
    if version is None:  # the egg-info of a project installed with "setup.py develop"
        version = "".join(_fields(_text(machine, metadata, "PKG-INFO"), "Version")[:1])
    return {"name": name, "version": version, "location": site, **details}


def _details(machine: Machine, metadata: str) -> Dict[str, Any]:
    headers = _text(machine, metadata, "METADATA") or _text(machine, metadata, "PKG-INFO")
    requires = _fields(headers, "Requires-Dist") or _egg_requires(_text(machine, metadata, "requires.txt"))
    wheel = _text(machine, metadata, "WHEEL")
    return {
        "requires": requires if headers else None,
        "installer": _text(machine, metadata, "INSTALLER").strip() or None,
        "tags": _fields(wheel, "Tag"),
        "build": "".join(_fields(wheel, "Build")[:1]) or None,
        "direct_url": _direct_url(_text(machine, metadata, "direct_url.json")),
    }


def _text(machine: Machine, folder: str, name: str) -> str:
    try:
        return machine.read(os.path.join(folder, name))
    except OSError:
        return ""


def _fields(text: str, name: str) -> List[str]:
    headers = text.split("\n\n", 1)[0]
    return re.findall(rf"^{name}:[ \t]*(.*?)[ \t\r]*$", headers, re.MULTILINE)


def _egg_requires(text: str) -> List[str]:
    """The lines of requires.txt before its first [section], which are not optional."""
    return [line.strip() for line in text.split("\n[", 1)[0].splitlines() if line.strip() and not line.startswith("[")]


def _direct_url(text: str) -> Optional[Dict[str, Any]]:
    """The source of a package that is not from an index: only its last part, because the rest can name a person."""
    if not text:
        return None
    try:
        origin = json.loads(text)
    except ValueError:
        return {"file": None, "editable": False}
    file = re.sub(r"[?#].*", "", str(origin.get("url", ""))).rstrip("/").rsplit("/", 1)[-1]
    return {"file": file.replace("%2B", "+"), "editable": bool(origin.get("dir_info", {}).get("editable"))}


def _folder(machine: Machine, sites: List[str], file: str) -> str:
    """The folder of the first package that contains this file."""
    for site in sites:
        if os.path.isfile(machine.path(os.path.join(site, file))):
            return os.path.join(site, os.path.dirname(file))
    raise FileNotFoundError(f"{file} is not on sys.path")


def _torch(machine: Machine, sites: List[str]) -> Dict[str, Any]:
    folder = _folder(machine, sites, "torch/version.py")
    lib = os.path.join(folder, "lib")
    libraries = _names(machine, lib) if os.path.isdir(machine.path(lib)) else []
    return {
        "location": os.path.dirname(folder),
        "version_py": machine.read(os.path.join(folder, "version.py")),
        "libraries": [name for name in libraries if _TORCH_LIBRARY.fullmatch(name)],
    }


def _bitsandbytes(machine: Machine, sites: List[str]) -> List[str]:
    folder = _folder(machine, sites, "bitsandbytes/__init__.py")
    return [name for name in _names(machine, folder) if name.startswith("libbitsandbytes_")]


def _onnxruntime(machine: Machine, sites: List[str]) -> Dict[str, Any]:
    folder = _folder(machine, sites, "onnxruntime/capi/__init__.py")
    return {
        "build_info": _text(machine, folder, "build_and_package_info.py"),
        "providers": [name for name in _names(machine, folder) if name.startswith("libonnxruntime_providers_")],
    }


def _conda(machine: Machine) -> List[Dict[str, Any]]:
    prefix = conda_prefix(machine)
    if prefix is None:
        raise FileNotFoundError("not a conda environment")
    folder = os.path.join(prefix, "conda-meta")
    files = (name[: -len(".json")] for name in _names(machine, folder) if name.endswith(".json"))
    return [_conda_package(machine, folder, file) for file in files if _is_relevant_conda(file)]


def _is_relevant_conda(file: str) -> bool:
    name = file.rsplit("-", 2)[0]
    return file.count("-") >= 2 and bool(_RELEVANT.fullmatch(name) or _RELEVANT_CONDA.fullmatch(name))


def _conda_package(machine: Machine, folder: str, file: str) -> Dict[str, Any]:
    name, version, build = file.rsplit("-", 2)
    return {"name": name, "version": version, "build": build, "channel": _channel(machine, folder, file)}


def _channel(machine: Machine, folder: str, file: str) -> Optional[str]:
    """The channel's name only, since its address can contain a token."""
    try:  # reads only the start: the list of files, which can take megabytes, comes later
        with open(machine.path(os.path.join(folder, file + ".json")), encoding="utf-8", errors="replace") as metadata:
            match = _CHANNEL.search(metadata.read(1 << 16))
    except OSError:
        return None
    return re.sub(r"/(linux-\w+|noarch)/?$", "", match[1]).rstrip("/").rsplit("/", 1)[-1] if match else None
