"""Everything known about one image: from the table, from the engine if it answers at once, else from the registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpudoctor.containers.engine import client as engines
from gpudoctor.containers.images import lock, preflight
from gpudoctor.containers.images.catalog import Image
from gpudoctor.containers.images.machine import ThisMachine
from gpudoctor.containers.images.needs import Needs
from gpudoctor.containers.images.preflight import Verdict
from gpudoctor.containers.images.pulling import gigabytes
from gpudoctor.errors import UserError, WorkError

SECONDS = 3.0  # for an engine, which may be stuck


@dataclass(frozen=True)
class Known:
    image: Image
    needs: Needs
    machine: ThisMachine
    verdict: Verdict
    on_disk: bool | None  # None if no engine answers
    disk_words: str
    disk_bytes: int | None = None
    registry_bytes: int | None = None
    pinned: str | None = None  # the digest in gpudoctor.lock


def look(image: Image) -> Known:
    """UserError if the registry has no such image; the registry is queried only if neither table nor engine knows it."""
    found, words = on_disk(image.reference)
    needs, size_bytes = image.needs, None
    if image.recipe:
        pass  # its image.yaml has more than its configuration, such as what was removed from the base
    elif found:
        needs = preflight.needs_of(found, image.needs)
    elif needs.cuda is None:
        needs, size_bytes, failure = _in_registry(image)
        words = f"{words}; {failure}" if failure else words
    machine = preflight.this_machine()
    return Known(
        image=image,
        needs=needs,
        machine=machine,
        verdict=preflight.verdict(needs, machine),
        on_disk=None if found is None else bool(found),
        disk_words=words,
        disk_bytes=found.get("Size") if found else None,
        registry_bytes=size_bytes,
        pinned=_pinned(image),
    )


def on_disk(reference: str) -> tuple[dict[str, Any] | None, str]:
    """The output of `image inspect`, empty if the image is not present, None if no engine answers; and a description."""
    try:
        engine = engines.find(seconds=SECONDS)
        found = engine.image(reference, seconds=SECONDS)
    except (UserError, WorkError) as failure:
        return None, f"unknown: {str(failure).splitlines()[0]}"
    if found is None:
        return {}, f"no ({engine.program})"
    return found, f"yes, {gigabytes(found.get('Size', 0))} ({engine.program}, {str(found.get('Id', ''))[:19]})"


def _in_registry(image: Image) -> tuple[Needs, int | None, str]:
    from gpudoctor.containers.images import registry

    try:
        remote = registry.look(image.reference)
    except WorkError as failure:
        return image.needs, None, str(failure).splitlines()[0]
    return preflight.needs_of(remote.config, image.needs), remote.size_bytes, ""


def _pinned(image: Image) -> str | None:
    try:
        pin = lock.read().get(image.name)
    except UserError as failure:
        return str(failure)
    return f"{pin.digest} since {pin.date} ({lock.FILE})" if pin else None
