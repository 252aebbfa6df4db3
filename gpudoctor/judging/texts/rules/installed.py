"""What a text shows as installed, against what its programs need: the driver's libraries, a device plugin, a newer driver."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.driver import said
from gpudoctor.judging.texts.rules.python import BLIND, answer
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

LOOK_32 = "ldconfig -p | grep libGLX_nvidia.so.0"
LIBRARIES_32 = Problem(
    id="graphics-libraries-32-bit-missing",
    title="The driver's 32-bit libraries are not installed",
    why="Steam, Wine and old games are 32-bit programs. They need the driver's graphics libraries as 32-bit packages of the same "
    "release; without them Mesa renders on the CPU, or the program does not start.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install the driver's 32-bit libraries of the same release: xorg-x11-drv-nvidia-libs.i686 (RPM Fusion), "
            "nvidia-driver-libs:i386 (Debian), libnvidia-gl-580:i386 or that of your branch (Ubuntu), lib32-nvidia-utils (Arch)",
            verify=LOOK_32,
        ),
        Fix("Show the driver's OpenGL libraries; one for 32 bit has (libc6) alone", LOOK_32, kind="read"),
    ),
    references=("https://rpmfusion.org/Howto/NVIDIA", "https://wiki.debian.org/NvidiaGraphicsDrivers"),
    status=Status.WARN,
)
NO_PLUGIN = Problem(
    id="k8s-device-plugin-missing",
    title="No NVIDIA device plugin runs in the cluster",
    why="Kubernetes knows only CPU and memory. NVIDIA's device plugin, alone or installed by the GPU operator, counts a node's "
    "GPUs and offers them as nvidia.com/gpu.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install the device plugin; each GPU node needs the driver and NVIDIA's container runtime",
            "helm repo add nvdp https://nvidia.github.io/k8s-device-plugin && "
            "helm upgrade -i nvdp nvdp/nvidia-device-plugin -n nvidia-device-plugin --create-namespace",
            verify="kubectl get nodes -o jsonpath='{.items[*].status.allocatable}'",
            kind="manual",
            needs=("network",),
        ),
        Fix(
            "Install the GPU operator instead, which also installs driver, runtime and monitoring",
            "helm repo add nvidia https://helm.ngc.nvidia.com/nvidia && "
            "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --create-namespace --wait",
            verify="kubectl get pods -n gpu-operator",
            kind="manual",
            needs=("network",),
        ),
    ),
    references=("https://github.com/NVIDIA/k8s-device-plugin",),
)
PROBLEMS = (LIBRARIES_32, NO_PLUGIN)
_OF_MAJOR = re.compile(r"(?:nvidia-[a-z-]+|jax-cuda|cupy-cuda|torch\S*\+)-?(?:cu|cuda)?(\d\d)(?:x|\b|-)")
_LISTS_PODS = re.compile(
    r"""
    kubectl\ [^\n]*\bget\ (?:pods?|po|ds|daemonsets?|all)\b[^\n]*(?:-A\b|--all-namespaces|kube-system)
    """,
    re.VERBOSE,
)
_IS_32 = re.compile(
    r"""
    ELF\ 32-bit | \bglxinfo(?:\.i686|32)\b
    | \b32-?\ ?bit\ (?:\w+\ )?(?:game|program|app\w*|steam|wine|binar\w+|games|OpenGL|vulkan)\b
    | \b(?:ELFCLASS32|wrong\ ELF\ class)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LIBRARY = re.compile(r"libGLX_nvidia\.so\.0 \((libc6[^)]*)\)")
_PACKAGE_32 = re.compile(r"(?m)^\S*nvidia\S*(?:\.i[36]86|:i386)\b|^lib32-nvidia")
_PACKAGE_64 = re.compile(r"(?m)^\S*nvidia\S*libs\S*\.x86_64\b")


def newer_than_driver(facts: Facts) -> Iterator[Finding]:
    """Packages for a CUDA of a newer major version than the driver supports, and a program that finds no GPU."""
    driver = known(lambda: facts.cuda.driver_version)
    names = known(lambda: tuple(facts.python.packages), ())
    found = {int(match[1]): name for name in names if (match := _OF_MAJOR.match(name))}
    of_torch = known(lambda: facts.python.torch_cuda)
    if not (driver and found and _is_blind(facts)) or of_torch:
        return
    major = max(found)
    least = knowledge.minimum_driver((major, 0))
    if major > driver[0] and least:
        words = f"{found[major]} is built for CUDA {major}, and the driver supports CUDA {driver[0]}.{driver[1]}"
        id = "jax-driver-too-old" if found[major].startswith("jax") else "driver-too-old-for-runtime"
        evidence = {"least_driver": least, "upgrade": str(Version(least).major)}
        yield facts.problems[id].found(words, evidence, confidence=Confidence.LIKELY)


