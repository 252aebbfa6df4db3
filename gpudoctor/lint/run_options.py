"""The words of a `docker run` -> a service with the keys that a compose file has for the same options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpudoctor.lint.budget import spend
from gpudoctor.lint.compose import Service
from gpudoctor.lint.shell import Word
from gpudoctor.lint.yaml_lines import Node

_FLAGS_TEXT = """
    detach disable-content-trust help init interactive no-healthcheck oom-kill-disable privileged publish-all quiet read-only rm
    sig-proxy tty use-api-socket env-host http-proxy no-hostname no-hosts passwd read-only-tmpfs replace rmi rootfs tls-verify
    unsetenv-all insecure-registry
"""
FLAGS = frozenset(_FLAGS_TEXT.split())  # options without a value, of Docker, Podman and nerdctl
_SHORT_FLAGS = "ditPq"
_LONG = {"e": "env", "v": "volume"}
_LISTS = {
    "cap-add": "cap_add",
    "device": "devices",
    "env": "environment",
    "tmpfs": "tmpfs",
    "volume": "volumes",
    "mount": "volumes",
}
_TEXTS = {"runtime": "runtime", "shm-size": "shm_size", "ipc": "ipc", "entrypoint": "entrypoint", "env-file": "env_file"}
_SEVERAL = re.compile(r"-{1,2}[\w-]+\s|.*\s-", re.DOTALL)  # a variable that stands for several words
_FOR_OPTIONS = re.compile(r"arg|opt|flag|param|extra|gpu|volume|mount|env|port|net|device|user", re.IGNORECASE)
_LEFT_OUT = ("", "...", "…", "[OPTIONS]", "[options]")
_ID = re.compile(r"device=(.+)")


@dataclass(frozen=True)
class Run:
    """service.complete: all of its options are written there. gpus: the value of --gpus. after: the words after the image."""

    engine: str
    service: Service
    gpus: Word | None
    after: tuple[Word, ...]


def parse(words: Sequence[Word], engine: str, line: int, image: Node | None = None) -> Run:
    """image: where all words are options, as in a devcontainer.json."""
    rest = iter([part for word in words for part in _parts(word)])
    options: list[tuple[str, Word]] = []
    complete, named = True, image
    for word in rest:
        if word.text == "--":
            continue
        if word.text.startswith("-"):
            options += _option(word, rest)
        elif word.text in _LEFT_OUT or (word.text.startswith("$") and _FOR_OPTIONS.search(word.text)):
            complete = False
        elif image is None:
            named = Node(word.text, word.line)
            break
    after = tuple(rest)
    node = _service(options, engine, line)
    if named:
        node["image"] = named
    if after:
        node["command"] = Node([Node(word.text, word.line) for word in after], after[0].line)
    gpus = next((word for name, word in options if name == "gpus"), None)
    return Run(engine, Service(f"{engine} run", Node(node, line), complete and named is not None), gpus, after)


def _parts(word: Word) -> Iterator[Word]:
    if not word.text.startswith("-") or not _SEVERAL.match(word.text):
        yield word
        return
    spend(16 * len(word.text))  # words take more time than characters
    try:
        texts = shlex.split(word.text)
    except ValueError:
        texts = word.text.split()
    for text in texts:
        yield Word(text, word.line)


def _option(word: Word, rest: Iterator[Word]) -> Iterator[tuple[str, Word]]:
    """Its long name and value; `-itv a:b` is three."""
    if word.text.startswith("--"):
        name, equals, value = word.text[2:].partition("=")
        if equals or name in FLAGS:
            yield name, Word(value if equals else "true", word.line)
        else:
            yield name, Word(_next(rest), word.line)
        return
    for at, letter in enumerate(word.text[1:], 2):
        if letter not in _SHORT_FLAGS:
            value = word.text[at:].removeprefix("=") or _next(rest)
            yield _LONG.get(letter, letter), Word(value, word.line)
            return


def _next(rest: Iterator[Word]) -> str:
    found = next(rest, None)
    return found.text if found else ""


def _service(options: list[tuple[str, Word]], engine: str, line: int) -> dict[str, Node]:
    node: dict[str, Node] = {"runtime": Node("nvidia", line)} if engine == "nvidia-docker" else {}
    lists: dict[str, list[Node]] = {}
    for name, word in options:
        if name in _LISTS:
            values = word.text.split(",") if name == "cap-add" else [word.text]
            lists.setdefault(_LISTS[name], []).extend(Node(value, word.line) for value in values)
        elif name in _TEXTS:
            node[_TEXTS[name]] = Node(word.text, word.line)
        elif name == "privileged":
            node["privileged"] = Node(word.text.lower(), word.line)
        elif name == "ulimit":
            limit, _, value = word.text.partition("=")
            node["ulimits"] = Node({**node.get("ulimits", Node()).mapping, limit: Node(value, word.line)}, word.line)
        elif name == "gpus":
            node["gpus"] = _request(word)
    return {**node, **{key: Node(values, values[0].line) for key, values in lists.items()}}


def _request(word: Word) -> Node:
    """--gpus as the `gpus` of a service."""
    text = word.text.strip("\"'")
    named = _ID.search(text)
    if named:
        ids = [Node(one, word.line) for one in re.split(r"[,;]", named[1].split('"')[0])]
        return Node([Node({"device_ids": Node(ids, word.line)}, word.line)], word.line)
    if text.isdecimal():
        return Node([Node({"count": Node(text, word.line)}, word.line)], word.line)
    return Node(word.text or "all", word.line)
