"""Experiments of `gpudoctor check`: the runs in the target, their budget and their end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import measuring_run
import pytest
from stubs import OLDER_PYTHONS

from gpudoctor import bootstrap, catalog, doctor, experiment
from gpudoctor.errors import WorkError
from gpudoctor.interpreter import Interpreter, this_interpreter
from gpudoctor.judging.experiments import proof as proofs
from gpudoctor.judging.experiments.change import Change
from gpudoctor.judging.experiments.proof import Proof
from gpudoctor.judging.experiments.subjects import failed
from gpudoctor.model import Reply, Snapshot
from gpudoctor.planning import Plan

PLAN = Plan({"gemm": "gemm"}, ((0, 0, ()),))
INHERITED = {
    "variables": {"CUDA_LAUNCH_BLOCKING": "1", "PYTORCH_CUDA_ALLOC_CONF": "x:1", "OMP_NUM_THREADS": "4", "HOME": "/home/u"},
    "limits": {"open_files": [256, 4096]},
}
BROKEN = Reply("error", {"prints": "RuntimeError: no"}, "RuntimeError: no in bf16", 0.5)


class Target:
    """A target in which a run works if `works` says so of its change."""

    path = "a target"

    def __init__(self, works: Callable[[Change], bool], outcome: Reply = BROKEN, signal: int = 0, seconds: float = 0) -> None:
        self.works, self.outcome, self.signal, self.seconds = works, outcome, signal, seconds
        self.jobs: list[dict[str, Any]] = []

    def run(self, job: dict[str, Any], hear: Any, meanwhile: Any = None, patience: float = 0) -> int:
        if "inherited" in job:
            hear({"inherited": INHERITED})
            return 0
        self.jobs.append(job)
        time.sleep(self.seconds)
        if self.signal:
            return self.signal
        change = job["change"]
        good = self.works(Change(change["put"], tuple(change["unset"]), tuple(change["raised"]), change["fresh"]))
        for name in (*job["workloads"], *(f"import:{name}" for name in job.get("imports", ()))):
            id = name if ":" in name else f"{name}:gpu0"
            hear({"measured": id, "reply": vars(Reply("ok", {}, "", 0.1) if good else self.outcome)})
        return 0

    def said(self) -> str:
        return ""


def answers(**measured: Reply) -> Snapshot:
    named = {name.replace("__", ":").replace("_", "-"): reply for name, reply in measured.items()}
    return replace(machine.load("h100"), measured={"plan": Reply("ok", PLAN.as_value()), **named}, level="standard")


def ran(target: Target, seconds: float = 60, plan: Plan = PLAN, **measured: Reply) -> tuple[dict[str, Proof], int]:
    checks = doctor.select(catalog.checks(), "standard", ["measurements", "gemm"])
    found, signal = experiment.experiments(target, answers(**measured), plan, checks, seconds, lambda said: None)
    return {id: Proof.from_value(reply.value) for id, reply in found.items()}, signal


def test_the_setting_that_decides_is_found_and_nothing_else_is_changed() -> None:
    target = Target(lambda change: "PYTORCH_CUDA_ALLOC_CONF" in change.unset)
    found, _ = ran(target, gemm__gpu0=BROKEN)
    proof = found["gemm:gpu0"]
    assert (proof.verdict, [str(one) for one in proof.guilty]) == (proofs.CONFIRMED, ["PYTORCH_CUDA_ALLOC_CONF=x:1"])
    assert target.jobs[-1]["change"] == Change().as_value()
    assert {job["again"] for job in target.jobs} == {bootstrap.AGAIN}
    assert all(job["workloads"] == ["gemm"] and job["gpus"] == [(0, 0, ())] for job in target.jobs)


def test_one_failure_of_several_workloads_is_experimented_once() -> None:
    target = Target(lambda change: "open_files" in change.raised)
    found, _ = ran(target, gemm__gpu0=BROKEN, attention__gpu0=replace(BROKEN, detail="RuntimeError: no in softmax", seconds=9))
    assert list(found) == ["gemm:gpu0"]
    assert found["gemm:gpu0"].also == ("attention:gpu0",)


def test_an_import_is_repeated_without_any_workload() -> None:
    target = Target(lambda change: False)
    found, _ = ran(target, import__torch=BROKEN)
    assert found["import:torch"].verdict == proofs.ELSEWHERE
    assert all(job["workloads"] == [] and job["imports"] == ["torch"] for job in target.jobs)


def test_nothing_is_repeated_if_nothing_failed_or_no_gpu_is_free() -> None:
    target = Target(lambda change: True)
    assert ran(target, gemm__gpu0=Reply("skipped", None, "torch is not installed")) == ({}, 0)
    assert ran(target, plan=Plan({}, (), {0: "GPU 0 is busy"}), gemm__gpu0=BROKEN) == ({}, 0)
    ecc = replace(BROKEN, detail="CudaError: CUDA_ERROR_ECC_UNCORRECTABLE (214) in bf16")
    assert ran(target, gemm__gpu0=ecc) == ({}, 0)
    assert target.jobs == []


def test_the_budget_ends_the_search_and_says_so() -> None:
    found, _ = ran(Target(lambda change: False), seconds=0, gemm__gpu0=BROKEN)
    assert (found["gemm:gpu0"].verdict, found["gemm:gpu0"].ended) == (proofs.OPEN, experiment.OVER)


def test_a_run_that_the_budget_cut_off_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was given less time than such a run may take, and took all of it."""
    monkeypatch.setattr(experiment, "LEAST_SECONDS", 0.1)
    cut = Reply("cut", None, "the time limit was reached")
    target = Target(lambda change: False, cut, seconds=1)
    found, _ = ran(target, seconds=0.9, gemm__gpu0=BROKEN)
    assert len(target.jobs) == 1
    assert len(found["gemm:gpu0"].trials) == 1


