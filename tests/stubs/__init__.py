"""Stub vendor libraries for tests: compiled here, loaded by the real code, told by the environment how to misbehave (stub.h)."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from waiting import HOPELESS_SECONDS, until

from gpudoctor.model import Reply

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
OLDER_PYTHONS: list[Any] = sorted((Path.home() / ".pyenv/versions").glob("3.[89].*/bin/python")) or [
    pytest.param(Path(), marks=pytest.mark.skip(reason="no Python 3.8 or 3.9 in ~/.pyenv"))
]


def compile_nvml(directory: Path) -> Path:
    """Puts a libnvidia-ml.so.1 into a directory, for LD_LIBRARY_PATH."""
    return _compile("nvml.c", directory / "libnvidia-ml.so.1")


def compile_cuda(directory: Path) -> Path:
    """Puts a libcuda.so.1 into a directory, for LD_LIBRARY_PATH."""
    return _compile("cuda.c", directory / "libcuda.so.1")


def compile_working(directory: Path) -> Path:
    """Puts a libcuda.so.1 that works (working_cuda.c) into a directory, for LD_LIBRARY_PATH."""
    return _compile("working_cuda.c", directory / "libcuda.so.1")


def _compile(source: str, library: Path) -> Path:
    flags = ("-std=gnu11", "-O1", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run(["gcc", *flags, "-o", library, HERE / source], check=True)
    return library


@dataclass(frozen=True)
class Asked:
    """What a probe answered before its process ended; code is negative where a signal ended it, None where it hung."""

    replies: dict[str, Reply]
    steps: list[tuple[str, str]]  # every (question, step) that it announced
    code: int | None

    @property
    def last_step(self) -> str:
        return self.steps[-1][1]

    def value(self, question: str) -> Any:
        return self.replies[question].value


def ask(
    probe: str,
    libraries: Path,
    stub: Mapping[str, str] | None = None,
    known: Mapping[str, Any] | None = None,
    skip: Iterable[str] = (),
    python: str = sys.executable,
    hangs_in: tuple[str, str] | None = None,
) -> Asked:
    """Asks one probe in a process of its own. stub: the variables of stub.h. known: question -> value.

    hangs_in: the question and step in which it is given up, as soon as it sleeps there.
    """
    child = _start(probe, libraries, python, stub or {})
    job = json.dumps({"skip": list(skip), "known": dict(known or {})})
    if not hangs_in:
        return _asked(child.communicate(job, HOPELESS_SECONDS)[0].splitlines(), child.returncode)
    assert child.stdin
    assert child.stdout
    child.stdin.write(job)
    child.stdin.close()
    out = []
    for line in child.stdout:
        out.append(line)
        if json.loads(line).get("at") == [*hangs_in] and until(lambda: _sleeps(child.pid)):
            child.kill()
    child.stdout.close()
    return _asked(out, None if child.wait() == -signal.SIGKILL else child.returncode)


def _sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def ask_each(
    probe: str,
    libraries: Path,
    stubs: Sequence[Mapping[str, str]],
) -> list[Asked]:
    """What one probe answers under each of many settings of the stubs: a process of its own each, forked from one."""
    child = _start(probe, libraries, sys.executable, {})
    try:
        out, _ = child.communicate(json.dumps({"skip": [], "known": {}, "each": list(map(dict, stubs))}), HOPELESS_SECONDS)
    finally:
        child.kill()
        child.wait()
    found: list[Asked] = []
    lines: list[str] = []
    for line in out.splitlines():
        if "ended" in json.loads(line):
            found.append(_asked(lines, os.waitstatus_to_exitcode(json.loads(line)["ended"])))
            lines = []
        else:
            lines.append(line)
    assert len(found) == len(stubs)
    return found


def _start(probe: str, libraries: Path, python: str, stub: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, str(HERE / "child.py"), probe],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **stub, "LD_LIBRARY_PATH": str(libraries), "PYTHONPATH": _path(libraries)},
        text=True,
    )


def _asked(out: Iterable[str], code: int | None) -> Asked:
    lines = list(map(json.loads, out))
    return Asked(
        {line["question"]: Reply(**line["reply"]) for line in lines if "question" in line},
        [(line["at"][0], line["at"][1]) for line in lines if "at" in line],
        code,
    )


def _path(libraries: Path) -> str:
    """Our sources, and nvidia-ml-py as it travels: one file and nothing beside it."""
    binding = importlib.util.find_spec("pynvml")
    assert binding
    assert binding.origin
    shutil.copy(binding.origin, libraries / "pynvml.py")
    return f"{ROOT}{os.pathsep}{libraries}"
