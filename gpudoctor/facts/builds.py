"""Which CUDA toolkit a build uses, and whether PATH and the variables agree on it."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.facts import Facts
from gpudoctor.facts.toolchain import Tool, Version
from gpudoctor.model import Skip

HOME_VARIABLES = ("CUDA_HOME", "CUDA_PATH")
DEFAULT = "/usr/local/cuda"


@dataclass(frozen=True)
class Conflict:
    """nvcc on PATH has one release, and the toolkit that `name` leads to another."""

    nvcc: Tool
    name: str  # CUDA_HOME, CUDA_PATH or /usr/local/cuda
    root: str
    version: Version


def homes(facts: Facts) -> dict[str, str]:
    """CUDA_HOME and CUDA_PATH, if set."""
    return {name: value for name in HOME_VARIABLES if (value := facts.environment.get(name))}


def toolkit_version(facts: Facts, root: str) -> Version | None:
    return next((kit.version for kit in facts.toolchain.toolkits if kit.root == root), None)


def conflict(facts: Facts) -> Conflict | None:
    """The first toolkit found without PATH whose release differs from the one on PATH."""
    nvcc = facts.toolchain.nvcc
    if nvcc is None or nvcc.version is None:
        return None
    for name, root in _other_ways(facts, nvcc).items():
        version = toolkit_version(facts, root)
        if version and version[:2] != nvcc.version[:2]:
            return Conflict(nvcc, name, root, version)
    return None


def skip_conflict(facts: Facts) -> None:
    """Skips a check of the toolkit if it is not clear which toolkit is meant."""
    found = conflict(facts)
    if found:
        raise Skip(f"nvcc on PATH and {found.name} are from different releases, see toolkits", Skip.UNSUPPORTED)


def _other_ways(facts: Facts, nvcc: Tool) -> dict[str, str]:
    """The variables; without them /usr/local/cuda, unless nvcc belongs to the Python environment, which the user chose."""
    named = {name: root for name, path in homes(facts).items() if (root := facts.toolchain.root_of(path))}
    default = facts.toolchain.default_toolkit
    if named or default is None or _is_of_environment(facts, nvcc):
        return named
    return {DEFAULT: default}


def _is_of_environment(facts: Facts, nvcc: Tool) -> bool:
    prefixes = (facts.python.prefix, facts.python.conda_prefix)
    return any(prefix not in (None, "/usr", "/usr/local") and nvcc.path.startswith(f"{prefix}/") for prefix in prefixes)
