"""Who may open a GPU in a text: what stands at a node's path, its group, and the rules of containers that are stricter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.said import is_lxc, passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

NO_NODE = Problem(
    id="render-node-is-a-file",
    title="An ordinary file stands where the GPU's render node should be",
    why="A program, a bind mount or a redirection wrote to the path before the driver created the node. Programs open the "
    "file and find no device, and the driver's tools do not replace it.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Stop what mounts it, remove the file, and let udev create the nodes again",
            "sudo rm <path> && sudo udevadm trigger --action=add --subsystem-match=drm",
            verify="ls -l /dev/dri",
            risk="disruptive",
            where="host",
            kind="restart",
            needs=("root",),
        ),
        Fix(
            "If it comes back at each boot: start the container or service only after the driver is loaded",
            "ls -l <path>; lsmod | grep -E 'nvidia|drm'",
            kind="read",
        ),
    ),
    references=("https://www.kernel.org/doc/html/latest/admin-guide/devices.html",),
)
OUTSIDE_GROUP = Problem(
    id="user-outside-group-of-node",
    title="The user is not in the group that may open the GPU",
    why="The nodes in /dev/dri and /dev/kfd belong to the groups render or video. A login on the desktop gets access by another "
    "way, a session over SSH, a service or another account does not.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Add the user to the group, then log in again",
            'sudo usermod -aG <group> "${SUDO_USER:-$USER}"',
            verify="id",
            where="host",
            kind="set",
            needs=("root",),
        ),
    ),
    references=("https://man7.org/linux/man-pages/man8/usermod.8.html",),
)
DROPPED = Problem(
    id="rootless-container-drops-groups",
    title="The rootless container does not keep the group that may open the GPU",
    why="In a user namespace the container has only the user's own id. The other groups, such as video, are dropped, and the "
    "owner of the nodes is shown as 65534.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Keep the user's groups in the container (needs crun)",
            "podman run --rm --group-add keep-groups <all_gpus> <image> nvidia-smi -L",
            engines=("podman",),
        ),
    ),
    references=("https://docs.podman.io/en/latest/markdown/podman-run.1.html",),
)
CONTAINER_RULES = (
    "The mode of the node allows it, and the device cgroup does not: its list was written when the container started. A node "
    "that the driver created later, or with another major number, is not in it."
)
WITH_NODES = (
    Fix(
        "On the host: create the nodes at boot, before containers start",
        "sudo nvidia-modprobe -c 0 -u && ls -l /dev/nvidia*",
        where="host",
        kind="set",
        needs=("root",),
    ),
    Fix("Create the container or pod again, so that its list has the nodes of now; starting the old one again is not enough"),
)
PROBLEMS = (NO_NODE, OUTSIDE_GROUP, DROPPED)

_NODES = r"(?:renderD\d+|card\d+|nvidia\d+|nvidiactl|nvidia-uvm(?:-tools)?|nvidia-modeset|kfd)"
_FILE = re.compile(
    r"""
    ^-[r-][w-]\S{7,8}\s+\d+\s+\S+\s+\S+\s+\d+\s[^\n]*?\s(?P<path>
    (?:/dev/dri/)?(?:renderD\d+|card\d+))\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_LISTED = re.compile(r"(?m)\bls\s+-\w*l\w*\s[^\n]*?(?P<folder>/dev/dri)\b")
