"""Compose: shared and locked memory of services that train or use several GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.lint.compose import Compose, Service
from gpudoctor.lint.devcontainer import Devcontainer
from gpudoctor.lint.model import Fault, Rule

_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"

SHM = Rule(
    id="shared-memory-default",
    title="/dev/shm has the default 64 MB in a container that needs more",
    why="NCCL exchanges data between GPUs in /dev/shm, and PyTorch's data loaders pass batches through it. With 64 MB they "
    "fail with 'No space left on device' or a bus error.",
    write="    shm_size: 8gb",
    references=(
        _NCCL,
        "https://github.com/pytorch/pytorch#docker-image",
        "https://docs.vllm.ai/en/latest/deployment/docker.html",
    ),
)
IGNORED = Rule(
    id="shm-size-ignored",
    title="shm_size has no effect with ipc: host",
    why="With ipc: host the container uses the host's /dev/shm, whatever its size.",
    write="    ipc: host",
    references=("https://docs.docker.com/engine/containers/run/#ipc-settings---ipc",),
    status="info",
)
MEMLOCK = Rule(
    id="rdma-without-memlock",
    title="InfiniBand is passed in without permission to lock memory",
    why="RDMA locks the memory that it transfers. With the default limit, NCCL fails with 'ibv_reg_mr failed with error Cannot "
    "allocate memory'.",
    write="    ulimits: {memlock: -1, stack: 67108864}",
    references=(_NCCL,),
)
RULES = (SHM, IGNORED, MEMLOCK)

_TRAINS = re.compile(
    r"""
    vllm/vllm-openai
    | lmsysorg/sglang
    | huggingface/text-generation-inference
    | pytorch/pytorch
    | nvidia/(?:pytorch|nemo|tensorflow)
    """,
    re.VERBOSE,
)
_WITH_LOADERS = ("nvidia/", "pytorch/pytorch")
_PARALLEL = re.compile(
    r"(?: tensor-parallel-size | -tp | --tp-size | --num-shard | --nproc[_-]per[_-]node )[= ]+( [2-9] | \d\d )",
    re.VERBOSE,
)


def compose(file: Compose) -> Iterator[Fault]:
    for service in file.services:
        shm, host = service.node.at("shm_size"), service.node.at("ipc").text
        if shm and host == "host":
            yield IGNORED.at(shm.line, f"{service.name}: shm_size {shm.text} and ipc: host")
        elif service.complete and not shm and not host and not _mounts_shm(service) and (why := _needs_shm(service)):
            yield SHM.at(service.line, f"{service.name}: {why}, but neither shm_size nor ipc: host is set")
        rdma = next((line for device, line in service.devices.items() if device.startswith("/dev/infiniband")), 0)
        if rdma and not service.node.at("ulimits", "memlock") and not _may_lock(service):
            yield MEMLOCK.at(rdma, f"{service.name}: /dev/infiniband without ulimits.memlock")


def devcontainer(file: Devcontainer) -> Iterator[Fault]:
    """A devcontainer is one container: its image says whether it trains."""
    texts = " ".join(item.text for item in (*file.arguments, *file.node.at("mounts")))
    trains = _TRAINS.fullmatch(file.base.repository) and file.base.repository.startswith(_WITH_LOADERS)
    if file.asks_for_gpu and trains and not re.search(r"--shm-size|--ipc|/dev/shm", texts):
        line = (file.node.at("runArgs") or file.image).line
        message = f"{file.image.text}: runArgs contains neither --shm-size nor --ipc=host"
        yield SHM.at(line, message, '"runArgs": ["--gpus=all", "--shm-size=8g"]')


def _needs_shm(service: Service) -> str:
    if not service.asks_for_gpu or not _TRAINS.fullmatch(service.base.repository):
        return ""
    several = [
        text
        for request in service.requests
        if ((text := request.at("count").text) and text.isdecimal() and int(text) > 1) or len(request.at("device_ids").list) > 1
    ]
    command = service.node.at("command")
    words = f"{command.text} {' '.join(item.text for item in command)}"
    if _PARALLEL.search(words) or several:
        return "several GPUs work together"
    # With one GPU, only training has data loaders; model servers do not need it.
    return service.image.text if service.base.repository.startswith(_WITH_LOADERS) else ""


def _may_lock(service: Service) -> bool:
    added = {item.text.upper().removeprefix("CAP_") for item in service.node.at("cap_add")}
    return service.node.at("privileged").true or bool({"ALL", "IPC_LOCK"} & added)


def _mounts_shm(service: Service) -> bool:
    return any(
        "/dev/shm" in entry for key in ("volumes", "tmpfs") for entry in (*service.values_of(key), service.node.at(key).text)
    )
