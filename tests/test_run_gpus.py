"""`gpudoctor run` with GPUs, on daemons that give them, refuse them, or accept the wish and give none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import run
from lab_daemons import Daemon
from lab_gpus import Machine
from lab_podman import Podman
from process import Process
from terminal import Terminal
from waiting import until

pytestmark = pytest.mark.docker

NODES = "ls /dev | grep -x 'nvidia[0-9]*' | tr '\\n' ' '"
NONE_ARRIVED = "Warning: a GPU was requested, but the container has no device node and no libcuda.so.1"
TOO_SOON = "could not check whether the container has a GPU: it exited too soon"


class Doctor:
    """gpudoctor run on the lab's machine, with an engine of its own."""

    def __init__(self, machine: Machine, engine: Daemon | Podman, image: str, folder: Path) -> None:
        self.machine = machine
        self.image = engine.load(image)
        self.folder = folder
        self.env = {**engine.full, "XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder)}
        self._on_machine = engine.argv if isinstance(engine, Podman) else machine.argv
        self._engine = "podman" if isinstance(engine, Podman) else "docker"

    def argv(self, *words: str) -> list[str]:
        start = (sys.executable, "-m", "gpudoctor", "run", f"--engine={self._engine}")
        return self._on_machine(*start, "--image", self.image, *words)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """With Podman below a process that takes note of any that has ended, as the first one of a machine does: it waits."""
        argv = [*(["docker-init", "-s", "--"] if self._engine == "podman" else []), *self.argv(*words)]
        return run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=self.env, cwd=self.folder)

    def run_until_seen(self, *words: str, script: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Long enough that it is seen whether GPUs arrived, which takes a busy machine longer."""
        for seconds in (0.7, 10, 60):
            done = self.run(*words, "--", "sh", "-c", f"{script}; sleep {seconds}; exit {code}")
            if TOO_SOON not in done.stderr:
                break
        return done

    def left(self) -> list[str]:
        program = [self._engine, "ps", "--all", "--quiet"]
        containers = subprocess.run(program, capture_output=True, text=True, env=self.env, check=True).stdout.split()
        return containers + [path.name for path in self.folder.glob("gpudoctor-run-*")]


@pytest.fixture
def doctor(lab_machine: Machine, gpu_daemon: Daemon, bookworm: str, tmp_path: Path) -> Iterator[Doctor]:
    made = Doctor(lab_machine, gpu_daemon, bookworm, tmp_path)
    yield made
    assert made.left() == []


@pytest.fixture
def doctor_with_cdi(lab_machine: Machine, cdi_daemon: Daemon, bookworm: str, tmp_path: Path) -> Iterator[Doctor]:
    made = Doctor(lab_machine, cdi_daemon, bookworm, tmp_path)
    yield made
    assert made.left() == []


@pytest.fixture
def doctor_with_podman(lab_machine: Machine, podman: Podman, bookworm: str, tmp_path: Path) -> Iterator[Doctor]:
    made = Doctor(lab_machine, podman, bookworm, tmp_path)
    yield made
    assert made.left() == []


@pytest.mark.parametrize(
    ("options", "nodes", "way"),
    [
        ((), "nvidia0 nvidia1 ", "GPUs with the runtime nvidia"),
        (("--gpus=all", "--gpu-mode=gpus"), "nvidia0 nvidia1 ", "GPUs with --gpus"),
        (("--gpus=1",), "nvidia1 ", "GPUs with the runtime nvidia"),
        (("--gpus=0,1", "--gpu-mode=gpus"), "nvidia0 nvidia1 ", "'\"device=0,1\"'"),
        (("--gpus=none",), "", "docker run"),
    ],
)
def test_those_that_were_asked_for_arrive(doctor: Doctor, options: tuple[str, ...], nodes: str, way: str) -> None:
    done = doctor.run_until_seen(*options, script=NODES)
    assert (done.stdout, done.returncode) == (nodes, 0), done.stderr
    assert way in done.stderr
    assert "arrived" not in done.stderr


def test_a_wish_that_was_silently_dropped_is_said_while_the_program_runs(doctor: Doctor) -> None:
    doctor.machine.set(silent=True)
    terminal = Terminal(doctor.argv("-q", "--", "sh", "-c", "echo started; sleep 1000"), doctor.env, doctor.folder)
    try:
        terminal.expect("started")
        terminal.expect(NONE_ARRIVED)
        terminal.type("\x03")
        assert terminal.wait() == 130
    finally:
        terminal.close()


@pytest.mark.parametrize("words", [("--", "true"), ("-q", "--", "sh", "-c", "exit 5")], ids=["well", "failed"])
def test_a_program_that_ended_too_soon_is_not_spoken_for(doctor: Doctor, words: tuple[str, ...]) -> None:
    doctor.machine.set(silent=True)
    done = doctor.run(*words)
    assert done.returncode == (5 if "-q" in words else 0)
    assert TOO_SOON in done.stderr or NONE_ARRIVED in done.stderr


def test_a_start_that_fails_is_dissected(doctor: Doctor) -> None:
    doctor.machine.set(fails="not-loaded")
    done = doctor.run("--", "true")
    assert done.returncode in (125, 126, 127)
    assert done.stderr.count("driver not loaded") == 1
    assert "Broken: " in done.stderr
    assert "Fix: " in done.stderr


@pytest.mark.parametrize(("gpus", "nodes"), [("all", "nvidia0 nvidia1 "), ("1", "nvidia1 "), ("count=1", "nvidia0 ")])
def test_by_cdi(doctor_with_cdi: Doctor, gpus: str, nodes: str) -> None:
    done = doctor_with_cdi.run_until_seen(f"--gpus={gpus}", script=NODES)
    assert (done.stdout, done.returncode) == (nodes, 0), done.stderr
    assert "GPUs with CDI: Docker 2" in done.stderr
    assert "arrived" not in done.stderr


def test_a_device_that_cdi_does_not_know(doctor_with_cdi: Doctor) -> None:
    done = doctor_with_cdi.run("--gpus=7", "--gpu-mode=cdi", "--", "true")
    assert done.returncode in (125, 126, 127)
    assert "Broken: " in done.stderr


@pytest.mark.parametrize(("gpus", "nodes"), [("all", "nvidia0 nvidia1 "), ("1", "nvidia1 ")])
def test_by_podman(doctor_with_podman: Doctor, gpus: str, nodes: str) -> None:
    done = doctor_with_podman.run_until_seen(f"--gpus={gpus}", script=NODES, code=42)
    assert (done.stdout, done.returncode) == (nodes, 42), done.stderr
    assert "arrived" not in done.stderr


def test_podman_drops_the_wish_silently(doctor_with_podman: Doctor) -> None:
    until_told = "for n in $(seq 300); do [ -e told ] && exit 0; sleep 0.1; done; exit 9"
    argv = doctor_with_podman.argv("-q", "--gpus=all", "--gpu-mode=gpus", "--", "sh", "-c", until_told)
    with Process(
        ["docker-init", "-s", "--", *argv],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=doctor_with_podman.env,
        cwd=doctor_with_podman.folder,
    ) as process:
        assert process.stderr
        has_warned = any(NONE_ARRIVED in line for line in process.stderr)
        (doctor_with_podman.folder / "told").touch()
        process.stderr.read()
    if process.returncode in (125, 126, 127):
        pytest.skip("this Podman knows --gpus")
    assert has_warned
    assert process.returncode == 0


def test_podman_at_a_terminal(doctor_with_podman: Doctor) -> None:
    terminal = Terminal(doctor_with_podman.argv("-q", "--gpus=none"), doctor_with_podman.env, doctor_with_podman.folder)
    try:
        terminal.expect("# ")
        terminal.type("until stty size | grep '^33'; do sleep 0.1; done; sh -c 'echo a\"\"sleep; exec sleep 1000'\r")
        terminal.expect("33 101")
        terminal.expect("asleep")
        terminal.type("\x03")
        terminal.expect("# ")
        terminal.type("exit 42\r")
        assert terminal.wait() == 42
    finally:
        terminal.close()


def test_podman_that_is_killed(doctor_with_podman: Doctor) -> None:
    argv = doctor_with_podman.argv("-q", "--gpus=none", "--", "sh", "-c", "echo ready; sleep 1000")
    with Process(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=doctor_with_podman.env) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.kill()
    assert until(lambda: not doctor_with_podman.left())


def test_a_podman_device_that_is_not_there_is_dissected(doctor_with_podman: Doctor) -> None:
    done = doctor_with_podman.run("--gpus=7", "--", "true")
    assert done.returncode in (125, 126, 127)
    assert "unresolvable CDI devices" in done.stderr
    assert "Broken: CDI" in done.stderr or "Broken: the requested GPU" in done.stderr
