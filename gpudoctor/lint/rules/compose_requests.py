"""Compose: a GPU has to be requested in the right place and with the right keys."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.lint.compose import Compose, Service
from gpudoctor.lint.devcontainer import Devcontainer
from gpudoctor.lint.model import Fault, Rule
from gpudoctor.lint.purpose import is_client, wants_none
from gpudoctor.lint.yaml_lines import Node

_SPECIFICATION = "https://github.com/compose-spec/compose-spec/blob/main/deploy.md#devices"
_GUIDE = "https://docs.docker.com/compose/how-tos/gpu-support/"
_LINES = """\
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: all
              capabilities: [gpu]"""

NOT_REQUESTED = Rule(
    id="gpu-not-requested",
    title="A container that needs a GPU does not request one",
    why="Neither the image nor NVIDIA_VISIBLE_DEVICES requests a GPU: only a reservation, 'gpus', --gpus or the NVIDIA runtime "
    "does. Unless that runtime is the engine's default, the container starts without a GPU.",
    write=_LINES,
    references=(_GUIDE, _SPECIFICATION),
)
NO_CAPABILITIES = Rule(
    id="reservation-without-capabilities",
    title="A device reservation has no capabilities",
    why="It is the one required field. Without it, compose refuses the file, or the engine finds no driver: 'could not "
    'select device driver "nvidia" with capabilities: []\'.',
    write="              capabilities: [gpu]",
    references=(_SPECIFICATION, _GUIDE),
    status="fail",
)
MISPLACED = Rule(
    id="reservation-misplaced",
    title="The GPU reservation is in a place that compose does not read",
    why="Devices can be reserved only under deploy.resources.reservations. Compose refuses the file ('additional properties not "
    "allowed'), or ignores it.",
    write=_LINES,
    references=(_SPECIFICATION, "https://github.com/manascb1344/zonos-api/issues/2"),
    status="fail",
)
EXCLUSIVE = Rule(
    id="count-and-device-ids",
    title="A reservation has both count and device_ids",
    why="Only one of them is allowed; compose refuses the file.",
    write="              device_ids: ['0']",
    references=(_SPECIFICATION,),
    status="fail",
)
NO_STRINGS = Rule(
    id="device-ids-not-strings",
    title="device_ids are numbers, not strings",
    why="The specification requires a list of strings; compose refuses numbers: 'device_ids.0 must be a string'.",
    write="              device_ids: ['0', '1']",
    references=(_SPECIFICATION, "https://github.com/compose-spec/compose-spec/blob/main/schema/compose-spec.json"),
    status="fail",
)
GPUS_VALUE = Rule(
    id="gpus-value-unknown",
    title="'gpus' has a value that compose does not accept",
    why="It must be the word all, or a list of requests such as {driver: nvidia, count: 2}. Compose refuses anything else.",
    write="    gpus: all",
    references=("https://github.com/compose-spec/compose-spec/blob/main/05-services.md#gpus",),
    status="fail",
)
GPUS_NEW = Rule(
    id="gpus-needs-new-compose",
    title="'gpus' needs Docker Compose 2.30 or newer",
    why="Older releases refuse the file: 'Additional property gpus is not allowed'. A reservation under deploy works everywhere.",
    write=_LINES,
    references=("https://github.com/compose-spec/compose-spec/blob/main/05-services.md#gpus",),
    status="info",
)
CDI = Rule(
    id="cdi-request-without-devices",
    title="A CDI request does not name its devices",
    why="With the driver cdi, a device has to be named. With count, the engine refuses ('unexpected count in CDI device "
    "request'). Without device_ids, the container starts without a GPU, and without a message.",
    write="              device_ids: [nvidia.com/gpu=all]",
    references=("https://docs.docker.com/build/building/cdi/", _SPECIFICATION),
    status="fail",
)
SPLIT = Rule(
    id="devcontainer-arguments-joined",
    title="Two docker run arguments are in one string",
    why="Every entry of runArgs is passed on as one argument, so docker sees an option called '--gpus all'.",
    write='"runArgs": ["--gpus", "all"]',
    references=("https://containers.dev/implementors/json_reference/#image-specific",),
    status="fail",
)
RULES = (NOT_REQUESTED, NO_CAPABILITIES, MISPLACED, EXCLUSIVE, NO_STRINGS, GPUS_VALUE, GPUS_NEW, CDI, SPLIT)

_GPU_ONLY = re.compile(
    r"vllm/vllm-openai | lmsysorg/sglang | nvidia/nim/.* | nim/(?:meta|nvidia|mistralai|snowflake|baai)/.*",
    re.VERBOSE,
)
_GPU_TAG = re.compile(r"(?:^|[-_.])(?:cuda\d*|cu1[1-3]\d)(?:[-_.]|$)")


def needs_gpu(service: Service) -> bool:
    """Whether its image certainly needs a GPU; an image that also runs on a CPU does not count."""
    image = service.base
    if re.search(r"cpu|rocm|xpu|hpu|tpu|npu|intel|vulkan", image.tag) or image.family == "jetson":
        return False
    if is_client(service) or wants_none(service):
        return False
    by_name = _GPU_ONLY.fullmatch(image.repository) or _GPU_TAG.search(image.tag)
    return image.has_cuda or bool(by_name and service.image)


def compose(file: Compose) -> Iterator[Fault]:
    for service in file.services:
        if service.complete and service.name not in file.gpu_elsewhere:
            yield from requested(service)
        yield from _placed(service)
        yield from _gpus(service)
        for request in service.reservations:
            yield from _request(request, in_gpus=False)
        for request in service.node.at("gpus"):
            yield from _request(request, in_gpus=True)


def devcontainer(file: Devcontainer) -> Iterator[Fault]:
    if file.base.has_cuda and not file.asks_for_gpu:
        yield NOT_REQUESTED.at(file.image.line, file.image.text, '"hostRequirements": {"gpu": "optional"}')
    for argument in file.arguments:
        if re.match(r"--?[a-z-]+ \S", argument.text) and "gpu" in argument.text:
            listed = ", ".join(f'"{part}"' for part in argument.text.split(" ", 1))
            yield SPLIT.at(argument.line, f'"{argument.text}"', f'"runArgs": [{listed}]')


def requested(service: Service) -> Iterator[Fault]:
    """A service that needs a GPU, or names one, and requests none."""
    visible = service.environment.get("NVIDIA_VISIBLE_DEVICES")
    shown = visible.text if visible else ""
    if service.asks_for_gpu or service.node.at("privileged").true or (visible and shown in ("", "void", "none")):
        return
    if needs_gpu(service):
        yield NOT_REQUESTED.at(service.line, f"{service.name}: image {service.image.text}")
    elif visible and not is_client(service) and not wants_none(service):
        yield NOT_REQUESTED.at(visible.line, f"{service.name}: NVIDIA_VISIBLE_DEVICES={shown} alone requests no GPU")


def _placed(service: Service) -> Iterator[Fault]:
    deploy = service.node.at("deploy")
    places = {
        "deploy.resources.limits.devices": deploy.at("resources", "limits", "devices"),
        "deploy.resources.devices": deploy.at("resources", "devices"),
        "deploy.reservations": deploy.at("reservations"),
        "deploy.devices": deploy.at("devices"),
        "resources": service.node.at("resources"),
        "reservations": service.node.at("reservations"),
    }
    for place, node in places.items():
        if node:
            yield MISPLACED.at(node.line, f"{service.name}: {place}")


def _gpus(service: Service) -> Iterator[Fault]:
    gpus = service.node.at("gpus")
    if gpus.text and gpus.text != "all" and "$" not in gpus.text:
        count = f"    gpus: [{{driver: nvidia, count: {gpus.text}}}]" if gpus.text.isdecimal() else ""
        yield GPUS_VALUE.at(gpus.line, f"{service.name}: gpus: {gpus.text}", count)
    elif gpus:
        yield GPUS_NEW.at(gpus.line, f"{service.name}: gpus")


def _request(request: Node, in_gpus: bool) -> Iterator[Fault]:
    fields = request.mapping
    driver = request.at("driver").text
    if fields and not request.at("capabilities").list and not in_gpus:
        yield NO_CAPABILITIES.at(request.line, f"driver {driver}" if driver else "a device without capabilities")
    if "count" in fields and "device_ids" in fields:
        yield EXCLUSIVE.at(fields["device_ids"].line, f"count: {request.at('count').text} and device_ids")
    for item in request.at("device_ids"):
        if not item.is_string and item.text:
            yield NO_STRINGS.at(item.line, f"device_ids: {item.text}")
    if driver == "cdi" and not request.at("device_ids").list:
        yield CDI.at(request.line, "driver: cdi without device_ids")
