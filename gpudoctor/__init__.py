"""gpudoctor: finds what is wrong with a GPU machine, container or Python environment, and what to type to fix it.

    import gpudoctor

    report = gpudoctor.check(level="quick")
    print(report)

Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from gpudoctor.version import __version__

__all__ = [
    "Action",
    "Checkup",
    "Compared",
    "Confidence",
    "Coverage",
    "Diagnosis",
    "Explanation",
    "Figure",
    "Fix",
    "Measurements",
    "Report",
    "Result",
    "Snapshot",
    "Status",
    "UserError",
    "WorkError",
    "__version__",
    "check",
    "diff",
    "explain",
    "load",
]

if TYPE_CHECKING:
    from gpudoctor.api import check, diff, explain, load
    from gpudoctor.checkup import Checkup
    from gpudoctor.errors import UserError, WorkError
    from gpudoctor.model import (
        Action,
        Confidence,
        Coverage,
        Diagnosis,
        Figure,
        Fix,
        Measurements,
        Report,
        Result,
        Snapshot,
        Status,
    )
    from gpudoctor.results import Compared, Explanation
else:
    _ELSEWHERE = {
        **dict.fromkeys(("check", "diff", "explain", "load"), "api"),
        "Checkup": "checkup",
        **dict.fromkeys(("Compared", "Explanation"), "results"),
        **dict.fromkeys(("UserError", "WorkError"), "errors"),
    }

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'gpudoctor' has no attribute {name!r}")
        found = getattr(import_module(f"gpudoctor.{_ELSEWHERE.get(name, 'model')}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
