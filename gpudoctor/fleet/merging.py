"""A fleet from saved files alone."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from gpudoctor import catalog, doctor
from gpudoctor.choices import BURN, LEVELS
from gpudoctor.errors import UserError
from gpudoctor.files import opening
from gpudoctor.fleet import workers
from gpudoctor.fleet.aggregate import aggregated
from gpudoctor.fleet.collected import Collector, Seen
from gpudoctor.fleet.judging import Judge
from gpudoctor.fleet.model import NODE_SCHEMA, SCHEMA, Fleet, State
from gpudoctor.fleet.nodesets import is_name
from gpudoctor.fleet.reading import Read, Reader, Unanswered
from gpudoctor.plain import plain

MOST_VALUES = 20_000_000  # in the report of a fleet
ENDINGS = (".json", ".json.gz", ".html", ".tar.gz", ".tgz")
_NUMBERS = re.compile(r"([0-9]{1,18})")
_OPEN = ("/dev/", "/proc/")  # pipes that a shell holds open: <(...)
Change = Callable[[str, Read], "tuple[str, Read]"]
Tell = Callable[[str], None]


def judge() -> Judge:
    return Judge({level: doctor.select(catalog.checks(), level) for level in (*LEVELS, BURN)})


def collector() -> Collector:
    return Collector(judge())


def opened(path: str, tell: Tell) -> Fleet:
    """A fleet from its JSON report, or from a folder of its nodes."""
    if os.path.isfile(path):  # noqa: PTH113 (a closed folder is no error)
        data = opening.content(path)
        if data.lstrip()[:1] == b"{" and opening.schema_of(data, path) == SCHEMA:
            opening.must_be_of_few_values(data, path, MOST_VALUES)
            try:
                return msgspec.json.decode(data, type=Fleet)
            except msgspec.ValidationError as failure:
                raise UserError(f"{path} is a broken report of a fleet: {failure}") from None
    return merged([path], (), None, tell)


def files(paths: Iterable[str]) -> dict[str, str]:
    """Name of a node -> its file, node2 before node10. A folder stands for the files in it.

    UserError if two files are of the same node.
    """
    found: dict[str, str] = {}
    for path in paths:
        inside = sorted(_inside(Path(path))) if os.path.isdir(path) else [path]  # noqa: PTH112 (a closed folder is no error)
        if not inside:
            raise UserError(f"{path} contains no file of a node ({', '.join(ENDINGS)})")
        for file in inside:
            if file == path and not os.path.exists(file):  # noqa: PTH110 (likewise)
                raise UserError(f"{file} does not exist")
            name = name_of(file)
            if name in found:
                raise UserError(f"two files are of the node {name}, as a node is named after its file: {found[name]} and {file}")
            found[name] = file
    if not found:
        raise UserError("no files given")
    return dict(sorted(found.items(), key=lambda item: _by_number(item[0])))


def _by_number(name: str) -> list[str | int]:
    """Racks and nodes in the order of their numbers: text and numbers take turns."""
    return [int(part) if place % 2 else part for place, part in enumerate(_NUMBERS.split(name))]


def _inside(folder: Path) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.name.endswith(ENDINGS) and not entry.name.startswith(("fleet.", ".")):
            yield str(entry)


def name_of(path: str) -> str:
    """`node017` of `day1/node017.json`."""
    name = Path(path).name
    ending = next((each for each in sorted(ENDINGS, key=len, reverse=True) if name.endswith(each)), "")
    return plain(name.removesuffix(ending) or name).replace("\n", "\\n")


def merged(
    paths: Iterable[str], expected: Sequence[str] = (), change: Change | None = None, tell: Tell = lambda doing: None
) -> Fleet:
    """expected: nodes that must have a file. change: what becomes of a node before it is judged, such as redaction."""
    given = files(paths)
    reader, collecting = Reader(), collector()

    def see(name: str, path: str) -> Seen:
        found = read(reader, name, path)
        return collecting.seen(*(change(name, found) if change else (name, found)))

    seen: list[Seen] = []
    # What redacts remembers names from node to node, so it stays in one process.
    processes = 1 if change else workers.count(len(given))
    for node in workers.seen(tuple(given.items()), collecting.alike, see, processes):
        seen.append(node)
        if not len(seen) % 25:
            tell(f"Read {len(seen)} of {len(given)} nodes")
    if processes > 1:
        order = {name: place for place, name in enumerate(given)}
        seen.sort(key=lambda node: order[node.name])
    for name in expected:
        if name not in given:
            absent = Unanswered(NODE_SCHEMA, name, State.MISSING)
            seen.append(collecting.seen(*(change(name, absent) if change else (name, absent))))
    tell("Comparing")
    return aggregated(seen, collecting.alike)


def _mode(path: str) -> int:
    try:
        return Path(path).stat().st_mode
    except OSError:  # reading it says why
        return 0


def read(reader: Reader, name: str, path: str) -> Read:
    """A file that cannot be used costs its own node only."""
    if not path.startswith(_OPEN) and (mode := _mode(path)):
        if stat.S_ISFIFO(mode):
            return Unanswered(NODE_SCHEMA, name, State.INVALID, "is a pipe, which nothing may ever write to")
        if stat.S_ISCHR(mode) or stat.S_ISSOCK(mode):
            return Unanswered(NODE_SCHEMA, name, State.INVALID, "is a device or a socket, which may never end")
    try:
        found = reader.file(path)
    except UserError as failure:
        said = str(failure).removeprefix(f"{path} ").removesuffix(f": {opening.READABLE}")
        return Unanswered(NODE_SCHEMA, name, State.INVALID, said)
    if not is_name(name):
        return Unanswered(NODE_SCHEMA, name, State.INVALID, "the name of the file is not that of a node")
    return found
