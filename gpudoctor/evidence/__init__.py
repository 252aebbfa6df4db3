"""Evidence that somebody has, such as logs, tracebacks and what other tools printed, as replies of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from gpudoctor.errors import UserError
from gpudoctor.evidence import kernel, source
from gpudoctor.evidence.documentation import KIND, is_documentation
from gpudoctor.evidence.readers import READERS
from gpudoctor.evidence.scan import Excerpt, scan
from gpudoctor.files.snapshot import SCHEMA, parse
from gpudoctor.model import Reply, Snapshot
from gpudoctor.version import __version__

TEXT = "text:"
"""A reply with this prefix and a name holds what was kept of a text."""


# A text that does not say so is not from WSL.
ASSUMED = {"file:/proc/version": Reply("missing", detail="the text does not tell the kernel's version")}

PACKAGES = ("packages", "conda", "os-packages")


@dataclass(frozen=True)
class Evidence:
    """What texts said. replies: facts that they prove, and the texts themselves. snapshot: one that was among them."""

    replies: dict[str, Reply] = field(default_factory=dict)
    snapshot: Snapshot | None = None


def gather(paths: Iterable[str]) -> Evidence:
    """Reads files ("-" is standard input); a later one knows better. UserError where one cannot be read or holds nothing."""
    replies: dict[str, Reply] = {}
    taken = None
    paths = tuple(paths)
    for path in paths:
        name = "standard input" if path == "-" else path
        chunks = source.chunks(path)
        beginning = next(chunks, b"")
        if not beginning.strip() and len(paths) == 1:
            raise UserError(f"{name} is empty")
        if source.is_ours(beginning):
            taken = parse(beginning + b"".join(chunks), name)
            continue
        if source.holds_ours(beginning):
            from gpudoctor.files import opening

            if path == "-":
                raise UserError("a bundle or a page of gpudoctor is read from a file: name it, in the place of -")
            taken = opening.taken_in(path)
            continue
        replies = _together(replies, _of(name, scan(beginning, chunks, READERS)))
    return Evidence(replies, taken)


def of_text(text: str, name: str = "the given text") -> Evidence:
    """What a pasted message says."""
    return Evidence(_of(name, scan(text.encode("utf-8", "replace"), iter(()), READERS)))


def snapshot_of(evidence: Evidence) -> Snapshot:
    """A snapshot that knows the evidence only, or the one that was given with the rest of the evidence added."""
    if evidence.snapshot:
        return added(evidence.snapshot, evidence)
    replies = {**ASSUMED, **evidence.replies}
    taken = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Snapshot(SCHEMA, __version__, taken, replies)


def added(taken: Snapshot, evidence: Evidence) -> Snapshot:
    """A machine's snapshot with evidence beside it. What the machine itself answered counts more than what a text says of it."""
    texts = {name: reply for name, reply in evidence.replies.items() if name.startswith(TEXT)}
    unasked = {name: reply for name, reply in evidence.replies.items() if name not in taken.replies}
    replies = {**taken.replies, **unasked, **texts}
    if "kernel-log" in evidence.replies:
        replies["kernel-log"] = kernel.beside(taken.replies.get("kernel-log"), evidence.replies["kernel-log"])
    return replace(taken, replies=replies)


def _of(name: str, excerpt: Excerpt) -> dict[str, Reply]:
    replies: dict[str, Reply] = {}
    kinds: list[str] = []
    for block in excerpt.blocks:
        proved = block.reader.read(block.text)
        if proved is not None:
            kinds.append(block.reader.kind)
            replies = _together(replies, proved)
    log = kernel.reply(excerpt)
    if log:
        kinds.append("kernel log")
        replies = _together(replies, {"kernel-log": log})
    if is_documentation(list(excerpt.lines.values())):
        kinds, replies = [KIND], {}
    text = {**excerpt.value(), "kinds": list(dict.fromkeys(kinds))}
    return {**replies, TEXT + name: Reply("ok", text)}


def _together(known: Mapping[str, Reply], more: Mapping[str, Reply]) -> dict[str, Reply]:
    """A later text knows better; kernel logs, tables and lists of packages of several texts are joined."""
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
    if question in PACKAGES:
        return replace(more, value=list({record["name"]: record for record in (*known.value, *more.value)}.values()))
    return replace(more, value=_merged(known.value, more.value))


def _merged(known: Any, more: Any) -> Any:
    """Tables key by key; of anything else the later, unless that is nothing."""
    if more is None:
        return known
    if not (isinstance(known, dict) and isinstance(more, dict)) or "error" in {*known, *more}:
        return more
    return {**known, **{key: _merged(known[key], value) if key in known else value for key, value in more.items()}}
