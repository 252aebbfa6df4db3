"""Runs other programs (compilers, profilers) with a time limit, and finds them in their usual folders."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from typing import Dict, List, NamedTuple, Optional

from gpudoctor.worker import FOLDER
from gpudoctor.worker.captured import MOST_BYTES

KEPT = 6000  # characters of a program's output
TOLD = re.compile(r"error|fatal|cannot|not found|no such|undefined|unsupported|not supported|denied", re.IGNORECASE)


class Ran(NamedTuple):
    """How a program ended. code: None if it was killed after its time. output: stdout and stderr together."""

    code: Optional[int]
    output: str
    seconds: float


def run(command: List[str], seconds: float, folder: str, **environment: str) -> Ran:
    """Runs a command in `folder`, which is also its TMPDIR, without input and with English messages."""
    environment = {**os.environ, "TMPDIR": folder, "LC_ALL": "C", **environment}
    began = time.monotonic()
    with tempfile.TemporaryFile(dir=folder) as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, env=environment)
        code: Optional[int] = None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            for pid in [*descendants(process.pid), process.pid]:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
        output.seek(0)
        return Ran(code, output.read(MOST_BYTES).decode("utf-8", "replace"), round(time.monotonic() - began, 3))


def descendants(pid: int) -> List[int]:
    """The processes that a process started, and those that they started."""
    children = [int(found) for found in os.listdir("/proc") if found.isdigit() and _parent(found) == pid]
    return [*children, *(other for child in children for other in descendants(child))]


def _parent(pid: str) -> int:
    with contextlib.suppress(OSError, IndexError), open("/proc/%s/stat" % pid, encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[1])
    return 0


class Printed:
    """Captures what this process and its children print to stderr from here on, if stderr is a file."""

    def __init__(self) -> None:
        sys.stderr.flush()
        self._position = os.fstat(2).st_size

    def text(self) -> str:
        sys.stderr.flush()
        if not stat.S_ISREG(os.fstat(2).st_mode):
            return ""
        with open("/proc/self/fd/2", "rb") as file:
            file.seek(self._position)
            return file.read().decode("utf-8", "replace")


def python_environment() -> Dict[str, str]:
    """The environment for a program that runs this Python with these files: finds them, and writes no bytecode next to them."""
    folders = [FOLDER, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(folders), "PYTHONDONTWRITEBYTECODE": "1"}


def find(name: str, *patterns: str) -> Optional[str]:
    """A program on PATH, else the first file that matches a pattern; of several versions the newest."""
    places = [path for pattern in patterns for path in sorted(glob.glob(pattern), key=numbers, reverse=True)]
    return shutil.which(name) or next((path for path in places if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def numbers(path: str) -> List[int]:
    """The numbers in a path; they sort like versions."""
    return [int(number) for number in re.findall(r"\d+", path)]


def nvcc() -> Optional[str]:
    """The nvcc that a build uses, else one from a toolkit or NVIDIA's wheels."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    roots = [*map(glob.escape, homes), "/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda", *in_wheels("cu[0-9]*", "cuda_nvcc")]
    return find("nvcc", *(os.path.join(root, "bin", "nvcc") for root in roots))


def in_wheels(*names: str) -> List[str]:
    """Patterns for the folders of NVIDIA's wheels."""
    return [os.path.join(glob.escape(site), "nvidia", name) for site in sys.path if os.path.isabs(site) for name in names]


def essence(text: str) -> str:
    """The beginning, the lines with errors, and the end of a long text."""
    text = text.strip()
    if len(text) <= KEPT:
        return text
    share = KEPT // 3
    told = "\n".join(line for line in text[share:-share].splitlines() if TOLD.search(line))
    return "\n...\n".join((text[:share], told[:share], text[-share:]))
