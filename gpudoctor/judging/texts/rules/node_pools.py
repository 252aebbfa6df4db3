"""Machines that a cloud provides for a text: an image without a driver, a boot script that failed, a notebook without a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.python import is_blind
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

ON_GKE = Problem(
    id="gke-driver-not-installed",
    title="No driver is installed on the GPU nodes of this GKE node pool",
    why="GKE installs the driver only if the node pool was created with gpu-driver-version, or after its installer was "
    "deployed. Until then the device plugin's pod waits for the driver's folder and the node offers no GPU.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Deploy the driver installer (nodes with Container-Optimized OS)",
            "kubectl apply -f https://raw.githubusercontent.com/GoogleCloudPlatform/container-engine-accelerators/master/"
            "nvidia-driver-installer/cos/daemonset-preloaded.yaml",
            verify="kubectl get nodes -o jsonpath='{.items[*].status.allocatable}'",
            kind="install",
            needs=("network",),
        ),
        Fix("Create the node pool again with gpu-driver-version=default in --accelerator"),
    ),
    references=("https://cloud.google.com/kubernetes-engine/docs/how-to/gpus#installing_drivers",),
)
ON_EKS = Problem(
    id="eks-image-without-gpu-driver",
    title="The node's machine image has no NVIDIA driver",
    why="The standard images of EKS have no driver and no NVIDIA runtime, also on an instance with a GPU. The device plugin "
    "finds nothing there and the node offers no GPU.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Create the node group with the image type for GPUs (AL2023_x86_64_NVIDIA, BOTTLEROCKET_x86_64_NVIDIA or "
            "AL2_x86_64_GPU), and move the pods to it"
        ),
        Fix("Install the driver with NVIDIA's GPU operator, on nodes with Ubuntu"),
    ),
    references=("https://docs.aws.amazon.com/eks/latest/userguide/ml-eks-optimized-ami.html",),
)
BOOT_SCRIPT = Problem(
    id="cloud-boot-script-without-metadata",
    title="The image's start script could not reach the instance metadata",
    why="Images of clouds load the driver in a service at boot, which asks 169.254.169.254 for the kind of the instance. If the "
    "network is not up yet, or the metadata service is blocked or requires tokens, it ends before the driver is loaded.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Run it again, now that the network is up",
            "sudo systemctl restart <service>",
            verify="nvidia-smi -L",
            kind="restart",
            needs=("root",),
        ),
        Fix("Check whether the metadata service answers", "curl -sS -m 5 http://169.254.169.254/"),
        Fix("Allow the metadata service (IMDSv2, a hop limit of 2) in the launch template, or use a newer release of the image"),
    ),
    references=("https://github.com/awslabs/amazon-eks-ami/issues/1748",),
)
PROBLEMS = (ON_GKE, ON_EKS, BOOT_SCRIPT)

_WAITS = re.compile(
    r"""
    ^(?:\S+\ +)?nvidia-gpu-device-plugin\S*\ +0/\d+\ +(?:ContainerCreating|Init:\S+|Pending|PodInitializing)\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_ACCELERATOR = re.compile(r"gke-accelerator|acceleratorType|--accelerator[= ]")
_OF_GKE = re.compile(r"(?m)^gke-\S+ +<none> +(?:nvidia-\S+)")
_INSTALLS = re.compile(
    r"""
    nvidia-driver-installer
    | gpu-driver-version(?!=disabled)
    | gpuDriverVersion:\ (?:DEFAULT|LATEST)
    | gpu-operator
    """,
    re.VERBOSE,
)


def gke_without_driver(facts: Facts) -> Iterator[Finding]:
    """A node pool has accelerators, its nodes offer no GPU, and nothing installs a driver."""
    text = "\n".join(passages(facts))
    if _ACCELERATOR.search(text) and (_WAITS.search(text) or _OF_GKE.search(text)) and not _INSTALLS.search(text):
        words = "the node pool has GPUs, its nodes offer none, and no driver installer runs"
        yield ON_GKE.found(words, confidence=Confidence.LIKELY)


_IMAGE = re.compile(
    r"""
    (?<![\w-]) (?P<image>
        AL2_x86_64 | AL2_ARM_64 | AL2023_(?:x86_64|ARM_64)_STANDARD | BOTTLEROCKET_(?:x86_64|ARM_64)
      | amazon-eks-(?:arm64-)?node-(?:al2023-\w+-standard-)?\d\.\d\d\S*
    ) (?![\w]) """,
    re.VERBOSE,
)
_WITH_GPU = re.compile(
    r"""
    \b(?P<type>(?:g4dn|g5g?|g6e?|gr6|p3(?:dn)?|p4de?|p5e?n?|p6\S{0,5})\.(?:\d*x?large|metal))\b
    """,
    re.VERBOSE,
)
_FOR_GPUS = re.compile(
    r"""
    \b(?:AL2_x86_64_GPU|AL2023_\w+_NVIDIA|BOTTLEROCKET_\w+_NVIDIA|amazon-eks-gpu-node)
    """,
    re.VERBOSE,
)
_SEEKS_NVML = re.compile(r"could not load NVML library: libnvidia-ml\.so\.1")
_OPERATOR = re.compile(r"nvidia-driver-daemonset|gpu-operator")


