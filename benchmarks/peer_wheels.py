"""Environments in which packages, toolkits and variables do not fit together."""

from __future__ import annotations

from peer_environment import Environment
from peer_machine import MISMATCHED, RTX_5090, Machine
from peer_packages import CPU_TORCH, HEALTHY, NCCL, OLDER, ONNXRUNTIME, TOOLKIT, TORCH, TRITON, Package, module, nvidia

TOOLKIT_13 = "/usr/local/cuda-13.0"
WHEELS = (
    Environment(
        "torch-for-the-cpu",
        "torch's wheel is the one for the CPU",
        ("torch-cpu-only-wheel",),
        r"CPU[- ]only|cpu (build|wheel)|without CUDA",
        packages=(CPU_TORCH, *TOOLKIT),
    ),
    Environment(
        "driver-too-old",
        "driver 535 (CUDA 12.2) and torch for CUDA 13.0",
        ("driver-too-old-for-runtime",),
        r"uses CUDA 13\.0, Driver supports|too old|newer than what the GPU driver",
        Machine(driver="535.183.06", cuda=12020, stub={"STUB_CODES": "cuInit=0"}),
        HEALTHY,
    ),
    Environment(
        "blackwell-old-torch",
        "an RTX 5090 (sm_120) and torch 2.5.1, which has no code for it",
        ("torch-missing-gpu-architecture",),
        r"needs sm_120|no machine code",
        Machine(gpu=RTX_5090),
        OLDER,
    ),
    Environment(
        "nvcc-other-major",
        "nvcc of CUDA 13.0 with torch for CUDA 12.4: extensions do not build",
        ("nvcc-torch-cuda-mismatch",),
        r"CUDA 13\.0.*12\.4|\(13\.0\) != Torch \(12\.4\)",
        Machine(toolkit=True),
        OLDER,
        variables={
            "CUDA_HOME": TOOLKIT_13,
            "LD_LIBRARY_PATH": f"{TOOLKIT_13}/lib64",
            "PATH": f"{{folder}}/venv/bin:{TOOLKIT_13}/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        },
    ),
    Environment(
        "vllm-default-wheel",
        "vLLM's default wheel (CUDA 13) on driver 570 (CUDA 12.8)",
        ("driver-too-old-for-runtime",),
        r"incompatible with driver|Driver supports up to 12\.8|newer than what the GPU driver",
        Machine(driver="570.195.03", cuda=12080),
        (*HEALTHY, Package("vllm", "0.20.0", ("torch==2.11.0",))),
    ),
    Environment(
        "cudnn-not-torch's",
        "cuDNN 9.10 is installed, torch was built with 9.19",
        ("cudnn-not-what-torch-needs",),
        r"9\.10.*9\.19|9\.19.*9\.10",
        packages=(TORCH, nvidia("nvidia-cudnn-cu13", "9.10.2.21", "cudnn/lib/libcudnn.so.9"), NCCL, TRITON, *TOOLKIT),
        also=("cudnn-info",),
    ),
    Environment(
        "cudnn-of-two-cudas",
        "cuDNN wheels for CUDA 12 and CUDA 13, in one folder",
        ("cuda-wheels-overwrite-each-other",),
        r"cu12.*cu13|cu13.*cu12|multiple cuDNN",
        packages=(*HEALTHY, nvidia("nvidia-cudnn-cu12", "9.10.2.21", "cudnn/lib/libcudnn.so.9")),
        also=("cudnn-info",),
    ),
    Environment(
        "cupy-twice",
        "cupy-cuda12x and cupy-cuda13x are both installed",
        ("cupy-multiple-packages",),
        r"cupy.cuda12x.*cupy.cuda13x|cupy.cuda13x.*cupy.cuda12x",
        packages=(*HEALTHY, module("cupy-cuda12x", "14.2.0"), module("cupy-cuda13x", "14.2.0")),
    ),
    Environment(
        "jax-without-plugin",
        "jax without its CUDA plugin: it computes on the CPU",
        ("jax-cpu-only",),
        r"jax.*(plugin|CPU)",
        packages=(*HEALTHY, module("jax", "0.11.2", "jaxlib==0.11.2"), module("jaxlib", "0.11.2")),
    ),
    Environment(
        "stub-libcuda",
        "LD_LIBRARY_PATH leads to the toolkit's stub of libcuda",
        ("stub-libcuda-loaded",),
        r"stub (library|of)",
        Machine(stub={"STUB_CODES": "cuInit=34,cuDriverGetVersion=34,cuDeviceGetCount=34"}),
        HEALTHY,
        variables={"LD_LIBRARY_PATH": "{folder}/cuda-13.0/lib64/stubs"},
    ),
    Environment(
        "visible-devices-empty",
        "CUDA_VISIBLE_DEVICES is set to nothing",
        ("cuda-visible-devices-hides-all-gpus",),
        r"CUDA_VISIBLE_DEVICES",
        Machine(stub={"STUB_CODES": "cuInit=100"}),
        HEALTHY,
        variables={"CUDA_VISIBLE_DEVICES": ""},
    ),
    Environment(
        "docker-without-nvidia",
        "Docker is here, the NVIDIA Container Toolkit is not",
        ("container-toolkit-missing",),
        r"container.toolkit",
        Machine(docker=True),
        HEALTHY,
    ),
    Environment(
        "two-faults",
        "the old module is still loaded (NVML 18), and torch's wheel is the one for the CPU",
        ("driver-library-version-mismatch",),
        r"version mismatch|reboot",
        MISMATCHED,
        (CPU_TORCH, *TOOLKIT),
    ),
    Environment(
        "libcuda-of-old-driver",
        "libcuda.so.1 leads to a left-over library of driver 535 (CUDA error 803)",
        ("bare-metal-803-mixed-libcuda",),
        r"libcuda.*(535|left|old)",
        Machine(libcuda="535.183.06", stub={"STUB_CODES": "cuInit=803"}),
        HEALTHY,
    ),
    Environment(
        "cuda-home-removed",
        "CUDA_HOME names a toolkit that is no longer there",
        ("cuda-home-invalid",),
        r"CUDA_HOME",
        packages=HEALTHY,
        variables={"CUDA_HOME": "/usr/local/cuda-11.8"},
    ),
    Environment(
        "onnxruntime-twice",
        "onnxruntime and onnxruntime-gpu are both installed: the one for the CPU wins",
        ("onnxruntime-cpu-package-shadows-gpu",),
        r"onnxruntime.*onnxruntime-gpu|onnxruntime-gpu.*onnxruntime",
        packages=(*HEALTHY, *ONNXRUNTIME),
    ),
)
