"""A GPU that works elsewhere by the words of a text, and not where the program runs: what is between the two. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.knowledge import cuda
from gpudoctor.model import Confidence, Finding, Fix

_NO_GPU = re.compile(
    r"""
    Found\ no\ NVIDIA\ driver | CUDA_ERROR_NO_DEVICE | no\ CUDA-capable\ device | cudaErrorNoDevice
    | is_available\(\)[^\n]{0,20}False
    | libcuda\.so(?:\.1)?:?\ cannot\ open | libnvidia-ml\.so(?:\.1)?:?\ cannot\ open | CUDA\ driver\ initialization\ failed
    | nvidia-smi:\ (?:command\ )?not\ found | \bCUDA_ERROR_(?:STUB_LIBRARY|NOT_FOUND)
    | [Nn]o\ (?:CUDA\ )?(?:GPUs?|devices?)\ (?:(?:are|is|was|were)\ )?(?:available|found|detected|visible) | CUDA:\ False
    """,
    re.VERBOSE,
)
_ENROOT = re.compile(r"--container-image\b|\benroot\ start\b|\bpyxis\b", re.VERBOSE)
_VISIBLE = re.compile(r"\bNVIDIA_VISIBLE_DEVICES\b")
_NO_GPU_ASKED = re.compile(r"--gres=none|--gpus=0\b")
WHY_ENROOT = (
    "enroot adds the driver's libraries and devices only if NVIDIA_VISIBLE_DEVICES is set in the container's environment. "
    "NVIDIA's own images set it; a plain image (ubuntu, python) does not, and Docker's --gpus sets it itself."
)
TITLE_ENROOT = "NVIDIA_VISIBLE_DEVICES is not set, so enroot adds no GPU to the container"
WAYS_OF_ENROOT = (
    Fix(
        "Set both variables for the job step; pyxis passes them into the container",
        "export NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        where="shell",
        kind="set",
    ),
    Fix("For everyone: set them in the image (ENV in its Dockerfile), or in a file in /etc/enroot/environ.d on the nodes"),
)


def unset_for_enroot(facts: Facts) -> Iterator[Finding]:
    """A program in a container of pyxis or enroot sees no GPU, and nothing in the text sets the variable."""
    text = "\n".join(passages(facts))
    missing, started = _NO_GPU.search(text), _ENROOT.search(text)
    if missing and started and not _VISIBLE.search(text) and not _NO_GPU_ASKED.search(text):
        problem = facts.problems["nvidia-visible-devices-void"]
        problem = replace(problem, title=TITLE_ENROOT, why=WHY_ENROOT, fixes=WAYS_OF_ENROOT)
        words = f"the container is started by {'enroot' if 'enroot' in started[0] else 'pyxis'}, and the image sets no variable"
        yield problem.found(words, {"said": missing[0]}, confidence=Confidence.LIKELY)


_WSL = re.compile(r"\bWSL\s?2?\b|\bmicrosoft-standard|/usr/lib/wsl|/mnt/[c-e]/Users/")
_SMI_WORKS = re.compile(
    r"""
    \bnvidia-smi\b [^.\n]{0,40} \b(?: works? | working | shows | sees | lists | fine | ok | okay | correct\w* | detects
      | recogni[sz]es | reports | displays )\b
      (?![^.\n]{0,12}\b(?:no|nothing|error|failed)\b)
    | \|\ NVIDIA-SMI\ \d
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NO_DEVICE = re.compile(
    r"""
    CUDA_ERROR_NO_DEVICE | no\ CUDA-capable\ device | cudaErrorNoDevice | Found\ no\ NVIDIA\ driver
    | cuInit[^\n]{0,60}(?:\b100\b|\b34\b|\b500\b|\b999\b)
    """,
    re.VERBOSE,
)
_OTHER_REASON = re.compile(
    r"""
    CUDA_VISIBLE_DEVICES | \bdocker\b | \bcontainer\b | \bWSL\s?1\b | /usr/lib/wsl/lib/libcuda
    """,
    re.VERBOSE,
)


def libcuda_of_linux(facts: Facts) -> Iterator[Finding]:
    """In WSL nvidia-smi, which is of Windows, works, and libcuda finds no device: it is another one than that of Windows."""
    text = "\n".join(passages(facts))
    missing = _NO_DEVICE.search(text)
    if missing and _WSL.search(text) and _SMI_WORKS.search(text) and not _OTHER_REASON.search(text):
        words = "nvidia-smi works in WSL and CUDA finds no device, so a program loads another libcuda than that of Windows"
        problem = facts.problems["wsl-linux-driver-installed"]
        problem = replace(problem, fixes=(*_by_way(problem.fixes), WINDOWS_FIRST, *_by_way(problem.fixes, False)))
        yield problem.found(words, {"said": missing[0]}, confidence=Confidence.LIKELY)


