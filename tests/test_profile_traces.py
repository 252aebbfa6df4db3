"""The files of profiles: traces of any size and shape, reports of Nsight Systems, and two profiles compared."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from simulated import GEMM, Program, snapshot, training
from test_profile import pageable, reads_each_loss, single, tf32, well

from gpudoctor import doctor
from gpudoctor.checkup import Checkup
from gpudoctor.cli import main
from gpudoctor.files import snapshot as files
from gpudoctor.jobs.tracing import events, intervals, ncu, nsys, rows
from gpudoctor.jobs.tracing.events import Trace

EVENTS = [
    {"ph": "X", "cat": "kernel", "name": f'a "quoted" {{name}} ] {number}', "ts": number, "dur": 0.5} for number in range(50)
]


def written(folder: Path, text: str) -> Trace:
    file = folder / "trace.json"
    file.write_text(text, encoding="utf-8")
    return Trace(file)


@pytest.mark.parametrize("chunk", [1, 7, 100, 1 << 20])
def test_a_trace_is_read_in_pieces(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "CHUNK", chunk)
    value = {"schemaVersion": 1, "baseTimeNanoseconds": 5, "traceEvents": EVENTS, "traceName": "x"}
    trace = written(tmp_path, json.dumps(value, indent=1))
    assert [*trace] == EVENTS
    assert (trace.base_ns, trace.is_cut) == (5, False)


def test_a_trace_that_is_nested_too_deeply_ends_there(tmp_path: Path) -> None:
    trace = written(tmp_path, json.dumps({"traceEvents": EVENTS})[:-2] + ", " + "[" * 100_000)
    assert [*trace] == EVENTS
    assert trace.is_cut


def test_a_trace_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = json.dumps({"traceEvents": EVENTS})
    trace = written(tmp_path, whole[: len(whole) // 2])
    assert 20 < len([*trace]) < 30
    assert trace.is_cut


@pytest.mark.parametrize(
    "text", ["", "{}", "no trace", '{"traceEvents": 5}', '{"traceEvents": [1, null, {"ph": "X", "cat": "kernel"}]}']
)
def test_what_is_no_trace_has_no_rows(text: str, tmp_path: Path) -> None:
    found = rows.read(written(tmp_path, text))
    assert len(found.g_start) == 0


def test_too_many_events_are_left_out_and_this_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_ON_GPU", 10)
    found = rows.read(written(tmp_path, json.dumps({"traceEvents": EVENTS})))
    assert (len(found.g_start), found.is_cut) == (10, True)


def test_a_large_trace_is_not_read_beyond_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_ON_GPU", 10)
    monkeypatch.setattr(rows, "MOST_CALLS", 10)
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1.0, "dur": 1.0}
    given = iter([*EVENTS, *[call] * 50])
    found = rows.Rows().read(given)
    assert (len(found.g_start), len(found.h_start), len([*given]), found.is_cut) == (10, 10, 40, True)


def test_a_kernel_is_shown_as_most_of_its_time_was_launched() -> None:
    """An autotuner launches it in other forms before."""
    one = {"ph": "X", "cat": "kernel", "name": "k", "ts": 0.0}
    tried = {**one, "dur": 90.0, "args": {"grid": [1, 1, 1], "block": [32, 1, 1], "registers per thread": 22}}
    usual = {**one, "dur": 30.0, "args": {"grid": [9, 1, 1], "block": [512, 1, 1], "registers per thread": 32}}
    found = rows.Rows().read([usual, tried, *[usual] * 8, tried])
    assert [*found.launches.values()] == [{"grid": [9, 1, 1], "block": [512, 1, 1], "registers per thread": 32}]
    assert [*found.longest.values()] == [90.0]


def test_intervals_agree_with_counting() -> None:
    one, other = intervals.union([(0, 4), (3, 6), (9, 12), (12, 13)]), intervals.union([(2, 5), (10, 11), (20, 21)])
    moments = [moment / 2 for moment in range(50)]

    def covers(found: intervals.Intervals) -> list[bool]:
        return [any(start <= moment < end for start, end in found) for moment in moments]

    inside, away = covers(one), covers(other)
    assert covers(intervals.minus(one, other)) == [a and not b for a, b in zip(inside, away, strict=True)]
    assert covers(intervals.common(one, other)) == [a and b for a, b in zip(inside, away, strict=True)]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """As `nsys export --type=sqlite` writes it: two processes, times in nanoseconds."""
    file = tmp_path / "report.sqlite"
    with sqlite3.connect(file) as made:
        made.executescript(
            """
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, demangledName,
                gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread,
                staticSharedMemory, dynamicSharedMemory, globalPid);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, streamId, correlationId, copyKind, srcKind, dstKind,
                bytes, globalPid);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId);
            """
        )
        made.executemany(
            "INSERT INTO StringIds VALUES (?, ?)", [(1, GEMM), (2, "cudaLaunchKernel_v7000"), (3, "cudaStreamSynchronize_v3020")]
        )
        for process in (41, 42):
            pid = process << 24
            for number in range(4):
                start = 100_000 * number + 10_000
                launch = (start - 5000, start - 3000, pid | 7, number, 2)
                kernel = (start, start + 50_000, 0, 7, number, 1, 8, 1, 1, 256, 1, 1, 64, 1024, 2048, pid)
                made.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({','.join('?' * 16)})", kernel)
                made.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", launch)
        copy = (5000, 9000, 0, 7, 99, 1, 0, 2, 1 << 20, 41 << 24)
        made.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES ({','.join('?' * 10)})", copy)
        made.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (320000, 365000, ?, 100, 3)", (41 << 24 | 7,))
    return file


def test_a_report_of_nsys_gives_the_same_tables(database: Path) -> None:
    first, second = nsys.of_database(database)
    assert (first["pid"], second["pid"]) == (41, 42)
    assert (first["kernel_count"], round(first["kernel_s"] * 1e6)) == (4, 200)
    assert first["kernels"][0] | {"name": ""} == {
        "name": "",
        "kind": "matmul",
        "tensor": True,
        "precision": "half",
        "seconds": 0.0002,
        "calls": 4,
        "longest_us": 50.0,
        "grid": [8, 1, 1],
        "block": [256, 1, 1],
        "registers": 64,
        "shared_bytes": 3072,
        "occupancy": None,
    }
    assert first["copies"][0]["name"] == "Memcpy HtoD (Pageable -> Device)"
    assert (first["waits"][0]["call"], second["waits"]) == ("cudaStreamSynchronize", [])


def test_a_report_without_tables_has_no_work(tmp_path: Path) -> None:
    file = tmp_path / "empty.sqlite"
    sqlite3.connect(file).close()
    assert [*nsys.of_database(file)] == []


@pytest.fixture
def compared(tmp_path: Path) -> Callable[..., Result]:
    def compare(one: Callable[[Program], None], other: Callable[[Program], None], *options: str, **told: Any) -> Result:
        names = []
        for name, each, more in (("before", one, {}), ("after", other, told)):
            file = tmp_path / f"{name}.json"
            file.write_bytes(files.dump(snapshot(training(each).profile(tmp_path, **more))))
            names.append(str(file))
        return CliRunner().invoke(main, ["profile", "--compare", *options, *names])

    return compare


def test_what_got_slower_is_named(compared: Callable[..., Result]) -> None:
    result = compared(well, reads_each_loss)
    assert result.exit_code == 1
    assert "a step takes 3.854 ms instead of 3.710 ms (3.9 % slower)" in result.stdout
    assert "idle after waits for the GPU" in result.stdout
    assert "aten::item at train.py:12" in result.stdout


def test_a_faster_kernel_and_a_changed_setting_are_named(compared: Callable[..., Result]) -> None:
    result = compared(single, tf32, "--format", "json", settings={"float32_matmul_precision": "high"})
    assert result.exit_code == 0
    (rank,) = json.loads(result.stdout)["ranks"]
    assert (rank["unit"], rank["slower"]) == ("step", False)
    assert {change["name"] for change in rank["changes"] if change["kind"] == "kernel"} >= {"ampere_sgemm_128x64_tn"}
    assert rank["settings"] == {"float32_matmul_precision": [None, "high"]}


def test_the_same_program_is_not_slower(compared: Callable[..., Result]) -> None:
    result = compared(pageable, pageable)
    assert result.exit_code == 0
    assert "(unchanged)" in result.stdout


def test_a_snapshot_without_a_profile_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    taken = snapshot()
    file.write_bytes(files.dump(type(taken)(taken.schema, "0", taken.taken, {})))
    result = CliRunner().invoke(main, ["profile", "--compare", str(file), str(file)])
    assert (result.exit_code, "contains no profile" in result.stderr) == (2, True)


def counted(*values: tuple[int, str, str]) -> str:
    """What ncu prints with --csv."""
    head = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
    rows = (f'"{id}","7","layer_norm<float>(int)","{name}","x","{value}"\n' for id, name, value in values)
    return "==PROF== Connected to process 7\n" + head + "".join(rows)


def test_counters_of_a_kernel_are_medians_over_its_launches(tmp_path: Path) -> None:
    stall = ncu.STALL.format
    text = counted(
        *((launch, "gpu__time_duration.sum", f"{1000 * (launch + 1):,}") for launch in range(3)),
        *((launch, "sm__warps_active.avg.pct_of_peak_sustained_active", "61.5") for launch in range(3)),
        (0, stall("barrier"), "0.2"),
        (0, stall("long_scoreboard"), "7.25"),
        (0, stall("sleeping"), "0"),
        (0, "launch__registers_per_thread", "n/a"),
    )
    (tmp_path / ncu.LOG).write_text(text)
    told = ncu.told("no-such-ncu", "layer_norm", tmp_path)
    assert told["kernel"] == {
        "wanted": "layer_norm",
        "name": "layer_norm<float>(int)",
        "launches": 3,
        "nanoseconds": 2000.0,
        "occupancy_percent": 61.5,
        "stalls": {"long_scoreboard": 7.25, "barrier": 0.2},
    }
    report = doctor.judge(snapshot(**told), {})
    assert "Achieved occupancy" in Checkup(report).render("text")
    assert "61.5 %" in Checkup(report).render("html")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "gpudoctor explain profiler-counters-restricted"),
        ("==ERROR== The application returned an error code (1).\n", "ncu: The application returned an error code (1)."),
        ("==WARNING== No kernels were profiled.\n", "no kernel with layer_norm in its name was launched more than 20 times"),
    ],
)
def test_ncu_without_counters_says_why(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / ncu.LOG).write_text(text)
    assert said in ncu.told("no-such-ncu", "layer_norm", tmp_path)["nothing"]


def test_ncu_runs_the_command_and_its_exit_code_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake ncu, which writes its log and then becomes the command."""
    fake = tmp_path / "ncu"
    log = counted((0, "gpu__time_duration.sum", "1500"))
    fake.write_text(
        f'#!/bin/sh\nwhile [ "$1" != --log-file ]; do shift; done\nprintf \'%s\' \'{log}\' > "$2"\nshift 2\nexec "$@"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    result = CliRunner().invoke(main, ["profile", "--no-check", "--kernel", "layer_norm", "--", "sh", "-c", "exit 4"])
    assert result.exit_code == 4
    assert "1500 ns" in result.stderr
