"""Jobs of a text: an idle GPU, memory that is full or held by what has ended, a container without its GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.driver import said
from gpudoctor.judging.texts.rules.python import BLIND
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding, Fix

LOADING_SHARE = 0.5
FULL_SHARE = 0.97
FREE_SHARE = 0.7  # a desktop and its programs take less than the rest
MUCH_SHARE = 0.1  # of a GPU's memory
IDLE = 40  # percent
FEWEST_PERIODS, MOST_STOPPED = 100, 0.5
LIMITED = "The container's CPU limit slows the program down"
WHY_LIMITED = (
    "Processes that have used up the quota of their cgroup wait for the next period, whatever nproc shows. Data loaders then "
    "deliver batches too slowly, and the GPU waits."
)
RAISE = (
    Fix("Raise the limit: resources.limits.cpu of the pod, --cpus of docker run, --cpus-per-task in Slurm"),
    Fix(
        "Show the quota, and how often it stopped the processes",
        "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu.stat",
        kind="read",
    ),
)
_PERIODS = re.compile(r"(?m)^\s*nr_periods (\d+)\s*\n\s*nr_throttled (\d+)")
_QUOTA = re.compile(r"(?m)^(?:[^\n]*cpu\.max:)?\s*(\d{4,}) (1000000|[1-9]\d{3,5})\s*$")
_SLOW = re.compile(r"(?i)\bslow|\bstarv|GPU[^\n]{0,20}\bidle")
_COMPUTES = re.compile(
    r"""
    python | torchrun | ipykernel | jupyter | accelerate | deepspeed
    | vllm | sglang | ollama | llama | tritonserver | trt | \bray\b | \bmpi
    """,
    re.VERBOSE,
)


def loading(facts: Facts) -> Iterator[Finding]:
    step = facts.shown.step
    if step and step["seconds"] and step["loading"] / step["seconds"] > LOADING_SHARE:
        share = round(100 * step["loading"] / step["seconds"])
        words = f"of {step['seconds']:.2f} s for a step, {step['loading']:.2f} s ({share} %) are spent waiting for data"
        yield facts.problems["data-loading-limits-training"].found(words, {"share_percent": share})


def throttled(facts: Facts) -> Iterator[Finding]:
    """The kernel stops the cgroup in most periods because its CPU quota is used up."""
    text = "\n".join(passages(facts))
    counts, quota = _PERIODS.search(text), _QUOTA.search(text)
    periods, stopped = (int(counts[1]), int(counts[2])) if counts else (0, 0)
    is_slow = _SLOW.search(text) or any(map(_is_idle, known(lambda: facts.nvml.gpus, ())))
    if quota and periods > FEWEST_PERIODS and stopped > MOST_STOPPED * periods and is_slow:
        cpus = int(quota[1]) / int(quota[2])
        words = f"the cgroup may use {cpus:g} CPU{'s' * (cpus != 1)}, and was stopped in {stopped:,} of {periods:,} periods"
        problem = replace(facts.problems["data-loading-limits-training"], title=LIMITED, why=WHY_LIMITED, fixes=RAISE)
        yield problem.found(words, {"cpus": cpus, "periods": periods, "stopped": stopped}, confidence=Confidence.LIKELY)


def _is_idle(gpu: Gpu) -> bool:
    return known(lambda: gpu.get("UtilizationRates.gpu"), 100) < IDLE


def full_gpu(facts: Facts) -> Iterator[Finding]:
    """A GPU without free memory: nothing alone, but the cause where a library cannot be initialised."""
    sizes = [(gpu.index, *size) for gpu in known(lambda: facts.nvml.gpus, ()) if (size := _size(gpu))]
    if not sizes and (row := facts.shown.gpu_memory):
        sizes = [(0, row["used"], row["total"])]
    for index, used, total in sizes:
        if total and used / total > FULL_SHARE:
            words = f"GPU {index}: {used:,} of {total:,} MiB are in use"
            yield replace(
                facts.problems["cuda-out-of-memory"].found(words, {"used_mib": used, "memory_mib": total}), is_clue=True
            )
            return


def spilled_on_windows(facts: Facts) -> Iterator[Finding]:
    """Windows' driver moves what does not fit into system memory, so a program is slow instead of failing."""
    full = [gpu.index for gpu in known(lambda: facts.nvml.gpus, ()) if (size := _size(gpu)) and size[0] > FULL_SHARE * size[1]]
    if full and facts.shown.is_windows and any(_SLOWER.search(text) for text in passages(facts)):
        used, total = _size(facts.nvml.gpus[full[0]]) or (0, 0)
        words = (
            f"GPU {full[0]} has {used:,} of {total:,} MiB in use: Windows keeps the rest of the program's data in system memory"
        )
        yield facts.problems["wsl-sysmem-fallback-slow"].found(words, {"used_mib": used}, full[0], Confidence.LIKELY)


