"""The profilers: programs on PATH that say what real ones say, and how each of their words is judged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import machine
import pytest
from each import each
from waiting import with_enough_time

from gpudoctor import catalog
from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.model import Confidence, Finding, Reply, Skip, Snapshot
from gpudoctor.worker.measuring import bench, one_kernel, square
from gpudoctor.worker.workloads import profile_ncu, profile_nsys, profile_torch

CHECK = catalog.checks()["gpu-profiling"]
COLUMNS = (
    *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device"),
    *("CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value"),
)
ROW = '"0","77","python3","127.0.0.1","ramp","1","7","(512, 1, 1)","(528, 1, 1)","0","9.0","Command line profiler metrics"'
NCU_CSV = f"""==PROF== Connected to process 77 (/usr/bin/python3)
==PROF== Profiling "ramp" - 0: 0%....50%....100% - 1 pass
==PROF== Disconnected from process 77
{",".join(f'"{column}"' for column in COLUMNS)}
{ROW},"gpu__time_duration.sum","ns","28,704"
{ROW},"smsp__inst_executed.sum","inst","4,194,304"
"""
DENIED = """==PROF== Connected to process 77 (/usr/bin/python3)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0.
==PROF== Disconnected from process 77
"""
TAKEN = """==ERROR== An error was reported by the driver
==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM) is concurrently
collecting profiling data."""
NOT_LOADED = "==ERROR== Failed to initialize the profiler: LibraryNotLoaded. Check that a compatible driver library is loaded."
OLD_DRIVER = (
    "==ERROR== Cuda driver is not compatible with Nsight Compute.\n==WARNING== Failed to load Nsight Compute CUDA modules."
)
NO_FOLDER = "ERROR : nsight-compute directory is not found under /usr/local/cuda or /opt/nvidia."
NSYS_CSV = """Processing [report.sqlite] with [cuda_gpu_kern_sum.py]...
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
100.0,27744,1,27744.0,27744.0,27744,27744,0.0,ramp
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def make(name: str, script: str) -> Path:
        (folder / name).write_text("#!/bin/sh\n" + script)
        (folder / name).chmod(0o755)
        return folder / name

    return make


def says(text: str, code: int = 0) -> str:
    return f"cat <<'END'\n{text.rstrip()}\nEND\nexit {code}\n"


def results(tmp_path: Path, run: Callable[[bench.Bench], None]) -> dict[str, Any]:
    run(bench.Bench(str(tmp_path / "results"), [3]))
    return bench.read(str(tmp_path / "results")).values


def test_ncu_gives_a_row(fake: Any, tmp_path: Path) -> None:
    path = fake("ncu", f'echo "$@" > {tmp_path}/arguments; env > {tmp_path}/environment\n' + says(NCU_CSV))
    found = results(tmp_path, profile_ncu.run)
    assert found["row"] == {"kernel": "ramp", "microseconds": pytest.approx(28.704), "instructions": 4194304}
    assert found["ncu"]["path"] == str(path)
    arguments = (tmp_path / "arguments").read_text()
    assert "--clock-control none" in arguments
    assert arguments.strip().endswith("-m gpudoctor.worker.measuring.one_kernel 3")
    environment = dict(line.split("=", 1) for line in (tmp_path / "environment").read_text().splitlines() if "=" in line)
    for name in ("HOME", "TMPDIR"):  # ncu leaves files in both
        assert Path(environment[name]).is_relative_to(tmp_path)
    assert Path(environment["PYTHONPATH"].split(":")[0], "gpudoctor", "worker", "measuring", "one_kernel.py").exists()


def test_the_program_that_is_profiled_starts_by_its_name(tmp_path: Path) -> None:
    from gpudoctor.worker.measuring import programs

    environment = programs.python_environment()
    ran = programs.run([*one_kernel.command(0)[:-1], "not a number"], 20, str(tmp_path), **environment)
    assert "ValueError: invalid literal for int()" in ran.output


@pytest.mark.parametrize("value", ["n/a", ""])
def test_a_counter_without_a_value_is_no_row(value: str) -> None:
    assert profile_ncu.the_row(NCU_CSV.replace("4,194,304", value)) == {}
    assert profile_ncu.the_row(DENIED) == {}


def test_older_units_are_understood() -> None:
    assert profile_ncu.the_row(NCU_CSV.replace('"ns","28,704"', '"usecond","28.70"'))["microseconds"] == pytest.approx(28.7)


