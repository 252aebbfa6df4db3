"""Every MIG instance works, keeps what it stores, and is as fast as its siblings.

What it means
A process sees one MIG instance. A test of the GPU therefore tests only the first, and the others stay untested until a job
lands on them.

How it is judged
NVML lists the instances of every GPU. Each that is not in use is given to a process that writes a pattern to a part of its
memory and reads it back. An instance that gives no context or a wrong word fails. One that reaches less than 70 % of the
median of the instances of its profile on all GPUs warns.

Known exceptions
Without MIG the check is skipped. If CUDA_VISIBLE_DEVICES is set, others may own the rest: only what it names is measured, by
the other checks. Instances in use are left alone.

References
https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Figure, Finding, Fix, Problem, Skip, Status

WORKLOAD = "mig-instances"
LEAST_SHARE = 0.7  # the pattern takes milliseconds, and its speed varies
GUIDE = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"
AGAIN = "gpudoctor check --only mig-instances-measured"

BROKEN = Problem(
    id="mig-instance-does-not-work",
    title="A MIG instance gives no context or wrong memory",
    why="Jobs that are placed on this instance fail or compute wrong results, while the others of the same GPU work.",
    action=Action.RESET_GPU,
    fixes=(
        look("List the instances and what uses them", "nvidia-smi -L; nvidia-smi"),
        Fix(
            "Delete this instance and create it again; if it stays broken, reset the GPU",
            risk="disruptive",
            needs=("root", "drain"),
            on=("host",),
            verify=AGAIN,
        ),
        Fix("Ask the owner of the host for another instance", on=("container",), verify=AGAIN),
    ),
    references=(GUIDE,),
)
SLOW = Problem(
    id="mig-instance-slow",
    title="A MIG instance is slower than others of its profile",
    why="Instances of one profile have the same share of memory and multiprocessors. Something else used this one while it was "
    "measured, or part of the GPU is faulty.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(look("Measure again while nothing else runs", AGAIN),),
    references=(GUIDE,),
)


class Instance(NamedTuple):
    uuid: str
    gpu: int
    name: str
    values: dict[str, Any]

    @property
    def profile(self) -> str:
        """MIG 1g.10gb"""
        return "MIG " + self.name.rpartition("MIG ")[2]

    @property
    def words(self) -> str:
        return f"GPU {self.gpu}, {self.profile} ({self.uuid})"


def instances(facts: Facts) -> list[Instance]:
    (run,) = facts.measured.runs(WORKLOAD)
    return [
        Instance(uuid, int(v["gpu"]), v["device"], v) for uuid, v in run.values.items() if isinstance(v, dict) and "device" in v
    ]


def figures(facts: Facts) -> Iterator[Figure]:
    for number, each in enumerate(instances(facts)):
        if "gb_per_s" in each.values:
            wrong = f"{each.values['wrong_words']} wrong words" if each.values["wrong_words"] else ""
            yield Figure(
                f"{each.profile}, instance {number}, memory pattern", each.values["gb_per_s"], "GB/s", each.gpu, wrong=wrong
            )


def judge(facts: Facts) -> Iterator[Finding]:
    found = instances(facts)
    for each in found:
        evidence = {"instance": each.uuid, "profile": each.profile}
        if each.values.get("error"):
            yield BROKEN.found(f"{each.words}: {each.values['error']}", evidence, each.gpu, partial=True)
        elif each.values.get("wrong_words"):
            words = f"{each.words}: {each.values['wrong_words']} wrong words of 8 bytes"
            yield BROKEN.found(words, {**evidence, "wrong": each.values.get("wrong", [])}, each.gpu, partial=True)
    measured = [each for each in found if each.values.get("gb_per_s")]
    for each in measured:
        others = [other.values["gb_per_s"] for other in measured if other.profile == each.profile and other.uuid != each.uuid]
        if others and each.values["gb_per_s"] < LEAST_SHARE * statistics.median(others):
            usual = statistics.median(others)
            words = f"{each.words}: {each.values['gb_per_s']:.0f} GB/s, the others {usual:.0f}"
            yield SLOW.found(words, {"instance": each.uuid, "profile": each.profile}, each.gpu, partial=True)
    if not measured and not any(each.values.get("error") for each in found):
        raise Skip("all MIG instances are in use", Skip.BUSY)


def summary(facts: Facts) -> str:
    found = instances(facts)
    busy = sum("left_alone" in each.values for each in found)
    return f"{len(found) - busy} MIG instances work" + f", {busy} in use were left alone" * bool(busy)


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(BROKEN, SLOW),
    needs=("nvml",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
)
