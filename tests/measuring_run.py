"""A measuring job with fake workloads, frameworks and NVML; as a program (its argument: a job as JSON) it prints each message."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from waiting import HOPELESS_SECONDS

from gpudoctor import bootstrap, interpreter

HERE = Path(__file__).parent
TORCH = """
import os, time
PID = os.getpid()
time.sleep(0.5)
ENDED = time.monotonic()
__version__ = "9.8"
print("noise at import")
"""


def job(workloads: str, gpus: int = 1, seconds: float = HOPELESS_SECONDS, **replaced: str | None) -> dict[str, Any]:
    """replaced: text of modules in the target; None for one that is not there."""
    names = workloads.split()
    sources: dict[str, str | None] = {**bootstrap.travelling_sources(), "pynvml.py": None, "torch.py": TORCH}
    sources["fake_workloads.py"] = (HERE / "fake_workloads.py").read_text()
    for name in names:
        text = f"from fake_workloads import WORKLOADS\nWORKLOAD = WORKLOADS[{name!r}]\n"
        sources[f"gpudoctor/worker/workloads/{name.replace('-', '_')}.py"] = text
    sources.update({f"{name}.py": text for name, text in replaced.items()})
    return {
        "workloads": names,
        "gpus": [[index, index, []] for index in range(gpus)],
        "level": "standard",
        "seconds": seconds,
        "sources": {name: text for name, text in sources.items() if text is not None},
    }


def patched(made: dict[str, Any], file: str, before: str, after: str) -> dict[str, Any]:
    """The job with one line of a travelling file replaced."""
    text = made["sources"][f"gpudoctor/worker/{file}"]
    assert before in text
    return {**made, "sources": {**made["sources"], f"gpudoctor/worker/{file}": text.replace(before, after)}}


def tell(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    given = json.loads(sys.stdin.read())
    tell({"signal": interpreter.this_interpreter().run(given, tell, patience=HOPELESS_SECONDS)})
