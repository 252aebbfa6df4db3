"""What Python would import from the current folder instead of packages and the standard library: names of files only."""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from typing import Any, Dict, Iterator, List, Optional, Tuple

from gpudoctor.worker.probes.interpreter import import_path
from gpudoctor.worker.probes.machine import Machine

MOST_ENTRIES = 10000
SUFFIXES = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)
INIT = "__init__.py"  # a folder without it hides no package


def hiding(machine: Machine) -> Dict[str, Any]:
    """{"folder", "hides": [{"module", "file", "hidden"}]}; hidden: a folder of sys.path, "" for a module of Python itself.

    Programs are not started in a package: there, files may have names of modules.
    """
    if machine.root != "/":
        raise FileNotFoundError("only a running process has a current folder")
    folder = os.getcwd()
    others = [other for other in import_path() if os.path.isdir(other)]
    if os.path.realpath(folder) in map(os.path.realpath, others) or os.path.exists(os.path.join(folder, INIT)):
        return {"folder": folder, "hides": []}
    found = ((module, file, _hidden(module, others)) for module, file in _modules(folder))
    hides = [{"module": module, "file": file, "hidden": hidden} for module, file, hidden in found if hidden is not None]
    return {"folder": folder, "hides": hides}


def _modules(folder: str) -> Iterator[Tuple[str, str]]:
    with os.scandir(folder) as entries:
        listed = [entry.path for _, entry in zip(range(MOST_ENTRIES), entries)]
    for path in sorted(listed):
        name = os.path.basename(path)
        suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
        if suffix and name != INIT:
            yield name[: -len(suffix)], path
        elif name.isidentifier() and os.path.isfile(os.path.join(path, INIT)):
            yield name, path


def _hidden(module: str, others: List[str]) -> Optional[str]:
    """None if nothing is hidden. Modules within the interpreter itself are not searched for."""
    if module in sys.builtin_module_names:
        return None
    if module in getattr(sys, "stdlib_module_names", ()):  # Python 3.10
        return ""
    there = (other for other in others if os.path.isdir(os.path.join(other, module)) or _is_file(os.path.join(other, module)))
    return next(there, None)


def _is_file(path: str) -> bool:
    return any(os.path.isfile(path + suffix) for suffix in SUFFIXES)
