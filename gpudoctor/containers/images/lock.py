"""gpudoctor.lock: the digest that each tag had when it was pinned. A tag can move, a digest cannot."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor import plain_yaml
from gpudoctor.containers.images import reference as references
from gpudoctor.errors import UserError
from gpudoctor.plain import plain

if TYPE_CHECKING:
    from gpudoctor.containers.images.catalog import Image

FILE = Path("gpudoctor.lock")
_HEAD = """\
# Written by `gpudoctor images lock`: the digest that each image had on that day. Keep this file with your code.
# `gpudoctor images pull NAME --locked` and `gpudoctor run --image NAME --locked` use exactly these digests.
"""
_MOST_BYTES = 1 << 20  # thousands of images
_MOST_LEVELS = 5
_FIELDS = {"reference", "digest", "date"}


@dataclass(frozen=True)
class Pin:
    reference: str  # as in the catalog at that time: nvcr.io/nvidia/pytorch:24.08-py3
    digest: str
    date: str  # when this digest was first seen


def read(file: Path = FILE) -> dict[str, Pin]:
    """Name -> pin; empty if the file does not exist. UserError if it is invalid or unreadable."""
    try:
        with open(file, "rb", opener=_without_waiting) as opened:
            data = opened.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as failure:
        raise UserError(f"cannot read {file}: {failure.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise UserError(f"{file} is not a lock file: it is larger than {_MOST_BYTES >> 20} MB")
    found = _parsed(data, file) or {}
    entries = found.get("images") if isinstance(found, dict) else None
    if not isinstance(entries, dict):
        raise UserError(f"{file} is not a lock file: `images` is missing")
    return {str(name): _pin(file, plain(str(name)), entry) for name, entry in entries.items()}


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _parsed(data: bytes, file: Path) -> object:
    """Tables of texts; UserError for what no lock file has: an alias, more levels."""
    import yaml

    try:
        text = data.decode()
        other = plain_yaml.first_other(text, _MOST_LEVELS)
        if not other:
            return yaml.load(text, getattr(yaml, "CBaseLoader", yaml.BaseLoader))
        line = other[1]
    except (yaml.YAMLError, ValueError) as failure:
        mark = getattr(failure, "problem_mark", None)
        line = mark.line + 1 if mark else 0
    where = f" in line {min(line, max(len(data.splitlines()), 1))}" if line else ""
    raise UserError(f"{file} is not a lock file: invalid YAML{where}")


def _is_a_date(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _pin(file: Path, name: str, entry: object) -> Pin:
    if not isinstance(entry, dict) or set(entry) != _FIELDS:
        raise UserError(f"{file}: {name} must have exactly the fields reference, digest and date")
    if not all(isinstance(value, str) for value in entry.values()):
        raise UserError(f"{file}: the fields of {name} must be texts")
    pin = Pin(**entry)
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", pin.digest):
        raise UserError(f"{file}: the digest of {name} is invalid: {plain(pin.digest)}")
    if not _is_a_date(pin.date):
        raise UserError(f"{file}: the date of {name} is invalid: {plain(pin.date)}")
    references.parse(pin.reference)
    return pin


def dump(pins: Mapping[str, Pin]) -> bytes:
    """Sorted by name, so that a change of one image changes only its lines."""
    import yaml

    entries = {name: asdict(pins[name]) for name in sorted(pins)}
    return (_HEAD + yaml.safe_dump({"images": entries}, sort_keys=False, width=1000)).encode()


def renewed(pins: Mapping[str, Pin], found: Mapping[str, tuple[str, str]]) -> dict[str, Pin]:
    """found: name -> current reference and digest. An unchanged pin keeps its date."""
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    new = {name: Pin(reference, digest, today) for name, (reference, digest) in found.items()}
    return {**pins, **{name: pins[name] if _is_same(pins.get(name), pin) else pin for name, pin in new.items()}}


def _is_same(old: Pin | None, new: Pin) -> bool:
    return old is not None and (old.reference, old.digest) == (new.reference, new.digest)


def pinned(image: Image, locked: bool, file: Path = FILE) -> str:
    """The reference to pass to an engine: that of the image, or with `locked` the digest in the lock file.

    For an image that is built here, the lock file contains the base; the image itself has no digest before it is built.
    """
    if not locked or image.recipe is not None:
        return image.reference
    return pin(image.name, image.reference, file)


def pin(name: str, reference: str, file: Path = FILE) -> str:
    """The pinned form of a reference, which may be in a mirror: the same image has the same digest everywhere."""
    wanted = references.parse(reference)
    if wanted.digest:
        return str(wanted.pinned(wanted.digest))
    found = read(file).get(name)
    if found is None:
        raise UserError(f"{file} has no pin for {name}. Create one: gpudoctor images lock {name}")
    if references.parse(found.reference).tag != wanted.tag:
        raise UserError(
            f"{file} pins {name} as {found.reference}, which is now {reference}. Update it: gpudoctor images lock {name}"
        )
    return str(wanted.pinned(found.digest))
