"""A long load that was interrupted: what it measured until then is kept, and only the rest is run again."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from gpudoctor import folders, state
from gpudoctor.errors import UserError
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.files import snapshot
from gpudoctor.model import Reply, Snapshot
from gpudoctor.wanted import Burning

LOADS = ("burn", *Burning.TOGETHER)
LEAST_SECONDS = 5.0  # less than that is not worth the preparations
SCHEMA = "gpudoctor.resume/1"
_STRETCH = re.compile(r"(\w+) (\d+)")


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What was wanted, and what it gave until it was interrupted."""

    schema: str
    seconds: float
    loads: tuple[str, ...]
    is_acceptance: bool
    gpus: tuple[int, ...]
    taken: msgspec.Raw

    @property
    def burning(self) -> Burning:
        return Burning(self.seconds, self.loads, self.is_acceptance)

    @property
    def snapshot(self) -> Snapshot:
        return snapshot.parse(bytes(self.taken), "the interrupted load")


def keep(taken: Snapshot, burning: Burning, gpus: tuple[int, ...]) -> str:
    """Returns why it could not be kept, "" if it was."""
    made = Kept(
        schema=SCHEMA,
        seconds=burning.seconds,
        loads=burning.loads,
        is_acceptance=burning.is_acceptance,
        gpus=gpus,
        taken=msgspec.Raw(snapshot.dump(taken)),
    )
    try:
        with state.locked(_file()):
            state.write(_file(), msgspec.json.encode(made))
    except (OSError, UserError) as failure:
        return str(getattr(failure, "strerror", None) or failure)
    return ""


def read() -> Kept:
    """UserError, in one line, if no load was interrupted."""
    try:
        found = msgspec.json.decode(_file().read_bytes(), type=Kept)
    except (OSError, UserError):
        raise UserError("no interrupted load is known: start one with gpudoctor burn") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UserError("the interrupted load cannot be read by this version: start again with gpudoctor burn") from None
    if found.schema != SCHEMA:
        raise UserError("the interrupted load is of another version: start again with gpudoctor burn")
    return found


def forget() -> None:
    """A load that ran to its end leaves nothing to resume."""
    with contextlib.suppress(OSError, UserError):
        _file().unlink(missing_ok=True)


def _file() -> Path:
    return folders.state() / "burn.json"


def must_be_same(earlier: Snapshot, now: Snapshot) -> None:
    """UserError if these are not the same GPUs, or the machine was started again in between."""
    if _gpus(earlier) != _gpus(now):
        raise UserError("the interrupted load ran on other GPUs: start again without --resume")
    boots = _boot(earlier), _boot(now)
    if all(boots) and boots[0] != boots[1]:
        raise UserError("the machine was started again since the interrupted load: start again without --resume")


def _gpus(taken: Snapshot) -> frozenset[str]:
    facts = Facts(taken)
    none: dict[str, Gpu] = {}
    return frozenset(_uuid(gpu) for gpu in known(lambda: facts.nvml.reachable, none).values())


def _uuid(gpu: Gpu) -> str:
    return known(lambda: gpu.uuid, "")


def _boot(taken: Snapshot) -> str:
    return known(lambda: Facts(taken).inventory.boot, "")


def has_benchmarks(measured: Mapping[str, Reply]) -> bool:
    """Whether all measurements before the load were finished."""
    plan = measured.get("plan")
    wanted = set((plan.value or {}).get("workloads", ())) - set(LOADS) if plan else set()
    others = {id: reply for id, reply in measured.items() if id.rpartition(":")[0] in wanted}
    return bool(others) and all(reply.status != "cut" for reply in others.values())


def left(burning: Burning, measured: Mapping[str, Reply], gpus: int) -> Burning:
    """What of a load is still to be done."""
    each = burning.options(gpus)
    possible = [load for load in LOADS if _is_possible(load, measured)]
    rest = {load: max(0.0, each[load]["seconds"] - _ran(load, measured)) if load in possible else 0.0 for load in LOADS}
    rest = {load: seconds if seconds >= LEAST_SECONDS else 0.0 for load, seconds in rest.items()}
    together = {load: rest[load] for load in Burning.TOGETHER}
    loads = tuple(load for load in burning.loads if (sum(together.values()) if load == "links" else rest["burn"]))
    return replace(burning, seconds=sum(rest.values()), loads=loads, together=together)


