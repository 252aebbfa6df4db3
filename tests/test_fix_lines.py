"""Every line that people paste: it parses, ShellCheck accepts it, and what it lacks has a name with a meaning."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from each import each, try_each
from test_fix_fields import every
from test_fix_recipes import ARCH, BOOKWORM, COMMANDS, NIXOS, NOBLE, ROCKY, SLES, made

from gpudoctor import catalog, filling, placeholders
from gpudoctor.facts.system import FAMILIES
from gpudoctor.fixes import FixContext, available, engines, fitting
from gpudoctor.fixes.distribution import Distribution
from gpudoctor.knowledge import distributions
from gpudoctor.model import Fix

pytestmark = pytest.mark.xdist_group("fix lines")  # which take seconds to make

ENGINES = ("docker", "podman", "kubernetes")
# Lists of words and options that are meant to be split, files of another machine, and messages that mention a signal.
AT_ONCE = 200  # scripts: the garbage collector of ShellCheck searches all that it has read, again and again
ACCEPTED = (2046, 2155, 2164, 1090, 2044, 2010, 1007)


@cache
def fixes() -> dict[Fix, str]:
    """Each fix once -> the name of one that has it."""
    return {fix: name for name, fix in every()}


@cache
def lines() -> dict[str, str]:
    """Line of bash, as shown -> the fix that has it: of the catalog, of every engine, and of every recipe on every platform."""
    found: dict[str, str] = {}
    for fix, name in fixes().items():
        for engine in fix.engines or ENGINES[:1]:
            [spoken] = engines.of((fix,), engine)
            found.update(_of(name, spoken))
    for host in (NOBLE, replace(NOBLE, version="22.04"), BOOKWORM, ROCKY, SLES, ARCH, NIXOS):
        where = FixContext((host.family, "host", "physical", "bmc", "vm", "conda"), host, values={"python": "python"})
        for fix, name in fixes().items():
            for fitted in fitting((fix,), where, {}):
                found.update(_of(f"{name} on {host.distribution} {host.version}", fitted))
    for host, recipe, _ in COMMANDS:
        for fix in made(host, recipe):
            found.update(_of(f"{host.distribution} {recipe}", fix))
    return found


def _of(name: str, fix: Fix) -> Iterator[tuple[str, str]]:
    for text in fix.filled({"python": "python"}).shown.lines if fix.syntax == "bash" else ():
        if text:
            yield text, name


def test_every_line_parses() -> None:
    """One bash for all of them: each line is a function, and the first that does not parse is named."""
    assert len(lines()) > 1500
    script = "".join(f"f{number}() {{\n{text}\n}}\n" for number, text in enumerate(lines()))
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert done.stderr == ""


def test_no_line_leaves_a_quote_open() -> None:
    """Two open quotes in two lines would close each other in the test above."""

    def is_closed(line: str) -> None:
        assert filling.filled(line + " <end>", {"end": "a b"}) == line + " 'a b'"

    try_each(is_closed, ((line, line) for line in lines() if "#" not in line))


@pytest.mark.slow
def test_shellcheck_accepts_every_line(tmp_path: Path) -> None:
    program = shutil.which("shellcheck", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    if not program:
        pytest.skip("shellcheck is not installed")
    for number, text in enumerate(lines()):
        (tmp_path / str(number)).write_text(text + "\n")
    options = ("-s", "bash", "-S", "warning", "-f", "json", "--extended-analysis=false")  # single lines have no flow of data
    listed, files = list(lines()), sorted(tmp_path.iterdir())
    said = [
        f"{listed[int(Path(row['file']).name)]}: SC{row['code']} {row['message']}"
        for at in range(0, len(files), AT_ONCE)
        for row in json.loads(subprocess.run([program, *options, *files[at : at + AT_ONCE]], capture_output=True).stdout)
        if row["code"] not in ACCEPTED
    ]
    assert said == []


APT_REMOVES = re.compile(r"\bapt(?:-get)?(?: -\S+)* (?:purge|remove)((?: (?:'[^']*'|[^\s&|;'\"]+))+)")


def test_apt_removes_names_or_patterns_that_may_match_nothing() -> None:
    """`apt purge '^nvidia-.*' '^cuda-drivers.*'` removes nothing if one of them matches no package that apt knows."""

    def is_sure(line: str) -> None:
        for match in APT_REMOVES.finditer(line):
            for word in shlex.split(match[1]):
                assert word.startswith(("?", "-")) or not re.search(r"[*^]|\.\*", word)
                if word.startswith("?") and "(lib)?nvidia-" in word:  # libnvidia-container is no part of the driver
                    assert "container" in word

    try_each(is_sure, ((line, line) for line in lines()))


def test_every_package_of_a_line_is_in_the_table() -> None:
    """Those of apt are in apt.yaml, which holds the archives' own lists."""

    def is_listed(line: str) -> None:
        for manager, name in available.installed_by_others(line):
            assert distributions.knows(manager, name), (manager, name)

    try_each(is_listed, ((line, line) for line in lines()))


HOSTS = [("fedora", "43"), ("rhel", "8.10"), ("rocky", "9.7"), ("almalinux", "10.1"), ("amzn", "2023")]
HOSTS += [("opensuse-leap", "15.6"), ("sles", "16.0"), ("opensuse-tumbleweed", "20261101"), ("arch", "")]


