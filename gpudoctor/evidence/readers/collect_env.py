"""The environment reports that programs print for bug reports.

torch's and vLLM's collect_env, `transformers-cli env`, `python -m xformers.info`, `python -m bitsandbytes`,
jax.print_environment_info() and cupy.show_config().
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpudoctor import knowledge
from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import nvml_answers, python_packages, system_texts
from gpudoctor.evidence.readers.nvidia_smi_fields import plain
from gpudoctor.evidence.readers.python_packages import Installed
from gpudoctor.model import Reply
from gpudoctor.worker.probes import environment

_FIELD = re.compile(r"^\s*(?:- )?([`A-Za-z][\w`. /()?-]*?)\s*: ?(.*)$")
_TYPED = re.compile(r"^\s*(PyTorch version) (\d\S*)\s*$")  # without the colon
_LIBRARY = re.compile(r"^\[(pip3?|conda)\] (\S.*)$")
_GPU = re.compile(
    r"""
    ^\s*(?:GPU\ models\ and\ configuration\s*:\s*)?
    GPU\ (\d+)[:：]\s*(\S.*?)(?:\ \(UUID.*)?\s*$
    """,
    re.VERBOSE,
)
_VARIABLE = re.compile(r"^([A-Z][A-Z0-9_]{2,})=(.*)$")
_PLATFORM = re.compile(r"(?:Linux-(\S+?)-(x86_64|aarch64|ppc64le))(?:-with-glibc(\d+\.\d+))?")
_UNAME = re.compile(r"uname_result\(system='Linux',.*?release='([^']+)',.*machine='([^']+)'")
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*[\w.+]*")
# Package -> the labels of its version in the reports.
_PACKAGES = {
    "vllmversion": "vllm",
    "jax": "jax",
    "jaxlib": "jaxlib",
    "numpy": "numpy",
    "cupyversion": "cupy",
    "numpyversion": "numpy",
    "transformersversion": "transformers",
    "accelerateversion": "accelerate",
}
_BUILT_WITH = "cudausedtobuildpytorch"
_OF_CUPY = {"cudabuildversion": "build", "cudadriverversion": "driver"}
_NOT_TOLD = ("couldnotcollect", "na", "nocuda", "notinstalled", "")

Said = Mapping[str, str]


def read(text: str) -> dict[str, Reply] | None:
    lines = text.splitlines()
    said = _said(lines)
    libraries = _libraries(lines, said)
    found = {**_system(said), **_packages(libraries, said), **_driver(lines, said)}
    variables = environment.variables({match[1]: match[2] for match in map(_VARIABLE.match, lines) if match})
    if variables:
        found["environment"] = Reply("ok", variables)
    cupy = {name: int(said[label]) for label, name in _OF_CUPY.items() if said.get(label, "").isdigit()}
    if len(cupy) == len(_OF_CUPY):
        found["shown-runtime"] = Reply("ok", {"name": "CuPy", **cupy})
    if said.get("pytorchcuda") == "not available":  # of xformers.info
        found["python-answers"] = Reply("ok", {"torch.cuda.is_available()": "False"})
    return found or None


def _said(lines: Sequence[str]) -> dict[str, str]:
    """The first value of each label."""
    said: dict[str, str] = {}
    for match in filter(None, (_FIELD.match(line) or _TYPED.match(line) for line in lines)):
        text = match[2].strip()
        if plain(text) not in _NOT_TOLD or plain(match[1]) == _BUILT_WITH:
            said.setdefault(plain(match[1]), text)
    return said


def _torch(said: Said) -> str | None:
    for name in ("pytorchversion", "pytorchversiongpu", "pytorch"):
        match = _VERSION.match(said.get(name, ""))
        if match:
            return match[0]
    return None


def _libraries(lines: Sequence[str], said: Said) -> list[Installed]:
    listed = [match.groups() for match in map(_LIBRARY.match, lines) if match]
    of_pip = python_packages.installed(library for kind, library in listed if kind != "conda")
    of_conda = python_packages.installed((library for kind, library in listed if kind == "conda"), is_conda=True)
    named = [Installed(package, match[0]) for name, package in _PACKAGES.items() if (match := _VERSION.match(said.get(name, "")))]
    return [*of_conda, *of_pip, *named]


def _packages(libraries: Sequence[Installed], said: Said) -> dict[str, Reply]:
    version = _torch(said)
    of_torch = [Installed("torch", version)] if version and not any(one.name == "torch" for one in libraries) else []
    listed = [*libraries, *of_torch]
    found = python_packages.replies(listed) if listed else {}
    if version and ("+" in version or _built_with(said) != "" or "torch" not in found):
        found["torch"] = python_packages.torch(version, _built_with(said))
    return {**found, "shown-reported": Reply("ok", {"torch": version})} if version else found


def _built_with(said: Said) -> str | None:
    """torch's CUDA version, None for a build without CUDA, "" if unknown."""
    told = said.get(_BUILT_WITH, said.get("cuda", ""))
    match = re.match(r"\d+\.\d+", told)
    return match[0] if match else None if told in ("None", "Could not collect") else ""


def _system(said: Said) -> dict[str, Reply]:
    found: dict[str, Reply] = {}
    platform = " ".join(said.get(name, "") for name in ("pythonplatform", "platform", "os"))
    match, named = _PLATFORM.search(platform), _UNAME.search(platform)
    kernel = match or named
    if kernel:
        found["uname"] = Reply("ok", {"release": kernel[1], "machine": kernel[2], "sysname": "Linux"})
    release = system_texts.os_release(said.get("os", "")) if not _PLATFORM.search(said.get("os", "")) else None
    if release:
        found["file:/etc/os-release"] = Reply("ok", release)
    interpreter = _interpreter(said, match)
    if interpreter:
        found["interpreter"] = Reply("ok", interpreter)
    return found


def _interpreter(said: Said, platform: re.Match[str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    version = _VERSION.match(said.get("pythonversion", said.get("python", "")))
    if version:
        found["version"] = [int(part) for part in re.findall(r"\d+", version[0])[:3]]
    libc = re.match(r"glibc-(\d+\.\d+)", said.get("libcversion", said.get("libc", "")))
    glibc = libc[1] if libc else platform[3] if platform else None
    if glibc:
        found["libc"] = ["glibc", glibc]
    return found


def _driver(lines: Sequence[str], said: Said) -> dict[str, Reply]:
    """The driver and the GPUs, which torch's collect_env reads from nvidia-smi."""
    release = said.get("nvidiadriverversion", "")
    if not re.fullmatch(r"\d+\.\d+(?:\.\d+)*", release):
        return {}
    names = {match[1]: match[2] for match in map(_GPU.match, lines) if match}
    gpus = [nvml_answers.tidy([("Name", names[str(index)])]) for index in range(len(names)) if str(index) in names]
    found = nvml_answers.replies(nvml_answers.system(release, None), gpus if len(gpus) == len(names) and gpus else None)
    cuda = _cuda(release, said)
    return {**found, "cuda": Reply("ok", cuda)} if cuda else found


def _cuda(release: str, said: Said) -> dict[str, Any] | None:
    """libcuda: the CUDA version of its branch, unless something that works needs a newer one (forward compatibility)."""
    known = knowledge.cuda_of_branch(int(release.split(".")[0]))
    is_available = said.get("iscudaavailable") == "True"
    built_with = re.match(r"\d+", _built_with(said) or "")
    if known is None or (is_available and built_with and int(built_with[0]) > known[0]):
        return None
    found = {"library": "libcuda.so.1", "load_error": "", "driver_version": 1000 * known[0] + 10 * known[1]}
    return {**found, "init": 0} if is_available else found


READER = Reader(
    kind="report of an environment",
    anchors=(
        *("Collecting environment information", "PyTorch version", "`transformers` version", "pytorch.version:"),
        *("CuPy Version", "jax:   ", "jaxlib:", "bitsandbytes v"),
    ),
    begins=re.compile(
        r"""
        ^\s*(?:
            Collecting\ environment\ information
            | (?:-\ )?(?: PyTorch\ version(?:\ \(GPU\?\))?\s*(?::[ ]|\ \d) | `transformers`\ version:[ ] )
            | pytorch\.version:
            | CuPy\ Version\s*:[ ]
            | jax(?:lib)?:\ +\d
            | =+\ bitsandbytes\ v\d
        )
        """,
        re.VERBOSE,
    ),
    ends=re.compile(r"^(?:```|</details>|#{2,4} |Traceback \(most recent|\$ |>>> )"),
    read=read,
    most_lines=600,
)