def _is_possible(load: str, measured: Mapping[str, Reply]) -> bool:
    """Whether it was to run, if the load has begun: what needs packages or GPUs that are not there is not waited for."""
    plan = measured.get("plan")
    wanted = {*LOADS}.intersection((plan.value or {}).get("workloads", ())) if plan else set()
    return not wanted or load in wanted


def _ran(load: str, measured: Mapping[str, Reply]) -> float:
    """The seconds of its stretches, on the GPU with the fewest."""
    found = [reply.value for id, reply in measured.items() if id.rpartition(":")[0] == load and isinstance(reply.value, dict)]
    sums = [sum(part.get("seconds", 0.0) for name, part in value.items() if _STRETCH.fullmatch(name)) for value in found]
    return min(sums, default=0.0)


def merged(earlier: Mapping[str, Reply], later: Mapping[str, Reply]) -> dict[str, Reply]:
    """The stretches of both, in order; of all else, what was measured last."""
    both = {**earlier, **later}
    offset = _ended(earlier)
    for id in earlier.keys() & later.keys():
        if id.rpartition(":")[0] in LOADS:
            both[id] = _joined(earlier[id], later[id], offset)
        elif id.startswith("watch:"):
            both[id] = _watched(earlier[id], later[id], offset)
        elif id.startswith("counters:"):
            both[id] = _counted(earlier[id], later[id])
    if "plan" in earlier and "plan" in later:
        both["plan"] = _planned(earlier["plan"], later["plan"])
    return both


def _joined(one: Reply, other: Reply, offset: float) -> Reply:
    """Stretches are renumbered, so that none replaces another, and the later ones begin when the earlier part had ended."""
    if not isinstance(one.value, dict) or not isinstance(other.value, dict):
        return other if isinstance(other.value, dict) else replace(other, value=one.value)
    first = {name: part for name, part in one.value.items() if name not in ("complete", "unfinished")}
    next_one = 1 + max((int(found[2]) for name in first if (found := _STRETCH.fullmatch(name))), default=-1)
    second = {}
    for name, part in other.value.items():
        found = _STRETCH.fullmatch(name)
        later = isinstance(part, dict) and isinstance(part.get("began"), (int, float))
        moved = {**part, "began": part["began"] + offset} if later else part
        second[f"{found[1]} {int(found[2]) + next_one}" if found else name] = moved
    return replace(other, value={**first, **second}, seconds=one.seconds + other.seconds)


def _ended(measured: Mapping[str, Reply]) -> float:
    """When the last stretch of an earlier part ended, in the seconds of what was watched."""
    values = [reply.value for id, reply in measured.items() if id.rpartition(":")[0] in LOADS and isinstance(reply.value, dict)]
    parts = [part for value in values for part in value.values() if isinstance(part, dict)]
    return max((part.get("began", 0.0) + part.get("seconds", 0.0) for part in parts), default=0.0)


def _watched(one: Reply, other: Reply, offset: float) -> Reply:
    """What moved, and what was reported, in both parts."""
    if not isinstance(one.value, dict) or not isinstance(other.value, dict):
        return other if isinstance(other.value, dict) else one
    first, second = one.value, dict(other.value)
    if "lines" in second:
        second["lines"] = [*first.get("lines", ()), *second["lines"]]
        second["line_seconds"] = [*first.get("line_seconds", ()), *(at + offset for at in second["line_seconds"])]
        second["xids"] = [*first.get("xids", ()), *([at + offset, *rest] for at, *rest in second["xids"])]
    if "moved" in second:
        moved = {name: [[at + offset, value] for at, value in points] for name, points in second["moved"].items()}
        earlier = first.get("moved", {})
        second["moved"] = {name: [*earlier.get(name, ()), *moved.get(name, ())] for name in {**earlier, **moved}}
        second["highest"] = {**second["highest"], **_higher(first.get("highest", {}), second["highest"])}
    return replace(other, value=second)


def _higher(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: max(value, other.get(name, value)) for name, value in one.items()}


def _counted(one: Reply, other: Reply) -> Reply:
    before = one.value.get("before") if isinstance(one.value, dict) else None
    return replace(other, value={**other.value, "before": before}) if before and isinstance(other.value, dict) else other


def _planned(one: Reply, other: Reply) -> Reply:
    if not isinstance(one.value, dict) or not isinstance(other.value, dict):
        return other
    workloads = {**one.value.get("workloads", {}), **other.value.get("workloads", {})}
    return replace(other, value={**other.value, "workloads": workloads}, seconds=one.seconds + other.seconds)
