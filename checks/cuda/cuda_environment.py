"""No variable of the environment makes CUDA programs slow or different by oversight.

What it means
CUDA reads dozens of variables. Some are made for a search after a bug, and are left in a shell's start-up file, an image or a
service: every program then runs slower, or fails where it need not, and nothing says so.

How it is judged
The variables that were set when gpudoctor was started: for debugging (each kernel launch waits, core dumps, old profilers), for
profiling (a library that is injected into every program), for the compiler in the driver (PTX), for its cache, and for TF32.

Known exceptions
A value of 0 or nothing switches most of them off. CUDA_MODULE_LOADING=EAGER, CUDA_DEVICE_MAX_CONNECTIONS and the CUBLAS
variables for determinism are choices that programs ask for. TF32 does not matter to GPUs before Ampere, which have none. Under a
profiler that was started on purpose its injection is as it should be.

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
    Fix("In this shell; then start the program again", "unset <variable>", where="shell"),
    look("For good: find the line that sets it, and delete it", f"grep -n <variable> {FILES}", on=("host", "wsl2")),
    Fix("In a container: take it out of the Dockerfile's ENV, the compose file, or -e of docker run", on=("container",)),
    Fix("In a conda environment", "conda env config vars unset <variable>", on=("conda",), kind="install"),
)


def problem(id: str, title: str, why: str, *references: str) -> Problem:
    return Problem(id, title, why, Action.FIX_CONFIG, UNSET, references or (REFERENCE,), Status.WARN)


LAUNCH_BLOCKING = problem(
    "cuda-launch-blocking-left-on",
    "CUDA_LAUNCH_BLOCKING is on: the program waits for every kernel",
    "It is made to find the kernel that fails. With it the processor and the GPU take turns, and work that should overlap does "
    "not: programs run up to several times slower, and some versions of NCCL hang.",
    REFERENCE,
    "https://github.com/stas00/ml-engineering",
)
DEBUGGING = problem(
    "cuda-debug-variable-left-on",
    "A debugging variable of CUDA is on for every program",
    "It changes how kernels run, so that a debugger can catch an error: programs are slower, or wait for a debugger when they "
    "fail.",
)
INJECTED = problem(
    "cupti-multiple-subscribers",
    "A profiler is injected into every CUDA program",
    "The variable names a library that CUDA loads into each program. Only one profiler can use CUPTI at a time, so that another "
    "one, such as torch.profiler, fails with CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, and programs are slower.",
)
NO_JIT = problem(
    "ptx-jit-disabled",
    "The driver may not compile PTX for this GPU",
    "Programs that were not built for this very GPU carry PTX, which the driver compiles when they start. With this variable "
    "they fail instead (error 223).",
)
FORCED_JIT = problem(
    "ptx-jit-forced",
    "The driver must compile all kernels anew and may not use those in the program",
    "It is made to test whether a program carries PTX. With it every start takes long, and kernels that were built without PTX, "
    "as many of PyTorch's are, fail.",
)
NO_CACHE = problem(
    "cuda-cache-disabled",
    "CUDA keeps none of the kernels that it compiles",
    "What the driver compiles from PTX is kept in ~/.nv/ComputeCache. Without it every start of a program compiles again, which "
    "can take minutes.",
)
NO_TF32 = problem(
    "tf32-disabled",
    "NVIDIA_TF32_OVERRIDE=0 switches TF32 off in all libraries",
    "Matrix products and convolutions in float32 then run without tensor cores, several times slower, also where the program "
    "asks for TF32.",
)
NO_ALLOCATOR = problem(
    "pytorch-memory-caching-disabled",
    "PyTorch asks the driver for each piece of GPU memory anew",
    "It is made to find memory errors with compute-sanitizer. Each allocation then waits for the GPU, so that programs run many "
    "times slower.",
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
    number = f"{len(ours)} variable{'s' * (len(ours) != 1)} of CUDA and NVIDIA"
    return f"{number}, none slows programs down" if ours else "no variable of CUDA and NVIDIA is set"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(LAUNCH_BLOCKING, DEBUGGING, INJECTED, NO_JIT, FORCED_JIT, NO_CACHE, NO_TF32, NO_ALLOCATOR),
)
