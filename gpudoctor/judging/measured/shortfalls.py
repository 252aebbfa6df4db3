"""Which figures fall short of the expected value, of the other GPUs in this machine, or of what this GPU reached before."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.measured import expect
from gpudoctor.model import Figure

WARN = 0.85  # of what a healthy GPU of this kind reaches; the tables are not more precise than that
FAIL = 0.6
SIBLING = 0.9  # of the median of the same GPUs here, or of this GPU's own baseline
LOOSE = 0.7  # the same for figures without an expected value: their kernels take a tenth of a millisecond and vary


class Shortfall(NamedTuple):
    """A figure that is too low by one rule: it reached `share` of what the rule expects; `limit` is enough."""

    figure: Figure
    share: float
    limit: float
    rule: str

    @property
    def is_failure(self) -> bool:
        return self.share < FAIL

    @property
    def words(self) -> str:
        figure = self.figure
        return f"{figure.what} {digits(figure.value)} {figure.unit}, {self.share:.0%} of {self.rule}"


def digits(value: float) -> str:
    """Three significant digits, or all digits before the point."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def between(values: Sequence[float], places: int = 0) -> str:
    """`392 to 398`, or `392` if both are the same. places: digits after the point."""
    low, high = (f"{value:.{places}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def shortfalls(facts: Facts, figures: Sequence[Figure]) -> Iterator[Shortfall]:
    """Every figure that falls short, with the rule that it misses most."""
    kinds = [_kind(facts, figure.gpu) for figure in figures]
    alike: dict[tuple[str, str], list[Figure]] = {}
    for figure, kind in zip(figures, kinds, strict=True):
        alike.setdefault((figure.what, kind), []).append(figure)
    others = {key: _Others(found if key[1] else ()) for key, found in alike.items()}
    for figure, kind in zip(figures, kinds, strict=True):
        missed = by_each_rule(facts, figure, others[figure.what, kind])
        if missed:
            yield min(missed, key=lambda shortfall: shortfall.share / shortfall.limit)


class _Others:
    """The same figure of all GPUs of one kind, which are compared with each other."""

    def __init__(self, figures: Sequence[Figure]) -> None:
        self._figures = figures
        self._values = [figure.value for figure in figures]
        self._once_each = len({figure.gpu for figure in figures}) == len(figures)
        self._median = statistics.median(self._values) if self._values else 0.0

    def of(self, figure: Figure) -> tuple[float, int]:
        """The median of its GPU and the others, and how many these are."""
        if self._once_each or not self._figures:
            return self._median, len(self._figures) - 1
        siblings = [other.value for other in self._figures if other.gpu != figure.gpu]
        return statistics.median([*siblings, figure.value]), len(siblings)


def by_each_rule(facts: Facts, figure: Figure, others: _Others) -> list[Shortfall]:
    """One for each rule that it misses: datasheet or link, siblings, baseline."""
    found: list[Shortfall] = []
    share = figure.share
    if share is not None and share < WARN:
        found.append(Shortfall(figure, share, WARN, f"the {digits(figure.expected or 0)} expected ({figure.rule})"))
    if figure.gpu is None or figure.less_is_better:  # short times depend on what the CPU does meanwhile
        return found
    close = SIBLING if figure.expected else LOOSE
    median, siblings = others.of(figure)
    if siblings > 0 and figure.value / median < close:
        rule = f"the median {digits(median)} of this machine's {siblings + 1} GPUs"
        found.append(Shortfall(figure, figure.value / median, close, rule))
    before = baseline(facts, figure)
    if before and figure.value / before < close:
        found.append(Shortfall(figure, figure.value / before, close, f"its own {digits(before)} in the saved baseline"))
    return found


def _kind(facts: Facts, gpu: int | None) -> str:
    """The name of the GPU; "" if it is not known, so it has no siblings."""
    if gpu is None:
        return ""
    names = facts.once(_names)
    return names[gpu] if gpu < len(names) else ""


def _names(facts: Facts) -> Iterator[str]:
    """Of all GPUs that NVML or CUDA lists."""
    for index in range(max(len(known(lambda: facts.nvml.gpus, ())), len(known(lambda: facts.cuda.devices, ())))):
        device = expect.device(facts, index)
        yield device.name if device else ""


def baseline(facts: Facts, figure: Figure) -> float | None:
    """What this GPU reached when its baseline was saved."""
    if not facts.baseline:
        return None
    gpu = expect.gpu(facts, figure.gpu) if figure.gpu is not None else None
    return known(lambda: facts.baseline.get(gpu.uuid, {}).get(figure.what)) if gpu else None
