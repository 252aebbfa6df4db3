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
    Reader("GPU of a program", ("Device: cuda:0 ", "**Name:** cuda:0 "), _GPU, read_gpu, _TOO_SHORT, 1, once=True),
)