def test_what_hangs_is_given_up_early_and_hangs_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "START_SECONDS", 0.2)
    hung = Reply("timeout", {"prints": "Stack (most recent call last):"}, "not finished after 60 s in bf16", 60)
    target = Target(lambda change: False, Reply("cut", None, "the time limit was reached"), seconds=0.2)
    found, _ = ran(target, gemm__gpu0=hung)
    assert found["gemm:gpu0"].verdict == proofs.ELSEWHERE
    assert {job["seconds"] for job in target.jobs} == {0.2}


def test_a_signal_ends_all_and_keeps_what_is_known() -> None:
    target = Target(lambda change: True, signal=2)
    found, signal = ran(target, gemm__gpu0=BROKEN, attention__gpu0=replace(BROKEN, detail="OSError: other in x"))
    assert (list(found), signal, len(target.jobs)) == (["gemm:gpu0"], 2, 1)


def test_a_run_that_could_not_start_did_not_work() -> None:
    class Refusing(Target):
        def run(self, job: dict[str, Any], hear: Any, meanwhile: Any = None, patience: float = 0) -> int:
            if "change" in job:
                raise WorkError("no temporary folder has room")
            return super().run(job, hear)

    found, _ = ran(Refusing(lambda change: True), gemm__gpu0=BROKEN)
    assert {trial.outcome.how for trial in found["gemm:gpu0"].trials[1:]} == {"did not start"}
    assert found["gemm:gpu0"].guilty == ()


def test_failures_are_alike_whatever_step_they_were_in() -> None:
    died = Reply("died", None, "killed by SIGSEGV in one")
    found = failed({"a:gpu0": died, "a:gpu1": replace(died, detail="killed by SIGSEGV in two"), "b:gpu0": BROKEN, "plan": BROKEN})
    assert [(subject.id, subject.also) for subject in found] == [("a:gpu0", ("a:gpu1",)), ("b:gpu0", ())]
    assert found[0].first.how == "killed by SIGSEGV"


def test_what_an_untrusted_image_says_of_its_surroundings_is_checked() -> None:
    said = {"variables": {"A": 1, "B": "x"}, "limits": {"open_files": [1], "stack": ["x", 2], "data": [1, None]}, "cores": "many"}
    here = experiment.surroundings(said)
    assert (here.variables, here.limits, here.cores) == ({"B": "x"}, {"data": (1, None)}, 0)


def repeated(python: str, change: Change, **more: Any) -> dict[str, Any]:
    job = {**measuring_run.job("torch"), **more, "change": change.as_value(), "again": bootstrap.AGAIN}
    heard: dict[str, Any] = {}

    def hear(message: dict[str, Any]) -> None:
        heard.update({message["measured"]: message["reply"]} if "measured" in message else message)

    where = Interpreter(python) if python else this_interpreter()
    where.run(job, hear, patience=2)
    return heard


FAKE = "import os, tempfile\n__version__ = '9'\nif 'BAD' in os.environ: raise ImportError(tempfile.gettempdir())\n"


@pytest.mark.slow
@pytest.mark.parametrize("python", ["", *OLDER_PYTHONS[:1]])
def test_a_real_child_is_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, python: Any) -> None:
    monkeypatch.setenv("BAD", "1")
    monkeypatch.setenv("GPUDOCTOR_TEST_RUN", str(tmp_path))
    path = str(python)
    made = {"workloads": [], "imports": ["torch"], "sources": {**measuring_run.job("")["sources"], "torch.py": FAKE}}
    without = repeated(path, Change(unset=("BAD",)), **made)
    assert (without["import:torch"]["status"], without["again"]) == ("ok", "")
    fresh = repeated(path, Change(fresh={"TMPDIR": "/tmp"}), **made)
    folder = fresh["import:torch"]["detail"].partition(": ")[2]
    assert folder.endswith("/TMPDIR")
    assert not Path(folder).parent.exists()


@pytest.mark.slow
def test_a_change_that_keeps_python_from_starting_is_an_outcome(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUDOCTOR_TEST_RUN", str(tmp_path))
    heard = repeated("", Change(put={"PYTHONHOME": str(tmp_path)}))
    assert heard["again"].startswith("exit code")
    assert heard["end"]
