"""Programs of a text whose own list of what they can do has no GPU: OpenCV, FFmpeg, XGBoost, GROMACS, ROCm's agents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.said import has_gpu, passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

NO_AGENT = Problem(
    id="rocm-lists-no-gpu",
    title="ROCm lists no GPU: the card's kernel driver is not amdgpu",
    why="ROCm reaches a GPU through the KFD part of the kernel's driver amdgpu. Old cards, up to the first generations of GCN, "
    "run with the driver radeon, which has no such part, and ROCm does not support them.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        Fix("Use another API on this card: OpenCL of Mesa (RUSTICL_ENABLE=radeonsi) or Vulkan", "clinfo -l", kind="read"),
        Fix("For ROCm: use a card of its list of supported GPUs"),
    ),
    references=("https://rocm.docs.amd.com/projects/install-on-linux/en/latest/reference/system-requirements.html",),
)
PROBLEMS = (NO_AGENT,)


class _Program(NamedTuple):
    """name: how the text names it. lacks: its own output without a GPU. way: what has one."""

    name: str
    lacks: re.Pattern[str]
    way: Fix


def _program(name: str, lacks: str, title: str, command: str = "", verify: str = "") -> _Program:
    way = Fix(title, command, verify=verify, kind="install" if command else "manual")
    return _Program(name, re.compile(lacks, re.MULTILINE | re.VERBOSE), way)


_FALSE = r"(?:[^\n]*\n){1,2}?\s*(?:Out\[\d+\]:\s*)?False\s*$"
_ZERO = r"(?:[^\n]*\n){1,2}?\s*(?:Out\[\d+\]:\s*)?0\s*$"
PROGRAMS = (
    _program(
        "OpenCV",
        rf"""
        \bOpenCV:?\ +[\d.]+[^\n]{{0,20}}\b(?:with|compiled)\ CUDA:\ NO\b
        | ^\s*NVIDIA\ CUDA:\s+NO\b
        | \bgetCudaEnabledDeviceCount\(\){_ZERO}
        """,
        "Build OpenCV with CUDA, or install such a build: PyPI's packages (opencv-python) lack it, and hide your own build",
        "python -m pip uninstall -y opencv-python opencv-python-headless opencv-contrib-python opencv-contrib-python-headless",
        "python -c 'import cv2; print(cv2.cuda.getCudaEnabledDeviceCount())'",
    ),
    _program(
        "FFmpeg",
        r"""
        ^Hardware\ acceleration\ methods:\s*\n (?: (?!.*cuda)[a-z][\w\d]*\s*\n )+ (?!.*\bcuda\b)
        | \bffmpeg\b[^\n]*-encoders[^\n]*\|\ *grep[^\n]*\b(?:nvenc|nvidia)[^\n]*\n (?=\s*(?:\S*[$\#>]\ |\Z))
        """,
        "Install a build of FFmpeg with NVENC and CUDA (--enable-ffnvcodec), such as BtbN's or jellyfin-ffmpeg",
        "",
        "ffmpeg -hide_banner -hwaccels",
    ),
    _program(
        "XGBoost",
        r"['\"]USE_CUDA['\"]:\s*False",
        "Install a build of XGBoost with CUDA: PyPI's wheel for Linux and Windows, or the cuda build of conda-forge",
        "python -m pip install --force-reinstall --no-deps xgboost",
        "python -c 'import xgboost; print(xgboost.build_info()[\"USE_CUDA\"])'",
    ),
    _program(
        "GROMACS",
        r"^GPU\ support:\s+disabled\b",
        "Build GROMACS with -DGMX_GPU=CUDA, or load the module of such a build (gmx --version then says GPU support: CUDA)",
        "",
        "gmx --version",
    ),
    _program(
        "Dlib",
        rf"\bDLIB_USE_CUDA\b{_FALSE}",
        "Build dlib again where nvcc, cuDNN and its headers are found: pip compiles it without CUDA if one of them is missing",
        "python -m pip install --force-reinstall --no-cache-dir --no-binary dlib dlib",
        "python -c 'import dlib; print(dlib.DLIB_USE_CUDA)'",
    ),
    _program(
        "Paddle",
        rf"\bis_compiled_with_cuda\(\){_FALSE}",
        "Replace paddlepaddle by paddlepaddle-gpu for the CUDA release of the driver",
        "python -m pip uninstall -y paddlepaddle && python -m pip install paddlepaddle-gpu",
        "python -c 'import paddle; paddle.utils.run_check()'",
    ),
    _program(
        "MXNet",
        r"✖\ CUDA\b",
        "Replace mxnet by the wheel for the CUDA release, such as mxnet-cu112",
        "python -m pip uninstall -y mxnet && python -m pip install mxnet-cu112",
        "python -c 'import mxnet; print(mxnet.context.num_gpus())'",
    ),
    _program(
        "CTranslate2",
        rf"ctranslate2\.get_cuda_device_count\(\){_ZERO}",
        "Install the wheel of PyPI for Linux x86-64 or Windows, which has CUDA; those for other platforms lack it",
        "python -m pip install --force-reinstall ctranslate2",
        "python -c 'import ctranslate2; print(ctranslate2.get_cuda_device_count())'",
    ),
    _program(
        "LAMMPS",
        r"""
        Package\ (?:gpu|kokkos)\ command\ without\ (?:GPU|KOKKOS)\ package | without\ KOKKOS\ package\ installed
        | Installed\ packages:\s*\n (?: (?!.*\b(?:GPU|KOKKOS)\b)[A-Z0-9 \t-]*\n )+ (?!.*\b(?:GPU|KOKKOS)\b)
        """,
        "Build LAMMPS with -DPKG_GPU=on -DGPU_API=cuda (or PKG_KOKKOS with Kokkos_ENABLE_CUDA), or load a module with it",
        "",
        "lmp -h | grep -A9 'Installed packages'",
    ),
    _program(
        "UCX",
        r"\bucx_info\ -d\b[^\n]*\|\ *grep[^\n]*cuda[^\n]*\n (?=\s*(?:\S*[$\#>]\ |\Z))",
        "Install a build of UCX with CUDA (ucx-cuda, or configured --with-cuda), and put it first on PATH",
        "",
        "ucx_info -d | grep cuda",
    ),
)
_COMPLAINS = re.compile(
    r"""
    \b(?: not | n't | no | never | only | slow\w* | without | instead | cpu | idle | why | but | fps )\b | n't\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


_ABOUT_CUDA = re.compile(r"Jetson|\bGPU package\b|\b(?:with|built|WITH_)\W{0,3}CUDA\b")


def built_without(facts: Facts) -> Iterator[Finding]:
    """A program's own output says that it has no CUDA, on a machine with a GPU."""
    text = "\n".join(passages(facts))
    for program in PROGRAMS:
        found = program.lacks.search(text)
        rest = program.lacks.sub("", text) if found else ""
        if found and _named(program.name, rest) and (has_gpu(facts) or _ABOUT_CUDA.search(rest)):
            line = found[0].strip().splitlines()[0].strip()
            words = f"{program.name} was built without CUDA and computes on the CPU"
            title = f"{program.name} was built without CUDA"
            if program.name == "FFmpeg":
                problem = facts.problems["ffmpeg-built-without-nvidia"]
                problem = replace(problem, fixes=(*(fix for fix in problem.fixes if fix.verify), program.way))
            else:
                problem = replace(facts.problems["program-built-without-cuda"], title=title, fixes=(program.way,))
            yield problem.found(words, {"program": program.name, "line": line[:80]}, confidence=Confidence.LIKELY)
            return


def _named(name: str, rest: str) -> bool:
    """A sentence about the program complains."""
    short = {
        "OpenCV": r"(?:opencv|cv2|dnn)",
        "FFmpeg": r"(?:ffmpeg|transcod\w*|encod\w*|nvenc)",
        "GROMACS": r"(?:gromacs|gmx|mdrun)",
        "LAMMPS": r"(?:lammps|lmp)",
    }
    pattern = re.compile(rf"(?i)\b{short.get(name, re.escape(name))}\b")
    about = pattern if name in short else re.compile(rf"{pattern.pattern}|\b[cg]pu\b")
    return any(about.search(line) and _COMPLAINS.search(line) for line in rest.splitlines())


_AGENT = re.compile(r"(?m)^\s*Device Type:\s+(?P<type>CPU|GPU)\s*$")
_OLD_DRIVER = re.compile(
    r"""
    ^\s*(?:[\da-f]{4}:)?[\da-f]{2}:[\da-f]{2}\.\d\ (?:VGA|Display|3D)[^\n]*\b(?:AMD|ATI)\b(?P<name>[^\n]*)\n
    (?: [ \t]+[^\n]*\n ){0,8}? [ \t]+Kernel\ driver\ in\ use:\ radeon\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)


def no_agent(facts: Facts) -> Iterator[Finding]:
    """rocminfo lists only CPUs, and the card runs with the driver radeon."""
    text = "\n".join(passages(facts))
    agents = {match["type"] for match in _AGENT.finditer(text)}
    card = _OLD_DRIVER.search(text)
    if agents == {"CPU"} and card and "HSA" in text:
        words = f"rocminfo lists only the CPU, and the kernel runs {_model(card['name'])} with the driver radeon"
        yield NO_AGENT.found(words, {"driver": "radeon"}, confidence=Confidence.LIKELY)


def _model(name: str) -> str:
    found = re.findall(r"\[([^\]]+)\]", name)
    names = [one for one in found if not re.fullmatch(r"[\da-f]{4}:[\da-f]{4}|AMD/ATI", one)]
    return names[0] if names else "the AMD card"


RULES = (built_without, no_agent)
