"""How a container is configured: `docker inspect`, a compose file, and the configuration of LXC, LXD and Incus."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply
from gpudoctor.worker.probes import environment

_RULE = re.compile(r"^\s*lxc\.cgroup2?\.devices\.allow\s*[:=]\s*(?:(a)\b|c (\d+|\*):)")
_MOUNT = re.compile(r"^\s*lxc\.mount\.entry\s*[:=]\s*(/dev/\S+)\s")
_NODE = re.compile(r"^\s*dev\d+:\s*(?:path=)?(/dev/[^,\s]+)")  # Proxmox 8.2 writes the rules for these itself
_LXC = re.compile(
    r"""
    ^\s*(?:
        lxc\.(?:cgroup2?\.devices\.allow|mount\.entry)\s*[:=]
        | dev\d+:\s*(?:path=)?/dev/nvidia
    )
    """,
    re.VERBOSE,
)
_GPU_OF_COMPOSE = re.compile(
    r"""
    capabilities:[^\#]*\bgpu\b
    | ^\s*-\s*["']?gpu["']?\s*$
    | ^\s*gpus:
    | runtime:\s*nvidia
    | /dev/nvidia | nvidia\.com/gpu
    | include: | extends:
    """,
    re.MULTILINE | re.VERBOSE,
)
_VISIBLE = re.compile(
    r"""
    ^[ \t]* (?:-[ \t]*)? ["']? ((?:CUDA|NVIDIA)_VISIBLE_DEVICES)
    (?::\s*|=) ["']? ([\w,.$-]+)
    """,
    re.MULTILINE | re.VERBOSE,
)
_OF_INSPECT = re.compile(
    r"""
    ^\s*"(?:DeviceRequests|Runtime|PathOnHost)":[ ]
    (?: null | \[ | \[\] | "[\w.-]*" | "/dev/nvidia\S*" )
    ,?\s*$
    """,
    re.VERBOSE,
)


def _lxc(text: str) -> dict[str, Reply]:
    """allowed: major numbers, "*" for all. mounted: nodes that need a rule. passed: nodes that bring their rules."""
    lines = text.splitlines()
    allowed = [match[2] or "*" for match in map(_RULE.match, lines) if match]
    mounted = [match[1] for match in map(_MOUNT.match, lines) if match]
    passed = [match[1] for match in map(_NODE.match, lines) if match]
    return {"shown-lxc": Reply("ok", {"allowed": allowed, "mounted": mounted, "passed": passed})}


def _lxd(text: str) -> dict[str, Reply] | None:
    """Only with --expanded are the devices and settings of its profiles there."""
    devices = re.search(r"(?m)^devices:((?:\s*\{\})|(?:\n[ \t]+.*)*)", text)
    if not devices:
        return None
    has_gpu = bool(re.search(r"(?m)^\s+type: gpu\b|^\s+(?:path|source): /dev/nvidia", devices[1]))
    runtime = bool(re.search(r"(?m)^\s+nvidia\.runtime: \"?(?:true|1|yes|on)\b", text))
    return {"shown-lxd": Reply("ok", {"gpu": has_gpu, "runtime": runtime})}


def _lxd_shown(command: str, output: str) -> dict[str, Reply] | None:
    name = next((word for word in command.split()[3:] if not word.startswith("-")), "")
    found = _lxd(output)
    is_whole = "--expanded" in command or "-e" in command.split()
    if not found or not (is_whole or found["shown-lxd"].value["gpu"]):  # a profile can have what is missing here
        return None
    value = {**found["shown-lxd"].value, "tool": command.split()[0], "name": name}
    return {"shown-lxd": Reply("ok", value)}


def _inspect(text: str) -> dict[str, Reply] | None:
    """One line of the JSON: whether the container was created with a request for GPUs, with their nodes, and its runtime."""
    name, _, value = text.strip().strip(",").partition(": ")
    if name == '"Runtime"':
        return {"shown-container": Reply("ok", {"runtime": value.strip('"')})}
    if name == '"PathOnHost"':
        return {"shown-container": Reply("ok", {"nodes": True})}
    return {"shown-container": Reply("ok", {"requested": value not in ("null", "[]")})}


def _formatted(command: str, output: str) -> dict[str, Reply] | None:
    """docker inspect with -f: the fields in the order of the command."""
    words = output.split("\n", 1)[0].strip()
    found: dict[str, object] = {}
    if "DeviceRequests" in command:
        found["requested"] = "gpu" in words
    if ".Runtime" in command and (runtime := re.search(r"\b(nvidia\S*|runc|crun|io\.containerd\S*|kata\S*)(?=\s|$)", words)):
        found["runtime"] = runtime[1]
    if not found or not words or "No such" in words:
        return None
    return {"shown-container": Reply("ok", found)}


def _cdi_releases(command: str, output: str) -> dict[str, Reply] | None:
    found = list(dict.fromkeys(re.findall(r"\b(\d{3}\.\d{2,3}(?:\.\d{2})?)\b", output)))
    return {"shown-cdi-releases": Reply("ok", found)} if found else None


def _compose(text: str) -> dict[str, Reply] | None:
    if not re.search(r"(?m)^\s+(?:image|build):", text):
        return None
    named = {name: value for name, value in _VISIBLE.findall(text) if "$" not in value}
    variables = {"environment": Reply("ok", environment.variables(named))} if named else {}
    return {"shown-compose": Reply("ok", {"asks": bool(_GPU_OF_COMPOSE.search(text))}), **variables}


READERS = (
    Reader(
        "configuration of LXC",
        ("lxc.cgroup", "lxc.mount.entry", ": /dev/nvidia"),
        _LXC,
        _lxc,
        re.compile(r"^(?!\s*#|\s*lxc\.|\s*\w+: )"),
        300,
    ),
    prompts.reader(
        "configuration of LXD or Incus",
        ("config show",),
        r"(?:lxc|incus)\ config\ show\ .*",
        _lxd_shown,
        files=True,
    ),
    Reader(
        "docker inspect",
        ('"DeviceRequests":', '"Runtime":', '"/dev/nvidia'),
        _OF_INSPECT,
        _inspect,
        re.compile(""),
        1,
    ),
    prompts.reader(
        "docker inspect -f",
        ("inspect ",),
        r"(?:docker|podman)\ (?:container\ )?inspect\ .*(?:--format|-f)[\ =].*",
        _formatted,
        most_lines=4,
    ),
    prompts.reader(
        "a search in CDI files",
        ("/cdi/", "/cdi "),
        r"(?:grep|zgrep|rg|awk|sed)\ [^\n]*(?:/etc|/var/run|/run)/cdi\b[^\n]*",
        _cdi_releases,
        most_lines=200,
    ),
    Reader(
        "a compose file",
        ("services:",),
        re.compile(r"^\s{0,2}services:\s*$"),
        _compose,
        re.compile(r"^(?!\s|#|[\w-]+:|$)\S|^\S+@\S+[:~]|^[$#] "),
        400,
    ),
)
