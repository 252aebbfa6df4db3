"""How packages are installed in the current Python environment: by pip, or by the tool that manages it and would revert pip."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from gpudoctor.filling import parts, word
from gpudoctor.fixes import pip
from gpudoctor.fixes.environment import Environment
from gpudoctor.fixes.pip import Call, joined
from gpudoctor.fixes.projects import BEFORE, PYTORCH_INDEX, as_before, in_poetry, pipenv, poetry, uv
from gpudoctor.model import Fix

NEW = "~/gpu-env"
IN_NEW = f"{NEW}/bin/python"
OWN = "in a new virtual environment, since pip must not install into the system's Python"
BY_CONDA = ", with conda, which installed it"
ONLY_PIP = {"--no-deps", "--no-build-isolation", "--no-cache-dir", "--ignore-installed"}


def translated(fix: Fix, here: Environment) -> Iterator[Fix]:
    """The fix with the commands of the environment's own tool, and its undo."""
    command = conda(fix.command, here)
    if command is None:
        return
    calls = [pip.parsed(part) for part in parts(command)]
    if any(_is_of_conda(call, here) for call in calls if call):
        yield from _by_hand_with_conda(fix)
        return
    if not any(calls) or "\n" in command:
        yield replace(fix, command=command)
        return
    undo = fix.undo or restored(tuple(filter(None, calls)), here)
    if here.kind == "system" and any(call.verb == "install" for call in calls if call):
        yield in_new(fix, command, here)
        return
    said = _said(command, here)
    back = as_before(here) if BEFORE in said else _said(undo, here).removeprefix(f"{joined(here.python)} -m ensurepip && ")
    yield replace(fix, command=said, verify=_said(fix.verify, here), undo=back)


def _is_of_conda(call: Call, here: Environment) -> bool:
    """Whether pip would change a package that conda installed: pip does not know conda's other packages, and conda undoes it."""
    return call.verb in ("install", "uninstall") and any(here.of_conda(name) is not None for name in call.names)


def without_repeated(fixes: Iterable[Fix]) -> list[Fix]:
    """Without what is left to a person, if a command of conda does it."""
    fixes = list(fixes)
    has_command = any(re.search(r"\b(?:conda install|pixi add)\b", fix.command) for fix in fixes)
    return [fix for fix in fixes if not (has_command and fix.title.endswith(BY_CONDA))]


def _by_hand_with_conda(fix: Fix) -> Iterator[Fix]:
    title = fix.title if "conda" in fix.title else fix.title + BY_CONDA
    yield replace(fix, title=title, command="", undo="", kind="manual")


def conda(command: str, here: Environment) -> str | None:
    """Adds the folder, if known, so that the environment need not be active. None if the environment is not conda's or pixi's."""
    if not command.startswith(("conda install ", "conda remove ")):
        return command
    if here.kind == "pixi":
        verb, packages = ("add" if "install" in command else "remove"), re.sub(r"^conda \w+ |-[cp] \S+ ", "", command)
        return f"pixi {verb} --manifest-path {shlex.quote(here.folder)} {packages}"
    if not here.prefix:
        return command
    if here.kind != "conda":
        return None
    return re.sub(r"^conda (install|remove) ", rf"conda \1 -p {shlex.quote(here.prefix)} ", command)


def _said(command: str, here: Environment) -> str:
    pieces = parts(command)
    calls = [pip.parsed(piece) for piece in pieces]
    said = []
    for number, (part, call) in enumerate(zip(pieces, calls, strict=True)):
        later = frozenset[str]().union(*(other.names for other in calls[number + 1 :] if other and other.verb == "install"))
        said.append(
            part
            if call is None or call.python not in (here.python, shlex.quote(here.python), "python")
            else _tool(call, here, later)
        )
    line = " && ".join(filter(None, said))
    lacks_pip = here.kind == "bare" or (here.kind in (*MANAGERS, "conda") and here.installed("pip") is None)
    return f"{joined(here.python)} -m ensurepip && {line}" if lacks_pip and " -m pip " in line else line


def _tool(call: Call, here: Environment, later: frozenset[str]) -> str:
    """later: what the same line installs afterwards, so that a tool with a lock file need not remove it first."""
    if call.verb in ("check", "show"):
        by_uv = here.kind in ("uv", "uv-project")
        return joined("uv", "pip", call.verb, "--python", here.python, call.packages) if by_uv else _plain(call, here)
    if here.kind in MANAGERS and ONLY_PIP.isdisjoint(call.flags) and not call.extra:
        if call.verb == "install":
            return MANAGERS[here.kind](call, here)
        return _removed(call, here) if call.names.isdisjoint(later) else ""
    if here.kind in ("uv", "uv-project"):
        flags = [flag for flag in call.flags if flag != "-y"]
        return joined("uv", "pip", call.verb, "--python", here.python, flags, call.packages, _index(call), _backend(call.extra))
    return _plain(call, here)


