"""The meaning of programs' output: every known message in the given texts, as a finding. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any, NamedTuple

from gpudoctor.facts.texts import Passage, Text
from gpudoctor.judging.texts import coded, titles
from gpudoctor.judging.texts.candidates import candidates
from gpudoctor.judging.texts.first_errors import first_error, last_error
from gpudoctor.knowledge.messages import Message
from gpudoctor.model import Confidence, Finding, Problem, Status

_NEXT_OBJECT = re.compile(r"^(?:Name:\s|Events:)", re.MULTILINE)  # in the output of kubectl describe

# Lines of container engines, which the check container-start judges.
_OF_ENGINE = re.compile(
    r"""
    ^\S*docker:[ ] | ^Error:[ ]
    | \b(?: daemon:[ ] | OCI[ ] | nvidia-container- | (?:runc|crun|containerd|dockerd|conmon)\b )
    """,
    re.VERBOSE,
)

MOST_SAID = 300  # characters of a quoted message


class Match(NamedTuple):
    """A message where it was first found. said: the line; groups: the pattern's; lines: of all places where it occurs."""

    message: Message
    text: Text
    line: int
    said: str
    groups: dict[str, str]
    lines: tuple[range, ...]


def findings(texts: Iterable[Text], problems: Mapping[str, Problem]) -> Iterator[Finding]:
    """One finding per problem, in the order of the texts, without documentation. Several messages may have the same problem."""
    texts = tuple(text for text in texts if not text.is_documentation)
    named = _named(matches(texts))
    if not any(problems[id].status is Status.FAIL for id in named):
        named = {**_named(matches(text.unwrapped for text in texts)), **named}
    if not any(problems[id].status is Status.FAIL for id in named):
        named = {**_named(matches(coded.named(text) for text in texts)), **named}
    wrappers = {id for id, found in named.items() if all(match.message.wraps for match in found)}
    causes = {cause for id in wrappers for match in named[id] for cause in match.message.causes}
    told = [id for id, found in named.items() if id not in wrappers and not _is_clue(found)]
    failures = [id for id in told if problems[id].status is Status.FAIL or id in causes or _fails(named[id])]
    xids = [id for id in problems if id.startswith(("xid-", "sxid-"))] if wrappers else []
    for id, found in named.items():
        finding = _finding(problems[id], found)
        wrapped = [other for other in (*failures, *xids) if id in wrappers and other not in finding.causes]
        yield replace(finding, causes=(*finding.causes, *wrapped))
    if not failures:
        yield from first_error(texts, [match.message for id in wrappers for match in named[id]], problems)
    if not any(id in named for id in (*failures, *wrappers)):
        yield from last_error(texts, problems)


def _named(found: Iterable[Match]) -> dict[str, list[Match]]:
    """Problem -> its messages."""
    named: dict[str, list[Match]] = {}
    for match in found:
        named.setdefault(match.message.problem, []).append(match)
    return named


def matches(texts: Iterable[Text]) -> list[Match]:
    """Every known message, once for each text."""
    return sorted((match for text in texts for match in _of_text(text)), key=lambda match: match.line)


def _of_text(text: Text) -> list[Match]:
    found: list[Match] = []
    explained = {number for number, line in text.lines if _OF_ENGINE.search(line)}
    for message, places in candidates([passage.text for passage in text.passages]):
        if match := _match(message, text, places, explained if message.general else frozenset()):
            found.append(match)
            explained.update(*([] if message.clue else match.lines))
    return found


def _match(message: Message, text: Text, places: Iterable[int], explained: Set[int]) -> Match | None:
    """places: of the passages that have a literal of the message."""
    first: tuple[Passage, re.Match[str]] | None = None
    lines: list[range] = []
    for place in places:
        passage = text.passages[place]
        for match in message.matches(passage.text):
            if message.over and message.ended_well(match.groupdict(), _after(text, place, match.end())):
                continue
            at = range(passage.line_of(match.start()), passage.line_of(match.end()) + 1)
            if any(begin <= at[0] <= end for begin, end in text.past) or not explained.isdisjoint(at):
                continue
            if _is_supposed(passage.text, match.start()):
                continue
            first = first or (passage, match)
            lines.append(at)
    if first is None or (message.unless and any(re.search(message.unless, passage.text) for passage in text.passages)):
        return None
    passage, match = first
    groups = {name: value.strip() for name, value in match.groupdict().items() if value}
    return Match(message, text, passage.line_of(match.start()), _said(passage.text, match), groups, tuple(lines))


