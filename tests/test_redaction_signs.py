"""What is looked for before a rule is applied lets no text through that the rule would change."""

from __future__ import annotations

import random

import machine
import pytest
from each import each
from test_patterns import example, parser

from gpudoctor.files import snapshot
from gpudoctor.redaction import credentials, redacted, secret_forms, spoken, unmatched
from gpudoctor.redaction.literals import Literals

EXAMPLES = 1000


@each(
    ("signs", "parts"),
    [(secret_forms.SIGNS, credentials._PARTS_OF_SIGNS), (spoken._SIGNS, spoken._PARTS_OF_SIGNS)],
    ids=["beside", "spoken"],
)
def test_every_text_with_a_sign_has_a_part_of_it(signs: object, parts: Literals) -> None:
    tree, by = parser.parse(signs.pattern, signs.flags), random.Random(1)  # type: ignore[attr-defined]
    found = {text for text in (example(tree, by) for _ in range(EXAMPLES)) if text.isascii()}
    assert len(found) > 30
    assert [text for text in found for way in (text, text.upper()) if not parts.any_in(way.lower())] == []


def test_what_rules_remember_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither with kinds that are kept, nor where there is no room for more."""
    taken = machine.load("no-gpu")
    first = [snapshot.dump(redacted(taken, keep).snapshot) for keep in ((), ("hostname", "processes"), ())]
    monkeypatch.setattr(unmatched, "MOST_CHARACTERS", 100)
    assert [snapshot.dump(redacted(taken, keep).snapshot) for keep in ((), ("hostname", "processes"), ())] == first
    assert first[0] == first[2]


def test_a_name_that_is_kept_once_is_replaced_the_next_time() -> None:
    from gpudoctor import evidence

    taken = evidence.snapshot_of(evidence.of_text("hostname: zorbax7"))
    kept = snapshot.dump(redacted(taken, ("hostname",)).snapshot)
    assert b"zorbax7" in kept
    assert b"zorbax7" not in snapshot.dump(redacted(taken).snapshot)
