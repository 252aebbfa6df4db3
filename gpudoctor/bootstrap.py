"""The program that starts a job in the examined Python, and the files that travel with it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

# Exit codes, each with words for standard error: a program that is not Python could produce either one alone.
TOO_OLD, TOO_OLD_WORDS = 79, "gpudoctor: older than Python 3.8"
NO_ROOM, NO_ROOM_WORDS = 78, "gpudoctor: no room for temporary files: "
SAFE_PATH = "gpudoctor"  # PYTHONSAFEPATH, if it was not set by the user
PLACES = ("/dev/shm", "/var/tmp")  # for the files of a job if the usual temporary folder is full or missing

_TO_MEASURE = tuple(f"gpudoctor/worker/{part}" for part in ("measuring/", "workloads/", "tracing/", "collective_"))

# Valid syntax in every Python version, so that an old one can report that it is too old. Nothing but built-in modules is imported
# before sys.path is in order: files in the current folder, or in one of PYTHONPATH, may have names of the standard library.
IMPORTS_NOTHING_HERE = """
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
for entry in sys.path:
    if entry.endswith("python%d%d.zip" % sys.version_info[:2]):
        first = sys.path.index(entry)
        sys.path[:] = sys.path[first : first + 3] + sys.path[:first] + sys.path[first + 3 :]
        break
"""
BOOTSTRAP = f"""{IMPORTS_NOTHING_HERE}
if sys.version_info < (3, 8):
    sys.stderr.write({TOO_OLD_WORDS!r})
    sys.exit({TOO_OLD})
import json, os, shutil, signal, tempfile
def end(number, frame):
    signal.signal(number, signal.SIG_IGN)  # once is enough
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
sys.dont_write_bytecode = True
if os.environ.get("PYTHONSAFEPATH") == {SAFE_PATH!r}:
    del os.environ["PYTHONSAFEPATH"]
job = json.loads(sys.stdin.readline())
def unpack(folder, sources):
    os.mkdir(folder, 0o700)
    for name, text in sources.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
places = {list(PLACES)!r}
try:
    places.insert(0, tempfile.gettempdir())
    if os.path.exists(".") and os.path.samefile(places[0], "."):  # the last resort of tempfile
        places.append(places.pop(0))
except OSError:
    pass
failures = []
try:
    import resource
    of_files = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (of_files[1], of_files[1]))
    for place in places:
        job["folder"] = os.path.join(place, "gpudoctor-" + job["marker"])
        try:
            unpack(job["folder"], job["sources"])
            break
        except OSError as failure:
            failures.append(place + ": " + str(failure.strerror))
            shutil.rmtree(job["folder"], ignore_errors=True)
    else:
        sys.stderr.write({NO_ROOM_WORDS!r} + "; ".join(failures))
        sys.exit({NO_ROOM})
    resource.setrlimit(resource.RLIMIT_FSIZE, of_files)  # what is started from here on has the user's limit
    del job["sources"]
    sys.path.insert(0, job["folder"])
    from gpudoctor.worker import main
    main.main(job)
finally:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it would cut this off
    shutil.rmtree(job["folder"], ignore_errors=True)
"""

# For a new process of the worker, in which something is different from its own: worker/measuring/again.py.
AGAIN = f"""{IMPORTS_NOTHING_HERE}
import json, os
sys.dont_write_bytecode = True
if os.environ.get("PYTHONSAFEPATH") == {SAFE_PATH!r}:
    del os.environ["PYTHONSAFEPATH"]
with open(sys.argv[1]) as file:
    job = json.load(file)
sys.path.insert(0, job["folder"])
from gpudoctor.worker.measuring import again
again.run(job)
"""


def environment(marker: str) -> dict[str, str]:
    """The variables of a Python that runs BOOTSTRAP: those of this process, and two more.

    GPUDOCTOR_JOB marks everything that the job starts. PYTHONSAFEPATH (Python 3.11+) keeps the current folder off sys.path from
    the start: Python 3.13 imports linecache before the first line of `-c`.
    """
    safe = os.environ.get("PYTHONSAFEPATH") or SAFE_PATH
    return {**os.environ, "PYTHONSAFEPATH": safe, "GPUDOCTOR_JOB": marker}


def of_job(job: dict[str, Any], sources: dict[str, str]) -> dict[str, str]:
    """Those that the job needs: without measurements half of the files, which fleets send to each node."""
    if job.keys() & {"workloads", "change"}:
        return sources
    return {name: text for name, text in sources.items() if not name.startswith(_TO_MEASURE)}


def travelling_sources() -> dict[str, str]:
    """Name -> text of the files that run in the target: the worker, and NVIDIA's NVML binding (one file)."""
    package = Path(__file__).parent
    files = sorted(file for file in (package / "worker").rglob("*") if file.suffix in (".py", ".ptx"))
    sources = {"gpudoctor/__init__.py": ""}
    sources |= {f"gpudoctor/{file.relative_to(package)}": file.read_text(encoding="utf-8") for file in files}
    binding = importlib.util.find_spec("pynvml")
    if binding and binding.origin:
        sources["pynvml.py"] = Path(binding.origin).read_text(encoding="utf-8")
    return sources
