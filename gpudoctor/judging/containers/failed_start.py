"""Why a container did not start: what its engine said, and which link of the chain on this host is behind it. Pure.

The text alone decides what kind of failure it is. Where several causes are behind one text, the facts of this host say which:
in the order of the chain, the first link that is broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.container_start import Start
from gpudoctor.judging.containers import causes
from gpudoctor.judging.containers.access import NO_GPUS_FLAG, NOT_ARRIVED, PODMAN
from gpudoctor.judging.containers.causes import Case
from gpudoctor.judging.containers.cdi import STALE
from gpudoctor.judging.containers.daemon import ELSEWHERE, elsewhere
from gpudoctor.judging.containers.gpu_messages import GPU, RULES
from gpudoctor.judging.containers.gpu_problems import ENOUGH, REQUIRES
from gpudoctor.judging.containers.hosts import LIMITS
from gpudoctor.judging.containers.messages import PLAIN
from gpudoctor.judging.containers.request_errors import REWRITE_ALL
from gpudoctor.judging.containers.runtime import NOT_CONFIGURED
from gpudoctor.judging.containers.words import Message
from gpudoctor.knowledge.cuda import cuda_of_branch, shipped_driver
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Skip, Status, first_cause

MOST_SAID = 400  # characters of a message
LEAST_KNOWN = 525  # a branch to name where an image wants something that no table knows

UNEXPLAINED = Problem(
    id="container-start-unexplained",
    title="The container did not start, and what the engine says is not known to gpudoctor",
    why="The engine's words are all there is. What gpudoctor could look at on this host is fine, or has nothing to do with it.",
    action=Action.WATCH,
    fixes=(
        Fix(
            "Read what the daemon wrote meanwhile",
            "sudo journalctl -u docker -u containerd --since -5min --no-pager | tail -n 40",
        ),
        Fix("See whether anything starts: the same image without a GPU", "docker run --rm --entrypoint true <image>"),
    ),
)

PODMAN_SAYS = (
    Fix("See what Podman does, step by step", "podman --log-level=debug run --rm <image> true"),
    Fix("Read what its helper wrote meanwhile", "journalctl -t conmon -t podman --since -5min --no-pager | tail -n 40"),
)
LIKELY = Confidence.LIKELY
# Of the links that nobody can look at, those that are broken most often.
LIKELIEST = (
    *("container-toolkit-missing", "docker-runtime-not-configured", "toolkit-newer-than-daemon", "cdi-spec-missing"),
    *("cdi-spec-stale", "container-host-driver-not-loaded", "docker-snap", "docker-desktop-linux-no-gpu", "daemon-json-invalid"),
)
PROBLEMS = tuple(
    dict.fromkeys(
        (
            *causes.problems(),
            RULES.problem,
            *(message.problem for message in (*GPU, *PLAIN)),
            ELSEWHERE,
            NO_GPUS_FLAG,
            NOT_ARRIVED,
            UNEXPLAINED,
        )
    )
)


def judge(facts: Facts, start: Start) -> Iterator[Finding]:
    """One finding: the broken link, or what the message means by itself, or that it is not known."""
    case = Case(facts, start, causes.cdi_names(start.message))
    message = recognised(start.words)
    if message is None:
        yield failed(start, unexplained(case))
        return
    values = named(case, message)
    if values["file"] == "nvidia-smi" and not start.asked_for_gpu:
        words = "nvidia-smi comes into a container with the GPU, and none was asked for"
        yield NO_GPUS_FLAG.found(words, evidence(start, values))
    else:
        yield failed(start, explained(case, message, values))


def recognised(text: str) -> Message | None:
    """What an engine's words mean; those about GPUs go first, since the others also look for words such as cgroup."""
    return next((message for message in (*GPU, *PLAIN) if re.search(message.pattern, text)), None)


def explained(case: Case, message: Message, values: dict[str, str]) -> Finding:
    """The first broken link behind a message; where the host says nothing of the daemon, what the message says by itself."""
    sure = Confidence.LIKELY if message.sure is Confidence.UNKNOWN else message.sure
    by_itself = message.problem.found(message.words.format(**values), evidence(case.start, values), confidence=sure)
    by_itself = _for_this_host(case, by_itself, values)
    if not message.causes:
        return by_itself
    if not case.is_here:
        return _another_machine(case) or (_left_open(by_itself, message) if case.start.from_text else by_itself)
    finding = next(first_cause(message.causes, case, by_itself))
    if "ruled_out" not in finding.evidence:
        return _with_words(finding, case.start)
    return finding if message.sure is Confidence.UNKNOWN and finding.evidence["ruled_out"] else by_itself


