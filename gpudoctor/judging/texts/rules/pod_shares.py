"""Which GPUs a pod of a text gets: what it requests, what its environment and runtime give it, and what several pods share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.judging.containers import pod_runtime
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

BY_HAND = Problem(
    id="k8s-visible-devices-set-in-pod",
    title="The pod sets NVIDIA_VISIBLE_DEVICES in addition to requesting a GPU",
    why="The device plugin chooses the GPU and sets this variable itself. A value in the pod's spec or its image replaces it, or "
    "adds other GPUs, so the pod sees GPUs that belong to other pods.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Remove NVIDIA_VISIBLE_DEVICES from the pod's env, and only request nvidia.com/gpu",
            "kubectl set env deployment/<chosen_name> NVIDIA_VISIBLE_DEVICES-",
            verify="kubectl exec <pod> -- nvidia-smi -L",
            risk="disruptive",
            kind="manual",
        ),
        Fix(
            "On the node: ignore the variable in containers that are not privileged, and let the plugin pass its choice as "
            "mounts (deviceListStrategy=volume-mounts)",
            "sudo nvidia-ctk config --in-place --set accept-nvidia-visible-devices-envvar-when-unprivileged=false "
            "--set accept-nvidia-visible-devices-as-volume-mounts=true",
            where="host",
            kind="set",
            needs=("root",),
        ),
    ),
    references=(
        "https://github.com/NVIDIA/k8s-device-plugin/issues/1294",
        "https://github.com/NVIDIA/k8s-device-plugin#configuration-option-details",
    ),
)
UNREQUESTED = Problem(
    id="k8s-unrequested-gpus-visible",
    title="Pods that request no GPU see all GPUs of the node",
    why="Images of CUDA set NVIDIA_VISIBLE_DEVICES=all. Where NVIDIA's runtime is the default one, it gives such a container all "
    "GPUs, although Kubernetes assigned none.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "On the nodes: ignore the variable of images, and let the device plugin pass its choice as mounts "
            "(deviceListStrategy=volume-mounts)",
            "sudo nvidia-ctk config --in-place --set accept-nvidia-visible-devices-envvar-when-unprivileged=false "
            "--set accept-nvidia-visible-devices-as-volume-mounts=true",
            verify="grep accept- /etc/nvidia-container-runtime/config.toml",
            where="host",
            kind="set",
            needs=("root",),
        ),
        Fix("In a single pod: set the variable NVIDIA_VISIBLE_DEVICES to void in its env"),
    ),
    references=("https://github.com/NVIDIA/k8s-device-plugin/issues/61",),
)
TWO_DRIVERS = Problem(
    id="containerd-runtimes-differ-in-cgroup-driver",
    title="containerd's runtimes use different cgroup drivers",
    why="The kubelet and all runtimes of a node must agree on the cgroup driver. With SystemdCgroup only in one of them, the "
    "kubelet loses sight of the pods of the other, kills them and creates them again.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Set SystemdCgroup = true for all runtimes, then restart containerd",
            "sudo sed -i.bak 's/SystemdCgroup = false/SystemdCgroup = true/' /etc/containerd/config.toml && "
            "sudo systemctl restart containerd",
            verify="grep -n SystemdCgroup /etc/containerd/config.toml",
            undo="sudo mv /etc/containerd/config.toml.bak /etc/containerd/config.toml && sudo systemctl restart containerd",
            risk="disruptive",
            where="host",
            kind="restart",
            needs=("root", "drain"),
        ),
        look("Show the driver that the kubelet uses", "grep cgroupDriver /var/lib/kubelet/config.yaml", where="host"),
    ),
    references=("https://kubernetes.io/docs/setup/production-environment/container-runtimes/#cgroup-drivers",),
)
SHARED = Problem(
    id="k8s-time-slices-share-memory",
    title="Pods on slices of one GPU share its memory, which is full",
    why="Time slicing offers one GPU several times. It divides the time, not the memory: each pod may allocate all of it, and "
    "the next one fails. TensorFlow and JAX take nearly all memory when they start.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Let each program take only its part (TensorFlow and JAX)",
            "export TF_FORCE_GPU_ALLOW_GROWTH=true XLA_PYTHON_CLIENT_PREALLOCATE=false",
            kind="set",
            where="shell",
        ),
        Fix("Lower the replicas of timeSlicing to as many as fit, or use MIG or MPS, which limit the memory of each pod"),
        look("Show what each process holds", "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv"),
    ),
    references=("https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-sharing.html",),
)
PROBLEMS = (BY_HAND, UNREQUESTED, TWO_DRIVERS, SHARED)

_ENV = re.compile(
    r"""
    name:\s*["']?NVIDIA_VISIBLE_DEVICES["']?\s*\n\s*value:\s*["']?(?P<value>all|\d[\d,]*|GPU-\S+?)["']?\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_LIMIT = re.compile(
    r"""
    ^\s*limits:\s*$ (?:\n\s+[\w./-]+:[^\n]*)*? \n\s*["']?nvidia\.com/gpu["']?:\s*["']?(?P<count>\d+)
    """,
    re.MULTILINE | re.VERBOSE,
)
_INSIDE = re.compile(
    r"""
    ^[^\n]*\bkubectl\b[^\n]*\bexec\b[^\n]*\bnvidia-smi\ (?:-L|--list-gpus)\ *\n(?P<rows>(?:GPU\ \d+:[^\n]*(?:\n|\Z))+)
    """,
    re.MULTILINE | re.VERBOSE,
)


