"""What the kernel counts in cgroups: of both versions, and of a child that it really kills."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.worker.measuring import cgroup_events

V1 = Path("/sys/fs/cgroup/memory")


def counted(root: Path, own: str, **files: str) -> dict[str, int]:
    (root / "own").write_text(own)
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = cgroup_events.counters(str(root), str(root / "own"))
    return {os.path.relpath(path, root): count for (path, _), (count, _) in found.items()}


def test_version_2_has_all_in_one_folder(tmp_path: Path) -> None:
    events = {"job__memory_dot_events": "low 0\nmax 7\noom 2\noom_kill 1\n", "job__pids_dot_events": "max 3\n"}
    assert counted(tmp_path, "0::/job\n", **events) == {"job/memory.events": 1, "job/pids.events": 3}


def test_version_1_has_a_folder_for_each_controller(tmp_path: Path) -> None:
    events = {"memory__job__memory_dot_oom_control": "under_oom 0\noom_kill 4\n", "pids__pids_dot_events": "max 0\n"}
    found = counted(tmp_path, "9:memory:/job\n8:pids:/\n", **events)
    assert found == {"memory/job/memory.oom_control": 4, "pids/pids.events": 0}


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    assert counted(tmp_path, "no cgroup", memory_dot_events="oom_kill many\n") == {}
    assert cgroup_events.counters(str(tmp_path), str(tmp_path / "missing")) == {}


def test_only_what_is_new_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").write_text("0::/\n")
    events = tmp_path / "memory.events"
    events.write_text("oom_kill 1\n")
    read = cgroup_events.counters
    monkeypatch.setattr(cgroup_events, "counters", lambda: read(str(tmp_path), str(tmp_path / "own")))
    before = cgroup_events.counters()
    assert cgroup_events.since(before) == ""
    events.write_text("oom_kill 2\n")
    assert cgroup_events.since(before).startswith("; the kernel killed a process of this cgroup for lack of memory (oom_kill in ")


@pytest.fixture
def small() -> Iterator[Path]:
    """A cgroup with little memory."""
    group = V1 / f"gpudoctor-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError as why:
        pytest.skip(f"no cgroup can be made here: {why}")
    yield group
    group.rmdir()


KILLED = """
import os, subprocess, sys
from gpudoctor.worker.measuring import cgroup_events
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
before = cgroup_events.counters()
subprocess.run([sys.executable, "-c", "x = b'x' * (512 << 20)"])
print(cgroup_events.since(before))
"""


def test_a_child_that_the_kernel_kills_is_counted(small: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(small)], capture_output=True, text=True, check=True)
    assert "for lack of memory" in done.stdout
