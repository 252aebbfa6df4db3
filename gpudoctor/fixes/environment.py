"""The current Python environment, and the tool that created it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.python import Python
from gpudoctor.facts.sessions import PLACE
from gpudoctor.worker.paths import project_folder

NAMES_OF_CONDA = {"torch": "pytorch"}


@dataclass(frozen=True)
class Environment:
    """kind: uv-project, uv, poetry, pipenv, pixi, conda, system (PEP 668), image (system, in a container), bare (no pip), pip."""

    kind: str = "pip"
    python: str = "python"
    prefix: str = ""
    installed: Callable[[str], str | None] = field(default=lambda name: None)
    is_listed: bool = True  # whether its packages are known
    of_conda: Callable[[str], str | None] = field(default=lambda name: None)
    """What conda calls a package that it installed: "pytorch=2.8.0=BUILD"; "" if that is not known, None if pip installed it."""

    @property
    def folder(self) -> str:
        return project_folder(self.prefix)


def of(facts: Facts) -> Environment:
    python = known(lambda: facts.python.executable, "python")
    prefix = known(lambda: facts.python.prefix, "")
    kind_ = known(lambda: kind(facts), "pip")
    if kind_ in ("pip", "bare") and facts.texts.alone:
        kind_ = of_text(facts)
        prefix = prefix or ("./.venv" if kind_ != "pip" else "")
    return Environment(
        kind_,
        python if python.isprintable() else "python",
        prefix if prefix.isprintable() else "",
        lambda name: _version(facts, name),
        bool(known(lambda: facts.python.packages, None)),
        lambda name: _of_conda(facts, name),
    )


def _version(facts: Facts, name: str) -> str | None:
    package = known(lambda: facts.python.package(name), None)
    return package.version if package else None


def _of_conda(facts: Facts, name: str) -> str | None:
    package = known(lambda: facts.python.package(name), None)
    listed = known(lambda: facts.python.conda_packages, {})
    found = listed.get(NAMES_OF_CONDA.get(name, name))
    is_listed = bool(found and package and facts.texts.alone and found.version == package.version)
    if package is None or (package.installer != "conda" and not is_listed):
        return None
    return f"{found.name}={found.version}={found.build}" if found else ""


_TYPED = re.compile(
    rf"""
    ^[ \t]*(?:{PLACE})[ \t]*
    (?: (?P<uv_project>uv)\ (?:run|add|sync|lock)\b | (?P<uv>uv)\ pip\b | (?P<poetry>poetry)\ (?:run|add|install|show|shell)\b
      | (?P<pipenv>pipenv)\ (?:run|install|shell)\b | (?P<pixi>pixi)\ (?:run|add|list|install|shell)\b )
    """,
    re.MULTILINE | re.VERBOSE,
)


def of_text(facts: Facts) -> str:
    """The tool whose commands were typed in a text; pip if there is none, or several."""
    said = [passage.text for text in facts.texts.all for passage in text.passages]
    found = {str(match.lastgroup).replace("_", "-") for words in said for match in _TYPED.finditer(words)}
    found -= {"uv"} if "uv-project" in found else set()
    return found.pop() if len(found) == 1 else "pip"


def kind(facts: Facts) -> str:
    python = facts.python
    has_pip = python.package("pip") is not None or not known(lambda: python.packages, None)
    files, prefix = python.project_files, python.prefix
    if "/.pixi/envs/" in prefix:
        return "pixi"
    if python.is_conda:
        return "conda"
    if "poetry.lock" in files or "/pypoetry/virtualenvs/" in prefix:
        return "poetry"
    if "Pipfile" in files or "/share/virtualenvs/" in prefix:
        return "pipenv"
    if python.is_virtual and "uv.lock" in files:
        return "uv-project"
    if python.is_virtual and not has_pip and is_of_uv(python):
        return "uv"
    has_pip = has_pip or (python.is_virtual and not python.venv_settings)
    if python.is_externally_managed:
        return "image" if facts.system.is_container else "system"
    return "pip" if has_pip else "bare"


def is_of_uv(python: Python) -> bool:
    """Judged by the environment's settings file; for older snapshots without it, by the installer of its packages."""
    by = {package.installer for copies in python.packages.values() for package in copies}
    return "uv" in python.venv_settings if python.venv_settings else "uv" in by
