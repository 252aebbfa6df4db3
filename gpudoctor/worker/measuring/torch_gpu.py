"""One GPU through torch: times measured like triton.testing.do_bench, and the error of a result."""

from __future__ import annotations

import math
import statistics
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from gpudoctor.worker.measuring.bench import Bench, finite, summary
from gpudoctor.worker.measuring.square import cuda_torch

WARM_UP_MS, REPEATS_MS = 25.0, 100.0  # as do_bench
STEADY = 0.005  # two rounds in a row whose medians differ by less show a steady speed
FLUSH_BYTES = 256 << 20  # written before each call, so that its data is not in the L2 cache
SHARE_OF_FREE = 8  # less than FLUSH_BYTES if memory is short

# The largest relative error of one rounding.
ROUNDING = {"fp64": 2.0**-53, "fp32": 2.0**-24, "tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8}
OUTLIERS = 16  # the largest error of very many elements, in typical roundings


class Timed(NamedTuple):
    """The milliseconds of each call, and the result of the last one."""

    milliseconds: List[float]
    result: Any

    def values(self, operations: float = 0) -> Dict[str, float]:
        """{"milliseconds", "spread"}, and "tflops" if the number of floating point operations is given."""
        found = summary(self.milliseconds)
        rate = {"tflops": operations / found["median"] / 1e9} if operations and found["median"] else {}
        return {"milliseconds": found["median"], "spread": found["spread"], **rate}


def gpu(bench: Bench) -> Any:
    """The workload's GPU as torch's device, made current; Skip if torch was built without CUDA."""
    torch = cuda_torch()
    bench.step("context")
    torch.cuda.set_device(bench.gpu)
    torch.cuda.synchronize()
    return torch.device("cuda", bench.gpu)


def event() -> Any:
    import torch

    return torch.cuda.Event(enable_timing=True)


def synchronize() -> None:
    import torch

    torch.cuda.synchronize()


def free_bytes() -> int:
    """Memory that torch's allocator holds unused counts as free."""
    import torch

    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info()[0])


def capability() -> Tuple[int, int]:
    import torch

    major, minor = torch.cuda.get_device_capability()
    return major, minor


def timed(work: Callable[[], Any], device: Any, warm_up_ms: float = WARM_UP_MS, most_rounds: int = 1) -> Timed:
    """Repeats calls after a warm-up, each between two events and with a flushed L2 cache, as in do_bench.

    most_rounds: repeats rounds of 100 ms until the speed is steady, but not more than this. The result is then the last two.
    https://triton-lang.org/main/python-api/generated/triton.testing.do_bench.html
    """
    import torch

    result = work()
    synchronize()
    flush = torch.empty(min(FLUSH_BYTES, free_bytes() // SHARE_OF_FREE), dtype=torch.int8, device=device)
    estimate = elapsed(lambda: [(flush.zero_(), work()) for _ in range(5)]) / 5
    for _ in range(calls(warm_up_ms, estimate)):
        work()
    rounds: List[List[float]] = []
    while len(rounds) < most_rounds and not is_steady(rounds):
        marks = [(event(), event()) for _ in range(calls(REPEATS_MS, estimate))]
        for before, after in marks:
            flush.zero_()
            before.record()
            result = work()
            after.record()
        synchronize()
        rounds.append([before.elapsed_time(after) for before, after in marks])
    return Timed([milliseconds for each in rounds[-2:] for milliseconds in each], result)


def is_steady(rounds: List[List[float]]) -> bool:
    """Whether the last two rounds were equally fast."""
    if len(rounds) < 2:
        return False
    one, other = (statistics.median(each) for each in rounds[-2:])
    return abs(one - other) <= STEADY * other


def calls(milliseconds: float, each: float) -> int:
    return max(1, int(milliseconds / each)) if each else 1


def elapsed(work: Callable[[], Any]) -> float:
    """Milliseconds of GPU time."""
    before, after = event(), event()
    before.record()
    work()
    after.record()
    synchronize()
    return float(before.elapsed_time(after))


def allowed_error(rounded: str, terms: int, summed: float = ROUNDING["fp32"]) -> float:
    """For sums of this many random products, relative to their root mean square: rounding while summing, and once at the end.

    The error of a sum grows with the square root of its terms: https://en.wikipedia.org/wiki/Pairwise_summation
    """
    return OUTLIERS * (ROUNDING[rounded] + math.sqrt(terms) * summed)


def verdict(found: Any, exact: Any, allowed: float) -> Dict[str, Any]:
    """{"relative_error", "allowed_error", "wrong"}; the error is null if the result is not finite."""
    error = relative_error(found, exact)
    return {"relative_error": error, "allowed_error": allowed, "wrong": error is None or error > allowed}


def relative_error(found: Any, exact: Any) -> Optional[float]:
    """The largest error, relative to the root mean square of its row; None if it is not finite."""
    exact = exact.double()
    scale = exact.square().mean(dim=-1, keepdim=True).sqrt()
    error = float(((found.double() - exact).abs() / scale).max().item())
    return finite(error)


def loaded(name: str) -> List[str]:
    """The paths of the libraries with this name ("libcudnn") that this process has loaded, each once."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return libraries(maps.read(), name)


def libraries(maps: str, name: str) -> List[str]:
    """Like `loaded`, from the text of a process's maps."""
    columns = [line.split(None, 5) for line in maps.splitlines()]
    paths = {parts[5].strip() for parts in columns if len(parts) == 6}
    return sorted(path for path in paths if path.rpartition("/")[2].startswith(name) and ".so" in path)
