"""No forgotten environment variable makes CUDA programs slower or changes how they run.

What it means
CUDA reads dozens of environment variables. Some are set to find a bug and then left in a shell's start-up file, an image or a
service. Every program then runs slower or fails needlessly, without a message that says why.

How it is judged
The check looks at the variables that were set when gpudoctor started: for debugging (each kernel launch waits, core dumps, old
profilers), for profiling (a library that is injected into every program), for the driver's PTX compiler and its cache, and for
TF32.

Known exceptions
0 or an empty value switches most of them off. CUDA_MODULE_LOADING=EAGER, CUDA_DEVICE_MAX_CONNECTIONS and the CUBLAS variables for
determinism are deliberate choices. TF32 does not matter for GPUs before Ampere, which do not have it. Under a profiler that was
started on purpose, its injection is expected.

References
https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

REFERENCE = "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"
FILES = "~/.bashrc ~/.profile ~/.zshrc /etc/environment /etc/profile.d/*.sh"
AMPERE = (8, 0)

UNSET = (
    Fix("In this shell: unset it, then restart the program", "unset <variable>", where="shell"),
    look(
        "To fix it permanently: find the line that sets it and delete it",
        f"grep -sn <variable> {FILES} || echo 'in none of these files'",
        on=("host", "wsl2"),
    ),
    Fix("In a container: remove it from the Dockerfile's ENV, the compose file, or -e of docker run", on=("container",)),
    Fix("In a conda environment: unset it", "conda env config vars unset <variable>", on=("conda",), kind="install"),
)


def problem(id: str, title: str, why: str, *references: str) -> Problem:
    return Problem(id, title, why, Action.FIX_CONFIG, UNSET, references or (REFERENCE,), Status.WARN)


LAUNCH_BLOCKING = problem(
    "cuda-launch-blocking-left-on",
    "CUDA_LAUNCH_BLOCKING is set: programs wait for every kernel",
    "It is meant for debugging: it makes errors point to the right kernel. CPU and GPU then take turns instead of working in "
    "parallel: programs run up to several times slower, and some versions of NCCL hang.",
    REFERENCE,
    "https://github.com/stas00/ml-engineering",
)
DEBUGGING = problem(
    "cuda-debug-variable-left-on",
    "A CUDA debugging variable is set for every program",
    "It changes how kernels run, so that a debugger can catch an error. Programs are slower, or wait for a debugger when they "
    "fail.",
)
INJECTED = problem(
    "cupti-multiple-subscribers",
    "A profiler is injected into every CUDA program",
    "The variable names a library that CUDA loads into each program, which makes programs slower. Only one profiler can use "
    "CUPTI at a time, so another one, such as torch.profiler, fails with CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED.",
)
NO_JIT = problem(
    "ptx-jit-disabled",
    "PTX compilation in the driver is disabled",
    "Programs that were not built for this exact GPU contain PTX, which the driver compiles when they start. With this variable "
    "they fail instead (error 223).",
)
FORCED_JIT = problem(
    "ptx-jit-forced",
    "The driver must compile all kernels from PTX (forced JIT)",
    "The variable is meant to test whether a program contains PTX. With it every start takes long, and kernels without PTX fail; "
    "many of PyTorch's kernels have no PTX.",
)
NO_CACHE = problem(
    "cuda-cache-disabled",
    "The cache for compiled CUDA kernels is disabled",
    "The driver caches kernels that it compiles from PTX in ~/.nv/ComputeCache. Without the cache every start of a program "
    "compiles them again, which can take minutes.",
)
NO_TF32 = problem(
    "tf32-disabled",
    "NVIDIA_TF32_OVERRIDE=0 disables TF32 in all libraries",
    "Matrix products and convolutions in float32 then run without tensor cores, several times slower, even if the program "
    "enables TF32.",
)
NO_ALLOCATOR = problem(
    "pytorch-memory-caching-disabled",
    "PyTorch's caching of GPU memory is disabled",
    "The variable is meant for finding memory errors with compute-sanitizer. Each allocation then waits for the GPU, so "
    "programs run many times slower.",
    "https://docs.pytorch.org/docs/stable/notes/cuda.html",
)

PATHS = {
    "CUDA_INJECTION64_PATH": INJECTED,
    "CUDA_INJECTION32_PATH": INJECTED,
    "NVTX_INJECTION64_PATH": INJECTED,
    "NSIGHT_CUDA_DEBUGGER": DEBUGGING,
}
SWITCHES = {
    "CUDA_LAUNCH_BLOCKING": LAUNCH_BLOCKING,
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": DEBUGGING,
    "CUDA_DEVICE_WAITS_ON_EXCEPTION": DEBUGGING,
    "CUDA_PROFILE": DEBUGGING,
    "COMPUTE_PROFILE": DEBUGGING,
    "OPENCL_PROFILE": DEBUGGING,
    "CUDA_AUTO_BOOST": DEBUGGING,
    "CUDA_DISABLE_PTX_JIT": NO_JIT,
    "CUDA_DISABLE_JIT": NO_JIT,
    "CUDA_FORCE_PTX_JIT": FORCED_JIT,
    "CUDA_FORCE_JIT": FORCED_JIT,
    "CUDA_CACHE_DISABLE": NO_CACHE,
    "PYTORCH_NO_CUDA_MEMORY_CACHING": NO_ALLOCATOR,
}


def judge(facts: Facts) -> Iterator[Finding]:
    for name, left_on in {**PATHS, **SWITCHES}.items():
        value = facts.environment.get(name)
        if value and (name in PATHS or value.strip() != "0"):
            yield left_on.found(f"{name}={value}", {"variable": name, "value": value})
    if facts.environment.get("NVIDIA_TF32_OVERRIDE") == "0" and has_tf32(facts):
        yield NO_TF32.found("NVIDIA_TF32_OVERRIDE=0", {"variable": "NVIDIA_TF32_OVERRIDE", "value": "0"})


def has_tf32(facts: Facts) -> bool:
    return any(gpu.compute_capability >= AMPERE for gpu in facts.nvml.reachable.values())


def summary(facts: Facts) -> str:
    ours = [name for name in facts.environment.variables if name.startswith(("CUDA_", "NVIDIA_"))]
    number = f"{len(ours)} CUDA/NVIDIA variable{'s' * (len(ours) != 1)} set"
    return f"{number}, none affects speed" if ours else "no CUDA or NVIDIA environment variables are set"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(LAUNCH_BLOCKING, DEBUGGING, INJECTED, NO_JIT, FORCED_JIT, NO_CACHE, NO_TF32, NO_ALLOCATOR),
    tags=("performance", "pytorch"),
)
