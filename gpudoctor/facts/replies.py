"""Raw replies by question, distinguishing all ways in which an answer can be missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from gpudoctor.facts.guarded import Guarded
from gpudoctor.model import Reply, Skip, Unavailable

_KINDS = {"missing": Skip.NOT_INSTALLED, "denied": Skip.NOT_PERMITTED}

Made = TypeVar("Made")


class Replies(Guarded):
    """The replies of one snapshot. A question that was not asked, denied or not answered raises Unavailable."""

    def __init__(self, replies: Mapping[str, Reply], unasked: Callable[[str], None] = lambda question: None) -> None:
        """unasked: called with each question that is read but was never asked, and with `PREFIX*` for all with a prefix."""
        self._replies = replies
        self._unasked = unasked
        self._starting_with: dict[str, dict[str, Reply]] = {}
        self._made: dict[str, Any] = {}

    def get(self, question: str) -> Reply:
        """The reply, whatever its status; Unavailable if the question was never asked."""
        try:
            return self._replies[question]
        except KeyError:
            self._unasked(question)
            if "reduced" in self._replies:
                raise Unavailable("only a check by shell was possible") from None
            kind = Skip.NOT_ASKED if self._is_of_an_older_version else Skip.NO_ANSWER
            raise Unavailable(f"{question} was not asked", kind) from None

    @cached_property
    def _is_of_an_older_version(self) -> bool:
        """Whether all probes came to their end: then what is not among their replies is a question that they did not know."""
        ended = [reply.status for question, reply in self._replies.items() if question.startswith("probe:")]
        return bool(ended) and all(status == "ok" for status in ended)

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """What is costly to make of these replies, made once for all topics that read it."""
        if name not in self._made:
            self._made[name] = make()
        made: Made = self._made[name]
        return made

    def value(self, question: str) -> Any:
        """The value of a reply that has to exist."""
        reply = self.get(question)
        if reply.status == "ok":
            return reply.value
        raise Unavailable(
            f"{question}: {reply.detail or reply.status}",
            _KINDS.get(reply.status, Skip.NO_ANSWER),
        )

    def optional(self, question: str) -> Any:
        """The value, or None if the machine answered that there is no such thing."""
        return None if self.get(question).status == "missing" else self.value(question)

    def is_missing(self, question: str) -> bool:
        """Whether the machine answered that there is no such thing."""
        if question not in self._replies:
            self._unasked(question)
            return False
        return self._replies[question].status == "missing"

    def file(self, path: str) -> str | None:
        """The text of a file, or None if it does not exist."""
        text: str | None = self.optional("file:" + path)
        return text

    def files(self, pattern: str) -> dict[str, str]:
        """Path -> text of the readable files that match a pattern of a probe."""
        paths = self.value("glob:" + pattern)
        return {path: text for path in paths if (text := self.file(path)) is not None}

    def command(self, argv: str) -> dict[str, Any] | None:
        """{"code", "out", "err"} of a command, or None if it is not installed."""
        result: dict[str, Any] | None = self.optional("command:" + argv)
        return result

    def starting_with(self, prefix: str) -> dict[str, Reply]:
        """Question -> reply, for all questions with this prefix."""
        self._unasked(prefix + "*")
        if prefix not in self._starting_with:
            self._starting_with[prefix] = {question: self._replies[question] for question in self._beginnings.with_(prefix)}
        return self._starting_with[prefix]

    @cached_property
    def _beginnings(self) -> Beginnings:
        return beginnings(tuple(self._replies))


class Beginnings:
    """Which questions begin with a prefix."""

    def __init__(self, questions: tuple[str, ...]) -> None:
        self._questions = questions
        self._found: dict[str, tuple[str, ...]] = {}

    def with_(self, prefix: str) -> tuple[str, ...]:
        if prefix not in self._found:
            self._found[prefix] = tuple(question for question in self._questions if question.startswith(prefix))
        return self._found[prefix]


@lru_cache(maxsize=64)
def beginnings(questions: tuple[str, ...]) -> Beginnings:
    """The same for all machines that were asked the same."""
    return Beginnings(questions)
