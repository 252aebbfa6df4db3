"""Measuring without a GPU: what crashes, hangs or is killed takes only itself, results are kept, nothing stays behind."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from measuring_run import TORCH, job, patched
from process import command_lines, processor_seconds
from test_worker import PROBES, ask, every_python, pythons
from waiting import HOPELESS_SECONDS, until, with_enough_time

from gpudoctor import interpreter
from gpudoctor.model import Reply
from gpudoctor.worker.measuring import bench, schedule
from gpudoctor.worker.measuring.history import FINEST_SECONDS, POINTS, History
from gpudoctor.worker.measuring.sampler import MOST_SAMPLES, Samples
from gpudoctor.worker.measuring.task import Gpu, Task

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
NVML = (HERE / "fake_pynvml.py").read_text()
OLDEST = next((path for path in pythons() if "3.8" in path), pythons()[-1])
MARK = "GPUDOCTOR_TEST_RUN"


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test does: in the end there is no process and no temporary folder of it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv(MARK, str(tmp_path))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    yield
    assert until(lambda: not processes()), processes()
    assert list(folder.iterdir()) == []


def processes() -> dict[int, str]:
    """What runs and was started by this test."""
    return command_lines(of=f"{MARK}={os.environ[MARK]} ")


def is_there(pid: int) -> bool:
    """Also as a zombie."""
    return Path(f"/proc/{pid}").exists()


def measured(made: dict[str, Any], python: str = sys.executable) -> dict[str, Reply]:
    replies: dict[str, Reply] = {}

    def hear(message: dict[str, Any]) -> None:
        if "measured" in message:
            assert message["measured"] not in replies
            replies[message["measured"]] = Reply(**message["reply"])

    assert interpreter.Interpreter(python).run(made, hear) == 0
    return replies


def until_stuck(name: str) -> str:
    return f"__import__('fake_workloads').UntilStuck({name!r})"


def work(reply: Reply) -> tuple[float, float]:
    """When the section `work` began and ended."""
    return reply.value["work"]["at"], reply.value["work"]["until"]


def overlap(one: Reply, other: Reply) -> bool:
    (began, ended), (began_other, ended_other) = work(one), work(other)
    return began < ended_other and began_other < ended


@every_python
def test_a_framework_is_imported_once_and_forked_from(python: str) -> None:
    replies = measured(job("noisy torch torch-too cupy"), python)
    assert replies["import:torch"].status == "ok"
    assert replies["import:torch"].value["version"] == "9.8"
    assert replies["import:torch"].value["seconds"] >= 0.5
    imports = [replies[id].value["import"] for id in ("torch:gpu0", "torch-too:gpu0")]
    assert len({made["imported_by"] for made in imports} | {made["forked_from"] for made in imports}) == 1
    assert all(made["before"] for made in imports)
    assert work(replies["noisy:gpu0"])[1] < imports[0]["ended"]
    assert replies["import:cupy"].status == replies["cupy:gpu0"].status == "missing"
    assert "sampler" in replies
    assert len(replies) == 7


@pytest.mark.parametrize("python", [sys.executable, OLDEST])
def test_what_misbehaves_takes_only_itself(python: str) -> None:
    names = "segfaults raises hangs stops exits skips leaves leaves-and-hangs each torch-raises"
    replies = {id.removesuffix(":gpu0"): reply for id, reply in measured(job(names), python).items()}
    assert {name: replies[name].status for name in names.split()} == {
        "segfaults": "died",
        "raises": "error",
        "hangs": "timeout",
        "stops": "stopped",
        "exits": "died",
        "skips": "skipped",
        "leaves": "ok",
        "leaves-and-hangs": "timeout",
        "each": "ok",
        "torch-raises": "error",
    }
    for name in ("segfaults", "raises", "hangs", "stops", "exits"):
        assert replies[name].value["work"]["gpus"] == [0], name
    assert replies["segfaults"].detail == "killed by SIGSEGV in second step"
    assert "segfaults" in replies["segfaults"].value["prints"]
    assert replies["raises"].detail == "RuntimeError: the result is wrong in work"
    assert replies["raises"].value["prints"].endswith("RuntimeError: the result is wrong")
    assert re.fullmatch("not finished after [0-9]+ s in second step", replies["hangs"].detail)
    assert replies["hangs"].value["prints"].splitlines()[-1].endswith("in stuck_here")
    assert replies["hangs"].value["prints"].startswith(("noise", "oise", "ise", "se", "e", " noise"))
    assert "host.py" not in replies["hangs"].value["prints"]
    assert "noise at import" not in replies["torch-raises"].value["prints"]
    assert "SIGSTOP" in replies["stops"].detail
    assert replies["exits"].detail == "exit code 3 in work"
    assert (replies["skips"].detail, replies["skips"].value) == ("this GPU has no such unit", {"kind": "not supported here"})
    for name in ("leaves", "leaves-and-hangs"):
        assert not any(map(is_there, replies[name].value["grandchildren"]["pids"])), name


def test_a_gpu_is_given_up_with_what_cannot_be_killed_on_it() -> None:
    made = patched(
        job("hangs each"), "measuring/fork_server.py", "                child.kill()\n            manner", "            manner"
    )
    replies = measured(patched(made, "measuring/task.py", "GRACE_SECONDS = 2.0", "GRACE_SECONDS = 0.1"))
    assert replies["hangs:gpu0"].status == "timeout"
    assert replies["hangs:gpu0"].detail.endswith("it cannot be killed: it is stuck in the kernel (state D)")
    assert replies["hangs:gpu0"].value["work"]["gpus"] == [0]
    assert (replies["each:gpu0"].status, replies["each:gpu0"].detail) == ("skipped", "hangs:gpu0 on it could not be killed")


def test_each_way_of_not_being_imported_stays_apart() -> None:
    made = job(
        "each torch cupy numba jax",
        torch="from math import nothing_of_that_name",
        cupy="import a_library_that_is_not_there",
        numba="print('before', flush=True); import ctypes; ctypes.string_at(0)",
        jax="from fake_workloads import stuck_here\nstuck_here('jax')",
    )
    made = patched(made, "measuring/fork_server.py", '(("jax",), 60, 2)', f'(("jax",), {until_stuck("jax")}, 2)')
    replies = measured(made)
    assert replies["each:gpu0"].status == "ok"
    assert {name: replies[f"import:{name}"].status for name in ("torch", "cupy", "numba", "jax")} == {
        "torch": "error",
        "cupy": "error",
        "numba": "died",
        "jax": "timeout",
    }
    assert replies["import:torch"].detail.startswith("ImportError: cannot import name 'nothing_of_that_name'")
    assert "a_library_that_is_not_there" in replies["import:cupy"].detail
    assert replies["import:numba"].detail == "killed by SIGSEGV while it was imported"
    assert "before" in replies["import:numba"].value["prints"]
    assert replies["import:jax"].value["prints"].endswith("in stuck_here")
    for name in ("torch", "cupy", "numba", "jax"):
        assert (replies[f"{name}:gpu0"].status, replies[f"{name}:gpu0"].detail) == ("skipped", f"{name} cannot be imported")


def test_gpus_work_side_by_side_and_what_is_alone_is_alone() -> None:
    waits = "import glob, os, time\nfound = os.environ['TMPDIR'] + '/gpudoctor-*/measured/together-all'\n"
    waits += "while not any('\"end\"' in open(file).read() for file in glob.glob(found)): time.sleep(0.02)"
    slowly = TORCH.replace("time.sleep(0.5)", waits)  # all that needs no framework is over by then
    replies = measured(job("alone early once-beside-each each-beside-once together torch-beside-torch", gpus=2, torch=slowly))
    assert {reply.status for id, reply in replies.items() if id != "sampler"} == {"ok"}
    assert replies["each-beside-once:gpu1"].value["work"]["gpus"] == [1]
    assert replies["together:all"].value["work"]["gpus"] == [0, 1]
    everything = {id: reply for id, reply in replies.items() if reply.value and "work" in reply.value}
    assert len(everything) == 10
    for id in ("alone:gpu0", "alone:gpu1", "together:all"):
        assert not [other for other, reply in everything.items() if other != id and overlap(replies[id], reply)]
    for gpu in ("gpu0", "gpu1"):
        early = replies[f"early:{gpu}"]
        assert early.value["prepared"]["at"] < work(replies["each-beside-once:gpu0"])[1]
        assert work(early)[0] > work(replies[f"torch-beside-torch:{gpu}"])[1]
        assert early.seconds < work(early)[1] - early.value["prepared"]["at"]  # its own time, not that of all others


def test_one_gpu_is_used_by_one_at_a_time_and_has_no_other_to_work_with() -> None:
    replies = measured(job("each noisy early alone together"))
    ran = sorted(work(replies[f"{name}:gpu0"]) for name in ("each", "noisy", "early", "alone"))
    assert all(before[1] < after[0] for before, after in itertools.pairwise(ran))
    assert replies["together:all"] == Reply("skipped", {"kind": "not applicable"}, "there is only one GPU to measure")


def test_what_starts_early_has_no_endless_time_to_prepare_itself() -> None:
    made = job("early-but-stuck early hangs each")
    replies = measured(
        patched(made, "measuring/task.py", "PREPARING_SECONDS = 120", f"PREPARING_SECONDS = {until_stuck('early')}")
    )
    assert replies["early-but-stuck:gpu0"].status == "timeout"
    assert re.fullmatch("not finished after [0-9]+ s in preparing", replies["early-but-stuck:gpu0"].detail)
    assert replies["each:gpu0"].status == replies["early:gpu0"].status == "ok"


def test_the_sampler_sees_each_section() -> None:
    replies = measured(job("sampled sampled-too", gpus=2, pynvml=NVML, fake_pynvml=NVML))
    assert "sampler" not in replies
    for gpu in (0, 1):
        for name in ("sampled", "sampled-too"):
            work = replies[f"{name}:gpu{gpu}"].value["work"]
            during = work["during"]
            assert during["sm_mhz"] == 1000 + gpu
            assert work["began"] < during["watts"] <= work["ended"] + 1  # one may be under way at its end
            assert 1 <= during["samples"] <= work["ended"] + 1 - work["began"]
            assert during["reasons"] == {"0x1": 1.0, "0x4": 1.0}
            assert [(other["pid"], other["mib"]) for other in during["others"]] == [(1, 3)]
            assert "celsius" not in during
        assert replies[f"counters:gpu{gpu}"].value == {"before": {"pcie_replays": 1}, "after": {"pcie_replays": 2}}


def test_the_history_of_a_run_is_kept() -> None:
    replies = measured(job("each together", gpus=2, pynvml=NVML))
    for gpu in (0, 1):
        history = replies[f"history:gpu{gpu}"].value
        assert (history["every_seconds"], {*history["sm_mhz"]}) == (FINEST_SECONDS, {1000.0 + gpu})
        assert len(history["watts"]) == len(history["sm_mhz"])
        assert "celsius" not in history
        assert {*history["workloads"]} == {"each", "together"}
        for name, (began, ended) in history["workloads"].items():
            assert 0 < began < began + 0.09 < ended < HOPELESS_SECONDS, name


def test_a_history_of_hours_has_as_many_points_as_one_of_minutes() -> None:
    history = History(began=100.0)
    assert history.as_value() is None
    for number in range(50 * 3600):
        history.keep(100 + number / 50, {"watts": number / 50} if number < 50 * 1800 else {"celsius": 40})
    value = history.as_value()
    assert value
    assert POINTS / 2 < len(value["watts"]) <= POINTS
    assert (value["every_seconds"], value["watts"][-1], value["celsius"][-1]) == (32.0, None, 40.0)
    assert value["watts"][1] == pytest.approx(48, abs=0.1)


def test_together_has_the_samples_of_each_gpu() -> None:
    replies = measured(job("together", gpus=2, pynvml=NVML))
    during = replies["together:all"].value["work"]["during"]
    assert {gpu: seen["sm_mhz"] for gpu, seen in during.items()} == {"0": 1000, "1": 1001}


def test_a_slow_nvml_still_sees_short_work() -> None:
    slow = NVML.replace("    return 5\n", "    time.sleep(0.09)\n    return 5\n")
    assert slow != NVML
    value = measured(job("sampled", pynvml=slow, fake_pynvml=NVML))["sampled:gpu0"].value["work"]
    assert 1 <= value["during"]["samples"] <= value["ended"] + 1 - value["began"]


@pytest.mark.parametrize(
    ("pynvml", "words", "seconds"),
    [
        ("raise ModuleNotFoundError('No module named pynvml')", "No module named pynvml", HOPELESS_SECONDS),
        ("def nvmlInit(): raise OSError('no driver')", "OSError: no driver", HOPELESS_SECONDS),
        ("import time\ndef nvmlInit(): time.sleep(600)", "NVML does not answer", 0.2),
        ("import ctypes\ndef nvmlInit(): ctypes.string_at(0)", "killed by SIGSEGV", HOPELESS_SECONDS),
    ],
)
def test_a_broken_nvml_costs_only_the_samples(pynvml: str, words: str, seconds: float) -> None:
    made = job("each", pynvml=pynvml)
    replies = measured(patched(made, "measuring/sampler.py", "LAST_COUNTERS_SECONDS = 1.0", f"LAST_COUNTERS_SECONDS = {seconds}"))
    assert replies["each:gpu0"].status == "ok"
    assert "during" not in replies["each:gpu0"].value["work"]
    assert words in replies["sampler"].detail
    assert len(replies) == 2


def test_hours_of_samples_need_little_memory_and_time() -> None:
    samples = Samples()
    for number in range(100 * MOST_SAMPLES):
        samples.keep(number / 50, {"watts": number})
    last = 2 * MOST_SAMPLES
    assert len(samples.between(0, last)) <= MOST_SAMPLES
    assert len(samples.between(last - 10, last)) == 500
    assert len(samples.between(last - 240, last - 220)) > 5
    assert processor_seconds(lambda: [samples.between(last - 10, last) for _ in range(1000)]) < 0.5


def has_come_far(gpu: int) -> bool:
    """The workload that has no end: it has handed over results, and those of the one before it have been passed on."""
    return any('"round 20"' in file.read_text() for file in Path(os.environ["TMPDIR"]).glob(f"*/measured/endless-gpu{gpu}"))


class Running:
    """The job in a program of its own, from when the workload `began` runs."""

    def __init__(self, made: dict[str, Any], began: str) -> None:
        command = [sys.executable, str(HERE / "measuring_run.py")]
        self.program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.program.stdin
        self.program.stdin.write(json.dumps(made))
        self.program.stdin.close()
        self.replies: dict[str, Reply] = {}
        self.signal = -1
        for message in self.messages():
            if began in message.get("running", ()):
                break
        if began.startswith("endless"):
            assert until(lambda: all(has_come_far(gpu) for gpu, *_ in made["gpus"]))
        (self.worker,) = self.children(self.program.pid)

    def messages(self) -> Iterator[dict[str, Any]]:
        assert self.program.stdout
        for line in self.program.stdout:
            message: dict[str, Any] = json.loads(line)
            if "measured" in message:
                self.replies[message["measured"]] = Reply(**message["reply"])
            self.signal = message.get("signal", self.signal)
            yield message

    def end(self) -> None:
        """Waits for its end, which comes before that of what is endless."""
        for _ in self.messages():
            pass
        assert self.program.stdout
        self.program.stdout.close()
        self.program.wait()

    def statuses(self) -> dict[str, str]:
        return {id: reply.status for id, reply in self.replies.items()}

    @staticmethod
    def children(parent: int) -> list[int]:
        stats = {pid: Path(f"/proc/{pid}/stat").read_text() for pid in processes()}
        return [pid for pid, stat in stats.items() if stat.rpartition(")")[2].split()[1] == str(parent)]


LONG = "noisy endless each together torch"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_what_was_measured(number: signal.Signals) -> None:
    run = Running(job(LONG, gpus=2, pynvml=NVML), "endless:gpu1")
    run.program.send_signal(number)
    run.end()
    assert run.signal == number
    cut, never = "the run was cut off", "the run was cut off before this began"
    assert {id: reply.detail for id, reply in run.replies.items() if reply.status == "cut"} == {
        **dict.fromkeys(("endless:gpu0", "endless:gpu1"), cut),
        **dict.fromkeys(("each:gpu0", "each:gpu1", "together:all", "torch:gpu0", "torch:gpu1"), never),
    }
    for gpu in (0, 1):
        assert run.replies[f"noisy:gpu{gpu}"].status == "ok"
        assert run.replies[f"endless:gpu{gpu}"].value["round 3"] == {"number": 3}
        assert set(run.replies[f"counters:gpu{gpu}"].value) == {"before", "after"}


def test_a_long_load_watches_each_gpu_and_stops_the_one_that_fails() -> None:
    alone = NVML.replace("[Process(), ours]", "[ours]")
    run = Running({**job("endless each", gpus=2, pynvml=alone, fake_pynvml=alone), "is_long": True}, "endless:gpu1")
    Path(os.environ[MARK], "falls-off").touch()
    for _ in run.messages():
        if {"endless:gpu1", "each:gpu1"} <= {*run.replies}:
            break
    run.program.send_signal(signal.SIGINT)
    run.end()
    fatal = "GPU 1 reported Xid 79, which is fatal"
    assert (run.replies["endless:gpu1"].status, run.replies["endless:gpu1"].detail) == ("guarded", fatal)
    assert run.replies["each:gpu1"].detail == fatal + " before this began"
    assert run.replies["endless:gpu0"].status == "cut"
    own, shared = run.replies["watch:gpu0"].value, run.replies["watch:all"].value
    assert set(own["moved"]) == {"nvlink_replay:1"}
    assert own["links"] == [0, 1]
    assert own["highest"] == {"memory_celsius": 61}
    assert own["not_watched"]["nvlink_symbol_ber"] == "not supported by this GPU or its driver"
    assert own["calls"] < 10
    assert [(gpu, code) for _, gpu, code in shared["xids"]] == [(1, 79)]
    assert shared["source"] or shared["why"]


def test_a_second_signal_ends_at_once() -> None:
    ends_slowly = f"open(os.environ[{MARK!r}] + '/is-ending', 'w').close(); time.sleep(600)"
    run = Running(patched(job(LONG), "measuring/schedule.py", "schedule.end(why)", ends_slowly), "endless:gpu0")
    run.program.send_signal(signal.SIGINT)
    assert until(Path(os.environ[MARK], "is-ending").exists)
    run.program.send_signal(signal.SIGINT)
    run.end()
    assert run.program.returncode == -signal.SIGINT


def test_the_time_is_kept() -> None:
    hanging = "import subprocess, time\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\ntime.sleep(600)"
    replies = with_enough_time(
        lambda seconds: measured(job(LONG, seconds=seconds, torch=hanging)),
        lambda replies: "round 3" in (replies["endless:gpu0"].value or {}),
    )
    assert replies["noisy:gpu0"].status == "ok"
    assert replies["endless:gpu0"].value["round 3"] == {"number": 3}
    over = "the time limit for all measurements (--measure-timeout) was reached"
    assert (replies["endless:gpu0"].status, replies["endless:gpu0"].detail) == ("cut", over)
    assert (replies["each:gpu0"].status, replies["each:gpu0"].detail) == ("cut", over + " before this began")


def test_a_killed_worker_takes_all_along() -> None:
    hanging = "import time; time.sleep(600)"
    run = Running(job(LONG, gpus=2, torch=hanging, pynvml=hanging), "endless:gpu0")
    assert len(run.children(run.worker)) == 3
    os.kill(run.worker, signal.SIGKILL)
    run.end()
    assert run.statuses() == {"noisy:gpu0": "ok", "noisy:gpu1": "ok"}
    assert run.signal == 0


def test_a_killed_fork_server_takes_only_its_own_workloads_along() -> None:
    run = Running(job(LONG), "endless:gpu0")
    servers = [pid for pid in run.children(run.worker) if run.children(pid)]
    assert len(servers) == 1
    os.kill(servers[0], signal.SIGKILL)
    for _ in run.messages():
        if "endless:gpu0" in run.replies:
            break
    assert not any(map(is_there, run.replies["endless:gpu0"].value["grandchildren"]["pids"]))
    run.end()
    assert run.replies["endless:gpu0"].detail == "the process that forked it died: killed by SIGKILL"
    assert run.replies["endless:gpu0"].value["round 3"] == {"number": 3}
    assert run.replies["each:gpu0"].detail == "the process that imported driver has ended"
    assert run.replies["torch:gpu0"].status == "ok"


def test_a_workload_that_has_lost_everybody_ends() -> None:
    run = Running(patched(job("hangs"), "measuring/task.py", "now + self._longest()", "now + 600"), "hangs:gpu0")
    (server,) = [pid for pid in run.children(run.worker) if run.children(pid)]
    for pid, number in ((server, signal.SIGSTOP), (run.worker, signal.SIGKILL), (server, signal.SIGKILL)):
        os.kill(pid, number)
    run.end()


def test_what_a_living_workload_has_started_is_left_alone() -> None:
    value = measured(job("keeps", gpus=2))["keeps:gpu0"].value
    assert set(value["grandchildren"]["pids"]) <= set(value["later"]["pids"])


def test_a_probe_that_leaves_something_behind_takes_it_along() -> None:
    """The fixture looks for it."""
    leaves = "import subprocess; subprocess.Popen(['sleep', '600'], stdin=-3, stdout=-3, stderr=-3)\n    yield machine.file"
    replies = ask(sys.executable, PROBES.replace("yield machine.file", leaves))
    assert replies["probe:good"].status == "ok"


def test_a_killed_program_takes_all_along() -> None:
    run = Running(job(LONG), "endless:gpu0")
    run.program.kill()
    run.end()
    assert until(lambda: not processes())


def test_who_ignores_the_end_of_children_is_told_of_them_all_the_same() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        replies = measured(job("segfaults each"))
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert replies["segfaults:gpu0"].detail == "killed by SIGSEGV in second step"
    assert replies["each:gpu0"].status == "ok"


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (2, 1), (4, 3), (16, 5)])
def test_frameworks_are_imported_at_the_same_time(
    cores: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Importing:
        ready, deadline = False, float("inf")

        def __init__(self, runtime: str, folder: str) -> None:
            self.runtime = runtime

    monkeypatch.setattr(schedule, "ForkServer", Importing)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    names = ["allocation", "gemm", "training-step", "cupy-kernels", "jax-matmul"]
    tasks = [Task(name, bench.workload(name), [Gpu(0, 0, [])], str(tmp_path)) for name in names]
    run: Any = schedule.Schedule(tasks, "standard", str(tmp_path), print, None, 0)  # type: ignore[arg-type]
    run._import(0.0)
    run._import(0.0)
    assert len(run.hosts) == expected


@pytest.mark.parametrize(("simulates", "ends"), [("1", "ready"), ("0", "failed")])
def test_numba_on_its_simulator_needs_no_modules_of_real_gpus(tmp_path: Path, simulates: str, ends: str) -> None:
    (tmp_path / "numba/cuda").mkdir(parents=True)
    (tmp_path / "numba/__init__.py").write_text(
        "import os\nclass config: ENABLE_CUDASIM = int(os.environ['NUMBA_ENABLE_CUDASIM'])\n"
    )
    (tmp_path / "numba/cuda/__init__.py").touch()
    (tmp_path / "numba/cuda/cudaimpl.py").write_text("from numba import cuda\ncuda.const.array_like\n")
    code = "from gpudoctor.worker.measuring import fork_server; print(*fork_server._imported('numba'))"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path.cwd()}", "NUMBA_ENABLE_CUDASIM": simulates}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == ends
