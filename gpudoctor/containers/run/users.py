"""Who runs in the container. `me` is more than two numbers: programs ask for a name, a home, and groups that may use GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpudoctor.containers.run import caches

if TYPE_CHECKING:
    from gpudoctor.containers.engine.client import Engine
    from gpudoctor.containers.run.caller import Place

ME = "me"
HOME = f"{caches.INSIDE}/image/{caches.HOME}"
HOME_WITHOUT_CACHES = "/tmp"


@dataclass(frozen=True)
class User:
    """name: empty for the image's own. identity: what a program asks for that finds no entry in /etc/passwd."""

    name: str = ""
    arguments: tuple[str, ...] = ()
    identity: Mapping[str, str] = field(default_factory=dict)

    def variables(self, has_caches: bool) -> dict[str, str]:
        return {**self.identity, "HOME": HOME if has_caches else HOME_WITHOUT_CACHES} if self.identity else {}


def of(wanted: str, engine: Engine, place: Place) -> User:
    """The user of that name or number; `me` is whoever types this."""
    if wanted != ME:
        return User(wanted.partition(":")[0], ("--user", wanted) if wanted else ())
    # Root in a container of a rootless Docker, or for root itself, is already whoever types this.
    if place.uid == 0 or (engine.is_rootless and not engine.is_podman):
        return User("root", ("--user", "0:0"))
    identity = {"USER": place.user, "LOGNAME": place.user}
    arguments = ["--user", f"{place.uid}:{place.gid}"]
    if engine.is_podman and engine.is_rootless:
        return User(place.user, ("--userns", "keep-id", *arguments, "--group-add", "keep-groups"), identity)
    for group in place.groups:
        arguments += ["--group-add", str(group)]
    return User(place.user, tuple(arguments), identity)
