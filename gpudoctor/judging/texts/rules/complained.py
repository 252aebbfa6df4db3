"""One fact that explains what the words of a text complain about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.places import is_slow
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding

SAVING_MHZ = 1000
_COUNTED = re.compile(
    r"""
    ^[^\n]*\bnvidia-smi\ +(?:-L|--list-gpus)\ *\|\ *wc\ +-l\ *\n\s*(?P<listed>\d{1,2})\s*$
    | ^[^\n]*\bls\ (?:-\S+\ )?/dev/nvidia\[0-9\]\*?\ *\|\ *wc\ +-l\ *\n\s*(?P<nodes>\d{1,2})\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_OFFERED = re.compile(r"(?m)^\s*nvidia\.com/gpu:\s+(\d+)\s*$")
_RANKS = re.compile(
    r"""
    --nproc[_-]per[_-]node[ =](\d+)
    | \bmpirun\b[^\n]*\s-np?\ (\d+)
    | --num_processes[ =](\d+)
    """,
    re.VERBOSE,
)
_MEGAHERTZ = re.compile(r"(?m)^cpu MHz\s*:\s*(\d+)")
_LOAD = re.compile(r"\bload average: (\d+(?:\.\d+)?)")
_ASKED = re.compile(
    r"""
    --gres=gpu(?::[a-z][\w-]*)?:(\d+)
    | --gpus-per-node=(?:[a-z][\w-]*:)?(\d+)
    """,
    re.VERBOSE,
)
_PENDS = re.compile(
    r"""
    \bpending\b | \bPD\b | \(Resources\) | \bqueued\b | not\ available | \bnever\ starts?\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OF_NODE = re.compile(r"(?m)^\s*([\w.-]+)\s[^\n]*?(?<![=\w])gpu:(?:[a-z][\w.-]*:)?(\d+)\b")
_FABRIC_MANAGER = re.compile(r"nvidia-fabric-?manager(?:-\d+)?")
_DRIVER = re.compile(
    r"""
    nvidia-(?:driver|utils|dkms|kernel-source|compute-utils)-\d+[\w-]*
    | nvidia-driver
    | cuda-drivers(?:-\d+)?
    """,
    re.VERBOSE,
)
_CORRECTED = re.compile(
    r"""
    \bnvidia\ (?:[\da-f]{4}:)?([\da-f]{2}:[\da-f]{2}\.\d):
    \ PCIe\ Bus\ Error:\ severity=Corrected
    """,
    re.VERBOSE,
)
_FLOODS = re.compile(
    r"""
    \bfill | \bspam | \bflood | \bfull\ of | \bconstant | \bevery\ (?:few\ )?(?:second|minute) | \bthousands | \bendless
    """,
    re.IGNORECASE | re.VERBOSE,
)
MANY = 10
_RELEASE = re.compile(r"(?:\d+:)?(\d{3}\.\d+(?:\.\d+)?)")


def offers_fewer_than_counted(facts: Facts) -> Iterator[Finding]:
    """`nvidia-smi -L | wc -l` on the node, and what the node offers to pods."""
    for text in passages(facts):
        counts = [int(count) for match in _COUNTED.finditer(text) for count in match.groups() if count]
        offered = [int(count) for count in _OFFERED.findall(text)]
        if counts and offered and 0 < offered[-1] < counts[0]:
            words = f"the node has {counts[0]} GPUs, but offers {offered[-1]} to pods: the device plugin took the others out"
            evidence = {"capacity": counts[0], "allocatable": offered[-1]}
            yield facts.problems["k8s-gpu-unhealthy"].found(words, evidence, confidence=Confidence.LIKELY)
            return


def partly_on_cpu(facts: Facts) -> Iterator[Finding]:
    """`ollama ps` puts a part of the model on the CPU, and the text does not show the GPU's memory."""
    model = facts.shown.ollama_share
    if (
        model
        and 0 < model["cpu"] < 100
        and not known(lambda: facts.nvml.gpus, ())
        and not facts.shown.ollama_gpu
        and is_slow(facts)
    ):
        words = f"{model['cpu']} % of {model['name']} ({model['gb']:.0f} GB) run on the CPU, because GPU memory is too small"
        yield facts.problems["model-offloaded-from-gpu"].found(words, {"cpu_percent": model["cpu"]}, confidence=Confidence.LIKELY)


def ranks_on_one_gpu(facts: Facts) -> Iterator[Finding]:
    """A launcher starts several ranks, and all processes on GPUs are on the same one."""
    asked = [int(number) for text in passages(facts) for found in _RANKS.findall(text) for number in found if number]
    used = Counter(one.get("gpu", "") for one in facts.shown.programs)
    if asked and max(asked) > 1 and len(used) == 1 and "" not in used and used.total() >= max(asked):
        words = f"all {used.total()} processes are on the GPU {next(iter(used))}"
        yield facts.problems["nccl-duplicate-gpu"].found(words, {"processes": used.total()}, confidence=Confidence.LIKELY)


def saved_clock(facts: Facts) -> Iterator[Finding]:
    """The governor powersave, a CPU far below 1 GHz that is not idle, and a text that calls the work slow."""
    text = "\n".join(passages(facts))
    clocks, load = [int(number) for number in _MEGAHERTZ.findall(text)], _LOAD.search(text)
    is_saving = facts.shown.cpu_scaling.get("governor") == "powersave"
    is_idle = load is not None and float(load[1]) < 1
    if is_saving and clocks and max(clocks) < SAVING_MHZ and is_slow(facts) and not is_idle:
        words = f"the governor is powersave, and the CPU runs at {max(clocks)} MHz under load"
        yield facts.problems["cpu-clock-capped"].found(
            words, dict(facts.shown.cpu_scaling, mhz=max(clocks)), confidence=Confidence.LIKELY
        )


def larger_than_every_node(facts: Facts) -> Iterator[Finding]:
    """A job asks for more GPUs on a node than any node of sinfo has, and it waits."""
    for text in passages(facts):
        asked = [int(one or other) for one, other in _ASKED.findall(text)]
        nodes = {name: int(count) for name, count in _OF_NODE.findall(text)}
        if asked and nodes and "GRES" in text and _PENDS.search(text) and max(asked) > max(nodes.values()):
            words = f"the job requests {max(asked)} GPUs on a node, and the largest node has {max(nodes.values())}"
            evidence = {"requested": max(asked), "most": max(nodes.values())}
            yield facts.problems["slurm-gres-unavailable"].found(words, evidence, confidence=Confidence.LIKELY)
            return


def fabric_manager_of_other_release(facts: Facts) -> Iterator[Finding]:
    """The packages of Fabric Manager and of the driver have different versions."""
    packages = [one for one in known(lambda: facts.driver.packages, ()) if one.state == "installed"]
    managers = [match[1] for one in packages if _FABRIC_MANAGER.fullmatch(one.name) and (match := _RELEASE.match(one.version))]
    drivers = [match[1] for one in packages if _DRIVER.fullmatch(one.name) and (match := _RELEASE.match(one.version))]
    if managers and drivers and not set(managers) & set(drivers):
        words = f"Fabric Manager {managers[0]}, driver {drivers[0]}"
        evidence = {"fabric_manager": managers[0], "module": drivers[0]}
        yield facts.problems["fabricmanager-version-mismatch"].found(words, evidence, confidence=Confidence.LIKELY)


def older_than_numpy(facts: Facts) -> Iterator[Finding]:
    """PyTorch before 2.3 is compiled against NumPy 1."""
    numpy, torch = (known(lambda name=name: facts.python.package(name)) for name in ("numpy", "torch"))  # type: ignore[misc]
    if numpy and torch and numpy.version.partition(".")[0] == "2" and Version(torch.version) < Version("2.3"):
        words = f"torch {torch.version} is compiled against NumPy 1, and numpy {numpy.version} is installed"
        evidence = {"numpy": numpy.version, "framework": "torch"}
        yield facts.problems["framework-does-not-know-this-numpy"].found(words, evidence, confidence=Confidence.LIKELY)


def corrected_errors(facts: Facts) -> Iterator[Finding]:
    """The kernel names the GPU as the device that saw errors on its link: many, or so many that the text complains."""
    found = [match for text in passages(facts) for match in _CORRECTED.finditer(text)]
    if len(found) >= MANY or (found and any(_FLOODS.search(text) for text in passages(facts))):
        words = f"the kernel logs corrected errors on the PCIe link of the GPU at {found[0][1]}"
        evidence = {"address": found[0][1], "lines": len(found)}
        yield facts.problems["pcie-errors-in-log"].found(words, evidence, confidence=Confidence.LIKELY)


RULES = (
    corrected_errors,
    offers_fewer_than_counted,
    partly_on_cpu,
    ranks_on_one_gpu,
    saved_clock,
    larger_than_every_node,
    fabric_manager_of_other_release,
    older_than_numpy,
)
