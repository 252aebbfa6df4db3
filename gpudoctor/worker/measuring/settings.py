"""The settings under which a compiler is tried: first those of the user's own programs, then clean ones if it failed.

The user's folders for caches are used as they are, with all that can be wrong with them, but each gets an empty folder for us, so
that nothing of the user's is read, changed or left behind. `remove` deletes what was made, whatever became of the process.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import shutil
import sys
import tempfile
from typing import Callable, Dict, List

MADE = ".made"  # the suffix of the file that lists the folders that were made, in the order in which they are to be removed
OURS = "gpudoctor-"
# What a clean environment does not have: the compilers, their options, and where they look for files.
UNSET = (
    *("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CUDACXX", "CUDAHOSTCXX", "MAX_JOBS", "TORCH_CUDA_ARCH_LIST"),
    *("TRITON_PTXAS_PATH", "TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE", "TORCH_LOGS"),
)


def _home(*names: str) -> Callable[[], str]:
    return lambda: os.path.join(os.path.expanduser("~"), *names)


def _of_inductor() -> str:
    return os.path.join(tempfile.gettempdir(), "torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser()))


def _of_triton() -> str:
    return os.path.join(os.environ.get("TRITON_HOME") or os.path.expanduser("~"), ".triton", "cache")


def _of_extensions() -> str:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "torch_extensions")


# Where each is if the variable is not set.
CACHES: Dict[str, Callable[[], str]] = {
    "CUDA_CACHE_PATH": _home(".nv", "ComputeCache"),
    "TRITON_CACHE_DIR": _of_triton,
    "TORCHINDUCTOR_CACHE_DIR": _of_inductor,
    "TORCH_EXTENSIONS_DIR": _of_extensions,
    "CUPY_CACHE_DIR": _home(".cupy", "kernel_cache"),
    "TMPDIR": lambda: "/tmp",
}


_theirs: Dict[str, str] = {}  # the variables of the user for caches, before `as_user`


def as_user(file: str, *caches: str) -> None:
    """Puts an empty folder of ours into each of these caches of the user. If that fails, the compiler will meet the same error.

    file: of the workload, next to which the made folders are listed.
    """
    made: List[str] = []
    _theirs.update((name, os.environ[name]) for name in caches if os.environ.get(name))
    for name in caches:
        with contextlib.suppress(Exception):  # a user without a name or a home
            theirs = os.path.abspath(os.environ.get(name) or CACHES[name]())
            ours = os.path.join(theirs, "%s%d" % (OURS, os.getpid()))
            os.environ[name] = ours
            if name == "TMPDIR" and not os.path.isdir(theirs):  # no program makes it
                continue
            made += _missing(ours)
            with open(file + MADE, "w", encoding="utf-8") as opened:
                json.dump(made, opened)
            os.makedirs(ours)
    tempfile.tempdir = None  # it was chosen before
    beside_python()


def _missing(path: str) -> List[str]:
    """The folder and those above it that do not exist, the deepest first."""
    found = []
    while not os.path.lexists(path):
        found.append(path)
        path = os.path.dirname(path)
    return found


def remove(file: str) -> None:
    """Removes our folders and, if nothing else is in them, those that were made above them."""
    with contextlib.suppress(OSError, ValueError), open(file + MADE, encoding="utf-8") as opened:
        for path in json.load(opened):
            if os.path.basename(path).startswith(OURS):
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.rmdir(path)


def clean(folder: str, *caches: str) -> Dict[str, str]:
    """Replaces the user's settings by clean ones in `folder`. Returns what the user has set of them."""
    changed = {**_theirs, **{name: os.environ.pop(name) for name in UNSET if name in os.environ}}
    root = tempfile.mkdtemp(prefix="clean-", dir=folder)
    for name in caches:
        os.environ[name] = os.path.join(root, name.lower())
        os.mkdir(os.environ[name])
    tempfile.tempdir = None  # it was chosen before
    return changed


def beside_python() -> None:
    """Adds the programs next to Python to PATH, as an activated environment does (ninja)."""
    beside = os.path.dirname(sys.executable)
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if beside not in folders:
        os.environ["PATH"] = os.pathsep.join([beside, *folders])
