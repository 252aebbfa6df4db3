"""Each example is one small broken program with its mended twin; both run, and on a GPU the twin does better."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from each import each
from waiting import HOPELESS_SECONDS

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
SHARED = {"loop", "pairs"}
MOST_LINES = 45
CLEARLY = 1.1  # times better: what a figure of less than a second shows without doubt
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


pairs = load(EXAMPLES / "pairs.py")
NAMES = [pair.name for pair in pairs.PAIRS]


def test_every_program_belongs_to_a_pair() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SHARED, *NAMES, *(f"{name}_mended" for name in NAMES)}


@each("pair", pairs.PAIRS, ids=lambda pair: pair.name)
def test_a_pair_says_what_is_wrong_and_what_mends_it(pair: Any) -> None:
    texts = {name: (EXAMPLES / f"{name}.py").read_text() for name in (pair.name, pair.mended)}
    said = {name: ast.get_docstring(ast.parse(text)) or "" for name, text in texts.items()}
    assert all(len(text.splitlines()) <= MOST_LINES for text in texts.values())
    assert "\nProblem: " in said[pair.name]
    assert not said[pair.name].startswith("Mended")
    assert said[pair.mended].startswith("Mended: ")
    assert f"({pair.name}.py)" in said[pair.mended]
    assert texts[pair.name].split('"""')[2] != texts[pair.mended].split('"""')[2]


def test_the_readme_lists_every_pair() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    assert [name for name in NAMES if f"| `{name}.py` |" not in readme] == []


def benchmark(*options: str, seconds: float, limit: float) -> list[dict[str, Any]]:
    """The rows of the pairs."""
    command = [sys.executable, "benchmarks/examples.py", "--seconds", str(seconds), *options]
    known = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, text=True, timeout=limit)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.slow
@needs_torch
def test_the_programs_run_without_a_gpu() -> None:
    rows = benchmark("--cpu", "--most", "3000", "--slowest", "600", seconds=0.01, limit=3600)
    assert [row["pair"] for row in rows] == NAMES
    assert [row for row in rows if not {type(row["broken"]), type(row["mended"])} <= {float, int}] == []
    assert rows[-1] == {"pair": "rank_leaves_early", "broken": 0.0, "mended": 1.0}


@pytest.mark.gpu
@needs_torch
def test_the_mended_program_does_better_on_a_gpu() -> None:
    rows = {row["pair"]: row for row in benchmark("--most", "200", seconds=0.6, limit=400)}
    ran = [pair for pair in pairs.PAIRS if "not_run" not in rows[pair.name]]
    assert len(ran) >= len(NAMES) - sum(pair.gpus > 1 for pair in pairs.PAIRS)
    assert {pair.name: rows[pair.name] for pair in ran if not better(pair, rows[pair.name])} == {}


def better(pair: Any, row: dict[str, Any]) -> bool:
    broken, mended = row["broken"], row["mended"]
    if isinstance(broken, str) or isinstance(mended, str):
        return False
    most, least = (mended, broken) if pair.more else (broken, mended)
    return bool(most > max(least, 0) * CLEARLY)


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/examples.py", "--only", "nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HOPELESS_SECONDS,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "examples.py: error: no such pair: nothing"


def test_the_table_of_results(tmp_path: Path) -> None:
    rows = [
        {"gpu": "NVIDIA H200", "gpus": 1, "torch": "2.11.0", "cpus": 16, "date": "2026-11-23"},
        {"pair": "tf32_off", "broken": 10.0, "mended": 25.0},
        {"pair": "gpu_memory_leak", "broken": 0.25, "mended": 0.0},
        {"pair": "wrong_gpu", "not_run": "needs 2 GPUs"},
        {"pair": "straggler", "broken": "failed: no NCCL", "mended": 3.0},
    ]
    file = tmp_path / "results.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    newer = tmp_path / "newer.jsonl"
    again = [rows[0], {"pair": "tf32_off", "broken": 10.0, "mended": 30.0}, {"pair": "straggler", "not_run": "needs 2 GPUs"}]
    newer.write_text("".join(json.dumps(row) + "\n" for row in again))
    command = [sys.executable, "benchmarks/examples.py", "--markdown", str(file), str(newer), "-o", str(tmp_path / "all.jsonl")]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HOPELESS_SECONDS)
    assert json.loads((tmp_path / "all.jsonl").read_text().splitlines()[1]) == again[1]
    assert shown.stdout.splitlines()[0].startswith("Measured on 1 × NVIDIA H200 with 16 CPU cores, torch 2.11.0")
    assert [line.split(" | ", 2)[2] for line in shown.stdout.splitlines()[4:]] == [
        "10 | 30 | steps/s | 3.0× |",
        "0.25 | 0 | GPU MiB a step | to 0 |",
        "failed: no NCCL | 3 | samples/s |  |",
        "needs 2 GPUs |  | steps/s |  |",
    ]


def test_the_docs_show_the_saved_results() -> None:
    results = "benchmarks/results/examples.jsonl"
    command = [sys.executable, "benchmarks/examples.py", "--markdown", results]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HOPELESS_SECONDS).stdout
    assert [json.loads(line)["pair"] for line in (ROOT / results).read_text().splitlines()[1:]] == NAMES
    assert shown in (ROOT / "docs" / "examples.md").read_text()
