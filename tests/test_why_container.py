"""A user's command in a container: suspects are taken away inside, and nothing of a run stays."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from waiting import until

from gpudoctor.judging.experiments.suspect import FOLDER, LIMIT, VARIABLE, Surroundings, Suspect
from gpudoctor.trying import laboratory
from gpudoctor.trying.start import TIMEOUT, Goal
from gpudoctor.wanted import Request
from gpudoctor.why import places

pytestmark = pytest.mark.docker

AWAY = (
    Suspect(VARIABLE, "NCCL_PROTO", "LL9"),
    Suspect(FOLDER, "TMPDIR", "/proc"),
    Suspect(LIMIT, "stack", "4194304"),
)
SHOW = 'echo "${NCCL_PROTO-unset} $(ulimit -s) $TMPDIR $1"; touch "$TMPDIR/x"'
OPTIONS = ("--env=NCCL_PROTO=LL9", "--env=TMPDIR=/proc", "--network=none", "--ulimit=stack=4194304:8388608")


@pytest.fixture
def container(bookworm: str) -> Iterator[str]:
    argv = ["docker", "run", "-d", *OPTIONS, bookworm, "sleep", "600"]
    name = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    yield name
    subprocess.run(["docker", "rm", "-f", name], capture_output=True)


def inside(container: str, *argv: str) -> str:
    return subprocess.run(["docker", "exec", container, *argv], capture_output=True, text=True).stdout


@pytest.mark.parametrize("is_new", [True, False], ids=["image", "container"])
def test_suspects_are_taken_away_inside(bookworm: str, container: str, is_new: bool) -> None:
    request = Request(image=bookworm, docker_options=OPTIONS) if is_new else Request(container=container)
    place, wanted = places.of(["sh", "-c", SHOW, "sh", "two words"], None, request)
    surroundings = Surroundings(variables={"NCCL_PROTO": "LL9", "TMPDIR": "/proc"})
    as_it_is = laboratory.again(place, (), surroundings, Goal()).ran
    changed = laboratory.again(place, AWAY, surroundings, Goal()).ran
    assert wanted.inside == request
    assert (as_it_is.code, "LL9 4096 /proc two words" in as_it_is.text) == (1, True)
    variable, limit, folder, *words = changed.text.split()
    assert (changed.code, variable, limit, words) == (0, "unset", "8192", ["two", "words"])
    assert inside(container, "sh", "-c", f"test -e {folder} && echo there") == ""


@pytest.mark.parametrize("is_new", [True, False], ids=["image", "container"])
def test_a_hanging_command_is_ended_inside(bookworm: str, container: str, is_new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.trying.running.GRACE_SECONDS", 0.2)
    options = ("--network=none", "--label=gpudoctor-test=why")
    request = Request(image=bookworm, docker_options=options) if is_new else Request(container=container)
    place, _ = places.of(["sh", "-c", "trap '' INT TERM; sleep 601; sleep 602"], None, request)
    ran = laboratory.again(place, (), Surroundings(), Goal(timeout=3)).ran
    assert ran.stopped == TIMEOUT
    listed = ["docker", "ps", "-aq", "--filter", "label=gpudoctor-test=why"]
    assert until(lambda: not subprocess.run(listed, capture_output=True, text=True).stdout)
    sleeping = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 60[12]'"
    assert until(lambda: not inside(container, "sh", "-c", sleeping))
