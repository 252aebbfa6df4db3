"""Evidence from users, such as logs, tracebacks and the output of other tools, as replies of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from gpudoctor.evidence import kernel, provoked
from gpudoctor.evidence.blocks import Block
from gpudoctor.evidence.documentation import KIND, is_documentation
from gpudoctor.evidence.excerpt import Excerpt
from gpudoctor.evidence.listed import only_listed
from gpudoctor.evidence.mentioned import only_mentioned
from gpudoctor.evidence.others import of_other_programs
from gpudoctor.evidence.quoted import only_quoted
from gpudoctor.evidence.readers import READERS, driver_state, engine, python_packages
from gpudoctor.evidence.samples import of_instructions
from gpudoctor.evidence.scan import scan
from gpudoctor.facts import sessions, threads
from gpudoctor.facts.guarded import WRONG
from gpudoctor.facts.recurring import Recurring
from gpudoctor.model import SNAPSHOT_SCHEMA, Reply, Snapshot
from gpudoctor.version import __version__

TEXT = "text:"
"""A reply with this prefix and a name holds the kept part of a text."""


# A text that does not mention WSL does not come from WSL.
ASSUMED = {"file:/proc/version": Reply("missing", detail="the text does not contain the kernel version")}

SERVICES = "command:systemctl show from the text"
ADDED = (SERVICES, driver_state.MODINFO)
"""Questions whose answers are lines of several commands."""
PACKAGES = ("packages", "conda", "os-packages")


@dataclass(frozen=True)
class Evidence:
    """The content of texts. replies: facts that they prove, and the texts themselves. snapshot: a snapshot given with them."""

    replies: dict[str, Reply] = field(default_factory=dict)
    snapshot: Snapshot | None = None

    def with_text(self, name: str, beginning: bytes, rest: Iterator[bytes]) -> Evidence:
        """This evidence with one more text; a later text overrides earlier ones."""
        return replace(self, replies=_together(self.replies, _of(name, scan(beginning, rest, READERS))))


def of_text(text: str, name: str = "the given text") -> Evidence:
    """The evidence in a pasted message."""
    return Evidence().with_text(name, text.encode("utf-8", "replace"), iter(()))


def snapshot_of(evidence: Evidence) -> Snapshot:
    """A snapshot with only the evidence, or the given snapshot with the rest of the evidence added."""
    if evidence.snapshot:
        return added(evidence.snapshot, evidence)
    replies = {**ASSUMED, **evidence.replies}
    taken = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Snapshot(SNAPSHOT_SCHEMA, __version__, taken, replies)


def added(taken: Snapshot, evidence: Evidence) -> Snapshot:
    """A machine's snapshot with evidence added. The machine's own answers take precedence over texts."""
    texts = {name: reply for name, reply in evidence.replies.items() if name.startswith(TEXT)}
    unasked = {name: reply for name, reply in evidence.replies.items() if name not in taken.replies}
    replies = {**taken.replies, **unasked, **texts}
    if "kernel-log" in evidence.replies:
        replies["kernel-log"] = kernel.beside(taken.replies.get("kernel-log"), evidence.replies["kernel-log"])
    return replace(taken, replies=replies)


def _of(name: str, excerpt: Excerpt) -> dict[str, Reply]:
    replies: dict[str, Reply] = {}
    kinds: list[str] = []
    recurring = Recurring(sorted(excerpt.lines.items()))
    read = dict(recurring.thinned())
    ordered = list(read.items())
    unread = only_listed(read) | only_mentioned(read) | set(of_instructions(ordered))
    unread.update(provoked.written(ordered), provoked.explained(ordered))
    listed = recurring.like(unread)
    lines = [(number, line) for number, line in ordered if number not in listed]
    answered = sessions.answered(lines)
    quoted = recurring.like(only_quoted(read) | _of_others(excerpt, lines))
    quoted.update(number for first, last in answered for number in range(first, last + 1))
    out = listed | quoted
    excerpt = replace(excerpt, lines={number: line for number, line in excerpt.lines.items() if number not in out})
    of_others = (*sessions.hearsay(lines), *threads.over(lines))
    past = (*sessions.mended(lines), *sessions.acknowledged(lines), *of_others, *answered)
    for block in _outermost(excerpt.blocks):
        if block.first in listed or (block.reader is engine.READER and block.first in quoted):
            continue
        if any(first <= block.first <= last for first, last in past):
            continue
        proved = _read(block)
        if proved is not None:
            kinds += filter(None, (block.reader.kind,))
            replies = _together(replies, proved)
    log = kernel.reply(_without(excerpt, of_others))
    if log:
        kinds.append("kernel log")
        replies = _together(replies, {"kernel-log": log})
    if is_documentation([line for _, line in lines]):
        kinds, replies = [KIND], {}
    replies |= python_packages.joined(replies)
    text = {**excerpt.value(), "kinds": list(dict.fromkeys(kinds))}
    return {**replies, TEXT + name: Reply("ok", text)}


def _of_others(excerpt: Excerpt, read: Sequence[tuple[int, str]]) -> set[int]:
    """Lines of other programs, which are sought in the whole text if there are any."""
    return set(of_other_programs(list(excerpt.lines.items()))) if any(of_other_programs(read)) else set()


def _without(excerpt: Excerpt, spans: Sequence[tuple[int, int]]) -> Excerpt:
    if not spans:
        return excerpt
    lines = {number: text for number, text in excerpt.lines.items() if not any(first <= number <= last for first, last in spans)}
    return replace(excerpt, lines=lines)


def _read(block: Block) -> dict[str, Reply] | None:
    """What a block proves; None if its reader cannot read it, as when two outputs are mixed."""
    try:
        return block.reader.read(block.text)
    except WRONG:
        return None


def _outermost(blocks: Sequence[Block]) -> Iterator[Block]:
    """Without the parts of a longer output that a reader of parts has found in it."""
    spans = [
        (block.first, block.first + block.text.count("\n")) for block in blocks if block.reader.kind and not block.reader.alone
    ]
    for block in blocks:
        if not (block.reader.alone and any(first <= block.first < end for first, end in spans)):
            yield block


def _together(known: Mapping[str, Reply], more: Mapping[str, Reply]) -> dict[str, Reply]:
    """A later text overrides; kernel logs, tables and package lists of several texts are joined."""
    merged = {**known, **more}
    for question in known.keys() & more.keys():
        merged[question] = _joined(question, known[question], more[question])
    return merged


def _joined(question: str, known: Reply, more: Reply) -> Reply:
    if question == "kernel-log":
        return kernel.joined(known, more)
    if more.status != "ok" or known.status != "ok":
        return known if known.status == "ok" else more
    if question.startswith("nvml:gpu") and known.value.get("UUID", more.value.get("UUID")) != more.value.get("UUID"):
        return more
    if question in ADDED:
        return replace(more, value={**more.value, "out": known.value["out"] + more.value["out"]})
    if question in PACKAGES:
        return replace(more, value=list({record["name"]: record for record in (*known.value, *more.value)}.values()))
    return replace(more, value=_merged(known.value, more.value))


def _merged(known: Any, more: Any) -> Any:
    """Tables are merged key by key; otherwise the later value wins, unless it is empty."""
    if more is None:
        return known
    if not (isinstance(known, dict) and isinstance(more, dict)) or "error" in {*known, *more}:
        return more
    return {**known, **{key: _merged(known[key], value) if key in known else value for key, value in more.items()}}
