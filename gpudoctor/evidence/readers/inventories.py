"""Inventories by other tools, read into the same facts: gpustat, deviceQuery, hostnamectl, failed units, lock files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import engine_state, nvml_answers, python_packages, system_texts
from gpudoctor.evidence.readers.python_packages import Installed
from gpudoctor.model import Reply

_GPUSTAT = re.compile(
    r"""
    ^\[(?P<index>\d+)\]\ (?P<name>\S[^|]*?)\s*\|\s*(?P<heat>\d+)°C,\s*(?P<load>\d+)\ %\s*(?:,[^|]*)?
    \|\s*(?P<used>\d+)\ /\s*(?P<total>\d+)\ MB
    """,
    re.VERBOSE,
)
_DEVICE_QUERY = re.compile(r"CUDA Driver Version / Runtime Version\s+(\d+)\.(\d+) / (\d+)\.(\d+)")
_FAILED = re.compile(
    r"""
    ^\s*[●*×]?\s*(?P<unit>[\w@.\\-]+\.service)\s+(?P<load>loaded|not-found)\s+(?P<active>failed)\s+(?P<sub>\w+)
    """,
    re.VERBOSE,
)
_LOCKED = re.compile(r"^\[\[package\]\]")
_KEY = re.compile(r'^(name|version) = "([^"]+)"')
_EXPORTED = re.compile(
    r"""
    ^\s*-\s+(?P<name>[A-Za-z_][\w.-]*)==?(?P<version>\d[\w.+!]*)(?:=(?P<build>\S+))?\s*$
    """,
    re.VERBOSE,
)
_PIXI = re.compile(
    r"""
    ^(?P<name>[\w.-]+)\s+(?P<version>\d\S*)\s+(?P<build>\S+)\s+[\d.]+\ ?\w+\s+(?P<kind>conda
        |pypi)\b
    """,
    re.VERBOSE,
)


def _gpustat(text: str) -> dict[str, Reply] | None:
    rows = [match for match in map(_GPUSTAT.match, text.splitlines()) if match]
    mib = 1 << 20
    gpus = [
        {
            "Name": row["name"],
            "Temperature": {"gpu": int(row["heat"])},
            "UtilizationRates": {"gpu": int(row["load"])},
            "MemoryInfo": {"total": int(row["total"]) * mib, "used": int(row["used"]) * mib},
        }
        for row in rows
    ]
    is_whole = [int(row["index"]) for row in rows] == list(range(len(rows)))
    return nvml_answers.replies({}, gpus) if rows and is_whole else None


def _device_query(text: str) -> dict[str, Reply] | None:
    match = _DEVICE_QUERY.search(text)
    if not match:
        return None
    driver, build = (int(match[first]) * 1000 + int(match[first + 1]) * 10 for first in (1, 3))
    return {"shown-runtime": Reply("ok", {"name": "deviceQuery", "driver": driver, "build": build})}


def _failed(text: str) -> dict[str, Reply] | None:
    out = ""
    for match in filter(None, map(_FAILED.match, text.splitlines())):
        values = (("Id", "unit"), ("LoadState", "load"), ("ActiveState", "active"), ("SubState", "sub"))
        out += "".join(f"{key}={match[group]}\n" for key, group in values) + "\n"
    return {engine_state.PREFIX: Reply("ok", {"code": 0, "out": out, "err": ""})} if out else None


def _system(text: str) -> dict[str, Reply] | None:
    """`hostnamectl` and `lsb_release -a`."""
    name = re.search(r"(?m)^\s*(?:Operating System|Description):\s+(\S[^\n]*?)\s*$", text)
    kernel = re.search(r"(?m)^\s*Kernel: Linux (\d+\.\d+\S*)\s*$", text)
    release = system_texts.os_release(name[1]) if name else None
    found = {"file:/etc/os-release": Reply("ok", release)} if release else {}
    if kernel:
        found["uname"] = Reply("ok", {"release": kernel[1], "machine": None, "sysname": "Linux"})
    return found or None


def _locked(text: str) -> dict[str, Reply] | None:
    """poetry.lock and uv.lock. A package that is there twice has another version on each platform."""
    listed: list[Installed] = []
    name = ""
    for key, value in (match.groups() for match in map(_KEY.match, text.splitlines()) if match):
        if key == "name":
            name = value
        elif name:
            listed.append(Installed(name, value))
            name = ""
    names = Counter(one.name for one in listed)
    once = [one for one in listed if names[one.name] == 1]
    return python_packages.shown(once) if once else None


def _exported(text: str) -> dict[str, Reply] | None:
    """`conda env export` and environment.yml: builds are named only by the former."""
    listed = list(_rows(text))
    return python_packages.shown(listed) if any(one.build for one in listed) else None


def _rows(text: str) -> Iterator[Installed]:
    of_pip = False
    for line in text.splitlines():
        of_pip = of_pip or re.match(r"^\s*-\s+pip:\s*$", line) is not None
        match = _EXPORTED.match(line)
        if match and of_pip:
            yield Installed(match["name"], match["version"])
        elif match:
            yield Installed(match["name"], match["version"], match["build"] or "", "defaults")


def _pixi(text: str) -> dict[str, Reply] | None:
    rows = [match for match in map(_PIXI.match, text.splitlines()) if match]
    listed = [
        Installed(row["name"], row["version"], row["build"], "conda-forge")
        if row["kind"] == "conda"
        else Installed(row["name"], row["version"])
        for row in rows
    ]
    return python_packages.shown(listed) if listed else None


READERS = (
    Reader("gpustat", (" MB |",), _GPUSTAT, _gpustat, re.compile(r"^(?!\[\d+\] )"), 64),
    Reader(
        "deviceQuery",
        ("Driver Version / Runtime Version",),
        re.compile(rf"^\s*{_DEVICE_QUERY.pattern}"),
        _device_query,
        re.compile(""),
        1,
    ),
    Reader("failed units", (" failed ",), _FAILED, _failed, re.compile(r"^(?!\s*[●*×]?\s*[\w@.\\-]+\.service\s)"), 60),
    Reader(
        "hostnamectl",
        ("Operating System: ",),
        re.compile(r"^\s*Operating System: "),
        _system,
        re.compile(r"^(?!\s*[A-Z][\w ]+: )"),
        8,
    ),
    Reader("lsb_release", ("Description:\t",), re.compile(r"^Description:\t"), _system, re.compile(""), 1),
    Reader("a lock file", ("[[package]]",), _LOCKED, _locked, prompts.NEXT, 20_000, alone=True),
    Reader(
        "conda env export", ("dependencies:",), re.compile(r"^dependencies:\s*$"), _exported, re.compile(r"^(?!\s*-|\s*$)"), 2000
    ),
    Reader("pixi list", ("Kind",), re.compile(r"^Package\s+Version\s+Build\s+Size\s+Kind\b"), _pixi, re.compile(r"^\s*$"), 2000),
)
