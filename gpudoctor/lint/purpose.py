"""Services that need no GPU although their image has CUDA: they say so, or run a program that does not use one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.lint import shell
from gpudoctor.lint.compose import Service
from gpudoctor.lint.instructions import Text
from gpudoctor.lint.yaml_lines import Node

_NO_GPUS = ("", "-1", "none", "nodevfiles")
_SAID = {"JAX_PLATFORMS": "cpu", "JAX_PLATFORM_NAME": "cpu", "VLLM_TARGET_DEVICE": "cpu", "DEVICE": "cpu", "TORCH_DEVICE": "cpu"}
_ON_PROCESSOR = re.compile(r"--(?:device|accelerator|platform)[= ]cpu\b")
_WITHOUT_GPU = re.compile(
    r"""
    # compilers, builds
    nvcc | cuobjdump | nvdisasm | nvprune | ptxas | fatbinary | nvlink | c?make | ninja | gcc | g\+\+ | clang(?:\+\+)?
    # clients, pages
    | perf_analyzer | genai-perf | aiperf | tensorboard | mlflow
    # programs that fetch files and packages
    | git | pip[\d.]* | apt-get | curl | wget | hf | huggingface-cli | aws | rsync
    # shell
    | tar | cp | mv | ls | cat | echo | printf | true | cd | set | mkdir | chown | chmod | ldconfig | test | \[
    | export | uname | env | id
    """,
    re.VERBOSE,
)
_CLIENT = re.compile(
    r"""
    \bsglang_router\b
    | \bvllm(?:\.\S*)?\ bench(?:mark\S*)?\ serve\b
    | \bpython[\d.]*\ (?: -m\ pip\b | -V\b | --version\b )
    | \bray\ status\b
    """,
    re.VERBOSE,
)
# Databases, proxies and the like, which share a block of variables with other services.
_BYSTANDER = re.compile(
    r"""
    (?:library/|bitnami/)?(?:
        postgres(?:ql)? | redis | valkey | mysql | mariadb | mongo | memcached | nginx | traefik | caddy | haproxy
        | rabbitmq | minio | etcd | elasticsearch | busybox
    )
    | prom/.+ | grafana/.+ | minio/.+ | valkey/.+ | redis/.+
    """,
    re.VERBOSE,
)


def wants_none(service: Service) -> bool:
    cuda = service.environment.get("CUDA_VISIBLE_DEVICES")
    if cuda and cuda.text.strip().lower() in _NO_GPUS:
        return True
    if any((found := service.environment.get(name)) and found.text.lower() == value for name, value in _SAID.items()):
        return True
    words = " ".join(filter(None, (_written(service.node.at("entrypoint")), _written(service.node.at("command")))))
    if _ON_PROCESSOR.search(words) or _CLIENT.search(words) or _stopped(service):
        return True
    programs = [command.program for command in commands(service)]
    return bool(programs) and all(map(_WITHOUT_GPU.fullmatch, programs))


def is_client(service: Service) -> bool:
    """Whether the image contains the clients of a server, or another kind of program."""
    sdk = service.base.repository == "nvidia/tritonserver" and service.base.tag.endswith("-sdk")
    return sdk or bool(_BYSTANDER.fullmatch(service.base.repository))


def _stopped(service: Service) -> bool:
    """Whether it never starts."""
    return "0" in (service.node.at("scale").text, service.node.at("deploy", "replicas").text)


def _written(node: Node) -> str:
    return node.text or " ".join(item.text for item in node)


def commands(service: Service) -> Iterator[shell.Command]:
    """What the service runs, if its file shows it; a list is one command, and the last word of `sh -c` is a script."""
    nodes = [node for key in ("entrypoint", "command") if (node := service.node.at(key))]
    words = [item.text for node in nodes for item in node]
    if words and any(node.text for node in nodes):
        return  # how these are combined depends on the shell of the image
    is_script = len(words) > 2 and re.fullmatch(r"(?:.*/)?(?:ba|da|a|z)?sh", words[0]) and re.fullmatch(r"-[a-z]*c", words[-2])
    if words and not is_script:
        yield shell.Command(tuple(shell.Word(word, 0) for word in words), {})
    else:
        script = words[-1] if words else " ".join(node.text for node in nodes)
        yield from shell.commands(Text(script, ((0, 0),)), {})
