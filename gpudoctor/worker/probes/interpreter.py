"""The Python that runs this probe: its version, folders and headers, and where it looks for packages."""

from __future__ import annotations

import os
import platform
import site
import sys
import sysconfig
from importlib.util import find_spec
from typing import Any, Dict, Iterator, List, Optional

from gpudoctor.worker import FOLDER
from gpudoctor.worker.paths import project_folder
from gpudoctor.worker.probes.machine import Answer, Machine

# Files of the tools that manage an environment for a project, next to it.
PROJECT_FILES = ("uv.lock", "poetry.lock", "Pipfile", "pdm.lock", "pixi.lock")


def ask(machine: Machine) -> Iterator[Answer]:
    """`interpreter`: what this Python reports about itself."""
    yield "interpreter", machine.call(lambda: _interpreter(machine))


def import_path() -> List[str]:
    """The folders of sys.path, each once, without the temporary folder of the worker's files."""
    carried = os.path.basename(FOLDER) not in ("site-packages", "dist-packages")
    # By real path: in a venv on Fedora lib64 is a link to lib, and every package would be found twice on sys.path.
    seen = {os.path.realpath(FOLDER)} if carried else set()
    folders = []
    for folder in sys.path:
        real = os.path.realpath(folder)
        if os.path.isabs(folder) and real not in seen:
            seen.add(real)
            folders.append(folder)
    return folders


def conda_prefix(machine: Machine) -> Optional[str]:
    """The conda environment of this Python or, in a venv, of the Python that made it."""
    for prefix in (sys.prefix, sys.base_prefix):
        if os.path.isdir(machine.path(os.path.join(prefix, "conda-meta"))):
            return prefix
    return None


def _interpreter(machine: Machine) -> Dict[str, Any]:
    # The scheme that Triton uses; Debian's default scheme names a different folder from the one that python3-dev fills:
    # https://github.com/triton-lang/triton/blob/main/python/triton/runtime/build.py
    include = sysconfig.get_path("include", "posix_prefix")
    standard_library = sysconfig.get_path("stdlib", "posix_prefix")
    return {
        "executable": sys.executable,
        "version": list(sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "conda_prefix": conda_prefix(machine),
        "libc": _libc(),
        "machine": os.uname().machine,
        "include": include,
        "python_h": os.path.isfile(machine.path(os.path.join(include, "Python.h"))),
        "path": import_path(),
        "user_site": site.getusersitepackages(),
        "user_site_enabled": bool(site.ENABLE_USER_SITE),
        "externally_managed": os.path.isfile(machine.path(os.path.join(standard_library, "EXTERNALLY-MANAGED"))),
        "abi_flags": getattr(sys, "abiflags", ""),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "has_ctypes": find_spec("_ctypes") is not None,
        "venv_settings": _venv_settings(machine),
        "project_files": [name for name in PROJECT_FILES if _is_file(machine, os.path.join(project_folder(sys.prefix), name))],
        "markers": _markers(),
    }


def _venv_settings(machine: Machine) -> List[str]:
    """The names of the settings in pyvenv.cfg; a tool that made the environment adds its own."""
    try:
        lines = machine.read(os.path.join(sys.prefix, "pyvenv.cfg")).splitlines()
    except OSError:
        return []
    return sorted(line.partition("=")[0].strip() for line in lines if "=" in line)


def _is_file(machine: Machine, path: str) -> bool:
    return os.path.isfile(machine.path(path))


def _libc() -> List[str]:
    """["glibc", "2.36"], or what `platform` reports for another C library."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (ValueError, OSError):  # not glibc
        return list(platform.libc_ver())


def _markers() -> Dict[str, str]:
    """The environment that requirement markers are evaluated in: https://peps.python.org/pep-0508/#environment-markers"""
    system = os.uname()  # platform.uname() starts a process in Python 3.8
    return {
        "implementation_name": sys.implementation.name,
        "implementation_version": _implementation_version(),
        "os_name": os.name,
        "platform_machine": system.machine,
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": system.release,
        "platform_system": system.sysname,
        "platform_version": system.version,
        "python_full_version": platform.python_version(),
        "python_version": "{}.{}".format(*sys.version_info[:2]),
        "sys_platform": sys.platform,
    }


def _implementation_version() -> str:
    version = sys.implementation.version
    text = "{0.major}.{0.minor}.{0.micro}".format(version)
    return text if version.releaselevel == "final" else f"{text}{version.releaselevel[0]}{version.serial}"
