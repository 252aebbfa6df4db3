"""What torch itself says at the end of a window: settings, memory and who holds it, compilations, the gradient scaler."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from typing import Any, Callable, Dict, Iterator, List

MOST_ROWS, MOST_WORDS = 20, 300
MEMORY = (
    *("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"),
    *("allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.current", "reserved_bytes.all.peak"),
    *("inactive_split_bytes.all.current", "inactive_split_bytes.all.peak", "segment.all.allocated", "segment.all.freed"),
)


def readable(fields: Dict[str, Callable[[], Any]]) -> Dict[str, Any]:
    """Name -> value; what this torch does not know is left out."""
    found: Dict[str, Any] = {}
    with unwarned():
        for name, read in fields.items():
            try:
                value = read()
            except Exception:
                continue
            if value is not None:
                found[name] = value
    return found


@contextlib.contextmanager
def unwarned() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def without_cuda(torch: Any, since: float) -> Dict[str, Any]:
    """Of a process that never used CUDA, at its end: how long its threads computed, and how many GPUs it could have used.

    since: its processor time, in seconds, when torch had been imported: the import takes some, too.
    """
    return readable({"cpu_s": lambda: time.process_time() - since, "gpus": lambda: max(0, torch.cuda._device_count_nvml())})


def settings(torch: Any) -> Dict[str, Any]:
    backends, cuda = torch.backends, torch.backends.cuda
    return readable(
        {
            "torch": lambda: str(torch.__version__),
            "cuda": lambda: torch.version.cuda,
            "matmul_fp32_precision": lambda: cuda.matmul.fp32_precision,
            "matmul_tf32": lambda: bool(cuda.matmul.allow_tf32),
            "float32_matmul_precision": lambda: torch.get_float32_matmul_precision(),
            "cudnn_tf32": lambda: bool(backends.cudnn.allow_tf32),
            "cudnn_benchmark": lambda: bool(backends.cudnn.benchmark),
            "deterministic": lambda: bool(torch.are_deterministic_algorithms_enabled()),
            "anomaly_mode": lambda: bool(torch.is_anomaly_enabled()),
            "launch_blocking": lambda: os.environ.get("CUDA_LAUNCH_BLOCKING"),
            "allocator": lambda: os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF"),
            "caching": lambda: os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"),
            "flash_attention": lambda: bool(cuda.flash_sdp_enabled()),
            "efficient_attention": lambda: bool(cuda.mem_efficient_sdp_enabled()),
            "math_attention": lambda: bool(cuda.math_sdp_enabled()),
        }
    )


def device(torch: Any) -> Dict[str, Any]:
    about = torch.cuda.get_device_properties(torch.cuda.current_device())
    return readable(
        {
            "index": lambda: torch.cuda.current_device(),
            "name": lambda: about.name,
            "capability": lambda: [about.major, about.minor],
            "multiprocessors": lambda: about.multi_processor_count,
            "memory_bytes": lambda: about.total_memory,
            "threads_per_multiprocessor": lambda: about.max_threads_per_multi_processor,
        }
    )


def memory(torch: Any) -> Dict[str, Any]:
    """Counters of torch's allocator; none of them asks the GPU."""
    stats = torch.cuda.memory_stats()
    return {name: stats[name] for name in MEMORY if name in stats}


def holders(optimizer: Any) -> Dict[str, int]:
    """Bytes of what an optimizer knows: parameters, their gradients, and its own state."""
    parameters = gradients = state = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameters += _bytes(parameter)
            gradients += _bytes(parameter.grad)
    for values in optimizer.state.values():
        state += sum(_bytes(value) for value in values.values()) if isinstance(values, dict) else 0
    return {"parameters": parameters, "gradients": gradients, "optimizer_state": state}


def _bytes(tensor: Any) -> int:
    if tensor is None or not getattr(tensor, "is_cuda", False):
        return 0
    return int(tensor.numel() * tensor.element_size())


def compilations(first: int = 0) -> Dict[str, Any]:
    """What torch.compile did; empty if the program does not use it. first: how many compilations are older than the window."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return {}
    metrics: List[Any] = []
    with contextlib.suppress(Exception), unwarned():
        metrics = list(dynamo.get_compilation_metrics())
    rows = [_compilation(row) for row in metrics[first:][-MOST_ROWS:]]
    breaks: Dict[str, int] = {}
    with contextlib.suppress(Exception):
        found = dynamo.counters["graph_break"].items()
        breaks = {str(reason)[:MOST_WORDS]: int(number) for reason, number in list(found)[:MOST_ROWS]}
    return {"total": len(metrics), "in_window": rows, "graph_breaks": breaks}


def _compilation(row: Any) -> Dict[str, Any]:
    return {
        "function": str(getattr(row, "co_name", "") or ""),
        "file": str(getattr(row, "co_filename", "") or ""),
        "line": int(getattr(row, "co_firstlineno", 0) or 0),
        "seconds": float(getattr(row, "entire_frame_compile_time_s", 0) or 0),
        "reason": str(getattr(row, "recompile_reason", "") or "")[:MOST_WORDS],
        "failure": str(getattr(row, "fail_reason", "") or "")[:MOST_WORDS],
    }


def number_of_compilations() -> int:
    dynamo = sys.modules.get("torch._dynamo.utils")
    try:
        return len(dynamo.get_compilation_metrics()) if dynamo else 0
    except Exception:
        return 0


def rank() -> Dict[str, Any]:
    """Which rank of a distributed job this is, as its launcher says."""
    found: Dict[str, Any] = {}
    names = {
        "rank": ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
        "local_rank": ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"),
        "world_size": ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"),
    }
    for name, variables in names.items():
        value = next((os.environ[one] for one in variables if os.environ.get(one, "").isdigit()), None)
        if value is not None:
            found[name] = int(value)
    return found
