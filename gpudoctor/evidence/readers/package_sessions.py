"""Lists of packages that a session filters: `pip list | grep torch`, `pip show torch`, `conda list | grep cuda`, `dpkg -l`."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import os_packages, python_packages
from gpudoctor.evidence.readers.python_packages import Installed
from gpudoctor.model import Reply

_GREP = re.compile(r"\|\s*(?:grep|findstr|Select-String)\s+(.*)$", re.IGNORECASE)
_OPTION = re.compile(r"(?:^|\s)(?:--?|/)(?!e\b)[\w-]+|\s-e\s")
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
    listed = list(python_packages.installed(output.splitlines(), is_conda="conda" in command))
    if _GREP.search(command):
        return python_packages.shown(listed, patterns(command))
    return python_packages.read(output)


def _system(command: str, output: str) -> dict[str, Reply]:
    """An empty answer of grep says that no such package is installed."""
    found = os_packages.read(output) or {"os-packages": Reply("ok", [])}
    return {**found, "os-packages-shown": Reply("ok", dict.fromkeys(patterns(command), True))}


def _show(text: str) -> dict[str, Reply] | None:
    said = {match[1]: match[2] for match in map(_SHOWN.match, text.splitlines()) if match}
    return python_packages.shown([Installed(said["Name"], said["Version"])]) if len(said) == 2 else None


_LISTS = r"(?:(?:uv\ )?(?:python[\d.]*\ -m\ )?pip[\d.]*\ (?:list|freeze)|(?:conda|mamba|micromamba)\ list)"
READERS = (
    prompts.reader(
        "a filtered list of Python packages",
        ("pip list", "pip3 list", "pip freeze", "pip3 freeze", "conda list", "mamba list"),
        rf"{_LISTS}(?:\ [^|\n]*)?(?:\|\ *(?:grep|findstr|Select-String)\b.*)?",
        _python,
        most_lines=1000,
    ),
    prompts.reader(
        "a filtered list of the system's packages",
        ("dpkg -l", "rpm -qa", "apt list"),
        r"(?:dpkg\ -l|rpm\ -qa|apt\ list\ --installed)\s*(?:2>\S+\s*)?\|\ *grep\b.*",
        _system,
        bare=False,
        most_lines=1000,
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