@pytest.mark.slow
def test_ncu_that_hangs_is_ended(fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("ncu", "echo ==PROF== Connected; sleep 600 & wait")

    def profiled(seconds: float) -> dict[str, Any]:
        monkeypatch.setattr(profile_ncu, "SECONDS", seconds)
        found: dict[str, Any] = results(tmp_path, profile_ncu.run)["ncu"]
        return found

    found = with_enough_time(profiled, lambda found: found["printed"])
    assert found["code"] is None
    assert "Connected" in found["printed"]


@pytest.mark.parametrize(("workload", "name"), [(profile_ncu, "ncu"), (profile_nsys, "nsys")])
def test_a_profiler_that_is_not_installed(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: Any, name: str
) -> None:
    monkeypatch.setattr(workload, "PLACES", ())
    with pytest.raises(Skip, match=f"{name} is not installed") as skip:
        results(tmp_path, workload.run)
    assert skip.value.kind == Skip.NOT_INSTALLED


def test_nsys_gives_a_row(fake: Any, tmp_path: Path) -> None:
    fake("nsys", f'if [ "$1" = profile ]; then touch report.nsys-rep; exit 0; fi\n{says(NSYS_CSV)}')
    found = results(tmp_path, profile_nsys.run)
    assert found["row"] == {"kernel": "ramp", "microseconds": pytest.approx(27.744)}


def test_an_older_nsys_has_another_name_for_its_table(fake: Any, tmp_path: Path) -> None:
    script = """if [ "$1" = profile ]; then touch report.qdrep; exit 0; fi
case "$*" in *cuda_gpu*) echo no such report; exit 1;; esac
"""
    fake("nsys", script + says(NSYS_CSV))
    assert results(tmp_path, profile_nsys.run)["row"]["kernel"] == "ramp"


def test_nsys_without_a_report_says_why(fake: Any, tmp_path: Path) -> None:
    fake("nsys", says("Unable to find QdstrmImporter"))
    found = results(tmp_path, profile_nsys.run)
    assert "row" not in found
    assert "QdstrmImporter" in found["nsys"]["printed"]


class Torch:
    """So much of PyTorch as its profiler needs. events: what its traces hold, one after the other."""

    def __init__(self, *events: list[dict[str, Any]], says: str = "") -> None:
        self.events = list(events)
        self.cuda = SimpleNamespace(
            set_device=lambda gpu: None,
            synchronize=lambda: None,
            Event=lambda enable_timing: SimpleNamespace(record=lambda: None, elapsed_time=lambda after: 0.03),
        )
        activity = SimpleNamespace(CPU=0, CUDA=1)
        self.profiler = SimpleNamespace(ProfilerActivity=activity, supported_activities=lambda: {0, 1}, profile=self.profile)
        self.says = says

    def ones(self, count: int, device: str) -> int:
        return 1

    @contextmanager
    def profile(self, activities: list[int]) -> Any:
        os.write(2, self.says.encode())
        events = self.events.pop(0)
        yield SimpleNamespace(export_chrome_trace=lambda file: Path(file).write_text(json.dumps({"traceEvents": events})))


def profiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, torch: Torch) -> dict[str, Any]:
    monkeypatch.setattr(square, "cuda_torch", lambda: torch)
    return results(tmp_path, profile_torch.run)


KERNEL = {"cat": "kernel", "name": "vectorized_elementwise_kernel", "dur": 27.5}


def test_torch_profiler_gives_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    row = profiled(monkeypatch, tmp_path, Torch([{"cat": "cpu_op", "name": "mul"}, KERNEL, KERNEL]))["row"]
    assert (row["rows"], row["kernel"], row["microseconds"]) == (2, "vectorized_elementwise_kernel", 27.5)
    assert row["event_microseconds"] == pytest.approx(30)
    assert row["built_with_cupti"]


def test_the_first_trace_may_be_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert profiled(monkeypatch, tmp_path, Torch([], [KERNEL]))["row"]["rows"] == 1


def test_what_cupti_prints_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any) -> None:
    said = "function status failed with error CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)\n"
    row = profiled(monkeypatch, tmp_path, Torch([], [], says=said))["row"]
    assert (row["rows"], row["kernel"]) == (0, "")
    assert "INSUFFICIENT_PRIVILEGES" in row["printed"]


SEES = {
    "profile-torch": {"row": {"built_with_cupti": True, "rows": 3, "kernel": "mul", "microseconds": 27.5, "printed": ""}},
    "profile-ncu": {
        "ncu": {"path": "/usr/local/cuda/bin/ncu", "code": 0, "seconds": 6.1, "printed": NCU_CSV},
        "row": {"kernel": "ramp", "microseconds": 28.7, "instructions": 4194304},
    },
    "profile-nsys": Reply("skipped", {"kind": Skip.NOT_INSTALLED}, "nsys is not installed"),
}


