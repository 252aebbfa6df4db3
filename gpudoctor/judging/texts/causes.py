"""Which problems that the outputs of a text show explain a symptom that a message or a check names. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.model import Finding

OF_MODULE = ("module-not-built-after-kernel-update", "dkms-build-failed-new-kernel", "package-kernel-headers-missing")
CAUSES: Mapping[str, tuple[str, ...]] = {
    "cgroup-slice-denies-devices": (
        "gpu-missing-from-driver",
        "container-gpu-did-not-arrive",
        "container-lost-gpu-access",
        "container-gpu-device-denied",
        "dev-nvidia-permission-denied",
        "cuda-init-failed",
    ),
    "cuda-library-of-another-major": (
        "cuda-library-not-found",
        "tensorflow-cuda-libraries-missing",
        "onnxruntime-cuda-ep-lib-missing",
        "ctranslate2-cuda-libraries-missing",
        "cudnn8-missing-for-old-ctranslate2",
        "jax-cuda-libraries-missing",
    ),
    "cloud-boot-script-without-metadata": ("kernel-module-not-loaded", "no-driver-found"),
    "container-cli-ldconfig-fails": ("nvml-library-missing", "cuda-driver-library-missing", "container-driver-libraries-missing"),
    "cuda-visible-devices-hides-requested-gpu": ("nccl-duplicate-gpu", "nccl-failed"),
    "docker-reads-another-configuration": ("docker-runtime-not-configured", "docker-selects-no-gpu-driver"),
    "engine-too-old-for-cdi": ("docker-cdi-switched-off",),
    "gloo-socket-interface-missing": ("gloo-network-wrong", "rendezvous-unreachable"),
    "k8s-pod-older-than-plugin": ("k8s-gpu-unhealthy", "k8s-no-free-gpu"),
    "no-nvidia-gpu": ("kernel-module-not-loaded", "no-driver-found", "nvml-driver-not-loaded"),
    "oci-hook-left-behind": ("container-start-unexplained",),
    "program-runs-with-another-python": ("torch-cpu-only-wheel", "framework-sees-no-gpu"),
    "arch-module-package-of-another-kernel": (*OF_MODULE, "kernel-module-not-loaded", "no-driver-found"),
    "cdi-folder-not-searched": ("cdi-device-unresolvable", "cdi-spec-missing", "cdi-device-unknown"),
    "cdi-spec-not-readable": ("cdi-spec-missing", "cdi-device-unresolvable"),
    "compositor-uses-other-card": ("render-node-not-accessible",),
    "container-driver-capabilities-missing": ("codec-not-on-this-gpu", "encoder-setting-not-supported"),
    "container-no-gpus-flag": ("cuda-library-not-found", "jetson-generic-wheel"),
    "container-without-uvm-node": ("cuda-init-failed", "nvidia-uvm-missing", "framework-sees-no-gpu", "program-ignores-gpu"),
    "cuda-999-after-suspend": ("cuda-init-failed",),
    "cuda-torch-on-amd-gpu": (
        "no-driver-found",
        "framework-sees-no-gpu",
        "container-no-gpus-flag",
        "cuda-driver-library-missing",
    ),
    "cudnn-wrong-version-ld-library-path": ("jax-cudnn-too-old", "tensorflow-cudnn-too-old", "jax-cpu-only", "cudnn-fails"),
    "display-on-integrated-gpu": ("graphics-on-cpu",),
    "driver-libraries-in-image": ("driver-library-version-mismatch", "container-libraries-older-than-driver"),
    "cloud-capacity-missing": ("framework-sees-no-gpu", "notebook-without-gpu"),
    "driver-package-held": ("driver-library-version-mismatch",),
    "driver-package-not-configured": ("kernel-module-not-loaded",),
    "driver-packages-from-two-repositories": ("driver-packages-unmet-dependencies",),
    "environment-module-overwrites-library-path": (
        "cuda-library-not-found",
        "nccl-not-what-torch-needs",
        "tensorflow-cuda-libraries-missing",
    ),
    "docker-nested-in-lxc": ("rootless-cgroup-permission", "container-device-rules-refused", "container-start-unexplained"),
    "eks-image-without-gpu-driver": ("k8s-device-plugin-no-nvml", "k8s-no-free-gpu", "kernel-module-not-loaded"),
    "gke-driver-not-installed": ("k8s-device-plugin-no-nvml", "k8s-no-free-gpu"),
    "gpu-operator-installs-second-driver": ("gpu-operator-not-ready", "driver-module-in-use"),
    "gpu-operator-takes-driver-for-installed": ("gpu-operator-not-ready", "nvidia-smi-command-not-found"),
    "gpu-memory-in-use": ("other-process-using-gpu",),
    "gpu-dropped-by-driver-branch": ("xorg-cannot-use-gpu",),
    "graphics-libraries-32-bit-missing": ("graphics-on-cpu",),
    "huge-pages-unused": ("host-memory-exhausted",),
    "image-without-its-environment": (
        "nvidia-smi-command-not-found",
        "nvml-library-missing",
        "nvidia-visible-devices-void",
        "distributed-rank-failed",
    ),
    "k8s-nvidia-runtime-not-chosen": ("k8s-device-plugin-no-nvml", "nvml-library-missing"),
    "k8s-paused-for-mig-change": ("k8s-no-free-gpu", "k8s-device-plugin-no-nvml", "k8s-mig-not-applied"),
    "k8s-plugin-not-registered": ("k8s-gpu-unhealthy", "k8s-no-free-gpu"),
    "k8s-plugin-selects-no-node": ("k8s-no-free-gpu", "k8s-device-plugin-no-nvml", "k8s-device-plugin-missing"),
    "k8s-time-slices-share-memory": ("cuda-out-of-memory",),
    "kernel-options-not-in-effect": (
        "iommu-switched-off",
        "vfio-group-not-viable",
        "vfio-id-not-bound",
        "nouveau-loaded",
        "wayland-without-modeset",
        "nccl-p2p-hang-acs-iommu",
        "bar-not-assigned-above-4g",
    ),
    "kubelet-cpu-manager-takes-gpu": (
        "container-lost-gpu-access",
        "container-gpu-device-denied",
        "cuda-init-failed",
        "nvml-unknown-error",
        "dev-nvidia-permission-denied",
    ),
    "module-not-built-after-kernel-update": ("graphics-on-cpu",),
    "name-resolution-failed": ("package-kernel-headers-missing", "index-unreachable", "nvidia-repository-changed"),
    "nccl-chooses-virtual-interface": ("nccl-network-unreachable", "nccl-watchdog-timeout", "nccl-failed"),
    "nccl-buffer-too-large": ("nccl-failed",),
    "lxc-device-rules-missing": ("nvidia-uvm-missing", "cuda-init-failed", "container-without-uvm-node"),
    "no-cgroups-breaks-root-docker": ("wsl-nvml-blocked-by-os", "container-lost-gpu-access", "nvml-unknown-error"),
    "notebook-without-gpu": ("device-nodes-missing", "framework-sees-no-gpu", "no-driver-found"),
    "nvcc-of-another-toolkit": ("nvcc-too-old-for-gpu", "nvcc-dropped-gpu"),
    "nvidia-module-blacklisted": ("kernel-module-not-loaded",),
    "nvidia-visible-devices-void": (
        "no-driver-found",
        "cuda-init-failed",
        "framework-sees-no-gpu",
        "cuda-driver-library-missing",
        "nvml-library-missing",
        "nvidia-smi-command-not-found",
    ),
    "nvidia-runtime-elsewhere": (
        "nvidia-runtime-program-missing",
        "container-start-unexplained",
        "container-command-not-found",
        "container-toolkit-missing",
    ),
    "nvjitlink-wheel-too-old": (
        "stale-ld-library-path-cuda",
        "cuda-wheels-overwrite-each-other",
        "torch-cuda-wheels-of-another-major",
        "framework-import-fails",
    ),
    "open-module-on-pre-turing": ("kernel-module-not-loaded", "xorg-cannot-use-gpu"),
    "opencl-icd-file-missing": ("opencl-driver-missing",),
    "other-process-using-gpu": ("cuda-out-of-memory",),
    "ranks-blocked-by-firewall": ("nccl-network-unreachable", "rendezvous-unreachable"),
    "rdma-device-not-accessible": ("nccl-no-ib-falls-back-socket", "nccl-ib-registration-fails"),
    "mig-single-instance-per-process": ("program-asks-for-missing-gpu", "fewer-gpus-than-expected"),
    "render-node-is-a-file": ("render-node-not-accessible",),
    "rootless-container-drops-groups": ("podman-selinux-nvml-insufficient",),
    "running-kernel-replaced": (*OF_MODULE, "kernel-module-not-loaded", "index-unreachable", "nvidia-repository-changed"),
    "batch-job-without-gpu": ("framework-sees-no-gpu",),
    "service-without-library-path": (
        "tensorflow-cuda-libraries-missing",
        "cuda-library-not-found",
        "onnxruntime-cuda-ep-lib-missing",
        "jax-cuda-libraries-missing",
    ),
    "service-without-shell-variables": ("tensorflow-cuda-libraries-missing", "cuda-library-not-found"),
    "sudo-drops-environment": (
        "program-raised-error",
        "module-missing",
        "cuda-toolkit-missing",
        "cuda-library-not-found",
        "build-isolation-hides-torch",
    ),
    "stub-libcuda-loaded": ("cuda-init-failed", "no-driver-found", "framework-sees-no-gpu"),
    "user-outside-group-of-node": ("render-node-not-accessible",),
    "vfio-id-not-bound": ("nouveau-loaded",),
    "vfio-ids-match-no-gpu": ("nouveau-loaded",),
    "vgpu-guest-driver-incompatible": ("gpu-initialisation-failed", "no-nvidia-gpu", "driver-too-old-for-runtime"),
    "vm-firmware-without-large-window": ("bar-not-assigned-above-4g",),
    "wayland-without-modeset": ("render-node-not-accessible",),
    "wsl-dxg-missing": (
        "container-driver-libraries-not-found",
        "container-wsl-shows-no-gpu",
        "docker-selects-no-gpu-driver",
        "container-start-unexplained",
        "wsl-linux-driver-installed",
    ),
    "wsl-libcuda-not-symlink": ("no-driver-found",),
    "wsl-linux-driver-installed": ("cuda-init-failed", "wsl-nvml-blocked-by-os", "no-driver-found", "framework-sees-no-gpu"),
}
"""Problem that the outputs of a text show -> the symptoms that it explains, of messages and of checks."""


def with_shown_causes(finding: Finding, facts: Facts) -> Finding:
    """With the causes that the rules found in the same text. What finds the symptom, a message or a check, does not matter."""
    id = finding.problem.id
    causes = [cause for cause, symptoms in CAUSES.items() if id in symptoms]
    if not causes or not facts.texts.alone:
        return finding
    from gpudoctor.judging.texts import rules  # with all readers of outputs: only a text needs them

    shown = {found.problem.id for found in facts.once(rules.findings)}
    return replace(finding, causes=(*finding.causes, *(cause for cause in causes if cause in shown)))
