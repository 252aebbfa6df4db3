"""A long log is read without lines that only repeat others, and nothing that happened once is lost."""

from __future__ import annotations

import random

from gpudoctor.facts.recurring import EACH, MOST_LINES, Recurring
from gpudoctor.judging.texts.candidates import candidates

ROUTINE = [
    (number, f"Nov 02 10:00:{number % 60:02} node kernel: NVRM: poll timed out, sequence {number:07}!") for number in range(9000)
]


def test_a_text_that_is_not_long_is_read_whole() -> None:
    assert Recurring(ROUTINE[:MOST_LINES]).thinned() == ROUTINE[:MOST_LINES]


def test_the_ends_of_a_shape_are_read_and_each_line_that_happened_once() -> None:
    rare = (5000, "NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU has fallen off the bus.")
    code = (6000, "Nov 02 10:00:00 node kernel: NVRM: poll timed out, sequence 7!")
    read = Recurring([*ROUTINE[:5000], rare, *ROUTINE[5001:6000], code, *ROUTINE[6001:]]).thinned()
    assert {*ROUTINE[:EACH], rare, code, *ROUTINE[-EACH:]} <= set(read)
    assert len(read) <= 4 * EACH


def test_what_holds_for_all_read_lines_of_a_shape_holds_for_the_others() -> None:
    lines = Recurring(ROUTINE)
    read = {number for number, _ in lines.thinned()}
    assert lines.like(read) == set(range(9000))
    assert lines.like(read - {0}) == read - {0}


def test_messages_of_a_long_text_are_sought_only_where_their_literals_are() -> None:
    passages = ["step 1\n" * 20_000, "RuntimeError: CUDA error: invalid device ordinal", "step 2\n" * 20_000]
    short = {message.id for message, _ in candidates(passages[1:2])}
    assert short
    assert {message.id: list(places) for message, places in candidates(passages)} == {id: [1] for id in short}


def test_names_in_ever_new_orders_are_routine_but_not_what_is_said_once() -> None:
    chance = random.Random(4)
    words = ["cache", "worker", "queue", "shard", "token", "lease", "batch", "topic"]
    lines = [
        (number, f"{chance.choice(words)} {chance.choice(words)} to {' '.join(chance.choices(words, k=5))}")
        for number in range(3000)
    ]
    once = [(1000, "$ nvidia-smi"), (1001, "batch worker"), (1002, "No devices were found")]
    read = Recurring([*lines[:1000], *once, *lines[1003:]]).thinned()
    assert set(once) <= set(read)
    assert {lines[0], lines[-1]} <= set(read)
    assert len(read) < 150
    routine = Recurring(lines)
    assert routine.like({number for number, _ in routine.thinned()}) == set(range(3000))
    assert routine.like({0}) == {0}
