"""Runs a command with its tracer, and makes the reply of its profile."""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpudoctor.errors import UserError, WorkError
from gpudoctor.jobs.tracing import detailed, kernel_code, memory, ncu, nsys, reduced, rows
from gpudoctor.jobs.tracing.engines import CUPTI, INSTALL, NCU, NSYS, TORCH, Engine
from gpudoctor.jobs.tracing.events import Trace
from gpudoctor.jobs.tracing.hooked import Hooked, Window
from gpudoctor.model import SNAPSHOT_SCHEMA, Reply, Snapshot
from gpudoctor.trying import command, laboratory
from gpudoctor.trying.start import Goal, Ran
from gpudoctor.version import __version__

KEPT = ("rank", "local_rank", "world_size", "pid", "device", "settings", "memory", "memory_before", "holders", "compiled")
COUNTED = ("scaler_updates", "optimizer_steps", "held", "is_start")
MOST_BYTES = 1 << 30  # of what a tracer wrote with its trace
MOST_RANKS = 64
LARGE_BYTES = 256 << 20
NO_PYTHON = (
    "no Python of the command imported torch with the tracer (it may run with -I, -E or -S, or clear its variables); "
    f"for programs without torch, {INSTALL}"
)
NO_LIBRARY = "no Python of the command imported a library for CUDA (CuPy, Numba, JAX, cuda-python, PyCUDA, TensorFlow)"
NO_EITHER = f"{NO_LIBRARY[:-1]}, PyTorch)"
NO_CUDA = "the program imports torch but never used CUDA"
UNWRITTEN = "the profiler could not write all of its trace to {}: is there room, and no limit on the size of files?"
CUT_OFF = "the program used CUDA but ended before the profiler could write: it was killed, or replaced itself by another program"


@dataclass(frozen=True)
class Profiled:
    """ended_by: the signal (0: none) that asked gpudoctor to end."""

    reply: Reply
    ran: Ran
    ended_by: int


def profiled(
    argv: tuple[str, ...],
    variables: Mapping[str, str],
    window: Window,
    engine: Engine,
    keep: Path | None,
    out: int,
    err: int,
    tell: Callable[[str], object] = str,
) -> Profiled:
    """Runs the command as the user would. keep: the folder for its traces, None if they are not kept. out, err: descriptors to
    which its output is copied. tell: called with a line if reading the traces takes long. UserError if it cannot be started."""
    with _folder(keep) as folder:
        before = _before(engine, folder, window, keep is not None)
        place = Hooked(argv, variables, window, folder, before, engine.name != NSYS, engine.kernel, engine.inside)
        attempt = laboratory.first(place, Goal(), out, err)
        size = sum(file.stat().st_size for file in folder.glob("*.json"))
        if size >= LARGE_BYTES:
            tell(f"reading {size / 1e9:.1f} GB of traces (--steps and --for make them smaller)")
        if engine.kernel:
            told = _of_kernel(engine, folder, argv, command.python_of(argv, variables), keep is not None)
        else:
            told = nsys.told(engine.path, folder) if engine.name == NSYS else _told(folder, engine)
    value = {
        "line": shlex.join(argv),
        "code": attempt.ran.code,
        "ended": attempt.ran.manner,
        "seconds": round(attempt.ran.seconds, 2),
        "engine": engine.name,
        "engine_why": engine.why,
        "wanted": asdict(window),
        **told,
    }
    return Profiled(Reply("ok", value, "", round(attempt.ran.seconds, 2)), attempt.ran, attempt.ended_by)


def alone() -> Snapshot:
    """A snapshot without any answer of a machine."""
    taken = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Snapshot(SNAPSHOT_SCHEMA, __version__, taken, {}, level="quick")


def _before(engine: Engine, folder: Path, window: Window, is_kept: bool) -> tuple[str, ...]:
    """The words before the command, of a tracer that starts it."""
    if engine.name == NCU:
        return ncu.before(engine.path, engine.kernel, folder, is_kept)
    return nsys.before(engine.path, folder, window) if engine.name == NSYS else ()


