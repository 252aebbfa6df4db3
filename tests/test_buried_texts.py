"""A text in a large log is found wherever it is, whatever the log repeats around it, and as if it were alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gpudoctor import catalog, doctor, evidence
from gpudoctor.evidence.scan import WHOLE_BYTES

pytestmark = pytest.mark.slow

WORDS = ("worker", "cache", "queue", "batch", "session", "token", "shard", "replica", "client", "server", "lease", "offset")


def names(number: int, chance: random.Random) -> str:
    a, b, c = chance.choices(WORDS, k=3)
    return (
        f"10:00:{number % 60:02} INFO [{a}-{number % 64}] {b} {c} id={chance.getrandbits(64):016x} took {chance.random():.3f} ms"
    )


def driver(number: int, chance: random.Random) -> str:
    line = f"[{number:12.6f}] nvidia-modeset: WARNING: GPU:0: Unable to read EDID for display device DP-{number % 9}"
    return line if number % 3 == 0 else names(number, chance)


@pytest.mark.parametrize(
    ("case", "line", "before"),
    [
        ("couldnt-communicate-secure-boot-is-on", names, 0),
        ("docker-no-gpu-driver-snap", names, 1),
        ("no-kernel-image-blackwell", driver, 0.5),
    ],
)
def test_the_diagnosis_is_that_of_the_text_alone(case: str, line: Callable[[int, random.Random], str], before: float) -> None:
    text = yaml.load((Path(__file__).parent / "texts" / f"{case}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)["text"]
    chance = random.Random(7)
    noise = [line(number, chance) for number in range(5000)]
    place = int(before * len(noise))
    log = "\n".join((*noise[:place], text.rstrip("\n"), *noise[place:]))
    assert len(log) > WHOLE_BYTES
    alone, buried = (found(words) for words in (text, log))
    assert alone
    assert buried == alone


def found(text: str) -> list[str]:
    taken = evidence.snapshot_of(evidence.of_text(text))
    return [entry.problem for entry in doctor.judge(taken, doctor.select(catalog.checks(), "quick")).diagnosis]
