"""Whether two reports are of the same machine, before and after a repair."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpudoctor.model import Report
from gpudoctor.redaction.tokens import PRESENT


def difference(one: Report, other: Report) -> str:
    """A difference that no repair causes, in words; "" if both can be the same machine.

    A kernel, a driver or the number of GPUs can change. GPUs that are not visible, and tokens of a redaction, prove nothing.
    """
    for name in ("architecture", "distribution", "wsl"):
        first, second = (_word(report.target.get(name)) for report in (one, other))
        if first is not None and second is not None and first != second:
            return f"{name} {first}, and here {second}"
    if "container" in one.target and "container" in other.target:
        first, second = (bool(report.target["container"]) for report in (one, other))
        if first != second:
            return (
                "it was asked in a container, and here is none"
                if first
                else "it was asked outside of a container, and here is one"
            )
    for name in ("uuid", "name"):
        first, second = (set(_of_gpus(report, name)) for report in (one, other))
        if first and second and not first & second:
            return f"its GPUs are {', '.join(sorted(first))}, and here {', '.join(sorted(second))}"
    return ""


def _word(value: Any) -> Any:
    """Only the name of a distribution: its version may have been upgraded."""
    return value.partition(" ")[0] if isinstance(value, str) else value


def _of_gpus(report: Report, name: str) -> Iterator[str]:
    for gpu in report.facts.get("gpus", ()):
        value = str(gpu.get(name) or "")
        if value and not PRESENT.search(value):
            yield value
