"""The GPU generations that code in a text was built for, against its GPUs: PyTorch's list and build, options of nvcc."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.python import torch_builds
from gpudoctor.judging.texts.rules.python import answer, package
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.knowledge import wheels
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

Pair = tuple[int, int]

OTHER_CODE = Problem(
    id="program-built-for-other-gpus",
    title="The program is compiled for other GPUs than this one",
    why="A binary (code=sm_XY) runs only on GPUs of the same major version, PTX (code=compute_XY) also on newer ones. Without "
    "either, no kernel starts. A program that does not check for errors after a launch then continues with wrong results.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Compile for the GPU of this machine (nvcc 11.5 and newer finds it out)",
            "nvcc -arch=native <program>.cu -o <program>",
            kind="manual",
        ),
        Fix(
            "Name its architecture instead; with PTX the program also runs on newer GPUs",
            "nvcc -gencode arch=compute_<sm_number>,code=sm_<sm_number> "
            "-gencode arch=compute_<sm_number>,code=compute_<sm_number> <program>.cu -o <program>",
            kind="manual",
        ),
        Fix("Check cudaGetLastError() after each launch, so that the program names such an error itself"),
    ),
    references=("https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-compilation",),
)
MATLAB = Problem(
    id="matlab-older-than-gpu",
    title="This release of MATLAB is older than the GPU",
    why="MATLAB contains its own CUDA, with code for the GPUs that existed then. A newer GPU is not used unless forward "
    "compatibility is enabled. The driver then compiles that code for up to an hour, and results can be wrong.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        Fix("Install a release of MATLAB that supports this GPU"),
        Fix(
            "Only to try it, since results can be wrong: enable forward compatibility before MATLAB is started",
            "export MW_CUDA_FORWARD_COMPATIBILITY=1",
            where="shell",
            kind="set",
        ),
    ),
    references=("https://www.mathworks.com/help/parallel-computing/parallel.gpu.enablecudaforwardcompatibility.html",),
)
PROBLEMS = (OTHER_CODE, MATLAB)


def _gpus(facts: Facts) -> dict[Pair, str]:
    """Compute capability -> name; empty unless it is known of all GPUs of the text."""
    return known(lambda: {gpu.compute_capability: gpu.name for gpu in facts.nvml.gpus}, {})


def listed_by_torch(facts: Facts) -> Iterator[Finding]:
    """torch.cuda.get_arch_list() names no architecture that runs on a GPU of the text."""
    with suppress(ValueError, SyntaxError):
        listed = ast.literal_eval(answer(facts, "torch.cuda.get_arch_list"))
        for capability, name in _gpus(facts).items() if isinstance(listed, list) and listed and not _is_known(facts) else ():
            if not wheels.runs_on([str(one) for one in listed], capability):
                yield _no_code(facts, name, capability, f"torch.cuda.get_arch_list() has {', '.join(map(str, listed))}")


def _is_known(facts: Facts) -> bool:
    """The wheel's architectures are in the tables, so that the check of PyTorch judges them."""
    version = package(facts, "torch") or ""
    build = _BUILD.fullmatch(version)
    return bool(build and wheels.torch_architectures(version, f"cu{build['major']}{build['minor']}"))


_BUILD = re.compile(r"\d+\.\d+\.\d+\+cu(?P<major>\d\d)(?P<minor>\d)")


def older_than_gpu(facts: Facts) -> Iterator[Finding]:
    """PyTorch's CUDA was released before the GPU's generation, so that no build with it can have code for the GPU."""
    version = package(facts, "torch") or ""
    build = _BUILD.fullmatch(version)
    if not build or _is_known(facts):
        return
    cuda = (int(build["major"]), int(build["minor"]))
    for capability, name in _gpus(facts).items():
        if (first := _first_cuda(capability)) and first > cuda:
            yield _no_code(facts, name, capability, f"torch {version} is built with CUDA {cuda[0]}.{cuda[1]}")
            return


def _first_cuda(capability: Pair) -> Pair | None:
    """The first CUDA with code that runs on such a GPU: for the first of its major version; Turing runs Volta's."""
    row = knowledge.architecture((capability[0], 0)) or knowledge.architecture(capability)
    return row.first_cuda if row else None


def _no_code(facts: Facts, name: str, capability: Pair, words: str) -> Finding:
    needed, version = "sm_{}{}".format(*capability), package(facts, "torch") or answer(facts, "torch.__version__")
    evidence = {"capability": needed, **torch_builds.replacement(facts, version, capability)}
    problem = facts.problems["torch-missing-gpu-architecture"]
    return problem.found(f"{name} needs {needed}; {words}", evidence, confidence=Confidence.LIKELY, packages=("torch",))


