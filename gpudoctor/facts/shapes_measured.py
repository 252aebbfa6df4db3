"""The types of what workloads return: results by name, whose fields mean the same in every workload."""

from __future__ import annotations

import re
from typing import Any

from gpudoctor.facts.shape_types import FLAG, NUMBER, TEXT, TEXTS, lists, maps, record

NAMES = re.compile(r"plan|sampler|import:[\w.-]+|[\w-]+:(?:all|gpu\d{1,4})")

_NUMBERS = """
    began burst_ms bursts copies products
    algorithm_gb_per_s all_milliseconds allowed_error block_bytes blocks both_milliseconds bus_gb_per_s bytes cached_microseconds
    channels code cold_seconds compute_milliseconds concurrent_kernels copy copy_milliseconds cuda_runtime devices
    driver_microseconds elements empty_allocated_bytes empty_driver_bytes empty_reserved_bytes event_microseconds first first_fp32
    first_loss first_scale first_seconds free_bytes from_gpu_gb_per_s full_allocated_bytes full_driver_bytes full_reserved_bytes
    gb_per_s gflops gpu gpus gradient_bytes gradient_checksum gradient_error half_allocated_bytes half_driver_bytes
    half_emptied_allocated_bytes half_emptied_driver_bytes half_emptied_reserved_bytes half_reserved_bytes hidden instructions
    iterations kernels l2_bytes last last_loss microseconds microseconds_per_kernel milliseconds milliseconds_per_step
    nvls_channels one_milliseconds patterns ranks relative_error round_trip_error rows scale seconds side size skipped_steps
    spread steps_per_second tflops to_gpu_gb_per_s total_bytes warm_seconds wrong_blocks wrong_bytes wrong_rows
    wrong_words_by_kernels
"""
_TEXTS = """
    backend checksum clean compiled_for cuda dtype float32_matmul_precision implementation kernel load loaded message outcome path
    pattern platform precision printed refusal refused skipped stopped target text unavailable version
"""
_FLAGS = "allow_tf32 built_with_cupti caching expandable_segments finite near_gpu shared verified works_after"
_TOLD = ("prints", "recorded", "kind")
_WRONG_WORDS = record(numbers="words wrong_bits", texts="address expected read_again")
_RESULT = record(
    numbers=_NUMBERS,
    texts=_TEXTS,
    flags=_FLAGS,
    connections=maps(NUMBER),
    cublas=TEXTS,
    cublas_lt=TEXTS,
    during=dict[str, Any] | None,
    each=maps(NUMBER),
    environment=maps(TEXT),
    error=NUMBER | str,
    libraries=TEXTS,
    on=TEXTS,
    pairs=TEXTS,
    settings=maps(TEXT),
    unset=maps(TEXT),
    timeline=maps(lists(lists(NUMBER))),
    wrong=FLAG | lists(_WRONG_WORDS),
    wrong_elements=NUMBER | maps(NUMBER),
    wrong_words=NUMBER | maps(NUMBER),
)
_PLAIN = (str, int, float, bool, type(None))
_FITTED: set[tuple[Any, ...]] = set()
_MOST_FITTED = 4096
_EXACT: dict[str, Any] = {
    "plan": record(texts="kind", gpus=list[int] | None, left_alone=maps(TEXT), workloads=maps(TEXT)),
    "import": record(numbers="seconds", texts="file prints recorded version", libraries=TEXTS),
    "counters": maps(maps(NUMBER)),
    "history": record(
        numbers="every_seconds",
        celsius=lists(NUMBER),
        memory_celsius=lists(NUMBER),
        sm_mhz=lists(NUMBER),
        watts=lists(NUMBER),
        workloads=maps(lists(NUMBER)),
    ),
    "sampler": Any,
    "watch": record(
        numbers="calls every_seconds longest_milliseconds milliseconds readings",
        texts="source why",
        events=maps(TEXT),
        highest=maps(NUMBER),
        line_seconds=lists(NUMBER),
        lines=TEXTS,
        links=lists(NUMBER),
        moved=maps(lists(lists(NUMBER))),
        not_watched=maps(TEXT),
        watched=TEXTS,
        xids=lists(lists(NUMBER)),
    ),
}


def of(id: str) -> Any:
    """The type of one measurement, such as "gemm:gpu0"."""
    return _EXACT.get(id.partition(":")[0], maps(_RESULT))


def unfamiliar(id: str, value: Any) -> Any:
    """The results without those that have the names and types of others that fitted: a fleet has a hundred thousand."""
    if type(value) is not dict or id.partition(":")[0] in _EXACT:
        return value
    return {
        name: result
        for name, result in value.items()
        if type(result) is not dict or (*result, *map(type, result.values())) not in _FITTED
    }


def have_fitted(id: str, value: Any) -> None:
    """Remembers names and types where these say all: no objects or lists, except where anything fits."""
    if type(value) is dict and id.partition(":")[0] not in _EXACT and len(_FITTED) < _MOST_FITTED:
        for result in value.values():
            if type(result) is dict and all(type(item) in _PLAIN or name == "during" for name, item in result.items()):
                _FITTED.add((*result, *map(type, result.values())))


def without_nulls(id: str, value: Any) -> Any:
    """A result that is null is missing, and so is a counter."""
    if type(value) is not dict:
        return value
    if None in value.values():
        value = {name: result for name, result in value.items() if result is not None}
    if id.startswith("counters:") and any(type(counts) is dict and None in counts.values() for counts in value.values()):
        return {
            when: {name: count for name, count in counts.items() if count is not None} if type(counts) is dict else counts
            for when, counts in value.items()
        }
    return value


def results(value: Any) -> Any:
    """The results of a workload, without the texts about the workload."""
    told = [name for name in _TOLD if name in value] if isinstance(value, dict) else []
    if not told or not all(isinstance(value[name], str) for name in told):
        return value
    return {name: result for name, result in value.items() if name not in told}
