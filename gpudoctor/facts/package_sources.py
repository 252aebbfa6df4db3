"""APT's sources of NVIDIA's packages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpudoctor.facts.guarded import guarded
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Skip


@dataclass(frozen=True)
class Source:
    """signed_by: the file of its key; "inline" if the key stands in the list, "" if it names none."""

    file: str
    uri: str
    suite: str
    signed_by: str
    key_exists: bool


@dataclass(frozen=True)
class Malformed:
    """A file with a line that APT cannot read."""

    file: str
    line: int


@guarded
def sources(replies: Replies) -> tuple[Source, ...]:
    """Skip if this machine does not use APT."""
    said = replies.optional("package-sources")
    if said is None:
        raise Skip("this machine does not use APT", Skip.NOT_APPLICABLE)
    return tuple(Source(row["file"], row["uri"], row["suite"], row["signed_by"], row["key_exists"]) for row in said["entries"])


@guarded
def malformed(replies: Replies) -> Iterator[Malformed]:
    for row in replies.value("package-sources")["malformed"]:
        yield Malformed(row["file"], row["line"])
