"""The commands that look at a program find what the examples have, and nothing in their mended twins."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from each import each

from gpudoctor import catalog
from gpudoctor.cli import COMMANDS

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "benchmarks"))

import examples_found  # noqa: E402

OF_JOBS = [command for command in ("watch", "profile", "hang") if command in COMMANDS]
EXPECTED = [(name, command, ids) for name, by in examples_found.EXPECTED.items() for command, ids in by.items()]


@each("row", EXPECTED, ids=lambda row: f"{row[0]} with {row[1]}")
def test_what_is_expected_is_in_the_catalog(row: tuple[str, str, tuple[str, ...]]) -> None:
    name, command, ids = row
    assert (ROOT / "examples" / f"{name}.py").exists()
    if command in OF_JOBS:
        assert set(ids) <= set(catalog.problems())
        assert all(examples_found.is_of_job(catalog.problems()[id][0].id) for id in ids)


def test_bad_input_is_one_line() -> None:
    command = [sys.executable, "benchmarks/examples_found.py", "--with", "hang", "--only", "tf32_off"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "examples_found.py: error: hang cannot see: tf32_off")


@pytest.mark.gpu
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("command", OF_JOBS)
def test_each_problem_is_found_and_the_twins_are_clean(command: str, tmp_path: Path) -> None:
    import torch

    two = {"straggler", "exposed_communication", "wrong_gpu", "rank_leaves_early"}
    names = [name for name, by in examples_found.EXPECTED.items() if by.get(command)]
    names = [name for name in names if name not in two or torch.cuda.device_count() > 1]
    if not names:
        pytest.skip("needs two GPUs")
    results = tmp_path / "results.jsonl"
    options = ["--with", command, "--twins", "--only", ",".join(names), "-o", str(results)]
    done = subprocess.run([sys.executable, "benchmarks/examples_found.py", *options], cwd=ROOT, capture_output=True, text=True)
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert done.returncode == 0, [row for row in rows if not row["is_right"]]
