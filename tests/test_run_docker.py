"""`gpudoctor run` on a real engine: what a person at a terminal, a pipe and a signal get, and that nothing is left."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from forked import run
from process import Process, command_lines
from terminal import Terminal
from waiting import HOPELESS_SECONDS, until

pytestmark = pytest.mark.docker

GPUDOCTOR = (sys.executable, "-m", "gpudoctor")
# A limit that no daemon may give, in the place of those that are asked for.
TOO_MUCH = """
from gpudoctor.containers.engine import rlimits
rlimits.WANTED = {"nofile": "2147483647"}
rlimits.refused = lambda engine: ()
from gpudoctor.cli import main
main(prog_name="gpudoctor")
"""
TRAPS = "trap 'exit 7' TERM; trap 'echo usr1' USR1; trap 'exit 8' INT; echo ready; while :; do sleep 0.05; done"


@dataclass(frozen=True)
class Doctor:
    """gpudoctor run, in a folder and with temporary files and caches of its own, so that what it leaves is seen."""

    folder: Path
    image: str
    name: str = field(default_factory=lambda: f"test-run-{secrets.token_hex(4)}")

    @property
    def env(self) -> dict[str, str]:
        folders = {"HOME": "work", "XDG_CACHE_HOME": "cache", "TMPDIR": "tmp"}
        return {**os.environ, **{variable: str(self.folder / name) for variable, name in folders.items()}}

    def argv(self, *words: str, program: tuple[str, ...] = GPUDOCTOR) -> list[str]:
        ours = ("--engine=docker", f"--docker-option=--label={self.name}", "--network=none", "--gpus=none")
        return [*program, "run", "--image", self.image, *ours, *words]

    def run(self, *words: str, input: str = "", **options: object) -> subprocess.CompletedProcess[str]:
        argv = self.argv(*words, **options)  # type: ignore[arg-type]
        return run(argv, input=input, capture_output=True, text=True, env=self.env, cwd=self.folder / "work")

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Started in a session of its own, and heard to say "ready"."""
        argv = self.argv("-q", *words)
        process = Process(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.env, cwd=self.folder, start_new_session=True
        )
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return process

    def terminal(self, *words: str) -> Terminal:
        return Terminal(self.argv("-q", *words), self.env, self.folder / "work")

    def processes(self, word: str) -> list[int]:
        """Those with this in their command line: "--cidfile" is the engine's command, "gpudoctor-guard" the watchdog."""
        return [process for process, line in command_lines().items() if word in line and str(self.folder) in line]

    def containers(self) -> list[str]:
        argv = ["docker", "ps", "-aq", "--filter", f"label={self.name}"]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()

    def left(self) -> list[str]:
        """Containers, temporary files and processes of this test."""
        files = [path.name for path in (self.folder / "tmp").iterdir()]
        return self.containers() + files + list(command_lines(of=str(self.folder)).values())

    def must_be_gone(self) -> None:
        assert until(lambda: not self.left()), f"left behind: {self.left()}"


def wait_for(is_so: Callable[[], object]) -> None:
    assert until(is_so)


@pytest.fixture
def doctor(bookworm: str) -> Iterator[Doctor]:
    folder = Path(tempfile.mkdtemp(prefix="test-run-"))
    folder.chmod(0o755)
    for part in ("work", "cache", "tmp"):
        (folder / part).mkdir()
        (folder / part).chmod(0o777)
    made = Doctor(folder, bookworm)
    yield made
    try:
        made.must_be_gone()
    finally:
        for container in made.containers():
            subprocess.run(["docker", "rm", "-f", container], capture_output=True)
        shutil.rmtree(folder)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def test_a_terminal_is_the_programs_inside(doctor: Doctor, terminals: list[Terminal]) -> None:
    terminal = doctor.terminal()
    terminals.append(terminal)
    terminal.expect(r"root@\w+:/workspace/host# ")
    terminal.type("until stty size | grep -v '^0 0'; do sleep 0.1; done\r")  # older daemons set it just after the start
    terminal.expect(r"33 101")
    terminal.resize(40, 120)
    terminal.type("until stty size | grep '^40'; do sleep 0.1; done\r")
    terminal.expect(r"40 120")
    terminal.type("sh -c 'echo a\"\"sleep; exec sleep 1000'\r")  # said by what has the terminal by then
    terminal.expect("asleep")
    terminal.type("\x03")
    terminal.type("echo after=$?\r")
    terminal.expect(r"after=130")
    terminal.type("exit 42\r")
    assert terminal.wait() == 42
    assert termios.tcgetattr(terminal.slave) == terminal.modes


