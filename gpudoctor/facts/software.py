"""The versions of what GPU programs are made with: frameworks, CUDA libraries, compiler, container engines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.versions import dotted
from gpudoctor.model import Skip, Unavailable

_FRAMEWORKS = ("jax", "tensorflow")
_PARTS = 3  # 9.10.2 of 9.10.2.21
Version = Callable[[], "str | None"]


def versions(facts: Facts) -> dict[str, str | None]:
    """Name -> version, None if it is not installed. What could not be looked for is left out."""
    return dict(_read(_readers(facts)))


def _readers(facts: Facts) -> dict[str, Version]:
    return {
        "torch": lambda: facts.python.torch_version,
        **{name: lambda name=name: _package(facts, name) for name in _FRAMEWORKS},  # type: ignore[misc]
        "cudnn": lambda: _library(facts, "cudnn"),
        "nccl": lambda: _library(facts, "nccl"),
        "nvcc": lambda: _nvcc(facts),
        "docker": lambda: _docker(facts),
        "podman": lambda: _numbers(facts.engines.podman_version) if facts.engines.podman_installed else None,
        "container_toolkit": lambda: _container_toolkit(facts),
    }


def _read(readers: dict[str, Version]) -> Iterator[tuple[str, str | None]]:
    for name, read in readers.items():
        try:
            yield name, read()
        except Unavailable as missing:
            if missing.kind == Skip.NOT_INSTALLED:
                yield name, None
        except Exception:  # a broken fact is an ERROR in the check that reads it
            continue


def _package(facts: Facts, name: str) -> str | None:
    package = facts.python.package(name)
    return package.version if package else None


def _library(facts: Facts, name: str) -> str | None:
    """In the wheels for the CUDA version of torch, in conda's package, else on the loader's path."""
    torch_cuda = known(lambda: facts.python.torch_cuda)
    major = (torch_cuda or "").partition(".")[0]
    packages = facts.python.packages
    begins = f"nvidia-{name}"
    names = sorted(each for each in packages if each.startswith(begins) and re.fullmatch(r"(-cu\d+)?", each[len(begins) :]))
    ours = [each for each in names if each.endswith(f"-cu{major}")] or names
    if ours:
        return _short(packages[ours[-1]][0].version)
    if of_conda := known(lambda: facts.python.conda_packages.get(name)):
        return _short(of_conda.version)
    found = facts.libraries.majors(f"lib{name}")
    if found and (release := found[max(found)].release):
        return _short(str(release))
    if found or torch_cuda:
        raise Unavailable(f"the version of {name} is unknown: PyTorch may contain it")
    return None


def _nvcc(facts: Facts) -> str | None:
    tool = facts.toolchain.default_nvcc
    return _numbers(tool.version) if tool else None


def _docker(facts: Facts) -> str | None:
    """ "" if it is installed and its daemon does not answer."""
    _must_see_engines(facts)
    daemon = known(lambda: facts.engines.docker)
    if daemon and daemon.reachable and not daemon.is_podman:
        return _short(daemon.version.partition("+")[0])
    return "" if facts.engines.docker_installed else None


def _container_toolkit(facts: Facts) -> str | None:
    _must_see_engines(facts)
    return _numbers(facts.engines.toolkit_version) if facts.engines.toolkit_installed else None


def _must_see_engines(facts: Facts) -> None:
    if facts.container.engine:
        raise Unavailable("the host's engines cannot be seen from a container")


def _numbers(version: tuple[int, ...] | None) -> str | None:
    return _short(dotted(version)) if version else None


def _short(version: str) -> str:
    return ".".join(version.split(".")[:_PARTS])
