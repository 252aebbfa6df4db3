"""What a machine says of itself cannot become a command: not in a fix, not in a recipe, not in the script."""

from __future__ import annotations

import ast
import itertools
import random
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import machine
import pytest
from each import each, try_each
from sources import examined, nodes, text_of
from test_fix_fields import every
from test_fix_recipes import ARCH, BOOKWORM, DKMS, FEDORA, FUSION, LEAP, NIXOS, NOBLE, OF_NVIDIA, OF_ROCKY, RUNFILE, SERVER, SLES

from gpudoctor import catalog, doctor, filling, folders
from gpudoctor.files import opening
from gpudoctor.fixes import RECIPES, FixContext, fitting
from gpudoctor.fixes.distribution import Distribution
from gpudoctor.model import Fix, Reply, Snapshot
from gpudoctor.repair import plan, script

HOSTILE = Path(__file__).parent / "hostile"
VALUES = ("a;b'c$(d)", 'x"y', "`id`", "a\nb", "a && b", "-rf", "--option=x", "x|y", "a#b", "$HOME", "*", "\x1b]52;c", "ж/ж", "")
SIGN = "pwnz"
PAYLOADS = (f";{SIGN};#", f"$({SIGN})", f"`{SIGN}`", f"';{SIGN};'", f'";{SIGN};"', f"\n{SIGN}\n", f" && {SIGN} && x", f"|{SIGN} ")


def words(command: str) -> list[str]:
    return list(shlex.shlex(command, posix=True, punctuation_chars=True))


def templates() -> Iterator[tuple[str, tuple[str, str]]]:
    for name, fix in every():
        for text in (fix.command, fix.verify, fix.undo):
            yield from ((f"{name}: {text}: {value}", (text, value)) for value in filling.names(text))


def test_a_value_is_one_word_of_every_template() -> None:
    def is_one_word(row: tuple[str, str]) -> None:
        text, name = row
        others = dict.fromkeys(filling.names(text), "SAFE")
        safe = filling.filled(text, {**others, name: "VALUE"})
        assert safe is not None
        for value in VALUES:
            made = filling.filled(text, {**others, name: value})
            if made is None:
                continue
            if '"$(' in text:
                assert made == safe.replace("VALUE", shlex.quote(value))
            else:
                assert words(made) == [word.replace("VALUE", value) for word in words(safe)]

    try_each(is_one_word, dict(templates()).items())


@each(
    ("template", "value", "expected"),
    [
        ("ls <x>", "a b", "ls 'a b'"),
        ("ls <x>", "-rf", None),
        ("ls --file=<x>", "-rf", "ls --file=-rf"),
        ("ls <x>", "a\nb", None),
        ("ls <x>", ["a", "b;c"], "ls a 'b;c'"),
        ("ls '<x>'", ["a", "b"], None),
        ("ls '<x>'", "a b", None),
        ('ls "<x>"', "$(id)", None),
        ('ls "<x>"', "1.2", 'ls "1.2"'),
        ('ls "$(cat <x>)"', "a b", "ls \"$(cat 'a b')\""),
        ("ls `cat <x>`", "a b", None),
        ("ls ${y:-<x>}", "a}b", None),
        ("ls \\'<x>", "a b", "ls \\''a b'"),
        ("ls # it's <x>", "a b", "ls # it's a b"),
        ("ls # it's\nls <x>", "a b", "ls # it's\nls 'a b'"),
    ],
)
def test_where_a_value_stands_decides(template: str, value: Any, expected: str | None) -> None:
    assert filling.filled(template, {"x": value}) == expected


def test_a_fix_whose_value_does_not_fit_is_left_to_a_person() -> None:
    fix = Fix("Remove it", "sed -i 's#<x>##' f", verify="cat f", undo="mv f.bak f", kind="set", recipe="toolkit <x>")
    refused = fix.filled({"x": "a#b"})
    assert (refused.command, refused.kind, refused.undo, refused.recipe, refused.verify) == ("", "manual", "", "", "cat f")


MACHINES = (ARCH, BOOKWORM, DKMS, FEDORA, FUSION, LEAP, NIXOS, NOBLE, OF_NVIDIA, OF_ROCKY, RUNFILE, SERVER, SLES)
TEXTS = [field.name for field in fields(Distribution) if isinstance(field.default, str)]


def worse(host: Distribution, payload: str) -> Iterator[Distribution]:
    for name in TEXTS:
        changed_text: Any = {name: f"{getattr(host, name)}{payload}"}
        yield replace(host, **changed_text)
    yield replace(
        host, packages={f"{name}{payload}": version for name, version in (*host.packages.items(), ("nvidia-driver", "1"))}
    )
    yield replace(
        host, packages={name: f"{version}{payload}" for name, version in (*host.packages.items(), ("nvidia-driver", "1"))}
    )


