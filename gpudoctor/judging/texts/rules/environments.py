"""The environment that a text shows: Windows, two Pythons, packages that do not fit the place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from packaging.version import Version

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.python import torch_builds
from gpudoctor.judging.texts.rules.driver import said
from gpudoctor.judging.texts.rules.python import answer, is_blind, numbers, package
from gpudoctor.judging.texts.rules.said import has_only_others, passages
from gpudoctor.model import Confidence, Finding

MINOR_COMPATIBLE = 11000  # https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
LAST_TENSORFLOW_ON_WINDOWS = (2, 10)  # https://www.tensorflow.org/install/pip#windows-native
_ENVIRONMENT = re.compile(
    r"""
    [/\\]
    (?: envs | \.?v?envs? | virtualenvs | conda | (?:ana|mini)conda\d? | mini(?:forge|mamba)\d? )
    (?: [/\\] | $ )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_PREFIX = re.compile(r"(?:[/\\]bin|[/\\]Scripts)?[/\\][^/\\]+$", re.IGNORECASE)
_WITHOUT_DRIVER = (
    "nvidia-smi: command not found",
    "couldn't communicate with the NVIDIA driver",
    "couldn't find libnvidia-ml.so",
    "Found no NVIDIA driver",
)


def pypi_on_windows(facts: Facts) -> Iterator[Finding]:
    """PyPI's wheels of PyTorch for Windows are CPU builds, and only those have no local version."""
    version, conda = package(facts, "torch"), known(lambda: facts.python.conda_packages, {})
    mixed = any("+cu" in (package(facts, name) or "") for name in ("torchvision", "torchaudio"))
    if not (facts.shown.is_windows and version and (is_blind(facts) or mixed)) or "+" in version or "pytorch" in conda:
        return
    if known(lambda: facts.python.torch_cuda) is None:
        words = f"torch {version} without a local version such as +cu126 is PyPI's build for Windows, which has no CUDA"
        evidence = {"installed": version, **torch_builds.replacement(facts, version)}
        yield facts.problems["torch-cpu-only-wheel"].found(words, evidence, confidence=Confidence.LIKELY, packages=("torch",))


_ASKED_FOR_CUDA = re.compile(
    r"""
    ^\s*-\s(?:cudatoolkit|pytorch-cuda)\b | \binstall\b[^\n]*\s(?:cudatoolkit|pytorch-cuda)=\d
    """,
    re.MULTILINE | re.VERBOSE,
)


def cpu_build(facts: Facts) -> Iterator[Finding]:
    """A text can show the CPU build and what follows from it, and no GPU."""
    version = known(lambda: facts.python.torch_version)
    is_judged = known(lambda: facts.nvml.count, 0) or known(lambda: facts.pci.gpus, ()) or facts.shown.is_mac
    is_judged = is_judged or any(said(facts, words) for words in ("nv_tegra_release", "Jetson", "-tegra"))
    if (
        version
        and (is_blind(facts) or any(_ASKED_FOR_CUDA.search(text) for text in passages(facts)))
        and not is_judged
        and not has_only_others(facts)
        and known(lambda: facts.python.torch_cuda, "unknown") is None
    ):
        evidence = {"installed": version, **torch_builds.replacement(facts, version)}
        words = f"torch {version} is built without CUDA"
        confidence = Confidence.CONFIRMED if version.endswith("+cpu") else Confidence.LIKELY
        found = facts.problems["torch-cpu-only-wheel"].found(words, evidence, confidence=confidence, packages=("torch",))
        causes = (*found.causes, "framework-from-conda-and-pip")
        yield replace(found, because="notebook-kernel-of-another-python", causes=causes)


def tensorflow_on_windows(facts: Facts) -> Iterator[Finding]:
    version = package(facts, "tensorflow") or package(facts, "tensorflow-gpu")
    devices = answer(facts, "tensorflow.config.", "device_lib.", "tensorflow.python.client.device_lib.")
    blind = (devices and "GPU" not in devices and not said(facts, "device:GPU:0")) or answer(
        facts, "tensorflow.test.is_built_with_cuda"
    ) == "False"
    if facts.shown.is_windows and version and blind and numbers(version)[:2] > LAST_TENSORFLOW_ON_WINDOWS:
        words = f"TensorFlow {version} has no GPU support on Windows; 2.10 was the last release with it"
        yield facts.problems["tensorflow-no-gpu-on-windows"].found(words, {"release": version}, packages=("tensorflow",))