def _is_supposed(text: str, start: int) -> bool:
    """Whether a sentence of instructions quotes the message: if you see `…`, then …"""
    return bool(_SUPPOSED.search(text, text.rfind("\n", 0, start) + 1, start))


_SUPPOSED = re.compile(
    r"""
    \b[Yy]ou\ (?:will|should|would|may|might)\ (?:then\ |now\ )?(?:see|get)\ [`"'“][^`"'“”\n]{0,80}$
    | \b(?:would|might|could|will|should)\ (?:I|we|you|they|one|it|that|this)?\ ?(?:\w+\ ){0,2}?(?:expect|get|see|hit|run\ into)
      \ (?:an?\ |the\ )?[`"'“][^`"'“”\n]{0,80}$
    | \b(?:[Rr]esolve[sd]?|[Ff]ix(?:e[sd])?|[Aa]ddresse[sd])\ (?:the\ |an?\ )?[`"'“][^`"'“”\n]{0,80}$
    | \b[Tt]urn(?:s|ed)\ out\b[^.\n]{0,60}\b(?:issue|problem|error|cause|culprit)\b[^.\n]{0,80}$
    | \b[Ii]f\ (?:you|the\ \w+|a\ \w+|it|nvidia-smi|dmesg|users|people|somebody|someone)(?:\ \w+){0,2}
    \ (?:sees?|gets?|says?|shows?|reports?|prints?|returns?|contains?|fails?\ with)\ [^.`"'\n]{0,40}[`"'“][^`"'“”\n]{0,80}$
    """,
    re.VERBOSE,
)


def _after(text: Text, place: int, end: int) -> str:
    """The text after a position in a passage, up to the next object."""
    passage, *others = text.passages[place:]
    after = "\n".join((passage.text[end:], *(other.text for other in others)))
    return _NEXT_OBJECT.split(after, maxsplit=1)[0]


def _said(text: str, match: re.Match[str]) -> str:
    """The lines of a match; if they are very long, the text around it."""
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    end = len(text) if end < 0 else end
    room = max(MOST_SAID - (match.end() - match.start()), 0) // 2
    if end - start <= MOST_SAID:
        return " ".join(text[start:end].split())
    first, last = max(start, match.start() - room), min(end, match.end() + room)
    said = " ".join(text[first:last].split())
    said = said if len(said) <= MOST_SAID else f"{said[: MOST_SAID // 2]} … {said[-MOST_SAID // 2 :]}"
    return "… " * (first > start) + said + " …" * (last < end)


def _finding(problem: Problem, found: list[Match]) -> Finding:
    """The finding, with the confidence of the surest message and the causes that remain possible."""
    surest = max(found, key=lambda match: _SURE.index(match.message.confidence))
    message = surest.message
    evidence: dict[str, Any] = {**surest.groups, "said": surest.said, "where": f"{surest.text.name}, line {surest.line}"}
    others = [match.said for match in found if match is not surest and match.said != surest.said]
    if others:
        evidence["also_said"] = others
    if (times := len({at[0] for at in surest.lines})) > 1:  # two patterns may match the same line
        evidence["times"] = times
    causes = tuple(dict.fromkeys(id for match in found for id in match.message.causes if id != problem.id))
    if message.confidence != "confirmed" and causes:
        evidence["could_be"] = list(causes)
    if message.decide and message.confidence != "confirmed":
        evidence["decide"] = message.decide
    words = _UNTOLD.sub("", message.words.format_map(_Named(surest.groups)))
    confidence = Confidence(message.confidence)
    status = Status.FAIL if _fails(found) else problem.status
    about = replace(message.means(problem if message.confidence == "confirmed" else titles.described(problem)), status=status)
    return Finding(about, words, evidence, confidence=confidence, causes=(problem.id, *causes), is_clue=_is_clue(found))


def _fails(found: Iterable[Match]) -> bool:
    return any(match.message.fails for match in found)


def _is_clue(found: Iterable[Match]) -> bool:
    return all(match.message.clue for match in found)


_SURE = ("unknown", "likely", "confirmed")


class _Named(dict[str, str]):
    """A group that did not match leaves a gap."""

    def __missing__(self, name: str) -> str:
        return "\0"


_UNTOLD = re.compile(r" ?\(\0\)|[:,]? ?\0")
