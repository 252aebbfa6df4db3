"""Reads an image's digest, configuration and size from its registry, without pulling it.

The protocol: https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from gpudoctor.containers.images import reference as references
from gpudoctor.containers.images.answer import Answer
from gpudoctor.containers.images.machine import PROCESSORS
from gpudoctor.containers.images.reference import Reference
from gpudoctor.containers.images.transport import Registry
from gpudoctor.errors import UserError, WorkError

if TYPE_CHECKING:
    from gpudoctor.containers.engine.client import Engine

INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
DIGEST = "sha256:[0-9a-f]{64}"


class Blob(msgspec.Struct, frozen=True):
    digest: Annotated[str, msgspec.Meta(pattern=rf"\A{DIGEST}\Z")]
    size: Annotated[int, msgspec.Meta(ge=0)] | None = None


class Platform(msgspec.Struct, frozen=True):
    os: str | None = None
    architecture: str | None = None


class Listed(Blob, frozen=True):
    """An image in an index."""

    platform: Platform | None = None


class Manifest(msgspec.Struct, frozen=True):
    """The manifest of an image, or an index of several images; neither in the format used before 2015."""

    mediaType: str | None = None  # noqa: N815
    manifests: tuple[Listed, ...] | None = None
    config: Blob | None = None
    layers: tuple[Blob, ...] | None = None


class Settings(msgspec.Struct, frozen=True):
    Env: tuple[str, ...] | None = None


class Config(msgspec.Struct, frozen=True):
    """The fields used from an image's configuration."""

    architecture: str | None = None
    config: Settings | None = None


T = TypeVar("T")


@dataclass(frozen=True)
class Remote:
    """An image in its registry, for one processor architecture."""

    reference: Reference
    digest: str  # what the tag points to: for images for several processors, the digest of their index
    config: Mapping[str, Any] = field(repr=False)  # architecture, os, config: Env, Entrypoint, Labels …
    size_bytes: int  # of the compressed layers


def look(reference: Reference | str, engine: Engine | None = None) -> Remote:
    """The image for the engine's processor, or without an engine for this machine's. UserError or WorkError, one line each."""
    wanted = references.parse(reference) if isinstance(reference, str) else reference
    host = Registry.of(wanted.registry, engine)
    top = _manifest(host, wanted, wanted.wanted)
    manifest = _read(wanted, top, Manifest)
    if manifest.manifests is not None:
        chosen = _for_processor(wanted, manifest.manifests, processor(engine))
        manifest = _read(wanted, _manifest(host, wanted, chosen), Manifest)
    if manifest.config is None or manifest.layers is None:
        raise WorkError(f"the manifest format of {wanted.short} is not supported: {manifest.mediaType or 'schema 1'}")
    blob = _ask(host, wanted, f"blobs/{manifest.config.digest}")
    _read(wanted, blob, Config)  # rejects a configuration with unexpected types
    size_bytes = sum(layer.size or 0 for layer in manifest.layers)
    return Remote(wanted, _digest(top.body), _read(wanted, blob, dict[str, Any]), size_bytes)


def digest(reference: Reference | str, engine: Engine | None = None) -> str:
    """The digest that a tag points to now. Sends a HEAD request, which Docker Hub does not count as a pull."""
    wanted = references.parse(reference) if isinstance(reference, str) else reference
    host = Registry.of(wanted.registry, engine)
    head = host.ask("HEAD", f"/v2/{wanted.repository}/manifests/{wanted.wanted}", (*INDEXES, *MANIFESTS))
    told = head.headers.get("Docker-Content-Digest", "") if head.status == 200 else ""
    return told if re.fullmatch(DIGEST, told) else _digest(_manifest(host, wanted, wanted.wanted).body)


def processor(engine: Engine | None = None) -> str:
    """The processor of the engine, or of this machine, by its name in images: amd64, arm64."""
    info = engine.info if engine else {}
    name = info.get("Architecture") or info.get("host", {}).get("arch") or platform.machine()
    return PROCESSORS.get(name, name)


def _manifest(host: Registry, wanted: Reference, which: str) -> Answer:
    answer = _ask(host, wanted, f"manifests/{which}", (*INDEXES, *MANIFESTS))
    if which.startswith("sha256:") and _digest(answer.body) != which:
        raise WorkError(
            f"{wanted.registry} sent data for {wanted.short} that does not match {which}: a proxy may have altered it"
        )
    return answer


def _for_processor(wanted: Reference, images: Sequence[Listed], processor: str) -> str:
    for image in images:
        if image.platform == Platform("linux", processor):
            return image.digest
    there = [image.platform for image in images if image.platform]
    names = sorted({f"{terms.os}/{terms.architecture}" for terms in there} - {"unknown/unknown", "None/None"})
    raise UserError(f"{wanted.short} is not available for linux/{processor}, only for {', '.join(names) or 'nothing'}")


def _ask(host: Registry, wanted: Reference, path: str, accept: tuple[str, ...] = ()) -> Answer:
    answer = host.ask("GET", f"/v2/{wanted.repository}/{path}", accept)
    if answer.status == 200:
        return answer
    raise _refused(wanted, answer)


def _refused(wanted: Reference, answer: Answer) -> UserError | WorkError:
    if answer.status in (401, 403):
        login = f"docker login{'' if wanted.registry == references.DOCKER_HUB else f' {wanted.registry}'}"
        kind: type[UserError] | type[WorkError] = UserError
        line = f"{wanted.registry} denies access to {wanted.short}: it does not exist or requires a login: {login}"
    elif answer.status == 404:
        kind, line = UserError, f"{wanted.registry} has no image {wanted.short}: check the name and the tag"
    elif answer.status == 429:
        kind, line = WorkError, f"the rate limit of {wanted.registry} is reached: log in to it, or wait"
    else:
        kind, line = WorkError, f"{wanted.registry} answers HTTP {answer.status} to a request for {wanted.short}"
    return kind("\n".join([line, *(f"  {said}" for said in _said(answer))]))


def _said(answer: Answer) -> list[str]:
    """The registry's error messages: https://github.com/opencontainers/distribution-spec/blob/main/spec.md#error-codes"""
    try:
        errors = json.loads(answer.body)["errors"]
        return [f"{error.get('code', '')}: {error.get('message', '')}" for error in errors][:5]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _read(wanted: Reference, answer: Answer, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (ValueError, RecursionError):
        raise WorkError(f"{wanted.registry} does not answer like a registry: check the address") from None


def _digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"