def facts(case: str = "h100", **changes: Any) -> Facts:
    given = {**SEES, **{name.replace("_", "-"): value for name, value in changes.items()}}
    plan = Reply("ok", {"workloads": list(given), "gpus": [0], "left_alone": {}, "kind": "busy"})
    replies = {f"{name}:gpu0": value if isinstance(value, Reply) else Reply("ok", value) for name, value in given.items()}
    taken: Snapshot = replace(machine.load(case), measured={"plan": plan, **replies})
    return Facts(taken)


def judged(**changes: Any) -> list[Finding]:
    return list(CHECK.judge(facts(**changes)))


def ncu(printed: str, code: int | None = 1) -> dict[str, Any]:
    return {"ncu": {"path": "/usr/bin/ncu", "code": code, "seconds": 3.0, "printed": printed}}


def test_profilers_that_see_the_kernel() -> None:
    assert judged() == []
    assert CHECK.summary(facts()) == "torch.profiler, ncu: kernel found; nsys: nsys is not installed"
    assert {figure.what: figure.value for figure in CHECK.figures(facts())} == {
        "kernel seen by torch.profiler": 27.5,
        "kernel seen by ncu": 28.7,
    }


@each(
    ("printed", "code", "problem"),
    [
        (DENIED, 1, "profiler-denied"),
        (TAKEN, 1, "profiler-counters-taken"),
        (NOT_LOADED, 9, "profiler-library-missing"),
        (OLD_DRIVER, 1, "profiler-does-not-fit"),
        (NO_FOLDER, 1, "profiler-library-missing"),
        ("==PROF== Connected to process 77", None, "profiler-hangs"),
        ("==WARNING== No kernels were profiled.", 0, "profiler-sees-no-kernel"),
    ],
)
def test_what_ncu_says(printed: str, code: int | None, problem: str) -> None:
    (finding,) = judged(profile_ncu=ncu(printed, code))
    assert finding.problem.id == problem
    assert finding.message.startswith("ncu: ")
    assert finding.evidence["path"] == "/usr/bin/ncu"


def test_a_denied_profiler_is_explained_by_the_driver_s_setting() -> None:
    (finding,) = judged(profile_ncu=ncu(DENIED))
    assert finding.because == "profiler-counters-restricted"
    assert "ERR_NVGPUCTRPERM" in finding.message


def test_an_unknown_end_is_not_sure_of_its_cause() -> None:
    (finding,) = judged(profile_ncu=ncu("==WARNING== No kernels were profiled."))
    assert finding.confidence is Confidence.UNKNOWN
    assert finding.message == "ncu: No kernels were profiled."


@each(
    ("values", "problem"),
    [
        (
            {"row": {"rows": 0, "kernel": "", "printed": "... CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)"}},
            "counters-taken",
        ),
        ({"row": {"rows": 0, "kernel": "", "printed": "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"}}, "denied"),
        ({"row": {"rows": 0, "kernel": "", "printed": "CUPTI initialization failed - activities missing"}}, "library-missing"),
        ({"row": {"rows": 0, "kernel": "", "printed": "", "built_with_cupti": False}}, "library-missing"),
        ({"row": {"rows": 0, "kernel": "", "printed": ""}}, "sees-no-kernel"),
        ({"broken": {"error": "ImportError: libcupti.so.12: cannot open shared object file", "printed": ""}}, "library-missing"),
    ],
)
def test_what_torch_profiler_says(values: dict[str, Any], problem: str) -> None:
    (finding,) = judged(profile_torch=values)
    assert finding.problem.id == f"profiler-{problem}"
    assert finding.message.startswith("torch.profiler: ")


def test_under_wsl_nothing_is_said_of_counters() -> None:
    described = {case: Facts(machine.load(case)) for case in machine.cases()}
    wsl = next((case for case, of in described.items() if known(partial(getattr, of.system, "wsl"))), None)
    assert wsl
    assert list(CHECK.judge(facts(wsl, profile_ncu=ncu(DENIED)))) == []


def test_none_of_them() -> None:
    absent = Reply("skipped", {"kind": Skip.NOT_INSTALLED}, "it is not installed")
    with pytest.raises(Skip) as skip:
        judged(profile_torch=absent, profile_ncu=absent, profile_nsys=absent)
    assert skip.value.kind == Skip.NOT_INSTALLED


def test_one_that_died_keeps_the_check_from_passing() -> None:
    with pytest.raises(Skip, match="see measurements"):
        judged(profile_torch=Reply("died", None, "killed by SIGSEGV"))