def test_end_of_input_ends_the_shell(doctor: Doctor, terminals: list[Terminal]) -> None:
    terminal = doctor.terminal("-e", "PS1=> ", "--", "sh")
    terminals.append(terminal)
    terminal.expect("# |> ")
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_a_closed_window_ends_the_container(doctor: Doctor, terminals: list[Terminal]) -> None:
    terminal = doctor.terminal()
    terminals.append(terminal)
    terminal.expect("root@.*# ")
    terminal.hang_up()
    terminal.process.wait(HOPELESS_SECONDS)
    doctor.must_be_gone()


def test_termination_reaches_a_program_that_has_the_terminal(doctor: Doctor, terminals: list[Terminal]) -> None:
    terminal = doctor.terminal("--", "sh", "-c", TRAPS)
    terminals.append(terminal)
    terminal.expect("ready")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.wait() == 7
    assert termios.tcgetattr(terminal.slave) == terminal.modes


def test_a_key_is_one_signal_where_only_input_is_a_terminal(doctor: Doctor, terminals: list[Terminal]) -> None:
    counts = "trap 'echo int' INT; trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    words = ["sh", "-c", 'exec "$@" >out', "sh", *doctor.argv("-q", "--", "sh", "-c", counts)]
    terminal = Terminal(words, doctor.env, doctor.folder / "work")
    terminals.append(terminal)
    output = doctor.folder / "work" / "out"
    wait_for(lambda: output.exists() and output.read_text() == "ready\n")
    terminal.type("\x03")
    wait_for(lambda: "int" in output.read_text())
    terminal.process.terminate()
    assert terminal.wait() == 7
    assert output.read_text() == "ready\nint\n"


def test_killed_at_a_terminal(doctor: Doctor, terminals: list[Terminal]) -> None:
    terminal = doctor.terminal()
    terminals.append(terminal)
    terminal.expect("root@.*# ")
    terminal.process.kill()
    terminal.process.wait()
    doctor.must_be_gone()
    assert termios.tcgetattr(terminal.slave) == terminal.modes


def test_detached_it_goes_on_and_is_said(doctor: Doctor, terminals: list[Terminal]) -> None:
    terminal = doctor.terminal("--", "sh", "-c", TRAPS)
    terminals.append(terminal)
    terminal.expect("ready")
    terminal.type("\x10\x11")
    container = terminal.expect(r"the container is still running. Attach: docker attach (\w+)")[1]
    assert terminal.wait() == 0
    state = subprocess.run(["docker", "inspect", "-f", "{{.State.Running}}", container], capture_output=True, text=True)
    assert state.stdout.strip() == "true"
    subprocess.run(["docker", "rm", "-f", container], check=True, capture_output=True)


def test_in_the_background_it_goes_on_and_is_named(doctor: Doctor) -> None:
    done = doctor.run("-d", "--", "sh", "-c", "echo here; sleep 600")
    assert done.returncode == 0, done.stderr
    id = done.stdout.strip()
    try:
        assert f"docker rm --force {id}" in done.stderr
        look = subprocess.run(
            ["docker", "inspect", "--format", "{{.State.Running}} {{.HostConfig.AutoRemove}}", id], capture_output=True
        )
        assert look.stdout.split() == [b"true", b"true"]
    finally:
        subprocess.run(["docker", "rm", "--force", id], capture_output=True, check=True)
    refused = doctor.run("-d", "--docker-option=--memory=1", "--", "true")
    assert (refused.returncode, refused.stdout) == (125, "")
    assert "memory" in refused.stderr.lower()


def test_pipes(doctor: Doctor) -> None:
    done = doctor.run("-q", "--", "sh", "-c", "cat; echo no >&2; exit 3", input="hi\n")
    assert (done.stdout, done.stderr, done.returncode) == ("hi\n", "no\n", 3)


def test_much_data_goes_through_unchanged(doctor: Doctor) -> None:
    data = os.urandom(3_000_000)
    done = run(doctor.argv("-q", "--", "cat"), input=data, stdout=subprocess.PIPE, env=doctor.env, cwd=doctor.folder)
    assert done.stdout == data


