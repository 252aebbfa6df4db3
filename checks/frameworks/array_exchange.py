"""Arrays pass between torch, CuPy and Numba without a copy, and with the right values.

What it means
Frameworks hand GPU arrays to each other by DLPack or by __cuda_array_interface__: both then use the same memory. If the libraries
do not fit, the exchange raises an error, copies the array, or delivers other values.

How it is judged
Each installed pair exchanges an array in both directions. The receiver must see the same address and every value, and the giver
must see what the receiver wrote.

Known exceptions
The check runs at level full, on the first GPU that is measured, and is skipped without torch, or with neither CuPy nor Numba. A
framework that cannot be imported is reported by framework-imports.

References
https://dmlc.github.io/dlpack/latest/
https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
https://docs.cupy.dev/en/stable/user_guide/interoperability.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

WORKLOAD = "array-exchange"
AGAIN = "gpudoctor check --only array-exchange"
DOCUMENTS = (
    "https://dmlc.github.io/dlpack/latest/",
    "https://docs.cupy.dev/en/stable/user_guide/interoperability.html",
)
BROKEN = Problem(
    id="array-exchange-broken",
    title="Two frameworks cannot exchange arrays on the GPU",
    why="The exchange raised an error, or values differ on the other side. One library is too old for the protocol of the other, "
    "or they use different devices or streams without waiting for each other.",
    action=Action.INSTALL,
    fixes=(
        look("Look at the versions of both", "python -m pip list | grep -iE '^(torch|cupy|numba)'"),
        Fix("Upgrade the older library, then try again", verify=AGAIN),
        Fix("Copy through the host until then: torch.as_tensor(cupy.asnumpy(array)).cuda()", verify=AGAIN),
    ),
    references=DOCUMENTS,
    status=Status.WARN,
)
COPIES = Problem(
    id="array-exchange-copies",
    title="Two frameworks copy the arrays that they exchange",
    why="The receiver has the values at another address. Each exchange costs memory and time, and what one side writes the other "
    "does not see.",
    action=Action.WATCH,
    fixes=(
        look("Look at the versions of both", "python -m pip list | grep -iE '^(torch|cupy|numba)'"),
        Fix("Use from_dlpack of the receiver, which shares memory, instead of asarray or as_tensor", verify=AGAIN),
    ),
    references=DOCUMENTS,
    status=Status.WARN,
)


def ways(facts: Facts) -> dict[str, dict[str, Any]]:
    """What came of each way that was tried, such as "torch to CuPy"."""
    (run, *_) = facts.measured.runs(WORKLOAD)
    return {way: values for way, values in run.values.items() if " to " in way}


def judge(facts: Facts) -> Iterator[Finding]:
    found = ways(facts)
    broken = {way: words for way, values in found.items() if (words := fault(values))}
    if broken:
        told = "; ".join(f"{way}: {words}" for way, words in broken.items())
        yield BROKEN.found(told, {"ways": broken})
    copied = [way for way, values in found.items() if way not in broken and not values["shared"]]
    if copied:
        yield COPIES.found(f"{', '.join(copied)}: the array is at another address", {"ways": copied})
    if not found:
        raise Skip("no exchange finished: see measurements", Skip.NO_ANSWER)


def fault(values: dict[str, Any]) -> str:
    """What is wrong with an exchange; "" if nothing is."""
    if "error" in values:
        return str(values["error"])
    return f"{values['wrong_elements']} wrong elements" if values["wrong_elements"] else ""


def summary(facts: Facts) -> str:
    names = dict.fromkeys(name for way in ways(facts) for name in way.split(" to "))
    return f"{', '.join(names)} share arrays in all {len(ways(facts))} directions"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(BROKEN, COPIES),
    needs=("cuda-context",),
    explained_by=("torch",),
    level="full",
    workloads=(WORKLOAD,),
)
