"""What a program's own code and its launch in a text do with GPUs and CPUs: the moment of a variable, ranks, loaders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

SET_LATE = Problem(
    id="cuda-visible-devices-set-too-late",
    title="CUDA_VISIBLE_DEVICES is set after CUDA was started, which is too late",
    why="CUDA reads the variable once, when a process uses it first. Later changes are ignored, so the program keeps the GPUs "
    "that it saw then, from number 0 on.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Set it in the shell that starts the program",
            "export CUDA_VISIBLE_DEVICES=<gpus>",
            where="shell",
            kind="set",
        ),
        Fix("In the code: set os.environ before the first import of torch, tensorflow, jax or cupy, in the first lines"),
        Fix("In a notebook: restart the kernel, and set it in the first cell"),
    ),
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",),
)
ONE_PROCESS = Problem(
    id="accelerate-configured-for-one-process",
    title="accelerate is configured for one process, so it uses one GPU",
    why="accelerate launch starts as many processes as its configuration names, one for each GPU. distributed_type 'NO' or "
    "num_processes 1 leave the other GPUs idle, whatever gpu_ids is.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Start one process for each GPU",
            "accelerate launch --multi_gpu --num_processes <gpu_count> <program>.py",
            verify="nvidia-smi",
            kind="manual",
        ),
        Fix("Write a new configuration, with multi-GPU as the type", "accelerate config", kind="manual"),
    ),
    references=("https://huggingface.co/docs/accelerate/basic_tutorials/launch",),
)
MANY_LOADERS = Problem(
    id="more-loaders-than-cpus",
    title="The ranks start more loader processes than there are CPUs",
    why="num_workers counts the loader processes of each rank. All ranks together then wait for each other, and the GPUs for "
    "them.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Set num_workers of each rank to the number of CPUs divided by the ranks, or lower"),
        Fix("Show how many CPUs the process may use", "nproc", kind="read"),
    ),
    references=("https://pytorch.org/docs/stable/data.html#multi-process-data-loading",),
)
PROBLEMS = (SET_LATE, ONE_PROCESS, MANY_LOADERS)

_SET = re.compile(
    r"""
    ^[ \t]*(?:>>>\ |In\ ?\[\d+\]:\ )?os\.environ(?:\[\s*["']CUDA_VISIBLE_DEVICES["']\s*\]\s*=
      | \.(?:update|setdefault)\([^\n)]*CUDA_VISIBLE_DEVICES["']?\s*[,:=])\s*
    (?:str\()?["']?(?P<devices>[\d,\ ]*)
    """,
    re.MULTILINE | re.VERBOSE,
)
_STARTS = re.compile(
    r"""
    ^[ \t]*(?!\#)(?:>>>\ |In\ ?\[\d+\]:\ )?[^\n\#]*(?:
      torch\.cuda\.(?: is_available | device_count | current_device | get_device_\w+ | set_device | init | empty_cache
        | mem_get_info | memory_\w+ )\(
      | \.cuda\( | \.to\(\s*(?:["']cuda|device\b) | list_physical_devices\( | list_logical_devices\( | jax\.devices\(
      | cupy\.\w+\( | \bcp\.(?:array|zeros|ones|arange|cuda)\b )
    """,
    re.MULTILINE | re.VERBOSE,
)
_WRONG_GPU = re.compile(
    r"""
    \b(?: still | always | only | instead | wrong | ignor\w+ | no\ effect | not\ work\w* | (?:does|did)(?:n't|\ not)
        | out\ of\ memory | invalid\ device\ ordinal | (?:gpu|cuda)\ ?:?0 )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def set_too_late(facts: Facts) -> Iterator[Finding]:
    """The code uses CUDA, and after that sets the variable."""
    for text in passages(facts):
        found = _SET.search(text)
        before = _STARTS.search(text, 0, found.start()) if found else None
        rest = _SET.sub("", text)
        if found and before and _WRONG_GPU.search(rest):
            call = before[0].strip()[:60]
            words = f"the code sets CUDA_VISIBLE_DEVICES after CUDA was used ({call})"
            devices = found["devices"].replace(" ", "").strip(",")
            evidence = {"gpus": devices} if devices else {}
            yield SET_LATE.found(words, evidence, confidence=Confidence.LIKELY)
            return


_TYPE = re.compile(r"(?m)^[ \t]*distributed_type:\s*['\"]?NO['\"]?\s*$")
_PROCESSES = re.compile(r"(?m)^[ \t]*num_processes:\s*1\s*$")
_ACCELERATE = re.compile(r"\baccelerate\b")
_MISSES_GPUS = re.compile(
    r"""
    \b(?: only | just )\b[^.\n]{0,40}\b(?: one | 1 | first | single | GPU\ ?0 )\b | \b(?:one|1|single)\ (?:of|gpu)\b
    | \b(?:other|second|rest)\b[^.\n]{0,30}\b(?:idle|unused|0\ ?%|not)
    | \b(?: all | both | multi\w* )[ -](?:\d\ |my\ |the\ )?gpus?\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def configured_for_one(facts: Facts) -> Iterator[Finding]:
    """accelerate's configuration starts one process, and the text misses the other GPUs."""
    text = "\n".join(passages(facts))
    gpus = known(lambda: facts.nvml.count, 0)
    rest = _PROCESSES.sub("", _TYPE.sub("", text))
    if (_TYPE.search(text) or _PROCESSES.search(text)) and _ACCELERATE.search(text) and _MISSES_GPUS.search(rest) and gpus != 1:
        if re.search(r"--(?:multi_gpu|num_processes)\b", text):
            return
        words = "its configuration has distributed_type NO" if _TYPE.search(text) else "its configuration has num_processes 1"
        yield ONE_PROCESS.found(words, {"gpu_count": gpus} if gpus else {}, confidence=Confidence.LIKELY)


_RANKS = re.compile(r"--(?:nproc[_-]per[_-]node|num[_-]processes|n(?:um[_-])?gpus)[= ](?P<ranks>\d+)")
_WORKERS = re.compile(r"--(?:(?:data|dataloader)[_-])?(?:num[_-])?workers[= ](?P<workers>\d+)")
_SLOW = re.compile(r"(?i)\bslow|\b0 ?%|\bidle\b|\butili[sz]ation\b|\bhang|\bstuck\b|\bwait")
_CPUS = re.compile(r"(?i)\b(?P<cpus>\d{1,3})[- ](?:CPU )?(?:CPUs?|cores)\b")


def too_many_loaders(facts: Facts) -> Iterator[Finding]:
    """Ranks times num_workers is more than twice the CPUs, and the text complains of the speed."""
    text = "\n".join(passages(facts))
    ranks, workers, said = _RANKS.search(text), _WORKERS.search(text), _CPUS.search(text)
    cpus = facts.shown.every_cpu or facts.shown.allowed_cpus or (int(said["cpus"]) if said else 0)
    if not (ranks and workers and cpus and _SLOW.search(text)):
        return
    number, each = int(ranks["ranks"]), int(workers["workers"])
    if number > 1 and number * each > 2 * cpus:
        words = f"{number} ranks start {each} loader processes each, {number * each} in all, for {cpus} CPUs"
        evidence = {"ranks": number, "workers": each, "cpus": cpus}
        yield MANY_LOADERS.found(words, evidence, confidence=Confidence.LIKELY)


_WANTS = re.compile(
    r"""
    \b(?:gpus|devices|num_gpus|n_gpu|tensor_parallel_size|nproc_per_node)\s?[=:]\s?(?P<wanted>[2-9]|1\d)\b
    | --(?:gpus|devices|nproc[_-]per[_-]node|num[_-]gpus|tensor-parallel-size)[=\ ](?P<option>[2-9]|1\d)\b
    """,
    re.VERBOSE,
)


_ANYWHERE = re.compile(r"os\.environ\[[\"']CUDA_VISIBLE_DEVICES[\"']\] ?= ?[\"'](?P<devices>[\d, ]+)[\"']")


def fewer_in_code(facts: Facts) -> Iterator[Finding]:
    """The code lets the process see fewer GPUs than the same text asks for, and they are missed."""
    for text in passages(facts):
        found, wants = _ANYWHERE.search(text), _WANTS.search(text)
        named = [one for one in (found["devices"].split(",") if found else []) if one.strip()]
        is_missed = _SAME.search(text) or _WRONG_GPU.search(_SET.sub("", text))
        if not (found and wants and named and is_missed):
            continue
        wanted = int(wants["wanted"] or wants["option"])
        if len(named) < wanted:
            value = ",".join(one.strip() for one in named)
            words = f"the code sets CUDA_VISIBLE_DEVICES to {value!r}, and {wanted} GPUs are requested"
            evidence = {"CUDA_VISIBLE_DEVICES": value, "wanted": wanted}
            problem = replace(facts.problems["cuda-visible-devices-hides-requested-gpu"], fixes=IN_THE_CODE)
            yield problem.found(words, evidence, confidence=Confidence.LIKELY)
            return


_SAME = re.compile(r"(?i)\bsame GPU\b|\bone GPU\b|\bonly \d of\b")
IN_THE_CODE = (
    Fix("In the program: delete the line that sets CUDA_VISIBLE_DEVICES, or name as many GPUs there as are requested"),
    Fix("Show which GPUs there are", "nvidia-smi -L", kind="read"),
)
_NO_NUMBER = re.compile(
    r"""
    os\.environ\[["']CUDA_VISIBLE_DEVICES["']\]\ ?=\ ?
    (?: ["'](?P<value>(?:cuda|gpu)(?::\d)?)["'] | (?:str\()?(?P<variable>[a-z]\w{0,30})\)?[ \t]*(?:\#[^\n]*)?$ )
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)


def no_number_in_code(facts: Facts) -> Iterator[Finding]:
    """The code sets the variable to a name of PyTorch's, such as "cuda", which names no GPU to CUDA."""
    text = "\n".join(passages(facts))
    for match in _NO_NUMBER.finditer(text):
        name = match["variable"] or ""
        of_variable = name and re.search(rf"(?m)^\s*{name}\s*=\s*[\"']((?:cuda|gpu)(?::\d)?)[\"']", text[: match.start()])
        value = match["value"] or (of_variable[1] if of_variable else "")
        if value:
            words = f"the code sets CUDA_VISIBLE_DEVICES to {value!r}, which is neither a number nor a UUID: programs see no GPU"
            problem = replace(facts.problems["cuda-visible-devices-unknown-gpu"], fixes=NUMBERS_IN_THE_CODE)
            yield problem.found(words, {"CUDA_VISIBLE_DEVICES": value}, confidence=Confidence.LIKELY)
            return


NUMBERS_IN_THE_CODE = (
    Fix("In the program: set it to numbers of GPUs, such as '0', and give 'cuda' to torch.device() alone"),
    Fix("Show which GPUs there are", "nvidia-smi -L", kind="read"),
)
RULES = (fewer_in_code, no_number_in_code, set_too_late, configured_for_one, too_many_loaders)
