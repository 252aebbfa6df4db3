"""The results of other test programs, given as evidence, show no failed test.

What it means
NVIDIA's DCGM (dcgmi diag) and Microsoft's SuperBench test nodes, too. What they found is shown together with
what gpudoctor sees itself.

How it is judged
`gpudoctor explain FILE` and `--log FILE` read the JSON of `dcgmi diag -j` (DCGM 3 and 4) and results-summary.jsonl of SuperBench.
Each failed test is reported with the words of the program. If the only complaint of DCGM's software test is that persistence mode
is off, it is a warning. Tests that were skipped or not run show nothing, and are not passed.

Known exceptions
The numbers of SuperBench are not judged: they need a baseline of the same nodes. GPU numbers are those of the program.

References
https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html
https://microsoft.github.io/superbenchmark/docs/user-tutorial/data-diagnosis
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import vendor_test
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

AGAIN = vendor_test("Repeat the test when the GPUs are free", "-r 3 -j")
DCGM = Problem(
    id="dcgm-test-failed",
    title="A test of DCGM failed",
    why="NVIDIA's own diagnostic found a GPU, a link or the installation faulty.",
    action=Action.RESET_GPU,
    fixes=(AGAIN, Fix("Look for the cause on the machine itself", "gpudoctor check --level full", kind="read")),
    references=("https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html",),
)
REMARK = Problem(
    id="dcgm-test-warned",
    title="A test of DCGM has a remark on the configuration",
    why="DCGM's software test complains about a setting; no GPU is faulty.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Run the persistence daemon",
            "sudo systemctl enable --now nvidia-persistenced",
            verify="nvidia-smi --query-gpu=persistence_mode --format=csv",
            kind="restart",
            needs=("root",),
            undo="sudo systemctl disable --now nvidia-persistenced",
            on=("host",),
        ),
        AGAIN,
    ),
)
SUPERBENCH = Problem(
    id="superbench-benchmark-failed",
    title="A benchmark of SuperBench failed",
    why="The benchmark ended with an error, so it has no figures. The cause is in its own log.",
    action=Action.WATCH,
    fixes=(Fix("Look for the cause on the node itself", "gpudoctor check --level full", kind="read"),),
)
SETTING = re.compile(r"persistence mode", re.I)
MOST = 5


def judge(facts: Facts) -> Iterator[Finding]:
    said = tests(facts)
    failed = [result for result in said["results"] if result["status"] in ("fail", "warn")]
    by_test: dict[str, list[dict[str, Any]]] = {}
    for result in failed:
        by_test.setdefault(result["test"], []).append(result)
    for test, results in by_test.items():
        words = list(dict.fromkeys(text for result in results for text in result["words"] if text))
        gpus = sorted({result["gpu"] for result in results if result["gpu"] is not None})
        where = f" on GPU {', '.join(map(str, gpus))}" if gpus else ""
        message = f"{test} failed{where}" + (f": {'; '.join(words[:MOST])}" if words else "")
        evidence = {"tool": said["tool"], "version": said["version"], "test": test, "gpus": gpus, "words": words[:MOST]}
        yield problem(said["tool"], results, words).found(message, evidence)


def problem(tool: str, results: list[dict[str, Any]], words: list[str]) -> Problem:
    if tool != "DCGM":
        return SUPERBENCH
    is_remark = all(result["status"] == "warn" for result in results) or (words and all(map(SETTING.search, words)))
    return REMARK if is_remark else DCGM


def tests(facts: Facts) -> dict[str, Any]:
    try:
        found: dict[str, Any] = facts.replies.value("node-tests")
    except Skip:
        raise Skip("no results of another test program were given (--log FILE)") from None
    return found


def summary(facts: Facts) -> str:
    said = tests(facts)
    passed = sum(result["status"] == "pass" for result in said["results"])
    if not passed:
        raise Skip(f"no test of {said['tool']} was run", Skip.NO_ANSWER)
    return f"{passed} results of {said['tool']} passed, {len(said['results']) - passed} were skipped"


CHECK = Check(judge=judge, summary=summary, problems=(DCGM, REMARK, SUPERBENCH))
