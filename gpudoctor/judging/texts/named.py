"""Messages whose cause another line of the same text names: the same problem, in the words and with the fixes of that cause."""

from __future__ import annotations

import re
from dataclasses import replace

from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.containers.pod_runtime import OF_K3S
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.judging.texts.windows import FIRST_BUILD, OLD_WINDOWS, WAYS_OF_WINDOWS, WHY_OLD_WINDOWS, WINDOWS
from gpudoctor.model import Finding, Fix

_BRIDGED = re.compile(r"(?i)\bconnect to (172\.(?:1[7-9]|2\d|3[01])\.\d+\.\d+)\b")
_STARTS = re.compile(r"\b(?:docker|podman)\s+run\b[^\n]*")
_OF_HOST = re.compile(r"--net(?:work)?[= ]host|network_mode:\s*[\"']?host|hostNetwork:\s*true")

BRIDGE = "The containers use Docker's bridge, which other hosts cannot reach"
WHY_BRIDGE = (
    "An address such as 172.17.0.2 is of a bridge inside one host. NCCL gives it to ranks on other hosts, which cannot connect "
    "to it, and NCCL also needs more ports than those published with -p."
)
WAYS_OF_BRIDGE = (
    Fix(
        "Start the containers on all hosts with the host's network",
        "<docker> run <all_gpus> --network host --ipc host <image>",
        engines=("docker", "podman"),
        verify="ip -br addr",
        kind="manual",
    ),
    Fix(
        "In them, name the interface that connects the hosts instead of the bridge's eth0",
        "export NCCL_SOCKET_IFNAME=<interface>",
        kind="set",
        where="shell",
    ),
)


_K3S = re.compile(r"/var/lib/rancher/k3s|/etc/rancher/k3s|\bk3s\b")
_PROPAGATES_NOTHING = re.compile(r"(?m)^PropagateResourceLimits\s*=\s*NONE\b")
_JETSON = re.compile(r"nv_tegra_release|\bR3[5-9] \(release\)|-tegra\b")
_OF_CONDA = re.compile(r"^cudnn +\d[\w.]* +\S+ +(conda-forge|\S*/conda-forge|defaults|nvidia)\s*$", re.MULTILINE)
PLUGIN_CLASS = Fix(
    "Let the device plugin alone use it, with its RuntimeClass",
    "kubectl -n kube-system patch ds nvidia-device-plugin-daemonset "
    """-p '{"spec": {"template": {"spec": {"runtimeClassName": "nvidia"}}}}'""",
    verify="kubectl get nodes -o jsonpath='{.items[*].status.allocatable}'",
    kind="manual",
)
_OF_CONDA_LINKER = re.compile(r"/bin/(?:x86_64|aarch64)-conda-linux-gnu-|conda-linux-gnu/bin/ld: cannot")
CONDA_LINKER = "The linker of the conda environment does not find libcuda"
WHY_CONDA_LINKER = (
    "conda's compiler links against its own system root, not against the folders of the host, where the driver's libcuda is. "
    "The environment's CUDA packages have a stub for linking, in a folder that the linker does not search."
)
WAYS_OF_CONDA_LINKER = (
    Fix(
        "Let it search the environment's stubs (to link only: never add them to LD_LIBRARY_PATH), then build again",
        'export LIBRARY_PATH="$CONDA_PREFIX/lib/stubs:$LIBRARY_PATH"',
        where="shell",
        kind="set",
        on=("conda",),
    ),
    Fix(
        "If lib/stubs/libcuda.so is not in the environment: install the package with it",
        "conda install -c nvidia cuda-driver-dev",
        verify='ls "$CONDA_PREFIX"/lib/stubs/libcuda.so',
        kind="install",
        on=("conda",),
        needs=("network",),
    ),
)
_TRITON = re.compile(r"\btriton\b|inductor|torch\.compile", re.IGNORECASE)
NO_HEADERS = "Python's header files are missing, so no extension can be compiled"
WHY_NO_HEADERS = (
    "Extensions of PyTorch, DeepSpeed and others include Python.h. Distributions ship it in a separate package; Pythons of "
    "conda, uv and pyenv include it."
)
_DEPENDS = re.compile(
    r"""
    \b([a-z][\w-]*)(?:\ |==)(\d[\w.]*)\ depends\ on\ ((?:torch|numpy|transformers|nvidia-[\w-]+)==[\w.+]+)
    """,
    re.VERBOSE,
)
WITH_WANTED = Fix(
    "Install it with the release that it depends on, and change the other's pin",
    "<python> -m pip install <package> <requirement>",
    kind="install",
    needs=("network",),
    verify="<python> -m pip check",
)
_CUSTOM_REDUCE = re.compile(r"custom_all_reduce")
_SGLANG = re.compile(r"\bsglang\b", re.IGNORECASE)
_CUDNN_FOLDER = re.compile(r"(?:^|[:=\s])/[^\s:]*cudnn", re.MULTILINE)
SGLANG_REDUCE = Fix(
    "Start the server with NCCL's all-reduce: SGLang's needs peer-to-peer access",
    "python -m sglang.launch_server --model-path <model_name> --tensor-parallel-size 2 --disable-custom-all-reduce",
    kind="manual",
)
VLLM_REDUCE = Fix(
    "Start the server with NCCL's all-reduce: vLLM's needs peer-to-peer access",
    "vllm serve <model_name> --tensor-parallel-size 2 --disable-custom-all-reduce",
    kind="manual",
)
OLDER_FIRST = "LD_LIBRARY_PATH leads JAX to an older cuDNN than the installed one"
WHY_OLDER_FIRST = (
    "The folders of LD_LIBRARY_PATH, often set by an environment module, are searched before those of the installed wheel. The "
    "wheel has the release that JAX needs, so installing it again changes nothing."
)
NOT_OLDER = (
    Fix("Unload the module that adds it, if one does", "module unload cudnn", where="shell", kind="set"),
    Fix("Unset LD_LIBRARY_PATH, so that the wheel's cuDNN is loaded", "unset LD_LIBRARY_PATH", where="shell", kind="set"),
)
WHY_CONDA = "conda installed an older cuDNN than the one that this jaxlib was built with. JAX needs that release or a newer one."
CUDNN_OF_CONDA = Fix(
    "Update conda's own cuDNN in this environment; pip would add a second one",
    "conda install -c conda-forge 'cudnn>=<cudnn_version>'",
    verify="conda list cudnn",
    kind="install",
    needs=("network",),
)


