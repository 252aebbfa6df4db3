"""One-line output with PyTorch's version or the GPU: ComfyUI, web UIs, `pip show`, a line of python -c."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import nvml_answers, python_packages
from gpudoctor.evidence.readers.python_packages import Installed
from gpudoctor.model import Reply

_RELEASE = r"\d+\.\d+\.\d+"
_TORCH = re.compile(
    rf"""
    (?: \bpytorch\ version: | \*\*PyTorch\ Version:\*\* )\ (?P<said> {_RELEASE}(?:\+\w+)? )\s*$
    | \b(?i:torch)[ -](?P<named> {_RELEASE}\+(?:cu\d+|cpu) )(?=[\s,]|$)(?!.*you\ have)
    | \btorch:\ (?P<shown> {_RELEASE}\+\w+ )(?=\s|$)
    | ^\(?'?(?P<printed> {_RELEASE}\+(?:cu\d+|cpu) )'?,?\ (?: \d+\.\d+[ ] | None[ ] )?(?:True|False)\b
    """,
    re.VERBOSE,
)
_GPU = re.compile(
    r"""
    (?: \bDevice: | \*\*Name:\*\* )\ cuda:0[ ]
    (?P<name> NVIDIA\ \S[^:\n]*? | Tesla\ \S[^:\n]*? )
    (?: \ :\ [\w ]+ )?\s*$
    """,
    re.VERBOSE,
)


def read_torch(text: str) -> dict[str, Reply] | None:
    match = _TORCH.search(text.split("\n", 1)[0])
    version = next(filter(None, match.groups()), None) if match else None
    return python_packages.replies([Installed("torch", version)]) if version else None


def read_gpu(text: str) -> dict[str, Reply] | None:
    match = _GPU.search(text.split("\n", 1)[0])
    return nvml_answers.replies({}, [nvml_answers.tidy([("Name", match["name"])])]) if match else None


def read_written(text: str) -> dict[str, Reply] | None:
    """Such as "My TensorFlow version is 2.12.0", or the answer below the question of a form."""
    match = _WRITTEN.search(text)
    name = {"pytorch": "torch"}.get(match["name"].lower(), match["name"].lower()) if match else ""
    return python_packages.shown([Installed(name, match["version"])]) if match else None


def read_cpu(text: str) -> dict[str, Reply]:
    """ComfyUI's "Device: cpu": torch sees no GPU, or an option of the program asks for the CPU."""
    return {"python-answers": Reply("ok", {"torch.cuda.is_available()": "False"})}


def read_numba(text: str) -> dict[str, Reply] | None:
    """Both as 11020 or 11.2."""
    found = {}
    for name, words in (("driver", "Driver"), ("build", "Runtime")):
        match = re.search(rf"(?m)^\s*CUDA {words} Version\s*: *(\d+)(?:\.(\d+))?\s*$", text)
        if match:
            found[name] = int(match[1]) if match[2] is None else 1000 * int(match[1]) + 10 * int(match[2])
    return {"shown-runtime": Reply("ok", {"name": "Numba's CUDA runtime", **found})} if len(found) > 1 else None


_WRITTEN = re.compile(
    r"""
    \b(?P<name> tensorflow | pytorch | torch | jaxlib | jax )\ version\b
    (?: \ \([^)\n]*\) )? [\s*:=`]{0,40} (?: is\ )? [\s`v"']{0,20}
    (?: (?:tf|source|binary)\ )?
    (?P<version> \d+\.\d+(?:\.\d+)?(?:\+\w+)? )\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_TOO_SHORT = re.compile("")  # the next line is never part of it
READERS = (
    Reader(
        kind="version of PyTorch",
        anchors=("pytorch version: ", "PyTorch Version:**", "torch: ", "+cu", "+cpu"),
        begins=_TORCH,
        read=read_torch,
        ends=_TOO_SHORT,
        most_lines=1,
        once=True,
    ),
    Reader(
        "version of a framework",
        ("ensorFlow version", "ensorflow version", "ensorflow Version", "ensorFlow Version", "yTorch version", "orch version"),
        re.compile(r"(?i)\b(?:tensorflow|(?:py)?torch|jax(?:lib)?) version\b"),
        read_written,
        None,
        3,
        once=True,
        alone=True,
    ),
    Reader(
        "numba -s",
        ("CUDA Device Initialized",),
        re.compile(r"^\s*CUDA Device Initialized\s*:"),
        read_numba,
        re.compile(r"^\s*$|^__"),
        20,
    ),
    Reader("", ("Device: cpu",), re.compile(r"^(?:\[\w+\] )?Device: cpu\s*$"), read_cpu, _TOO_SHORT, 1, once=True),
    Reader("GPU of a program", ("Device: cuda:0 ", "**Name:** cuda:0 "), _GPU, read_gpu, _TOO_SHORT, 1, once=True),
)
