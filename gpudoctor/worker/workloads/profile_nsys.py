"""Nsight Systems (nsys) traces a kernel."""

from __future__ import annotations

import csv
import glob
import os
import tempfile
from typing import Any, Dict

from gpudoctor.worker.measuring import one_kernel, programs
from gpudoctor.worker.measuring.bench import ONCE, Bench, Workload
from gpudoctor.worker.reply import Skip

PLACES = (
    "/usr/local/cuda/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/bin/nsys",
    "/usr/local/cuda-*/bin/nsys",
)
TRACE = ("--trace=cuda", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true", "--output=report")
REPORTS = ("cuda_gpu_kern_sum", "gpukernsum")  # the second is its name before 2022.4
SECONDS = 60


def run(bench: Bench) -> None:
    """nsys: {"path", "code", "seconds", "printed"}; row: {"kernel", "microseconds"}, if there is a row."""
    path = programs.find("nsys", *PLACES)
    if path is None:
        raise Skip("nsys is not installed: not found on PATH, in a toolkit or in /opt/nvidia", Skip.NOT_INSTALLED)
    bench.step("nsys profile")
    folder = tempfile.mkdtemp(prefix="nsys-", dir=bench.folder)
    environment = {"HOME": folder, **programs.python_environment()}
    ran = programs.run([path, "profile", *TRACE, *one_kernel.command(bench.gpu)], SECONDS, folder, **environment)
    printed = ran.output
    found: Dict[str, Any] = {}
    for file in glob.glob(os.path.join(glob.escape(folder), "report.*rep")):
        for report in REPORTS:
            bench.step("nsys stats")
            stats = programs.run([path, "stats", "--report", report, "--format", "csv", file], SECONDS, folder, **environment)
            printed += stats.output
            found = found or first_row(stats.output)
            if found:
                break
    bench.keep("nsys", path=path, code=ran.code, seconds=ran.seconds, printed=programs.essence(printed))
    if found:
        bench.keep("row", **found)


def first_row(output: str) -> Dict[str, Any]:
    """The first row of the table of kernels; empty if it has no rows."""
    lines = output.splitlines()
    header = next((number for number, line in enumerate(lines) if line.startswith("Time") and line.endswith("Name")), None)
    for row in csv.DictReader(lines[header:] if header is not None else []):
        if row.get("Name") and row.get("Total Time (ns)"):
            return {"kernel": row["Name"], "microseconds": float(row["Total Time (ns)"].replace(",", "")) / 1000}
    return {}


WORKLOAD = Workload(run, scope=ONCE, seconds=200, typical_seconds=12)