def test_output_and_errors_in_one_place_keep_their_order(doctor: Doctor) -> None:
    """Each line is written when the one before it has come."""
    written = "until read _; do :; done"
    argv = doctor.argv("-q", "--", "sh", "-c", f"for n in 1 2 3 4; do echo o$n; {written}; echo e$n >&2; {written}; done")
    with Process(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=doctor.env,
        cwd=doctor.folder,
    ) as process:
        assert process.stdin
        assert process.stdout
        for line in ("o1", "e1", "o2", "e2", "o3", "e3", "o4", "e4"):
            assert process.stdout.readline() == f"{line}\n"
            process.stdin.write("\n")
            process.stdin.flush()


@contextlib.contextmanager
def reader_behind(doctor: Doctor) -> Iterator[subprocess.Popen[bytes]]:
    """One whose pipe holds little, of a program whose engine's command has ended."""
    argv = doctor.argv("-q", "--", "sh", "-c", "seq 1 5000; sleep 1")
    with Process(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pipesize=4096, env=doctor.env, cwd=doctor.folder
    ) as process:
        wait_for(lambda: bool(doctor.processes("--cidfile")))
        wait_for(lambda: not doctor.processes("--cidfile"))
        yield process


def test_a_slow_reader_gets_everything(doctor: Doctor) -> None:
    with reader_behind(doctor) as process:
        time.sleep(1.5)
        assert process.stdout
        assert process.stdout.read().split() == [b"%d" % number for number in range(1, 5001)]
    assert process.returncode == 0


def test_a_reader_that_never_reads_can_be_left(doctor: Doctor) -> None:
    with reader_behind(doctor) as process:
        process.terminate()
        process.wait(HOPELESS_SECONDS)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("Error: config not found", 127),
        ("Error: setrlimit failed", 126),
        ("docker: setrlimit failed", 125),
        ("docker: Error response from daemon: error setting rlimits", 125),  # it may use docker itself
    ],
)
def test_a_program_that_sounds_like_a_refusal_runs_once_and_is_heard(doctor: Doctor, words: str, code: int) -> None:
    script = f"echo ran >>count; echo '{words}' >&2; exit {code}"
    argv = doctor.argv("-q", "--ulimit", "memlock=65536", "--", "sh", "-c", script)
    work = doctor.folder / "work"
    done = run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=doctor.env, cwd=work)
    assert (done.stderr, done.returncode) == (f"{words}\n", code)
    assert (work / "count").read_text() == "ran\n"


def test_a_reader_that_has_seen_enough(doctor: Doctor) -> None:
    argv = doctor.argv("-q", "--", "sh", "-c", "yes")
    with Process(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=doctor.env, cwd=doctor.folder) as process:
        assert process.stdout
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        time.sleep(0.5)
        process.terminate()
        process.wait(HOPELESS_SECONDS)
    doctor.must_be_gone()


def test_without_any_input(doctor: Doctor) -> None:
    script = 'exec "$@" <&-'
    argv = ["sh", "-c", script, "sh", *doctor.argv("-q", "--", "sh", "-c", "cat; echo end")]
    done = subprocess.run(argv, capture_output=True, text=True, env=doctor.env, cwd=doctor.folder, timeout=HOPELESS_SECONDS)
    assert (done.stdout, done.returncode) == ("end\n", 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 7), (signal.SIGINT, 8)])
def test_signals_are_the_programs(doctor: Doctor, number: signal.Signals, code: int) -> None:
    with doctor.start("--", "sh", "-c", TRAPS) as process:
        assert process.stdout
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "usr1\n"
        process.send_signal(number)
        assert process.wait(HOPELESS_SECONDS) == code


def test_what_is_ignored_stays_ignored(doctor: Doctor) -> None:
    argv = ["nohup", *doctor.argv("-q", "--", "sh", "-c", TRAPS)]
    with Process(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=doctor.env, cwd=doctor.folder) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == b"usr1\n"
        process.terminate()
        assert process.wait(HOPELESS_SECONDS) == 7


def test_killed_nothing_is_left(doctor: Doctor) -> None:
    with doctor.start("--", "sh", "-c", TRAPS) as process:
        process.kill()
        process.wait()
        doctor.must_be_gone()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("there", ["gpudoctor-guard", "--cidfile"])
