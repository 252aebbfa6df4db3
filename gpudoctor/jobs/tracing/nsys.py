"""Nsight Systems as the tracer of any CUDA program: its report, exported to SQLite, gives the same rows as a trace of torch."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from gpudoctor.jobs.tracing import reduced, rows
from gpudoctor.jobs.tracing.hooked import Window
from gpudoctor.jobs.tracing.rows import Rows

REPORT = "report"
OPTIONS = ("--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true", "--show-output=true")
EXPORT_SECONDS = 600
COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static"}
KERNELS = """
    SELECT k.start, k.end, k.deviceId, k.streamId, k.correlationId, s.value,
           k.gridX, k.gridY, k.gridZ, k.blockX, k.blockY, k.blockZ,
           k.registersPerThread, k.staticSharedMemory + k.dynamicSharedMemory, k.globalPid
    FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName
"""
MEMCPYS = """
    SELECT start, end, deviceId, streamId, correlationId, copyKind, srcKind, dstKind, bytes, globalPid
    FROM CUPTI_ACTIVITY_KIND_MEMCPY
"""
CALLS = """
    SELECT r.start, r.end, r.globalTid, r.correlationId, s.value
    FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId
"""


def before(path: str, folder: Path, window: Window) -> tuple[str, ...]:
    """The words before the command. It is not ended when the time of the window is over."""
    limit = (f"--delay={round(window.after)}", f"--duration={max(1, round(window.seconds))}", "--kill=none", "--wait=primary")
    return (path, "profile", *OPTIONS, *limit, f"--output={folder / REPORT}")


def told(path: str, folder: Path) -> dict[str, Any]:
    """As the tracers inside torch tell it, one rank for each process."""
    report = next(iter(sorted(folder.glob(f"{REPORT}.*rep"))), None)
    if report is None:
        return {"ranks": [], "notes": [], "nothing": "nsys wrote no report"}
    database = folder / f"{REPORT}.sqlite"
    line = (path, "export", "--type=sqlite", "--force-overwrite=true", f"--output={database}", str(report))
    try:
        ran = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, timeout=EXPORT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as failure:
        return {"ranks": [], "notes": [], "nothing": f"nsys could not export its report: {failure}"}
    if not database.exists():
        words = (ran.stderr or ran.stdout).decode("utf-8", "replace").strip().splitlines()[-1:]
        return {"ranks": [], "notes": words, "nothing": "nsys could not export its report"}
    found = list(of_database(database))
    return {"ranks": found, "notes": [], "nothing": "" if found else "nsys recorded no work of a GPU"}


def of_database(database: Path) -> Iterator[dict[str, Any]]:
    """The profile of each process that used a GPU."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        processes: dict[int, Rows] = {}
        for event, process in _events(connection):
            processes.setdefault(process, Rows()).read((event,))
        for process, one in sorted(processes.items()):
            if len(one.g_start):
                yield {"pid": process, **reduced.profile(one, {})}


def _events(connection: sqlite3.Connection) -> Iterator[tuple[dict[str, Any], int]]:
    """(an event as in a trace of torch, its process)"""
    for start, end, device, stream, link, name, *launch, process in _asked(connection, KERNELS):
        args = {"device": device, "stream": stream, "correlation": link, "grid": launch[:3], "block": launch[3:6]}
        args |= {"registers per thread": launch[6], "shared memory": launch[7]}
        yield _event("kernel", name, start, end, args), _process(process)
    for start, end, device, stream, link, kind, source, target, size, process in _asked(connection, MEMCPYS):
        name = f"Memcpy {COPIES.get(kind, 'other')} ({MEMORY.get(source, 'Unknown')} -> {MEMORY.get(target, 'Unknown')})"
        args = {"device": device, "stream": stream, "correlation": link, "bytes": size}
        yield _event("gpu_memcpy", name, start, end, args), _process(process)
    for start, end, thread, link, name in _asked(connection, CALLS):
        event = _event("cuda_runtime", str(name).partition("_v")[0], start, end, {"correlation": link})
        yield {**event, "tid": thread & 0xFFFFFF}, _process(thread)


def _event(kind: str, name: str, start: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "ts": start / 1000, "dur": (end - start) / 1000, "args": args}


def _process(identity: int) -> int:
    """The process id within nsys's global ids."""
    return (identity >> 24) & 0xFFFFFF


def _asked(connection: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """Nothing if the report has no such table: the program did nothing of this kind."""
    with suppress(sqlite3.OperationalError):
        yield from connection.execute(f"{query} LIMIT {rows.MOST_ON_GPU}")