def with_ways_there(finding: Finding, facts: Facts) -> Finding:
    """With the fixes for the kind of system that the text shows, without those that are impossible on it."""
    id, text = finding.problem.id, "\n".join(passages(facts))
    if id == "k8s-device-plugin-no-nvml" and _K3S.search(text):
        on_host = replace(OF_K3S, title="Make NVIDIA's runtime the default for all pods (on an agent restart k3s-agent)")
        return replace(finding, problem=replace(finding.problem, fixes=(on_host, PLUGIN_CLASS)))
    if id == "requirements-conflict" and (depends := _DEPENDS.search(text)):
        evidence = {**finding.evidence, "package": f"{depends[1]}=={depends[2]}", "requirement": depends[3]}
        problem = replace(finding.problem, fixes=(WITH_WANTED, *finding.problem.fixes[1:]))
        return replace(finding, problem=problem, evidence=evidence)
    if id == "memlock-limited" and _PROPAGATES_NOTHING.search(text):
        fixes = tuple(fix for fix in finding.problem.fixes if "propagat" not in f"{fix.title} {fix.command}".lower())
        return replace(finding, problem=replace(finding.problem, fixes=fixes or finding.problem.fixes))
    if id == "torch-missing-gpu-architecture" and _JETSON.search(text):
        jetson = facts.problems["jetson-generic-wheel"]
        return replace(finding, problem=replace(finding.problem, fixes=jetson.fixes, references=jetson.references))
    if id == "triton-python-h-missing" and not _TRITON.search(text):
        return replace(finding, problem=replace(finding.problem, title=NO_HEADERS, why=WHY_NO_HEADERS))
    if id == "libcuda-not-linkable" and _OF_CONDA_LINKER.search(text):
        problem = replace(finding.problem, title=CONDA_LINKER, why=WHY_CONDA_LINKER, fixes=WAYS_OF_CONDA_LINKER)
        evidence = {name: value for name, value in finding.evidence.items() if name not in ("could_be", "decide")}
        return replace(finding, problem=problem, evidence=evidence)
    if id == "peer-access-not-possible" and _CUSTOM_REDUCE.search(text):
        look, *_ = finding.problem.fixes
        without = SGLANG_REDUCE if _SGLANG.search(text) else VLLM_REDUCE
        return replace(finding, problem=replace(finding.problem, fixes=(without, look)))
    if id == "jax-cudnn-too-old" and (shadowed := _with_older_first(finding, facts, text)):
        return shadowed
    if id == "jax-cudnn-too-old" and _OF_CONDA.search(text):
        evidence = {**finding.evidence, "cudnn_version": finding.evidence.get("built", "")}
        problem = replace(finding.problem, why=WHY_CONDA, fixes=(CUDNN_OF_CONDA,))
        return replace(finding, problem=problem, evidence={name: value for name, value in evidence.items() if value})
    return finding


