"""Names that were typed in a text, for the commands of its fixes: a container, its image, a container's number on Proxmox."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts, sessions

_WITH_VALUE = re.compile(
    r"""
    -[vepwumhl] | --(?: volume | env | publish | name | gpus | device | shm-size | network | net | ipc | ulimit | workdir | user
    | runtime | entrypoint | memory | cpus | cpuset-cpus | security-opt | mount | hostname | label | restart | pid | env-file
    | group-add | cap-add | cap-drop | add-host | dns | log-opt | platform | pull | tmpfs | userns | annotation )
    """,
    re.VERBOSE,
)
_ENGINES = ("docker", "podman", "nerdctl")
_NAME = re.compile(r"[\w][\w./:@-]{0,120}", re.ASCII)
_CTID = re.compile(
    r"""
    /etc/pve/lxc/(\d{3,6})\.conf
    | \bpct\ (?:enter|exec|start|stop|config|set|reboot|push|status)\ (\d{3,6})\b
    """,
    re.VERBOSE,
)
_OF_COMPOSE = re.compile(r"(?m)^\s+image: *[\"']?([\w./:@-]+)[\"']?\s*$")
_OF_RUNNING = ("exec", "logs", "restart", "start", "stop", "inspect", "attach", "kill")


def names(facts: Facts) -> dict[str, str]:
    """image, container, ctid: each only if the text has one."""
    if not facts.texts.alone:
        return {}
    commands = sessions.commands([line for text in facts.texts.all for line in text.lines])
    found: dict[str, set[str]] = {"image": set(_OF_COMPOSE.findall(facts.texts.words)), "container": set(), "ctid": set()}
    for command in commands:
        words = list(command.words)
        words = words[1:] if words[0] == "sudo" else words
        if words[0] in _ENGINES and len(words) > 2:
            for kind, name in _of_engine(words[1], words[2:]):
                found[kind].add(name)
    found["ctid"] = {first or second for first, second in _CTID.findall(facts.texts.words)}
    return {kind: values.pop() for kind, values in found.items() if len(values) == 1}


def _of_engine(verb: str, words: list[str]) -> Iterator[tuple[str, str]]:
    if verb not in ("run", "create", *_OF_RUNNING):
        return
    kind = "container" if verb in _OF_RUNNING else "image"
    rest = iter(words)
    for word in rest:
        if word == "--name":
            yield "container", next(rest, "")
        elif word.startswith("--name="):
            yield "container", word.partition("=")[2]
        elif _WITH_VALUE.fullmatch(word):
            next(rest, "")
        elif not word.startswith("-"):
            if _NAME.fullmatch(word):
                yield kind, word
            return