def test_ended_while_it_starts(doctor: Doctor, number: signal.Signals, there: str) -> None:
    argv = doctor.argv("-q", "--", "sleep", "1000")
    with Process(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=doctor.env, cwd=doctor.folder) as process:
        wait_for(lambda: bool(doctor.processes(there)))
        process.send_signal(number)
        assert process.wait(HOPELESS_SECONDS) != 0
    doctor.must_be_gone()


def test_a_signal_that_dockers_command_loses_still_ends_the_container(doctor: Doctor) -> None:
    program = doctor.folder / "docker"
    program.write_text(f'#!/bin/sh\n[ "$1" = run ] || exec {shutil.which("docker")} "$@"\ntrap \'\' TERM\n')
    with program.open("a") as script:
        script.write(f'(trap - TERM; exec {shutil.which("docker")} "$@") & wait\n')
    program.chmod(0o755)
    env = {**doctor.env, "PATH": f"{doctor.folder}:{os.environ['PATH']}"}
    argv = doctor.argv("-q", "--", "sleep", "1000")
    with Process(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env, cwd=doctor.folder) as process:
        wait_for(lambda: bool(doctor.processes("--cidfile")))
        process.terminate()
        process.wait(HOPELESS_SECONDS)
    doctor.must_be_gone()


def test_a_container_that_could_not_be_removed_is_said_and_the_watchdog_goes_on(doctor: Doctor) -> None:
    """Docker's own command fails once, and so does ours that would remove what it left."""
    program = doctor.folder / "docker"
    failed = doctor.folder / "failed"
    real = shutil.which("docker")
    program.write_text(f'#!/bin/sh\n[ "$1" = rm ] && [ ! -e {failed} ] && touch {failed} && exit 1\nexec {real} "$@"\n')
    program.chmod(0o755)
    env = {**doctor.env, "PATH": f"{doctor.folder}:{os.environ['PATH']}"}
    argv = doctor.argv("-q", "--", "sh", "-c", TRAPS)
    with Process(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=doctor.folder
    ) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == "ready\n"
        [container] = doctor.containers()
        for command in doctor.processes("--cidfile"):
            os.kill(command, signal.SIGKILL)
        assert (
            process.stderr.read()
            == f"gpudoctor: container {container} could not be removed. Remove it: docker rm -f {container}\n"
        )
        assert process.wait(HOPELESS_SECONDS) == 128 + signal.SIGKILL
    doctor.must_be_gone()


def test_kept_it_stays_whatever_becomes_of_gpudoctor(doctor: Doctor) -> None:
    with doctor.start("--keep", "--", "sh", "-c", TRAPS) as process:
        process.kill()
        process.wait()
    wait_for(lambda: not doctor.processes("gpudoctor-guard"))
    assert state(doctor) == "running"
    subprocess.run(["docker", "rm", "-f", *doctor.containers()], check=True, capture_output=True)


@pytest.mark.parametrize("option", ["--keep", "--docker-option=--rm=false"])
def test_kept_it_stays_when_its_program_has_failed(doctor: Doctor, option: str) -> None:
    assert doctor.run("-q", option, "--", "sh", "-c", "exit 3").returncode == 3
    assert state(doctor) == "exited"
    subprocess.run(["docker", "rm", *doctor.containers()], check=True, capture_output=True)


def test_kept_it_is_ended_with_its_terminal(doctor: Doctor, terminals: list[Terminal]) -> None:
    terminal = doctor.terminal("--keep", "--", "sh", "-c", TRAPS)
    terminals.append(terminal)
    terminal.expect("ready")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.wait() == 7
    assert state(doctor) == "exited"
    subprocess.run(["docker", "rm", *doctor.containers()], check=True, capture_output=True)


def state(doctor: Doctor) -> str:
    """Of its only container."""
    [container] = doctor.containers()
    argv = ["docker", "inspect", "-f", "{{.State.Status}}", container]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def test_limits_that_an_engine_may_not_give_are_left_out(doctor: Doctor) -> None:
    with (doctor.folder / "input").open("w+") as input:
        input.write("from a file\n")
        input.seek(0)
        argv = doctor.argv("--", "cat", program=(sys.executable, "-c", TOO_MUCH))
        done = subprocess.run(argv, stdin=input, capture_output=True, text=True, env=doctor.env, cwd=doctor.folder)
    assert (done.stdout, done.returncode) == ("from a file\n", 0)
    assert "starting without it" in done.stderr
    assert "Error response" not in done.stderr


