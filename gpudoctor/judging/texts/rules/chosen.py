"""What a program of a text may use, by a setting, against what the machine has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.places import is_slow
from gpudoctor.judging.texts.rules.python import answer
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

OTHER_NVCC = Problem(
    id="nvcc-of-another-toolkit",
    title="The shell finds nvcc of another CUDA toolkit than the installed one",
    why="The shell starts the first nvcc on PATH. The package nvidia-cuda-toolkit of Debian and Ubuntu puts an old one into "
    "/usr/bin, and the installers of NVIDIA add nothing to PATH.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Put the wanted toolkit first, in the shell and in its start file (~/.bashrc)",
            "export PATH=<toolkit>/bin:$PATH CUDA_HOME=<toolkit>",
            verify="nvcc --version",
            kind="set",
            where="shell",
        ),
        Fix(
            "If nothing needs the distribution's toolkit: remove it",
            "sudo apt remove nvidia-cuda-toolkit",
            verify="command -v nvcc",
            risk="disruptive",
            kind="manual",
            on=("debian",),
            needs=("root",),
        ),
    ),
    references=("https://docs.nvidia.com/cuda/cuda-installation-guide-linux/#environment-setup",),
)
WITH_CMAKE = Fix(
    "Configure again in an empty build folder, which remembers no compiler, with the wanted one",
    "CUDACXX=<toolkit>/bin/nvcc cmake -S . -B build-cuda",
    verify="grep CMAKE_CUDA_COMPILER: build-cuda/CMakeCache.txt",
    kind="manual",
)
PROBLEMS = (OTHER_NVCC,)
LOW = 40  # percent
FEW = 4
_ANOTHER = re.compile(
    r"""
    \b(?: second | 2nd | another | other | two | both | next | more )\b[^.\n]{0,40}
    \b(?: process | worker | job | program | rank | script | container )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_IDLE = re.compile(r"(?i)\bGPU[^\n]{0,15}\butil\w*[^\n\d]{0,12}\b[0-3]?\d ?%")
_SAVING = ("acpi-cpufreq", "cppc_cpufreq", "amd-pstate", "intel_cpufreq")
_TOOLKIT = re.compile(r"/usr/local/cuda-(\d+)\.(\d+)/?")


def hides_some(facts: Facts) -> Iterator[Finding]:
    """A program sees fewer GPUs than nvidia-smi, as many as CUDA_VISIBLE_DEVICES names."""
    value = known(lambda: facts.environment.get("CUDA_VISIBLE_DEVICES")) or ""
    seen, listed = answer(facts, "torch.cuda.device_count"), known(lambda: facts.nvml.count, 0)
    named = [name for name in value.split(",") if name.strip().isdigit()]
    if named and seen == str(len(named)) and len(named) < listed and all(int(name) < listed for name in named):
        words = f"CUDA_VISIBLE_DEVICES is {value!r}: programs see {seen} of {listed} GPUs"
        evidence = {"CUDA_VISIBLE_DEVICES": value, "visible": len(named), "listed": listed}
        yield facts.problems["cuda-visible-devices-hides-requested-gpu"].found(words, evidence, confidence=Confidence.LIKELY)


def one_process(facts: Facts) -> Iterator[Finding]:
    """The compute mode admits one process, and the text misses another."""
    for gpu in known(lambda: facts.nvml.gpus, ()):
        mode = known(lambda gpu=gpu: gpu.compute_mode, "")  # type: ignore[misc]
        if mode.startswith("exclusive") and any(_ANOTHER.search(text) for text in passages(facts)):
            words = f"GPU {gpu.index}: compute mode is exclusive process, so a second program is refused"
            evidence = {"gpu": gpu.index, "mode": mode}
            yield facts.problems["compute-mode-exclusive-busy"].found(words, evidence, gpu.index, Confidence.LIKELY)
            return


def few_cpus(facts: Facts) -> Iterator[Finding]:
    """nproc and taskset count the CPUs that a process may use, `nproc --all` and lscpu those of the machine."""
    allowed = facts.shown.allowed_cpus
    every = facts.shown.every_cpu
    loads = [known(lambda gpu=gpu: gpu.get("UtilizationRates.gpu"), 100) for gpu in known(lambda: facts.nvml.gpus, ())]  # type: ignore[misc]
    is_idle = (bool(loads) and max(loads) < LOW) or any(_IDLE.search(text) for text in passages(facts))
    if allowed and every >= 2 * FEW and allowed * FEW <= every and allowed <= FEW and (is_idle or is_slow(facts)):
        words = f"the process may use {allowed} of {every} CPUs"
        evidence = {"cpus": allowed, "last": every - 1}
        yield facts.problems["cpu-affinity-narrow"].found(words, evidence, confidence=Confidence.LIKELY)


def saving_cpu(facts: Facts) -> Iterator[Finding]:
    """With these drivers the governor powersave keeps the lowest clock; with intel_pstate it does not."""
    scaling = facts.shown.cpu_scaling
    if scaling.get("governor") == "powersave" and scaling.get("driver") in _SAVING and is_slow(facts):
        words = f"the governor is powersave, which keeps the lowest clock with the driver {scaling['driver']}"
        yield facts.problems["cpu-clock-capped"].found(words, dict(scaling), confidence=Confidence.LIKELY)