_COMPILED = re.compile(
    r"""
    ^(?:\S*[$\#>%]\ |\+\ )?(?:\S*/)?nvcc\b (?P<options>[^\n]*)$
    """,
    re.MULTILINE | re.VERBOSE,
)
_CODES = re.compile(r"\bcode=\[?(?P<names>(?:(?:sm|compute|lto)_\d{2,3}[a-f]?,?)+)")
_SHORT = re.compile(r"-{1,2}(?:gpu-architecture|arch)[= ](?:sm|compute)_(?P<number>\d{2,3}[a-f]?)\b")
_LAUNCHES = re.compile(
    r"""
    (?:^|[\s;&(])\./\w\S* | no\ kernel\ image | \b(?:wrong|zeros?|0\.0+|nothing|incorrect|garbage)\b
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_WORKS = re.compile(r"(?i)\b(?:PASS(?:ED)?|works? (?:fine|well|now)|correct result)\b")


def compiled_for_others(facts: Facts) -> Iterator[Finding]:
    """The last nvcc of the text names architectures of which none runs on its GPU, and the program was started."""
    text, gpus = "\n".join(passages(facts)), _gpus(facts)
    calls = list(_COMPILED.finditer(text))
    if len(gpus) != 1 or not calls or not _LAUNCHES.search(text, calls[-1].start("options")) or _WORKS.search(text):
        return
    (capability, name), built_for = next(iter(gpus.items())), list(_built_for(calls[-1]["options"]))
    if built_for and not wheels.runs_on(built_for, capability):
        needed, number = "sm_{}{}".format(*capability), "{}{}".format(*capability)
        words = f"{name} is {needed}, and nvcc compiled for {', '.join(built_for)}"
        evidence = {"capability": needed, "built_for": built_for, "sm_number": number}
        yield OTHER_CODE.found(words, evidence, confidence=Confidence.LIKELY)


def _built_for(options: str) -> Iterable[str]:
    """-arch=sm_XY without code stands for the binary and its PTX."""
    codes = [name for match in _CODES.finditer(options) for name in match["names"].split(",") if name]
    if codes:
        return codes
    short = [match["number"] for match in _SHORT.finditer(options)]
    return [f"{kind}_{number}" for number in short[-1:] for kind in ("sm", "compute")]


# https://www.mathworks.com/help/parallel-computing/gpu-computing-requirements.html
CUDA_OF_MATLAB = {
    "R2018a": (9, 0),
    "R2018b": (9, 1),
    "R2019a": (10, 0),
    "R2019b": (10, 1),
    "R2020a": (10, 1),
    "R2020b": (10, 2),
    "R2021a": (11, 0),
    "R2021b": (11, 0),
    "R2022a": (11, 2),
    "R2022b": (11, 2),
    "R2023a": (11, 8),
    "R2023b": (11, 8),
}
_MATLAB = re.compile(r"\b(?P<release>R20[12]\d[ab])\b")
_NOT_SEEN = re.compile(
    r"""
    \bgpuDeviceCount\s*(?:\([^)\n]*\))?;?\s*\n+\s*ans\s*=\s*0\b
    | \b(?:gpuDevice|gpuArray)\b[^\n]*\n(?:[^\n]*\n){0,4}?[^\n]*\b(?:Unable|Error|not\ supported|no\ supported)
    | \b(?: not | n't | no )\b[^\n.]{0,60}\b(?: gpu | RTX | GeForce )
    """,
    re.IGNORECASE | re.VERBOSE,
)


def older_matlab(facts: Facts) -> Iterator[Finding]:
    """A release of MATLAB does not use a GPU that came after it."""
    text = "\n".join(passages(facts))
    named = {match["release"] for match in _MATLAB.finditer(text)} & CUDA_OF_MATLAB.keys()
    if not re.search(r"(?i)\bmatlab\b|gpuDevice", text) or len(named) != 1 or not _NOT_SEEN.search(text):
        return
    release = named.pop()
    for capability, name in _gpus(facts).items():
        if (first := _first_cuda(capability)) and first > CUDA_OF_MATLAB[release]:
            words = f"{release} contains CUDA {'.'.join(map(str, CUDA_OF_MATLAB[release]))}, which has no code for {name}"
            evidence = {"release": release, "capability": "sm_{}{}".format(*capability)}
            yield MATLAB.found(words, evidence, confidence=Confidence.LIKELY)
            return


RULES = (listed_by_torch, older_than_gpu, compiled_for_others, older_matlab)
