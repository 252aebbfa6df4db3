"""The lines that set a variable: found in the usual files, without values, and without lines that only read it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpudoctor.worker.probes import sources
from gpudoctor.worker.probes.machine import Machine

NAMES = ["NCCL_P2P_DISABLE", "LD_LIBRARY_PATH"]
SETS = """
export NCCL_P2P_DISABLE=1
NCCL_P2P_DISABLE="1"
  NCCL_P2P_DISABLE=1 python train.py
setenv NCCL_P2P_DISABLE 1
set -gx NCCL_P2P_DISABLE 1
Environment="NCCL_P2P_DISABLE=1"
DefaultEnvironment=A=1 NCCL_P2P_DISABLE=1
setenv("NCCL_P2P_DISABLE", "1")
prepend-path LD_LIBRARY_PATH /opt/x
ENV NCCL_P2P_DISABLE 1
import os; os.environ['NCCL_P2P_DISABLE'] = '1'
import os; os.environ.setdefault("NCCL_P2P_DISABLE", "1")
"""
SETS_NOT = """
# export NCCL_P2P_DISABLE=1
unset NCCL_P2P_DISABLE
echo $NCCL_P2P_DISABLE = 1
if [ "$NCCL_P2P_DISABLE" = 1 ]; then
[ -n "$NCCL_P2P_DISABLE" ] && true
export OTHER=$NCCL_P2P_DISABLE
MY_NCCL_P2P_DISABLE=1
NCCL_P2P_DISABLE_NOT=1
if os.environ["NCCL_P2P_DISABLE"] == "1":
"""


def written(root: Path, path: str, text: str) -> str:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return path


@pytest.mark.parametrize("line", SETS.strip().splitlines())
def test_a_line_that_sets_it_is_found(line: str, tmp_path: Path) -> None:
    path = written(tmp_path, "/etc/profile.d/a.sh", f"# first\n{line}\n")
    found = sources.found(Machine(str(tmp_path)), NAMES, [path])
    assert list(found.values()) == [["/etc/profile.d/a.sh:2"]]


@pytest.mark.parametrize("line", SETS_NOT.strip().splitlines())
def test_a_line_that_only_reads_it_is_not(line: str, tmp_path: Path) -> None:
    path = written(tmp_path, "/etc/profile.d/a.sh", f"{line}\n")
    assert sources.found(Machine(str(tmp_path)), NAMES, [path]) == {}


def test_values_stay_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_P2P_DISABLE", "secret-value")
    monkeypatch.setenv("HOME", "/home/u")
    written(tmp_path, "/home/u/.bashrc", "export NCCL_P2P_DISABLE=secret-value\n")
    _, reply = next(sources.ask(Machine(str(tmp_path))))
    assert reply.value["NCCL_P2P_DISABLE"] == ["/home/u/.bashrc:1"]
    assert "secret" not in json.dumps(vars(reply))


def test_containers_and_conda_set_variables_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "/.dockerenv", "")
    written(tmp_path, "/proc/1/environ", "PATH=/bin\0NCCL_P2P_DISABLE=1\0")
    monkeypatch.setenv("CONDA_PREFIX", "/opt/conda")
    written(tmp_path, "/opt/conda/conda-meta/state", json.dumps({"env_vars": {"LD_LIBRARY_PATH": "/x", "OTHER": "1"}}))
    found = sources.found(Machine(str(tmp_path)), NAMES, [])
    assert found == {"NCCL_P2P_DISABLE": ["start of the container"], "LD_LIBRARY_PATH": ["conda env config vars"]}


def test_what_cannot_be_read_or_is_no_file_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    written(tmp_path, "/large", "export NCCL_P2P_DISABLE=1\n" * 20_000)
    (tmp_path / "broken").write_bytes(b"\xff\xfeexport \x00 NCCL_P2P_DISABLE=1\n")
    paths = ["/pipe", "/folder", "/large", "/missing", "/broken"]
    assert sources.found(Machine(str(tmp_path)), NAMES, paths) == {"NCCL_P2P_DISABLE": ["/broken:1"]}