def _of_kernel(engine: Engine, folder: Path, argv: tuple[str, ...], python: str | None, is_kept: bool) -> dict[str, Any]:
    """Its counters, if ncu may read them, and its code."""
    without: dict[str, Any] = {"ranks": [], "notes": [], "nothing": f"{ncu.MISSING}; {kernel_code.NOTHING}"}
    found = ncu.told(engine.path, engine.kernel, folder) if engine.path else without
    measured = found.get("kernel") or {"wanted": engine.kernel}
    more = kernel_code.told(engine.kernel, measured, folder, argv, python, is_kept)
    if not more:
        return found
    notes = [*found["notes"], *([found["nothing"]] if engine.path and found["nothing"] else [])]
    return {**found, "notes": notes, "nothing": "", "kernel": {**measured, **more}}


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
        except OSError as failure:
            raise UserError(f"--traces {keep}: {failure.strerror}") from None
        if any(keep.iterdir()):
            raise UserError(f"--traces {keep}: the folder is not empty")
        yield keep.resolve()
        return
    try:
        folder = Path(tempfile.mkdtemp(prefix="gpudoctor-traces-"))
    except OSError as failure:
        raise WorkError(f"no room for the traces: {failure.strerror}") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _told(folder: Path, engine: Engine) -> dict[str, Any]:
    """What the tracers of all processes wrote."""
    found = [one for one in map(_read, sorted(folder.glob("about-*.json"))) if one]
    notes = [one["note"] for one in map(_read, sorted(folder.glob("note-*.json"))) if one]
    notes += [note for one in found for note in one.get("notes") or ()]
    ranks: list[dict[str, Any]] = []
    for about in sorted(found, key=lambda one: (one.get("rank", 0), one["pid"])):
        trace = folder / f"trace-{about['pid']}.json"
        if trace.exists() and len(ranks) < MOST_RANKS:
            ranks.append(of_trace(trace, about))
    nothing = _nothing(found, ranks, notes, engine.inside)
    if nothing and any(folder.glob("*.part*")):
        nothing = UNWRITTEN.format(folder)
    unused = max((one for one in found if one.get("cpu_s")), key=lambda one: float(one["cpu_s"]), default={})
    told = {"ranks": ranks, "notes": list(dict.fromkeys(notes))[:20], "nothing": nothing}
    if engine.name == TORCH and any(one.get("engine") == CUPTI for one in found):
        told |= {"engine": CUPTI, "engine_why": "the program uses CUDA without torch, and its Python has cupti-python"}
    return {**told, "unused": {name: unused[name] for name in ("cpu_s", "gpus") if name in unused}} if unused else told


def of_trace(trace: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """The profile of one process. about: what the tracer wrote with it."""
    kept = {name: about[name] for name in (*KEPT, *COUNTED) if about.get(name) not in (None, {}, [])}
    found = reduced.profile(rows.read(Trace(trace)), about)
    detail = trace.with_name(trace.name.replace("trace-", "detail-"))
    if detail != trace and detail.exists() and isinstance(about.get("detail"), dict):
        found = detailed.added(found, reduced.profile(rows.read(Trace(detail)), about["detail"]))
    compilations = (about.get("compiled") or {}).get("in_window") or ()
    found["gaps_s"] = reduced.with_compilations(found["gaps_s"], sum(float(one.get("seconds") or 0) for one in compilations))
    allocations = memory.profile((about.get("detail") or about).get("allocations"))
    return {**kept, **found, **({"allocations": allocations} if allocations else {})}


def _nothing(found: list[dict[str, Any]], ranks: list[dict[str, Any]], notes: list[str], inside: Sequence[str]) -> str:
    if any(rank["kernel_count"] for rank in ranks):
        return ""
    if any(one.get("state") in ("refused", "failed") for one in found):
        return f"nothing was recorded: {notes[-1]}" if notes else "nothing was recorded"
    if ranks and any(one.get("has_cuda") for one in found):
        return "the program used CUDA, but CUPTI recorded no kernel: another profiler holds it, or it is not permitted"
    if any(one.get("has_cuda") for one in found):
        return CUT_OFF
    if ranks:
        return "the program used no GPU: its steps ran on the processor"
    if notes and not found:
        return f"nothing was recorded: {notes[-1]}"
    if found:
        return NO_CUDA
    return NO_EITHER if len(inside) > 1 else NO_LIBRARY if "cupti" in inside else NO_PYTHON


def _read(path: Path) -> dict[str, Any] | None:
    """A file that the program could have written, too."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
