"""Image references as Docker reads them: [registry/]repository[:tag][@digest].

The grammar: https://github.com/distribution/reference/blob/main/reference.go
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gpudoctor.errors import UserError

DOCKER_HUB = "docker.io"
LONGEST_REPOSITORY = 255

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_REGISTRY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?")
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")


@dataclass(frozen=True)
class Reference:
    """An image in a registry. tag: empty if only a digest was given."""

    registry: str  # docker.io, nvcr.io, localhost:5000
    repository: str  # library/debian, nvidia/pytorch
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        """In full, so that an engine does not have to guess the registry."""
        return f"{self.name}{':' if self.tag else ''}{self.tag}{'@' if self.digest else ''}{self.digest}"

    @property
    def name(self) -> str:
        return f"{self.registry}/{self.repository}"

    @property
    def short(self) -> str:
        """The usual short form: debian:12 for docker.io/library/debian:12."""
        return str(self).removeprefix(f"{DOCKER_HUB}/").removeprefix("library/") if self.registry == DOCKER_HUB else str(self)

    @property
    def wanted(self) -> str:
        """What to request from a registry: the digest if there is one, because a tag can move."""
        return self.digest or self.tag

    def pinned(self, digest: str) -> Reference:
        """The image with exactly that digest. Without the tag, because Podman refuses both together."""
        return replace(self, tag="", digest=digest)


def parse(text: str) -> Reference:
    """UserError, one line, for a reference that engines would reject."""
    rest, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise _bad(text, f"{digest!r} is not a digest, which is sha256: and 64 of the characters 0-9 and a-f")
    rest, colon, tag = _split(rest)
    if colon and not _TAG.fullmatch(tag):
        raise _bad(text, f"{tag!r} is not a valid tag: at most 128 letters, digits, _ . -, not starting with . or -")
    registry, repository = _registry(rest)
    if not _REGISTRY.fullmatch(registry):
        raise _bad(text, f"{registry!r} is not a registry: it must be a host, optionally with a port")
    if obstacle := _obstacle(repository):
        raise _bad(text, obstacle)
    return Reference(registry, repository, tag or ("" if digest else "latest"), digest)


def _split(text: str) -> tuple[str, str, str]:
    """The colon of a tag comes after the last slash; one before it belongs to a port."""
    folder, slash, last = text.rpartition("/")
    name, colon, tag = last.partition(":")
    return f"{folder}{slash}{name}", colon, tag


def _registry(name: str) -> tuple[str, str]:
    """The part before the first slash is a registry if it looks like a host, else a folder on Docker Hub."""
    host, slash, repository = name.partition("/")
    if not slash or not (re.search(r"[.:]", host) or host == "localhost" or host != host.lower()):
        host, repository = DOCKER_HUB, name
    if host == "index.docker.io":
        host = DOCKER_HUB
    if host == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return host, repository


def _obstacle(repository: str) -> str:
    name = repository.removeprefix("library/")
    if not name:
        return "the name of the image is missing"
    if name != name.lower():
        return f"{name!r} must be in lower case"
    if not _REPOSITORY.fullmatch(repository):
        return f"{name!r} is not an image name: use lower-case letters and digits, single . _ or - between them, / for folders"
    if len(repository) > LONGEST_REPOSITORY:
        return f"the name is longer than {LONGEST_REPOSITORY} characters"
    return "this is the id of an image, not a name" if re.fullmatch(r"[0-9a-f]{64}", name) else ""


def _bad(text: str, why: str) -> UserError:
    return UserError(f"{text!r} is not an image reference: {why}")
