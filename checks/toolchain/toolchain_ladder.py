"""Every installed way to compile code for the GPU works: driver, NVRTC, nvcc, load_inline, Triton, torch.compile.

What it means
Each rung of the ladder needs the rungs below it. Each one compiles the same kernel (the square of a matrix) and runs it on the
GPU. The first rung that fails shows which part is missing: the driver's compiler, a library, a C++ compiler, header files, Ninja.

How it is judged
Each installed rung must compile as your programs do: with your compilers, options and folders, in which it uses an empty one. It
must return exactly the right result, and produce a kernel that is not much slower than the best one. A rung that fails is tried
again with default compilers, no options and caches elsewhere: if that works, your settings are the cause. The report contains the
seconds until the first result, with empty and with filled caches, and the speed of each kernel next to that of torch.square(a),
a * a and a ** 2. All of these are limited only by memory.

Known exceptions
A rung that is not installed is named and is not a fault. Each rung compiles once, on the first GPU that is measured.
Of TORCH_CUDA_ARCH_LIST, only what this GPU needs is compiled. A rung that crashes or hangs is reported by measurements.

References
https://github.com/gpu-mode/lectures/tree/main/lecture_001
https://docs.pytorch.org/docs/stable/cpp_extension.html
https://docs.nvidia.com/cuda/nvrtc/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.judging.measured import expect, failing, faults, shortfalls, slowness
from gpudoctor.judging.texts import compilers
from gpudoctor.model import Action, Check, Confidence, Figure, Finding, Problem, Skip, Status, Unavailable

RUNGS = {
    "rung-ptx": "driver PTX",
    "rung-nvrtc": "NVRTC",
    "rung-nvcc": "nvcc",
    "rung-load-inline": "load_inline",
    "rung-triton": "Triton",
    "rung-compile": "torch.compile",
}
OPERATIONS = "square-torch"
SLOW_SHARE = 0.6  # of the fastest kernel's speed
LAST_LINES = 12
FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
TELLING = re.compile(r"\berror\s*:|\bfatal\b")
HARMLESS = (Skip.NOT_INSTALLED, Skip.UNSUPPORTED, Skip.NOT_APPLICABLE)

AGAIN = "gpudoctor check --only toolchain-ladder"
SLOW = Problem(
    id="compiled-kernel-slow",
    title="One compiler's kernel is much slower than the others",
    why="All kernels read and write the same memory, and nothing else takes time. A compiler produces slow code if it is in "
    "debug mode, is too old for the GPU or falls back to generic code. Everything that is built with it is slow too.",
    action=Action.WATCH,
    fixes=(
        look("Look for options that make code slow", "env | grep -E 'NVCC|CUDA|TRITON|TORCH'"),
        look("Measure again", AGAIN),
    ),
    status=Status.WARN,
)
BROKEN = Problem(
    id="toolchain-rung-broken",
    title="A compiler for GPU code is installed but fails",
    why="The compiler failed on the smallest useful kernel, and its error is not one of the known ones. Compilers that build "
    "on it usually fail too.",
    action=Action.WATCH,
    fixes=(look("Read the whole error", AGAIN + " --format json"),),
    references=("https://docs.pytorch.org/docs/stable/cpp_extension.html",),
    status=Status.WARN,
)


class Rung(NamedTuple):
    """The outcome of one rung: its results, or why it has no results."""

    name: str
    values: dict[str, Any]
    missing: Skip | None = None
    gpu: int | None = None

    @property
    def error(self) -> str:
        """Its output if it failed; "" if it works."""
        broken = self.values.get("broken", {})
        return "\n".join(text for text in (broken.get("error"), broken.get("printed")) if text)

    @property
    def is_intact(self) -> bool:
        """Whether it fails only with the user's settings."""
        return bool(self.values.get("broken", {}).get("clean") == "works")

    @property
    def telling(self) -> list[str]:
        """The lines in which a compiler names an error."""
        return [line.strip() for line in self.error.splitlines() if TELLING.search(line)]

    def says_as(self, other: Rung) -> bool:
        """Whether both contain the same error: one needs the other."""
        return not set(self.telling).isdisjoint(other.telling)


def rungs(facts: Facts) -> tuple[Rung, ...]:
    return tuple(rung(facts, workload, name) for workload, name in RUNGS.items())


def rung(facts: Facts, workload: str, name: str) -> Rung:
    try:
        run = facts.measured.runs(workload)[0]
    except Skip as skip:
        return Rung(name, {}, skip)
    values = dict(run.values)
    is_there = "square" in values or "broken" in values
    return Rung(name, values, None if is_there else why_not(facts, workload), run.gpu)


def why_not(facts: Facts, workload: str) -> Skip:
    """Why a rung has only a part of its results."""
    failed = any(failure.workload == workload for failure in facts.measured.failures)
    return Unavailable(f"{workload} did not finish" + (": see measurements" if failed else ""))


def judge(facts: Facts) -> Iterator[Finding]:
    found = rungs(facts)
    if all(each.missing for each in found):
        raise next(each.missing for each in found if each.missing)
    all_figures = facts.once(figures)
    yield from slowness.wrong_results(facts, all_figures)
    yield from broken(facts, found)
    yield from slow(facts, all_figures)
    for each in found:
        if each.missing and each.missing.kind not in HARMLESS:
            raise each.missing