def set_by_hand(facts: Facts) -> Iterator[Finding]:
    """A pod names its GPUs in its environment, and sees more of them than it requests."""
    text = "\n".join(passages(facts))
    named, limit = _ENV.search(text), _LIMIT.search(text)
    seen = max((len(match["rows"].strip().splitlines()) for match in _INSIDE.finditer(text)), default=0)
    if named and limit and seen > int(limit["count"]):
        words = f"the pod requests {limit['count']} GPU, its env sets NVIDIA_VISIBLE_DEVICES={named['value']}, and it sees {seen}"
        yield BY_HAND.found(words, {"value": named["value"], "listed": seen}, confidence=Confidence.LIKELY)


_DEFAULT = re.compile(
    r"""
    \"default-runtime\":\s*\"nvidia\"
    | default_runtime_name\s*=\s*[\"']nvidia[\"']
    | Default\ Runtime:\ nvidia
    """,
    re.VERBOSE,
)
_SPEC = re.compile(r"(?m)^\s*kind:\s*(?:Pod|Deployment|Job|StatefulSet)\b|^\s*containers:\s*$")
_BY_OTHER_MEANS = re.compile(
    r"""
    nvidia\.com/(?:gpu|mig)\S*[\"']?:
    | privileged:\s*true
    | NVIDIA_VISIBLE_DEVICES
    | resourceClaims
    """,
    re.VERBOSE,
)
_SURPRISED = re.compile(
    r"""
    \b(?: even\ though | although | without | despite | no | not )\b [^.\n]{0,40}
    (?: \b(?:GPU\ )?(?:request|limit|resource|specif)\w* | nvidia\.com/gpu )
    """,
    re.IGNORECASE | re.VERBOSE,
)


def unrequested(facts: Facts) -> Iterator[Finding]:
    """A pod's spec requests no GPU, and nvidia-smi in it lists some."""
    text = "\n".join(passages(facts))
    seen = _INSIDE.search(text)
    if seen and _SPEC.search(text) and not _BY_OTHER_MEANS.search(text) and _SURPRISED.search(text):
        count = len(seen["rows"].strip().splitlines())
        words = f"the pod requests no nvidia.com/gpu, and nvidia-smi in it lists {count}"
        words += ": NVIDIA's runtime is the default" if _DEFAULT.search(text) else ""
        yield UNREQUESTED.found(words, {"listed": count}, confidence=Confidence.LIKELY)


_OPTIONS = re.compile(
    r"""
    runtimes\.["']?(?P<name>[\w-]+)["']?\.options\]\s*\n
    (?P<body>(?:(?!\s*\[)[^\n]*\n?)*)
    """,
    re.VERBOSE,
)
_CGROUP = re.compile(r"(?m)^\s*SystemdCgroup\s*=\s*(?P<value>true|false)")
_KILLED = re.compile(
    r"""
    sandbox\ changed
    | SandboxChanged
    | \bkill\w*
    | re-?creat\w+
    | crashloop
    | restart\w*
    | Terminat\w+
    """,
    re.IGNORECASE | re.VERBOSE,
)


def two_cgroup_drivers(facts: Facts) -> Iterator[Finding]:
    """SystemdCgroup is true for one runtime of containerd, and not for NVIDIA's, whose pods are killed."""
    text = "\n".join(passages(facts))
    values = {match["name"]: _CGROUP.search(match["body"]) for match in _OPTIONS.finditer(text)}
    found = {name: value is not None and value["value"] == "true" for name, value in values.items()}
    others = {name: value for name, value in found.items() if not name.startswith("nvidia")}
    if "nvidia" in found and others and found["nvidia"] not in others.values() and _KILLED.search(text):
        said = ", ".join(f"{name} {str(value).lower()}" for name, value in sorted(found.items()))
        yield TWO_DRIVERS.found(f"SystemdCgroup is not the same for all runtimes: {said}", confidence=Confidence.LIKELY)


