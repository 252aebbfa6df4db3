"""The results of other test programs, given as evidence, show no failed test.

What it means
NVIDIA's DCGM (dcgmi diag), Health Validation and NVSentinel and Microsoft's SuperBench test nodes, too. What they found is shown
together with what gpudoctor sees itself.

How it is judged
`gpudoctor explain FILE` and `--log FILE` read the JSON of `dcgmi diag -j` (DCGM 3 and 4), results-summary.jsonl of SuperBench,
the NodeVerdict of Health Validation, and health events of NVSentinel, as JSON and as node conditions in the output of kubectl.
Each failed test is reported with the words of the program. If the only complaint of DCGM's software test is that persistence mode
is off, it is a warning; so are severity WARNING of Health Validation and events of NVSentinel that are not fatal. Severity
UNKNOWN means that Health Validation could not assess the node. Tests that were skipped or not run show nothing, and are not
passed.

Known exceptions
The numbers of SuperBench are not judged: they need a baseline of the same nodes. GPU numbers are those of the program. Of a
NodeVerdict only the severities and components that did not pass are read.

References
https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html
https://microsoft.github.io/superbenchmark/docs/user-tutorial/data-diagnosis
https://docs.nvidia.com/health-validation/reference/verdict-schema.md
https://github.com/NVIDIA/NVSentinel/blob/main/data-models/protobufs/health_event.proto
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
OWN_LOOK = Fix("Look for the cause on the node itself", "gpudoctor check --level full", kind="read")
SUPERBENCH = Problem(
    id="superbench-benchmark-failed",
    title="A benchmark of SuperBench failed",
    why="The benchmark ended with an error, so it has no figures. The cause is in its own log.",
    action=Action.WATCH,
    fixes=(OWN_LOOK,),
)
VALIDATION = Problem(
    id="health-validation-critical",
    title="NVIDIA Health Validation finds the node unfit",
    why="A check of NVIDIA's catalog is critical: such a node should be removed from service until the cause is repaired.",
    action=Action.RESET_GPU,
    fixes=(OWN_LOOK,),
    references=("https://docs.nvidia.com/health-validation/getting-started/faq.md",),
)
VALIDATION_REMARK = Problem(
    id="health-validation-warned",
    title="NVIDIA Health Validation warns, or could not assess the node",
    why="The node may remain in service after a warning; what could not be read was not checked.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(OWN_LOOK,),
    references=("https://docs.nvidia.com/health-validation/getting-started/faq.md",),
)
SENTINEL_RESET = Problem(
    id="nvsentinel-gpu-reset",
    title="NVSentinel recommends a reset of a GPU",
    why="A health event is fatal, and a reset of the component is what NVSentinel recommends for it.",
    action=Action.RESET_GPU,
    fixes=(OWN_LOOK,),
    references=("https://github.com/NVIDIA/NVSentinel/blob/main/docs/INTEGRATIONS.md",),
)
SENTINEL = Problem(
    id="nvsentinel-fatal-event",
    title="NVSentinel reported a fatal health event",
    why="NVSentinel removes such a node from service, to be restarted, tested or replaced as it recommends.",
    action=Action.REBOOT,
    fixes=(OWN_LOOK,),
    references=("https://github.com/NVIDIA/NVSentinel/blob/main/docs/INTEGRATIONS.md",),
)
SENTINEL_REMARK = Problem(
    id="nvsentinel-event",
    title="NVSentinel reported a health event that is not fatal",
    why="The node stays in service. Such events are warnings or short-lived.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(OWN_LOOK,),
    references=("https://github.com/NVIDIA/NVSentinel/blob/main/docs/INTEGRATIONS.md",),
)
BY_TOOL = {  # what failed, and what is only a warning
    "DCGM": (DCGM, REMARK),
    "SuperBench": (SUPERBENCH, SUPERBENCH),
    "NVIDIA Health Validation": (VALIDATION, VALIDATION_REMARK),
    "NVSentinel": (SENTINEL, SENTINEL_REMARK),
}
NOT_PASSED = ("fail", "warn", "unknown")
SETTING = re.compile(r"persistence mode", re.I)
MOST = 5


def judge(facts: Facts) -> Iterator[Finding]:
    said = tests(facts)
    failed = [result for result in said["results"] if result["status"] in NOT_PASSED]
    by_test: dict[str, list[dict[str, Any]]] = {}
    for result in failed:
        by_test.setdefault(result["test"], []).append(result)
    for test, results in by_test.items():
        words = list(dict.fromkeys(text for result in results for text in result["words"] if text))
        gpus = sorted({result["gpu"] for result in results if result["gpu"] is not None})
        where = f" on GPU {', '.join(map(str, gpus))}" if gpus else ""
        outcome = "could not be assessed" if all(result["status"] == "unknown" for result in results) else "failed"
        message = f"{test} {outcome}{where}" + (f": {'; '.join(words[:MOST])}" if words else "")
        evidence = {"tool": said["tool"], "version": said["version"], "test": test, "gpus": gpus, "words": words[:MOST]}
        yield problem(said["tool"], results, words).found(message, evidence)


def problem(tool: str, results: list[dict[str, Any]], words: list[str]) -> Problem:
    failed, remark = BY_TOOL[tool]
    is_setting = tool == "DCGM" and words and all(map(SETTING.search, words))
    if is_setting or all(result["status"] != "fail" for result in results):
        return remark
    return SENTINEL_RESET if tool == "NVSentinel" and "recommended action COMPONENT_RESET" in words else failed


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


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(DCGM, REMARK, SUPERBENCH, VALIDATION, VALIDATION_REMARK, SENTINEL, SENTINEL_RESET, SENTINEL_REMARK),
)
