"""The checks that packages of RAPIDS bring for `rapids doctor`, run in the Python that is examined."""

from __future__ import annotations

import inspect
import sys
import warnings
from importlib import metadata
from typing import Any, Callable, Dict, List

from gpudoctor.worker.measuring.bench import ONCE, Bench, Workload
from gpudoctor.worker.reply import Skip

GROUP = "rapids_doctor_check"  # entry points, each a function that raises if something is wrong
LONGEST = 500  # characters of a text that is kept
MOST_WARNINGS = 5


def run(bench: Bench) -> None:
    """Stores "check 0" and so on: {"check", "function" (MODULE:NAME), "status" (pass, fail, not loaded), "words", "warnings"}."""
    found = points()
    if not found:
        raise Skip("no installed package has checks for rapids doctor", Skip.NOT_INSTALLED)
    for number, point in enumerate(found):
        bench.step(point.name)
        bench.keep("check %d" % number, check=point.name, function=point.value, **outcome(point))


def points() -> List[Any]:
    """Each function once, although several packages may name it."""
    every: Any = metadata.entry_points()
    found = every.select(group=GROUP) if hasattr(every, "select") else every.get(GROUP, ())  # Python 3.8 has a dict
    return sorted({point.value: point for point in found}.values(), key=lambda point: (point.name, point.value))


def outcome(point: Any) -> Dict[str, Any]:
    try:
        check = point.load()
    except (ImportError, AttributeError) as failure:  # rapids doctor leaves them out, too
        return {"status": "not loaded", "words": _words(failure), "warnings": []}
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            said = check(**_accepted(check))
            status, words = "pass", said[:LONGEST] if isinstance(said, str) else ""
        except Exception as failure:
            status, words = "fail", _words(failure)
    texts = list(dict.fromkeys(str(warning.message)[:LONGEST] for warning in heard))
    return {"status": status, "words": words, "warnings": texts[:MOST_WARNINGS]}


def _accepted(check: Callable[..., Any]) -> Dict[str, Any]:
    """As rapids doctor calls it: with what it looks GPUs up with, if rapids-cli is installed."""
    offered: Dict[str, Any] = {"verbose": False}
    hardware = sys.modules.get("rapids_cli.hardware")
    if hardware is not None:
        offered["gpu_info"] = hardware.NvmlGpuInfo()
    parameters = inspect.signature(check).parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return {name: value for name, value in offered.items() if takes_any or name in parameters}


def _words(failure: BaseException) -> str:
    return ("%s: %s" % (type(failure).__name__, failure))[:LONGEST]


WORKLOAD = Workload(run, scope=ONCE, seconds=120, typical_seconds=10)