_NODE = re.compile(
    rf"""
    ^c(?P<mode>[r-][w-][x-][r-][w-][x-][r-][w-][x-])[.+]?\s+\d+\s+(?P<owner>\S+)\s+(?P<group>\S+)\s+(?P<major>\d+),\s*(?P<minor>\d+)
    \s[^\n]*?\s(?P<path>(?:/dev/(?:dri/)?)?(?P<name>{_NODES}))\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)


class _Node(NamedTuple):
    path: str
    name: str
    owner: str
    group: str
    major: str
    minor: str
    is_open: bool
    for_group: bool


def _nodes(text: str) -> Iterator[_Node]:
    for match in _NODE.finditer(text):
        mode, name = match["mode"], match["name"]
        folder = "/dev/dri/" if name.startswith(("render", "card")) else "/dev/"
        numbers = match["owner"], match["group"], match["major"], match["minor"]
        yield _Node(folder + name, name, *numbers, mode[6:8] == "rw", mode[3:5] == "rw")


def file_for_node(facts: Facts) -> Iterator[Finding]:
    """On a host of LXC, ls -l shows an ordinary file in /dev/dri, which a container's entry with create=file made."""
    if not is_lxc(facts):
        return
    text = "\n".join(passages(facts))
    for match in _FILE.finditer(text):
        path = match["path"]
        if not path.startswith("/") and not (listed := list(_LISTED.finditer(text[: match.start()]))):
            continue
        path = path if path.startswith("/") else f"{listed[-1]['folder']}/{path}"
        words = f"{path} is an ordinary file, no device node"
        yield NO_NODE.found(words, {"path": path})
        return


_ID = re.compile(
    r"""
    uid=(?P<uid>\d+)(?:\((?P<user>[^)\n]+)\))?\s+gid=\d+(?:\((?P<own>[^)\n]+)\))?
    (?:\s+groups=(?P<groups>[^\n]*))?
    """,
    re.VERBOSE,
)
_GROUPS = re.compile(
    r"""
    ^(?:[^\n]*?[$#>❯]\ ?)(?:id\ -nG|groups)(?:\ (?P<user>[a-z][\w-]*))?[ \t]*\n
    (?:(?P<named>[\w-]+)\ :\ )?(?P<groups>[\w -]+)$
    """,
    re.MULTILINE | re.VERBOSE,
)
_GROUP = re.compile(r"(?m)^(?P<group>[a-z][\w-]*):x?:\d+:(?P<members>[\w,.-]*)$")
_PROMPT = re.compile(r"(?m)^[\[(]?(?:\([^)\n]*\) ?)?(?P<user>[a-z_][\w-]*)@[\w.-]+[: ]")
_BY_AMD = re.compile(
    r"""
    \bFalse\b|Unable\ to\ open\ /dev/kfd|ROCR:\ |HSA_STATUS_ERROR
    |no\ (?:ROCm|GPU|HIP)|not\ in\ the\ '?render
    """,
    re.VERBOSE,
)
_BY_GRAPHICS = re.compile(
    r"""
    llvmpipe | lavapipe | vaGetDriverNames | vaInitialize\ failed | No\ VA\ display | libEGL\ warning | eglInitialize\ failed
    | (?:denied|not\ permitted|cannot\ open|failed|EACCES)\b[^\n]*/dev/dri
    | /dev/dri[^\n]*(?:denied|not\ permitted|cannot\ open|failed|EACCES)
    """,
    re.IGNORECASE | re.VERBOSE,
)


def _members(text: str) -> tuple[str, set[str], set[str] | None]:
    """A user, its groups, and those whose members the text lists; None for all. Without a user's groups, the last are empty."""
    for match in _ID.finditer(text):
        if match["uid"] != "0" and match["groups"]:
            return match["user"] or "", set(re.findall(r"\(([^)\n]+)\)", match["groups"])), None
    if shown := _GROUPS.search(text):
        return shown["user"] or shown["named"] or "", set(shown["groups"].split()), None
    listed = {match["group"]: set(match["members"].split(",")) for match in _GROUP.finditer(text)}
    users = [match["user"] for match in _PROMPT.finditer(text) if match["user"] != "root"]
    if not users:
        return "", set(), set()
    return users[-1], {group for group, members in listed.items() if users[-1] in members}, set(listed)


def outside_group(facts: Facts) -> Iterator[Finding]:
    """A node in /dev/dri or /dev/kfd is for a group, in which the text's user is not, and a program of the text misses it."""
    text = "\n".join(passages(facts))
    user, groups, listed = _members(text)
    nodes = [node for node in _nodes(text) if node.name.startswith(("render", "kfd")) and not node.is_open and node.for_group]
    of_amd = any(node.name == "kfd" for node in nodes)
    if not nodes or user == "root" or not (_BY_AMD if of_amd else _BY_GRAPHICS).search(text):
        return
    closed = [node for node in nodes if node.group not in groups and (listed is None or node.group in listed)]
    if len(closed) == len(nodes) and closed[0].group not in ("root", "nobody", "nogroup", "65534"):
        words = f"{closed[0].path} is for the group {closed[0].group}, and {user or 'the user'} is not in it"
        if of_amd:
            words += "; /dev/kfd is of AMD's driver, which gpudoctor does not examine further"
        yield OUTSIDE_GROUP.found(words, {"path": closed[0].path, "group": closed[0].group}, confidence=Confidence.LIKELY)


_RULE = re.compile(r"(?m)^(?:a|c (?P<major>\d+|\*):(?P<minor>\d+|\*)|a \*:\*) [rwm]{1,3}[ \t]*$")
_REFUSED = re.compile(
    rf"""
    /dev/(?P<name>{_NODES})\b[^\n]*(?:EPERM|[Oo]peration\ not\ permitted)|[Oo]peration\ not\ permitted[^\n]*/dev/
    (?P<other>{_NODES})
    """,
    re.VERBOSE,
)


def not_in_device_list(facts: Facts) -> Iterator[Finding]:
    """devices.list of a container has no rule for a node whose mode allows everyone, and the kernel refuses it."""
    text = "\n".join(passages(facts))
    rules = list(_RULE.finditer(text))
    if not rules or any(rule["major"] in (None, "*") for rule in rules) or "devices.list" not in text:
        return
    allowed = {(rule["major"], rule["minor"]) for rule in rules}
    refused = {match["name"] or match["other"] for match in _REFUSED.finditer(text)}
    for node in _nodes(text):
        is_listed = {(node.major, "*"), (node.major, node.minor), ("*", "*")} & allowed
        if node.is_open and not is_listed and node.name in refused:
            words = f"{node.path} is {node.major}:{node.minor}, and devices.list of the container has no rule for it"
            problem = replace(facts.problems["container-gpu-device-denied"], why=CONTAINER_RULES, fixes=WITH_NODES)
            yield problem.found(words, {"path": node.path, "device_major": node.major}, confidence=Confidence.LIKELY)
            return


_ROOTLESS = re.compile(
    r"""
    ^(?:[^\n#]*?[$>❯]\ ?)(?!\s*sudo)podman\ (?:run|exec|create)\b
    (?P<options>[^\n]*)
    """,
    re.MULTILINE | re.VERBOSE,
)
_NOBODY = re.compile(
    r"""
    ^c[rw-]{5}-\S{3}[.+]?\s+\d+\s+\S+\s+(?:65534|nobody|nogroup)\s+\d+,[^\n]*\bnvidia
    """,
    re.MULTILINE | re.VERBOSE,
)


def groups_dropped(facts: Facts) -> Iterator[Finding]:
    """The nodes are for a group, and a rootless container was started without the user's groups."""
    text = "\n".join(passages(facts))
    runs = [match["options"] for match in _ROOTLESS.finditer(text)]
    closed = [node for node in _nodes(text) if node.name.startswith("nvidia") and not node.is_open and node.for_group]
    hosts = [node for node in closed if node.group not in ("root", "65534", "nobody", "nogroup")]
    fails = re.search(r"Insufficient Permissions|[Pp]ermission denied|NVML_ERROR_NO_PERMISSION", text)
    if runs and hosts and fails and "keep-groups" not in text and (_NOBODY.search(text) or "label=disable" in text):
        node = hosts[0]
        words = f"{node.path} is for the group {node.group} only, and podman run has no --group-add keep-groups"
        yield DROPPED.found(words, {"path": node.path, "group": node.group}, confidence=Confidence.LIKELY)


RULES = (file_for_node, outside_group, not_in_device_list, groups_dropped)
