"""A compose file as its services, with `extends` resolved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpudoctor.lint import yaml_lines
from gpudoctor.lint.bases import Base, base
from gpudoctor.lint.budget import ENTRY, spend
from gpudoctor.lint.yaml_lines import Node, NoYaml, Value

Reader = Callable[[str], str | None]
_DEEPEST = 8  # levels of extends
_MOST_FILES = 20  # that one file extends
_APPENDED = ("devices", "volumes", "cap_add")


@dataclass(frozen=True)
class Service:
    """complete: everything that it extends could be read."""

    name: str
    node: Node
    complete: bool = True

    @property
    def line(self) -> int:
        return self.node.line

    @property
    def image(self) -> Node:
        return self.node.at("image")

    @property
    def base(self) -> Base:
        """The base of its image; for a service that builds its image, an empty one, whatever the name."""
        return base("" if self.node.at("build") else self.image.text)

    @property
    def environment(self) -> dict[str, Node]:
        """Variables set here, as a list or as a mapping; one without a value comes from the shell."""
        found = dict(self.node.at("environment").mapping)
        spend(ENTRY * len(found))
        for item in self.node.at("environment"):
            name, equals, value = item.text.partition("=")
            found[name] = Node(value if equals else None, item.line)
        return found

    @property
    def runtime(self) -> Node:
        return self.node.at("runtime")

    @property
    def reservations(self) -> Node:
        return self.node.at("deploy", "resources", "reservations", "devices")

    @property
    def requests(self) -> list[Node]:
        """Every device request, in `gpus` and in `deploy`."""
        return [*self.node.at("gpus"), *self.reservations]

    @property
    def devices(self) -> dict[str, int]:
        """Device on the host -> line."""
        return {(item.text.partition(":")[0] or item.at("source").text): item.line for item in self.node.at("devices")}

    @property
    def asks_for_gpu(self) -> bool:
        """Whether it requests a GPU in any way, valid or not."""
        wrongly = ("limits", "devices"), ("reservations", "generic_resources")
        return bool(
            self.node.at("gpus")
            or self.reservations
            or self.runtime.text.startswith(("nvidia", "$"))
            or any(self.node.at("deploy", "resources", *path) for path in wrongly)
            or any("nvidia" in device or device.startswith(("/dev/dxg", "/dev/nv", "$")) for device in self.devices)
        )

    def values_of(self, key: str) -> Iterator[str]:
        """The entries of a list such as volumes, in their short or long form."""
        for item in self.node.at(key):
            yield item.text or " ".join(node.text for node in item.mapping.values())


@dataclass(frozen=True)
class Compose:
    """gpu_elsewhere: services that get a GPU in another compose file of the folder; files are merged when both are used."""

    services: tuple[Service, ...]
    version: Node
    gpu_elsewhere: frozenset[str] = frozenset()


class _Others:
    """The files that services extend, each read once."""

    def __init__(self, read: Reader) -> None:
        self.read = read
        self.known: dict[str, Node | None] = {}

    def file(self, name: str) -> Node | None:
        """None if it cannot be read."""
        if name not in self.known and len(self.known) < _MOST_FILES:
            self.known[name] = self._parsed(name)
        return self.known.get(name)

    def _parsed(self, name: str) -> Node | None:
        text = self.read(name)
        try:
            return None if text is None else yaml_lines.parse(text)
        except NoYaml:
            return None


def parse(text: str, read: Reader = lambda name: None, gpu_elsewhere: frozenset[str] = frozenset()) -> Compose:
    """`read` returns the text of another file that a service extends; None if it cannot be read."""
    root = yaml_lines.parse(text)
    others = _Others(read)
    services = root.at("services").mapping
    if not services and not any(root.at(key) for key in ("include", "name", "volumes", "networks", "x-common")):
        raise NoYaml(0, "it has no services")
    found = (_resolved(name, root, others, 0) for name, node in services.items() if node.mapping)
    return Compose(tuple(found), root.at("version"), gpu_elsewhere)


def _resolved(name: str, root: Node, others: _Others, depth: int) -> Service:
    node = root.at("services", name)
    extends = node.at("extends")
    if not extends:
        return Service(name, node)
    other = extends.text or extends.at("service").text
    file = extends.at("file").text
    where = others.file(file) if file else root
    if where is None or depth > _DEEPEST or not where.at("services", other):
        return Service(name, node, complete=False)
    parent = _resolved(other, where, others, depth + 1)
    # Content of another file is reported at the line that extends it.
    inherited = _moved(parent.node, extends.line) if file else parent.node
    return Service(name, _merged(inherited, node), parent.complete)


def _moved(node: Node, line: int) -> Node:
    """The node with all that is in it at one line; what several places share is still shared."""
    done: dict[int, Node] = {}

    def moved(one: Node) -> Node:
        found = done.get(id(one.value))
        if found is None:
            if isinstance(one.value, str):
                return Node(one.value, line, one.is_string)
            found = done[id(one.value)] = Node(_of_each(one.value, moved), line, one.is_string)
        return found

    return moved(node)


def _of_each(value: Value, make: Callable[[Node], Node]) -> Value:
    if isinstance(value, dict):
        spend(ENTRY * len(value))
        return {key: make(one) for key, one in value.items()}
    if isinstance(value, list):
        spend(ENTRY * len(value))
        return [make(one) for one in value]
    return value


def _merged(below: Node, above: Node) -> Node:
    """`above` wins; mappings are merged, some lists put together."""
    spend(ENTRY * (len(below.mapping) + len(above.mapping)))
    both = dict(below.mapping)
    for key, value in above.mapping.items():
        old = both.get(key)
        if old and old.mapping and value.mapping:
            both[key] = _merged(old, value)
        elif old and old.lists and value.lists and key in _APPENDED:
            both[key] = Node([*old.list, *value.list], value.line)
        elif old and key == "environment" and old.mapping and value.lists:
            both[key] = Node(
                [*(Node(f"{name}={node.text}", node.line) for name, node in old.mapping.items()), *value.list], value.line
            )
        elif old and key == "environment" and old.lists and value.lists:
            both[key] = Node([*old.list, *value.list], value.line)
        else:
            both[key] = value
    return Node(both, above.line)
