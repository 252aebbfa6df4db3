"""What a program inherits, and how a child gets something else: see judging/experiments/suspect.py and change.py."""

from __future__ import annotations

import contextlib
import os
import resource
import site
import sys
import tempfile
from typing import Any, Dict, List, Mapping

from gpudoctor.worker.probes.environment import PRIVATE

LIMITS = {
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "memlock": resource.RLIMIT_MEMLOCK,
    "address_space": resource.RLIMIT_AS,
    "data": resource.RLIMIT_DATA,
    "file_size": resource.RLIMIT_FSIZE,
    "cpu_seconds": resource.RLIMIT_CPU,
    "stack": resource.RLIMIT_STACK,
}
# An unlimited stack changes the layout of memory; more open files than this need a higher fs.nr_open.
MOST = {"stack": 64 << 20, "open_files": 1 << 20}
PLACES = ("/tmp", "/var/tmp", "/dev/shm")
ROOM_BYTES = 64 << 20
CAP_SYS_RESOURCE = 24  # raises hard limits: capabilities(7)


def inherited() -> Dict[str, Any]:
    """What this process inherited, by the names of Surroundings; without variables that can be secret."""
    user_site = site.getusersitepackages()
    return {
        "variables": {name: value for name, value in os.environ.items() if not PRIVATE.search(name.upper())},
        "limits": {name: tuple(map(amount, resource.getrlimit(number))) for name, number in LIMITS.items()},
        "raises_hard": _raises_hard(),
        "user_site": user_site if user_site in sys.path else "",
        "cores": len(os.sched_getaffinity(0)),
        "all_cores": os.cpu_count() or 0,
        "python": os.path.join(sys.prefix, "bin"),
    }


def _raises_hard() -> bool:
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            mask = next(line.split()[1] for line in status if line.startswith("CapEff:"))
        return bool(int(mask, 16) >> CAP_SYS_RESOURCE & 1)
    except (OSError, StopIteration, ValueError):
        return False


def environment(change: Mapping[str, Any], variables: Mapping[str, str], folder: str) -> Dict[str, str]:
    """These variables with the change. Fresh folders are made below `folder`. OSError if that is not possible."""
    changed = {name: value for name, value in variables.items() if name not in change["unset"]}
    changed.update(change["put"])
    for name in change["fresh"]:
        changed[name] = os.path.join(folder, name)
        os.makedirs(changed[name], mode=0o700, exist_ok=True)
    return changed


def apply(change: Mapping[str, Any]) -> None:
    """Raises limits of this process as far as it may, and gives it all CPU cores."""
    for name in change["raised"]:
        raise_limit(name)
    if change["all_cores"]:
        with contextlib.suppress(OSError, AttributeError):  # a cpuset can leave out some of them
            os.sched_setaffinity(0, range(os.cpu_count() or 1))


def raise_limit(name: str) -> None:
    number = LIMITS[name]
    hard = resource.getrlimit(number)[1]
    for highest in (MOST.get(name, resource.RLIM_INFINITY), hard):
        with contextlib.suppress(OSError, ValueError):  # beyond the hard limit without CAP_SYS_RESOURCE
            resource.setrlimit(number, (highest, hard if _fits(highest, hard) else highest))
            return


def room(change: Mapping[str, Any], variables: Mapping[str, str], marker: str = "") -> str:
    """A new private folder for fresh folders, outside those that they replace, where there is room and files can be run.

    OSError if no place is writable. The caller removes it. marker: of a job, which removes folders named after it.
    """
    replaced = [os.path.realpath(folder) for folder in change["fresh"].values()]
    found = [place for place in _places(variables) if not any(_is_in(place, folder) for folder in replaced)]
    failure = OSError("no other folder for temporary files")
    for place in sorted(found, key=_is_poor):
        try:
            return (
                _made(os.path.join(place, "gpudoctor-" + marker)) if marker else tempfile.mkdtemp(prefix="gpudoctor-", dir=place)
            )
        except OSError as why:
            failure = why
    raise failure


def _made(path: str) -> str:
    """A new folder; inside the job's own one, if that is it."""
    path = os.path.join(path, "fresh") if os.path.isdir(path) else path
    os.mkdir(path, 0o700)
    return path


def _places(variables: Mapping[str, str]) -> List[str]:
    named = [variables.get("TMPDIR"), *PLACES, variables.get("HOME"), os.getcwd()]
    return [place for place in dict.fromkeys(filter(None, named)) if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK)]


def _is_poor(place: str) -> bool:
    about = os.statvfs(place)
    return bool(about.f_flag & os.ST_NOEXEC) or about.f_bavail * about.f_frsize < ROOM_BYTES or not about.f_favail


def _is_in(place: str, folder: str) -> bool:
    return os.path.realpath(place) == folder or os.path.realpath(place).startswith(folder + os.sep)


def _fits(highest: int, hard: int) -> bool:
    return hard == resource.RLIM_INFINITY or (highest != resource.RLIM_INFINITY and highest <= hard)


def amount(value: int) -> Any:
    return None if value == resource.RLIM_INFINITY else value
