"""Slurm and Kubernetes in a text: what is configured or requested against the GPUs that are there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.driver import said
from gpudoctor.judging.texts.rules.nodes import is_driver_in_use
from gpudoctor.judging.texts.rules.python import is_blind
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.knowledge.messages import messages
from gpudoctor.model import Confidence, Finding, Fix

OF_DOCKER = "NVIDIA's runtime is not the default runtime of the node's Docker"
DEFAULT_OF_DOCKER = Fix(
    "Make NVIDIA's runtime Docker's default, which Kubernetes uses, and restart Docker",
    "sudo nvidia-ctk runtime configure --runtime=docker --set-as-default && sudo systemctl restart docker",
    risk="disruptive",
    verify="kubectl get nodes -o jsonpath='{.items[*].status.allocatable}'",
    kind="restart",
    needs=("root",),
)
NAME_GRES = Fix(
    "In slurm.conf on all nodes: add GresTypes=gpu, and Gres=gpu:N to the node's line; then restart slurmctld and slurmd",
    "grep -inE 'GresTypes|^NodeName' /etc/slurm/slurm.conf",
    verify="scontrol show node <node> | grep Gres",
    kind="read",
)
_NO_GRES = re.compile(
    r"""
    ^[ \t]*NodeName=(\S+)\ (?:Arch|CoresPerSocket)=[^\n]*\n
    (?:[ \t][^\n]*\n){0,60}? [ \t]+Gres=\(null\)
    """,
    re.MULTILINE | re.VERBOSE,
)
_GRES_CONF = re.compile(r"(?im)^\s*(?:NodeName=(\S+) +)?Name=gpu\b[^\n]*\bFile=/dev/nvidia")
_SLURM_CONF = re.compile(
    r"""
    ^\s*NodeName=(?!.*\bName=gpu)(?!.*\bArch=)\S+\ [^\n]*\b(?:CPUs
        |Sockets|RealMemory|State)=
    """,
    re.MULTILINE | re.VERBOSE,
)
NOT_NAMED = "slurm.conf does not name the GPUs that gres.conf lists"
WHY_NOT_NAMED = (
    "gres.conf only says where the devices are. Slurm offers GPUs of a node if slurm.conf has GresTypes=gpu, and Gres=gpu:N in "
    "the node's line."
)
WAITING = "k8s-operator-waiting"  # the message whose causes these are too
OF_OPERATOR = ("nvidia-driver-daemonset", "nvidia-container-toolkit", "operator-validator", "gpu-operator")
ORDER = (*OF_OPERATOR[:3], "cuda-validator", "nvidia-device-plugin", "gpu-operator", "dcgm-exporter", "gpu-feature-discovery")
_FAILS = re.compile(
    r"""
    CrashLoopBackOff | (?:^|:)Error\b | RunContainerError
    | ErrImagePull | ImagePullBackOff | CreateContainerError
    """,
    re.VERBOSE,
)
_ALLOCATED = re.compile(r"(?<![A-Za-z])(?:Req)?TRES=(cpu=\S+)")  # of a job; a node has CfgTRES and AllocTRES
_WANTS_GPU = re.compile(r"torch\.cuda|\bcuda\b|nvidia-smi|tensorflow", re.IGNORECASE)
_PROFILE = re.compile(r"(\d+g\.\d+gb)")
_NODE = re.compile(r"(?m)^\s*[Aa]llocatable:\s*$")
_IN_JOB = re.compile(r"(?m)\b(?:srun|salloc|sbatch)\s+\S|\bSLURM_\w+=|\bCUDA_VISIBLE_DEVICES\b")
_REQUEST = re.compile(
    r"""
    \b(?:srun|salloc|sbatch)\b[^\n]*?
    --(?: gres=gpu(?::[\w.]+)?: | gpus(?:-per-node)?[=\ ](?:[\w.]+:)? )(\d+)\b
    """,
    re.VERBOSE,
)


_SEEN_IN_JOB = re.compile(
    r"""
    \bsrun\b[^\n]*(?:nvidia-smi\ -L\ *\|\ *wc\ -l|device_count\(\))[^\n]*\n
    (?:[\d,]+\n)??(\d+)\ *$
    """,
    re.MULTILINE | re.VERBOSE,
)

ALL_GPUS = Fix(
    "Name all GPUs: File= in the node's gres.conf and Gres= in slurm.conf on all nodes, then restart slurmctld and slurmd"
)
_COUNTED = re.compile(r"\bnvidia-smi -L *\| *wc -l *\n *(\d+) *$", re.MULTILINE)


def slurm_offers_others(facts: Facts) -> Iterator[Finding]:
    """The number of GPUs in Slurm's configuration is not the number that nvidia-smi lists."""
    counted = [int(match[1]) for text in passages(facts) for match in _COUNTED.finditer(text)]
    listed = known(lambda: facts.nvml.count, 0) or (counted[0] if counted else 0)
    configured = _configured(facts)
    if not listed or not configured or _instances(facts) or any(map(_PROFILE.search, facts.shown.slurm.get("node", {}))):
        return
    source, count = configured
    evidence = {"configured": count, "listed": listed}
    if count < listed:
        words = f"{source} has {count} of the {listed} GPUs that nvidia-smi lists: Slurm does not assign the others"
        problem = facts.problems["slurm-gpu-not-configured"]
        yield replace(problem, fixes=(problem.fixes[0], ALL_GPUS)).found(words, evidence, confidence=Confidence.LIKELY)
    elif count > listed and not _is_in_job(facts):
        words = f"{source} has {count} GPUs, and nvidia-smi lists {listed}"
        yield facts.problems["slurm-node-misses-gpus"].found(words, evidence, confidence=Confidence.LIKELY)


