"""A compose file as its services, with `extends` resolved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpudoctor.lint import yaml_lines
from gpudoctor.lint.bases import Base, base
from gpudoctor.lint.yaml_lines import Node, NoYaml

Reader = Callable[[str], str | None]
_DEEPEST = 8  # levels of extends
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


def parse(text: str, read: Reader = lambda name: None, gpu_elsewhere: frozenset[str] = frozenset()) -> Compose:
    """`read` returns the text of another file that a service extends; None if it cannot be read."""
    root = yaml_lines.parse(text)
    services = root.at("services").mapping
    if not services and not any(root.at(key) for key in ("include", "name", "volumes", "networks", "x-common")):
        raise NoYaml(0, "it has no services")
    found = (_resolved(name, root, read, 0) for name, node in services.items() if node.mapping)
    return Compose(tuple(found), root.at("version"), gpu_elsewhere)


def _resolved(name: str, root: Node, read: Reader, depth: int) -> Service:
    node = root.at("services", name)
    extends = node.at("extends")
    if not extends:
        return Service(name, node)
    other = extends.text or extends.at("service").text
    file = extends.at("file").text
    try:
        elsewhere = yaml_lines.parse(text) if file and (text := read(file)) is not None else None
    except NoYaml:
        elsewhere = None
    where = elsewhere if file else root
    if where is None or depth > _DEEPEST or not where.at("services", other):
        return Service(name, node, complete=False)
    parent = _resolved(other, where, read, depth + 1)
    # Content of another file is reported at the line that extends it.
    inherited = _moved(parent.node, extends.line) if file else parent.node
    return Service(name, _merged(inherited, node), parent.complete)


def _moved(node: Node, line: int) -> Node:
    if isinstance(node.value, dict):
        return Node({key: _moved(value, line) for key, value in node.value.items()}, line)
    if isinstance(node.value, list):
        return Node([_moved(item, line) for item in node.value], line)
    return Node(node.value, line, node.is_string)


def _merged(below: Node, above: Node) -> Node:
    """`above` wins; mappings are merged, some lists put together."""
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
