"""Times on the command line: one syntax with every option that takes one."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from each import each

from gpudoctor.cli import main
from gpudoctor.cli.times import Time

WORDS = ("timeout", "for", "after", "faster-than", "minutes")


@each(
    ("typed", "seconds"),
    [("30", 30), ("30s", 30), ("1.5s", 1.5), ("5m", 300), ("5 min", 300), ("1h", 3600), ("2d", 172800), (" 7 ", 7)],
)
def test_a_time_is_a_number_of_seconds_or_has_a_unit(typed: str, seconds: float) -> None:
    assert Time(1, 7 * 86400).convert(typed, None, None) == seconds


def test_a_bare_number_has_the_unit_of_its_option() -> None:
    of_minutes = Time(0.1, 100, "m")
    assert [of_minutes.convert(typed, None, None) for typed in ("10", "10m", "90s", "1h", 3)] == [10, 10, 1.5, 60, 3]


@each("typed", ["", "-1", "s", "soon", "1e3", "inf", "nan", "5x", "1:30", "²s", "9" * 400, "0.5", "8d", "1H"])
def test_what_is_no_time_is_refused_with_the_limits(typed: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        Time(1, 7 * 86400).convert(typed, None, None)
    assert refused.value.message == f"{typed!r} is not a time between 1s and 7d, such as 30, 30s or 5m."


def _options(group: click.Group, *names: str) -> Iterator[tuple[str, click.Option]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from _options(command, *names, name)
        elif command:
            yield from ((" ".join((*names, name)), each) for each in command.params if isinstance(each, click.Option))


def test_every_option_for_a_time_takes_all_of_them() -> None:
    of_time = [(name, each) for name, each in _options(main) if any(word in WORDS for word in _words(each))]
    assert {"check", "hang", "watch", "why", "gate", "burn", "profile", "fleet check"} <= {name for name, _ in of_time}
    assert [(name, each.opts) for name, each in of_time if not isinstance(each.type, Time)] == []


def _words(option: click.Option) -> list[str]:
    name = option.opts[0].removeprefix("--")
    is_of_words = isinstance(option.type, click.Choice) or option.metavar == "WORK,…"
    return [] if is_of_words else ["timeout" if name.endswith("-timeout") else name]