def _left_open(finding: Finding, message: Message) -> Finding:
    """What can be behind it, where only a text is known; of the driver's faults each explains it."""
    if message.mostly:
        finding = replace(finding, problem=message.mostly.problem)
    found = {cause.problem.id: None for cause in message.causes if cause.problem is not finding.problem}
    links = tuple(sorted(found, key=lambda id: LIKELIEST.index(id) if id in LIKELIEST else len(LIKELIEST)))
    if len(links) > 1 and not any(cause.problem is finding.problem for cause in message.causes):
        finding = replace(finding, confidence=LIKELY)
    of_driver = causes.FAULTS_OF_DRIVER if causes.DRIVER in message.causes else ()
    about = {} if finding.confidence is Confidence.CONFIRMED else {"could_be": list(links), "decide": "gpudoctor check"}
    return replace(finding, causes=(*links, *of_driver), evidence={**finding.evidence, **about})


def _for_this_host(case: Case, finding: Finding, values: dict[str, str]) -> Finding:
    """Fixes that depend on what this host has: its driver, its specifications, its engine."""
    problem = finding.problem
    if problem is NOT_CONFIGURED and case.start.is_podman:
        return replace(finding, problem=replace(problem, fixes=(PODMAN,)))
    if problem is REQUIRES and _has_enough(case, values["condition"]):
        words = f"{finding.message}, which is enough: the toolkit saw another driver"
        return replace(finding, problem=replace(problem, fixes=ENOUGH), message=words, confidence=LIKELY)
    if problem is STALE:
        path = _specification(case, values["name"])
        rewrite = STALE.fixes if path else (REWRITE_ALL,)
        return replace(finding, problem=replace(problem, fixes=rewrite), evidence={**finding.evidence, "file": path})
    return finding


def _has_enough(case: Case, condition: str) -> bool:
    wanted = _wanted_cuda(condition)
    try:
        branch = case.facts.driver.branch if case.is_here and case.facts.driver.module_version else None
    except Skip:
        return False
    has = cuda_of_branch(branch) if branch else None
    return bool(wanted and has and has >= wanted)


def _specification(case: Case, name: str) -> str:
    """Where the specification lies that names this file; "" where none does, or this host's play no part."""
    try:
        found = case.facts.engines.cdi_specs if case.is_here else {}
    except Skip:
        found = {}
    return next((path for path, text in reversed(found.items()) if name in text), "")


def _another_machine(case: Case) -> Finding | None:
    """A GPU of this machine was meant, mostly, and another one was asked."""
    if case.start.is_podman:
        return None
    try:
        finding = elsewhere(case.facts)
    except Skip:
        return None
    return finding and _with_words(replace(finding, confidence=LIKELY), case.start)


def _with_words(finding: Finding, start: Start) -> Finding:
    """A link's finding, with what the engine said of it."""
    about = {"engine": start.name, "image": start.image, "engine_said": _said(start)}
    return replace(finding, evidence={**finding.evidence, **about})


def failed(start: Start, finding: Finding) -> Finding:
    """A container that did not start is a failure, however mild the same fault is before anybody starts one."""
    said = _said(start)
    message = finding.message if said in finding.message else f"{said}: {finding.message}"
    problem = replace(finding.problem, status=Status.FAIL)
    if command := "podman" if start.is_podman else "nerdctl" if start.is_nerdctl else "":
        problem = replace(
            problem, fixes=tuple(_by(command, fix) for fix in problem.fixes if not fix.title.startswith("With Docker:"))
        )
    return replace(finding, problem=problem, message=message, evidence=_told(finding.evidence, problem))


UNTOLD = {"image": "IMAGE", "name": "NAME", "path": "NAME", "command": "NAME", "file": "NAME", "wanted": str(LEAST_KNOWN)}
"""What stands for a word that the engine did not say, where a fix needs one."""