WINDOWS_FIRST = Fix(
    "For this shell: put the libcuda of Windows first",
    "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH",
    where="shell",
    kind="set",
)


def _by_way(fixes: tuple[Fix, ...], removes: bool = True) -> tuple[Fix, ...]:
    """The fixes that remove packages, or the others; those that need a value that the text does not have are left out."""
    return tuple(fix for fix in fixes if "<libraries>" not in fix.command and fix.title.startswith("Remove the") is removes)


_NO_VERBS = re.compile(r"\bibv_open_device failed|NET/IB\s*: Unable to open")
_CONTAINER = re.compile(r"\b(?:docker|podman|container|pod|kubernetes|k8s|singularity|apptainer|enroot)\b", re.IGNORECASE)
_GIVEN = re.compile(r"--device[= ]\S*infiniband|--privileged|rdma/\w+:|uverbs\d")


def adapter_not_in_container(facts: Facts) -> Iterator[Finding]:
    """In a container NCCL cannot open an adapter, and nothing in the text gives its nodes to the container."""
    text = "\n".join(passages(facts))
    failed = _NO_VERBS.search(text)
    if failed and _CONTAINER.search(text) and not _GIVEN.search(text):
        problem = facts.problems["rdma-device-not-accessible"]
        inside = tuple(fix for fix in problem.fixes if fix.title.startswith(("In a container", "In Kubernetes")))
        words = "NCCL lists an RDMA adapter in the container and cannot open it: its nodes in /dev/infiniband are not there"
        yield replace(problem, fixes=(*inside, problem.fixes[0])).found(words, {"said": failed[0]}, confidence=Confidence.LIKELY)


_SMI_FAILS = re.compile(
    r"""
    nvidia-smi:?\ (?:command\ )?not\ found | NVIDIA-SMI\ (?:has\ failed|couldn't) | nvidia-smi.{0,20}\bfails?\b
    """,
    re.VERBOSE,
)
_NIXOS = re.compile(r"\b[Nn]ixOS\b|/nix/store|nix-shell|\bflake\b")
_IN_DOCKER = re.compile(
    r"""
    \brunning\ on\ this\ host\ \((?P<id>[0-9a-f]{12})\) | \broot@(?P<prompt>[0-9a-f]{12}):
    """,
    re.VERBOSE,
)
_GPUS_ASKED = re.compile(
    r"""
    --gpus[=\ ] | --runtime[=\ ]nvidia | nvidia-docker | \bgpus:\ all\b | capabilities:\ \[.?gpu
    """,
    re.VERBOSE,
)
OF_NIXOS = Fix(
    "On NixOS: lead the program to the driver's libraries, which no default path has",
    "export LD_LIBRARY_PATH=/run/opengl-driver/lib:$LD_LIBRARY_PATH",
    where="shell",
    kind="set",
)


def with_driver(finding: Finding, facts: Facts) -> Finding:
    """A program finds no driver, and the text says that nvidia-smi works: then the driver is there, and libcuda is not found."""
    text = "\n".join(passages(facts))
    if finding.problem.id == "no-driver-found" and (inside := _IN_DOCKER.search(text)) and not _GPUS_ASKED.search(text):
        problem = facts.problems["container-no-gpus-flag"]
        evidence = {**finding.evidence, "host_name": inside["id"] or inside["prompt"]}
        words = f"{finding.message}, in a container (host name {inside['id'] or inside['prompt']}) without the driver's files"
        return replace(finding, problem=problem, message=words, evidence=evidence, confidence=Confidence.LIKELY)
    if finding.problem.id != "no-driver-found" or not _SMI_WORKS.search(text) or _SMI_FAILS.search(text):
        return finding
    if _CONTAINER.search(text) or facts.shown.is_windows or _WSL.search(text):
        return finding
    problem = facts.problems["cuda-driver-library-missing"]
    problem = replace(problem, fixes=(OF_NIXOS,)) if _NIXOS.search(text) else problem
    evidence = {name: value for name, value in finding.evidence.items() if name not in ("could_be", "decide")}
    words = f"{finding.message}, although nvidia-smi works: it does not find libcuda"
    return replace(finding, problem=problem, message=words, evidence=evidence, causes=(problem.id, *finding.causes[1:]))


