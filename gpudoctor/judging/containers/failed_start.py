"""Why a container did not start: the engine's message, and the link of the chain on this host that caused it. Pure.

The message alone decides the kind of failure. If it has several possible causes, the facts of this host decide between them:
the cause is the first broken link in the order of the chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.container_start import Start
from gpudoctor.fixes import engines
from gpudoctor.fixes.common import look
from gpudoctor.judging.containers import causes
from gpudoctor.judging.containers.access import HOST_DRIVER, LOST, NO_GPUS_FLAG, NOT_ARRIVED, PODMAN, SELINUX
from gpudoctor.judging.containers.causes import CAUSES, Case
from gpudoctor.judging.containers.cdi import REWRITE_ALL, STALE
from gpudoctor.judging.containers.daemon import ELSEWHERE, NOT_PERMITTED, elsewhere
from gpudoctor.judging.containers.runtime import NOT_CONFIGURED
from gpudoctor.judging.containers.said import LEAST_BRANCH, evidence, named, said, wanted_cuda
from gpudoctor.judging.containers.toolkit import HOOK_REFUSED, OLD_LIBRARY, ROOTLESS
from gpudoctor.knowledge import messages
from gpudoctor.knowledge.cuda import cuda_of_branch
from gpudoctor.knowledge.messages import Message
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Skip, Status, first_cause

CHECK_ID = "container-start"
REQUIRES = "container-requires-newer-driver"

UNEXPLAINED = Problem(
    id="container-start-unexplained",
    title="The container did not start, for a reason unknown to gpudoctor",
    why="gpudoctor does not know the engine's message. What it could check on this host is fine or unrelated.",
    action=Action.WATCH,
    fixes=(
        look(
            "Read the daemon's log of the last minutes",
            "sudo journalctl -u docker -u containerd --since -5min --no-pager | tail -n 40",
            root=True,
        ),
        Fix("Check whether the image starts without a GPU", "<docker> run --rm --entrypoint true <image>"),
    ),
)

PODMAN_SAYS = (
    Fix("Run Podman with debug output", "podman --log-level=debug run --rm <image> true", kind="set"),
    look(
        "Read the log of Podman's helper of the last minutes",
        "journalctl -t conmon -t podman --since -5min --no-pager | tail -n 40",
    ),
)
ENOUGH = (
    look(
        "Compare the driver that the toolkit sees with that of nvidia-smi",
        "nvidia-container-cli info | head -n 2; nvidia-smi",
    ),
    Fix("If the driver was upgraded: reboot, then start the container again", verify="nvidia-smi", reboot=True),
)
"""For a host whose driver supports the CUDA version that the image requires."""
LIKELY = Confidence.LIKELY
# The links that break most often, for a message whose host is unknown.
LIKELIEST = (
    *("container-toolkit-missing", "docker-runtime-not-configured", "toolkit-newer-than-daemon", "cdi-spec-missing"),
    *("cdi-spec-stale", "container-host-driver-not-loaded", "docker-snap", "docker-desktop-linux-no-gpu", "daemon-json-invalid"),
)
PROBLEMS = (
    *(cause.problem for cause in CAUSES.values()),
    *(NOT_PERMITTED, OLD_LIBRARY, ROOTLESS, HOOK_REFUSED, LOST, SELINUX),
    *(ELSEWHERE, NO_GPUS_FLAG, NOT_ARRIVED, UNEXPLAINED),
)
"""Problems outside the tables of messages, which code also finds."""


def judge(facts: Facts, start: Start) -> Iterator[Finding]:
    """One finding: the broken link, or what the message alone means, or that the message is unknown."""
    case = Case(facts, start, causes.cdi_names(start.message))
    message = recognised(start.words)
    if message is None:
        yield failed(start, unexplained(case))
        return
    values = named(case, message)
    if values["file"] == "nvidia-smi" and not start.asked_for_gpu:
        words = "a container gets nvidia-smi only together with a GPU, and no GPU was requested"
        yield NO_GPUS_FLAG.found(words, evidence(start, values))
    else:
        yield failed(start, explained(case, message, values))


def recognised(text: str) -> Message | None:
    """The row that matches an engine's message."""
    return messages.first(CHECK_ID, text)


@cache
def problems() -> dict[str, Problem]:
    """All problems that a failed start can mean, by id."""
    return messages.problems(CHECK_ID) | {problem.id: problem for problem in PROBLEMS}


def explained(case: Case, message: Message, values: dict[str, str]) -> Finding:
    """The first broken link behind a message; without facts about the daemon's host, what the message alone means."""
    decides = message.confidence != "unknown"
    problem = message.means(problems()[message.problem])
    sure = Confidence(message.confidence) if decides else LIKELY
    by_itself = problem.found(message.words.format(**values), evidence(case.start, values), confidence=sure)
    by_itself = _for_this_host(case, by_itself, values)
    if not message.causes:
        return by_itself
    if not case.is_here:
        return _another_machine(case) or (_left_open(by_itself, message) if case.start.from_text else by_itself)
    finding = next(first_cause((CAUSES[id] for id in message.causes), case, by_itself))
    if "ruled_out" not in finding.evidence:
        return _with_words(finding, case.start)
    return by_itself if decides or not finding.evidence["ruled_out"] else finding


