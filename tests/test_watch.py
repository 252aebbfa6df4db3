"""`gpudoctor watch`: what is seen of a running program, in bounded memory, without touching it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import machine
import pytest
import stubs
from click.testing import CliRunner, Result
from each import each
from process import Process
from terminal import Terminal
from test_docs import must_show

from gpudoctor import checkup
from gpudoctor.checkup import Checkup
from gpudoctor.choices import FORMATS
from gpudoctor.cli import main, watch_screen
from gpudoctor.errors import UserError, WorkError
from gpudoctor.facts import Facts
from gpudoctor.facts.job.watched import QUESTION
from gpudoctor.jobs.watching import cgroup, dcgm, finding, gpus, host, sampler, snapshots, stacks, tree, watcher
from gpudoctor.jobs.watching.processes import Processes
from gpudoctor.jobs.watching.target import GPUS, PID, Target
from gpudoctor.jobs.watching.timeline import Means, Timeline
from gpudoctor.jobs.watching.watcher import Watcher
from gpudoctor.judging.jobs import growing, works
from gpudoctor.model import Reply, Skip, Status
from gpudoctor.report import terminal

NAME = Path(sys.executable).name[:15]
LOADING = """
    import multiprocessing, sys, time

    def load():
        while True:
            end = time.process_time() + 0.02
            while time.process_time() < end:
                pass
            time.sleep(0.04)

    if __name__ == "__main__":
        held = bytearray(1 << 20)
        children = [multiprocessing.Process(target=load, daemon=True) for _ in range(2)]
        for child in children:
            child.start()
        print("started", flush=True)
        sys.stdin.read()
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stub of NVML that has GPM."""
    folder = tmp_path_factory.mktemp("nvml")
    stubs.compile_nvml(folder)
    return folder


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Process]:
    """A program with two processes that load something."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(LOADING))
    command, pipe = [sys.executable, str(script)], subprocess.PIPE
    with Process(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as running:
        assert running.stdout
        assert running.stdin
        assert running.stdout.readline() == "started\n"
        yield running
        running.stdin.close()
        with contextlib.suppress(ProcessLookupError):  # a test may have killed it, and its children go on
            os.killpg(running.pid, signal.SIGKILL)


def watched(*words: str, **variables: str) -> Result:
    return CliRunner().invoke(main, ["watch", *words], env=variables)


def alone(case: str) -> Checkup:
    """As if nothing but the job had been looked at."""
    reply = machine.load(case).replies[QUESTION]
    return Checkup(snapshot=replace(snapshots.of(reply), taken="2026-11-23T08:00:00Z"), checks=snapshots.checks())


def with_stub(libraries: Path, **values: int) -> dict[str, str]:
    listed = ",".join(f"{name}={value}" for name, value in values.items())
    return {**os.environ, "LD_LIBRARY_PATH": str(libraries), "STUB_VALUES": listed}


@pytest.mark.slow
def test_a_job_and_its_gpu_are_seen_until_an_interrupt(libraries: Path, job: Process, tmp_path: Path) -> None:
    saved = tmp_path / "watch.json"
    argv = [sys.executable, "-m", "gpudoctor", "watch", "--pid", str(job.pid), "--stream", "--no-redact", "--save", str(saved)]
    values = {
        "nvmlDeviceGetUtilizationRates": 55,
        "nvmlDeviceGetComputeRunningProcesses_v3": job.pid,
        "nvmlDeviceGetProcessUtilization": 51,
        "nvmlDeviceGetMemoryInfo": 30_000,
        "gpm1": 54,
        "gpm2": 48,
        "gpm5": 31,
    }
    pipe, env = subprocess.PIPE, with_stub(libraries, **values)
    with Process(argv, fresh=True, stdout=pipe, stderr=pipe, text=True, env=env) as watching:
        assert watching.stdout
        for line in watching.stdout:
            state = json.loads(line)["sample"]
            roles = sorted(row["role"] for row in state["processes"])
            is_seen = roles == ["gpu", "loader", "loader"] and all(row["cores"] for row in state["processes"][1:])
            if state["at"] > works.LEAST_SECONDS and is_seen:
                break
        watching.send_signal(signal.SIGINT)
        report = json.loads(watching.stdout.read().splitlines()[-1])["report"]
        assert watching.wait() == 0
    assert job.poll() is None
    gpu = report["facts"]["watched"]["gpus"][0]
    assert (gpu["graphics"], gpu["sm"], gpu["tensor"]) == (54, 48, 31)
    assert gpu["users"] == [{"pid": job.pid, "name": NAME, "mib": 40960, "is_of_job": True, "sm": 0.51}]
    assert {row["id"]: row["status"] for row in report["checks"]}["watched-input"] in ("pass", "warn")  # on a busy machine
    again = checkup.load(saved)
    assert [row for row in again.checks if row.area == "job" and row.status is Status.ERROR] == []
    facts = Facts(again.snapshot).job.watched if again.snapshot else None
    assert facts
    assert facts.used == {0: (job.pid,)}
    assert facts.own_mib < 60
    assert [process.role for process in facts.processes].count("loader") == 2


def test_a_command_keeps_its_exit_code_and_its_output(capfd: pytest.CaptureFixture[str]) -> None:
    result = watched("--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert result.exit_code == 3
    assert "it ended with exit code 3" in " ".join(result.stderr.split())
    assert capfd.readouterr() == ("out\n", "err\n")


def test_a_machine_without_a_gpu_is_said_to_have_none() -> None:
    value = machine.load("watched-few-loaders").replies[QUESTION].value
    report = Checkup(snapshot=snapshots.of(Reply("ok", {**value, "gpus": {}, "no_gpu": "NVML finds no GPU"}))).report
    assert "; no GPU was watched: NVML finds no GPU (gpudoctor took" in " ".join(terminal.render(report).split())


def test_a_report_for_a_program_has_the_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    result = watched("--format", "json", "--", "sh", "-c", "echo out; kill -TERM $$")
    assert result.exit_code == 128 + signal.SIGTERM
    assert json.loads(result.stdout)["facts"]["watched"]["exit_code"] == -signal.SIGTERM
    assert capfd.readouterr() == ("", "out\n")


@pytest.mark.parametrize("command", ["watch", "hang"])
def test_a_thread_of_the_kernel_is_no_program(command: str) -> None:
    of_kernel = next((pid for pid in sorted(tree.every()) if tree.is_of_kernel(pid)), None)
    if of_kernel is None:
        pytest.skip("no thread of the kernel is visible in this container")
    result = CliRunner().invoke(main, [command, "--pid", str(of_kernel)])
    assert (result.exit_code, "is a thread of the kernel" in result.stderr) == (2, True)


@each(
    ("words", "said"),
    [
        (["--pid", str(1 << 22)], "no process has the id"),
        (["--pid", "0"], "Invalid value for '--pid'"),
        (["--job", "1234"], "--job requires Slurm's scontrol"),
        (["--job", "train; id"], "is not the number of a Slurm job"),
        (["--container", "trainer"], "neither docker nor podman is installed"),
        (["--for", "soon"], "is not a time between 1s and 7d"),
        (["--for", "0.5s"], "is not a time between 1s and 7d"),
        (["--pid", "1", "--", "true"], "--pid and a command contradict each other"),
        (["--stream", "--format", "json"], "--stream prints lines of JSON"),
        (["--stacks", "--pid", "1"], "--stacks requires py-spy"),
        (["--engine", "podman"], "--engine requires --container"),
        (["--", "no-such-command"], "no-such-command: command not found"),
        (["-o", "/no/such/folder/x.html", "--", "true"], "/no/such/folder"),
    ],
)
def test_what_cannot_be_watched_is_refused_in_one_line(words: list[str], said: str) -> None:
    result = watched(*words, PATH="/nonexistent" if words[0] in ("--job", "--container", "--stacks") else os.environ["PATH"])
    assert result.exit_code in (2, 3)
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_process_that_has_ended_is_no_target() -> None:
    with Process(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        result = watched("--pid", str(ended.pid))
    assert "has ended, and its parent has not yet taken notice" in result.stderr


DOCKER = """#!/bin/sh
case $1 in
info) echo '{"ServerVersion": "28"}' ;;
container) echo '[{"Id": "c1", "Name": "/trainer", "State": {"Status": "STATUS", "Running": RUNNING, "Pid": PID}}]' ;;
esac
"""


@each(
    ("status", "running", "pid", "said"),
    [("exited", "false", 0, "container trainer is not running"), ("running", "true", 1 << 22, "not visible here")],
)
def test_a_container_that_does_not_run_here(status: str, running: str, pid: int, said: str) -> None:
    folder = Path(os.environ["XDG_STATE_HOME"], "bin")
    folder.mkdir(exist_ok=True)
    text = DOCKER.replace("STATUS", status).replace("RUNNING", running).replace("PID", str(pid))
    (folder / "docker").write_text(text)
    (folder / "docker").chmod(0o755)
    result = watched("--container", "trainer", PATH=f"{folder}:/usr/bin:/bin", DOCKER_HOST="")
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def test_the_end_of_a_process_ends_the_watch(job: Process) -> None:
    watching = Watcher(finding.process(job.pid), is_live=True)
    assert next(state for _ in range(99) for state in watching.read())["processes"]
    job.kill()
    while not watching.has_ended:
        watching.read()
    assert watching.stopped().value["ended"] == "gone"


def _never() -> None:
    while True:
        signal.pause()


def test_a_driver_that_hangs_loses_only_its_own_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "opened", _never)
    monkeypatch.setattr(watcher, "READY_SECONDS", 0.1)
    monkeypatch.setattr(watcher, "LAST_SECONDS", 0.1)
    watching = Watcher(Target(GPUS, "all GPUs"))
    watching.wait_until_ready()
    assert watching.stopped() == Reply("error", None, f"the process that watches: {watcher.STUCK}")


def test_what_was_kept_survives_the_process_that_watches() -> None:
    watching = Watcher(Target(PID, "this", (os.getpid(),)), is_live=True)
    next(state for _ in range(99) for state in watching.read())
    os.kill(watching._child.pid, signal.SIGKILL)
    reply = watching.stopped()
    assert reply.status == "ok"
    assert reply.value["ended"] == "the process that watches: killed by SIGKILL"


def test_a_timeline_has_a_fixed_size() -> None:
    timeline, means = Timeline(0.5, most=8), Means()
    for second in range(1000):
        timeline.add(second, {"busy": float(second), "absent": None})
        means.add({"busy": float(second)})
    value = timeline.as_value()
    assert (value["every"], len(value["columns"]["busy"])) == (128, 8)
    assert value["columns"]["busy"][0] == pytest.approx(63.5)
    assert means.as_value() == {"busy": {"mean": 499.5, "min": 0, "max": 999, "samples": 1000}}


def test_a_mean_counts_for_the_time_that_it_covers() -> None:
    timeline = Timeline(0.5)
    timeline.add(0.25, {"busy": 0.0}, seconds=0.25)
    timeline.add(1.25, {"busy": 80.0}, seconds=1.0)
    timeline.add(1.99, {"busy": 20.0}, seconds=0.74)
    assert timeline.as_value()["columns"]["busy"] == pytest.approx([40.0, 80.0, 50.41, 20.0], rel=0.01)


def test_processes_are_known_by_what_they_are() -> None:
    stat = tree.Stat(1, "python", "S", 0, 0, 0, 0, 1, 0, 0)
    line = "python train.py"
    assert tree.role(stat, line, True, "") == "gpu"
    assert tree.role(stat, line, False, line) == "loader"
    assert tree.role(stat, "python -c from multiprocessing.spawn import spawn_main", False, line) == "loader"
    assert tree.role(stat, "python torch/_inductor/compile_worker/__main__.py", False, line) == "helper"
    assert tree.role(stat._replace(name="torchrun"), "python /usr/bin/torchrun train.py", False, "") == "launcher"


def test_without_process_ids_the_program_itself_is_taken(job: Process) -> None:
    """In a container NVML may list the ids of another namespace."""
    all = tree.every()
    seen = Processes()
    for at in (0.0, 1.0):
        seen.look(tree.below((job.pid,), all), all, at, {1 << 22}, are_hidden=True)
    assert {process.pid: process.role for process in seen.now.values()}[job.pid] == "gpu"
    assert sorted(process.role for process in seen.now.values()) == ["gpu", "loader", "loader"]


def test_frames_of_the_threads_that_run() -> None:
    text = """Process 7: python train.py
Thread 7 (active+gil): "MainThread"
    decode (data.py:12)
    step (train.py:30)
Thread 8 (idle): "watcher"
    wait (threading.py:320)
"""
    assert stacks.innermost(text) == ["decode (data.py:12)", "step (train.py:30)"]


@each(
    ("said", "kind", "line"),
    [
        (
            "scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
            "scontrol: fatal: Could not establish a configuration source\n",
            WorkError,
            "scontrol does not reach Slurm: scontrol: fatal: Could not establish a configuration source",
        ),
        (
            "No job steps exist for job 12 on this node.\n",
            UserError,
            "Slurm lists no process of job 12 on this node: No job steps",
        ),
    ],
)
def test_a_slurm_that_is_not_reached_is_not_one_without_the_job(
    said: str, kind: type[Exception], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "said").write_text(said)
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n/bin/cat {tmp_path}/said >&2; exit 1\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(kind, match=line):
        finding.slurm_job("12")


def test_lines_of_scontrol_and_dcgmi() -> None:
    assert finding.listed("PID      JOBID    STEPID   LOCALID GLOBALID\n4711     12       0        0       0\n-1 x\n") == (4711,)
    found = dcgm.Dcgm(())
    found._line(["GPU", "0", "0.971", "0.912", "0.240", "0.715", "0.331", "N/A", "0.062", "0.000", "39000000", "222000000"])
    assert found._latest[0]["sm"] == pytest.approx(91.2)
    assert "fp64" not in found._latest[0]
    found._line(["Error", "setting", "watches."])
    assert found.why_not == "Error setting watches."


def test_the_host_and_the_control_group_of_this_process() -> None:
    seen = host.Host()
    seen.look()
    value = seen.as_value()
    assert 0 < value["available_mib"] <= value["memory_mib"]
    assert cgroup._cores("400000 100000") == 4.0
    assert cgroup._cores("max 100000") is None


@each(
    ("values", "per_minute"),
    [
        ([1000 + 10 * second for second in range(30)], 600),
        ([1000] * 30, None),
        ([1000, *[4000] * 29], None),  # it is allocated once
        ([1000 + 10 * second for second in range(15)] + [1150] * 15, None),  # it has settled
        ([1000 + 500 * (second % 3) for second in range(30)], None),  # it goes up and down
    ],
)
def test_memory_that_grows(values: list[float], per_minute: float | None) -> None:
    found = growing.growth([(float(second), float(value)) for second, value in enumerate(values)], least_mib=64)
    assert (found and found.per_minute) == pytest.approx(per_minute)


def test_the_start_of_a_command_is_no_waiting_gpu() -> None:
    """Twenty seconds of imports, ten of work: only these count. A pause after the first kernels belongs to the start as well."""
    taken = machine.load("watched")
    value = json.loads(json.dumps(taken.replies[QUESTION].value))
    value["timeline"] = {"every": 1.0, "columns": {"gpu0.graphics": [0.0] * 20 + [96.0] * 10}}
    value["gpus"]["0"]["readings"]["graphics"]["mean"] = 32.0
    loading = {"every": 1.0, "columns": {"gpu0.graphics": [0.0] * 10 + [50.0] + [0.0] * 4 + [96.0] * 10 + [0.0] * 5}}
    for kind, idle, timeline in (
        ("command", 0.04, value["timeline"]),
        ("pid", 0.68, value["timeline"]),
        ("command", 0.04, loading),
    ):
        value["target"]["kind"] = kind
        value["timeline"] = timeline
        work = works.works(Facts(replace(taken, replies={QUESTION: Reply("ok", value)})))[0]
        assert work.idle == pytest.approx(idle, abs=0.005)
    value["seconds"] = 1.0
    with pytest.raises(Skip, match="too short"):
        works.works(Facts(replace(taken, replies={QUESTION: Reply("ok", value)})))


def test_what_also_covers_the_start_is_no_reading_of_a_waiting_gpu() -> None:
    """As seen: one mean over seven seconds, of which half were before the first kernel. And readings a second apart, as now."""
    report = alone("watched-one-long-reading").report
    rows = {row.id: row for row in report.checks if row.id.startswith("watched-")}
    assert rows["watched-host"].status is Status.SKIP
    assert "too few readings of GPU 0 after the program's start: 0" in rows["watched-host"].message
    assert _judged([0.0] * 6 + [30.0, 50.0] + [99.0] * 12, covers=0.9).idle == pytest.approx(0.01)
    assert _judged([0.0] * 6 + [30.0] + [40.0] * 12, covers=0.9).idle == pytest.approx(0.6)
    with pytest.raises(Skip, match="too few readings of GPU 0 agree that it waits: 1 of 4"):
        _judged([0.0] * 6 + [99.0] * 8 + [0.0] * 2 + [99.0] * 4, covers=0.9)
    with pytest.raises(Skip, match="after the program's start: 1"):
        _judged([0.0] * 6 + [40.0] * 8, covers=0.9)


def _judged(busy: list[float], covers: float) -> works.Work:
    taken = machine.load("watched-one-long-reading")
    value = json.loads(json.dumps(taken.replies[QUESTION].value))
    value["timeline"]["columns"] = {"gpu0.graphics": busy, "gpu0.covers": [covers] * len(busy)}
    return works.busy_works(Facts(replace(taken, replies={QUESTION: Reply("ok", value)})))[0]


class Counted:
    """A GPU on which this process runs, or none. at: when it was read."""

    def __init__(self, index: int, clock: list[float]) -> None:
        self.index, self._clock = index, clock
        self.gpm = SimpleNamespace(works=True, at=clock[0], seconds=0.0)
        self.on_it = {} if index else {os.getpid(): 900.0}
        self.at: list[float] = []
        self.temperature_at: list[float] = []
        self.still: dict[str, Any] = {}
        self.latest: dict[str, float] = {}
        self.rates: dict[int, float] = {}

    def metrics(self) -> dict[str, float]:
        self.at.append(self._clock[0])
        self.gpm.seconds, self.gpm.at = self._clock[0] - self.gpm.at, self._clock[0]
        return {"graphics": 50.0}

    def slow(self, at: float) -> dict[str, float]:
        self.temperature_at.append(at)
        return {}

    def fast(self) -> dict[str, float]:
        return {}

    power = fast

    def count_reasons(self) -> None:
        pass

    processes = count_reasons


def test_what_verdicts_depend_on_is_read_each_second_however_much_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [time.monotonic()]
    used, unused = all = [Counted(index, clock) for index in range(2)]
    monkeypatch.setattr(gpus, "opened", lambda: (None, all, ""))
    monkeypatch.setattr(sampler.Pace, "adapt", lambda self, now: None)
    monkeypatch.setattr(sampler.Sampler, "keep", lambda self, ended: None)
    sampling = sampler.Sampler(Target(PID, "this", (os.getpid(),)), 1, -1)
    sampling._pace.factor = sampler.SLOWEST
    began = clock[0]

    def go_on(seconds: float) -> None:
        end = clock[0] + seconds
        while clock[0] < end:
            clock[0] += sampling.pause
            sampling.round(clock[0])

    go_on(8)
    with Process(["sleep", "60"]) as child:
        go_on(2.4)
        is_seen = child.pid in sampling._processes.now
        child.kill()
    go_on(10)
    assert is_seen
    assert child.pid not in sampling._processes.now
    assert max(after - before for before, after in pairwise([began, *used.at])) <= 1.0
    assert min(after - before for before, after in pairwise(unused.at)) >= 3
    assert max(after - before for before, after in pairwise(used.temperature_at)) <= 6
    assert sampling._timeline.as_value()["columns"]["gpu0.covers"][10] == pytest.approx(0.9, abs=0.1)


def test_each_format_shows_what_was_watched() -> None:
    found = alone("watched-few-loaders")
    for form in FORMATS:
        assert "loaders-saturated" in found.render(form) or "loader processes" in found.render(form), form
    assert 'gpudoctor_watched{gpu="0",reading="sm"} 35.0' in found.render("prometheus")
    assert "watched-0" in Checkup(snapshot=_with_curves()).to_html()


def _with_curves() -> Any:
    value = json.loads(json.dumps(machine.load("watched-few-loaders").replies[QUESTION].value))
    value["timeline"]["columns"]["gpu0.busy"] = [38.0, None, 40.0, 36.0]
    return snapshots.of(Reply("ok", value))


def test_the_example_is_what_the_program_prints() -> None:
    shown = terminal.render(alone("watched-few-loaders").report, width=80)
    must_show(shown[: shown.index("\n\n! warn")] + "\n", "watched", "docs/watch.md")


STATE: dict[str, Any] = {
    "at": 12.0,
    "gpus": [
        {
            "index": index,
            "name": "NVIDIA H200",
            "memory_mib": 143771,
            "busy": 38.0,
            "sm": 35.0,
            "watts": 320.4,
            "memory_used_mib": 61230,
        }
        for index in range(40)
    ],
    "processes": [
        {"pid": 4711 + number, "name": "pt_data_worker_with_a_long_name", "role": "loader", "cores": 0.98, "busiest_thread": 0.98}
        | {"rss_mib": 1900.0}
        for number in range(12)
    ],
    "host": {"cpu_used": 0.16, "iowait": 0.0, "disk_busy": 0.01, "available_mib": 242000.0},
    "own_cores": 0.004,
}


@each("number", [1, 8, 40])
def test_the_screen_fits_80_columns_and_24_rows(number: int) -> None:
    from rich.console import Console

    console = Console(width=80, height=24, file=io.StringIO(), force_terminal=True, color_system=None)
    with console.capture() as shown:
        console.print(watch_screen.drawn({**STATE, "gpus": STATE["gpus"][:number]}, Target(PID, "python train.py (4711)"), 24))
    lines = shown.get().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "38 %" in shown.get()
    assert "GPU 0 38 %, 59.8 GiB" in watch_screen.line(STATE)


@pytest.mark.slow
def test_q_ends_the_live_screen_with_the_report(libraries: Path, job: Process, tmp_path: Path) -> None:
    env = {**with_stub(libraries, nvmlDeviceGetUtilizationRates=55), "TERM": "xterm", "COLUMNS": "80"}
    shown = Terminal([sys.executable, "-m", "gpudoctor", "watch", "--pid", str(job.pid)], env, tmp_path, 24, 80, fresh=True)
    try:
        shown.expect("55 %")
        shown.resize(30, 100)
        shown.type("q")
        shown.expect("Watched python")
        shown.wait()
    finally:
        shown.close()