def no_libcuda(facts: Facts) -> Iterator[Finding]:
    """The loader's cache has no libcuda, and CUDA finds no GPU although nvidia-smi may work."""
    if facts.shown.lacks_libcuda and _is_blind(facts):
        words = "ldconfig -p lists no libcuda.so.1, the driver's CUDA library"
        words += ", although nvidia-smi works" if known(lambda: facts.nvml.count, 0) else ""
        yield facts.problems["cuda-driver-library-missing"].found(words, confidence=Confidence.LIKELY)


def _is_blind(facts: Facts) -> bool:
    answered = any(facts.shown.answers.get(asked) == value for asked, value in BLIND.items())
    devices = answer(facts, "jax.")
    others = (answer(facts, "cuda.is_available"), answer(facts, "cupy.cuda"), answer(facts, "tensorflow.config"))
    return answered or "CpuDevice" in devices or any(value in ("False", "0", "[]") for value in others)


def no_device_plugin(facts: Facts) -> Iterator[Finding]:
    """The node offers no GPU, it has one, and the list of all pods shows none of NVIDIA's."""
    node, text = facts.shown.node, "\n".join(passages(facts))
    pods = "coredns" in text or "kube-proxy" in text
    if node is None or any(node.values()) or any(facts.shown.offered.values()):
        return
    if (
        known(lambda: facts.nvml.count, 0)
        and pods
        and _LISTS_PODS.search(text)
        and not re.search(r"nvidia-(?!smi)|device-plugin", text)
    ):
        words = "the node has a GPU and offers no nvidia.com/gpu, and no pod of the cluster is NVIDIA's device plugin"
        yield NO_PLUGIN.found(words, confidence=Confidence.LIKELY)


def all_taken(facts: Facts) -> Iterator[Finding]:
    """All GPUs of the node are requested by pods that run, and another one waits."""
    for name, count in facts.shown.allocated.items():
        offered = facts.shown.offered.get(name, 0)
        if 0 < offered <= count and (said(facts, "Pending") or said(facts, "pending")):
            words = f"the pods of the node have requested all {offered} × {name}, and another pod waits"
            evidence = {"requested": str(count), "offered": str(offered)}
            yield facts.problems["k8s-no-free-gpu"].found(words, evidence, confidence=Confidence.LIKELY)
            return


def only_64_bit(facts: Facts) -> Iterator[Finding]:
    """A 32-bit program renders on the CPU or does not start, and the driver's libraries are there for 64 bit only."""
    text = "\n".join(passages(facts))
    if _IS_32.search(text) and _of_arch(text):
        words = "a 32-bit program is used, nvidia-utils is installed and lib32-nvidia-utils is not"
        yield LIBRARIES_32.found(words, confidence=Confidence.LIKELY)
        return
    forms = set(_LIBRARY.findall(text))
    is_64 = ("libc6,x86-64" in forms and "libc6" not in forms) or (_PACKAGE_64.search(text) and not _PACKAGE_32.search(text))
    if is_64 and _IS_32.search(text) and not _PACKAGE_32.search(text):
        words = "a 32-bit program is used, and the driver's libraries are installed for 64 bit only"
        yield LIBRARIES_32.found(words, confidence=Confidence.LIKELY)


_QUERY = re.compile(r"\bpacman -Q\w*[^\n]*\n(?P<listed>(?:(?!.*[$#] )\S[^\n]*(?:\n|\Z))+)")
_NAME = re.compile(r"(?m)^(?:local/)?(?P<name>[a-z0-9][\w.+-]*)(?: |$)")


def _of_arch(text: str) -> bool:
    """Whether pacman lists the driver's libraries and other 32-bit packages, but not the driver's."""
    names = {match["name"] for query in _QUERY.finditer(text) for match in _NAME.finditer(query["listed"])}
    has_32 = any(name.startswith("lib32-") for name in names)
    return (
        any(re.fullmatch(r"nvidia(?:-\d+xx)?-utils", name) for name in names)
        and has_32
        and not any(name.startswith("lib32-nvidia") for name in names)
    )


RULES = (newer_than_driver, no_libcuda, no_device_plugin, all_taken, only_64_bit)
