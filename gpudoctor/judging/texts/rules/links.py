"""What a text shows as installed against what is linked, listed or requested: toolkits, OpenCL's platforms, jobs, builds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.chosen import OTHER_NVCC
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding, Fix

_LINK = re.compile(
    r"""
    (?:\bcuda\ ->\ |link\ currently\ points\ to\ )(?:/etc/alternatives/cuda
        |(?:/usr/local/)?cuda-(?P<linked>\d+\.\d+))
    """,
    re.VERBOSE,
)
_THERE = re.compile(r"\bcuda-(?P<release>\d+\.\d+)\b")
_NEW_ONE = re.compile(
    r"""
    (?: \b(?: still | old(?:er)? | wrong | instead | not | expect\w* | but | why )\b | n't\b )[^\n]{0,60}
    \b(?: nvcc | cuda | toolkit | 1\d\.\d )\b
    | \b(?: nvcc | cuda | toolkit )\b[^\n]{0,60}\b(?: still | old(?:er)? | wrong | instead )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
TITLE = "The link /usr/local/cuda points to another toolkit than the newest one"
WHY = "PATH and CUDA_HOME usually name /usr/local/cuda. An installer or update-alternatives set this link to an older release."
RELINK = Fix(
    "Point the link to the wanted toolkit (with update-alternatives, where it manages the link)",
    "sudo update-alternatives --set cuda <toolkit> || sudo ln -sfn <toolkit> /usr/local/cuda",
    verify="/usr/local/cuda/bin/nvcc --version",
    kind="set",
    needs=("root",),
)


def older_toolkit_linked(facts: Facts) -> Iterator[Finding]:
    """/usr/local/cuda leads to an older toolkit than the newest one in the same listing, and the text misses the new one."""
    shown = facts.shown.output("links in /usr/local") + facts.shown.output("update-alternatives")
    linked = next((match["linked"] for match in _LINK.finditer(shown) if match["linked"]), "")
    there = sorted({_numbers(match["release"]) for match in _THERE.finditer(shown)})
    if linked and there and _numbers(linked) < there[-1] and any(map(_NEW_ONE.search, passages(facts))):
        newest = ".".join(map(str, there[-1]))
        words = f"/usr/local/cuda leads to cuda-{linked}, and cuda-{newest} is there too"
        evidence = {"found": linked, "toolkit": f"/usr/local/cuda-{newest}"}
        yield replace(OTHER_NVCC, title=TITLE, why=WHY, fixes=(RELINK,)).found(words, evidence, confidence=Confidence.LIKELY)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


_PLATFORM = re.compile(r"(?m)^\s*(?:Platform Name\s+|Platform #\d+: )(?P<name>\S[^\n]*?)\s*$")


def other_platforms(facts: Facts) -> Iterator[Finding]:
    """clinfo lists platforms, none of them NVIDIA's, and nvidia-smi lists a GPU."""
    names = [match["name"] for match in _PLATFORM.finditer(facts.shown.output("clinfo"))]
    if names and not any("NVIDIA" in name for name in names) and known(lambda: facts.nvml.count, 0):
        words = f"nvidia-smi lists a GPU, and OpenCL only the platform {names[0]}"
        problem = facts.problems["opencl-driver-missing"]
        yield problem.found(words, {"platforms": list(dict.fromkeys(names))}, confidence=Confidence.LIKELY)


_TRES = re.compile(r"(?<![\w/])(?:billing=\d+,)?cpu=\d+(?:,[\w/:]+=\S+)*")
_WANTS = re.compile(r"(?i)\b(?:py)?torch\b|\bcuda\b|\bGPU|nvidia-smi|tensorflow")
_ON_CPU = re.compile(
    r"""
    \bcpu\b[^\n]{0,30}\b(?:only|instead|slow) | \bno\ GPU | (?:not|n't|never)[^\n]{0,30}\bGPU | without\ (?:a\ )?GPU | slow
    """,
    re.IGNORECASE | re.VERBOSE,
)


def accounted_without_gpu(facts: Facts) -> Iterator[Finding]:
    """sacct shows what a job got, and no GPU is in it, though its program was meant to use one."""
    rows = [match[0] for match in _TRES.finditer(facts.shown.output("sacct"))]
    text = "\n".join(passages(facts))
    if rows and not any("gpu" in row for row in rows) and _WANTS.search(text) and _ON_CPU.search(text):
        words = f"Slurm allocated no GPU to the job: {rows[-1]}"
        yield facts.problems["batch-job-without-gpu"].found(words, {"allocated": rows[-1]}, confidence=Confidence.LIKELY)


_SWITCHED_OFF = re.compile(
    r"""
    ^(?P<name> GGML_CUDA | LLAMA_CU(?:BLAS|DA) | (?:\w+_)?(?:WITH|USE|ENABLE|BUILD)_(?:CUDA|GPU|CUBLAS) )
    :\w+=(?: OFF | 0 | FALSE | NO )\s*$
    """,
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)


def option_off(facts: Facts) -> Iterator[Finding]:
    """The cache of CMake has the option for CUDA switched off, and the program computes on the CPU."""
    match = _SWITCHED_OFF.search(facts.shown.output("CMakeCache.txt"))
    if match and any(map(_ON_CPU.search, passages(facts))):
        words = f"the build was configured with {match['name']}=OFF"
        problem = replace(facts.problems["program-built-without-cuda"], fixes=(_option(match["name"]),))
        yield problem.found(words, {"option": match["name"]}, confidence=Confidence.LIKELY)


def _option(name: str) -> Fix:
    return Fix(f"Configure the build again with -D{name}=ON in an empty build folder, and compile")


RULES = (older_toolkit_linked, other_platforms, accounted_without_gpu, option_off)
