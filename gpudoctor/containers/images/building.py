"""Builds the images that have a recipe: a folder with a Dockerfile whose argument BASE is the base image."""

from __future__ import annotations

import datetime
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudoctor.containers.images import builder, catalog, lock, registry, wheel
from gpudoctor.containers.images import reference as references
from gpudoctor.errors import UserError, WorkError
from gpudoctor.version import __version__

if TYPE_CHECKING:
    from gpudoctor.containers.engine.client import Engine
    from gpudoctor.containers.images.catalog import Image

RECIPE, RECIPE_HASH = "io.gpudoctor.recipe", "io.gpudoctor.recipe-hash"
BASE_NAME, BASE_DIGEST = "org.opencontainers.image.base.name", "org.opencontainers.image.base.digest"
_NO_FILES_OF_A_BUILD = ("image.yaml", "README.md")


@dataclass(frozen=True)
class Base:
    """The base of an image."""

    name: str  # its reference, as given
    digest: str
    argument: str  # passed to the Dockerfile: with a digest, if a registry knows it


@dataclass(frozen=True)
class Built:
    reference: str
    id: str
    is_new: bool


def build(
    engine: Engine,
    image: Image,
    base: Base,
    *,
    tag: str = "",
    is_forced: bool = False,
    options: Sequence[str] = (),
    tell: Callable[[str], None] = lambda line: None,
) -> Built:
    """Builds, unless the present image has the same recipe and base. options: for the engine's builder."""
    folder = _folder(image)
    reference = tag or image.reference
    with _context(folder) as context:
        made_of = {RECIPE: image.name, RECIPE_HASH: _hash(context, options), BASE_DIGEST: base.digest}
        found = engine.image(reference)
        if found and not is_forced and made_of.items() <= _labels(found).items():
            return Built(reference, str(found["Id"]), False)
        labels = {**made_of, BASE_NAME: base.name, **_about(image, folder)}
        arguments = [f"--tag={reference}", f"--build-arg=BASE={base.argument}"]
        arguments += [f"--label={key}={value}" for key, value in labels.items()]
        builder.run(engine, image.name, [*arguments, *(["--no-cache"] if is_forced else []), *options, str(context)], tell)
    made = engine.image(reference)
    if made is None:
        raise WorkError(f"{engine.program} built {reference}, but does not list it: its builder may store images elsewhere")
    return Built(reference, str(made["Id"]), True)


def base_of(image: Image, mirror: str | None = None) -> str:
    """The reference in the recipe's Dockerfile, ARG BASE=…; with `mirror`, moved there ("": the mirror in the environment)."""
    found = re.search(r"^ARG BASE=(\S+)", (_folder(image) / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise UserError(f"the Dockerfile of {image.name} has no ARG BASE=…, so its base is unknown")
    return found[1] if mirror is None else catalog.elsewhere(found[1], mirror)


def resolved(engine: Engine, name: str, reference: str, locked: bool) -> Base:
    """The base with its current digest, or that of the lock file; the engine's image if the registry does not answer."""
    if locked:
        pinned = lock.pin(name, reference)
        return Base(reference, references.parse(pinned).digest, pinned)
    wanted = references.parse(reference)
    try:
        digest = registry.digest(wanted, engine)
        return Base(reference, digest, str(wanted.pinned(digest)))
    except (UserError, WorkError):
        found = engine.image(reference)
        if found is None:
            raise
        return Base(reference, str(found["Id"]), reference)


def _folder(image: Image) -> Path:
    if image.recipe is None:
        raise UserError(f"{image.name} is pulled, not built here: gpudoctor images pull {image.name}")
    return image.recipe


@contextmanager
def _context(folder: Path) -> Iterator[Path]:
    """The build context: the recipe's files, and gpudoctor itself if the Dockerfile copies it."""
    with tempfile.TemporaryDirectory(prefix="gpudoctor-build-") as name:
        context = Path(name, "context")
        shutil.copytree(folder, context, ignore=shutil.ignore_patterns(*_NO_FILES_OF_A_BUILD))
        if "COPY gpudoctor-*.whl" in (context / "Dockerfile").read_text(encoding="utf-8"):
            wheel.write(context)
        yield context


def _hash(context: Path, options: Sequence[str]) -> str:
    digest = hashlib.sha256(repr(list(options)).encode())
    for path in sorted(path for path in context.rglob("*") if path.is_file()):
        digest.update(f"\n{path.relative_to(context)} {hashlib.sha256(path.read_bytes()).hexdigest()}".encode())
    return f"sha256:{digest.hexdigest()}"


def _labels(found: dict[str, Any]) -> dict[str, str]:
    return (found.get("Config") or {}).get("Labels") or found.get("Labels") or {}


def _about(image: Image, folder: Path) -> dict[str, str]:
    """https://github.com/opencontainers/image-spec/blob/main/annotations.md"""
    now = datetime.datetime.now(datetime.timezone.utc)
    said = {"title": image.title, "version": image.versions.get(image.name, __version__), "revision": _revision(folder)}
    said["created"] = now.isoformat(timespec="seconds").replace("+00:00", "Z")
    return {**{f"org.opencontainers.image.{key}": value for key, value in said.items()}, **image.labels}


def _revision(folder: Path) -> str:
    """The commit, if gpudoctor runs from a checkout; the version if it is installed, perhaps inside another checkout."""
    is_ours = _git(folder, "ls-files", "Dockerfile")
    return (is_ours and _git(folder, "rev-parse", "HEAD")) or f"v{__version__}"


def _git(folder: Path, *question: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *question], capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