def notebook_without_gpu(facts: Facts) -> Iterator[Finding]:
    if (
        facts.shown.is_notebook
        and known(lambda: facts.nvml.count, 0) == 0
        and any(said(facts, words) for words in _WITHOUT_DRIVER)
    ):
        words = "the text is from Colab or Kaggle, and there is no driver: no GPU was selected"
        yield facts.problems["notebook-without-gpu"].found(words, confidence=Confidence.LIKELY)


def first_wsl(facts: Facts) -> Iterator[Finding]:
    """The default distribution, in which wsl.exe runs programs, is one of WSL 1."""
    name = facts.shown.wsl["default"]
    if facts.shown.wsl["versions"].get(name) == 1:
        words = f"wsl --list shows that {name} runs in WSL 1"
        yield facts.problems["wsl1-has-no-gpu"].found(words, {"chosen_name": name})


_NO_MODULE = re.compile(r"\bNo module named '?([A-Za-z]\w*)")


def another_pip(facts: Facts) -> Iterator[Finding]:
    """What is installed goes to another Python than the one that runs."""
    if words := _release_of_pip(facts) or _place_of_pip(facts) or _place_of_conda(facts) or _two_interpreters(facts):
        missing = next((match[1] for text in passages(facts) if (match := _NO_MODULE.search(text))), "")
        evidence = {"package": missing} if missing else {}
        found = facts.problems["pip-of-another-python"].found(words, evidence, confidence=Confidence.LIKELY)
        yield replace(found, because="notebook-kernel-of-another-python")


def _release_of_pip(facts: Facts) -> str:
    of_pip, release = facts.shown.pythons.get("pip_version", ""), _release(facts)
    return f"pip installs for Python {of_pip}, but python is {release}" if of_pip and release and of_pip != release else ""


def _release(facts: Facts) -> str:
    told = re.match(r"\d+\.\d+", answer(facts, "sys.version"))
    version = known(lambda: facts.python.version)
    return told[0] if told else ".".join(map(str, version[:2])) if version else ""


def _place_of_pip(facts: Facts) -> str:
    python, pip = facts.shown.pythons.get("python", ""), facts.shown.pythons.get("pip", "")
    return f"the shell starts {python}, but {pip}" if _apart(python, pip) else ""


def _place_of_conda(facts: Facts) -> str:
    """conda's list is of an environment, and the shell starts a Python outside of it."""
    folder, python = facts.shown.pythons.get("conda", ""), facts.shown.pythons.get("python", "")
    if folder and python and _PREFIX.sub("", python).rstrip("/\\").lower() != folder.rstrip("/\\").lower():
        return f"conda's list is of {folder}, but the shell starts {python}"
    return ""


def _two_interpreters(facts: Facts) -> str:
    started = facts.shown.pythons.get("python", "")
    found = (*facts.shown.executables, *([started] if facts.shown.executables and started else []))
    is_missed = said(facts, "No module named") or (said(facts, "False") and said(facts, "True"))
    if len({_PREFIX.sub("", path) for path in found}) > 1 and is_missed:
        return f"the text shows {' and '.join(found[:2])}: what is installed in one is missing in the other"
    return ""


def _apart(one: str, other: str) -> bool:
    """Two prefixes, of which one is an environment: /usr/bin and ~/.local/bin belong together."""
    prefixes = [_PREFIX.sub("", path).lower() for path in (one, other)]
    return bool(one and other) and prefixes[0] != prefixes[1] and any(map(_ENVIRONMENT.search, prefixes))


def imports_another(facts: Facts) -> Iterator[Finding]:
    """Python imports another release of PyTorch than the list shows."""
    imported, listed = answer(facts, "torch.__version__"), facts.shown.listed.get("torch") or facts.shown.reported
    if not imported or not listed or known(lambda: facts.python.conda_packages, {}).get("pytorch"):
        return
    (one, _, build), (other, _, listed_build) = imported.partition("+"), listed.partition("+")
    if one != other or (build and listed_build and build != listed_build):
        words = f"Python imports torch {imported}, but another output of the text shows {listed}"
        yield facts.problems["pip-of-another-python"].found(words, confidence=Confidence.LIKELY)