_OUT_OF_MEMORY = re.compile(
    r"""
    GPU\ (?P<gpu>\d{1,3})\ has\ a\ total\ capacity\ of\ (?P<total>\d{1,9}(?:\.\d{1,9})?)\ (?P<total_unit>[GM]iB)
    \ of\ which\ (?P<free>\d{1,9}(?:\.\d{1,9})?)\ (?P<free_unit>[GM]iB)\ is\ free\.
    \ Process\ (?P<pid>\d+)\ has\ (?P<held>\d{1,9}(?:\.\d{1,9})?)\ (?P<held_unit>[GM]iB)\ memory\ in\ use\.
    \ Of\ the\ allocated\ memory\ (?P<own>\d{1,9}(?:\.\d{1,9})?)\ (?P<own_unit>[GM]iB)\ is\ allocated\ by\ PyTorch
    ,\ and\ (?P<reserved>\d{1,9}(?:\.\d{1,9})?)\ (?P<reserved_unit>[GM]iB)\ is\ reserved
    """,
    re.VERBOSE,
)
_SLOWER = re.compile(r"(?i)\bslow\w*|\d ?s/it\b")


def _size(gpu: Gpu) -> tuple[int, int] | None:
    return known(lambda: (gpu.memory_used_mib, gpu.memory_total_mib))


def crowded_out(facts: Facts) -> Iterator[Finding]:
    """Ollama places only some layers on a GPU that could hold all, if others did not use its memory already."""
    gpu, model = facts.shown.ollama_gpu, facts.shown.offload
    if gpu and model and model["placed"] < model["layers"] and gpu["free"] < model["required"] < gpu["total"]:
        words = (
            f"{model['placed']:.0f} of {model['layers']:.0f} layers are on the GPU: "
            f"the model needs {model['required']} GiB, and {gpu['free']:.1f} of {gpu['total']} GiB were free"
        )
        if gpu["free"] < FREE_SHARE * gpu["total"]:
            found = facts.problems["other-process-using-gpu"].found(words, {"free_gib": gpu["free"]})
            yield replace(found, confidence=Confidence.LIKELY)


def leftover(facts: Facts) -> Iterator[Finding]:
    """Memory is in use, and no program is listed on the GPU: fuser or ps shows who holds it."""
    gpus = known(lambda: facts.nvml.gpus, ())
    listed = {str(one.pid) for gpu in gpus for one in known(lambda gpu=gpu: gpu.processes, ())}  # type: ignore[misc]
    listed |= {one["pid"] for one in facts.shown.programs}
    held = [pid for pid, name in facts.shown.holders.items() if pid not in listed and _COMPUTES.search(name)]
    held = held or [pid for pid, one in facts.shown.processes.items() if pid not in listed and _is_orphan(one)]
    row = next(filter(None, map(_GPUSTAT.search, passages(facts))), None)
    if held and not gpus and row and int(row["used"]) > MUCH_SHARE * int(row["total"]):
        words = (
            f"GPU {row['gpu']} has {int(row['used']):,} MiB in use without a listed program, and process {held[0]} can hold it"
        )
        evidence = {"pids": ",".join(held), "leftover": held, "used_mib": int(row["used"])}
        yield facts.problems["gpu-held-by-leftover-process"].found(words, evidence, confidence=Confidence.LIKELY)
    much = [gpu for gpu in gpus if (size := _size(gpu)) and size[0] > MUCH_SHARE * size[1]]
    if held and much:
        shown = ", ".join(held[:4]) + (" …" if len(held) > 4 else "")
        words = (
            f"GPU {much[0].index} has {_used(much[0]):,} MiB in use; nvidia-smi does not list process {shown}, which can hold it"
        )
        evidence = {"pids": ",".join(held), "leftover": held, "used_mib": _used(much[0])}
        yield facts.problems["gpu-held-by-leftover-process"].found(words, evidence, confidence=Confidence.LIKELY)


