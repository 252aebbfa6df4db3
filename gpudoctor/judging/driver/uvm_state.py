"""nvidia-uvm is loaded but does not work: it found no address range, or lost its state during suspend. Pure."""

from __future__ import annotations

from gpudoctor.facts import Facts
from gpudoctor.judging.driver.uvm_node import UVM_NODE
from gpudoctor.model import NEW_INITRAMFS, Action, Confidence, Finding, Fix, Problem

INIT = "python3 -c \"import ctypes; print('cuInit:', ctypes.CDLL('libcuda.so.1').cuInit(0))\""
VERIFY = INIT + "  # 0 is success"
NO_RANGE = r"devmem_alloc_pagemap.*request_free_mem_region\(\) err -34"
RESUMED = r"PM: (suspend|hibernation) exit"

HMM = Problem(
    id="hmm-kaslr-cuda-init-fails",
    title="The kernel has no address range for the GPU's memory (HMM, KASLR)",
    why="Some kernels have a bug: address randomisation leaves no physical range in which nvidia-uvm can register the GPU's "
    "memory for HMM. CUDA cannot start in this boot.",
    action=Action.REBOOT,
    fixes=(
        Fix(
            "Stop the programs that use the GPU, disable HMM in the module, then reload it",
            "echo 'options nvidia_uvm uvm_disable_hmm=1' | sudo tee /etc/modprobe.d/uvm.conf && "
            "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm",
            risk="disruptive",
            needs=("root", "drain"),
            verify=VERIFY,
            kind="restart",
            undo="sudo rm /etc/modprobe.d/uvm.conf",
        ),
        Fix("Boot with the kernel parameter nokaslr, or boot a newer kernel", needs=("reboot",)),
    ),
    references=(
        "https://docs.nvidia.com/cuda/archive/13.2.1/cuda-features-archive/index.html",
        "https://github.com/dmlc/xgboost/issues/11356",
    ),
)

AFTER_SUSPEND = Problem(
    id="cuda-999-after-suspend",
    title="CUDA stopped working after suspend",
    why="The state of nvidia-uvm did not survive suspend: by default the driver does not save video memory. nvidia-smi does "
    "not use that module and looks healthy.",
    action=Action.RESTART_APP,
    fixes=(
        Fix(
            "Stop the programs that use the GPU, then reload the module",
            "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm",
            risk="disruptive",
            needs=("root", "drain"),
            verify=VERIFY,
            kind="restart",
        ),
        Fix(
            "To fix it permanently: let the driver save video memory during suspend, then reboot",
            "echo 'options nvidia NVreg_PreserveVideoMemoryAllocations=1 NVreg_TemporaryFilePath=/var/tmp' | "
            "sudo tee /etc/modprobe.d/nvidia-video-memory.conf && "
            "sudo systemctl enable nvidia-suspend nvidia-resume nvidia-hibernate && "
            f"{NEW_INITRAMFS}",
            kind="set",
            reboot=True,
            undo="sudo systemctl disable nvidia-suspend nvidia-resume nvidia-hibernate && "
            f"sudo rm /etc/modprobe.d/nvidia-video-memory.conf && {NEW_INITRAMFS}",
        ),
    ),
    references=("https://github.com/pytorch/pytorch/issues/88639", "https://github.com/NixOS/nixpkgs/issues/334180"),
)


def no_range(facts: Facts, said: str) -> Finding | None:
    lines = facts.kernel_log.matching(NO_RANGE)
    if not lines or facts.driver.uvm_disable_hmm:
        return None
    return HMM.found(
        f"{said}; nvidia-uvm found no free address range",
        {"log": lines[-1].text, "nokaslr": "nokaslr" in facts.system.command_line},
    )


def after_suspend(facts: Facts, said: str) -> Finding | None:
    slept = facts.kernel_log.matching(RESUMED)
    if not slept or UVM_NODE not in facts.devices.nodes:
        return None
    preserves = facts.driver.parameters.get("PreserveVideoMemoryAllocations")
    return AFTER_SUSPEND.found(
        f"{said}; the machine was suspended since its last boot",
        {"log": slept[-1].text, "PreserveVideoMemoryAllocations": preserves},
        confidence=Confidence.LIKELY,
    )