def node_without_gres(facts: Facts) -> Iterator[Finding]:
    """gres.conf alone offers nothing: slurm.conf must name the resource, and give it to the node."""
    text = "\n".join(passages(facts))
    node = _NO_GRES.search(text)
    rows = [match[1] for match in _GRES_CONF.finditer(text)]
    is_meant = node and any(not name or _series(name) == _series(node[1]) for name in rows)
    if node and is_meant and not re.search(r"(?i)(?<!-)\bGres=gpu", text):
        words = f"Slurm has no GPU for the node {node[1]} (Gres=(null)), although gres.conf lists its devices"
        problem = replace(facts.problems["slurm-gpu-not-configured"], fixes=(NAME_GRES,))
        if _SLURM_CONF.search(text):
            words = f"slurm.conf gives the node {node[1]} no Gres=gpu" + (
                "" if "GresTypes" in text else ", and has no GresTypes=gpu"
            )
            problem = replace(problem, title=NOT_NAMED, why=WHY_NOT_NAMED)
        yield problem.found(words, {"node": node[1]}, confidence=Confidence.LIKELY)


def _series(name: str) -> str:
    """The letters of a node's name: gn of gn01 and of gn[01-04]."""
    return re.split(r"[\d\[]", name, maxsplit=1)[0]


def _configured(facts: Facts) -> tuple[str, int] | None:
    """Where the text shows the number of GPUs, and the number."""
    shown = facts.shown.slurm
    for source, name in (("node", "the node's Gres"), ("slurm.conf", "slurm.conf"), ("gres.conf", "gres.conf")):
        if shown.get(source):
            found = shown[source]
            return name, sum(found.values()) if isinstance(found, dict) else len(found)
    return None


def slurm_has_other_instances(facts: Facts) -> Iterator[Finding]:
    """The MIG instances that exist are not those in Slurm's configuration."""
    there = _instances(facts)
    gres = facts.shown.slurm.get("node") or facts.shown.slurm.get("slurm.conf") or {}
    wanted = {match[1]: count for name, count in gres.items() if (match := _PROFILE.search(name))}
    if there and gres and wanted != there and (wanted or sum(gres.values()) != sum(there.values())) and not _is_in_job(facts):
        words = f"Slurm's configuration has {_list(gres)}, and the node has {_list(there)}"
        evidence = {"configured": dict(gres), "instances": there}
        yield facts.problems["slurm-gpu-not-configured"].found(words, evidence, confidence=Confidence.LIKELY)


