"""When the driver's packages were changed last, and by which program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpudoctor.facts.guarded import guarded
from gpudoctor.facts.replies import Replies

AUTOMATIC = ("unattended-upgrade", "dnf-automatic", "packagekitd", "aptd")


@dataclass(frozen=True)
class Change:
    """One run of the package manager. when: local time to the minute. versions: of the packages that it installed."""

    log: str
    when: str
    by: str
    count: int
    first: str
    versions: tuple[str, ...]

    @property
    def is_automatic(self) -> bool:
        return self.by.startswith(AUTOMATIC)

    @property
    def words(self) -> str:
        others = f" and {self.count - 1} more packages" if self.count > 1 else ""
        return f"{self.by} changed {self.first}{others} on {self.when}"


@guarded
def changes(replies: Replies) -> Iterator[Change]:
    """The latest first; Unavailable if no log was read."""
    for said in replies.value("driver-changes"):
        packages = said["packages"]
        versions = tuple(package["new"] for package in packages)
        yield Change(said["log"], said["when"], said["by"], int(said["count"]), packages[0]["name"], versions)


def that_installed(release: str, replies: Replies) -> Change | None:
    """The change that brought this release of the driver; None if none is known."""
    return next((change for change in changes(replies) if any(release in version for version in change.versions)), None)
