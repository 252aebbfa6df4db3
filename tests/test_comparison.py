"""The page that compares gpudoctor with others holds the tables of the saved results, and the ids that it is judged by exist."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoctor import catalog
from gpudoctor.lint.catalog import all_rules

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "comparison.md").read_text()
sys.path.append(str(ROOT / "benchmarks"))
ENVIRONMENTS = importlib.import_module("peer_environments").ALL
REAL = tuple(case.environment for case in importlib.import_module("peer_real").CASES)


@pytest.mark.parametrize("name", ["peers.json", "peers-real.json"])
def test_the_table_is_that_of_the_results(name: str) -> None:
    results = ROOT / "benchmarks" / "results" / name
    command = [sys.executable, "benchmarks/peers.py", "--markdown", str(results)]
    table = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert f"<!-- {name} -->\n{table}" in PAGE


@pytest.mark.parametrize(("name", "environments"), [("peers.json", ENVIRONMENTS), ("peers-real.json", REAL)])
def test_every_environment_was_run(name: str, environments: tuple[object, ...]) -> None:
    rows = json.loads((ROOT / "benchmarks" / "results" / name).read_text())
    assert [row["name"] for row in rows] == [getattr(environment, "name", None) for environment in environments]


def test_gpudoctor_ended_with_no_traceback() -> None:
    for file in (ROOT / "benchmarks" / "results").glob("peers*.json"):
        for row in json.loads(file.read_text()):
            assert row["tools"]["gpudoctor"]["verdict"] not in ("traceback", "no answer", "false alarm"), row["name"]


def test_the_causes_are_known_problems_and_rules() -> None:
    known = {*catalog.problems(), *all_rules()}
    for environment in (*ENVIRONMENTS, *REAL):
        assert set(environment.causes) <= known, environment.name
        assert bool(environment.wrong and environment.kind != "question") == bool(environment.causes)


@pytest.mark.parametrize("path", re.findall(r"\]\((\.\./[^)#]+)\)", PAGE))
def test_every_link_leads_somewhere(path: str) -> None:
    assert (ROOT / "docs" / path).exists()
