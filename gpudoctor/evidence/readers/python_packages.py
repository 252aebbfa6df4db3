"""`pip list`, `pip freeze`, `uv pip list` and `conda list`: the packages installed in a Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from packaging.utils import canonicalize_name

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_FROZEN = re.compile(r"^\s*([A-Za-z][\w.-]*)\s*(?:==|@)\s*(\S+)\s*$")
_REMARK = r"(?:\s+(?://|\#|<-|←|\().*)?"  # of the person who pasted the list
_CELL = r"(?!//|#|<-|←|\()(\S+)"
_COLUMNS = re.compile(rf"^[\s├└│─]*([A-Za-z][\w.-]*)\s+(v?\d\S*)(?:\s+{_CELL})?(?:\s+{_CELL})?{_REMARK}\s*$")
_CUDA_TAG = re.compile(r"\+cu(\d+)(\d)\b")
_CONDA_BUILD = re.compile(r"cuda_?(\d+)\.(\d+)|cuda(\d{2})(\d)")
_RUNTIME = re.compile(r"nvidia-cuda-runtime(?:-cu\d+)?")
FEWEST = 3  # a single pinned line is a requirement, not a list of installed packages


class Installed(NamedTuple):
    """One line of a list; build and channel are from conda."""

    name: str
    version: str
    build: str = ""
    channel: str = ""


def read(text: str) -> dict[str, Reply] | None:
    lines = text.splitlines()
    is_conda = any("packages in environment at" in line or re.match(r"#\s+Name\s+Version\s+Build", line) for line in lines[:5])
    listed = list(installed(lines, is_conda))
    return {**replies(listed), "packages-listed": Reply("ok", True)} if len(listed) >= FEWEST else None


def installed(lines: Iterable[str], is_conda: bool = False) -> Iterator[Installed]:
    for line in lines:
        if match := _FROZEN.match(line):
            version = match[2] if "://" not in match[2] else _version_in(match[2])
            if version:
                yield Installed(match[1], version)
        elif match := _COLUMNS.match(line):
            version = match[2].removeprefix("v")
            yield _of_conda(match[1], version, match[3] or "", match[4] or "") if is_conda else Installed(match[1], version)


def _of_conda(name: str, version: str, build: str, channel: str) -> Installed:
    """conda does not print the name of its default channel, and marks what pip installed."""
    return Installed(name, version, build, channel or ("pypi" if build in ("<pip>", "pypi_0") else "defaults"))


def _version_in(url: str) -> str:
    """The version in a wheel's file name: torch @ https://…/torch-2.8.0%2Bcu128-cp312-….whl"""
    match = re.search(r"/[\w.]+-(\d[^/-]*)-[^/]*\.whl", url)
    return match[1].replace("%2B", "+") if match else ""


def replies(listed: Iterable[Installed], cuda: str | None = "") -> dict[str, Reply]:
    """cuda: the version that torch was built with, "" if unknown, None for a CPU build."""
    every = list(listed)
    of_pip: dict[str, Installed] = {canonicalize_name(one.name): one for one in every if one.channel in ("", "pypi")}
    of_conda = [one for one in every if one.channel not in ("", "pypi")]
    for one in of_conda:  # Python packages from conda are also in its site-packages
        name = {"pytorch": "torch"}.get(one.name, canonicalize_name(one.name))
        of_pip.setdefault(name, one._replace(name=name))
    records = [{"name": one.name, "version": one.version, "location": ""} for one in of_pip.values()]
    found = {"packages": Reply("ok", records)}
    listed_by_conda = [one._asdict() for one in of_conda]
    found["conda"] = Reply("ok", listed_by_conda) if of_conda else Reply("missing", detail="no conda package is listed")
    if "torch" in of_pip:
        found["torch"] = torch(of_pip["torch"].version, _built_with(of_pip, of_conda) if cuda == "" else cuda)
    python = next((one for one in of_conda if one.name == "python"), None)
    if python:
        found["interpreter"] = Reply("ok", {"version": [int(part) for part in re.findall(r"\d+", python.version)[:3]]})
    return found


