"""What a program did with its time on the GPU, as it was traced from inside: `gpudoctor profile`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.job.allocations import Allocations
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Skip

QUESTION = "job-profile"
NUMBER = (int, float)
FIELDS: Mapping[str, Mapping[str, Any]] = {
    "waits": {"call": str, "operator": str, "count": int, "waited_s": NUMBER, "idle_s": NUMBER},
    "copies": {"name": str, "count": int, "bytes": NUMBER, "seconds": NUMBER, "exposed_s": NUMBER},
    "kernels": {"name": str, "kind": str, "precision": str, "seconds": NUMBER, "calls": int},
    "kinds": {"kind": str, "precision": str, "seconds": NUMBER},
    "operators": {"name": str, "calls": int, "host_s": NUMBER, "gpu_s": NUMBER},
    "shapes": {"operator": str, "shapes": int, "some": list},
    "lines": {"share": NUMBER, "waiting_share": NUMBER},
}
"""Table -> what each of its rows has."""


class Traced(Guarded):
    """One run of a command. engine, why: what traced it, and why that.

    nothing: why no work of a GPU was recorded, "" if some was. ended: how the command ended, "" for success. notes: what the
    tracers said.
    """

    def __init__(self, value: Mapping[str, Any]) -> None:
        self._value = value

    @property
    def line(self) -> str:
        return str(self._value["line"])

    @property
    def engine(self) -> str:
        return str(self._value.get("engine") or "")

    @property
    def why(self) -> str:
        return str(self._value.get("engine_why") or "")

    @property
    def ended(self) -> str:
        return str(self._value.get("ended") or "")

    @property
    def nothing(self) -> str:
        return str(self._value.get("nothing") or "")

    @property
    def unused(self) -> tuple[float, int] | None:
        """Of a program that imports torch but never used CUDA: the seconds of its threads on CPUs, and the GPUs it could use."""
        found = self._value.get("unused") or {}
        return (float(found["cpu_s"]), int(found.get("gpus") or 0)) if "cpu_s" in found else None

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(map(str, self._value.get("notes") or ()))

    @property
    def overview(self) -> Mapping[str, Any]:
        """All of it, for the tables of a report."""
        return self._value

    @cached_property
    def every_rank(self) -> tuple[Rank, ...]:
        """Also those that used no GPU."""
        return tuple(Rank(value) for value in self._value.get("ranks") or ())

    @cached_property
    def ranks(self) -> tuple[Rank, ...]:
        """The processes with recorded work of a GPU, in the order of their ranks; Skip without any."""
        found = tuple(rank for rank in self.every_rank if rank.kernel_count)
        if not found:
            is_of_kernel = bool(self._value.get("kernel"))
            raise Skip("only one kernel was measured" if is_of_kernel else self.nothing or "no work of a GPU was recorded")
        return found


class Rank(Guarded):
    """One traced process. Times are in seconds; shares are of the window, from its first to its last work on the GPU."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.value = value

    @property
    def number(self) -> int | None:
        """None if no launcher gave it a rank."""
        return self.value.get("rank")

    @property
    def window(self) -> float:
        return float(self.value["window_s"])

    @property
    def kernel_count(self) -> int:
        return int(self.value.get("kernel_count") or 0)

    @property
    def steps(self) -> int:
        """In the window; 0 if the program has no optimizer that steps."""
        return int((self.value.get("steps") or {}).get("count") or 0)

    @property
    def step_ms(self) -> float | None:
        return self._milliseconds("median_ms")

    @property
    def plain_step_ms(self) -> float | None:
        """The median of the steps that ran without the profiler."""
        return self._milliseconds("outside_median_ms")

    def _milliseconds(self, name: str) -> float | None:
        found = (self.value.get("steps") or {}).get(name)
        return None if found is None else float(found)

    @property
    def overhead(self) -> float | None:
        """By how much the profiler made a step longer: 0.05 for 5 %."""
        plain = self.plain_step_ms
        return self.step_ms / plain - 1 if plain and self.step_ms else None

    def seconds(self, name: str) -> float:
        return float(self.value[name])

    def share(self, name: str) -> float:
        """Of seconds such as `busy_s`."""
        return self.of_window(self.seconds(name))

    def of_window(self, seconds: float) -> float:
        return seconds / self.window if self.window else 0.0

    def gap(self, name: str) -> float:
        """The share of the time in which the GPU had nothing to do while the host did this."""
        return self.of_window(float(self.value["gaps_s"].get(name) or 0.0))

    @property
    def idle(self) -> float:
        return max(0.0, 1 - self.share("busy_s"))

    @property
    def mean_kernel_us(self) -> float:
        return self.seconds("kernel_s") / self.kernel_count * 1e6

    @property
    def short_share(self) -> float:
        """The share of the kernels that run less than 10 µs."""
        return int(self.value["short_kernels"]) / self.kernel_count

    @property
    def graph_launches(self) -> int:
        return int(self.value.get("graph_launches") or 0)

    @property
    def distortion(self) -> float:
        """Which part of the idle time the program has without the profiler, too; 1 if no step without it is known.

        The profiler makes each operator and each launch slower, and a GPU that waits for them is idle for longer.
        """
        if not (self.plain_step_ms and self.steps and self.idle):
            return 1.0
        busy_ms = 1000 * self.seconds("busy_s") / self.steps
        return min(1.0, max(0.0, 1 - busy_ms / self.plain_step_ms) / self.idle)

    def rows(self, name: str) -> tuple[Mapping[str, Any], ...]:
        """One of the tables: waits, copies, kernels, kinds, operators, shapes, lines."""
        found = tuple(self.value.get(name) or ())
        for row in found:
            for field, kinds in FIELDS[name].items():
                is_of_texts = not isinstance(row[field], list) or all(isinstance(one, str) for one in row[field])
                if not isinstance(row[field], kinds) or row[field] is True or not is_of_texts:
                    raise TypeError(f"{field} of {name} is {type(row[field]).__name__}")
        return found

    def _table(self, name: str) -> Mapping[str, Any]:
        found = self.value.get(name) or {}
        if not isinstance(found, dict):
            raise TypeError(f"{name} is {type(found).__name__}")
        return found

    @property
    def calls(self) -> Mapping[str, Any]:
        return self._table("calls")

    @property
    def settings(self) -> Mapping[str, Any]:
        return self._table("settings")

    @property
    def capability(self) -> tuple[int, int] | None:
        found = self.device.get("capability")
        return (int(found[0]), int(found[1])) if found else None

    @property
    def device(self) -> Mapping[str, Any]:
        return self._table("device")

    @property
    def memory(self) -> Mapping[str, Any]:
        return self._table("memory")

    def grown(self, counter: str) -> int | None:
        """By how much a counter of torch's allocator grew in the window; None if unknown."""
        before, after = (self.value.get("memory_before") or {}).get(counter), self.memory.get(counter)
        return None if before is None or after is None else int(after) - int(before)

    @property
    def held(self) -> tuple[tuple[float, float], ...]:
        """The number of a step, and the MiB that all tensors took when it ended; some of the steps, warm-up included."""
        return tuple((float(step), size / (1 << 20)) for step, size in self.value.get("held") or ())

    @property
    def is_start(self) -> bool:
        """Only the first seconds were recorded, in which a program still loads and fills its caches."""
        return bool(self.value.get("is_start"))

    @property
    def late(self) -> Mapping[str, Any]:
        """The steps of the window that lasted much longer than the others; {} if none did."""
        return (self.value.get("steps") or {}).get("late") or {}

    @property
    def compiled(self) -> Mapping[str, Any]:
        return self._table("compiled")

    def count(self, name: str) -> int:
        """Of `loads`, `scaler_updates` and the like; 0 if there were none."""
        return int(self.value.get(name) or 0)

    @property
    def compilations(self) -> int:
        """Of torch.compile, in the whole program."""
        return int(self.compiled.get("total") or 0)

    @property
    def repeated_compilations(self) -> tuple[Mapping[str, Any], ...]:
        """Those in the window that repeat an earlier one: function, file, line, seconds and the reason."""
        found = [row for row in self.compiled.get("in_window") or () if row.get("reason")]
        return tuple(
            {**row, "seconds": float(row.get("seconds") or 0), "reason": " ".join(str(row["reason"]).split())} for row in found
        )

    @property
    def graph_breaks(self) -> Mapping[str, int]:
        """Reason -> how often."""
        return {
            " ".join(str(reason).split()): int(number) for reason, number in (self.compiled.get("graph_breaks") or {}).items()
        }

    @property
    def driver_allocations(self) -> int:
        """Calls of cudaMalloc, cudaFree and the like in the window."""
        return sum(int(number) for number in (self.calls.get("allocations") or {}).values())

    @property
    def allocations(self) -> Allocations | None:
        """Of the steps in detail; None if torch kept no history of them."""
        found = self.value.get("allocations")
        return Allocations(found) if found else None

    def gib(self, name: str) -> float | None:
        """A counter of torch's allocator."""
        found = self.memory.get(name)
        return None if found is None else float(found) / (1 << 30)


def traced_of(replies: Replies) -> Traced:
    """Skip if nothing was profiled."""
    if QUESTION not in replies.starting_with(QUESTION):
        raise Skip("no program was profiled (gpudoctor profile -- COMMAND)")
    return Traced(replies.value(QUESTION))