_NO_ENCODER = re.compile(
    r"""
    (?:OpenEncodeSessionEx|nvEncOpenEncodeSession\w*)[^\n]{0,80}(?:unsupported\ device|error\ [12]\b)
    | NV_ENC_ERR_UNSUPPORTED_DEVICE
    | No\ NVENC\ capable\ devices\ found | could\ not\ query\ \w+\ decoder\ capability
    """,
    re.VERBOSE,
)
_OUTSIDE = re.compile(
    r"""
    \b(?:works?|working|fine|ok|succe\w+|runs?)\b[^.\n]{0,40}\b(?:outside|on\ the\ host|natively|bare\ metal|without\ docker)\b
    | \b(?:outside|on\ the\ host|bare\ metal)\b[^.\n]{0,50}\b(?:works?|fine|ok|succe\w+|runs?)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_CAPABLE = re.compile(r"NVIDIA_DRIVER_CAPABILITIES[=: ]+\S*(?:all|video)")


def engines_not_in_container(facts: Facts) -> Iterator[Finding]:
    """A media engine that works on the host fails in a container, which got no capability for it."""
    text = "\n".join(passages(facts))
    failed = _NO_ENCODER.search(text)
    if failed and _CONTAINER.search(text) and _OUTSIDE.search(text) and not _CAPABLE.search(text):
        words = "the encoder works outside the container and fails in it, where the video libraries of the driver are missing"
        problem = facts.problems["container-driver-capabilities-missing"]
        yield problem.found(words, {"said": failed[0]}, confidence=Confidence.LIKELY)


_REJECTED = re.compile(
    r"""
    \(PCI\ ID:\ 10de:(?P<device>[0-9a-f]{4})\)[\s\S]{0,120}?\bis\ not\ supported\ by[\s\S]{0,60}?
    (?P<branch>\d{3})\.\d+(?:\.\d+)?
    """,
    re.VERBOSE,
)
_VIRTUALIZED = re.compile(
    r"""
    \b(?: virtuali[sz]ed | vGPUs? | GRID | OpenStack | VMware | vSphere | ESXi | Nutanix | Proxmox | XenServer | Citrix
      | Harvester
      | (?:inside|in|on)\ (?:a|the|my|our)?\ ?(?:VM|virtual\ machine)s?
      | (?:guest|VM)s?\ (?:OS|with) | nova\ flavor | KVM\ guest )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_PASSED = re.compile(r"\b(?:pass[- ]?through|pci-passthrough|vfio|SR-IOV PF)\b", re.IGNORECASE)
TITLE_GUEST = "A vGPU in a virtual machine needs NVIDIA's guest driver"
WHY_GUEST = (
    "The module rejected the device. A vGPU has the PCI id of its physical GPU, and only the guest driver (GRID), of a branch "
    "that the host's vGPU manager supports, accepts it. With passthrough the usual data center driver is right."
)


IN_OPERATOR = Fix(
    "With the GPU Operator: build its driver image from the guest driver, and deploy it with the licence's configuration",
    "helm upgrade gpu-operator nvidia/gpu-operator -n gpu-operator --reuse-values --set driver.repository=<registry> "
    "--set driver.licensingConfig.configMapName=licensing-config",
    engines=("kubernetes",),
)
WHICH_KIND = Fix(
    "Ask the owner of the host whether it is a vGPU or passthrough: a GPU that is passed through needs the usual driver"
)


def for_guest(finding: Finding, facts: Facts) -> Finding:
    """A driver that rejects the GPU of a virtual machine of a cloud or a cluster, with the fixes for a vGPU.

    As it was if a GPU was passed through, or is newer than the driver.
    """
    text = "\n".join(passages(facts))
    rejected = _REJECTED.search(text)
    if finding.problem.id != "gpu-not-supported-by-driver" or not rejected or not _VIRTUALIZED.search(text):
        return finding
    if _PASSED.search(text) and "vgpu" not in text.lower():
        return finding
    branch, generation = int(rejected["branch"]), knowledge.architecture_of_device(int(rejected["device"], 16))
    if not _supports(branch, generation):
        return finding
    guest = tuple(fix for fix in finding.problem.fixes if "vGPU" in fix.title)
    in_operator = (IN_OPERATOR,) if "operator" in text.lower() else ()
    problem = replace(finding.problem, title=TITLE_GUEST, why=WHY_GUEST, fixes=(*in_operator, *guest, WHICH_KIND))
    words = f"driver {branch} supports {generation} GPUs and rejects this one in a virtual machine: it is likely a vGPU"
    return replace(finding, problem=problem, message=words, confidence=Confidence.LIKELY)


def _supports(branch: int, generation: str | None) -> bool:
    """Whether a branch is new enough for GPUs of a generation."""
    first = min((row.first_cuda for row in cuda.table().architectures if row.name == generation), default=None)
    newest = cuda.cuda_of_branch(branch)
    return first is not None and newest is not None and first <= newest


RULES = (unset_for_enroot, libcuda_of_linux, adapter_not_in_container, engines_not_in_container)