def eks_without_driver(facts: Facts) -> Iterator[Finding]:
    """The instance has a GPU, and its image is the one without a driver."""
    text = "\n".join(passages(facts))
    image, kind = _IMAGE.search(text), _WITH_GPU.search(text)
    has_gpu = kind or (image and _SEEKS_NVML.search(text))
    if image and has_gpu and not _FOR_GPUS.search(text) and not _OPERATOR.search(text) and not known(lambda: facts.nvml.count, 0):
        words = f"{kind['type'] if kind else 'the node'} has a GPU, and its image {image['image']} is one without a driver"
        evidence = {"image": image["image"], **({"type": kind["type"]} if kind else {})}
        yield ON_EKS.found(words, evidence, confidence=Confidence.LIKELY)


_METADATA = re.compile(
    r"""
    (?P<service>\b[\w-]{1,40})(?:\.sh|\.service|\.py)?\[\d+\]:\ [^\n]{0,200}?
    169\.254\.169\.254[^\n]*
    """,
    re.VERBOSE,
)
_OF_DRIVER = re.compile(r"nvidia|gpu|driver")
_NOT_REACHED = re.compile(r"Failed to connect|Couldn't connect|timed out|No route|refused|unreachable|401")


def no_metadata(facts: Facts) -> Iterator[Finding]:
    """The service that loads the driver at boot did not reach the metadata of its instance."""
    text = "\n".join(passages(facts))
    line = next((line for line in _METADATA.finditer(text) if _OF_DRIVER.search(line["service"])), None)
    if line and _NOT_REACHED.search(line[0]) and "failed" in text.lower():
        words = f"{line['service']} could not reach 169.254.169.254 and ended before it loaded the driver"
        yield BOOT_SCRIPT.found(words, {"service": line["service"]}, confidence=Confidence.LIKELY)


_OF_SERVICE = re.compile(
    r"""
    \b(?:google\s+)?colab\b
    | \bkaggle\b
    | (?m:^/content(?:/|:|$))
    | /kaggle/(?:working|input)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NO_NODE = re.compile(
    r"""
    cannot\ access\ '?/dev/nvidia
    | nvidia-smi:\ (?:command\ )?not\ found
    | No\ such\ file\ or\ directory:\ 'nvidia-smi'
    """,
    re.VERBOSE,
)
_TPU = re.compile(r"(?i)\btpu\b|xla_device|torch_xla")
_NO_GPU_TYPE = re.compile(r"\b(?P<type>ml\.(?:t[23]|m[4-7]\w*|c[4-7]\w*|r[5-7]\w*)\.\w+)\b")


_REFUSED = re.compile(
    r"""
    Cannot\ connect\ to\ GPU\ backend
    | usage\ limits\ in\ Colab
    | GPU\ quota\ (?:is\ )?(?:used\ up|exceeded)
    """,
    re.VERBOSE,
)
_LATER = Fix("Connect without a GPU, and come back later or buy compute units: the free quota returns after some hours or days")


def notebook_refused(facts: Facts) -> Iterator[Finding]:
    """Colab or Kaggle says that no GPU is left for this account."""
    text = "\n".join(passages(facts))
    if _REFUSED.search(text) and _OF_SERVICE.search(text):
        problem = replace(facts.problems["cloud-capacity-missing"], title=NO_MORE, fixes=(_LATER,))
        yield problem.found("the service says that its limit for GPUs is reached", confidence=Confidence.LIKELY)


NO_MORE = "The notebook service gives this account no GPU at the moment"


def notebook_of_no_gpu(facts: Facts) -> Iterator[Finding]:
    """Colab, Kaggle or SageMaker: PyTorch sees no GPU and there is no device, or its type of instance is one without."""
    text = "\n".join(passages(facts))
    if known(lambda: facts.nvml.count, 0) or _TPU.search(text):
        return
    kind = _NO_GPU_TYPE.search(text)
    is_without = is_blind(facts) or bool(_NO_NODE.search(text)) or "\n[]\n" in text
    if kind and not re.search(r"\bml\.(?:g|p)\d", text) and is_without:
        words = f"{kind['type']} is an instance without a GPU"
        yield facts.problems["notebook-without-gpu"].found(words, {"type": kind["type"]}, confidence=Confidence.LIKELY)
    elif _OF_SERVICE.search(text) and _NO_NODE.search(text) and (is_blind(facts) or "False" in text):
        words = "the notebook has no device of a GPU: none was selected for its runtime"
        yield facts.problems["notebook-without-gpu"].found(words, confidence=Confidence.LIKELY)


RULES = (gke_without_driver, eks_without_driver, no_metadata, notebook_refused, notebook_of_no_gpu)
