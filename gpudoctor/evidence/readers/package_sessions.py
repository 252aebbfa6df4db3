"""Lists of packages that a session filters: `pip list | grep torch`, `pip show torch`, `conda list | grep cuda`, `dpkg -l`."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import os_packages, python_packages
from gpudoctor.evidence.readers.python_packages import Installed
from gpudoctor.model import Reply

_GREP = re.compile(rf"\|\s*{prompts.FILTER}\s+(.*)$", re.IGNORECASE)
_OPTION = re.compile(r"(?:^|\s)(?:--?|/)(?!e\b)[\w-]+|\s-e\s")
_DONE = re.compile(r"Successfully installed ((?:\S+-\d\S*\s*)+)$", re.MULTILINE)
_NAMED = re.compile(r"[A-Za-z][\w.-]*-\d[\w.+!]*")
_OF_UV = re.compile(r"^\s*[+~] ([A-Za-z][\w.-]*)==(\S+)$", re.MULTILINE)
_SATISFIED = re.compile(
    r"""
    ^\s*Requirement\ already\ satisfied:\ ([A-Za-z][\w.-]*)\S*
    \ in\ \S.*\((\d[\w.+!]*)\)\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_FRAMEWORK = r"(?:torch|torchvision|torchaudio|tensorflow|jax|jaxlib|vllm|xformers|bitsandbytes|onnxruntime(?:-gpu)?)"
_SHOWN = re.compile(r"^(Name|Version): (\S+)\s*$")


def patterns(command: str) -> list[str]:
    """The words that a command's grep looks for; empty without one.

    >>> patterns("pip list | grep -i -E 'torch|nvidia'")
    ['torch', 'nvidia']
    """
    match = _GREP.search(command)
    words = _OPTION.sub(" ", f" {match[1].split('#')[0]}") if match else ""
    return [word.lower().strip("^.*$") for word in re.split(r"[\s'\"|\\]+", words) if word.strip("^.*$")]


def _python(command: str, output: str) -> dict[str, Reply] | None:
    listed = list(python_packages.installed(output.splitlines(), is_conda=bool(re.search("conda|mamba", command))))
    return _with_versions(listed, _list(command, listed, output))


def _list(command: str, listed: list[Installed], output: str) -> dict[str, Reply] | None:
    if _GREP.search(command):
        return python_packages.shown(listed, patterns(command))
    return python_packages.read(output) or (python_packages.shown(listed) if listed else None)


def _with_versions(listed: list[Installed], found: dict[str, Reply] | None) -> dict[str, Reply] | None:
    """The list's own versions are kept, as what Python imports can differ."""
    versions = {one.name: one.version for one in listed if one.channel in ("", "pypi")}
    return {**found, "shown-listed": Reply("ok", versions)} if found and versions else found


def _without_head(text: str) -> dict[str, Reply] | None:
    """Rows of a list whose header and command were not copied. One row can be the words of a person."""
    listed = list(python_packages.installed(text.splitlines()))
    return python_packages.shown(listed) if len(listed) > 1 else None


def _by_installer(text: str) -> dict[str, Reply] | None:
    """What pip or uv says that it has installed, or that it found installed."""
    found = [Installed(*name.rsplit("-", 1)) for line in _DONE.findall(text) for name in line.split() if _NAMED.fullmatch(name)]
    found += [Installed(*match.groups()) for match in _OF_UV.finditer(text)]
    found += [Installed(*match.groups()) for match in _SATISFIED.finditer(text)]
    return python_packages.shown(found) if found else None


def _system(command: str, output: str) -> dict[str, Reply]:
    """An empty answer of grep says that no such package is installed."""
    found = os_packages.read(output) or {"os-packages": Reply("ok", [])}
    return {**found, "os-packages-shown": Reply("ok", dict.fromkeys(patterns(command), True))}


def _show(text: str) -> dict[str, Reply] | None:
    said = {match[1]: match[2] for match in map(_SHOWN.match, text.splitlines()) if match}
    listed = [Installed(said["Name"], said["Version"])] if len(said) == 2 else []
    return _with_versions(listed, python_packages.shown(listed)) if listed else None


_LISTS = r"(?:(?:uv\ )?(?:python[\d.]*\ -m\ )?pip[\d.]*\ (?:list|freeze)|(?:conda|mamba|micromamba)\ list|uv\ tree|poetry\ show)"
READERS = (
    prompts.reader(
        "a filtered list of Python packages",
        ("pip list", "pip3 list", "pip freeze", "pip3 freeze", "conda list", "mamba list", "uv tree", "poetry show"),
        rf"{_LISTS}(?:\ [^|\n]*)?(?:\|\ *{prompts.FILTER}\b.*)?",
        _python,
        most_lines=1000,
    ),
    prompts.reader(
        "a filtered list of the system's packages",
        ("dpkg -l", "dpkg --list", "rpm -qa", "apt list", "dnf list", "yum list"),
        rf"(?:dpkg\ (?:-l|--list)|rpm\ -qa|(?:apt|dnf|yum)\ list\ (?:--)?installed)\s*(?:2>\S+\s*)?\|\ *{prompts.FILTER}\b.*",
        _system,
        bare=False,
        most_lines=1000,
    ),
    Reader(
        "a list of Python packages without its header",
        ("torch ", "torchvision ", "tensorflow ", "jaxlib ", "vllm ", "xformers ", "bitsandbytes ", "onnxruntime"),
        re.compile(rf"^\s*{_FRAMEWORK}\s+\d+\.\d+\S*\s*$"),
        _without_head,
        re.compile(r"^(?!\s*[A-Za-z][\w.-]*\s+v?\d\S*\s*$)"),
        100,
        alone=True,
    ),
    Reader(
        "packages that pip or uv installed",
        (
            *("Successfully installed ", " + torch", " + vllm", " + jax", " + tensorflow", " + onnxruntime"),
            "Requirement already satisfied: torch",
        ),
        re.compile(
            rf"""
            Successfully\ installed\ \S+-\d
            | ^\s*\+\ {_FRAMEWORK}==
            | ^\s*Requirement\ already\ satisfied:\ torch\S*\ in[ ]
            """,
            re.VERBOSE,
        ),
        _by_installer,
        re.compile(r"^(?!\s*[+~-] [A-Za-z][\w.-]*==|\s*Requirement already satisfied: )"),
        400,
    ),
    Reader(
        "pip show",
        ("Name: ",),
        re.compile(r"^Name: [\w.-]+\s*$"),
        _show,
        re.compile(r"^(?!(?:Name|Version|Summary|Home-page|Author|License|Location|Requires)\b)"),
        4,
    ),
)
