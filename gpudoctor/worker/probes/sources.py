"""The files that set variables for GPU programs: shell profiles, services, environments, modules, hooks of Python."""

from __future__ import annotations

import glob
import json
import os
import re
import site
import sys
from typing import Dict, Iterable, Iterator, List

from gpudoctor.worker.probes.environment import variables
from gpudoctor.worker.probes.machine import Answer, Machine

PROFILES = (
    "~/.bashrc",
    "~/.bash_profile",
    "~/.bash_login",
    "~/.bash_aliases",
    "~/.profile",
    "~/.zshrc",
    "~/.zshenv",
    "~/.zprofile",
    "~/.cshrc",
    "~/.config/fish/config.fish",
    "~/.config/environment.d/*.conf",
    "~/.pam_environment",
    "/etc/environment",
    "/etc/environment.d/*.conf",
    "/etc/security/pam_env.conf",
    "/etc/profile",
    "/etc/profile.d/*",
    "/etc/bash.bashrc",
    "/etc/bashrc",
    "/etc/zsh/zshenv",
    "/etc/zshenv",
    "/etc/systemd/system.conf",
    "/etc/systemd/user.conf",
    "/etc/systemd/system/*.service",
    "/etc/systemd/system/*.service.d/*.conf",
    "~/.config/systemd/user/*.service",
    "~/.ipython/profile_default/startup/*.py",
)
IN_ENVIRONMENT = ("bin/activate", "etc/conda/activate.d/*")
HOOKS = ("sitecustomize.py", "usercustomize.py", "*.pth")
NOT_LOOKED_FOR = ("PATH", "VIRTUAL_ENV")
MOST_BYTES, MOST_LINES, MOST_FILES = 1 << 18, 8, 400


def ask(machine: Machine) -> Iterator[Answer]:
    """`variable-sources`: variable -> the lines that set it, as "file:line"; or that the container was started with it."""
    names = [name for name in variables(os.environ) if name not in NOT_LOOKED_FOR and not name.startswith("CONDA_")]
    yield machine.ask("variable-sources", lambda: found(machine, names, list(_files(machine))) if names else {})


def found(machine: Machine, names: List[str], files: Iterable[str]) -> Dict[str, List[str]]:
    setting = re.compile(r"(?<![\w$#{])(%s)['\"]?\]?\s*(?:=(?!=)|\s+[^=\s]|,)" % "|".join(map(re.escape, names)))
    lines: Dict[str, List[str]] = {}
    for path in files:
        for number, line in enumerate(_text(machine, path).splitlines(), 1):
            said = setting.search(line) if _sets(line) else None
            if said and len(lines.setdefault(said.group(1), [])) < MOST_LINES:
                lines[said.group(1)].append("%s:%d" % (path, number))
    for name in _of_first_process(machine, names):
        lines.setdefault(name, []).append("start of the container")
    for name in _of_conda(machine):
        if name in names:
            lines.setdefault(name, []).append("conda env config vars")
    return lines


def _sets(line: str) -> bool:
    """A comment sets nothing, and neither does a line that only reads, unsets or prints."""
    words = line.strip()
    return not words.startswith("#") and not re.match(r"(unset|echo|if|\[|test|case)\b", words)


def _files(machine: Machine) -> Iterator[str]:
    folders = [sys.prefix, *filter(None, [os.environ.get("CONDA_PREFIX"), os.environ.get("VIRTUAL_ENV")])]
    patterns = [os.path.expanduser(pattern) for pattern in PROFILES]
    patterns += [os.path.join(glob.escape(folder), name) for folder in folders for name in IN_ENVIRONMENT]
    patterns += [os.path.join(glob.escape(folder), name) for folder in _packages() for name in HOOKS]
    patterns += [glob.escape(path) for path in os.environ.get("_LMFILES_", "").split(":") if path]
    every = [path for pattern in dict.fromkeys(patterns) for path in sorted(machine.matching(pattern))]
    return iter(list(dict.fromkeys(every))[:MOST_FILES])


def _packages() -> List[str]:
    """The folders in which Python looks for its hooks."""
    first = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    try:
        return [*first, *site.getsitepackages(), site.getusersitepackages()]
    except AttributeError:  # an old virtualenv
        return [*first, *(path for path in sys.path if path.endswith("site-packages"))]


def _text(machine: Machine, path: str) -> str:
    try:
        real = machine.path(path)
        if not os.path.isfile(real) or os.path.getsize(real) > MOST_BYTES:
            return ""
        return machine.read(path)
    except OSError:
        return ""


def _of_first_process(machine: Machine, names: List[str]) -> List[str]:
    """The variables that the first process of a container was started with."""
    if not any(os.path.exists(machine.path(mark)) for mark in ("/.dockerenv", "/run/.containerenv")):
        return []
    try:
        started = "\0" + machine.read("/proc/1/environ")
    except OSError:
        return []
    return [name for name in names if ("\0%s=" % name) in started]


def _of_conda(machine: Machine) -> List[str]:
    path = os.path.join(os.environ.get("CONDA_PREFIX") or sys.prefix, "conda-meta", "state")
    try:
        return list(json.loads(machine.read(path)).get("env_vars", {}))
    except (OSError, ValueError, AttributeError):
        return []
