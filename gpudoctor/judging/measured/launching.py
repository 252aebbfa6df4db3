"""Why the host side of GPU work is slow: an environment variable, too few CPUs, a virtual machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.measured.shortfalls import Shortfall
from gpudoctor.judging.measured.slowness import CAUSES, Slow
from gpudoctor.model import Cause, Confidence, Figure, Finding, Problem, first_cause

# Variable -> the problem of cuda-environment that explains it.
VARIABLES = {
    "CUDA_LAUNCH_BLOCKING": "cuda-launch-blocking-left-on",
    "NSIGHT_CUDA_DEBUGGER": "cuda-debug-variable-left-on",
    "CUDA_PROFILE": "cuda-debug-variable-left-on",
    "COMPUTE_PROFILE": "cuda-debug-variable-left-on",
    "CUDA_INJECTION64_PATH": "cupti-multiple-subscribers",
}


def judge(facts: Facts, shortfalls: Iterable[Shortfall], problem: Problem, causes: Sequence[Cause] = CAUSES) -> Iterator[Finding]:
    """One finding with its cause for each GPU that falls short: causes on the host first, then `causes`."""
    found: dict[int, list[Shortfall]] = {}
    for shortfall in shortfalls:
        found.setdefault(shortfall.figure.gpu or 0, []).append(shortfall)
    for index, all in found.items():
        ordered = sorted(all, key=lambda shortfall: shortfall.share / shortfall.limit)
        slow = Slow(facts, index, ordered[0], ordered)
        cause = host_cause(slow, problem)
        unknown = slow.found(problem, "")
        yield from [cause] if cause else (virtual(facts, finding) for finding in first_cause(causes, slow, unknown))


def host_cause(slow: Slow, problem: Problem) -> Finding | None:
    for look in (variable, few_processors):
        if finding := known(partial(look, slow, problem)):
            return finding
    return None


def variable(slow: Slow, problem: Problem) -> Finding | None:
    for name, because in VARIABLES.items():
        value = slow.facts.environment.get(name)
        if value and value.strip() != "0":
            return slow.found(problem, f"{name}={value} is set", because)
    return None


def few_processors(slow: Slow, problem: Problem) -> Finding | None:
    limits = slow.facts.limits
    if len(limits.cpus) == 1 < limits.cpu_count:
        return slow.found(problem, f"this process is allowed to use 1 of {limits.cpu_count} CPUs", "cpu-affinity-narrow")
    if limits.cgroup_cpus is not None and limits.cgroup_cpus < 1:
        return slow.found(problem, f"its cgroup limits it to {limits.cgroup_cpus:g} CPUs", "cpu-quota-below-one")
    return None


def virtual(facts: Facts, finding: Finding) -> Finding:
    """The finding, with a note that this is a virtual machine if no cause was found."""
    hypervisor = known(lambda: facts.system.hypervisor)
    if not hypervisor or finding.confidence is not Confidence.UNKNOWN:
        return finding
    kind = "" if hypervisor == "unknown" else f" ({hypervisor})"
    words = f"{finding.message}; this is a virtual machine{kind}, and its host may cause the delay"
    return replace(finding, message=words, confidence=Confidence.LIKELY)


def slowest(figures: Iterable[Figure]) -> str:
    """Each time that was measured, in microseconds, of the GPU on which it was longest."""
    longest: dict[str, float] = {}
    for figure in figures:
        longest[figure.what] = max(longest.get(figure.what, 0.0), figure.value)
    return ", ".join(f"{what}: {microseconds:.1f} µs" for what, microseconds in longest.items())
