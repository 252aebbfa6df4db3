"""The checks that installed packages of RAPIDS bring along pass.

What it means
cuDF, cuML and others bring small tests, which `rapids doctor` runs. They know what their package needs, and use it
on the GPU.

How it is judged
At level full, calls every function of the entry points `rapids_doctor_check` in the examined Python, as rapids doctor does, and
reports those that raise an error, with its words. Warnings of a check are shown with it.

Known exceptions
Skipped if no package has such checks. A check that cannot be imported is left out, as by rapids doctor. The checks are code of
the installed packages: what they prove is up to them.

References
https://github.com/rapidsai/rapids-cli#check-plugins
https://docs.rapids.ai/api/cuml/stable/health_checks/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip

WORKLOAD = "rapids-checks"
AGAIN = "gpudoctor check --only rapids-checks"
FAILED = Problem(
    id="rapids-check-failed",
    title="A check of an installed RAPIDS package failed",
    why="The package's own test raised an error, so programs that use it are likely to fail in the same way.",
    action=Action.INSTALL,
    fixes=(
        look("Show the traceback, if rapids-cli is installed", "rapids doctor --verbose"),
        look("Check that the packages have what they require", "python -m pip check"),
        Fix("Install the release of the package for this driver and Python, then try again", verify=AGAIN),
    ),
    references=("https://docs.rapids.ai/install/",),
)


def outcomes(facts: Facts) -> list[dict[str, Any]]:
    (run, *_) = facts.measured.runs(WORKLOAD)
    found = [values for name, values in run.values.items() if name.startswith("check ")]
    if not found:
        raise Skip("no check of a RAPIDS package finished: see measurements", Skip.NO_ANSWER)
    return found


def judge(facts: Facts) -> Iterator[Finding]:
    for one in outcomes(facts):
        if one["status"] == "fail":
            evidence = {"check": one["check"], "function": one["function"], "words": one["words"], "warnings": one["warnings"]}
            yield FAILED.found(f"{one['function']}: {one['words']}", evidence)


def summary(facts: Facts) -> str:
    found = outcomes(facts)
    passed = [one for one in found if one["status"] == "pass"]
    if not passed:
        raise Skip("no check of a RAPIDS package could be loaded", Skip.NO_ANSWER)
    left_out = f", {len(found) - len(passed)} could not be loaded" if len(passed) < len(found) else ""
    warned = [f"{one['check']}: {text}" for one in passed for text in one["warnings"]]
    return f"{len(passed)} checks of RAPIDS packages passed{left_out}" + (f"; {'; '.join(warned[:3])}" if warned else "")


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(FAILED,),
    needs=("cuda-context",),
    level="full",
    workloads=(WORKLOAD,),
)
