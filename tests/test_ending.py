"""A pull or a build that is ended from outside takes the engine's command with it, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import own_registry
import pytest
from process import command_lines
from waiting import HOPELESS_SECONDS, until

pytestmark = pytest.mark.slow

SLEEP_SECONDS = f"300.{os.getpid()}"  # to be told from others

LABEL = "io.gpudoctor.test=ending"
BUILD = """\
import sys
from pathlib import Path
from gpudoctor.cli import ending
from gpudoctor.containers.engine import client
from gpudoctor.containers.images import building, catalog

base = building.Base("base", "", sys.argv[1])
image = catalog.Image("recipe", sys.argv[2], recipe=Path(sys.argv[3]))
with ending.by_signal():
    building.build(client.find("docker"), image, base, options=("--network=none",))
"""


def running(program: str, word: str) -> list[str]:
    """The command lines of a program that have a word in them, whoever started them."""
    return [line for line in command_lines().values() if Path(line.split(" ")[0]).name.startswith(program) and word in line]


def ended(argv: list[str], word: str, is_at_work: Callable[[], object], number: int, folder: Path) -> int:
    """Starts gpudoctor, ends it while the engine is at work, and gives its exit code. folder: for its temporary files."""
    env = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env) as run:
        try:
            began = until(lambda: is_at_work() or run.poll() is not None)
            run.send_signal(number)
            said = run.communicate(timeout=HOPELESS_SECONDS)[0].decode()
        finally:
            run.kill()
    assert began, said
    assert "Traceback" not in said
    assert until(lambda: not running("docker", word)), running("docker", word)
    return run.returncode


@pytest.fixture
def recipe(tmp_path: Path, builds_alone: None) -> Iterator[Path]:
    folder = tmp_path / "recipe"
    folder.mkdir()
    (folder / "Dockerfile").write_text(f"ARG BASE=base\nFROM ${{BASE}}\nLABEL {LABEL}\nRUN exec sleep {SLEEP_SECONDS}\n")
    yield folder
    assert until(is_pruned)  # a daemon may still keep a container of the build that was ended, and so its image


def is_pruned() -> bool:
    own_registry.prune(LABEL)
    command = ["docker", "image", "ls", "--quiet", "--filter=dangling=true", f"--filter=label={LABEL}"]
    return not subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.docker
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_build_that_is_ended(number: signal.Signals, recipe: Path, bare: str, tmp_path: Path) -> None:
    tag = f"gpudoctor-test-ending/image:{number.name.lower()}-{os.getpid()}"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    argv = [sys.executable, "-c", BUILD, bare, tag, str(recipe)]
    assert ended(argv, tag, lambda: running("sleep", SLEEP_SECONDS), number, temporary) == 128 + number
    assert list(temporary.iterdir()) == []
    assert until(lambda: not running("sleep", SLEEP_SECONDS))


FOREVER = 600


def is_hello(request: BaseHTTPRequestHandler) -> bool:
    """The one question for whose answer a daemon does not wait long."""
    return request.path == "/v2/"


@pytest.mark.docker
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_pull_that_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    asked, is_over = threading.Event(), threading.Event()

    def respond(request: BaseHTTPRequestHandler) -> None:
        """Nothing for us, and for the engine, once it has said hello, an answer that does not come."""
        if is_hello(request):
            own_registry.say(200, "{}")(request)
            return
        if not request.headers.get("User-Agent", "").startswith("gpudoctor"):
            asked.set()
            is_over.wait(FOREVER)
        own_registry.say(503, "")(request)

    with own_registry.answers(respond) as host:
        reference = f"{host}/a/b:1"
        argv = [sys.executable, "-m", "gpudoctor", "images", "pull", reference, "--engine=docker"]
        code = ended(argv, reference, asked.is_set, number, tmp_path)
        is_over.set()
    assert code == 128 + number


@pytest.mark.docker
def test_under_nohup_a_pull_goes_on(tmp_path: Path) -> None:
    asked, is_over = threading.Event(), threading.Event()

    def respond(request: BaseHTTPRequestHandler) -> None:
        if not request.headers.get("User-Agent", "").startswith("gpudoctor"):
            asked.set()
            is_over.wait(FOREVER)
        own_registry.say(404, "")(request)

    with own_registry.answers(respond) as host:
        argv = ["nohup", sys.executable, "-m", "gpudoctor", "images", "pull", f"{host}/a/b:1", "--force", "--engine=docker"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path) as run:
            assert until(lambda: asked.is_set() or run.poll() is not None)
            run.send_signal(signal.SIGHUP)
            is_over.set()
            run.communicate(timeout=HOPELESS_SECONDS)
    assert run.returncode == 2
