"""Where a finding was seen: the commands and files that show the answers from which its check concluded it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpudoctor.choices import BURN
from gpudoctor.facts import Facts
from gpudoctor.facts.guarded import WRONG
from gpudoctor.facts.replies import Replies
from gpudoctor.knowledge import questions
from gpudoctor.model import Check, Diagnosis, Finding, Reply, Skip, Snapshot

MOST = 3
GPU = "nvml:gpu"
# Most checks read these to find out where they are; they show a fault only if its evidence names their values.
_OF_THE_PLACE = {
    *("container-marks", "mounts", "uname", "interpreter", "processor", "environment", "chosen-python", "identity"),
    *(
        "file:/proc/1/cgroup",
        "file:/proc/self/cgroup",
        "file:/run/systemd/container",
        "file:/proc/version",
        "file:/etc/os-release",
    ),
}
_WORDS = re.compile(r"[\w./:+@%-]{3,}")
_TELLING = re.compile(r"[\d/_]")


class _Fields(dict[str, Any]):
    """What NVML answers about a GPU; calls `note` with each part that is read."""

    def __init__(self, answers: Mapping[str, Any], note: Callable[[str], None]) -> None:
        super().__init__(answers)
        self._note = note

    def __getitem__(self, name: str) -> Any:
        self._note(name)
        return super().__getitem__(name)


class _Noting(Replies):
    """Replies that note which questions were read, and which parts of them (`nvml:gpu3.NvLinks`), the latest last."""

    def __init__(self, replies: Mapping[str, Reply]) -> None:
        super().__init__(replies)
        self.read: dict[str, None] = {}

    def get(self, question: str) -> Reply:
        self._note(question)
        reply = super().get(question)
        if not question.startswith(GPU) or not isinstance(reply.value, dict):
            return reply
        return replace(reply, value=_Fields(reply.value, lambda name: self._note(f"{question}.{name}")))

    def is_missing(self, question: str) -> bool:
        self._note(question)
        return super().is_missing(question)

    def starting_with(self, prefix: str) -> dict[str, Reply]:
        """A search is noted before all else: what it finds shows a fault only if the finding has its values."""
        found = super().starting_with(prefix)
        self.read = {**dict.fromkeys(question for question in sorted(found) if question not in self.read), **self.read}
        return found

    def _note(self, question: str) -> None:
        self.read.pop(question, None)
        self.read[question] = None


def added(entries: Iterable[Diagnosis], checks: Mapping[str, Check], facts: Facts, taken: Snapshot) -> Iterator[Diagnosis]:
    """The entries, each with the commands and files in which it was seen."""
    for entry in entries:
        yield replace(entry, seen_in=tuple(dict.fromkeys(_places(entry, checks[entry.check], facts, taken)))[:MOST])


def _places(entry: Diagnosis, check: Check, facts: Facts, taken: Snapshot) -> Iterator[str]:
    if check.level == BURN:
        yield "gpudoctor burn"
    elif check.level != "quick":
        yield f"gpudoctor check --only {check.id}" if check.workloads else f"gpudoctor check --level {check.level}"
    else:
        replies = {**taken.host, **taken.replies}
        texts = [question for question in replies if question.startswith("text:")]
        read = texts if facts.texts.alone else _read(entry, check, facts, taken)
        fields = [question.partition(".")[2] for question in read if question.startswith(GPU) and "." in question]
        for question in _telling(entry, read, replies):
            yield from [questions.of_fields(fields)] if question.startswith(GPU) else _in(question, entry, replies)


def _read(entry: Diagnosis, check: Check, facts: Facts, taken: Snapshot) -> list[str]:
    """The questions that the check had read when it found this, the latest first.

    It judges once more, with facts that no other check has read before.
    """
    fresh = Facts(taken, lambda: facts.problems)
    fresh.replies = noting = _Noting(taken.replies)
    of_host = _Noting(taken.host)
    fresh.found = facts.found
    if taken.host:
        fresh.__dict__["host"] = host = Facts(Snapshot("", "", taken.taken, taken.host))
        host.replies = of_host
    try:
        for finding in check.judge(fresh):
            if _is(finding, entry):
                break
    except (Skip, *WRONG):
        pass
    return [*reversed({**of_host.read, **noting.read})]


def _is(finding: Finding, entry: Diagnosis) -> bool:
    return finding.gpu == entry.gpu and (finding.problem.id == entry.problem or finding.message == entry.message)


def _telling(entry: Diagnosis, read: Iterable[str], replies: Mapping[str, Reply]) -> list[str]:
    """The questions whose answers contain the values of the finding; otherwise the last that its check read."""
    looked = [question for question in read if question in replies]
    looked = [question for question in looked if entry.gpu is None or not _is_other_gpu(question, entry.gpu)]
    if len(looked) == 1:
        return looked
    values = _values(entry)
    weights = {question: _weight(values, question, replies[question]) for question in looked}
    best = max(weights.values(), default=0)
    telling = sorted((q for q in looked if weights[q] * 2 > best), key=lambda q: -weights[q]) if best else []
    return telling or [question for question in looked if question not in _OF_THE_PLACE] or looked


def _is_other_gpu(question: str, gpu: int) -> bool:
    return question.startswith(GPU) and question != f"{GPU}{gpu}"


def _values(entry: Diagnosis) -> set[str]:
    flat = {text for text in _flat(entry.evidence) if len(text) > 1}
    return flat | {word for word in _WORDS.findall(entry.message) if _TELLING.search(word)} | {entry.message}


def _flat(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield str(key)
            yield from _flat(each)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            yield from _flat(each)
    elif value not in (None, True, False, ""):
        yield str(value)


def _weight(values: Iterable[str], question: str, reply: Reply) -> int:
    text = f"{question} {reply.value}"
    return sum(len(value) for value in values if value in text)


def _in(question: str, entry: Diagnosis, replies: Mapping[str, Reply]) -> Iterator[str]:
    """Where an answer is seen. One that consists of files is seen in those that the finding names."""
    value = replies[question].value
    paths = [path for path in value if isinstance(path, str) and path.startswith("/")] if isinstance(value, dict) else []
    named = {*_flat(entry.evidence)}
    yield from (path for path in paths if path in named or path in entry.message)
    if not any(path in named or path in entry.message for path in paths):
        yield questions.seen_in(question)
