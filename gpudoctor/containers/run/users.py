"""The user in the container. `me` is more than two ids: programs need a name, a home, and groups that can use GPUs."""

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
    """name: empty for the image's user. identity: variables for programs that find no entry in /etc/passwd."""

    name: str = ""
    arguments: tuple[str, ...] = ()
    identity: Mapping[str, str] = field(default_factory=dict)

    def variables(self, has_caches: bool) -> dict[str, str]:
        return {**self.identity, "HOME": HOME if has_caches else HOME_WITHOUT_CACHES} if self.identity else {}


def of(wanted: str, engine: Engine, place: Place) -> User:
    """The user with that name or id; `me` is the calling user."""
    if wanted != ME:
        return User(wanted.partition(":")[0], ("--user", wanted) if wanted else ())
    # With a rootless Docker, or when called by root, root inside is already the calling user.
    if place.uid == 0 or (engine.is_rootless and not engine.is_podman):
        return User("root", ("--user", "0:0"))
    identity = {"USER": place.user, "LOGNAME": place.user}
    arguments = ["--user", f"{place.uid}:{place.gid}"]
    if engine.is_podman and engine.is_rootless:
        return User(place.user, ("--userns", "keep-id", *arguments, "--group-add", "keep-groups"), identity)
    for group in place.groups:
        arguments += ["--group-add", str(group)]
    return User(place.user, tuple(arguments), identity)
