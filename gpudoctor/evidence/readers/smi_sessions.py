"""nvidia-smi in a session: queries without their header, the lines that grep left of -q, sections of -q, running programs."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import nvidia_smi_csv, nvidia_smi_q, nvml_answers
from gpudoctor.evidence.readers.nvidia_smi_fields import plain, rows
from gpudoctor.facts.nvml_values import SELECTED_BY
from gpudoctor.model import Reply

_LINE = re.compile(r"^\s*([A-Z][\w .-]*?)\s*: (\S.*?)\s*$")
_APPS = re.compile(
    r"^\s*(?:(?:pid|name|process_name|used_(?:gpu_)?memory|gpu_\w+|timestamp)(?:\ \[\w+\])?(?:,\ ?|\s*$)){2,}$", re.VERBOSE
)
_SECTIONS = (
    r"(?:Applications |Default Applications |Max )?Clocks|(?:GPU )?Power Readings|FB Memory Usage|ECC Errors|Remapped Rows"
    r"|Clocks (?:Event|Throttle) Reasons|Temperature|Utilization|GPU Link Info"
)


_HEADING = re.compile(rf"^\s{{2,}}(?:{_SECTIONS})\s*$")


def _query(command: str, output: str) -> dict[str, Reply] | None:
    """The columns are those that the command names."""
    match = re.search(r"--query-gpu=(\S+)", command)
    names = [name for name in (match[1] if match else "").strip("\"'").split(",") if name]
    lines = [line for line in output.splitlines() if line.strip()]
    if "noheader" not in command:
        lines = lines[1:]
    return nvidia_smi_csv.replies_of(names, lines) if names else None


def _programs(text: str) -> dict[str, Reply] | None:
    head, *lines = text.splitlines()
    names = [re.sub(r" \[\w+\]$", "", name.strip()) for name in head.split(",")]
    if "pid" not in names:
        return None
    listed = list(nvidia_smi_csv.rows_of(names, lines))
    programs = [
        {"pid": row["pid"], "name": _name(row), "mib": _mib(row), "gpu": row.get("gpu_bus_id", "")}
        for row in listed
        if row.get("pid", "").isdigit()
    ]
    return {"shown-programs": Reply("ok", programs)}


def _name(row: dict[str, str]) -> str:
    return row.get("process_name", row.get("name", "")).rsplit("/", 1)[-1]


def _mib(row: dict[str, str]) -> int | None:
    match = re.match(r"\d+", row.get("used_gpu_memory", row.get("used_memory", "")))
    return int(match[0]) if match else None


def _filtered(command: str, output: str) -> dict[str, Reply] | None:
    """Each GPU prints the line once. A name that several sections have is left out, unless the section's heading is there."""
    lines = output.splitlines()
    heads = [at for at, line in enumerate(lines) if _HEADING.match(line)]
    if heads and len({lines[at].strip() for at in heads}) == len(heads):
        return _section("\n".join(lines[heads[0] :]), command)
    seen: Counter[str] = Counter()
    gpus: dict[int, dict[str, str]] = {}
    for match in filter(None, map(_LINE.match, output.splitlines())):
        path = _paths().get(plain(match[1]))
        if path:
            gpus.setdefault(seen[path], {})[path] = match[2]
            seen[path] += 1
    found = [answers for said in gpus.values() if (answers := nvml_answers.answers("q", said))]
    found = [{**answers, **_selected(command)} for answers in found] if len(found) == 1 else found
    replies = {**(nvml_answers.replies({}, found) if found else {}), **(_fabric(output) or {})}
    return replies or None


@cache
def _paths() -> dict[str, str]:
    """The last part of a field's path -> its path, where only one field's paths end with it."""
    found: dict[str, list[str]] = {}
    for row in rows("q"):
        ends = {path.rsplit("/", 1)[-1]: path for names in row.names for path in names}
        for end, path in ends.items():
            found.setdefault(end, []).append(path)
    return {end: paths[0] for end, paths in found.items() if len(paths) == 1}


def _fabric(text: str) -> dict[str, Reply] | None:
    match = re.search(r"(?m)^\s+Fabric\s*\n\s+State\s+: (\w[\w ]*?)\s*$", text)
    return {"shown-fabric": Reply("ok", match[1].lower())} if match else None


def _section(text: str, command: str = "") -> dict[str, Reply] | None:
    found = nvidia_smi_q.of_gpu(_below_pci(text.splitlines()))
    return nvml_answers.replies({}, [{**found, **_selected(command)}]) if found else None


def _selected(command: str) -> dict[str, str]:
    """By which index the command chose its GPU."""
    match = re.search(r"\s(?:-i|--id)[ =](\d+)\b", command)
    return {SELECTED_BY: match[1]} if match else {}


def _below_pci(lines: list[str]) -> list[str]:
    """The link's part with the heading that it has in the whole output, indented below it."""
    if lines[0].strip() != "GPU Link Info":
        return lines
    indent = len(lines[0]) - len(lines[0].lstrip())
    end = next((at for at, line in enumerate(lines[1:], 1) if len(line) - len(line.lstrip()) <= indent), len(lines))
    heading = " " * indent + "PCI"
    return [heading, *(f"    {line}" for line in lines[:end]), *lines[end:]]


READERS = (
    prompts.reader(
        "nvidia-smi --query-gpu, without header",
        ("--query-gpu=",),
        r"\S*nvidia-smi\ .*--query-gpu=\S+.*",
        _query,
        most_lines=64,
    ),
    prompts.reader("lines of nvidia-smi -q", ("nvidia-smi -q",), r"\S*nvidia-smi\ -q\b.*\|.*", _filtered, most_lines=200),
    Reader(
        "nvidia-smi --query-compute-apps",
        ("used_gpu_memory", "process_name", "used_memory"),
        _APPS,
        _programs,
        re.compile(r"^[^,]*$"),
        400,
    ),
    Reader(
        "a section of nvidia-smi -q",
        (
            *("Clocks", "Power Readings", "FB Memory Usage", "ECC Errors", "Remapped Rows"),
            *("  Temperature", "  Utilization", "GPU Link Info"),
        ),
        re.compile(rf"^\s{{2,}}(?:{_SECTIONS})\s*$"),
        _section,
        re.compile(r"^\S|^\s*$"),
        120,
        alone=True,
    ),
    Reader(
        "the fabric in nvidia-smi -q",
        ("Fabric",),
        re.compile(r"^\s{2,}Fabric\s*$"),
        _fabric,
        re.compile(r"^\S|^\s*$"),
        6,
        alone=True,
    ),
)