@pytest.mark.slow
@each(("distribution", "version"), HOSTS)
def test_what_a_release_lacks_is_not_offered(distribution: str, version: str) -> None:
    family = next(family for family, names in FAMILIES.items() if distribution in names)
    host = Distribution(distribution, version, family, kernel="6.12.0-55.el10.x86_64" if family == "rhel" else "6.12.0-default")
    offered = 0
    for fix in fixes():
        for fitted in fitting((fix,), FixContext((family, "host"), host), {}):
            for manager, name in available.installed_by_others(fitted.command):
                offered += 1
                assert distributions.offers(manager, available.release_of(host), name), (fitted.command, name)
    assert offered > 20


@each(
    ("manager", "release", "name", "offered"),
    [
        ("dnf", "fedora 43", "gcc14-c++", True),
        ("dnf", "fedora 43", "gcc13-c++", False),
        ("dnf", "rhel 8", "passt", False),
        ("dnf", "rhel 9", "cuda-libraries-devel-12-8", True),
        ("dnf", "rhel 9", "cuda-libraries-dev-12-8", None),
        ("dnf", "mageia 9", "gcc", None),
        ("pacman", "arch", "gcc14", True),
    ],
)
def test_a_release_and_its_packages(manager: str, release: str, name: str, offered: bool | None) -> None:
    assert distributions.offers(manager, release, name) is offered


PROSE = re.compile(
    r"\b(?:OLD|NUMBER|IMAGE|NAMESPACE|NAME|INPUT|FILE|PID)\b(?!=)|, (?:with|then|if|and|or) |\b(?:the|that|which) \w+"
)


def test_no_prose_stands_where_a_command_stands() -> None:
    def is_a_command(line: str) -> None:
        assert not PROSE.search(re.sub(r"'[^']*'|\"[^\"]*\"|#.*", "", line))

    try_each(is_a_command, ((line, line) for line in lines()))


def test_every_value_that_is_left_open_has_a_meaning() -> None:
    def has_a_meaning(line: str) -> None:
        for name in filling.names(line):
            assert placeholders.meaning(name) != placeholders.UNKNOWN

    try_each(has_a_meaning, ((line, line) for line in lines()))


@each(
    ("template", "expected"),
    [
        ("pip install torch==<version>", "pip install torch==${version:?}"),
        ("grep 'a<name>' x", "grep 'a'\"${name:?}\"'' x"),
        ('grep "a<name>" x', 'grep "a${name:?}" x'),
        ("ls && rm <file>", ': "${file:?}" && ls && rm ${file:?}'),
        ("rm <file> && ls <file>", "rm ${file:?} && ls ${file:?}"),
        ("lsmod | grep <name>", ': "${name:?}" && lsmod | grep ${name:?}'),
        ("pip install <half>", "pip install ${plugin_library:?}"),
    ],
)
def test_what_is_not_known_is_shown_so_that_it_stops(template: str, expected: str) -> None:
    assert filling.shown(template) == expected


def test_a_pasted_line_runs_nothing_before_its_values_are_set(tmp_path: Path) -> None:
    line = filling.shown(f"touch {tmp_path}/ran && touch '<file>'")
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert "file: parameter null or not set" in done.stderr
    assert list(tmp_path.iterdir()) == []
    subprocess.run(["bash", "-c", f"file='{tmp_path}/a b'\n{line}"], check=True)
    assert {path.name for path in tmp_path.iterdir()} == {"ran", "a b"}


UNSAFE = re.compile(r"history undo|-Rns|apt remove [^&]*(?:-(?: |$)|\bpython3?\b|\b(?:gcc|make)(?: |$))")
ELSE = re.compile(r"\|\|(?! sudo (?:dracut|mkinitcpio|grub2-mkconfig))")


def test_an_undo_is_never_worse_than_the_fix() -> None:
    def is_exact(fix: Fix) -> None:
        assert not UNSAFE.search(fix.undo)
        assert not ELSE.search(fix.undo)
        for backup, file in re.findall(r"mv (\S+\.bak) (\S+)", fix.undo):
            assert backup == f"{file}.bak"
            assert "sed -i.bak" in fix.command
            assert file in fix.command
        for file in re.findall(r"\brm (/\S+)", fix.undo):
            assert file in fix.command

    try_each(is_exact, ((name, fix) for name, fix in every() if fix.undo))


def test_a_command_for_another_shell_is_left_as_it_is() -> None:
    fix = Fix("Set it", "$env:A = <value>", syntax="powershell")
    assert fix.shown == fix


@pytest.mark.parametrize("name", ["triton", "torch-cpu-only-wheel"])
def test_explanations_say_what_the_values_mean(name: str) -> None:
    from gpudoctor import explaining

    text = "\n".join(explaining.known((name,)))
    assert "Values to set before you paste" in text
    assert "<" not in "".join(line for line in text.splitlines() if line.startswith("      "))


def test_an_explanation_shows_the_lines_of_this_platform() -> None:
    from gpudoctor.report.explanation import Here

    _, problem = catalog.problems()["module-not-built-after-kernel-update"]
    of_debian = Here(("debian", "host"), "/opt/env/bin/python").fixes(problem)
    assert {fix.on for fix in of_debian if fix.on} == {("debian",)}
    assert len(Here().fixes(problem)) > len(of_debian)
    assert Here(("plan9",)).fixes(problem) == Here().fixes(problem)