def _with_older_first(finding: Finding, facts: Facts, text: str) -> Finding | None:
    """A wheel that is new enough is installed, and LD_LIBRARY_PATH names a folder of cuDNN."""
    wheel = known(lambda: facts.python.package("nvidia-cudnn-cu12") or facts.python.package("nvidia-cudnn-cu13"), None)
    path = known(lambda: facts.environment.get("LD_LIBRARY_PATH"), None)
    built = str(finding.evidence.get("built", ""))
    if not (
        wheel and path and _CUDNN_FOLDER.search(path) and re.fullmatch(r"[\d.]+", built) and re.match(r"[\d.]+$", wheel.version)
    ):
        return None
    if Version(wheel.version) < Version(built):
        return None
    kept = {name: value for name, value in finding.evidence.items() if name not in ("could_be", "decide")}
    evidence = {**kept, "installed": wheel.version, "LD_LIBRARY_PATH": path}
    words = f"{finding.message}, although {wheel.name} {wheel.version} is installed: LD_LIBRARY_PATH is searched first"
    ways = NOT_OLDER if "module" in text else NOT_OLDER[1:]
    problem = facts.problems["cudnn-wrong-version-ld-library-path"]
    problem = replace(problem, title=OLDER_FIRST, why=WHY_OLDER_FIRST, fixes=ways)
    return replace(finding, problem=problem, message=words, evidence=evidence, causes=())


def with_cause(finding: Finding, facts: Facts) -> Finding:
    """Unchanged if no line names the cause."""
    text = "\n".join(passages(facts)) if finding.problem.id in ("wsl-dxg-missing", "nccl-network-unreachable") else ""
    build = WINDOWS.search(text)
    if finding.problem.id == "wsl-dxg-missing" and build and int(build[1]) < FIRST_BUILD:
        problem = replace(finding.problem, title=OLD_WINDOWS, why=WHY_OLD_WINDOWS, fixes=WAYS_OF_WINDOWS)
        evidence = {name: value for name, value in finding.evidence.items() if name not in ("could_be", "decide")}
        words = f"/dev/dxg is missing, and Windows is of build {build[1]}; GPUs are shared from {FIRST_BUILD}"
        return replace(finding, problem=problem, message=words, evidence=evidence, causes=())
    bridged = _BRIDGED.search(text)
    if finding.problem.id == "nccl-network-unreachable" and bridged and _is_in_container(facts, text):
        problem = replace(finding.problem, title=BRIDGE, why=WHY_BRIDGE, fixes=WAYS_OF_BRIDGE)
        evidence = {name: value for name, value in finding.evidence.items() if name not in ("could_be", "decide")}
        words = f"a rank cannot connect to {bridged[1]}, an address of a bridge for containers"
        return replace(finding, problem=problem, message=words, evidence=evidence, causes=())
    return finding


def _is_in_container(facts: Facts, text: str) -> bool:
    """Not with the host's network, in which a bridge is wrong for another reason."""
    return bool(facts.shown.is_in_container or _STARTS.search(text)) and not _OF_HOST.search(text)
