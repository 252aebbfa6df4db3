"""The words of a text around its outputs."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts


def passages(facts: Facts) -> Iterator[str]:
    yield from (passage.text for text in facts.texts.all for passage in text.passages)
