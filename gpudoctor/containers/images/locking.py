"""Asks registries for the digests for a lock file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpudoctor.containers.engine import client as engines
from gpudoctor.containers.images import background, building, catalog, registry, released
from gpudoctor.containers.images import reference as references
from gpudoctor.errors import UserError, WorkError

if TYPE_CHECKING:
    from gpudoctor.containers.engine.client import Engine

AT_ONCE, MOST = 8, 1000


def digests(names: Sequence[str], program: str | None, mirror: str, tell: Callable[[str], None]) -> dict[str, tuple[str, str]]:
    """Name -> current reference and digest; fails if one of them fails. mirror: the registry to use for names."""
    if len(names) > MOST:
        raise UserError(f"{len(names)} images cannot be pinned at once; name at most {MOST}")
    engine = _engine(program)
    wanted = {name: _references(name, mirror) for name in names}
    free = threading.Semaphore(AT_ONCE)

    def digest(there: str) -> str:
        with free:
            return registry.digest(there, engine)

    asked = {name: background.started(partial(digest, there)) for name, (_, there) in wanted.items()}
    found = {}
    for name, (reference, _) in wanted.items():
        tell(name)
        try:
            found[name] = (reference, asked[name].result())
        except (UserError, WorkError) as failure:
            raise type(failure)(f"{name}: {failure}") from None
    return found


def _references(name: str, mirror: str) -> tuple[str, str]:
    """The reference for the lock file, and the one to look up: the image, or the base of one that is built here."""
    image = catalog.resolve(name, mirror)
    if image.recipe:
        return building.base_of(image), building.base_of(image, mirror)
    if references.parse(image.reference).digest:
        raise UserError(f"{name} already has a digest: there is nothing to pin")
    known = catalog.images().get(name) or released.exact_cuda(name) or image
    return known.reference, image.reference


def _engine(program: str | None) -> Engine | None:
    """The engine knows which registries are insecure. It is optional unless `program` names one."""
    try:
        return engines.find(program)
    except (UserError, WorkError):
        if program:
            raise
        return None
