"""The images that have a name: contents, requirements, and references for the engine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gpudoctor import compiled, settings
from gpudoctor.containers.images import reference as references
from gpudoctor.containers.images import released
from gpudoctor.containers.images.needs import Needs, pair_of
from gpudoctor.errors import UserError
from gpudoctor.folders import shipped
from gpudoctor.spelling import nearest

BUILT = "built"  # the family of the images that have a recipe
REGISTRY = "GPUDOCTOR_REGISTRY"


@dataclass(frozen=True)
class Image:
    """An image. If it was given as a full reference, that is its name, and the other fields may be empty."""

    name: str
    reference: str
    title: str = ""
    family: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    needs: Needs = field(default_factory=Needs)
    recipe: Path | None = None  # the folder of its Dockerfile
    labels: Mapping[str, str] = field(default_factory=dict)  # of a recipe
    source: tuple[str, ...] = ()
    verified: bool = True
    unverified: tuple[str, ...] = ()  # fields and versions that are unverified
    printed_driver: str = ""  # the driver branch that its release notes require
    digest: str = ""  # as read when the table was written
    note: str = ""


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """images/<family>/image.yaml."""

    family: str
    title: str
    repository: str
    naming: str
    about: str
    size: str = ""


class Requirements(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The requirements of a recipe that differ from those of its base."""

    cuda: str | None = None
    driver: str | None = None
    compat: str | None = None
    require: str | None = None
    architectures: tuple[str, ...] | None = None
    any_gpu: bool = False


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """images/<name>/image.yaml of an image that is built here."""

    name: str
    title: str
    base: str
    versions: dict[str, str] = {}
    needs: Requirements = Requirements()
    labels: dict[str, str] = {}


OF_FAMILY = b'{"family":'


@cache
def images() -> dict[str, Image]:
    """Name -> image: published images, newest first in each family, then those that are built here."""
    found = {row.name: _published(row) for row in released.images()}
    for folder, text in _files():
        if not text.startswith(OF_FAMILY):
            image = _recipe(folder, msgspec.json.decode(text, type=Recipe))
            found[image.name] = image
    return found


@cache
def families() -> dict[str, Family]:
    """Family -> the contents of its image.yaml."""
    read = [msgspec.json.decode(text, type=Family) for _, text in _files() if text.startswith(OF_FAMILY)]
    return {family.family: family for family in read}


def _files() -> Iterator[tuple[Path, bytes]]:
    for path in sorted(shipped("images").glob("*/image.yaml")):
        yield path.parent, compiled.as_json(path)


def _published(row: released.Released) -> Image:
    return Image(**{name: getattr(row, name) for name in row.__dataclass_fields__})


def _recipe(folder: Path, recipe: Recipe) -> Image:
    base = _known(recipe.base)
    needs = recipe.needs
    given: dict[str, Any] = {name: value for name in ("driver", "architectures") if (value := getattr(needs, name))}
    if needs.any_gpu:
        given["any_gpu"] = True
    if needs.cuda:
        given["cuda"] = pair_of(needs.cuda)
    if needs.compat is not None:
        given["compat"] = needs.compat or None
    if needs.require is not None:
        given["require"] = (needs.require,) if needs.require else ()
    return Image(
        name=recipe.name,
        reference=f"gpudoctor/{recipe.name}:latest",
        title=recipe.title,
        family=BUILT,
        versions={**(base.versions if base else {}), **recipe.versions},
        needs=replace(base.needs if base else Needs(), **given),
        recipe=folder,
        labels=recipe.labels,
    )


def _known(reference: str) -> Image | None:
    """The published image that a reference names, in any registry: a mirror keeps repository and tag."""
    wanted = references.parse(reference)
    if not wanted.name.endswith(tuple(f"/{repository}" for repository in released.REPOSITORIES)):
        return None  # early, because reading the table takes a tenth of a second
    for row in released.images():
        known = references.parse(row.reference)
        if known.tag == wanted.tag and wanted.name.endswith(f"/{known.repository}"):
            return _published(row)
    return None


def resolve(text: str, registry: str = "") -> Image:
    """The image with a name, or with a full reference. UserError for anything else: names are not guessed.

    registry: replaces the registry of named images; a host, or a host with folders; default GPUDOCTOR_REGISTRY.
    """
    if re.search("[/:@]", text):
        references.parse(text)
        known = _known(text)
        return replace(known, name=text, reference=text) if known else Image(text, text)
    image = images().get(text) or _exact(text)
    if image is None:
        raise UserError(_unknown(text))
    return moved(image, registry)


def moved(image: Image, registry: str = "") -> Image:
    """With its reference in another registry; images that are built here do not move."""
    return image if image.recipe else replace(image, reference=elsewhere(image.reference, registry))


def _exact(text: str) -> Image | None:
    row = released.exact_cuda(text)
    return _published(row) if row else None


def elsewhere(reference: str, registry: str) -> str:
    prefix = (registry or os.environ.get(REGISTRY) or settings.current().registry or "").rstrip("/")
    if not prefix:
        return reference
    try:
        if "://" in prefix:
            raise UserError("remove http:// or https://")
        references.parse(f"{prefix}/image")
    except UserError as failure:
        raise UserError(f"the registry must be a host, optionally with a port and folders, not {prefix!r}: {failure}") from None
    known = references.parse(reference)
    return f"{prefix}/{known.repository}:{known.tag}"


def _unknown(text: str) -> str:
    if text in families():
        newest = next(image.name for image in images().values() if image.family == text)
        return f"{text} is a family of images: name one of them, such as {newest} (list them: gpudoctor images list {text})"
    line = f"unknown image {text!r}"
    if month := re.fullmatch(r"pytorch-(\d\d\.(?:0[1-9]|1[0-2]))", text):
        line = released.no_such_month(month[1])
    elif near := nearest(text, images()):
        line += f"; did you mean {', '.join(near)}?"
    return f"{line} (list the names: gpudoctor images list; a full reference contains a / or a :)"