def old_driver_for_runtime(facts: Facts) -> Iterator[Finding]:
    """cupy.show_config() and numba -s print both; conda lists a toolkit, and nvidia-smi the newest CUDA of the driver."""
    name, build, driver = _runtime(facts)
    if build and driver and (build // 1000 > driver // 1000 or (build > driver and build < MINOR_COMPATIBLE)):
        needed, has = (f"{number // 1000}.{number % 1000 // 10}" for number in (build, driver))
        least = knowledge.minimum_driver((build // 1000, build % 1000 // 10)) or "525.60.13"
        words = f"{name} is of CUDA {needed}, and the driver supports {has}"
        evidence = {"least_driver": least, "upgrade": str(Version(least).major)}
        yield facts.problems["driver-too-old-for-runtime"].found(words, evidence)


def _runtime(facts: Facts) -> tuple[str, int, int]:
    shown, driver = facts.shown.runtime, known(lambda: facts.cuda.driver_version, (0, 0))
    if shown:
        return str(shown["name"]), int(shown["build"]), int(shown["driver"])
    toolkit = known(lambda: facts.python.conda_packages, {}).get("cudatoolkit")
    release = numbers(toolkit.version) if toolkit else ()
    build = 1000 * release[0] + 10 * release[1] if len(release) > 1 else 0
    return "conda's cudatoolkit", build, 1000 * driver[0] + 10 * driver[1]


def unmet_by_torch(facts: Facts) -> Iterator[Finding]:
    """pip check names the packages that were built for another PyTorch."""
    unmet = {name: one for name, one in facts.shown.unmet.items() if one["name"] == "torch"}
    if unmet:
        installed = next(iter(unmet.values()))["installed"]
        words = ", ".join(f"{name} {one['version']} needs {one['requirement']}" for name, one in unmet.items())
        cuda = known(lambda: facts.python.torch_cuda)
        index = torch_builds.INDEX + (f"cu{cuda.replace('.', '')}" if cuda else torch_builds.SAFE_INDEX)
        names = list(unmet)
        evidence = {"torch": installed.partition("+")[0], "index": index, "packages": names, "module": names[0].replace("-", "_")}
        problem = facts.problems["torch-companion-mismatch"]
        yield problem.found(f"{words}; torch is {installed}", evidence, packages=("torch", *names))


def mixed_toolkits(facts: Facts) -> Iterator[Finding]:
    """CMake compiles with the nvcc of one toolkit and links the libraries of another."""
    shown = facts.shown.cmake
    if shown and shown["nvcc"] != shown["toolkit"]:
        words = (
            f"CMake compiles with {shown['path']} of CUDA {shown['nvcc']}, and links CUDA {shown['toolkit']} in {shown['folder']}"
        )
        evidence = {
            "compiler": f"{shown['folder'].removesuffix('/include')}/bin/nvcc",
            "nvcc": shown["nvcc"],
            "toolkit": shown["toolkit"],
        }
        yield facts.problems["cmake-mixes-toolkits"].found(words, evidence)


def home_of_no_toolkit(facts: Facts) -> Iterator[Finding]:
    """CUDA_HOME names a folder that ls does not list."""
    home = known(lambda: facts.environment.get("CUDA_HOME") or facts.environment.get("CUDA_PATH")) or ""
    listed = facts.shown.toolkits
    if re.fullmatch(r"/usr/local/cuda[\d.-]*/?", home) and listed and home.rstrip("/") not in listed:
        words = f"CUDA_HOME is {home}, and ls lists only {', '.join(listed)}"
        evidence = {"CUDA_HOME": home, "toolkit": max(listed)}
        yield facts.problems["cuda-home-invalid"].found(words, evidence, confidence=Confidence.LIKELY)


RULES = (
    unmet_by_torch,
    mixed_toolkits,
    home_of_no_toolkit,
    pypi_on_windows,
    tensorflow_on_windows,
    notebook_without_gpu,
    first_wsl,
    another_pip,
    imports_another,
    old_driver_for_runtime,
    cpu_build,
)