def _left_open(finding: Finding, message: Message) -> Finding:
    """The possible causes if only a text is known; each fault of the driver explains it."""
    if message.mostly:
        finding = replace(finding, problem=problems()[message.mostly])
    others = [id for id in message.causes if CAUSES[id].problem is not finding.problem]  # another one with fixes for Podman
    links = tuple(sorted(others, key=lambda id: LIKELIEST.index(id) if id in LIKELIEST else len(LIKELIEST)))
    if len(links) > 1 and len(links) == len(message.causes):
        finding = replace(finding, confidence=LIKELY)
    of_driver = causes.FAULTS_OF_DRIVER if HOST_DRIVER.id in message.causes else ()
    about = {} if finding.confidence is Confidence.CONFIRMED else {"could_be": list(links), "decide": "gpudoctor check"}
    return replace(finding, causes=(*links, *of_driver), evidence={**finding.evidence, **about})


def _for_this_host(case: Case, finding: Finding, values: dict[str, str]) -> Finding:
    """The finding with the fixes for this host's driver, specifications and engine."""
    problem = finding.problem
    if problem.id == NOT_CONFIGURED.id and case.start.is_podman:
        return replace(finding, problem=replace(problem, fixes=(PODMAN,)))
    if problem.id == REQUIRES and _has_enough(case, values["condition"]):
        words = f"{finding.message}, which is sufficient: the toolkit saw another driver"
        without_test = problem.fixes[-1]
        return replace(finding, problem=replace(problem, fixes=(*ENOUGH, without_test)), message=words, confidence=LIKELY)
    if problem.id == STALE.id:
        path = _specification(case, values["name"])
        rewrite = STALE.fixes if path else (REWRITE_ALL,)
        return replace(finding, problem=replace(problem, fixes=rewrite), evidence={**finding.evidence, "file": path})
    return finding


def _has_enough(case: Case, condition: str) -> bool:
    wanted = wanted_cuda(condition)
    try:
        branch = case.facts.driver.branch if case.is_here and case.facts.driver.module_version else None
    except Skip:
        return False
    has = cuda_of_branch(branch) if branch else None
    return bool(wanted and has and has >= wanted)


def _specification(case: Case, name: str) -> str:
    """The path of the specification that names this file; "" without one, or if the engine is on another host."""
    try:
        found = case.facts.engines.cdi_specs if case.is_here else {}
    except Skip:
        found = {}
    return next((path for path, text in reversed(found.items()) if name in text), "")


def _another_machine(case: Case) -> Finding | None:
    """The daemon is on another machine; usually a GPU of this machine was meant."""
    if case.start.is_podman:
        return None
    try:
        finding = elsewhere(case.facts)
    except Skip:
        return None
    return finding and _with_words(replace(finding, confidence=LIKELY), case.start)


def _with_words(finding: Finding, start: Start) -> Finding:
    """A link's finding, with the engine's message as evidence."""
    about = {"engine": start.name, "image": start.image, "engine_said": said(start)}
    return replace(finding, evidence={**finding.evidence, **about})


def failed(start: Start, finding: Finding) -> Finding:
    """The finding as a failure: the same fault may be only a warning before a container is started."""
    words = said(start)
    message = finding.message if words in finding.message else f"{words}: {finding.message}"
    problem = replace(finding.problem, status=Status.FAIL)
    engine = "podman" if start.is_podman else "nerdctl" if start.is_nerdctl else "docker"
    problem = replace(problem, fixes=tuple(engines.of(problem.fixes, engine)))
    evidence = _told(finding.evidence, problem)
    return replace(finding, problem=problem, message=message, evidence=evidence)


UNTOLD = {"image": "IMAGE", "name": "NAME", "path": "NAME", "command": "NAME", "file": "NAME"}
"""Words of a message for what the engine did not name. A fix leaves such a value open."""


def _told(evidence: dict[str, Any], problem: Problem) -> dict[str, Any]:
    fixes = " ".join(f"{fix.command} {fix.verify} {fix.undo} {fix.recipe}" for fix in problem.fixes)
    same = {key: evidence["name"] for key in ("path", "command", "file") if "name" in evidence}
    return {
        key: value
        for key, value in evidence.items()
        if value not in ("", UNTOLD.get(key)) and (f"<{key}>" in fixes or value not in (same.get(key), _UNASKED.get(key)))
    }


_UNASKED = {"wanted": str(LEAST_BRANCH)}


def unexplained(case: Case) -> Finding:
    """The finding for an unknown message; every link is still checked, to report which are fine."""
    values = evidence(case.start, {})
    ruled_out, found, unread = [], [], {}
    chain = causes.PODMAN_CHAIN if case.start.is_podman else causes.CHAIN
    for cause in (CAUSES[id] for id in chain) if case.is_here and case.start.asked_for_gpu else ():
        try:
            finding = cause.look(case)
        except Skip as skip:
            unread[cause.problem.id] = skip.reason
            continue
        if finding:
            found.append(finding.because or finding.problem.id)
            break
        ruled_out.append(cause.problem.id)
    about = {"ruled_out": ruled_out, "could_not_check": unread, "also_found": found}
    values |= {key: value for key, value in about.items() if value}
    problem = replace(UNEXPLAINED, fixes=PODMAN_SAYS) if case.start.is_podman else UNEXPLAINED
    return problem.found(said(case.start) or "the engine printed no message", values, confidence=Confidence.UNKNOWN)
