"""A suspect: one thing that can be taken away from a program's surroundings; and the surroundings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

VARIABLE = "variable"  # name: the variable; it is unset
ENTRY = "entry"  # name: a variable with a list of paths; value: the entry that is removed from it
USER_SITE = "user-site"  # value: the folder that Python no longer searches
CURRENT_FOLDER = "current-folder"  # value: the folder of the program, which Python no longer searches
LIMIT = "limit"  # name: a key of LIMITS; value: the soft limit, which is raised
FOLDER = "folder"  # name: the variable that names it; value: the folder, replaced by a fresh private one
AFFINITY = "affinity"  # value: the number of CPU cores that the program may use; it may use all
GPU = "gpu"  # name: the variable that lists GPUs; value: the one that is removed from it
SETTING = "setting"  # name: a variable; value: what it is set to where the program works; it is set to that
PATH_OF_GPUS = "path-of-gpus"  # name: the variable of NCCL that leaves a path between GPUs out; value: what it is set to
HIDDEN = "…"  # instead of a value that may be private
KINDS = (VARIABLE, ENTRY, USER_SITE, CURRENT_FOLDER, LIMIT, FOLDER, AFFINITY, GPU, SETTING, PATH_OF_GPUS)

PATHS = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PATH")
"""Variables whose entries are taken away one by one."""

PATHS_OF_GPUS = {
    "NCCL_P2P_DISABLE": "direct access between GPUs (NVLink, PCIe)",
    "NCCL_SHM_DISABLE": "NCCL's shared memory",
    "NCCL_IB_DISABLE": "InfiniBand or RoCE",
}
"""What NCCL uses unless this variable is 1: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"""

# The names of limits, and what `ulimit` and people call them.
LIMITS = {
    "open_files": "open files (ulimit -n)",
    "processes": "processes and threads (ulimit -u)",
    "memlock": "locked memory (ulimit -l)",
    "address_space": "address space (ulimit -v)",
    "data": "data segment (ulimit -d)",
    "file_size": "file size (ulimit -f)",
    "cpu_seconds": "CPU time (ulimit -t)",
    "stack": "stack size (ulimit -s)",
}
Limit = tuple[int | None, int | None]  # soft and hard, in bytes, seconds or pieces; None is unlimited


@dataclass(frozen=True)
class Suspect:
    """reason: why it is suspected, as the end of a sentence. weight: how likely it is, compared with the other suspects."""

    kind: str
    name: str
    value: str
    reason: str = ""
    weight: int = 1

    def __str__(self) -> str:
        """The name that a person gives it."""
        if self.kind == ENTRY:
            return f"{self.value} in {self.name}"
        if self.kind == LIMIT:
            return f"the limit on {LIMITS.get(self.name, self.name)} of {self.value}"
        if self.kind == FOLDER:
            return f"the folder {self.value} ({self.name})"
        if self.kind == USER_SITE:
            return f"the user's site-packages {self.value}"
        if self.kind == CURRENT_FOLDER:
            return f"the current folder {self.value} on sys.path"
        if self.kind == AFFINITY:
            return f"the CPU affinity ({self.value} cores)"
        if self.kind == PATH_OF_GPUS:
            return PATHS_OF_GPUS.get(self.name, self.name)
        if self.kind == SETTING:
            return f"another {self.name} than {self.value}"
        return f"{self.name}={self.value}"

    def as_value(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Suspect:
        """One of facts.guarded.WRONG if it is not the value of a suspect."""
        if value["kind"] not in KINDS:
            raise ValueError(f"no kind of suspect: {value['kind']!r}")
        kind, name, inherited = (str(value[key]) for key in ("kind", "name", "value"))
        if kind == LIMIT and name not in LIMITS:
            raise ValueError(f"no limit: {name!r}")
        return cls(kind, name, inherited, str(value.get("reason", "")), int(value.get("weight", 1)))


@dataclass(frozen=True)
class Surroundings:
    """What a program inherits: all that can be taken away from it.

    limits: keys of LIMITS. raises_hard: it may raise hard limits (CAP_SYS_RESOURCE). user_site: the user's site-packages, if
    Python searches them. current_folder: the folder that Python searches first, if any. cores, all_cores: how many CPU cores it
    may use, and how many there are. gpus: the GPUs that CUDA lists to it, as CUDA_VISIBLE_DEVICES names them. python: the folder
    of its Python, which stays in PATH.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, Limit] = field(default_factory=dict)
    raises_hard: bool = False
    user_site: str = ""
    current_folder: str = ""
    cores: int = 0
    all_cores: int = 0
    gpus: tuple[str, ...] = ()
    python: str = ""