def test_input_that_was_read_is_not_lost_silently(doctor: Doctor) -> None:
    done = doctor.run("--", "cat", input="once\n", program=(sys.executable, "-c", TOO_MUCH))
    assert (done.stdout, done.returncode) == ("", 125)
    assert (
        "not retried without --ulimit nofile=2147483647, because the input has already been read (use --ulimit none)"
        in done.stderr
    )
    assert doctor.run("-q", "--ulimit", "none", "--", "cat", input="once\n").stdout == "once\n"


def test_only_the_command_is_printed(doctor: Doctor) -> None:
    done = doctor.run("--dry-run", "--", "sh", "-c", "echo 'a b'")
    assert (done.stderr, done.returncode) == ("", 0)
    again = subprocess.run(done.stdout, shell=True, capture_output=True, text=True, cwd=doctor.folder)
    assert again.stdout == "a b\n"


def test_the_folder_and_the_caches(doctor: Doctor) -> None:
    script = "pwd; cat here; touch new $TRITON_CACHE_DIR-x $HF_HOME-y; df -k /dev/shm | tail -1"
    (doctor.folder / "work" / "here").write_text("mine\n")
    done = doctor.run("-q", "--shm-size=100m", "--", "sh", "-c", script)
    assert done.stdout.splitlines()[:2] == ["/workspace/host", "mine"]
    assert " 102400 " in done.stdout
    assert (doctor.folder / "work" / "new").exists()
    assert {path.name for path in (doctor.folder / "cache").rglob("*-[xy]")} == {"triton-x", "hf-y"}


def as_another(folder: Path, *groups: str) -> tuple[str, ...]:
    """gpudoctor as a user without rights; skips the test where that one may not read this Python."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    program = ("setpriv", "--reuid=1234", "--regid=1234", *(groups or ("--clear-groups",)), *GPUDOCTOR)
    if subprocess.run([*program, "--version"], cwd=folder, capture_output=True).returncode:
        pytest.skip("another user may not read the Python of these tests")
    return program


def test_user_me_owns_what_it_writes(doctor: Doctor) -> None:
    group = Path("/var/run/docker.sock").stat().st_gid
    program = as_another(doctor.folder, f"--groups={group}")
    script = 'id -u; touch file "$HOME/in-home" "$TRITON_CACHE_DIR"; python3 -c "import getpass; print(getpass.getuser())"'
    done = doctor.run("-q", "--user=me", "--", "sh", "-c", script, program=program)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.split() == ["1234", os.environ.get("USER") or "user"]
    assert (doctor.folder / "work" / "file").stat().st_uid == 1234


def test_no_right_to_use_the_socket(doctor: Doctor) -> None:
    done = doctor.run("--", "true", program=as_another(doctor.folder))
    assert done.returncode == 3
    assert "usermod -aG docker" in done.stderr
    assert "can become root" in done.stderr


@pytest.mark.parametrize(
    ("host", "code", "words"),
    [
        ("unix:///nonexistent/docker.sock", 3, "the docker daemon does not answer (DOCKER_HOST is set to"),
        ("nonsense://x", 2, "the address or context of the daemon is invalid (DOCKER_HOST is set to"),
    ],
)
def test_no_daemon(doctor: Doctor, monkeypatch: pytest.MonkeyPatch, host: str, code: int, words: str) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("DOCKER_HOST", host)
        done = doctor.run("--", "true")
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_an_image_that_nobody_has(doctor: Doctor) -> None:
    done = subprocess.run(
        [*GPUDOCTOR, "run", "--image", "pytorch-24.8", "--", "true"], capture_output=True, text=True, env=doctor.env
    )
    assert done.returncode == 2
    assert "pytorch-24.08" in done.stderr


def test_what_is_no_program_of_the_image(doctor: Doctor) -> None:
    done = doctor.run("-q", "--docker-option=--init=false", "--", "no-such-program")
    assert done.returncode == 127
    assert "no-such-program" in done.stderr
    assert "docker run --help" not in done.stderr
