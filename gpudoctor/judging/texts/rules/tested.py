"""Releases that the words of a text name: TensorFlow against the CUDA it was built with, the session of ONNX Runtime."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.python import answer, numbers, package
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

Pair = tuple[int, int]

OTHER_CUDA = Problem(
    id="tensorflow-built-for-another-cuda",
    title="This TensorFlow was built for another CUDA than the installed one",
    why="Before 2.14 TensorFlow brings no CUDA libraries. It loads those of the release it was built with by their exact names, "
    "and continues on the CPU if they are missing. A newer CUDA does not replace them.",
    action=Action.INSTALL,
    fixes=(
        Fix("Install that release of CUDA too, and put its libraries first (LD_LIBRARY_PATH, on Windows PATH)"),
        Fix(
            "Install a TensorFlow that brings its CUDA libraries, in a new environment (Linux, WSL2)",
            "python -m pip install -U 'tensorflow[and-cuda]'",
            verify="python -c 'import tensorflow as tf; print(tf.config.list_physical_devices(\"GPU\"))'",
            kind="install",
            needs=("network",),
        ),
    ),
    references=("https://www.tensorflow.org/install/source#gpu",),
)
PROBLEMS = (OTHER_CUDA,)

# https://www.tensorflow.org/install/source#gpu and https://www.tensorflow.org/install/source_windows#gpu
BUILT_WITH: tuple[tuple[Pair, Pair], ...] = (
    *(((2, 12), (11, 8)), ((2, 5), (11, 2)), ((2, 4), (11, 0)), ((2, 1), (10, 1)), ((1, 13), (10, 0)), ((1, 5), (9, 0))),
)
FIRST_WITH_LIBRARIES = (2, 14)
ONE_NAME = 11  # from this CUDA on the libraries of all its releases have the same names
_TENSORFLOW = re.compile(
    r"""
    \b(?:tensorflow|tf)(?:-gpu)?(?:\ \(gpu\))?(?:\ version)?\ ?(?:\([^)\n]{0,40}\))?\ ?(?:[:=]{1,2}|is\b)?[\ \n]{0,3}
    [`'"v]{0,2}(?:tf\ )?(?:v[\d.]{3,8}-[\w-]{1,20}\ )?(?P<version>[12]\.\d{1,2}(?:\.\d{1,2})?)(?![\d.])
    """,
    re.IGNORECASE | re.VERBOSE,
)
_CUDA = re.compile(
    r"""
    \bcuda(?:/cudnn)?(?:\ ?toolkit)?(?:\ ?runtime)?(?:\ ?version)?(?:\ ?api)?\ ?[:=]?[\ \n]{0,3}(?:is\ )?(?:cuda\ )?[v=]?
    (?P<major>9|1[0-3])\.(?P<minor>\d)\b
    | \bCuda\ compilation\ tools,\ release\ (?P<compiled>\d+\.\d+)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OF_DRIVER = re.compile(r"CUDA Version: *[\d.]+ *\||CUDA[- ](?:Driver|UMD)[^\n]*|Driver Version:[^\n]*")
_NO_GPU = re.compile(
    r"""
    (?:GPUs?\ Available|Num\ GPUs)[^\n]{0,20}?:?\s*0\b
    | list_physical_devices\([^)\n]*\)[^\n]*\n{1,2}[\ \t]*(?:Out\[\d+\]:\ )?
      (?:\[\]|\[PhysicalDevice\(name='/physical_device:CPU:0'[^\n]*CPU'\)\])
    | is_gpu_available\([^\n]*\n+\s*(?:Out\[\d+\]:\s*)?False | list_physical_devices\([^)\n]*\)[^\n]{0,40}\b(?:empty|nothing)\b
    | Could\ not\ load\ dynamic\ library\ 'libcu
    """,
    re.VERBOSE,
)
_SEES = re.compile(r"device:GPU:0|Created (?:TensorFlow )?device[^\n]*GPU")


def tensorflow_of_another_cuda(facts: Facts) -> Iterator[Finding]:
    """TensorFlow sees no GPU, and the one CUDA of the text is not that of its release."""
    text = _OF_DRIVER.sub("", "\n".join(passages(facts)))
    version = _tensorflow(facts, text)
    blind = _NO_GPU.search(text) or "CPU:0" in answer(facts, "tensorflow.config.list_physical_devices")
    if not version or version >= FIRST_WITH_LIBRARIES or not blind or _SEES.search(text) or _is_windows_only(facts, version):
        return
    wanted = next((cuda for first, cuda in BUILT_WITH if version >= first), None)
    nvcc = known(lambda: facts.toolchain.nvcc)
    there = {(nvcc.version[0], nvcc.version[1])} if nvcc and nvcc.version else set(_cudas(text))
    if wanted and len(there) == 1 and not _fits(one := there.pop(), wanted):
        release, needed, other = (".".join(map(str, pair)) for pair in (version, wanted, one))
        words = f"TensorFlow {release} was built with CUDA {needed}, and CUDA {other} is installed"
        evidence = {"wanted": needed, "installed": other}
        yield OTHER_CUDA.found(words, evidence, confidence=Confidence.LIKELY)


def _tensorflow(facts: Facts, text: str) -> Pair | None:
    listed = package(facts, "tensorflow") or package(facts, "tensorflow-gpu") or answer(facts, "tensorflow.__version__")
    said = {match["version"] for match in _TENSORFLOW.finditer(text)}
    version = numbers(listed or (said.pop() if len(said) == 1 else ""))
    return (version[0], version[1]) if len(version) > 1 else None


def _cudas(text: str) -> Iterator[Pair]:
    for match in _CUDA.finditer(text):
        major, _, minor = (match["compiled"] or f"{match['major']}.{match['minor']}").partition(".")
        yield int(major), int(minor)


def _fits(installed: Pair, wanted: Pair) -> bool:
    return installed[0] == wanted[0] if wanted[0] >= ONE_NAME else installed == wanted


def _is_windows_only(facts: Facts, version: Pair) -> bool:
    """From 2.11 on no CUDA helps on Windows."""
    return facts.shown.is_windows and version > (2, 10)


def said_on_windows(facts: Facts) -> Iterator[Finding]:
    """The words of a text name Windows and a TensorFlow from 2.11 on, which sees no GPU."""
    text = "\n".join(passages(facts))
    version = _tensorflow(facts, text)
    blind = _NO_GPU.search(text) or "False" in answer(facts, "tensorflow.test.is_built_with_cuda")
    is_windows = facts.shown.is_windows or (_WINDOWS.search(text) and not _LINUX.search(text))
    if version and version > (2, 10) and is_windows and blind and not _SEES.search(text):
        words = f"TensorFlow {version[0]}.{version[1]} has no GPU support on Windows; 2.10 was the last release with it"
        evidence = {"release": f"{version[0]}.{version[1]}"}
        yield facts.problems["tensorflow-no-gpu-on-windows"].found(words, evidence, confidence=Confidence.LIKELY)


_WINDOWS = re.compile(r"(?i)\bwin(?:dows)? ?1[01]\b|\bwindows (?:server|home|pro)\b")
_LINUX = re.compile(r"(?i)\bwsl|\bubuntu\b|\bdebian\b|\blinux\b")

NOT_ASKED = (
    Fix(
        "Name the providers when the session is made, as releases since 1.9 require",
        'python -c \'import onnxruntime as o; s = o.InferenceSession("<file>", providers=["CUDAExecutionProvider"]); '
        "print(s.get_providers())'",
        kind="read",
    ),
    Fix("If it still lists only the CPU: read the warning that it prints; a library of CUDA or cuDNN is missing"),
)
_SESSION = re.compile(
    r"""
    \bInferenceSession\((?P<arguments>[^\n]*)\)?[^\n]*\n (?:[^\n]*\n){0,12}?
    [^\n]*\.get_providers\(\)[^\n]*\n (?:[^\n]{0,30}\n)?? [^\n]*\[\s*['"]CPUExecutionProvider['"]\s*\]
    | \.get_providers\(\)[^\n]{0,40}\bis\b[^\n]{0,10}\[\s*['"]CPUExecutionProvider['"]\s*\]
    """,
    re.VERBOSE,
)
_AVAILABLE = re.compile(r"get_available_providers\(\)[^\[]{0,60}\[[^\]]*CUDAExecutionProvider")


def session_without_providers(facts: Facts) -> Iterator[Finding]:
    """ONNX Runtime offers CUDA, and the session that was made without naming it has only the CPU."""
    for text in passages(facts):
        session = _SESSION.search(text)
        if session and _AVAILABLE.search(text) and "providers" not in (session["arguments"] or ""):
            problem = replace(facts.problems["onnxruntime-session-without-gpu"], fixes=NOT_ASKED, status=Status.FAIL)
            words = "ONNX Runtime offers CUDA, and the session was made without naming it: it uses only the CPU"
            yield problem.found(words, {"providers": "CPUExecutionProvider"}, confidence=Confidence.LIKELY)
            return


RULES = (tensorflow_of_another_cuda, said_on_windows, session_without_providers)
