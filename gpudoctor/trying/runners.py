"""The Python of programs that run a command in an environment: uv run, conda run, poetry run, pixi run, pipenv run.

Found without starting them, except for Poetry and Pipenv if they keep environments outside the project. The environment may not
exist yet: the command itself makes it.

https://docs.astral.sh/uv/concepts/projects/run/
https://docs.conda.io/projects/conda/en/stable/commands/run.html
https://pixi.sh/latest/reference/cli/pixi/run/
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

SECONDS = 10.0
_INLINE = b"# /// script"
_UV_VALUES = {
    *("--project", "--directory", "--with", "--with-editable", "--with-requirements", "-w", "-p", "--python", "--package"),
    *("--extra", "--no-extra", "--group", "--no-group", "--only-group", "--env-file", "--config-file", "--cache-dir"),
    *("--index", "--default-index", "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-P", "-C"),
}
_CONDA_VALUES = {"-n", "--name", "-p", "--prefix", "--cwd"}
_PIXI_VALUES = {"-e", "--environment", "--manifest-path", "-m"}

Variables = Mapping[str, str]


def python_of(name: str, words: Sequence[str], variables: Variables) -> str | None:
    """name: of the program. words: what follows it. None if it is no such runner, or if its environment is not known."""
    found = _RUNNERS.get(name)
    if not found or "run" not in words[:1]:
        return None
    folder = found(words[1:], variables)
    return str(folder / "bin" / "python") if folder else None


def _options(words: Sequence[str], with_value: set[str]) -> tuple[dict[str, str], list[str]]:
    """The options before the command, and the command."""
    options, rest = {}, list(words)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        name, sign, value = rest.pop(0).partition("=")
        options[name] = value if sign else rest.pop(0) if name in with_value and rest else ""
    return options, rest[1:] if rest[:1] == ["--"] else rest


def _above(start: Path) -> Iterator[Path]:
    yield from (start, *start.parents)


def _project(start: Path, *names: str) -> Path | None:
    """The nearest folder with one of the files."""
    return next((folder for folder in _above(start.absolute()) if any((folder / name).is_file() for name in names)), None)


def _uv(words: Sequence[str], variables: Variables) -> Path | None:
    options, command = _options(words, _UV_VALUES)
    here = Path(options.get("--directory", "."))
    if not options.keys().isdisjoint(("--with", "--with-editable", "--with-requirements", "--isolated", "-w")):
        return None  # it is made for this run alone
    if command and command[0].endswith(".py") and _has_inline_metadata(here / command[0]):
        return None
    active = variables.get("VIRTUAL_ENV")
    if "--active" in options and active:
        return Path(active)
    project = None if "--no-project" in options else _project(here / options.get("--project", "."), "pyproject.toml")
    if project:
        return project / variables.get("UV_PROJECT_ENVIRONMENT", ".venv")
    if active:
        return Path(active)
    return next((folder / ".venv" for folder in _above(here.absolute()) if (folder / ".venv").is_dir()), None)


def _has_inline_metadata(script: Path) -> bool:
    try:
        return _INLINE in script.read_bytes()[: 1 << 16]
    except OSError:
        return False


def _conda(words: Sequence[str], variables: Variables) -> Path | None:
    options, _ = _options(words, _CONDA_VALUES)
    prefix, name = (options.get(short) or options.get(long) for short, long in (("-p", "--prefix"), ("-n", "--name")))
    if prefix:
        return Path(prefix).absolute()
    if not name:
        return Path(variables["CONDA_PREFIX"]) if variables.get("CONDA_PREFIX") else None
    roots = list(_roots_of_conda(variables))
    if name in ("base", "root"):
        return next(iter(roots), None)
    folders = [Path(folder) for folder in variables.get("CONDA_ENVS_PATH", "").split(":") if folder]
    folders += [root / "envs" for root in roots]
    folders += [Path(variables["HOME"]) / ".conda" / "envs"] if variables.get("HOME") else []
    return next((folder / name for folder in folders if (folder / name).is_dir()), None)


def _roots_of_conda(variables: Variables) -> Iterator[Path]:
    if root := variables.get("MAMBA_ROOT_PREFIX"):
        yield Path(root)
    if program := variables.get("CONDA_EXE"):
        yield Path(program).parent.parent
    if prefix := variables.get("CONDA_PREFIX"):
        inner = Path(prefix)
        yield inner.parent.parent if inner.parent.name == "envs" else inner


def _pixi(words: Sequence[str], variables: Variables) -> Path | None:
    options, _ = _options(words, _PIXI_VALUES)
    manifest = options.get("--manifest-path") or options.get("-m") or variables.get("PIXI_PROJECT_MANIFEST")
    start = Path(manifest) if manifest else Path()
    project = _project(start.parent if start.is_file() else start, "pixi.toml", "pyproject.toml")
    name = options.get("-e") or options.get("--environment") or "default"
    return project / ".pixi" / "envs" / name if project else None


def _poetry(words: Sequence[str], variables: Variables) -> Path | None:
    return _in_project("pyproject.toml") or _asked(("poetry", "env", "info", "--path"), variables)


def _pipenv(words: Sequence[str], variables: Variables) -> Path | None:
    return _in_project("Pipfile") or _asked(("pipenv", "--venv"), variables)


def _in_project(name: str) -> Path | None:
    project = _project(Path(), name)
    return project / ".venv" if project and (project / ".venv").is_dir() else None


def _asked(argv: Sequence[str], variables: Variables) -> Path | None:
    """The folder that the program prints."""
    try:
        done = subprocess.run(
            argv, env=dict(variables), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    folder = done.stdout.strip().rpartition("\n")[2]
    return Path(folder) if done.returncode == 0 and folder.startswith("/") else None


_RUNNERS: Mapping[str, Callable[[Sequence[str], Variables], Path | None]] = {
    "uv": _uv,
    "conda": _conda,
    "mamba": _conda,
    "micromamba": _conda,
    "pixi": _pixi,
    "poetry": _poetry,
    "pipenv": _pipenv,
}
