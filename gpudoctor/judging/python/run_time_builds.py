"""Whether something on this machine compiles at run time: only then is a missing compiler a fault. Pure."""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.builds import HOME_VARIABLES
from gpudoctor.judging.python.other_torch import REBUILT
from gpudoctor.model import Finding

# Packages that build C++ and CUDA extensions of PyTorch on first use.
BUILDS_EXTENSIONS = ("deepspeed", "colossalai", "exllamav2", "flashinfer-python", "gsplat", "nerfacc", "nvdiffrast")
# Packages with kernels that Triton compiles, or that call torch.compile.
RUNS_TRITON = (
    *("vllm", "sglang", "lmdeploy", "lightllm", "unsloth", "unsloth-zoo", "liger-kernel", "flash-linear-attention", "fla-core"),
    *("mamba-ssm", "sageattention", "gemlite", "triton-kernels", "deepspeed", "flashinfer-python"),
)
ABOUT_EXTENSIONS = ("TORCH_CUDA_ARCH_LIST", "TORCH_EXTENSIONS_DIR", "MAX_JOBS")
ABOUT_TRITON = ("TRITON_", "TORCHINDUCTOR_")


def of_extensions(facts: Facts) -> str | None:
    """A sign that extensions of PyTorch are built here, a package or a variable; None without such a sign."""
    variable = next((name for name in ABOUT_EXTENSIONS if facts.environment.get(name)), None)
    return _in_words(facts, BUILDS_EXTENSIONS, variable)


def of_builds(facts: Facts) -> str | None:
    """The same for extensions that are built at any time: what was compiled once is compiled again for the next PyTorch."""
    has_ninja = "ninja" in facts.toolchain.programs or facts.python.package("ninja") is not None
    variable = next((name for name in (*ABOUT_EXTENSIONS, *HOME_VARIABLES) if facts.environment.get(name)), None)
    told = _in_words(facts, (*BUILDS_EXTENSIONS, *REBUILT), variable)
    return told or ("Ninja is installed, which suggests that extensions are built here" if has_ninja else None)


def of_triton(facts: Facts) -> str | None:
    """A sign that Triton compiles here. PyTorch always installs Triton, but needs it only for torch.compile."""
    variable = next((name for name in facts.environment.variables if name.startswith(ABOUT_TRITON)), None)
    return _in_words(facts, RUNS_TRITON, variable)


def wanted_by(user: str | None, finding: Finding) -> Finding:
    """The finding about a missing part of the toolchain, with what needs it; only a clue if no such user is known."""
    if user is None:
        return replace(finding, is_clue=True)
    return replace(finding, message=f"{finding.message}; {user}", evidence={**finding.evidence, "wanted_by": user})


def _in_words(facts: Facts, packages: tuple[str, ...], variable: str | None) -> str | None:
    package = next((name for name in packages if facts.python.package(name)), None)
    if package:
        return f"{package} needs it here"
    return f"{variable} is set, which suggests that something needs it" if variable else None
