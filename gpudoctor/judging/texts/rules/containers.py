"""Containers in a text: how they are configured and started against what they get."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.docker import daemon_json_of
from gpudoctor.facts.known import known
from gpudoctor.judging.containers.access import for_engine
from gpudoctor.judging.texts.rules.places import FAILED
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding, Fix

ALLOW = Fix(
    "On the host: allow the new number in the container's configuration and then stop and start the container",
    "echo 'lxc.cgroup2.devices.allow: c <device_major>:* rwm' | sudo tee -a /etc/pve/lxc/<ctid>.conf",
    verify="nvidia-smi",
    where="host",
    needs=("root",),
)
_OF_SNAP = re.compile(r"/var/snap/docker/|/snap/bin/docker\b")
_ON_CPU = re.compile(
    r"""
    library=cpu\b
    | \b(?: only | just | on | uses?(?:\ the)? | falls?\ back\ to(?:\ the)? )\ cpu\b(?!s|\ core)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_APPTAINER = re.compile(
    r"""
    (?:^|[\s$\#>])(?:apptainer|singularity)\s+
    (?:exec|run|shell|instance\ start)\b(?P<rest>[^\n]*)
    """,
    re.MULTILINE | re.VERBOSE,
)
_NO_LIBRARIES = re.compile(
    r"""
    nvidia-smi:\ (?:command\ )?not\ found
    | "nvidia-smi":\ executable\ file\ not\ found
    | couldn't\ find\ libnvidia-ml
    | libcuda\.so\.1:\ cannot\ open
    """,
    re.VERBOSE,
)
_WITH_GPU = re.compile(r"--(?:nv|nvccli|rocm)\b")
_RUN = re.compile(
    r"""
    (?:^|[\s$\#>])(?P<engine>docker|podman)\s+run\s
    (?P<options>(?:(?!\spython)[^\n])*)\spython[\d.]*\s+-c\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_ASKS = re.compile(r"--gpus\b|--runtime[= ]nvidia|nvidia\.com/gpu|/dev/nvidia|--privileged")
_ON_HOST = re.compile(
    r"""
    nvidia-smi\b[^.\n]{0,30}\b(?:on|in)\ the\ host\b
    [^.\n]{0,30}\b(?:works?|fine|shows|lists|ok)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_HAS_CARD = re.compile(r"\b(?:RTX|GTX|Tesla|Quadro|NVIDIA [AHLTVB]\d+)[ -]?\w*\d", re.IGNORECASE)
_SAYS_NONE = re.compile(
    r"""
    \b(?:gpu|nvidia-smi|cuda)\b[^.\n]{0,40}
      \b(?:un(?:available|detected)|not\ (?:available|detected|found|visible|seen|used|recogni[sz]ed))\b
    | \b(?:no|without\ (?:a|any))\ (?:nvidia\ )?gpus?\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OF_CUDA = re.compile(r"/dev/nvidia(?:\d+|ctl|-uvm(?:-tools)?)")
_NONE = ("void", "none")
_MAJOR = re.compile(r"(?m)^\s*(\d+) nvidia-uvm\s*$")  # of /proc/devices
_MAJOR_IN_CDI = re.compile(
    r"""
    path:\ /dev/nvidia-uvm(?:-tools)?\s*\n
    (?:[ \t]+\w+:[^\n]*\n)*? [ \t]+major:\ (\d+)
    """,
    re.VERBOSE,
)
_CDI_FILE = re.compile(r"/(?:etc|var/run|run)/cdi/[\w.-]+\.(?:ya?ml|json)\b")


def daemon_without_its_file(facts: Facts) -> Iterator[Finding]:
    """The running daemon does not have the runtime that daemon.json configures."""
    daemon, settings = known(lambda: facts.engines.docker), _daemon_json(facts)
    if daemon is None or not daemon.runtimes:
        return
    configured = [name for name in settings.get("runtimes") or {} if "nvidia" in name]
    lacking = [name for name in configured if name not in daemon.runtimes]
    default = settings.get("default-runtime", "")
    wrong = "nvidia" in default and bool(daemon.default_runtime) and daemon.default_runtime != default
    if not lacking and not wrong:
        return
    if is_desktop_of_linux(facts):
        words = "the docker command talks to Docker Desktop's virtual machine, and not to the engine of the host"
        yield facts.problems["docker-desktop-linux-no-gpu"].found(words, confidence=Confidence.LIKELY)
        return
    what = f"the runtime {lacking[0]}" if lacking else f"the default runtime {default}"
    words = f"/etc/docker/daemon.json configures {what}, but the running daemon does not have it"
    if _OF_SNAP.search(daemon.root_dir) or any(_OF_SNAP.search(text) for text in passages(facts)):
        yield facts.problems["docker-snap"].found(f"{words}: Docker is a snap", confidence=Confidence.LIKELY)
    else:
        words += ": it was not restarted, or reads another file"
        yield facts.problems["docker-runtime-not-configured"].found(words, confidence=Confidence.LIKELY)


def is_desktop_of_linux(facts: Facts) -> bool:
    daemon = known(lambda: facts.engines.docker)
    chosen = known(lambda: facts.engines.context, "") == "desktop-linux" or bool(daemon and daemon.is_desktop)
    return chosen and not (facts.shown.is_windows or facts.shown.is_mac or known(lambda: facts.system.wsl, 0))


def _daemon_json(facts: Facts) -> Mapping[str, Any]:
    reply = facts.replies.starting_with("file:/etc/docker/daemon.json").get("file:/etc/docker/daemon.json")
    settings, _ = daemon_json_of(reply.value) if reply and reply.status == "ok" else (None, None)
    return settings or {}


def no_gpu_requested(facts: Facts) -> Iterator[Finding]:
    """The container was created without a request for GPUs, and its program uses the CPU."""
    container = facts.shown.container
    unasked = container.get("requested") is False and not container.get("nodes") and container.get("runtime") != "nvidia"
    source = "docker inspect shows no device request" if unasked else ""
    if facts.shown.compose_asks is False:
        source = "no service of the compose file requests a GPU"
    is_inside = facts.shown.is_in_container and facts.shown.has_no_devices
    has_gpu = is_inside or known(lambda: facts.nvml.count, 0) or any(_ON_HOST.search(text) for text in passages(facts))
    has_gpu = has_gpu or any(_HAS_CARD.search(text) for text in passages(facts))
    on_cpu = is_inside or _is_blind(facts) or facts.shown.ollama_on_cpu is True or any(map(_SAYS_NONE.search, passages(facts)))
    if source and has_gpu and (on_cpu or any(_NO_LIBRARIES.search(text) for text in passages(facts))):
        words = f"{source}, and the program in the container gets no GPU"
        yield for_engine("docker", facts.problems["container-no-gpus-flag"]).found(words, confidence=Confidence.LIKELY)


def hidden_from_container(facts: Facts) -> Iterator[Finding]:
    """NVIDIA_VISIBLE_DEVICES is void or none, and NVIDIA's runtime started the container."""
    value = known(lambda: facts.environment.get("NVIDIA_VISIBLE_DEVICES"))
    by_runtime = facts.shown.container.get("runtime") == "nvidia"
    if value in _NONE and (by_runtime or _is_blind(facts)):
        words = f"NVIDIA_VISIBLE_DEVICES is {value!r} in the container"
        yield facts.problems["nvidia-visible-devices-void"].found(words, {"value": value}, confidence=Confidence.LIKELY)


def no_such_gpu(facts: Facts) -> Iterator[Finding]:
    """CUDA reads numbers and UUIDs; at another word, such as all, it stops and shows no GPU."""
    value = known(lambda: facts.environment.get("CUDA_VISIBLE_DEVICES")) or ""
    if re.match(r"(?i)(?:all|auto|gpu\d*|cuda\S*|any)\s*$", value):
        words = f"CUDA_VISIBLE_DEVICES is {value!r}, which is neither a number nor a UUID"
        evidence = {"CUDA_VISIBLE_DEVICES": value}
        yield facts.problems["cuda-visible-devices-unknown-gpu"].found(words, evidence, confidence=Confidence.LIKELY)


def started_without_nv(facts: Facts) -> Iterator[Finding]:
    """Apptainer ran without --nv, and Python found no GPU in it."""
    starts = [match["rest"] for text in passages(facts) for match in _APPTAINER.finditer(text)]
    if starts and not any(map(_WITH_GPU.search, starts)) and "False" in facts.shown.answers.values():
        words = "apptainer was started without --nv, and PyTorch finds no GPU in it"
        yield facts.problems["apptainer-nv-missing"].found(words, confidence=Confidence.LIKELY)


def run_without_gpu(facts: Facts) -> Iterator[Finding]:
    """A container that was started for one command of Python, which found no GPU, on a host that has one."""
    runs = [match for text in passages(facts) for match in _RUN.finditer(text)]
    if not runs or "False" not in facts.shown.answers.values() or not known(lambda: facts.nvml.count, 0):
        return
    engine, options = runs[-1]["engine"], runs[-1]["options"]
    if not _ASKS.search(options):
        words = f"{engine} run was given no GPU, and PyTorch finds none in the container"
        yield for_engine(engine, facts.problems["container-no-gpus-flag"]).found(words, confidence=Confidence.LIKELY)
    elif engine == "podman" and "--gpus" in options:
        words = "podman run accepted --gpus, and PyTorch finds no GPU in the container"
        yield facts.problems["container-gpu-did-not-arrive"].found(words, confidence=Confidence.LIKELY)


def started_without_gpu(facts: Facts) -> Iterator[Finding]:
    """A container was started without a GPU, and the program in it finds no driver."""
    text = "\n".join(passages(facts))
    runs = list(_START.finditer(text))
    after = text[runs[-1].end() :] if runs else ""
    options = runs[-1]["options"] if runs else ""
    if runs and _NO_DRIVER.search(after) and not _ASKS.search(options) and "--nv" not in options and not _IN_K8S.search(text):
        words = f"{runs[-1]['engine']} run was given no GPU, and the program in the container finds no driver"
        yield for_engine(runs[-1]["engine"], facts.problems["container-no-gpus-flag"]).found(words, confidence=Confidence.LIKELY)


_START = re.compile(
    r"""
    (?:^|[\s$\#>])(?P<engine>docker|podman)\s+run\s
    (?P<options>(?:[^\n]*\\\n)*[^\n]*)
    """,
    re.MULTILINE | re.VERBOSE,
)
_NO_DRIVER = re.compile(
    r"""
    libcuda\.so\.1:\ cannot\ open | libnvidia-ml\.so\.1:\ cannot\ open | Found\ no\ NVIDIA\ driver
    | no\ CUDA-capable\ device | No\ CUDA\ GPUs\ are\ available | CUDA_ERROR_NO_DEVICE | nvidia-smi:\ (?:command\ )?not\ found
    """,
    re.VERBOSE,
)
_IN_K8S = re.compile(r"\bkubectl\b|runtimeClassName")


def other_major_numbers(facts: Facts) -> Iterator[Finding]:
    """The rules of an LXC container do not allow the numbers that the nodes have."""
    lxc, nodes = facts.shown.lxc, facts.shown.nodes
    allowed = set(lxc.get("allowed", ()))
    used = set(lxc.get("mounted", ())) - set(lxc.get("passed", ()))
    refused = {path: node["major"] for path, node in nodes.items() if path in used and _OF_CUDA.fullmatch(path) and node["major"]}
    refused = {path: major for path, major in refused.items() if str(major) not in allowed}
    uvm = {match[1] for text in passages(facts) for match in _MAJOR.finditer(text)}
    if "195" in allowed and len(allowed) > 1 and len(uvm) == 1 and not uvm & allowed:
        refused["/dev/nvidia-uvm"] = int(min(uvm))
    if allowed and "*" not in allowed and refused:
        path, major = next(iter(refused.items()))
        words = f"{path} has the major number {major}, and the container's configuration allows {', '.join(sorted(allowed))}"
        problem = replace(facts.problems["lxc-device-rules-missing"], fixes=(ALLOW,))
        yield problem.found(words, {"path": path, "device_major": major}, confidence=Confidence.LIKELY)


def lxd_without_gpu(facts: Facts) -> Iterator[Finding]:
    """LXD and Incus add a GPU by a device, and the driver's libraries by nvidia.runtime."""
    lxd = facts.shown.lxd
    is_meant = bool(lxd) and (lxd["gpu"] != lxd["runtime"] or _lacks_libraries(facts))
    if not is_meant or (lxd["gpu"] and (lxd["runtime"] or not _lacks_libraries(facts))) or not known(lambda: facts.nvml.count, 0):
        return
    lacking = [words for key, words in (("gpu", "no device of type gpu"), ("runtime", "no nvidia.runtime")) if not lxd[key]]
    words = f"the configuration of the container {lxd['name']} has {' and '.join(lacking)}"
    evidence = {"container_tool": lxd["tool"], "chosen_name": lxd["name"], "lacking": lacking}
    yield facts.problems["lxd-container-without-gpu"].found(words, evidence, confidence=Confidence.LIKELY)


def _lacks_libraries(facts: Facts) -> bool:
    return facts.shown.lacks_libcuda or _is_blind(facts) or any(_NO_LIBRARIES.search(text) for text in passages(facts))


def stale_cdi(facts: Facts) -> Iterator[Finding]:
    """The libraries that a CDI file names are of another release than the loaded driver."""
    loaded = known(lambda: facts.driver.module_version) or known(lambda: facts.nvml.driver_version)
    named = facts.shown.cdi_releases
    if loaded and named and loaded not in named:
        words = f"the CDI specification names libraries of driver {', '.join(named)}, and driver {loaded} is loaded"
        yield facts.problems["cdi-spec-stale"].found(
            words, {"named": list(named), "driver": loaded}, confidence=Confidence.LIKELY
        )


def other_number_in_cdi(facts: Facts) -> Iterator[Finding]:
    """The kernel gives nvidia-uvm a free number at each load; a CDI file that names a number keeps the old one."""
    text = "\n".join(passages(facts))
    loaded, named = {match[1] for match in _MAJOR.finditer(text)}, {match[1] for match in _MAJOR_IN_CDI.finditer(text)}
    if len(loaded) == 1 and named and not named & loaded:
        old, new = min(named), min(loaded)
        path = _CDI_FILE.search(text)
        words = f"the CDI specification gives /dev/nvidia-uvm the major number {old}, and the kernel uses {new}"
        evidence = {"named": old, "loaded": new, "file": path[0] if path else "/etc/cdi/nvidia.yaml"}
        yield facts.problems["cdi-spec-stale"].found(words, evidence, confidence=Confidence.LIKELY)


def _is_blind(facts: Facts) -> bool:
    return "False" in facts.shown.answers.values() or any(_ON_CPU.search(text) or FAILED.search(text) for text in passages(facts))


RULES = (
    daemon_without_its_file,
    no_gpu_requested,
    hidden_from_container,
    no_such_gpu,
    started_without_nv,
    run_without_gpu,
    started_without_gpu,
    other_major_numbers,
    lxd_without_gpu,
    stale_cdi,
    other_number_in_cdi,
)