def _told(evidence: dict[str, Any], problem: Problem) -> dict[str, Any]:
    fixes = " ".join(f"{fix.command} {fix.verify} {fix.undo} {fix.recipe}" for fix in problem.fixes)
    untold = {**UNTOLD, **{key: evidence["name"] for key in ("path", "command", "file") if "name" in evidence}}
    return {
        key: value
        for key, value in evidence.items()
        if f"<{key}>" in fixes or value not in ("", UNTOLD.get(key), untold.get(key))
    }


_GPU_OF_DOCKER = re.compile(r"--gpus all|--runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all")
_OF_DOCKER = re.compile(
    r"\bdocker (?=(?:compose|container|image|info|inspect|login|network|ps|pull|rm|run|save|system|version)\b)"
)


def _by(command: str, fix: Fix) -> Fix:
    """The fix for an engine that has no daemon to restart, and (Podman) takes GPUs by CDI only."""

    def spoken(text: str) -> str:
        text = re.sub(r"(?:;| &&) (?:sudo )?systemctl (?:--user )?restart docker\b", "", text)
        if command == "podman":
            text = _GPU_OF_DOCKER.sub("--device nvidia.com/gpu=all", text)
        return _OF_DOCKER.sub(f"{command} ", text)

    title = re.sub(r",? and restart Docker(?: \([^)]*\))?| \(Docker [\d.]+ or later\)", "", fix.title)
    return replace(fix, title=title, command=spoken(fix.command), verify=spoken(fix.verify))


def unexplained(case: Case) -> Finding:
    """Every link is looked at all the same, to say which are fine."""
    values = evidence(case.start, {})
    ruled_out, found, unread = [], [], {}
    chain = causes.PODMAN_CHAIN if case.start.is_podman else causes.CHAIN
    for cause in chain if case.is_here and case.start.asked_for_gpu else ():
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
    return problem.found(_said(case.start) or "the engine said nothing", values, confidence=Confidence.UNKNOWN)


def named(case: Case, message: Message) -> dict[str, str]:
    """What words and fixes may name."""
    found = re.search(message.pattern, case.start.words)
    groups = found.groupdict() if found else {}
    name = next((text for text in groups.values() if text), "NAME")
    condition = re.search(r"unsatisfied condition: ([^,(]+)", case.start.words)
    return {
        "said": _said(case.start),
        "engine": case.start.name,
        "image": case.start.image or "IMAGE",
        "name": name,
        "file": name.rpartition("/")[2],
        "limit": LIMITS.get(groups.get("number") or "", "this limit"),
        "condition": condition[1].strip(" :") if condition else "another driver",
        "driver": _driver(case),
    }


def _driver(case: Case) -> str:
    try:
        version, branch = case.facts.driver.module_version, case.facts.driver.branch
    except Skip:
        version = branch = None
    if not version or not case.is_here:
        return "the driver of the machine that the daemon runs on has less"
    cuda = cuda_of_branch(branch) if branch else None
    return f"driver {version} of this machine has " + (f"CUDA {cuda[0]}.{cuda[1]}" if cuda else "less")


def evidence(start: Start, values: dict[str, str]) -> dict[str, Any]:
    """name, path, command: the same, for fixes that call it so."""
    name = values.get("name", "")
    about: dict[str, Any] = {
        "engine": start.name,
        "image": start.image or "IMAGE",
        "mode": start.mode,
        "engine_said": _said(start),
    }
    if name:
        about |= {"name": name, "path": name, "command": name}
    about["file"] = values.get("file", "")
    about["wanted"] = _branch(values.get("condition", ""))
    return about


def _branch(condition: str) -> str:
    """The branch of the first driver that is enough: "570" for cuda>=12.8, "535" for driver>=535."""
    if named_driver := re.search(r"driver\s*>=?\s*(\d+)", condition):
        return named_driver[1]
    wanted = _wanted_cuda(condition)
    driver = shipped_driver(wanted) if wanted else None
    return driver.split(".")[0] if driver else str(LEAST_KNOWN)


def _wanted_cuda(condition: str) -> tuple[int, int] | None:
    found = re.search(r"cuda\s*>=?\s*(\d+)\.(\d+)", condition)
    return (int(found[1]), int(found[2])) if found else None


def _said(start: Start) -> str:
    """The words; of very many those at the end, too, which mostly name the reason."""
    words = start.words
    return words if len(words) <= MOST_SAID else f"{words[: MOST_SAID // 2]} … {words[-MOST_SAID // 2 :]}"
