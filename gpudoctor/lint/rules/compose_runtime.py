"""Compose: older ways to get a GPU (runtime, privileged, devices by hand), and variables that contradict each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.lint.compose import Compose, Service
from gpudoctor.lint.model import Fault, Rule
from gpudoctor.lint.rules.compose_requests import needs_gpu

_GUIDE = "https://docs.docker.com/compose/how-tos/gpu-support/"
_VARIABLES = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
_RESERVE = "    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}"

RUNTIME_ALONE = Rule(
    id="runtime-without-visible-devices",
    title="runtime: nvidia is set, but no GPU is requested",
    why="The NVIDIA runtime provides the GPUs that NVIDIA_VISIBLE_DEVICES names. NVIDIA's images set it; this one does not, so "
    "the container starts without a GPU.",
    write="    environment: {NVIDIA_VISIBLE_DEVICES: all}",
    references=(_VARIABLES,),
)
LEGACY = Rule(
    id="legacy-version-with-runtime",
    title="'version' and 'runtime' belong to the old file format",
    why="Compose 2 ignores version. Older releases accepted runtime only in the formats 2.3 and 2.4. A reservation works in all "
    "current releases, and can name the GPUs.",
    write=_RESERVE,
    references=("https://github.com/docker/docs/pull/12315", _GUIDE),
    status="info",
)
PRIVILEGED = Rule(
    id="privileged-for-gpu",
    title="privileged is used to get a GPU",
    why="It gives the container every device and permission of the host, including GPUs that were not requested, but none of "
    "the driver's libraries. A request provides the GPU and nothing else.",
    write=_RESERVE,
    references=("https://github.com/NVIDIA/nvidia-docker/issues/1083", _GUIDE),
)
BY_HAND = Rule(
    id="device-nodes-by-hand",
    title="The GPU's device nodes are passed in by hand",
    why="CUDA also needs /dev/nvidiactl, /dev/nvidia-uvm and the libraries of the host's driver, which only the container "
    "toolkit provides.",
    write=_RESERVE,
    references=("https://github.com/NVIDIA/nvidia-docker/issues/1085", _GUIDE),
)
OVERRIDDEN = Rule(
    id="visible-devices-overridden",
    title="NVIDIA_VISIBLE_DEVICES and the request name different GPUs",
    why="For a reservation or --gpus, the engine sets the variable itself. The value in the file has no effect.",
    write="              device_ids: ['0']",
    references=("https://github.com/moby/moby/blob/master/daemon/nvidia_linux.go",),
)
RENUMBERED = Rule(
    id="cuda-visible-devices-renumbered",
    title="CUDA_VISIBLE_DEVICES uses the host's numbers",
    why="Inside the container, GPUs are numbered from 0, whatever their numbers on the host. Too large a number hides all GPUs: "
    "'no CUDA-capable device is detected'.",
    write="# nothing; the reservation already selects the GPU",
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars", _VARIABLES),
    status="fail",
)
RULES = (RUNTIME_ALONE, LEGACY, PRIVILEGED, BY_HAND, OVERRIDDEN, RENUMBERED)

_NUMBERS = re.compile(r"\d+(?:,\d+)*")


def compose(file: Compose) -> Iterator[Fault]:
    yield from _legacy(file)
    for service in file.services:
        yield from _runtime(service)
        yield from _privileged(service)
        yield from _by_hand(service)
        yield from _numbers(service)


def _runtime(service: Service) -> Iterator[Fault]:
    runtime = service.runtime
    if runtime.text != "nvidia":
        return
    named = "NVIDIA_VISIBLE_DEVICES" in service.environment or service.node.at("env_file") or service.requests
    if service.base.family in ("plain", "alpine") and service.complete and not named:
        yield RUNTIME_ALONE.at(runtime.line, f"{service.name}: {service.image.text} does not set NVIDIA_VISIBLE_DEVICES")


def _legacy(file: Compose) -> Iterator[Fault]:
    """Reported once per file."""
    services = [service for service in file.services if service.runtime.text == "nvidia" and not service.requests]
    if file.version and services:
        message = f"{services[0].name}: version {file.version.text} with runtime: nvidia"
        yield LEGACY.at(services[0].runtime.line, message)


def _privileged(service: Service) -> Iterator[Fault]:
    privileged = service.node.at("privileged")
    docker_inside = any("docker.sock" in volume for volume in service.values_of("volumes"))
    if not privileged.true or docker_inside:
        return
    wants = needs_gpu(service) or "NVIDIA_VISIBLE_DEVICES" in service.environment
    if wants and not service.asks_for_gpu:
        yield PRIVILEGED.at(privileged.line, f"{service.name}: privileged, but no GPU is requested")


def _by_hand(service: Service) -> Iterator[Fault]:
    nodes = {device: line for device, line in service.devices.items() if device.startswith("/dev/nvidia")}
    gpus = [device for device in nodes if re.fullmatch(r"/dev/nvidia\d+", device)]
    libraries = any(
        re.search(r"libcuda|libnvidia|/usr/lib|nvidia-driver|/usr/local/nvidia", volume)
        for volume in service.values_of("volumes")
    )
    if not gpus or service.requests or service.runtime or libraries:
        return
    missing = [device for device in ("/dev/nvidiactl", "/dev/nvidia-uvm") if device not in nodes]
    said = f"{' and '.join(missing)} missing" if missing else "the driver's libraries are missing"
    yield BY_HAND.at(nodes[gpus[0]], f"{service.name}: {gpus[0]}; {said}")


def _numbers(service: Service) -> Iterator[Fault]:
    ids = [item.text for request in service.requests for item in request.at("device_ids")]
    visible, cuda = (service.environment.get(name) for name in ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"))
    named = visible.text if visible and _NUMBERS.fullmatch(visible.text) else ""
    if ids and visible and named and all(map(str.isdecimal, ids)) and set(named.split(",")) != set(ids):
        yield OVERRIDDEN.at(
            visible.line,
            f"{service.name}: {named}, but device_ids {', '.join(ids)}",
            f"              device_ids: {named.split(',')}",
        )
    given = _given(service, ids, named)
    if cuda and given is not None and _NUMBERS.fullmatch(cuda.text) and max(map(int, cuda.text.split(","))) >= given:
        message = f"{service.name}: {cuda.text}, but the container has {given} GPU{'s' * (given > 1)}"
        yield RENUMBERED.at(cuda.line, message)


def _given(service: Service, ids: list[str], named: str) -> int | None:
    """How many GPUs the container gets; None if the file does not show it."""
    counts = [request.at("count").text for request in service.requests if request.at("count")]
    if ids:
        return None if any("$" in id or "=" in id or "," in id for id in ids) else len(ids)
    if counts:
        return int(counts[0]) if counts[0].isdecimal() and int(counts[0]) else None
    if service.requests or service.node.at("gpus"):
        return None
    return len(named.split(",")) if named and service.runtime.text == "nvidia" else None
