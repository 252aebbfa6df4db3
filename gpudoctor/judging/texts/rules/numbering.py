"""Which GPU a number means in a text: CUDA's order against that of nvidia-smi, and MIG instances, of which a process gets one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.judging.texts.rules.starts import ORDER
from gpudoctor.model import Confidence, Finding

_OF_CUDA = re.compile(
    r"""
    ^(?: Device\ (?P<query>\d+):\ "(?P<queried>[^"\n]+)"                        # deviceQuery
    | \s*Device\ (?P<ggml>\d+):\ (?P<of_ggml>[^,\n]+),\ compute\ capability     # llama.cpp, Ollama
    )""",
    re.MULTILINE | re.VERBOSE,
)
_OF_PYTHON = re.compile(
    r"""
    get_device_(?:name|properties)\(\w+\) [^\n]*\n (?: (?!\s*(?:cuda:)?\d+[:,]?\s)[^\n]*\n ){0,2}
    (?P<rows> (?: \s*(?:cuda:)?\d+[:,]?\s+['"]?(?:NVIDIA|GeForce|Tesla|Quadro)\ [^\n]+(?:\n|\Z) ){2,} )
    """,
    re.VERBOSE,
)
_AS_LIST = re.compile(
    r"""
    get_device_name\(\w+\)\ for\ \w+\ in\ range\([^\n]*\n
    \s*\[(?P<names>(?:['"][^'"\n]+['"](?:,\ )?){2,})\]
    """,
    re.VERBOSE,
)
_LISTED = re.compile(r"(?m)^GPU (\d+): ([^\n(]+) \(UUID")
_ROW = re.compile(
    r"""
    ^[ \t]* (?:cuda:)?(\d+)[:,]?[ \t]+
    ["']? ( [^\s'"] (?:[^\n'"]*[^\s'"])? ) ["']?[ \t]*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_CHOSEN = re.compile(r"CUDA_VISIBLE_DEVICES=[\"']?(\d+(?:,\d+)+)")
_INSTANCES = re.compile(r"CUDA_VISIBLE_DEVICES[=:]\s*[\"']?(MIG-[\w/-]+,MIG-[\w/,-]+)")
_SECOND = re.compile(
    r"""
    invalid\ device\ ordinal | \bcuda:[1-9]\b | \.cuda\([1-9]\) | device_count\(\) | device\ >=\ 0\ &&\ device\ <\ num_gpus
    | \b(?:only\ )?(?:one|1)\ (?:GPU|device)
    """,
    re.VERBOSE,
)


def listed_in_other_order(facts: Facts) -> Iterator[Finding]:
    """Both tools list the same GPUs, under different numbers."""
    text = "\n".join(passages(facts))
    listed = {int(index): _plain(name) for index, name in _LISTED.findall(text)}
    listed = listed or {gpu.index: _plain(known(lambda gpu=gpu: gpu.name, "")) for gpu in known(lambda: facts.nvml.gpus, ())}  # type: ignore[misc]
    rows = dict(_rows(text))
    chosen = [match[1].split(",") for match in _CHOSEN.finditer(text)]
    if "PCI_BUS_ID" in text or any(numbers != sorted(numbers, key=int) for numbers in chosen):
        return
    if len(rows) > 1 and rows.keys() == listed.keys() and sorted(rows.values()) == sorted(listed.values()) and rows != listed:
        index = min(index for index in rows if rows[index] != listed[index])
        words = f"GPU {index} is {listed[index]} in nvidia-smi, and {rows[index]} in CUDA"
        evidence = {"index": index, "wanted": listed[index], "given": rows[index]}
        yield ORDER.found(words, evidence, confidence=Confidence.LIKELY)


def _rows(text: str) -> Iterator[tuple[int, str]]:
    for match in _OF_CUDA.finditer(text):
        yield int(match["query"] or match["ggml"]), _plain(match["queried"] or match["of_ggml"])
    for match in _AS_LIST.finditer(text):
        for index, name in enumerate(re.findall(r"""['"]([^'"]+)['"]""", match["names"])):
            yield index, _plain(name)
    for match in _OF_PYTHON.finditer(text):
        for number, name in _ROW.findall(match["rows"]):
            yield int(number), _plain(name)


def _plain(name: str) -> str:
    return name.strip().removeprefix("NVIDIA ")


def several_instances(facts: Facts) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES names several MIG instances, and the program gets the first alone."""
    for text in passages(facts):
        named = _INSTANCES.search(text) or _INSTANCES.search(f"CUDA_VISIBLE_DEVICES={_chosen(facts)}")
        if named and _SECOND.search(text):
            instances = named[1].rstrip(",").split(",")
            words = f"CUDA_VISIBLE_DEVICES names {len(instances)} MIG instances, and CUDA gives a process only the first"
            evidence = {"instance": instances[0], "instances": len(instances)}
            yield facts.problems["mig-single-instance-per-process"].found(words, evidence, confidence=Confidence.LIKELY)
            return


_MIG = re.compile(r"\bMIGs?\b|[Mm]ulti-?[Ii]nstance GPU|multi-instance GPU")
_SEVERAL = re.compile(
    r"""
    --gres[= ]gpu:(?:[\w.-]+:)?[2-7]\b | --gpus(?:-per-\w+)?[= ](?:[\w.-]+:)?[2-7]\b | nvidia\.com/mig-\S+:\s*[\"']?[2-7]\b
    | \b(?:several|multiple|two|three|four|seven|all|both|[2-7])\ (?:of\ the\ )?(?:\w+\ )?(?:MIGs?\b
      |MIG\ (?:instances?|devices?|slices?)|instances|slices)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ONE_ALONE = re.compile(
    r"""
    \b(?:there\ (?:are|is)\ |only\ |uses\ only\ |sees\ only\ |found\ |detect\w*\ (?:only\ )?|just\ )(?:1|one)\b
      (?=\ (?:visible|CUDA|GPU|device|MIG|of|instance)|[.,\n])
    | device_count\(\)\D{0,12}\b1\b | invalid\ device\ ordinal | Invalid\ CUDA\ device\ index
    """,
    re.IGNORECASE | re.VERBOSE,
)


def several_instances_requested(facts: Facts) -> Iterator[Finding]:
    """A job was given several MIG instances, and its program sees one of them."""
    for text in passages(facts):
        several, alone = _SEVERAL.search(text), _ONE_ALONE.search(text)
        if _MIG.search(text) and several and alone:
            words = "the job has several MIG instances, and CUDA gives a process only one of them"
            evidence = {"requested": several[0].strip(), "said": alone[0].strip()}
            yield facts.problems["mig-single-instance-per-process"].found(words, evidence, confidence=Confidence.LIKELY)
            return


def _chosen(facts: Facts) -> str:
    return known(lambda: facts.environment.get("CUDA_VISIBLE_DEVICES")) or ""


RULES = (listed_in_other_order, several_instances, several_instances_requested)