def broken(facts: Facts, found: tuple[Rung, ...]) -> Iterator[Finding]:
    """One finding for each missing part, at the first rung that needs it."""
    seen: dict[str, list[Rung]] = {}
    nvcc = next((each.values["compiler"]["path"] for each in found if each.name == "nvcc" and "compiler" in each.values), "")
    why: dict[str, failing.Explanation] = {}
    for each in found:
        if each.error:
            known = recognised(each, nvcc)
            why[each.name] = failing.explanation(facts, failed(each, known is not None))
            same = next((key for key, others in seen.items() if each.says_as(others[0])), why[each.name].key or each.name)
            seen.setdefault(known.words if known else same, []).append(each)
    yield from failing.clues(why.values())
    for first, *rest in seen.values():
        known = recognised(first, nvcc)
        problem = known.problem if known else BROKEN
        words = known.words if known else (first.telling or first.error.splitlines())[0]
        names = [each.name for each in rest]
        also = f"; {' and '.join(names)} {'fails' if len(names) == 1 else 'fail'} too" if names else ""
        evidence = {
            "rungs": {each.name: state(each) for each in found},
            "error": " | ".join(first.error.splitlines()[-LAST_LINES:]),
            **({"nvcc": nvcc} if nvcc else {}),
        }
        confidence = Confidence.CONFIRMED if known else Confidence.UNKNOWN
        finding = problem.found(f"{first.name} fails: {words}{also}", evidence, confidence=confidence)
        yield failing.explained(replace(finding, because=known.because if known else ""), why[first.name])


def recognised(each: Rung, nvcc: str) -> compilers.Known | None:
    """What a compiler's error means. If it works with clean settings, no part of the toolchain is missing, whatever it says."""
    return None if each.is_intact else compilers.recognise(each.error, each.name, nvcc=nvcc)


def failed(each: Rung, is_known: bool) -> failing.Failed:
    broken = each.values["broken"]
    if each.is_intact:
        return failing.Failed(each.name, each.error, is_known=is_known, without=broken.get("unset", {}))
    return failing.Failed(each.name, each.error, is_known=is_known, clean=broken.get("clean", ""))


def state(each: Rung) -> str:
    if each.missing:
        return f"{each.missing.kind}: {each.missing.reason}"
    return "broken" if each.error else "works"


def slow(facts: Facts, all_figures: tuple[Figure, ...]) -> Iterator[Finding]:
    speeds = {figure.what: figure for figure in all_figures if figure.unit == "GB/s"}
    best = max(speeds.values(), key=lambda figure: figure.value, default=None)
    slow = [figure for figure in speeds.values() if best and figure.value < SLOW_SHARE * best.value]
    if best and slow:
        words = ", ".join(f"{figure.what} reaches {figure.value:.0f} GB/s" for figure in slow)
        by_nvcc = any("nvcc" in figure.what or "load_inline" in figure.what for figure in slow)
        flags = {name: facts.environment.get(name) for name in FLAGS if by_nvcc}
        told = "".join(f"; {name}={value} is set" for name, value in flags.items() if value)
        all_speeds = {what: round(figure.value) for what, figure in speeds.items()}
        yield SLOW.found(
            f"{words}; the fastest is {best.what} with {best.value:.0f} GB/s{told}", {"speeds": all_speeds}, best.gpu
        )


def figures(facts: Facts) -> Iterator[Figure]:
    """The kernel speed of each rung, the seconds of its first and of a later compilation, and the speeds of PyTorch."""
    for each in rungs(facts):
        if "square" in each.values:
            yield speed(facts, each.gpu, f"square by {each.name}", each.values["square"])
        for when, title in (("cold", "first"), ("warm", "next")):
            seconds = each.values.get("build", {}).get(f"{when}_seconds")
            if seconds is not None:
                yield Figure(f"{title} result of {each.name}", seconds, "s", each.gpu, less_is_better=True)
    operations = rung(facts, OPERATIONS, OPERATIONS)
    for name, result in operations.values.items():
        if isinstance(result, dict) and "gb_per_s" in result:
            yield speed(facts, operations.gpu, f"square by {name}", result)


def speed(facts: Facts, gpu: int | None, what: str, result: dict[str, Any]) -> Figure:
    expected = expect.NOTHING if gpu is None else expect.memory_gb_per_s(facts, gpu)
    count = result["wrong_elements"]
    return Figure(
        what,
        result["gb_per_s"],
        "GB/s",
        gpu,
        expected.value,
        expected.rule,
        wrong=f"{count} wrong elements" if count else "",
        during=result.get("during", {}),
        unlisted=expected.unlisted,
    )


def summary(facts: Facts) -> str:
    found = rungs(facts)
    works = [each for each in found if not each.missing and not each.error]
    speeds = [each.values["square"]["gb_per_s"] for each in works]
    words = f"{', '.join(each.name for each in works)}: {shortfalls.between(speeds)} GB/s"
    absent = [f"{each.name} ({each.missing.reason})" for each in found if each.missing]
    return words + (f"; not available: {', '.join(absent)}" if absent else "")


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(BROKEN, SLOW, faults.WRONG, *failing.PROBLEMS),
    needs=("cuda-context",),
    level="full",
    workloads=(*RUNGS, OPERATIONS),
    figures=figures,
    tags=("pytorch",),
)
