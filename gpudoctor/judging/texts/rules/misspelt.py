"""Names in a text that nothing reads because a letter is wrong: environment variables, kernel parameters, resources of pods."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

MISSPELT = Problem(
    id="setting-name-misspelt",
    title="The name of a setting is misspelt, so nothing reads it",
    why="Programs look up variables and kernel parameters by their exact name, and ignore others without a message. The value "
    "that was meant does not take effect.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Write the name as the documentation does, remove the misspelt one, and start the program again"),
        Fix("Show what is set now", "env | grep -E 'CUDA|NVIDIA|NCCL|TORCH|HSA|HIP'; cat /proc/cmdline", kind="read"),
    ),
    references=(
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ),
)
PROBLEMS = (MISSPELT,)

VARIABLES = frozenset(
    [
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_MODULE_LOADING",
        "CUDA_CACHE_MAXSIZE",
        "CUDA_CACHE_PATH",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_MPS_PIPE_DIRECTORY",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_DISABLE_REQUIRE",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "TORCH_CUDA_ARCH_LIST",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "TORCH_NCCL_BLOCKING_WAIT",
        "NCCL_SOCKET_IFNAME",
        "NCCL_IB_DISABLE",
        "NCCL_IB_GID_INDEX",
        "NCCL_P2P_DISABLE",
        "NCCL_P2P_LEVEL",
        "NCCL_SHM_DISABLE",
        "NCCL_NET_GDR_LEVEL",
        "NCCL_DEBUG_SUBSYS",
        "NCCL_BUFFSIZE",
        "NCCL_MIN_NCHANNELS",
        "NCCL_MAX_NCHANNELS",
        "NCCL_CUMEM_ENABLE",
        "NCCL_NVLS_ENABLE",
        "NCCL_IB_TIMEOUT",
        "NCCL_IB_RETRY_CNT",
        "NCCL_IB_HCA",
        "GLOO_SOCKET_IFNAME",
        "LD_LIBRARY_PATH",
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        "XLA_PYTHON_CLIENT_MEM_FRACTION",
        "JAX_PLATFORMS",
        "HSA_OVERRIDE_GFX_VERSION",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "RUSTICL_ENABLE",
        "OLLAMA_FLASH_ATTENTION",
        "OLLAMA_KV_CACHE_TYPE",
        "OLLAMA_CONTEXT_LENGTH",
        "OLLAMA_NUM_PARALLEL",
        "OLLAMA_KEEP_ALIVE",
        "OLLAMA_SCHED_SPREAD",
        "GGML_CUDA_ENABLE_UNIFIED_MEMORY",
        "VLLM_ATTENTION_BACKEND",
        "VLLM_USE_V1",
        "MASTER_ADDR",
        "MASTER_PORT",
        "__NV_PRIME_RENDER_OFFLOAD",
        "__GLX_VENDOR_LIBRARY_NAME",
    ]
)
OTHERS = frozenset(
    [
        "NCCL_IB_QPS",
        "NCCL_IB_TC",
        "NCCL_IB_SL",
        "NCCL_P2P_NET_CHUNKSIZE",
        "CUDA_CACHE_DISABLE",
        "JAX_PLATFORM_NAME",
        "VLLM_USE_V2",
    ]
)
INVENTED = {
    **dict.fromkeys(
        (
            *("CUDA_AVAILABLE_DEVICES", "CUDA_VISIBLE_GPUS", "CUDA_VISIBLE_GPU", "VISIBLE_CUDA_DEVICES", "CUDA_DEVICES_VISIBLE"),
            *(
                "CUDA_VISIBLE_DIVICES",
                "CUDA_VISIABLE_DEVICES",
                "CUDA_VISIBILE_DEVICES",
                "CUDA_VISIBLE_DEVICES_",
                "GPU_VISIBLE_DEVICES",
            ),
        ),
        "CUDA_VISIBLE_DEVICES",
    ),
    **dict.fromkeys(("NCCL_IFNAME", "NCCL_SOCKET_IF_NAME", "NCCL_NET_IFNAME"), "NCCL_SOCKET_IFNAME"),
    **dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONFIG", "PYTORCH_ALLOC_CUDA_CONF"), "PYTORCH_CUDA_ALLOC_CONF"),
    **dict.fromkeys(("NVIDIA_DRIVER_CAPS", "NVIDIA_CAPABILITIES"), "NVIDIA_DRIVER_CAPABILITIES"),
    **dict.fromkeys(("TORCH_ARCH_LIST", "CUDA_ARCH_LIST"), "TORCH_CUDA_ARCH_LIST"),
}
"""Names that programs do not read -> the one that is meant."""
PARAMETERS = (
    "nvidia_drm.modeset",
    "nvidia-drm.modeset",
    "nvidia_drm.fbdev",
    "nvidia-drm.fbdev",
    "modprobe.blacklist",
    "pci=realloc",
)
SHORTEST = 9  # letters of a name for which one wrong letter says enough
_ASSIGNED = re.compile(
    r"""
    (?:^|[\s\"';-])(?:-e|--env|export|setenv|set|Environment=)?\s*[\"']?(?P<name>_{0,2}[A-Z][A-Z0-9_]{7,50})=(?=\S)
    """,
    re.MULTILINE | re.VERBOSE,
)
_KEYED = re.compile(
    r"""
    ^\s*(?:-\ name:\s*)?[\"']?(?P<name>_{0,2}[A-Z][A-Z0-9_]{7,50})[\"']?\s*:\s*\S
        |^\s*-\ name:\ (?P<listed>[A-Z][A-Z0-9_]{7,50})\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_COMMAND_LINE = re.compile(
    r"""
    (?:^BOOT_IMAGE=|GRUB_CMDLINE_LINUX\w*=|Kernel\ command\ line:
        |^options\ root=)[^\n]*
    """,
    re.MULTILINE | re.VERBOSE,
)
_WORD = re.compile(r"(?P<name>[a-z][\w.-]{5,40})=")
_RESOURCE = re.compile(
    r"""
    ^\s*[\"']?(?P<name>nvidia\.com/gpus|nvidia/gpu|nvidia\.com\.gpu
        |nvidia\.com/GPU)[\"']?:\s*[\"']?\d
    """,
    re.MULTILINE | re.VERBOSE,
)


def misspelt(facts: Facts) -> Iterator[Finding]:
    """A name differs by one letter, or by two neighbours, from one that is read, and is not a name itself."""
    text = "\n".join(passages(facts))
    names = [match["name"] for match in _ASSIGNED.finditer(text)]
    names += [match["name"] or match["listed"] for match in _KEYED.finditer(text)]
    for name in dict.fromkeys(names):
        meant = INVENTED.get(name) or (_nearest(name, VARIABLES) if name not in VARIABLES | OTHERS else "")
        if meant and meant not in names:
            yield _found(name, meant)
            return
    for line in _COMMAND_LINE.findall(text):
        for name in (match["name"] for match in _WORD.finditer(line)):
            if name not in PARAMETERS and (meant := _nearest(name, PARAMETERS)):
                yield _found(name, meant)
                return
    resource = _RESOURCE.search(text)
    if resource:
        yield _found(resource["name"], "nvidia.com/gpu")


def _found(name: str, meant: str) -> Finding:
    evidence = {"written": name, "meant": meant}
    return MISSPELT.found(f"{name} is set, and {meant} is the name that is read", evidence, confidence=Confidence.LIKELY)


def _nearest(name: str, names: frozenset[str] | tuple[str, ...]) -> str:
    """A name at one edit: a letter too many, too few or wrong, or two that are swapped.

    >>> _nearest("CUDA_VISIBLE_DEVICE", VARIABLES), _nearest("CUDA_VISBLE_DEVICES", VARIABLES), _nearest("NCCL_DEBUG", VARIABLES)
    ('CUDA_VISIBLE_DEVICES', 'CUDA_VISIBLE_DEVICES', '')
    """
    return next((one for one in sorted(names) if len(one) >= SHORTEST and _is_one_edit(name, one)), "")


def _is_one_edit(one: str, other: str) -> bool:
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    at = next((place for place, (left, right) in enumerate(zip(one, other)) if left != right), min(len(one), len(other)))  # noqa: B905
    rest, others = one[at:], other[at:]
    swapped = rest[:2] == others[:2][::-1] and rest[2:] == others[2:]
    return rest[1:] == others[1:] or rest[1:] == others or rest == others[1:] or swapped


RULES = (misspelt,)