_SLICES = re.compile(r"(?i)\btime[-_ ]?slic(?:ing|es|ed)\b")
_REPLICAS = re.compile(
    r"""
    \breplicas\b["']?\s*[:=]\s*["']?(?P<count>\d+) | nvidia\.com/gpu\.replicas["']?\s*[:=]\s*["']?(?P<label>\d+)
    """,
    re.VERBOSE,
)
_FULL = re.compile(r"(?i)out[ _]of[ _]memory|ran out of memory|RESOURCE_EXHAUSTED|failed to allocate")


def slices_share_memory(facts: Facts) -> Iterator[Finding]:
    """GPUs are offered several times, and programs on them find no memory."""
    text = "\n".join(passages(facts))
    replicas = _REPLICAS.search(text)
    if replicas and _SLICES.search(text) and _FULL.search(text):
        count = int(replicas["count"] or replicas["label"])
        words = f"time slicing offers each GPU {count} times, without dividing its memory, which is full"
        yield SHARED.found(words, {"replicas": count}, confidence=Confidence.LIKELY)


_ALLOCATABLE = re.compile(
    r"""
    \ballocatable\b[^\n]{0,80}?(?: \b(?:never|not|still|always|same)\b | n't\b )[^\n]{0,30}?
      \b(?: decreas | reduc | chang | drop | updat | lower | subtract | 1\b | there )\w*
    | \ballocatable\b[^\n]{0,60}\b(?:unchanged|stays|remains)\b
    | \bstill\b[^\n]{0,30}\ballocatable\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_HELD = re.compile(r"(?m)^\s+nvidia\.com/gpu\s+(?P<count>\d+)\s+\d+\s*$")
_TOTAL = re.compile(r"(?m)^\s*[\"']?nvidia\.com/gpu[\"']?:\s*[\"']?(?P<count>\d+)")


def allocatable_is_no_stock(facts: Facts) -> Iterator[Finding]:
    """The text expects allocatable to fall, and pods have requested all GPUs."""
    text = "\n".join(passages(facts))
    held, total = _HELD.search(text), _TOTAL.search(text)
    if held and total and int(held["count"]) >= int(total["count"]) > 0 and _ALLOCATABLE.search(text):
        words = f"pods have requested {held['count']} of the {total['count']} GPUs; allocatable does not fall with it, by design"
        problem = replace(facts.problems["k8s-no-free-gpu"], title=ALL_REQUESTED, why=WHY_ALL_REQUESTED)
        yield problem.found(words, {"requested": held["count"]}, confidence=Confidence.LIKELY)


ALL_REQUESTED = "Pods have requested all GPUs; allocatable does not count what is free"
WHY_ALL_REQUESTED = (
    "Allocatable is what a node can give in total. What pods have taken of it is under Allocated resources, and the scheduler "
    "compares the two. The device plugin works."
)
_NO_LIBRARY = re.compile(
    r"""
    ^[^\n]*\bkubectl\s+(?:run|exec)\b[^\n]*\bnvidia-smi\b[^\n]*\n[^\n]*couldn't\ find\ libnvidia-ml
    """,
    re.MULTILINE | re.VERBOSE,
)
_PLUGIN_BLIND = re.compile(
    r"""
    Incompatible\ (?:strategy|platform)\ detected
    | did\ you\ configure\ the\ NVIDIA\ Container\ Toolkit
    """,
    re.VERBOSE,
)
_OTHER_FOLDER = re.compile(r"/etc/k0s/containerd\.d|/var/lib/rancher/|/var/snap/microk8s/|/etc/rancher/")


def pods_without_runtime(facts: Facts) -> Iterator[Finding]:
    """The device plugin and another pod both find no library of the driver: their runtime is not NVIDIA's."""
    text = "\n".join(passages(facts))
    if _NO_LIBRARY.search(text) and _PLUGIN_BLIND.search(text):
        words = "neither the device plugin nor a test pod gets the driver's libraries: NVIDIA's runtime does not start them"
        problem = facts.problems["k8s-nvidia-runtime-not-chosen"]
        if _OTHER_FOLDER.search(text):
            problem = replace(problem, fixes=(_OF_BUNDLED, *(fix for fix in problem.fixes if fix != pod_runtime.OF_CONTAINERD)))
        yield problem.found(words, confidence=Confidence.LIKELY)


_OF_BUNDLED = Fix(
    "Register the runtime in the containerd that belongs to this Kubernetes (k0s: a file in /etc/k0s/containerd.d; k3s and RKE2 "
    "find it after a restart), not in /etc/containerd; then set runtimeClassName: nvidia in both pods",
)
RULES = (set_by_hand, unrequested, two_cgroup_drivers, slices_share_memory, allocatable_is_no_stock, pods_without_runtime)
