"""Nsight Compute (ncu) reads two counters of a kernel."""

from __future__ import annotations

import csv
import tempfile
from typing import Any, Dict, Optional

from gpudoctor.worker.measuring import one_kernel, programs
from gpudoctor.worker.measuring.bench import ONCE, Bench, Workload
from gpudoctor.worker.reply import Skip

PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda-*/bin/ncu")
TIME, INSTRUCTIONS = "gpu__time_duration.sum", "smsp__inst_executed.sum"
# The clocks stay as they are: locking them would change a setting of the machine.
OPTIONS = ("--csv", "--print-units", "base", "--clock-control", "none", "--target-processes", "all")
MICROSECONDS = {"n": 1e-3, "u": 1.0, "m": 1e3, "s": 1e6}  # by the unit's first letter: ns, nsecond, us ...
SECONDS = 75


def run(bench: Bench) -> None:
    """ncu: {"path", "code", "seconds", "printed"}; row: {"kernel", "microseconds", "instructions"}, if there is a row."""
    path = programs.find("ncu", *PLACES)
    if path is None:
        raise Skip("ncu is not installed: not found on PATH, in a toolkit or in /opt/nvidia", Skip.NOT_INSTALLED)
    bench.step("ncu")
    # ncu writes section files to HOME, and to TMPDIR a lock that blocks other users.
    folder = tempfile.mkdtemp(prefix="ncu-", dir=bench.folder)
    command = [path, *OPTIONS, "--metrics", "%s,%s" % (TIME, INSTRUCTIONS), *one_kernel.command(bench.gpu)]
    ran = programs.run(command, SECONDS, folder, HOME=folder, **programs.python_environment())
    bench.keep("ncu", path=path, code=ran.code, seconds=ran.seconds, printed=programs.essence(ran.output))
    found = the_row(ran.output)
    if found:
        bench.keep("row", **found)


def the_row(output: str) -> Dict[str, Any]:
    """The row of the kernel; empty if the row or a counter is missing."""
    found: Dict[str, Any] = {}
    for row in csv.DictReader(line for line in output.splitlines() if line.startswith('"')):
        value = number(row.get("Metric Value"))
        if value is None:
            continue
        found["kernel"] = row.get("Kernel Name")
        if row["Metric Name"] == TIME:
            found["microseconds"] = value * MICROSECONDS.get((row.get("Metric Unit") or "n")[0], 1e-3)
        elif row["Metric Name"] == INSTRUCTIONS:
            found["instructions"] = value
    return found if len(found) == 3 else {}


def number(text: Optional[str]) -> Optional[float]:
    """ "16,896" and "5.12"; None for "n/a"."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


WORKLOAD = Workload(run, scope=ONCE, seconds=90, typical_seconds=8)