def test_a_recipe_takes_plain_words_only() -> None:
    recipes = [*RECIPES, "driver 580", "toolkit 12.8", "toolkit <x>", "driver <x>"]
    for host, payload in zip(MACHINES, itertools.cycle(PAYLOADS), strict=False):
        for one, recipe in itertools.product(worse(host, payload), recipes):
            fixes = fitting((Fix("Do it", "static", recipe=recipe),), FixContext(("debian", "host"), one), {"x": f"1{payload}"})
            assert not any(SIGN in fix.command + fix.undo + fix.verify for fix in fixes)


def judged(taken: Snapshot) -> list[Fix]:
    report = doctor.judge(taken, doctor.select(catalog.checks(), "full" if taken.measured else "quick"))
    steps = plan.of_report(report.diagnosis)
    assert not commands(script.render(steps))
    return [fix for entry in report.diagnosis for fix in entry.fixes]


def commands(text: str) -> list[str]:
    """The sign where it is not inside a word of a command; comments are not read."""
    found = []
    for line in text.splitlines():
        if SIGN in line and not line.lstrip().startswith("#"):
            found += [
                word
                for word in words(line)
                if word.strip() == SIGN or (re.search(rf"\$\({SIGN}|`{SIGN}", word) and not quoted(line))
            ]
    return found


def quoted(line: str) -> bool:
    """Whether what starts a command in a word stands in single quotes."""
    return re.search(r"'[^']*(?:\$\(|`)", line) is not None


CHECKED = sorted([*catalog.files(), *(folders.package() / "judging").rglob("*.py")])
OF_A_FIX = {"Fix", "look", "fix_on", "install_on", "kernel_log", "reset_by", "again", "restarted", "shut_down_wsl"}
OURS = {"unmask"}  # constants by another name


def interpolated(path: Path) -> Iterator[str]:
    """What f-strings put into the arguments of a fix, other than its title."""
    for call in nodes(text_of(path), ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id in OF_A_FIX:
            for argument in (*call.args[1:], *(keyword.value for keyword in call.keywords if keyword.arg != "title")):
                values = (node.value for node in ast.walk(argument) if isinstance(node, ast.FormattedValue))
                yield from (name for name in map(ast.unparse, values) if not name.isupper() and name not in OURS)


@examined
def test_a_check_names_values_and_does_not_write_them_into_commands() -> None:
    assert {path: names for path in CHECKED if (names := list(interpolated(path)))} == {}


@pytest.mark.parametrize("line", [f"python;{SIGN};# train.py", f"$({SIGN})", f"python 'open\n{SIGN}"])
def test_the_line_of_a_command_is_only_words(line: str) -> None:
    taken = machine.load("command-slow")
    told = {**taken.replies["command"].value, "line": line}
    for fix in judged(replace(taken, replies={**taken.replies, "command": Reply("ok", told)})):
        assert not commands(fix.command)


@pytest.mark.parametrize("name", ["fix-os-release", "fix-pci", "fix-preload", "fix-uname"])
def test_the_attacks_that_were_found(name: str) -> None:
    taken = opening.taken_in(str(HOSTILE / f"{name}.json"))
    for fix in judged(taken):
        for text in (fix.command, fix.verify, fix.undo):
            assert "touch" not in words(text)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))


def changed(value: Any, path: tuple[Any, ...], text: str) -> Any:
    if not path:
        return text
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], text)
    return copy


def used(taken: Snapshot, texts: str) -> list[tuple[str, tuple[Any, ...], str]]:
    """The strings of the replies that a command of a fix contains, or a word of them."""
    return [
        (question, path, text)
        for question, reply in taken.replies.items()
        for path, text in leaves(reply.value)
        if any(len(word) > 3 and word in texts for word in re.split(r"[\s:=\"']+", text[:2000]))
    ]


@pytest.mark.parametrize("seed", range(3))
def test_no_field_of_a_snapshot_becomes_a_command(seed: int) -> None:
    """A payload behind a word of a string that a fix names, on machines drawn by lot."""
    chance = random.Random(seed)
    for case in chance.sample(machine.cases(), 4):
        taken = machine.load(case)
        texts = "\n".join(fix.command + fix.undo for fix in judged(taken))
        fields_ = used(taken, texts)
        for question, path, text in chance.sample(fields_, min(4, len(fields_))):
            spots = [match.end() for match in re.finditer(r"[\w./-]{4,}", text) if match[0] in texts] or [len(text)]
            at = chance.choice(spots)
            bad = text[:at] + chance.choice(PAYLOADS) + text[at:]
            reply = taken.replies[question]
            hostile = Reply(reply.status, changed(reply.value, path, bad), reply.detail)
            try:
                fixes = judged(replace(taken, replies={**taken.replies, question: hostile}))
            except (TypeError, KeyError, ValueError, IndexError, AttributeError):
                continue  # other tests are about replies that cannot be read
            for fix in fixes:
                assert not commands(fix.command) + commands(fix.undo) + commands(fix.verify), (case, question, path, bad)
