"""What an experiment changes, in a real child."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.judging.experiments.change import Change
from gpudoctor.judging.experiments.suspect import LIMITS, Surroundings
from gpudoctor.worker import changed

SHOWS = """
import json, os, resource, tempfile
limit, cores = resource.getrlimit(resource.RLIMIT_NOFILE), len(os.sched_getaffinity(0))
print(json.dumps([dict(os.environ), limit, tempfile.gettempdir(), cores]))
"""


def seen(change: Change, variables: Mapping[str, str], folder: Path) -> Any:
    value = change.as_value()
    run = subprocess.run(
        [sys.executable, "-c", SHOWS],
        env=changed.environment(value, {"PATH": os.environ["PATH"], **variables}, str(folder)),
        preexec_fn=lambda: changed.apply(value),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


def test_the_child_is_changed_and_nothing_else(tmp_path: Path) -> None:
    before = dict(os.environ), resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        change = Change(
            put={"NEW": "1"}, unset=("OLD",), raised=("open_files", "stack"), fresh={"TMPDIR": "/full"}, all_cores=True
        )
        variables, limit, temporary, cores = seen(change, {"OLD": "1", "TMPDIR": "/full", "KEPT": "x"}, tmp_path)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert ("OLD" in variables, variables["NEW"], variables["KEPT"]) == (False, "1", "x")
    assert variables["TMPDIR"] == temporary == str(tmp_path / "TMPDIR")
    assert limit[0] > 200
    assert cores == len(os.sched_getaffinity(0))
    assert (dict(os.environ), resource.getrlimit(resource.RLIMIT_NOFILE)) == before


def test_without_a_change_nothing_is_different(tmp_path: Path) -> None:
    variables, limit, _, _ = seen(Change(), {"OLD": "1"}, tmp_path)
    assert variables["OLD"] == "1"
    assert limit[0] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert not list(tmp_path.iterdir())


def test_fresh_folders_are_outside_those_that_they_replace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, other = tmp_path / "full", tmp_path / "other"
    full.mkdir()
    other.mkdir()
    monkeypatch.setattr(changed, "PLACES", (str(full), str(other)))
    made = changed.room(Change(fresh={"TMPDIR": str(full)}).as_value(), {"TMPDIR": str(full)})
    assert Path(made).parent == other
    made = changed.room(Change().as_value(), {"TMPDIR": str(other)}, "marker")
    assert (made, changed.room(Change().as_value(), {"TMPDIR": str(other)}, "marker")) == (
        str(other / "gpudoctor-marker"),
        str(other / "gpudoctor-marker" / "fresh"),
    )
    monkeypatch.chdir(full)
    monkeypatch.setattr(changed, "PLACES", ())
    with pytest.raises(OSError, match="no other folder"):
        changed.room(Change(fresh={"TMPDIR": str(full)}).as_value(), {"HOME": str(full)})


def test_what_is_inherited_fits_the_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    here = Surroundings(**changed.inherited())
    assert here.variables["NCCL_DEBUG"] == "INFO"
    assert "HF_TOKEN" not in here.variables
    assert here.limits.keys() == changed.LIMITS.keys() == LIMITS.keys()
    assert 0 < here.cores <= here.all_cores
    again = "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (100, 100)); r.setrlimit(r.RLIMIT_NOFILE, (200, 200))"
    assert here.raises_hard == (subprocess.run([sys.executable, "-c", again], stderr=subprocess.DEVNULL).returncode == 0)
