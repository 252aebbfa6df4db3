"""Limits: unlimited is not a number, and of several cgroups the tightest binds."""

from __future__ import annotations

import resource
import subprocess
from typing import Any

import pytest
from each import each

from gpudoctor.facts.launcher import launcher
from gpudoctor.facts.limits import Limits, tightest_bytes, tightest_cpus
from gpudoctor.facts.replies import Replies
from gpudoctor.fixes.limits import BY_NAME
from gpudoctor.model import Reply, Unavailable

PROC_LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max stack size            8388608              unlimited            bytes     
Max processes             96365                96365                processes 
Max open files            1024                 1048576              files     
Max locked memory         65536                65536                bytes     
"""  # noqa: W291 (the kernel writes these spaces)


def limits(**answers: Any) -> Limits:
    replies = {question.replace("_", "-"): answer for question, answer in answers.items()}
    return Limits(Replies({q: a if isinstance(a, Reply) else Reply("ok", a) for q, a in replies.items()}))


def test_limits_of_the_kernel() -> None:
    facts = limits(limits={"memlock": [65536, None], "open_files": [1024, 4096], "processes": [9, 9], "stack": [8, None]})
    assert facts.memlock == (65536, None)
    assert facts.open_files == (1024, 4096)
    assert facts.processes == (9, 9)
    assert facts.stack == (8, None)


def test_limits_of_the_file() -> None:
    facts = Limits(Replies({"file:/proc/self/limits": Reply("ok", PROC_LIMITS)}))
    assert facts.memlock == (65536, 65536)
    assert facts.stack == (8388608, None)
    assert facts.open_files == (1024, 1048576)
    assert facts.processes == (96365, 96365)


def test_a_line_that_is_not_there_is_not_unlimited() -> None:
    facts = Limits(Replies({"file:/proc/self/limits": Reply("ok", "Max cpu time  unlimited  unlimited  seconds\n")}))
    with pytest.raises(Unavailable, match="Max locked memory"):
        _ = facts.memlock


@each(
    ("texts", "tightest"),
    [
        (["max", "max"], None),
        (["max", "8589934592", "17179869184"], 8589934592),
        (["9223372036854771712"], None),  # version 1's unlimited
        (["9223372036854771712", "1073741824"], 1073741824),
        ([], None),
    ],
)
def test_tightest_bytes(texts: list[str], tightest: int | None) -> None:
    assert tightest_bytes(texts) == tightest
    assert limits(cgroup_limits={"memory": texts}).cgroup_memory_bytes == tightest


@each(
    ("texts", "tightest"),
    [(["max 100000"], None), (["-1 100000"], None), (["max 100000", "150000 100000"], 1.5), (["200000 50000"], 4.0), ([], None)],
)
def test_tightest_cpus(texts: list[str], tightest: float | None) -> None:
    assert tightest_cpus(texts) == tightest
    assert limits(cgroup_limits={"cpu": texts}).cgroup_cpus == tightest


def test_space() -> None:
    facts = limits(
        shm={"bytes": 67108864, "free_bytes": 67100672, "writable": True, "noexec": True},
        tmp={"bytes": 9, "free_bytes": 7, "writable": True, "noexec": False},
    )
    assert (facts.shm_bytes, facts.shm_free_bytes) == (67108864, 67100672)
    assert facts.tmp == (7, True, False, None)


def test_no_answer_is_no_space() -> None:
    with pytest.raises(Unavailable):
        _ = limits(tmp=Reply("timeout", detail="no answer in 3.0 s")).tmp
    with pytest.raises(Unavailable):
        _ = limits().shm_bytes


def test_cpus() -> None:
    facts = limits(cpus={"affinity": [0, 2], "count": 64})
    assert facts.cpus == (0, 2)
    assert facts.cpu_count == 64


def test_only_old_nccl_segments_are_stale() -> None:
    facts = limits(
        nccl_segments=[
            {"name": "/dev/shm/nccl-a1", "age_seconds": 4000, "bytes": 9637892, "uid": 1000},
            {"name": "/dev/shm/nccl-b2", "age_seconds": 4, "bytes": 9637892, "uid": 0},
        ]
    )
    assert facts.stale_nccl_segments == ("/dev/shm/nccl-a1",)
    assert facts.nccl_segments[1].size_bytes == 9637892


SYSTEM = "0::/system.slice/"
STARTED = [
    ("a terminal", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn.scope\n", {}, ("login", "")),
    ("ssh", "0::/user.slice/user-1000.slice/session-3.scope\n", {}, ("login", "")),
    ("ssh without logind", f"{SYSTEM}ssh.service\n", {}, ("login", "")),
    ("a unit", f"{SYSTEM}vllm.service\n", {}, ("service", "vllm.service")),
    ("an instance of a unit", f"{SYSTEM}system-serve.slice/serve@7.service/worker\n", {}, ("service", "serve@7.service")),
    (
        "a unit, cgroup 1",
        "12:pids:/system.slice/vllm.service\n1:name=systemd:/system.slice/vllm.service\n",
        {},
        ("service", "vllm.service"),
    ),
    ("a step of Slurm", f"{SYSTEM}slurmstepd.scope/job_77/step_0/user/task_0\n", {}, ("slurm", "")),
    ("a step, cgroup 1", "9:memory:/slurm/uid_1000/job_77/step_0\n", {}, ("slurm", "")),
    ("a job without cgroups", "0::/user.slice/user-1000.slice/session-3.scope\n", {"SLURM_JOB_ID": "77"}, ("slurm", "")),
    ("a pod", "0::/kubepods.slice/cri-containerd-01.scope\n", {"SLURM_JOB_ID": "77"}, ("container", "")),
    ("Apptainer in a job", f"{SYSTEM}slurmstepd.scope/job_77/step_0\n", {"APPTAINER_CONTAINER": "/a.sif"}, ("slurm", "")),
]


@each(("cgroup", "variables", "expected"), [row[1:] for row in STARTED])
def test_who_started_the_program(cgroup: str, variables: dict[str, str], expected: tuple[str, str]) -> None:
    answers: dict[str, Any] = {
        "file:/proc/self/cgroup": cgroup,
        "file:/proc/1/cgroup": "0::/init.scope\n",
        "file:/proc/2/comm": "kthreadd\n",
    }
    answers |= {"file:/run/systemd/container": None, "container-marks": {}, "environment": variables, "mounts": []}
    replies = {question: Reply("missing" if value is None else "ok", value) for question, value in answers.items()}
    assert tuple(launcher(Replies(replies))) == expected


@each(("shown", "expected"), [("srun: error: task 0: Exited with exit code 1", "slurm"), ("ulimit: 65536", "")])
def test_a_text_shows_a_job_or_nothing(shown: str, expected: str) -> None:
    text = {"kinds": [], "total_lines": 1, "left_out": 0, "lines": [[1, shown]]}
    assert launcher(Replies({"text:log": Reply("ok", text)})).kind == expected


def test_a_limit_has_the_names_that_each_of_them_uses() -> None:
    """man limits.conf, man systemd.exec, man srun: the same resources under other names."""
    named = {limit.item: (limit.directive, limit.slurm, limit.letter) for limit in BY_NAME.values()}
    assert named["memlock"] == ("LimitMEMLOCK", "MEMLOCK", "l")
    letters = subprocess.run(["bash", "-c", "ulimit -a"], capture_output=True, text=True, check=True).stdout
    for item, (directive, _, letter) in named.items():
        assert f"-{letter})" in letters
        assert hasattr(resource, "RLIMIT_" + item.upper())
        assert directive == "Limit" + item.upper()
