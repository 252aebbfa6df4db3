"""How each tool installs a release that `gpudoctor plan` chose: wheels of PyPI or of PyTorch's index, with all tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudoctor.judging.python.installable import Option

Writer = Callable[["Option", str], list[str]]


def _pip(option: Option, python: str) -> list[str]:
    return [option.command]


def _uv(option: Option, python: str) -> list[str]:
    """In an environment, or as a dependency of a project."""
    add = f"uv add {_quoted(option)}" + (f" --index pytorch-{option.build}={option.index}" if option.index else "")
    return [f"uv {option.command}", f"# in a project: {add}"]


def _conda(option: Option, python: str) -> list[str]:
    """A file for conda env create -f; mamba and micromamba read it, too."""
    index = [f"      - --index-url {option.index}"] if option.index else []
    lines = ["name: gpu", "channels: [conda-forge]", "dependencies:", f"  - python={python}", "  - pip", "  - pip:"]
    return [*lines, *index, f"      - {option.requirement}"]


def _pixi(option: Option, python: str) -> list[str]:
    """Tables of pixi.toml."""
    name, _, rest = option.requirement.partition("==")
    bare, _, extras = name.rstrip("]").partition("[")
    fields = [f'version = "=={rest}"']
    if extras:
        fields.append("extras = [" + ", ".join(f'"{extra}"' for extra in extras.split(",")) + "]")
    if option.index:
        fields.append(f'index = "{option.index}"')
    return [
        "[dependencies]",
        f'python = "{python}.*"' if python.count(".") == 1 else f'python = "{python}"',
        "",
        "[pypi-dependencies]",
        f"{bare} = {{ {', '.join(fields)} }}",
    ]


def _dockerfile(option: Option, python: str) -> list[str]:
    """Without an image of CUDA, since the wheels bring its libraries."""
    install = option.command.replace("pip install", "pip install --no-cache-dir", 1)
    minor = ".".join(python.split(".")[:2])
    return [
        f"FROM python:{minor}-slim",
        "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        f"RUN {install}",
    ]


def _quoted(option: Option) -> str:
    return f"'{option.requirement}'" if "[" in option.requirement else option.requirement


TOOLS: Mapping[str, Writer] = {"pip": _pip, "uv": _uv, "conda": _conda, "pixi": _pixi, "dockerfile": _dockerfile}
