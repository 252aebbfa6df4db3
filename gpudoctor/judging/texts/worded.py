"""A problem in the words of the program that a text is about, and with the values that the text shows. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Finding, Fix

_PROGRAMS = (
    ("JAX", r"\bjax(?:lib)?\b|\bJAX\b"),
    ("TensorFlow", r"\btensorflow\b|\bTensorFlow\b"),
    ("CuPy", r"\bcupy\b|\bCuPy\b"),
    ("ONNX Runtime", r"\bonnxruntime\b|\bONNX Runtime\b"),
    ("PaddlePaddle", r"\bpaddle(?:paddle)?\b|\bPaddlePaddle\b"),
    ("MXNet", r"\bmxnet\b|\bMXNet\b"),
)
_TORCH = re.compile(r"torch", re.IGNORECASE)
OF_LIBRARIES = (
    *("stale-ld-library-path-cuda", "newer-cuda-toolkit-hidden-in-library-path", "older-cuda-toolkit-before-wheels"),
    *("cudnn-wrong-version-ld-library-path", "cuda-wheels-overwrite-each-other", "driver-too-old-for-runtime"),
)
"""Problems of any program, whose title and explanation name PyTorch as the usual one."""


def worded(finding: Finding, facts: Facts) -> Finding:
    """As it was if the text shows nothing else."""
    text = "\n".join(passages(facts))
    change = _CHANGES.get(finding.problem.id)
    return _of_program(change(finding, text) if change else finding, text)


def _of_program(finding: Finding, text: str) -> Finding:
    """Not PyTorch, if a text names another framework and never PyTorch."""
    problem = finding.problem
    if problem.id not in OF_LIBRARIES or "PyTorch" not in problem.title + problem.why or _TORCH.search(text):
        return finding
    program = next((name for name, pattern in _PROGRAMS if re.search(pattern, text)), "")
    if not program:
        return finding
    title, why = (words.replace("PyTorch", program) for words in (problem.title, problem.why))
    return replace(finding, problem=replace(problem, title=title, why=why))


_NVENC = re.compile(r"nvenc", re.IGNORECASE)


def _of_encoder(finding: Finding, text: str) -> Finding:
    if not _NVENC.search(str(finding.evidence.get("said", ""))):
        return finding
    title = "The driver is too old for the program's video encoder (NVENC)"
    why = (
        "A program is built for a version of NVENC's interface, which only newer drivers offer. The GPU itself can be old: NVENC "
        "in it does not change."
    )
    return replace(finding, problem=replace(finding.problem, title=title, why=why))


def _with_cudnn(finding: Finding, text: str) -> Finding:
    """7005 is cuDNN 7.0.5, and 90100 is 9.1.0."""
    number = int(finding.evidence["built"])
    major = number // (10000 if number >= 90000 else 1000)
    rest = number % (10000 if number >= 90000 else 1000)
    release = f"{major}.{rest // 100}.{rest % 100}"
    return replace(finding, evidence={**finding.evidence, "cudnn_version": release})


_IN_VIDEO = re.compile(
    r"""
    /lib/modules/[^/\s]+/kernel/drivers/video/nvidia[\w-]*\.ko | NVIDIA-Linux-\S+\.run | nvidia-installer
    """,
    re.VERBOSE,
)
_OF_DKMS = re.compile(r"\bdkms\b|/updates/|nvidia-dkms|akmod", re.IGNORECASE)
RUN_AGAIN = Fix(
    "Run the installer of the same release again (or the cloud's script): it builds the module for the running kernel, and "
    "--dkms for later ones",
    "sudo sh NVIDIA-Linux-*.run --dkms",
    verify="nvidia-smi",
    risk="disruptive",
    needs=("root",),
    kind="manual",
    on=("host",),
)


def _by_installer(finding: Finding, text: str) -> Finding:
    """The installer without DKMS puts the module into kernel/drivers/video; then DKMS has nothing to build."""
    if not _IN_VIDEO.search(text) or _OF_DKMS.search(text):
        return finding
    return replace(finding, problem=replace(finding.problem, fixes=(RUN_AGAIN, *finding.problem.fixes)))


_OFF = re.compile(r"Persistence Mode\s*: Disabled|\|\s+\d+\s+\S[^|\n]*?\s+Off\s+\|")


def _without_persistence(finding: Finding, text: str) -> Finding:
    if not _OFF.search(text):
        return finding
    evidence = {**finding.evidence, "persistence_mode": "Disabled"}
    return replace(finding, message=f"{finding.message}; persistence mode is disabled", evidence=evidence)


_CHANGES: Mapping[str, Callable[[Finding, str], Finding]] = {
    "driver-too-old-for-runtime": _of_encoder,
    "tensorflow-cudnn-differs": _with_cudnn,
    "module-not-built-after-kernel-update": _by_installer,
    "container-driver-answers-too-late": _without_persistence,
}
