"""What the errors of compilers mean: which part of the toolchain is missing, does not fit, or is set up wrongly. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from gpudoctor.model import Action, Fix, Problem, Status, fix_on

AGAIN = "gpudoctor check --only toolchain-ladder"
EXTENSIONS = "https://docs.pytorch.org/docs/stable/cpp_extension.html"
INSTALLATION = "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/"

MISSING = Problem(
    id="toolchain-part-missing",
    title="A compiler of GPU code is installed, but a part that it needs is missing",
    why="NVRTC, nvcc, PyTorch's extensions, Triton and torch.compile each need more than themselves: a C++ compiler, header "
    "files, libraries, Ninja. The rung was tried on the GPU, and stopped at this part.",
    action=Action.INSTALL,
    fixes=(Fix("Install the part that the message names", verify=AGAIN),),
    references=(EXTENSIONS, INSTALLATION),
    status=Status.WARN,
)
DISAGREES = Problem(
    id="toolchain-parts-disagree",
    title="Two parts of the toolchain are of versions that do not work together",
    why="Each part is there. One is too old or too new for another: the driver, the GPU, PyTorch, Python or the host compiler.",
    action=Action.INSTALL,
    fixes=(Fix("Install a release of one that fits the other", verify=AGAIN),),
    references=(EXTENSIONS, INSTALLATION),
    status=Status.WARN,
)
MISLED = Problem(
    id="toolchain-set-up-wrongly",
    title="The toolchain is complete, but set up so that it does not work",
    why="A variable, a folder or an option keeps a compiler from finding or keeping what it needs.",
    action=Action.FIX_CONFIG,
    fixes=(Fix("Set right what the message names", verify=AGAIN),),
    references=(EXTENSIONS,),
    status=Status.WARN,
)
BROKEN = Problem(
    id="toolchain-rung-broken",
    title="A way to compile code for the GPU is installed, but fails",
    why="The compiler was tried with the smallest useful kernel, and its error is none of the known ones. What stands above it "
    "in the ladder mostly fails too.",
    action=Action.WATCH,
    fixes=(Fix("Read the whole error", AGAIN + " --format json"),),
    references=(EXTENSIONS,),
    status=Status.WARN,
)
PROBLEMS = (MISSING, DISAGREES, MISLED, BROKEN)


class Part(NamedTuple):
    """What an error means. words: what is wrong, with the pattern's groups in braces. because: a quick check's problem, which
    explains it; that of another rung may be another."""

    pattern: str
    problem: Problem
    words: str
    fixes: tuple[Fix, ...]
    because: str = ""
    because_of: Mapping[str, str] = {}


COMPILERS = fix_on(
    "Install the distribution's compilers",
    verify="g++ --version",
    debian="sudo apt install build-essential",
    rhel="sudo dnf install gcc-c++ make",
    suse="sudo zypper install gcc-c++ make",
    arch="sudo pacman -S base-devel",
    other="conda install -c conda-forge gxx",
)
PYTHON_HEADERS = (
    *fix_on(
        "Install the headers of this Python",
        verify=AGAIN,
        debian="sudo apt install python<python_version>-dev",
        rhel="sudo dnf install python<python_version>-devel || sudo dnf install python3-devel",
        suse="sudo zypper install python3-devel",
        arch="sudo pacman -S python",
    ),
    Fix("Where they cannot be installed: take a Python that has them", "uv venv --managed-python --python <python_version>"),
)
WITH_COMPUTE = Fix(
    "Start the container again with all that computing needs of the driver",
    "docker run --rm --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE",
    on=("container",),
)

# The first that matches counts; what a compiler says at its end ("returned non-zero exit status 1") says nothing.
PARTS = (
    Part(
        r"CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
        MISSING,
        "the driver's compiler (libnvidia-ptxjitcompiler.so.1) is missing",
        (
            Fix("See whether the loader knows it", "ldconfig -p | grep ptxjitcompiler"),
            WITH_COMPUTE,
            Fix("Install the driver's complete package for computing", verify=AGAIN, on=("host",)),
        ),
    ),
    Part(
        r"UNSUPPORTED_PTX_VERSION|unsupported toolchain",
        DISAGREES,
        "the compiler's CUDA is newer than the driver",
        (
            Fix("See which CUDA the driver knows", "nvidia-smi | head -n 4"),
            Fix("Install a newer driver, or a compiler (toolkit, nvidia-cuda-nvrtc) of that CUDA or older", verify=AGAIN),
        ),
        because="unsupported-ptx-version",
    ),
    Part(
        r"[Uu]nsupported gpu architecture|invalid value for --gpu-architecture|Value '(?:sm|compute)_\w+' is not defined"
        r"|Unknown CUDA arch|NO_BINARY_FOR_GPU|no kernel image is available",
        DISAGREES,
        "the compiler does not know this GPU: it is too old, or too new for an old GPU",
        (Fix("Install a release that knows the GPU's compute capability", verify=AGAIN),),
        because="nvcc-too-old-for-gpu",
    ),
    Part(
        r"(unsupported (?:GNU|clang) version|greater than the maximum required version by CUDA)",
        DISAGREES,
        "the host compiler is newer than nvcc accepts",
        (
            *fix_on(
                "Install an older one beside it, and let nvcc take it",
                verify=AGAIN,
                debian="sudo apt install g++-12 && export NVCC_CCBIN=g++-12 CXX=g++-12 CC=gcc-12",
                conda="conda install -c conda-forge gxx=12",
            ),
            Fix("Install a newer CUDA toolkit, which accepts it", verify=AGAIN),
        ),
        because="host-gcc-too-new",
    ),
    Part(
        r"Python\.h: No such file",
        MISSING,
        "Python's header file Python.h is missing",
        PYTHON_HEADERS,
        because="triton-python-h-missing",
    ),
    Part(
        r"fatal error: (\S+): No such file",
        MISSING,
        "the header file {0} is missing",
        (
            Fix("See which package of the toolkit has it", "apt-file search {0} || dnf provides '*/{0}'"),
            Fix("Install the complete CUDA toolkit of the CUDA that PyTorch was built with", verify=AGAIN),
        ),
    ),
    Part(
        r"Ninja is required",
        MISSING,
        "Ninja is missing",
        (Fix("Install it beside PyTorch", "<python> -m pip install ninja", verify="ninja --version"),),
        because="ninja-missing",
    ),
    Part(
        r"CUDA_HOME environment variable is not set|nvcc'?: (?:command )?not found|No such file or directory: '\S*nvcc'",
        MISLED,
        "PyTorch does not find nvcc, which is in {nvcc}",
        (Fix("Name the toolkit", "export CUDA_HOME=$(dirname $(dirname <nvcc>))", verify=AGAIN),),
        because="cuda-home-invalid",
    ),
    Part(
        r"detected CUDA version \((\S+?)\) mismatches the version that was used to compile\s+PyTorch \((\S+?)\)",
        DISAGREES,
        "nvcc is of CUDA {0}, PyTorch was built with CUDA {1}",
        (
            Fix("Install the toolkit of CUDA {1}, and name it", "export CUDA_HOME=/usr/local/cuda-{1}", verify=AGAIN),
            Fix("Install a PyTorch that was built with the toolkit's CUDA"),
        ),
        because="nvcc-torch-cuda-mismatch",
    ),
    Part(
        r"libnvrtc-builtins\.so\S*?(?=[.\s]*(?:\s|$))",
        MISSING,
        "the library libnvrtc-builtins is missing, which belongs beside libnvrtc",
        (
            Fix(
                "Install NVRTC anew, with both files", "<python> -m pip install --force-reinstall nvidia-cuda-nvrtc", verify=AGAIN
            ),
        ),
    ),
    Part(
        r"libcuda\.so cannot found|cannot find -l:?(?:lib)?cuda\b",
        MISSING,
        "the linker does not find libcuda",
        (
            Fix("See where it is", "ldconfig -p | grep libcuda.so; find / -xdev -name 'libcuda.so*' 2>/dev/null"),
            Fix("Name its folder", "export TRITON_LIBCUDA_PATH=FOLDER", verify=AGAIN),
        ),
        because="triton-cannot-find-lcuda",
    ),
    Part(
        r"cannot find -l:?(\S+?)(?::|\s|$)",
        MISSING,
        "the linker does not find the library {0}",
        (Fix("Install the toolkit's development packages, which bring it", verify=AGAIN),),
    ),
    Part(
        r"(GLIBCXX_[\d.]+|CXXABI_[\d.]+)' not found",
        DISAGREES,
        "the libstdc++ that Python loads is older than the compiler's: it has no {0}",
        (
            Fix("In conda: install a newer one", "conda install -c conda-forge 'libstdcxx-ng>=13'", on=("conda",), verify=AGAIN),
            Fix("Build with the compiler that belongs to it", "export CXX=g++-12 CC=gcc-12", verify=AGAIN),
        ),
    ),
    Part(
        r"Failed to find C(?:\+\+)? compiler|\b(?:gcc|g\+\+|cc|c\+\+|clang)'?:(?: \d+:)?(?: command)? not found"
        r"|(?:gcc|g\+\+|cc|c\+\+|clang\+*): No such file|'which', '\S+'|execute '?cc1plus|Failed to preprocess host compiler",
        MISSING,
        "there is no C or C++ compiler",
        COMPILERS,
        because="host-compiler-missing",
        because_of={"Triton": "c-compiler-missing", "torch.compile": "c-compiler-missing"},
    ),
    Part(
        r"failed to map segment from shared object",
        MISLED,
        "the folder for temporary files forbids programs (noexec), so that what was compiled cannot be loaded",
        (Fix("Use another folder", "export TMPDIR=$HOME/tmp && mkdir -p $TMPDIR", verify=AGAIN),),
        because="temporary-space-noexec",
    ),
    Part(
        r"No space left on device",
        MISLED,
        "the folder for temporary files is full",
        (Fix("Make room, or use another folder", "export TMPDIR=$HOME/tmp && mkdir -p $TMPDIR", verify=AGAIN),),
        because="temporary-space-full",
    ),
    Part(
        r"without compiling it",
        MISLED,
        "torch.compile is switched off, and runs everything as if it was not there",
        (Fix("Switch it on", "unset TORCH_COMPILE_DISABLE TORCHDYNAMO_DISABLE", verify=AGAIN),),
    ),
    Part(
        r"not supported on Python (3\.\d+\+?)",
        DISAGREES,
        "this PyTorch cannot compile on Python {0}",
        (Fix("Install a newer PyTorch, or use an older Python", "uv venv --managed-python --python 3.12", verify=AGAIN),),
    ),
    Part(
        r"\b0 active drivers",
        MISLED,
        "Triton sees no GPU, although PyTorch does",
        (Fix("See what it says itself", "<python> -c 'import triton; print(triton.runtime.driver.active)'"),),
    ),
    Part(
        r"cannot import name '(\w+)' from '(triton[\w.]*)'",
        DISAGREES,
        "PyTorch and Triton do not belong together: {1} has no {0}",
        (Fix("Install the Triton that this PyTorch asks for", "<python> -m pip install --force-reinstall torch", verify=AGAIN),),
        because="triton-not-the-pinned-version",
    ),
)


class Known(NamedTuple):
    """A recognised error: the problem with the fixes for it, what is wrong in words, and a quick check's problem behind it."""

    problem: Problem
    words: str
    because: str


def recognise(text: str, rung: str, **values: str) -> Known | None:
    """The meaning of what a compiler said; `values` may be named in words and fixes."""
    for part in PARTS:
        found = re.search(part.pattern, text)
        if found:
            groups = found.groups()
            fixes = tuple(replace(fix, title=fix.title.format(*groups), command=_command(fix, groups)) for fix in part.fixes)
            words = part.words.format(*groups, **{"nvcc": "", **values})
            return Known(replace(part.problem, fixes=fixes), words, part.because_of.get(rung, part.because))
    return None


def _command(fix: Fix, groups: tuple[str, ...]) -> str:
    """What a compiler printed must not become a command: only what looks like a file or a version is put into one."""
    safe = [group if re.fullmatch(r"[\w./+-]+", group) else "NAME" for group in groups]
    for number, group in enumerate(safe):
        fix = replace(fix, command=fix.command.replace(f"{{{number}}}", group))
    return fix.command