_GPUSTAT = re.compile(
    r"""
    ^\s*\[(?P<gpu>\d+)\]\ [^|\n]+\|[^|\n]*\|\s*(?P<used>\d+)\ /\ (?P<total>\d+)\ MB\ \|\s*(?:\(null\))?\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)


def held_by_another(facts: Facts) -> Iterator[Finding]:
    """PyTorch names a process on the full GPU: another one, if its memory and the program's own make up what is used."""
    for found in (match for text in passages(facts) for match in _OUT_OF_MEMORY.finditer(text)):
        total, free, held, own, reserved = (
            float(found[name]) / (1024 if found[f"{name}_unit"] == "MiB" else 1)
            for name in ("total", "free", "held", "own", "reserved")
        )
        own += reserved
        rest = total - free - held - own  # of a CUDA context
        if min(held, own) > LEAST_GIB and abs(rest) < MOST_CONTEXT_GIB:
            words = (
                f"process {found['pid']} holds {held:.1f} of the {total:.1f} GiB of GPU {found['gpu']}; "
                f"the program that ran out of memory has {own:.1f} GiB"
            )
            evidence = {"pid": found["pid"], "used": f"{held:.1f} GiB", "said": " ".join(found[0].split())}
            yield facts.problems["other-process-using-gpu"].found(words, evidence, confidence=Confidence.LIKELY)
            return


LEAST_GIB, MOST_CONTEXT_GIB = 0.5, 1.5


def _used(gpu: Gpu) -> int:
    return known(lambda: gpu.memory_used_mib, 0)


def _is_orphan(process: Mapping[str, str]) -> bool:
    return process.get("parent") == "1" and bool(re.search(r"\bpython|torchrun|vllm", process["command"]))


def container_without_request(facts: Facts) -> Iterator[Finding]:
    """docker inspect shows that no GPU was requested, and the program in it runs on the CPU."""
    blind = any(facts.shown.answers.get(asked) == value for asked, value in BLIND.items())
    blind = blind or facts.shown.ollama_on_cpu is True or said(facts, "no compatible GPUs were discovered")
    blind = blind or said(facts, "cannot access '/dev/nvidia*'")
    if facts.shown.has_gpu_request is False and blind and not said(facts, '"Runtime": "nvidia"'):
        words = "docker inspect shows no request for GPUs (DeviceRequests is null), so the container gets no GPU"
        yield facts.problems["container-no-gpus-flag"].found(words, confidence=Confidence.LIKELY)


def no_cuda_compiler(facts: Facts) -> Iterator[Finding]:
    """CMake goes on without a CUDA compiler if a project does not insist on it."""
    asked = any(said(facts, words) for words in ("CUDA=ON", "CUDA=1", "CUBLAS=ON", "libggml-", "ggml-cuda", "ollama"))
    if any(said(facts, words) for words in _NO_COMPILER) and (asked or known(lambda: facts.nvml.count, 0)):
        words = "CMake finds no CUDA compiler, so the project is built without CUDA"
        yield facts.problems["cuda-toolkit-missing"].found(words, confidence=Confidence.LIKELY)


def shared_gpu(facts: Facts) -> Iterator[Finding]:
    """nvidia-smi pmon shows several programs that load the same GPU, and the text tells that it is slow."""
    loads: dict[str, list[Mapping[str, Any]]] = {}
    for one in facts.shown.programs:
        if str(one.get("load", "")).isdigit() and int(one["load"]) >= LOADED:
            loads.setdefault(one["index"], []).append(one)
    for index, programs in loads.items():
        if len(programs) > 1 and any(_LESS.search(text) for text in passages(facts)):
            shown = " and ".join(f"{one['name']} (pid {one['pid']}, {one['load']} %)" for one in programs)
            words = f"{shown} compute on GPU {index} at the same time"
            evidence = {"pids": ",".join(one["pid"] for one in programs)}
            yield facts.problems["other-process-using-gpu"].found(words, evidence, int(index), Confidence.LIKELY)


LOADED = 20  # percent
_LESS = re.compile(
    r"""
    \b(?: slow\w* | drop\w* ) | half\ as\ fast | less\ than | \bonly\ \d
    | (?: twice | \d+\ ?x | times )\ as\ long | takes?\ (?:much\ )?longer
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NO_COMPILER = (
    "Looking for a CUDA compiler - NOTFOUND",
    "CMAKE_CUDA_COMPILER-NOTFOUND",
    "Could NOT find CUDAToolkit",
    "Could NOT find CUDA (missing",
)
RULES = (
    no_cuda_compiler,
    loading,
    throttled,
    full_gpu,
    spilled_on_windows,
    crowded_out,
    shared_gpu,
    leftover,
    held_by_another,
    container_without_request,
)
