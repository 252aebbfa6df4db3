"""The table that `nvidia-smi` prints without options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import nvml_answers
from gpudoctor.evidence.readers.nvidia_smi_fields import KINDS, compute_mode, refusal, yes
from gpudoctor.model import Reply

_HEAD = re.compile(
    r"""
    NVIDIA-SMI\s+\S+\s+(?:KMD|Driver)\ Version:\s*(?P<driver>[\d.]+)
    (?: .*CUDA\ (?:UMD\ )?Version:\s*(?P<cuda>\S+) )?
    """,
    re.VERBOSE,
)
_FIRST = re.compile(
    r"""
    \|\s*(?P<index>\d+)\s+(?P<name>\S.*?)
        \s+(?P<persistence> On | Off | N/A | WDDM | TCC | MCDM | ERR! | \[?Unknown\ Error\]? )\s*
    \|\s*(?P<bus> [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f] )
        \s+(?P<display> On | Off | N/A | ERR! )\s*
    \|\s*(?P<ecc> \d+ | N/A | Off | ERR! | \S+ )\s*\|
    """,
    re.VERBOSE,
)
_SECOND = re.compile(
    r"""
    \|\s*(?P<fan> \d+\s?% | N/A | ERR! )
        \s+(?P<temperature> \d+\s?C | N/A | ERR! )
        \s+(?P<state> P\d+ | N/A | ERR! | Unknown )
        \s+(?P<power> \d+W | N/A | ERR! | Unknown\ Error )\s*/\s*(?P<limit> \d+W | N/A | ERR! )\s*
    \|\s*(?P<used> \d+MiB | N/A | ERR! | Unknown\ Error )\s*/\s*(?P<total> \d+MiB | N/A | ERR! )\s*
    \|\s*(?P<busy> \d+\s?% | N/A | ERR! | Unknown\ Error )
        \s+(?P<compute> Default | E\.\ Process | E\.\ Thread | Prohibited | Exclusive\S* | N/A | ERR! )
    """,
    re.VERBOSE,
)
_THIRD = re.compile(r"\|\s+\|\s+\|\s*(?P<mig>Enabled\*?|Disabled\*?|N/A)\s*\|")
_PROCESS = re.compile(
    r"""
    \|\s+(?P<gpu>\d+)
    \s+(?: (?:N/A|\d+)\s+(?:N/A|\d+)\s+ )?    # the instances of MIG: GI, CI
    (?P<pid>\d+)
    \s+(?P<type>[CGM+]+)
    \s+(?P<name>\S.*?)
    \s+(?P<used> \d+MiB | N/A )\s*\|
    """,
    re.VERBOSE,
)
_MIG = re.compile(
    r"""
    \|\s+(?P<gpu>\d+)\s+(?P<gi>\d+)\s+(?P<ci>\d+)\s+(?P<mig>\d+)\s*
    \|\s*\d+MiB\s*/\s*(?P<total>\d+MiB)
    """,
    re.VERBOSE,
)
_NO_MIG = "No MIG devices found"
_HIDDEN = "No running processes found"
_RESERVED_APART = 510  # the first branch that does not count the driver's reserve as used
_GETTERS = {
    "bus": ("PciInfo.busId", str),
    "persistence": ("PersistenceMode", yes),
    "display": ("DisplayActive", yes),
    "fan": ("FanSpeed", KINDS["number"]),
    "temperature": ("Temperature.gpu", KINDS["number"]),
    "state": ("PerformanceState", KINDS["number"]),
    "power": ("PowerUsage", KINDS["watts"]),
    "limit": ("EnforcedPowerLimit", KINDS["watts"]),
    "total": ("MemoryInfo.total", KINDS["mib"]),
    "busy": ("UtilizationRates.gpu", KINDS["number"]),
    "compute": ("ComputeMode", compute_mode),
}


def read(text: str) -> dict[str, Reply] | None:
    lines = text.splitlines()
    starts = [place for place, line in enumerate(lines) if _HEAD.search(line)]
    lines = lines[starts[-1] :] if starts else lines  # the last of several, as printed with -l
    head = _HEAD.search(lines[0]) if starts else None
    system = nvml_answers.system(head["driver"], head["cuda"]) if head else {}
    branch = int(system.get("DriverVersion", "0").split(".")[0])
    gpus = list(_gpus(lines, branch))
    if not gpus and not system:
        return None
    for index, instances in _instances(lines, gpus).items():
        gpus[index]["MigDevices"] = instances
    ran = _running(lines)
    for index, gpu in enumerate(gpus):
        gpu |= nvml_answers.processes(ran.get(index, [])) if ran is not None else {}
    return nvml_answers.replies(system, gpus or None)


def _gpus(lines: Sequence[str], branch: int) -> Iterator[nvml_answers.Answers]:
    """The two or three rows of each GPU."""
    rows = iter(lines)
    for line in rows:
        first = _FIRST.search(line)
        second = _SECOND.search(next(rows, "")) if first else None
        if first:
            third = _THIRD.search(next(rows, "")) if second else None
            told = {**first.groupdict(), **(second.groupdict() if second else {}), **(third.groupdict() if third else {})}
            yield nvml_answers.tidy(_told(told, branch))


def _told(cells: dict[str, str], branch: int) -> Iterator[tuple[str, Any]]:
    if not cells["name"].endswith("..."):  # shortened to fit
        yield "Name", cells["name"]
    for cell, (getter, parse) in _GETTERS.items():
        yield from ((getter, answer) for answer in _answer(cells.get(cell), parse))
    used = "MemoryInfo_v2.used" if branch >= _RESERVED_APART else "MemoryInfo.used"
    yield from ((used, answer) for answer in _answer(cells.get("used"), KINDS["mib"]))
    if cells["ecc"].isdigit():
        yield "TotalEccErrors.volatile_uncorrected", int(cells["ecc"])
    mig = cells.get("mig", "")
    now = yes(mig.rstrip("*"))
    if now is not None:
        pending = 1 - now if mig.endswith("*") else now
        yield from (("MigMode.0", now), ("MigMode.1", pending))
    elif refusal(mig):
        yield "MigMode", refusal(mig)


def _answer(text: str | None, parse: Any) -> Iterator[Any]:
    """One value or error, or nothing."""
    answer = None if text is None else refusal(text) or parse(text)
    if answer is not None:
        yield answer


def _instances(lines: Sequence[str], gpus: Sequence[nvml_answers.Answers]) -> dict[int, list[nvml_answers.Answers]]:
    """GPU in MIG mode -> its instances; empty if the table does not list them."""
    rows = [match for line in lines if (match := _MIG.search(line))]
    if not rows and not any(_NO_MIG in line for line in lines):
        return {}
    found: dict[int, list[nvml_answers.Answers]] = {}
    for index, gpu in enumerate(gpus):
        if gpu.get("MigMode") == [1, 1]:
            own = [row for row in rows if int(row["gpu"]) == index]
            found[index] = [nvml_answers.mig_device(row["gi"], row["ci"], row["total"]) for row in own]
    return found


def _running(lines: Sequence[str]) -> dict[int, list[dict[str, str]]] | None:
    """GPU -> its processes; None if the table does not show them."""
    found: dict[int, list[dict[str, str]]] = {}
    for match in filter(None, map(_PROCESS.search, lines)):
        found.setdefault(int(match["gpu"]), []).append(match.groupdict())
    return found if found or any(_HIDDEN in line for line in lines) or _is_empty(lines) else None


def _is_empty(lines: Sequence[str]) -> bool:
    """The table of processes has a head and an end, and nothing between: so it is printed in a container."""
    heads = [place for place, line in enumerate(lines) if re.match(r"\|=+\|\s*$", line)]
    return (
        any("Processes:" in line for line in lines)
        and bool(heads)
        and lines[heads[-1] + 1 :][:1] != []
        and bool(re.match(r"\+-+\+\s*$", lines[heads[-1] + 1]))
    )


READER = Reader(
    kind="nvidia-smi",
    anchors=("NVIDIA-SMI ", "Persistence-M", "0.0 Off ", "0.0  On "),
    begins=re.compile(
        r"""
        \|\s*NVIDIA-SMI\s+\d | \|\s*GPU\s+Name\s+Persistence-M
        | ^\s*\|\s*\d+\s+\S[^|]*\|\s*0000(?:0000)?:[\dA-Fa-f]{2}:[\dA-Fa-f]{2}\.\d\s  # a row whose head was not copied
        """,
        re.VERBOSE,
    ),
    ends=re.compile(r"^\s*[^|+\s]"),
    read=read,
    most_lines=4000,
)
