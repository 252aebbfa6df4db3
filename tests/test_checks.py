"""The contract of every check file."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

from each import each
from sources import examined, nodes, text_of

from gpudoctor import catalog
from gpudoctor.model import AREAS, TAGS, Check, Problem

HEADINGS = ("What it means", "How it is judged", "Known exceptions", "References")
# What interrupts or removes something is never called safe.
DISTURBING = r"\b(reboot|poweroff|purge|rmmod|--gpu-reset|force-recreate)\b|modprobe -r|rm -r|-delete\b|\| sudo sh|remove "
THIRD_PARTY = {"gpudoctor", "packaging"}

checks = each("check", catalog.checks().values(), ids=catalog.checks())
problems = each("problem", [problem for _, problem in catalog.problems().values()], ids=catalog.problems())
files = each("file", catalog.files(), ids=lambda file: file.stem)


@checks
def test_explanation_has_the_fixed_headings(check: Check) -> None:
    title, *rest = check.explanation.splitlines()
    assert title.endswith(".")
    assert [line for line in rest if line in HEADINGS] == list(HEADINGS)


@checks
def test_area_and_needs_exist(check: Check) -> None:
    assert check.area in AREAS
    assert {*check.tags} <= {*TAGS, *AREAS} - {check.area}
    assert set(check.needs) <= set(catalog.checks())


def test_problem_ids_are_unique() -> None:
    """Several checks may find the same problem, but no two problems have the same id."""
    problems = {problem for check in catalog.checks().values() for problem in catalog.found_by(check)}
    assert len({problem.id for problem in problems}) == len(problems)
    for check in catalog.checks().values():
        found = catalog.found_by(check)
        assert len({problem.id for problem in found}) == len(found)


@checks
def test_workloads_exist(check: Check) -> None:
    for name in check.workloads:
        assert importlib.import_module("gpudoctor.worker.workloads." + name.replace("-", "_")).WORKLOAD.run
    assert not check.workloads or check.level != "quick"


@problems
def test_a_problem_is_explained_and_has_a_way_out(problem: Problem) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", problem.id)
    assert len(problem.title) <= 90
    assert not problem.title.endswith(".")
    assert problem.why.endswith(".")
    assert problem.fixes
    assert all(reference.startswith("https://") for reference in problem.references)


@problems
def test_a_fix_is_honest_about_its_risk(problem: Problem) -> None:
    for fix in problem.fixes:
        assert fix.risk in ("safe", "disruptive", "destructive")
        assert not fix.title.startswith("Or "), fix.title
        assert set(fix.needs) <= {"root", "reboot", "drain", "network"}
        assert ("sudo " in fix.command) <= ("root" in fix.needs), fix.command
        assert fix.risk != "safe" or not re.search(DISTURBING, fix.command), fix.command


@examined
@files
def test_a_check_imports_nothing_heavy(file: Path) -> None:
    roots = set()
    for node in nodes(text_of(file), ast.Import):
        roots |= {alias.name.split(".")[0] for alias in node.names}
    for whole in nodes(text_of(file), ast.ImportFrom):
        roots.add((whole.module or "").split(".")[0])
    import sys

    assert roots - THIRD_PARTY <= sys.stdlib_module_names


@files
def test_every_problem_of_a_file_is_declared(file: Path) -> None:
    check = catalog.load(file)
    text = file.read_text()
    assert len(re.findall(r"^[A-Z0-9_]+ = Problem\(", text, re.M)) <= len(check.problems)


def test_the_ids_of_checks_are_known_without_loading_them() -> None:
    assert sorted(catalog.ids()) == sorted(catalog.checks())
