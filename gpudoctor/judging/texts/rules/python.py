"""What Python prints in a text against what is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.driver import said
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding

BLIND = {"torch.cuda.is_available()": "False", "torch.cuda.device_count()": "0"}
_FALSE = re.compile(
    r"""
    torch\.cuda\.is_available\(\)\)?["';]*
    (?: [^\n]{0,30}\b(?:returns?|is|gives|shows|says|prints?)\ (?:always\ )?[`'"]?False\b
      | \s{0,3}\n{1,2}\s*(?:output:?|->|=>)\s*False\b )
    """,
    re.IGNORECASE | re.VERBOSE,
)
FAILS = re.compile(r"(?i)crash|fail|error|segfault|core dumped|undefined symbol")
_TOOLKIT = re.compile(r"/cuda-(\d+)\.\d+(?:/|$)")
FIRST_BITSANDBYTES_FOR_CUDA_12_4 = Version(
    "0.43.1"
)  # https://github.com/bitsandbytes-foundation/bitsandbytes/releases/tag/0.43.1


CPU_WORDS = ("FP16 is not supported on CPU", "Torch reports CUDA not available")


def is_blind(facts: Facts) -> bool:
    """PyTorch sees no GPU: Python says it, or a program's words for it."""
    answered = any(facts.shown.answers.get(asked) == value for asked, value in BLIND.items())
    return answered or any(said(facts, words) for words in CPU_WORDS) or any(_FALSE.search(text) for text in passages(facts))


def answer(facts: Facts, *expressions: str) -> str:
    return next((value for asked, value in facts.shown.answers.items() if asked.startswith(expressions)), "")


def package(facts: Facts, name: str) -> str | None:
    found = known(lambda: facts.python.package(name))
    return found.version if found else None


def old_driver(facts: Facts) -> Iterator[Finding]:
    """torch's CUDA needs a newer driver than the text shows, and torch sees no GPU."""
    cuda, driver = known(lambda: facts.python.torch_cuda), known(lambda: facts.nvml.driver_version)
    is_judged = known(lambda: facts.cuda.driver_version) and known(lambda: [gpu.compute_capability for gpu in facts.nvml.gpus])
    if not (cuda and driver and is_blind(facts)) or is_judged:
        return
    pair = tuple(map(int, cuda.split(".")[:2]))
    least = knowledge.minimum_driver((pair[0], pair[1]))
    if least and Version(driver) < Version(least):
        version = known(lambda: facts.python.torch_version) or ""
        words = (
            f"torch {version}".rstrip() + f" was built with CUDA {cuda}, which requires driver {least} or newer, this is {driver}"
        )
        evidence = {"driver": driver, "least_driver": least, "upgrade": least.split(".")[0]}
        yield facts.problems["driver-too-old-for-runtime"].found(words, evidence, packages=("torch",))


def toolkit_of_another_major(facts: Facts) -> Iterator[Finding]:
    nvcc, cuda = known(lambda: facts.toolchain.nvcc), known(lambda: facts.python.torch_cuda)
    if nvcc and nvcc.version and cuda and nvcc.version[0] != int(cuda.split(".")[0]):
        words = f"nvcc is CUDA {'.'.join(map(str, nvcc.version[:2]))}, but torch was built with CUDA {cuda}"
        evidence = {"cuda": cuda, "dashed": cuda.replace(".", "-"), "toolkit": f"/usr/local/cuda-{cuda}", "found": nvcc.path}
        yield facts.problems["nvcc-torch-cuda-mismatch"].found(words, evidence, packages=("torch",))


def compiler_too_new(facts: Facts) -> Iterator[Finding]:
    """gcc against nvcc, where the text shows no variable that chooses another compiler."""
    nvcc, host = known(lambda: facts.toolchain.nvcc), known(lambda: facts.toolchain.tool("gcc"))
    if known(lambda: facts.environment.variables) or not (nvcc and nvcc.version and host and host.version):
        return
    limits = knowledge.host_compiler((nvcc.version[0], nvcc.version[1]))
    if limits and host.version[0] > limits.gcc:
        cuda = ".".join(map(str, nvcc.version[:2]))
        evidence = {"version": host.version[0], "newest": limits.gcc, "cuda": cuda, "older": f"/usr/bin/g++-{limits.gcc}"}
        words = f"gcc is version {host.version[0]}; nvcc {cuda} accepts up to {limits.gcc}"
        yield facts.problems["host-gcc-too-new"].found(words, evidence)


def compiler_too_old(facts: Facts) -> Iterator[Finding]:
    """nvcc is older than the GPU, and something fails. Harmless otherwise: wheels include their own code."""
    nvcc = known(lambda: facts.toolchain.nvcc)
    release = nvcc.version if nvcc else None
    gpus = known(lambda: {gpu.compute_capability: gpu.name for gpu in facts.nvml.gpus}, {})
    if not (nvcc and release and any(FAILS.search(text) for text in passages(facts))):
        return
    for capability, name in gpus.items():
        row = knowledge.architecture(capability)
        if row and row.first_cuda > (release[0], release[1]):
            sm, needs, cuda = "sm_{}{}".format(*capability), "{}.{}".format(*row.first_cuda), f"{release[0]}.{release[1]}"
            words = f"nvcc is of CUDA {cuda}; {name} ({sm}) requires {needs} or newer"
            evidence = {"nvcc": nvcc.path, "cuda": cuda, "needs": needs, "sm": sm}
            yield facts.problems["nvcc-too-old-for-gpu"].found(words, evidence, confidence=Confidence.LIKELY)
            return


def jax_on_cpu(facts: Facts) -> Iterator[Finding]:
    devices, version = answer(facts, "jax."), package(facts, "jaxlib") or package(facts, "jax")
    lacks = facts.python.lacks("jax-cuda12-plugin") and facts.python.lacks("jax-cuda13-plugin")
    is_cpu = "CpuDevice" in devices or "TFRT_CPU" in devices or devices == "cpu" or _shows_only_cpu(facts)
    if version and lacks and is_cpu and "cuda" not in version:
        words = f"jax lists only the CPU, and no CUDA plugin is installed with jaxlib {version}"
        yield facts.problems["jax-cpu-only"].found(words, {"package": "jax[cuda12]"}, packages=("jaxlib",))


def _shows_only_cpu(facts: Facts) -> bool:
    """Printed in one line with another answer."""
    return any(_ONLY_CPU.search(text) for text in passages(facts))


_ONLY_CPU = re.compile(r"\bjax\b.*\n(?:cpu )?\[(?:Cpu|TFRT_CPU_)Device\(id=0\)\]")


def tensorflow_without_libraries(facts: Facts) -> Iterator[Finding]:
    """TensorFlow lists no GPU, and the list of packages has no NVIDIA wheel."""
    version = package(facts, "tensorflow")
    devices = answer(facts, "tensorflow.config.list_physical_devices")
    is_blind = devices == "[]" or ("CPU:0" in devices and "GPU" not in devices)
    if version and is_blind and facts.python.lacks("nvidia-cudnn-cu12") and numbers(version) >= (2, 14):
        words = f"TensorFlow {version} lists no GPU, and none of NVIDIA's CUDA wheels is installed"
        evidence = {"package": f"tensorflow[and-cuda]=={version}"}
        yield facts.problems["tensorflow-cuda-libraries-missing"].found(
            words, evidence, confidence=Confidence.LIKELY, packages=("tensorflow",)
        )


def jax_with_another_plugin(facts: Facts) -> Iterator[Finding]:
    """jaxlib ignores a plugin of another release, and lists only the CPU."""
    devices, own = answer(facts, "jax."), package(facts, "jaxlib")
    plugin = next((name for name in ("jax-cuda13-plugin", "jax-cuda12-plugin") if package(facts, name)), "")
    other = package(facts, plugin) if plugin else None
    fails = any(_JAX_FAILS.search(text) for text in passages(facts))
    if ("CpuDevice" in devices or fails) and own and other and numbers(own)[:3] != numbers(other)[:3]:
        effect = "JAX's plugin does not start" if fails else "jax lists only the CPU"
        words = f"{effect}, and {plugin} {other} is not the release of jaxlib {own}"
        evidence = {"plugin": plugin, "jaxlib": own, "wanted": f"jax[{plugin.split('-')[1]}]=={own}"}
        yield facts.problems["jax-plugin-version-mismatch"].found(
            words, evidence, confidence=Confidence.LIKELY, packages=("jaxlib",)
        )


_JAX_FAILS = re.compile(r"Unable to initialize backend '(?:cuda|gpu)'|Jax plugin configuration error")


def onnxruntime_on_cpu(facts: Facts) -> Iterator[Finding]:
    cpu, gpu = package(facts, "onnxruntime"), package(facts, "onnxruntime-gpu")
    providers = answer(facts, "onnxruntime.get_available_providers", "onnxruntime.get_device")
    if cpu and gpu and providers and "CUDA" not in providers and providers != "GPU":
        words = f"onnxruntime {cpu} (CPU only) has overwritten onnxruntime-gpu {gpu}: no CUDA provider is listed"
        evidence = {"package": "onnxruntime-gpu"}
        yield facts.problems["onnxruntime-cpu-package-shadows-gpu"].found(
            words, evidence, packages=("onnxruntime", "onnxruntime-gpu")
        )


def old_bitsandbytes(facts: Facts) -> Iterator[Finding]:
    """A release from before the CUDA of this environment has no library for it."""
    version, cuda = package(facts, "bitsandbytes"), _cuda(facts)
    first = FIRST_BITSANDBYTES_FOR_CUDA_12_4
    if version and cuda and cuda >= (12, 4) and _parsed(version) < first:
        words = f"bitsandbytes {version} has no library for CUDA {cuda[0]}.{cuda[1]}; the first release with one is {first}"
        evidence = {"installed": version, "cuda": f"{cuda[0]}.{cuda[1]}"}
        yield facts.problems["bitsandbytes-cpu-lib"].found(
            words, evidence, confidence=Confidence.LIKELY, packages=("bitsandbytes",)
        )


def library_path(facts: Facts) -> Iterator[Finding]:
    """LD_LIBRARY_PATH names a toolkit of another major version than the wheels, and something fails."""
    entries = known(lambda: facts.environment.library_path, ())
    of_wheels = {int(name[-2:]) for name in known(lambda: facts.python.packages, {}) if re.fullmatch(r"nvidia-\w+-cu\d\d", name)}
    cuda = known(lambda: facts.python.torch_cuda)
    majors = {int(cuda.split(".")[0])} if cuda else of_wheels
    old = [entry for entry in entries if (match := _TOOLKIT.search(entry)) and majors and int(match[1]) < min(majors)]
    if old and facts.python.package("torch") and any(FAILS.search(text) for text in passages(facts)):
        words = f"LD_LIBRARY_PATH has {old[0]}, but PyTorch's libraries are of CUDA {min(majors)}"
        evidence = {"entry": old[0], "without": ":".join(entry for entry in entries if entry not in old)}
        yield facts.problems["stale-ld-library-path-cuda"].found(words, evidence, confidence=Confidence.LIKELY)


def mixed_wheels(facts: Facts) -> Iterator[Finding]:
    """Wheels of two CUDA releases, where the text does not show which of them torch requires."""
    names = known(lambda: tuple(facts.python.packages), ())
    twice = sorted(
        name[:-5] for name in names if name.startswith("nvidia-") and name.endswith("-cu11") and name[:-1] + "2" in names
    )
    if twice and known(lambda: facts.python.torch_cuda) is None:
        old = [f"{name}-cu11" for name in twice]
        words = f"NVIDIA's wheels of CUDA 11 and 12 are both installed: {', '.join(twice)}"
        yield facts.problems["cuda-wheels-overwrite-each-other"].found(words, {"others": old}, confidence=Confidence.LIKELY)


def _cuda(facts: Facts) -> tuple[int, int] | None:
    conda = known(lambda: facts.python.conda_packages, {})
    named = next(
        (conda[name].version for name in ("pytorch-cuda", "cuda-cudart", "cuda-version", "cudatoolkit") if name in conda), None
    )
    text = known(lambda: facts.python.torch_cuda) or named
    parts = numbers(text or "")
    return (parts[0], parts[1]) if len(parts) > 1 else None


def _parsed(version: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        return Version("9999")


def numbers(version: str) -> tuple[int, ...]:
    try:
        return Version(version).release
    except InvalidVersion:
        return ()


RULES = (
    old_driver,
    toolkit_of_another_major,
    compiler_too_new,
    compiler_too_old,
    jax_on_cpu,
    jax_with_another_plugin,
    tensorflow_without_libraries,
    onnxruntime_on_cpu,
    old_bitsandbytes,
    library_path,
    mixed_wheels,
)
