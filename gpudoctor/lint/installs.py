"""What pip, conda and the system's package manager install."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from packaging.utils import canonicalize_name

from gpudoctor.lint.budget import once
from gpudoctor.lint.dockerfile import Stage, Step
from gpudoctor.lint.shell import Command, Word

_PIP = re.compile(r"pip[\d.]*|pipx")
_PYTHON = re.compile(r"python[\d.]*|pypy[\d.]*")
_SYSTEM = {
    "apt": "apt",
    "apt-get": "apt",
    "aptitude": "apt",
    "yum": "dnf",
    "dnf": "dnf",
    "microdnf": "dnf",
    "zypper": "zypper",
    "apk": "apk",
}
_TAKES_VALUE = re.compile(
    r"""
    -[rcCiftpb]
    | --(?:
        requirements? | constraints? | group | overrides? | exclude-newer
        | index | index-url | extra-index-url | default-index | index-strategy | find-links | torch-backend
        | target | prefix | root | python | platform | implementation | abi | python-version
        | no-binary | only-binary | no-build-package | no-binary-package
        | src | build | config-settings? | global-option | install-option | build-option | use-feature | upgrade-strategy
        | proxy | cert | trusted-host | timeout | resume-retries | retries
        | cache-dir | link-mode | progress-bar | log | report
    )
    """,
    re.VERBOSE,
)
_INSTALLS_NOTHING = {"-d", "--download-only", "--downloadonly", "-s", "--simulate", "--dry-run"}
_SYSTEM_TAKES_VALUE = re.compile(
    r"""
    -[oxXctp]
    | --(?:
        option | exclude | target-release | installroot | repo | repository | repoid | enablerepo | disablerepo
        | virtual | setopt
    )
    """,
    re.VERBOSE,
)
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*?)\s*(\[[^\]]*\])?\s*((?:[<>=!~]=?|===)[^;]*)?(?:;.*)?", re.DOTALL)
_DIRECT = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*@\s*(\S.*)")
_LONGEST = 1000  # characters of a requirement
_INDEX_OPTIONS = ("-i", "--index-url", "--default-index")
_EXTRA_OPTIONS = ("--extra-index-url", "--index")


@dataclass(frozen=True)
class Requirement:
    """One package: its name in pip's normal form, `==1.2+cu121` as written, `[cuda12]`; url: its direct source, if any."""

    name: str
    specifier: str
    extras: str
    line: int
    url: str = ""

    @property
    def pinned(self) -> str:
        found = re.fullmatch(r"===?\s*([^,*\s]+)", self.specifier)
        return found[1] if found else ""


@dataclass(frozen=True)
class PipInstall:
    """index: the one that replaces PyPI, "" for PyPI. extras: additional indexes."""

    command: Command
    requirements: tuple[Requirement, ...]
    index: str = ""
    extras: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def line(self) -> int:
        return self.command.line

    def of(self, *names: str) -> Requirement | None:
        return next((requirement for requirement in self.requirements if requirement.name in names), None)


@dataclass(frozen=True)
class SystemInstall:
    """Packages of apt, dnf, zypper or apk, without their versions."""

    command: Command
    manager: str
    packages: tuple[Word, ...]


@once
def pip_installs(step: Step) -> tuple[PipInstall, ...]:
    return tuple(_pip_installs(step))


def _pip_installs(step: Step) -> Iterator[PipInstall]:
    for command in step.commands:
        words = _pip_words(command)
        if words is not None:
            yield _pip(command, words, ChainMap(command.settings, step.values))  # type: ignore[arg-type]


@once
def conda_installs(step: Step) -> tuple[tuple[Command, tuple[Word, ...], tuple[str, ...]], ...]:
    return tuple(_conda_installs(step))


def _conda_installs(step: Step) -> Iterator[tuple[Command, tuple[Word, ...], tuple[str, ...]]]:
    """(command, packages, channels) of `conda install` and `conda create`."""
    for command in step.commands:
        if command.program in ("conda", "mamba", "micromamba") and {"install", "create"} & set(command.texts[1:3]):
            packages, channels = [], []
            rest = iter(command.words[2:])
            for word in rest:
                option, _, value = word.text.partition("=")
                if option in ("-c", "--channel"):
                    channels.append(value or next(rest, word).text)
                elif option in ("-n", "--name", "-p", "--prefix", "-f", "--file") and not value:
                    next(rest, None)
                elif not word.text.startswith("-"):
                    packages.append(word)
            yield command, tuple(packages), tuple(channels)


@once
def system_installs(step: Step) -> tuple[SystemInstall, ...]:
    return tuple(_system_installs(step))