def _instances(facts: Facts) -> dict[str, int]:
    """Profile -> number of MIG devices."""
    names = [each.get("Name", "") for gpu in known(lambda: facts.nvml.gpus, ()) for each in _mig_devices(gpu)]
    return dict(Counter(match[1] for name in names if (match := _PROFILE.search(name))))


def _mig_devices(gpu: Gpu) -> list[dict[str, str]]:
    return known(lambda: list(gpu.get("MigDevices")), [])


def _list(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {name}" if name else f"{count} GPUs" for name, count in counts.items())


def changed_mig_layout(facts: Facts) -> Iterator[Finding]:
    """Slurm counts fewer GPUs than configured, and the text says that the MIG layout changed."""
    if said(facts, "gres/gpu") and any(re.search(r"\bMIG\b", text) for text in passages(facts)):
        counts = next(
            (
                match
                for text in passages(facts)
                if (match := re.search(r"\(([1-9]\d*) (?:<|!=) (\d+)\)|\((\d+) != ([1-9]\d*)\)", text))
            ),
            None,
        )
        if counts:
            words = "the MIG layout changed, and Slurm's Gres still has the old number of instances"
            yield facts.problems["slurm-gpu-not-configured"].found(words, {"counts": counts[0]}, confidence=Confidence.LIKELY)


def unconstrained_job(facts: Facts) -> Iterator[Finding]:
    """A job sees more GPUs than it requested: Slurm sets a variable, but does not confine the job."""
    listed = known(lambda: facts.nvml.count, 0)
    listed = max([listed, *(int(match[1]) for text in passages(facts) for match in _SEEN_IN_JOB.finditer(text))])
    visible = known(lambda: facts.environment.get("CUDA_VISIBLE_DEVICES")) or ""
    numbers = re.fullmatch(r"\d+(?:,\d+)*", visible.strip())
    asked = [int(match[1]) for text in passages(facts) for match in _REQUEST.finditer(text)]
    if facts.shown.slurm.get("constrains") is not False or not asked or not asked[-1] < listed:
        return
    words = f"a job with {asked[-1]} GPUs sees {listed}, and cgroup.conf has no ConstrainDevices=yes"
    evidence = {"requested": asked[-1], "listed": listed, "visible": visible if numbers else ""}
    yield facts.problems["slurm-devices-not-constrained"].found(words, evidence, confidence=Confidence.LIKELY)


def _is_in_job(facts: Facts) -> bool:
    """Whether nvidia-smi may have run in a job, which sees only its own GPUs."""
    return any(_IN_JOB.search(text) for text in passages(facts))


def another_resource(facts: Facts) -> Iterator[Finding]:
    """The pod requests a resource that the node does not offer, and the node offers GPUs under another name."""
    if sum(len(_NODE.findall(text)) for text in passages(facts)) > 1:
        return
    offered = {name: count for name, count in facts.shown.offered.items() if count}
    for name, count in facts.shown.wanted.items():
        if offered and name not in offered:
            words = (
                f"the pod requests {name}, and the node offers {', '.join(f'{other}: {many}' for other, many in offered.items())}"
            )
            evidence = {"requested": name, "offered": next(iter(offered))}
            yield facts.problems["k8s-resource-has-another-name"].found(words, evidence, confidence=Confidence.LIKELY)
        elif offered and count > offered[name]:
            words = f"the pod requests {count} × {name}, and the node has {offered[name]}"
            evidence = {"requested": str(count), "offered": str(offered[name])}
            yield facts.problems["k8s-request-larger-than-node"].found(words, evidence, confidence=Confidence.LIKELY)


def operator_waits(facts: Facts) -> Iterator[Finding]:
    """A pod of the GPU operator fails, and the others wait for it."""
    pods = facts.shown.pods
    if is_driver_in_use(facts) or not any(part in name for part in OF_OPERATOR for name in pods):
        return
    failed = [name for part in ORDER for name, status in pods.items() if part in name and _FAILS.search(status)]
    if failed:
        waiting = sum(
            status.startswith("Init:") or status == "PodInitializing" for name, status in pods.items() if name not in failed
        )
        words = f"the pod {failed[0]} is in the state {pods[failed[0]]}" + f"; pods that wait: {waiting}" * bool(waiting)
        evidence = {"pod": failed[0], "state": pods[failed[0]], "waiting": waiting}
        found = facts.problems["gpu-operator-not-ready"].found(words, evidence, confidence=Confidence.LIKELY)
        yield replace(found, causes=next(row.causes for row in messages() if row.id == WAITING))


def job_without_gpu(facts: Facts) -> Iterator[Finding]:
    """Slurm allocated no GPU to a job whose program wants one."""
    lines = [match[1] for text in passages(facts) for match in _ALLOCATED.finditer(text)]
    wants = is_blind(facts) or any(_WANTS_GPU.search(text) for text in passages(facts))
    text = "\n".join(passages(facts))
    if not lines and is_blind(facts) and len(_SBATCH.findall(text)) > 1 and not _ASKS_SLURM.search(text):
        words = "the job's script requests no GPU: it has neither --gres=gpu nor --gpus"
        yield facts.problems["batch-job-without-gpu"].found(words, confidence=Confidence.LIKELY)
    if lines and not any("gpu" in line for line in lines) and wants:
        words = f"Slurm allocated no GPU to the job: {lines[-1]}"
        yield facts.problems["batch-job-without-gpu"].found(words, {"allocated": lines[-1]}, confidence=Confidence.LIKELY)


_SBATCH = re.compile(r"(?m)^\s*#SBATCH\s+-")
_ASKS_SLURM = re.compile(
    r"""
    ^\s*\#SBATCH\s+(?:-p\s*|--partition[=\ ])\S*cpu   # a job that wants none
    | --gres\b | --gpus\b | --gpus-per | --gpu-bind | -G\s?\d | gres/gpu
    """,
    re.MULTILINE | re.VERBOSE,
)


def plugin_crashes(facts: Facts) -> Iterator[Finding]:
    """The device plugin's pod ends again and again; its log would show why."""
    failed = [name for name, state in facts.shown.pods.items() if _FAILS.search(state)]
    if failed and all("device-plugin" in name for name in failed):
        words = f"the pod {failed[0]} is in the state {facts.shown.pods[failed[0]]}, so its node offers no GPUs"
        evidence = {"pod": failed[0], "decide": f"kubectl logs -n kube-system {failed[0]}"}
        found = facts.problems["k8s-device-plugin-no-nvml"].found(words, evidence, confidence=Confidence.UNKNOWN)
        yield replace(found, causes=next(row.causes for row in messages() if row.id == WAITING))


def plugin_sees_no_gpu(facts: Facts) -> Iterator[Finding]:
    """The node offers no GPU, although nvidia-smi lists some and the device plugin runs."""
    node, listed = facts.shown.node, known(lambda: facts.nvml.count, 0)
    if node is None or any(node.values()) or any(facts.shown.offered.values()) or said(facts, "nvidia.com/gpu"):
        return
    if listed and said(facts, "device-plugin"):
        gpus = f"{listed} GPU{'s' * (listed != 1)}"
        words = f"nvidia-smi lists {gpus} and the device plugin runs, but the node offers no nvidia.com/gpu"
        problem = facts.problems["k8s-device-plugin-no-nvml"]
        problem = replace(problem, title=OF_DOCKER, fixes=(DEFAULT_OF_DOCKER,)) if _is_docker(facts) else problem
        found = problem.found(words, {"listed": listed}, confidence=Confidence.LIKELY)
        yield replace(found, because="k8s-nvidia-runtime-not-chosen")


def _is_docker(facts: Facts) -> bool:
    """The node's runtime is Docker: the kubelet says so, or only Docker's settings are shown."""
    return said(facts, "docker://") or (said(facts, "/etc/docker/daemon.json") and not said(facts, "containerd"))


RULES = (
    slurm_offers_others,
    node_without_gres,
    slurm_has_other_instances,
    changed_mig_layout,
    unconstrained_job,
    another_resource,
    operator_waits,
    job_without_gpu,
    plugin_crashes,
    plugin_sees_no_gpu,
)