def _plain(call: Call, here: Environment) -> str:
    flags = [*call.flags, *(["--break-system-packages"] if here.kind in ("image", "system") and "install" in call.verb else [])]
    return joined(here.python, "-m", "pip", call.verb, flags, call.packages, _index(call), call.extra)


def _index(call: Call) -> list[str]:
    return ["--index-url", call.index] if call.index else []


def _backend(extra: tuple[str, ...]) -> list[str]:
    """uv installs each package from the first index that has it; PyTorch's has old copies of many others."""
    words: list[str] = []
    for option, value in zip(extra[::2], extra[1::2], strict=True):
        of_torch = option == "--extra-index-url" and value.startswith(PYTORCH_INDEX)
        words += [f"--torch-backend={value.removeprefix(PYTORCH_INDEX)}"] if of_torch else [option, value]
    return words


def _pixi(call: Call, here: Environment) -> str:
    if call.index:  # pixi reads indexes only from its manifest
        return _plain(call, here)
    return joined("pixi", "add", "--manifest-path", here.folder, "--pypi", call.packages)


MANAGERS: dict[str, Callable[[Call, Environment], str]] = {"uv-project": uv, "poetry": poetry, "pipenv": pipenv, "pixi": _pixi}


def _removed(call: Call, here: Environment) -> str:
    tools = {
        "uv-project": ["uv", "remove", "--project", here.folder],
        "poetry": [*in_poetry(here), "remove"],
        "pipenv": ["pipenv", "uninstall"],
        "pixi": ["pixi", "remove", "--manifest-path", here.folder, "--pypi"],
    }
    return joined(tools[here.kind], call.packages)


def in_new(fix: Fix, command: str, here: Environment) -> Fix:
    """Installs everything in a new environment; the system's Python is unchanged."""
    calls = [call for call in map(pip.parsed, parts(command)) if call and call.verb == "install"]
    lines = [f"{IN_NEW} -m pip install {joined(call.packages, _index(call), call.extra)}" for call in calls]
    made = " && ".join([f"{joined(here.python)} -m venv {NEW}", *lines])
    verify = fix.verify.replace(joined(here.python), IN_NEW)
    title, undo = f"{fix.title}, {OWN}", f"rm -r {NEW}"
    return replace(fix, title=title, command=made, verify=verify, undo=undo, kind="install", where="here")


def restored(calls: tuple[Call, ...], here: Environment) -> str:
    """The pip calls that restore what is installed now; a build that differs only in its local version counts as the same."""
    before: dict[str, str | None] = {}
    how: dict[tuple[str, ...], list[str]] = {}
    for call in calls:
        for name in map(pip.name_of, call.packages if call.verb in ("install", "uninstall") else ()):
            before[name] = here.installed(name)
            if call.verb == "install" and before[name]:
                how.setdefault(tuple(flag for flag in call.flags if flag in ONLY_PIP), []).append(name)
    versions = [version for version in before.values() if version]
    if (
        not here.is_listed
        or not all(re.fullmatch(r"[a-z0-9][a-z0-9-]*", name) for name in before)  # a folder or an URL
        or not all(map(word, versions))
        or len(_builds(versions)) > 1
        or any(".dev" in version for version in versions)  # an index keeps nightly builds for some weeks
    ):
        return ""
    alone = [] if _fit(before) else ["--no-deps"]
    named = {name for names in how.values() for name in names}
    how.setdefault((), []).extend(name for name, version in before.items() if version and name not in named)
    lines = [joined(here.python, "-m", "pip", "uninstall", "-y", before)] if before else []
    for flags, names in sorted(how.items()):
        there = [f"{name}=={before[name]}" for name in dict.fromkeys(names)]
        every = dict.fromkeys((*flags, *alone))
        lines += [joined(here.python, "-m", "pip", "install", every, there, _index_of(there))] if there else []
    return " && ".join(lines)


def _builds(texts: Iterable[str]) -> set[str]:
    """The builds of PyTorch in local versions, such as cu128: no index has two of them."""
    return {match[1] for text in texts if (match := re.search(r"\+(cu\d+|cpu)$", text))}


def _index_of(requirements: list[str]) -> list[str]:
    """The index for builds of PyTorch with a local version, which PyPI does not have; it lacks other packages."""
    builds = _builds(requirements)
    is_whole = all("+" in text for text in requirements)
    return [f"--{'' if is_whole else 'extra-'}index-url", PYTORCH_INDEX + builds.pop()] if builds else []


def _fit(before: Mapping[str, str | None]) -> bool:
    """Whether pip accepts these releases together: torchvision and torchaudio pin their torch."""
    torch, *others = (re.match(r"(\d+)\.(\d+)", before.get(name) or "") for name in ("torch", "torchvision", "torchaudio"))
    if not torch or torch[1] != "2":
        return True
    return all(not other or int(other[2]) == int(torch[2]) + add for other, add in zip(others, (15, 0), strict=True))