def _system_installs(step: Step) -> Iterator[SystemInstall]:
    for command in step.commands:
        manager = _SYSTEM.get(command.program)
        texts = command.texts
        verb = next(
            (place for place, text in enumerate(texts) if text in ("install", "add", "in", "reinstall", "localinstall")), 0
        )
        if manager and verb and not _INSTALLS_NOTHING & set(texts):
            yield SystemInstall(command, manager, tuple(_packages(command.words[verb + 1 :], manager)))


def _packages(words: tuple[Word, ...], manager: str) -> Iterator[Word]:
    rest = iter(words)
    for word in rest:
        if _SYSTEM_TAKES_VALUE.fullmatch(word.text):
            next(rest, None)
        elif not word.text.startswith("-") and not (manager == "apt" and word.text.endswith("-")):  # `name-` removes it
            yield Word(re.split(r"[=<>~]|:(?:amd64|arm64)$", word.text)[0], word.line)


@once
def system_removals(step: Step) -> set[str]:
    """Packages that the same step removes."""
    return {
        text
        for command in step.commands
        if command.program in _SYSTEM and {"remove", "purge", "autoremove", "erase", "del"} & set(command.texts[1:4])
        for text in command.texts[2:]
    }


def requirements(stage: Stage) -> Iterator[Requirement]:
    """Everything that pip installs, from the registry image to the end of the stage."""
    for step in stage.history:
        for install in pip_installs(step):
            yield from install.requirements


def _pip_words(command: Command) -> tuple[Word, ...] | None:
    """The words after `pip install`, however it is called; None for other commands."""
    texts = command.texts
    if command.program == "uv" and texts[1:3] == ("pip", "install"):
        return command.words[3:]
    if command.program == "uv" and texts[1:2] == ("add",):
        return command.words[2:]
    start = 1 if _PIP.fullmatch(command.program) else 0
    if _PYTHON.fullmatch(command.program) and "-m" in texts[:4]:
        module = texts.index("-m") + 1
        start = module + 1 if texts[module : module + 1] == ("pip",) else 0
    if start and "install" in texts[start : start + 4]:
        return command.words[texts.index("install", start) + 1 :]
    return None


def _pip(command: Command, words: tuple[Word, ...], values: Mapping[str, str]) -> PipInstall:
    found, options, rest = [], dict[str, tuple[str, ...]](), iter(words)
    for word in rest:
        if word.text.startswith("-"):
            option, equals, value = word.text.partition("=")
            if not equals and option in ("-e", "--editable"):
                continue  # what follows is a requirement
            if not equals and _TAKES_VALUE.fullmatch(option):
                value = next(rest, word).text
            options[option] = (*options.get(option, ()), value)
        elif requirement := _requirement(word):
            found.append(requirement)
    index = [value for option in _INDEX_OPTIONS for value in options.get(option, ())]
    backend = options.get("--torch-backend") or tuple(filter(None, (values.get("UV_TORCH_BACKEND"),)))
    if backend and re.fullmatch(r"cu\d{3}|cpu", backend[0]) and command.program == "uv":
        index = [f"https://download.pytorch.org/whl/{backend[0]}"]
    extras = [value for option in _EXTRA_OPTIONS for value in options.get(option, ())]
    index = index or [values[name] for name in ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX") if values.get(name)]
    extras += [
        part for name in ("PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX") for part in values.get(name, "").split()
    ]
    links = tuple(value for option in ("-f", "--find-links") for value in options.get(option, ()))
    return PipInstall(command, tuple(found), index[-1] if index else "", tuple(extras), links, options)


def _requirement(word: Word) -> Requirement | None:
    text = word.text.strip()
    if len(text) > _LONGEST:
        return None
    direct = _DIRECT.fullmatch(text)
    if direct:
        return Requirement(canonicalize_name(direct[1]), "", "", word.line, direct[2])
    if "://" in text or text.endswith((".whl", ".tar.gz")):
        return Requirement(_name_of(text), "", "", word.line, text)
    found = _REQUIREMENT.fullmatch(text)
    if not found or "/" in text or text.startswith("."):
        return None
    return Requirement(canonicalize_name(found[1]), (found[3] or "").strip(), found[2] or "", word.line)


def _name_of(url: str) -> str:
    """The package that a URL most likely contains, by its egg, its repository or its file."""
    egg = re.search(r"[#&]egg=([\w.-]+)", url)
    if egg:
        return canonicalize_name(egg[1])
    last = re.sub(r"@[^/]*$", "", url.partition("#")[0]).rstrip("/").rpartition("/")[2]
    return canonicalize_name(re.sub(r"(\.git|-\d.*|\.zip|\.tar\.gz)$", "", last))
