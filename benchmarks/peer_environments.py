"""The environments of the comparison: broken ones with the cause in each tool's words, and healthy ones."""

from __future__ import annotations

import platform
from dataclasses import replace

from peer_environment import Environment
from peer_files import COMPOSE, DOCKERFILE, GOOD_DOCKERFILE, NO_KERNEL, OFF_THE_BUS
from peer_machine import MISMATCHED, NOT_COMMUNICATING, RTX_5090, Machine
from peer_packages import HEALTHY, OLDER
from peer_wheels import WHEELS

NVLINK = "nvmlDeviceGetGpuFabricInfoV=3,nvmlDeviceGetNvLinkState=18"
LOST = "Unable to determine the device handle for GPU0: 0000:00:06.0: GPU is lost.  Reboot the system to recover this GPU\n"

NO_GPU = Machine(gpu=None)
NOT_LOADED = Machine(module="", bound="", stub={"STUB_CODES": "nvmlInitWithFlags=9,cuInit=100"}, smi=(9, NOT_COMMUNICATING))

MACHINES = (
    Environment(
        "no-gpu",
        "there is no GPU in this machine",
        ("no-nvidia-gpu",),
        r"no (NVIDIA )?GPU (on|in)|No GPUs? (detected|found)",
        NO_GPU,
    ),
    Environment(
        "driver-library-mismatch",
        "the driver's files were upgraded, the old module is still loaded (NVML 18)",
        ("driver-library-version-mismatch",),
        r"version mismatch|reboot",
        MISMATCHED,
        HEALTHY,
    ),
    Environment(
        "module-for-old-kernel",
        "after a kernel update the driver's module is only there for the old kernel (NVML 9)",
        ("module-not-built-after-kernel-update",),
        r"module.*(not (built|loaded)|kernel)|dkms",
        replace(NOT_LOADED, modules=("6.1.0-21-amd64",)),
        HEALTHY,
    ),
    Environment(
        "nouveau",
        "the driver nouveau has the GPU",
        ("nouveau-loaded",),
        r"nouveau",
        replace(NOT_LOADED, bound="nouveau", modules=(platform.release(),)),
        HEALTHY,
    ),
    Environment(
        "gpu-lost",
        "NVML reports one of two GPUs as lost",
        ("gpu-lost", "nvml-gpu-lost"),
        r"(is|was) lost|fell off",
        Machine(gpus=2, stub={"STUB_CODES": "nvmlDeviceGetHandleByIndex_v2@0=15,cuInit=999"}, smi=(15, LOST)),
        HEALTHY,
    ),
    Environment(
        "row-remap-pending",
        "memory rows of a GPU wait for a reset to be replaced",
        ("ecc-retired-pages-pending-perf", "xid-63-row-remap-pending"),
        r"remap",
        Machine(stub={"STUB_VALUES": "RemapPending=1,nvmlDeviceGetRemappedRows=2"}),
        HEALTHY,
    ),
    Environment(
        "fabric-unhealthy",
        "eight NVLink GPUs, of one the fabric's health says: route unhealthy",
        ("nvlink-fabric-unhealthy",),
        r"fabric|NVLink inactive",
        Machine(gpus=8, stub={"STUB_VALUES": f"{NVLINK},FabricHealth@3=16"}),
        HEALTHY,
    ),
    Environment(
        "driver-hangs",
        "the driver does not answer: NVML and nvidia-smi hang",
        ("nvml-hangs",),
        r"not answer|hang|no answer",
        Machine(stub={"STUB_HANG": "nvmlInitWithFlags,cuInit"}, smi_hangs=True),
        HEALTHY,
    ),
)
FILES = (
    Environment(
        "dockerfile",
        "a Dockerfile installs the driver, and compiles flash-attn without nvcc",
        ("driver-installed-in-image", "cuda-compiler-missing"),
        r"driver.*(must not|NOT).*(contain|image)|devel",
        NO_GPU,
        files={"Dockerfile": DOCKERFILE},
        kind="dockerfile",
    ),
    Environment("dockerfile-that-works", "", machine=NO_GPU, files={"Dockerfile": GOOD_DOCKERFILE}, kind="dockerfile"),
    Environment(
        "compose",
        "a compose file asks for no GPU for an image with CUDA",
        ("gpu-not-requested",),
        r"(no|missing).*GPU|GPU.*(not|missing)",
        NO_GPU,
        files={"docker-compose.yml": COMPOSE},
        kind="docker-compose",
    ),
    Environment(
        "traceback",
        "a colleague's traceback: no kernel image is available (explain)",
        ("torch-missing-gpu-architecture",),
        machine=NO_GPU,
        files={"train.log": NO_KERNEL},
        kind="text",
    ),
    Environment(
        "kernel-log",
        "a colleague's kernel log: Xid 79, then 154 (explain)",
        ("xid-79-fallen-off-bus",),
        machine=NO_GPU,
        files={"kern.log": OFF_THE_BUS},
        kind="text",
    ),
)
WORKING = (
    Environment("h100", "", packages=HEALTHY),
    Environment("two-h100-pcie", "", machine=Machine(gpus=2), packages=HEALTHY),
    Environment("eight-h100", "", machine=Machine(gpus=8, stub={"STUB_VALUES": NVLINK}), packages=HEALTHY),
    Environment(
        "corrected-ecc-errors",
        "",
        machine=Machine(stub={"STUB_VALUES": "nvmlDeviceGetTotalEccErrors=3,UncorrectedEcc=0"}),
        packages=HEALTHY,
    ),
    Environment("rtx-5090", "", machine=Machine(gpu=RTX_5090), packages=HEALTHY),
    Environment("no-framework", ""),
    Environment("older-cuda-12", "", machine=Machine(driver="550.163.01", cuda=12040), packages=OLDER),
)
# What gpudoctor does not answer.
QUESTIONS = (
    Environment(
        "vllm-to-be-installed",
        "will the vLLM that pip would install run on driver 570?",
        words=r"pulls a CUDA 13\.0 build.*12\.8",
        machine=Machine(driver="570.195.03", cuda=12080),
        also=("check", "--engine", "vllm"),
        kind="question",
    ),
    Environment(
        "model-to-be-loaded",
        "does Llama 3 70B fit on one H100?",
        words=r"fp16.*(need|exceed|short|not)|INT4.*fit",
        also=("model", "llama-3-70b"),
        kind="question",
    ),
)
ALL = (*WORKING, *MACHINES, *WHEELS, *FILES, *QUESTIONS)
