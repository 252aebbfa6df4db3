"""The GPU libraries that this process has loaded."""

from __future__ import annotations

import re
from typing import List

GPU_LIBRARY = re.compile(
    r"""
    /lib(
        cud | cublas | cufft | cufile | cupti | curand | cusolver | cusparse | cutensor
        | nccl | nvJitLink | nvrtc | nvshmem | nvToolsExt | nvidia-ml | nvinfer
    )
    [^/]* \.so [.\d]* $
    """,
    re.VERBOSE,
)


def gpu_libraries(file: str = "/proc/self/maps") -> List[str]:
    """The real paths, sorted; empty where the kernel does not show them."""
    try:
        with open(file, encoding="utf-8", errors="replace") as maps:
            paths = {line.split(None, 5)[5].strip() for line in maps if line.count("/")}
    except OSError:
        return []
    return sorted(path for path in paths if GPU_LIBRARY.search(path))