def torch(version: str, cuda: str | None) -> Reply:
    """The known part of torch/version.py; cuda is "" if unknown."""
    tag = _CUDA_TAG.search(version)
    if cuda == "" and tag:
        cuda = f"{tag[1]}.{tag[2]}"
    elif cuda == "" and version.endswith("+cpu"):
        cuda = None
    lines = [f"__version__ = {version!r}", *([] if cuda == "" else [f"cuda: Optional[str] = {cuda!r}"])]
    return Reply("ok", {"version_py": "".join(f"{line}\n" for line in lines)})


def _built_with(of_pip: dict[str, Installed], of_conda: Iterable[Installed]) -> str | None:
    """torch's CUDA version, from conda's build or from the runtime wheel that a PyPI build requires."""
    listed = {one.name: one for one in of_conda}
    for one in listed.values():
        if one.name == "pytorch":
            match = _CONDA_BUILD.search(one.build)
            if match:
                return ".".join(filter(None, match.groups()))
            return None if _of_cpu(one, listed) else ""
    runtime = next((one for name, one in of_pip.items() if _RUNTIME.fullmatch(name)), None)
    if runtime and "+" not in of_pip["torch"].version:
        return ".".join(runtime.version.split(".")[:2])
    return ""


def joined(replies: Mapping[str, Reply]) -> dict[str, Reply]:
    """torch's CUDA, where one output shows torch and another one the runtime wheel that it requires, or the build of conda."""
    packages = replies.get("packages")
    told = replies["torch"].value["version_py"] if "torch" in replies and replies["torch"].value else ""
    if packages is None or packages.status != "ok" or not told or "cuda" in told:
        return {}
    if replies["conda"].status == "ok":
        return _of_conda_build(told, replies["conda"].value)
    of_pip = {record["name"]: Installed(record["name"], record["version"]) for record in packages.value}
    cuda = _built_with(of_pip, ())
    return {"torch": torch(of_pip["torch"].version, cuda)} if cuda and "torch" in of_pip else {}


def _of_conda_build(told: str, records: Iterable[Mapping[str, str]]) -> dict[str, Reply]:
    """Only if conda's package is of the release that Python imports."""
    listed = [Installed(one["name"], one["version"], one["build"], one["channel"]) for one in records]
    pytorch = next((one for one in listed if one.name == "pytorch"), None)
    cuda = _built_with({}, listed) if pytorch else ""
    return {"torch": torch(pytorch.version, cuda)} if pytorch and cuda != "" and repr(pytorch.version) in told else {}


def _of_cpu(pytorch: Installed, listed: Mapping[str, Installed]) -> bool:
    """conda marks the CPU build of PyTorch in its name, or in that of the package which excludes the other builds."""
    mutex = listed.get("pytorch-mutex")
    return "cpu" in pytorch.build or "cpuonly" in listed or bool(mutex and mutex.build == "cpu")


def shown(listed: Iterable[Installed], only: Iterable[str] = ()) -> dict[str, Reply]:
    """A part of the list. only: the patterns by which it was filtered; a name that matches one is absent if it is not shown."""
    every = list(listed)
    return {**(replies(every) if every else {}), "packages-shown": Reply("ok", dict.fromkeys(only, True))}


_BEGINS = r"(?:torch|tensorflow|jax|nvidia-cublas(?:-cu\d+)?|cupy-cuda\d+x?)(?:==| @ )\S+"
READER = Reader(
    kind="list of Python packages",
    anchors=("Package ", "torch==", "# packages in environment at", "nvidia-cublas", "tensorflow==", "jax==", "cupy-cuda"),
    begins=re.compile(rf"^\s*Package\s+Version\b|^# packages in environment at|^{_BEGINS}\s*$"),
    ends=re.compile(
        r"""
        ^(?!
            \s*[A-Za-z][\w.-]*\s*(?:==|@)\s*\S+\s*$                  # pip freeze
            | \s*[A-Za-z_][\w.-]*\s+v?\d\S*(?:\s+\S+){0,3}\s*$       # pip list, conda list
            | \s*--- | \# | -e[ ] | \s*Package\s
        )
        """,
        re.VERBOSE,
    ),
    read=read,
    most_lines=3000,
)