def another_nvcc(facts: Facts) -> Iterator[Finding]:
    """nvcc is the distribution's, and a newer toolkit lies in /usr/local."""
    nvcc = known(lambda: facts.toolchain.nvcc)
    yield from _before_newer(facts)
    yield from _by_cmake(facts)
    place = facts.shown.pythons.get("nvcc", "") or (nvcc.path if nvcc else "")
    there = {(int(match[1]), int(match[2])): path for path in facts.shown.toolkits if (match := _TOOLKIT.fullmatch(path))}
    if not (nvcc and nvcc.version and there) or (nvcc.version[0], nvcc.version[1]) in there:
        return
    newest = max(there)
    of_distribution = str(PurePosixPath(place).parent) == "/usr/bin" or not place.startswith("/")
    if of_distribution and newest > (nvcc.version[0], nvcc.version[1]):
        words = f"the first nvcc on PATH is of CUDA {nvcc.version[0]}.{nvcc.version[1]}, and {there[newest]} is installed"
        evidence = {"found": ".".join(map(str, nvcc.version[:2])), "toolkit": there[newest].rstrip("/")}
        yield OTHER_NVCC.found(words, evidence, confidence=Confidence.LIKELY)


_FIRST = re.compile(
    r"""
    \b(?:which\ -a|type\ -ap?|whereis\ -b)\ nvcc[^\n]*\n
    (?:nvcc\ is\ )?(?P<first>/\S+/bin)/nvcc[ \t]*\n(?:nvcc\ is\ )?
    (?P<next>/\S+)/bin/nvcc
    """,
    re.MULTILINE | re.VERBOSE,
)
_IDENTIFIED = re.compile(
    r"""
    The\ CUDA\ compiler\ identification\ is\ NVIDIA\ (\d+)\.(\d+)|Cuda\ compilation\ tools,\ release\ (\d+)\.(\d+)
    """,
    re.VERBOSE,
)


def _before_newer(facts: Facts) -> Iterator[Finding]:
    """which -a lists an nvcc before that of /usr/local, and it is older."""
    text = "\n".join(passages(facts))
    listed, used = _FIRST.search(text), _IDENTIFIED.search(text)
    paths = sorted((int(match[1]), int(match[2]), match[0].rstrip("/")) for match in _TOOLKIT.finditer(text))
    if not listed or not used or not paths or not listed["next"].startswith("/usr/local/cuda"):
        return
    version = tuple(int(number) for number in used.groups() if number)
    if paths[-1][:2] > version and not listed["first"].startswith("/usr/local/cuda"):
        words = (
            f"the first nvcc on PATH is {listed['first']}/nvcc of CUDA {version[0]}.{version[1]}, and {paths[-1][2]} is installed"
        )
        evidence = {"found": ".".join(map(str, version)), "toolkit": paths[-1][2], "first": f"{listed['first']}/nvcc"}
        yield OTHER_NVCC.found(words, evidence, confidence=Confidence.LIKELY)


_TESTED = re.compile(r"(?:working CUDA compiler|(?m:^)\s*Compiler): (?P<folder>/\S+)/nvcc\b")


def _by_cmake(facts: Facts) -> Iterator[Finding]:
    """CMake takes an nvcc outside of /usr/local, and a newer toolkit lies there."""
    text = "\n".join(passages(facts))
    tested, used = _TESTED.search(text), _IDENTIFIED.search(text)
    paths = sorted((int(match[1]), int(match[2]), match[0].rstrip("/")) for match in _TOOLKIT.finditer(text))
    version = tuple(int(number) for number in used.groups() if number) if used else ()
    if tested and version and paths and paths[-1][:2] > version and not tested["folder"].startswith("/usr/local/cuda"):
        number = ".".join(map(str, version))
        words = f"CMake takes {tested['folder']}/nvcc of CUDA {number}, and {paths[-1][2]} is installed"
        evidence = {"found": number, "toolkit": paths[-1][2], "first": f"{tested['folder']}/nvcc"}
        problem = replace(OTHER_NVCC, fixes=(WITH_CMAKE, *OTHER_NVCC.fixes))
        yield problem.found(words, evidence, confidence=Confidence.LIKELY)
    elif tested and not version and paths and "/usr/lib/nvidia-cuda-toolkit" in text and tested["folder"] == "/usr/bin":
        words = f"CMake takes the distribution's /usr/bin/nvcc, and {paths[-1][2]} is installed"
        problem = replace(OTHER_NVCC, fixes=(WITH_CMAKE, *OTHER_NVCC.fixes))
        yield problem.found(words, {"toolkit": paths[-1][2], "first": "/usr/bin/nvcc"}, confidence=Confidence.LIKELY)


def larger_than_gpu(facts: Facts) -> Iterator[Finding]:
    """`ollama ps` shows a model that is larger than the memory of all GPUs."""
    model = facts.shown.ollama_share
    sizes = [size for gpu in known(lambda: facts.nvml.gpus, ()) if (size := known(lambda gpu=gpu: gpu.memory_total_mib))]  # type: ignore[misc]
    total = sum(sizes) * 2**20 / 1e9
    if model and sizes and model["gb"] > total:
        words = (
            f"{model['name']} takes {model['gb']:.0f} GB, and the GPU{'s have' if len(sizes) > 1 else ' has'} {total:.0f} GB: "
        )
        words += f"{model['cpu']} % of it run on the CPU"
        yield facts.problems["model-offloaded-from-gpu"].found(words, {"cpu_percent": model["cpu"]}, confidence=Confidence.LIKELY)


RULES = (hides_some, one_process, few_cpus, saving_cpu, another_nvcc, larger_than_gpu)
