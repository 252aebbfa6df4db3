"""`gpudoctor hang`: what is read of dumps, logs and NCCL, also if it is hostile; and the command line."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import machine
import pytest
from click.testing import CliRunner
from each import each

from gpudoctor.cli import main
from gpudoctor.errors import UserError
from gpudoctor.facts.job.recorded import Answer, Dump
from gpudoctor.facts.job.stuck import Look, Process, Thread
from gpudoctor.jobs.hanging import calls, dumping, logs, pickled, ras, recorder, sockets, stacks
from gpudoctor.judging.jobs.hanging import ras as counts
from gpudoctor.judging.jobs.hanging import recorders, waiting
from gpudoctor.judging.jobs.hanging.standing import words

RECORDED = Path(__file__).parent / "recorders"
PLAIN: dict[str, Any] = {
    "version": "2.10",
    "entries": [1, -1, 70000, 1 << 40, 1.5, None, True, "ä", ("a", "b", "c", "d"), {"x": []}],
}


# Dumps of the flight recorder


@each("protocol", range(2, 6))
def test_a_pickle_of_plain_containers_is_read_as_pickle_reads_it(protocol: int) -> None:
    assert pickled.plain(pickle.dumps(PLAIN, protocol)) == PLAIN


class Runs:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, ("touch /tmp/gpudoctor-was-here",)


@each(
    "data",
    [
        pickle.dumps({"entries": [Runs()]}),
        pickle.dumps({"entries": {1, 2}}),  # a set is no part of a dump
        b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00idtR.",
        b"\x80\x02}(" + b"K\x01" * 3 + b"u.",  # a key without its value
        b"\x80\x02" + b"(" * 1000,
        b"\x80\x02K\x01a.",  # appends to a number
        b"\x80\x02\x8d" + b"\xff" * 8 + b"x.",  # a text of 2**64 bytes
        b"\x80\x02X\xff\xff\xff\x7fx.",
        b"\x80\x02j\xff\xff\xff\xff.",
        b"\x80\x02)" + b"\x86" * 3 + b".",
        b"\x80\x02)\x94" + b"h\x00h\x00\x86\x94" + b"".join(b"h%ch%c\x86\x94" % (n, n) for n in range(1, 60)) + b"}h\x3cK\x01s.",
        b"\x80\x05.",
        b"\x80",
    ],
)
def test_what_is_more_than_plain_data_is_refused(data: bytes) -> None:
    with pytest.raises(UserError):
        pickled.plain(data)


def test_the_dumps_of_two_ranks_show_the_call_in_which_they_differ() -> None:
    """Recorded with PyTorch 2.13 and Gloo; the JSON form has no frames."""
    dumps = [recorder.read(str(RECORDED / f"trace_rank_{rank}")) for rank in (0, 1)]
    (parting,) = recorders.partings([_dump(dump) for dump in dumps])
    assert (parting.kind, parting.operation, parting.odd_operation, parting.sequence) == ("differ", "all_reduce", "broadcast", 4)
    assert parting.places == {0: "<module> (two.py:14)", 1: "<module> (two.py:15)"}
    as_json = recorder.read(str(RECORDED / "trace_rank_0.json"))
    assert [(entry["operation"], entry["sequence"], entry["sizes"]) for entry in as_json["entries"]] == [
        (entry["operation"], entry["sequence"], entry["sizes"]) for entry in dumps[0]["entries"]
    ]
    assert as_json["rank"] == dumps[0]["rank"] == 0


def _dump(value: dict[str, Any]) -> Dump:
    import msgspec

    return msgspec.convert(value, Dump)


@each(
    "content",
    [
        b"",
        b"\x80\x02}.",
        b'{"entries": 7}',
        b'{"entries": [{"collective_seq_id": "x"}]}',
        b"[" * 100_000,
        b'{"entries": [[]]}',
        b'{"entries": [{"collective_seq_id": 1e999, "profiling_name": "x"}]}',
        b'{"entries": [], "rank": ' + b"9" * 3000 + b"}",
        b"\x00\xff",
    ],
    ids=lambda content: content[:20],
)
def test_what_is_no_dump_is_refused_in_one_line(content: bytes) -> None:
    with pytest.raises(UserError) as refused:
        recorder.of_bytes(content, "trace_rank_7")
    assert "trace_rank_7" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_few_containers_that_stand_for_billions_are_not_written_out() -> None:
    many: list[Any] = ["x"]
    for _ in range(40):
        many = [many] * 10
    entry = {"collective_seq_id": 1, "profiling_name": many, "process_group": (many, many), "state": many, "input_dtypes": [many]}
    said = {"version": many, "entries": [entry]}
    found = recorder.of_bytes(pickle.dumps(said, 2), "trace_rank_1")
    assert (found["version"], found["entries"][0]["operation"], found["entries"][0]["group"]) == ("", "", "")


@pytest.mark.parametrize("digits", [18, 30, 5000])
def test_a_number_of_a_log_that_cannot_be_kept_is_no_number(digits: int) -> None:
    number = "9" * digits
    line = f"[rank{number}]:[E] [Rank {number}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, OpType=X)"
    found = logs.of_texts([("a.log", [line.encode()])])
    assert [row["sequence"] for row in found] == ([int(number)] if digits == 18 else [])


def test_a_long_dump_is_cut_to_what_is_judged() -> None:
    entry = {
        "collective_seq_id": 0,
        "profiling_name": "nccl:all_reduce",
        "retired": True,
        "frames": [{"name": "f", "filename": "a", "line": 1}] * 40,
    }
    said = {"entries": [{**entry, "collective_seq_id": number, "retired": number < 2000} for number in range(3000)]}
    found = recorder.of_bytes(json.dumps(said).encode(), "trace_rank_1")
    assert len(found["entries"]) == recorder.LAST + 2 * recorder.PENDING
    assert found["groups"][0]["entered"] == 2999
    assert len(json.dumps(found)) < 200_000


def test_one_operation_that_stands_in_a_dump_a_million_times_costs_little() -> None:
    entry = {"collective_seq_id": 1, "profiling_name": "nccl:x", "frames": [{"name": "f", "filename": "a", "line": 1}] * 24}
    with pytest.raises(UserError, match="more than 200,000 operations"):
        recorder.of_bytes(pickle.dumps({"entries": [entry] * 1_000_000}, 2), "trace_rank_1")
    with pytest.raises(UserError, match="too many values"):
        recorder.of_bytes(b'{"entries":[' + b"[]," * recorder.MOST_VALUES + b"[]]}", "trace_rank_1")


def test_only_dumps_of_the_program_s_user_count_as_its_own(tmp_path: Path) -> None:
    prefix = str(tmp_path / "nccl_trace_rank_")
    dump = Path(shutil.copy(RECORDED / "trace_rank_0", prefix + "0"))
    mine, others = {os.geteuid()}, {os.geteuid() + 1}
    assert list(recorder.beside([prefix], 0, mine)) == [str(dump)]
    assert list(recorder.beside([prefix], 0, others)) == []
    with pytest.raises(UserError, match="belongs to another user"):
        recorder.read(str(dump), others)
    os.mkfifo(tmp_path / "rank0.pipe")
    with open(tmp_path / "rank0.pipe", "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as pipe:
        assert not dumping._ask(pipe.name, os.geteuid() + 1)
        assert dumping._ask(pipe.name, os.geteuid())
        assert pipe.read() == b"1\n"


# Watchdogs in logs

TIMEOUT = (
    "[rank{rank}]:[E321 02:07:08 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) ran for 600060 ms"
)


def test_watchdogs_are_found_in_logs_of_any_size_and_form() -> None:
    new = TIMEOUT.replace("[Rank {rank}]", "[PG ID 2 PG GUID 0(default_pg) Rank {rank}]")
    noise = (b"step 17 loss 0.4\n" * 4000 for _ in range(40))
    pieces = [*noise, TIMEOUT.format(rank=3).encode()[:70], TIMEOUT.format(rank=3).encode()[70:], b"\n" + b"x" * (1 << 20), b"\n"]
    (found,) = logs.of_texts([("a.log", pieces)])
    assert (found["rank"], found["sequence"], found["operation"], found["elements"]) == (3, 1580, "ALLREDUCE", 466119168)
    (other,) = logs.of_texts([("b.log", [new.format(rank=1).encode()])])
    assert (other["rank"], other["group"]) == (1, "2")
    flood = [(TIMEOUT.format(rank=1) + "\n").encode() * 5000]
    assert len(logs.of_texts([("c.log", flood)])) == logs.MOST_FOUND


# NCCL's RAS socket


def _counted(**ranks: dict[str, int]) -> dict[str, Any]:
    return {
        "nccl_version": "2.29.1",
        "communicators": [
            {
                "hash": "0xae94423cfbb2ef4a",
                "size": 3,
                "ranks": [
                    {
                        "rank": int(name[1:]),
                        "host": "10.0.0.1",
                        "pid": 77,
                        "nvml_dev": 0,
                        "status": {"init_state": 0},
                        "collective_counts": found,
                    }
                    for name, found in ranks.items()
                ],
                "missing_ranks": [
                    {"rank": 2, "host": "10.0.0.2", "pid": 78, "status": {"unresponsive": True, "considered_dead": True}}
                ],
            }
        ],
    }


@contextlib.contextmanager
def ras_server(answer: Callable[[str], bytes | None]) -> Iterator[str]:
    """A RAS thread: answers each line; None ends the connection."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    for line in connection.makefile():
                        said = answer(line.strip().lower())
                        connection.sendall(said or b"")
                        if said is None or line.strip().lower().endswith("status"):
                            break

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


def test_counts_in_json_are_read_and_compared() -> None:
    said = _counted(r0={"AllReduce": 5, "Broadcast": 0}, r1={"AllReduce": 4, "Broadcast": 1})
    with ras_server(lambda line: json.dumps(said).encode() if line == "status" else b"OK\n") as address:
        answer = ras.asked(address)
    found = Answer(**answer)
    (parting,) = counts.partings([found])
    assert (parting.kind, parting.operation, parting.odd, parting.odd_operation) == ("differ", "AllReduce", (1,), "Broadcast")
    assert counts.gone([found])[2]["dead"] is True


def test_a_comma_that_nccl_forgets_is_no_failure() -> None:
    """NCCL 2.28.9 writes none after "nvml_dev" of a missing rank, as when a process is stopped."""
    said = _counted(r0={"AllReduce": 5}, r1={"AllReduce": 5})
    said["communicators"][0]["missing_ranks"][0] = {"rank": 2, "host": "10.0.0.2", "pid": 78, "nvml_dev": 1, "status": {}}
    text = json.dumps(said, indent=2).replace('"nvml_dev": 1,', '"nvml_dev": 1')
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(text)
    with ras_server(lambda line: text.encode() if line == "status" else b"OK\n") as address:
        answer = ras.asked(address)
    assert counts.gone([Answer(**answer)])[2]["pid"] == 78


def test_an_older_nccl_is_asked_for_its_text() -> None:
    """The example of NCCL's documentation, in the form since 2.26."""
    ranks = (0, 2, 3, 4, 5, 7)
    lines = [f"  Rank {rank} -- GPU {rank} managed by process 4830{rank} on node 172.16.64.210" for rank in ranks]
    text = (
        "Warnings\n========\n\n#0-0 (27a079b828ff1a75) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
        "  26 ranks have launched up to operation 6650\n  6 ranks have launched up to operation 6649\n" + "\n".join(lines) + "\n"
    )
    replies = {
        "timeout 5": b"OK\n",
        "set format json": b"ERROR: Unknown command set format json\n",
        "verbose status": text.encode(),
    }
    with ras_server(lambda line: replies.get(line)) as address:
        answer = ras.asked(address)
    (parting,) = counts.partings([Answer(**answer)])
    assert (parting.kind, parting.operation, parting.sequence, parting.odd) == ("behind", "AllReduce", 6650, ranks)


@each(
    "answer",
    [
        lambda line: None,
        lambda line: b"\xff\x00" * 40_000,
        lambda line: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        lambda line: b"OK\n" if line != "status" else b'{"communicators": [{}]}',
        lambda line: b"OK\n" if line != "status" else b"[" * 50_000,
        lambda line: b"OK\n" if line != "status" else b"x" * (ras.MOST_BYTES + 10),
    ],
)
def test_a_hostile_server_costs_one_line(answer: Callable[[str], bytes | None]) -> None:
    with ras_server(answer) as address:
        found = ras.asked(address)
    assert len(found.get("failed", "")) <= 200
    assert "failed" in found or len(found["text"]) <= ras.MOST_TEXT


def test_nobody_at_the_address_costs_one_line() -> None:
    assert "Refused" in ras.asked("127.0.0.1:1")["failed"]
    assert ras.asked("nonsense")["failed"]


# /proc and py-spy


def test_addresses_and_calls_are_read_as_the_kernel_writes_them() -> None:
    assert sockets.address("0100007F:6D7C") == "127.0.0.1:28028"
    assert sockets.address("00000000000000000000000001000000:0050") == "[::1]:80"
    assert calls.call_of("running").name == calls.call_of("").name == ""
    assert stacks.shares_of("thread (7): MainThread;f (a.py:1) 3\nthread (7): MainThread;f (a.py:2) 1\n;;; x\n") == {7: 0.75}


def test_ranks_are_listed_in_short() -> None:
    assert [words(ranks) for ranks in ((1,), (0, 2), (0, 1, 2, 3, 9))] == ["rank 1", "ranks 0 and 2", "ranks 0-3 and 9"]


# The command line


@each(
    ("arguments", "said"),
    [
        ([], "name the program"),
        (["--pid", "1", "--job", "7"], "either --pid or --job"),
        (["--pid", "0"], "not in the range"),
        (["--pid", "4194303"], "no such process"),
        (["--pid", str(os.getpid())], "gpudoctor itself"),
        (["--job", "--x"], "not the id of a Slurm job"),
        (["--job", "7"], "scontrol"),
        (["/nonexistent/trace"], "cannot read /nonexistent/trace"),
        (["--for", "0", "--pid", "1"], "--for"),
    ],
    ids=str,
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["hang", *arguments], env={"PATH": "/nonexistent"})
    assert done.exit_code == 2, done.output
    assert said in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("contents", "code", "said"),
    [
        (("",), 2, "Error: f0 is empty\n"),
        (("", " \n"), 2, "Error: all 2 files are empty\n"),
        (("\x01\x02 two words",), 3, "Error: nothing in f0 is recognised: neither a dump"),
        (("a line", "", '{"a": [1,'), 3, "Error: nothing in these files is recognised"),
    ],
)
def test_files_that_show_nothing_are_not_healthy(
    contents: tuple[str, ...], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, content in enumerate(contents):
        Path(f"f{number}").write_text(content)
    done = CliRunner().invoke(main, ["hang", *(f"f{number}" for number in range(len(contents)))])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert done.stderr.startswith(said)


def test_a_failed_container_start_without_an_image_is_not_the_subject(tmp_path: Path) -> None:
    log = tmp_path / "docker.txt"
    log.write_text('docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].\n')
    done = CliRunner().invoke(main, ["hang", str(log)])
    assert done.exit_code == 3
    assert "Image" not in done.stdout
    assert "gpudoctor explain FILE" in done.stdout


def test_files_alone_are_judged_and_the_snapshot_gives_the_same_verdict(tmp_path: Path) -> None:
    files = [str(RECORDED / f"trace_rank_{rank}") for rank in (0, 1)]
    saved = tmp_path / "hang.json"
    done = CliRunner().invoke(main, ["hang", *files, "--format", "json", "--no-redact", "--save", str(saved)])
    assert done.exit_code == 1, done.output
    report = json.loads(done.stdout)
    assert [entry["problem"] for entry in report["diagnosis"]] == ["hang-collectives-differ"]
    again = CliRunner().invoke(main, ["check", "--replay", str(saved), "--format", "json"])
    assert [(entry["problem"], entry["message"]) for entry in json.loads(again.stdout)["diagnosis"]] == [
        (entry["problem"], entry["message"]) for entry in report["diagnosis"]
    ]


def test_a_log_explains_its_own_watchdogs(tmp_path: Path) -> None:
    paths = [tmp_path / f"rank{rank}.log" for rank in (0, 2)]
    for path in paths:
        path.write_text(TIMEOUT.format(rank=path.stem[-1]) + "\n")
    (tmp_path / "train.py").write_text("# RuntimeError: CUDA error: out of memory\n")  # is no log
    done = CliRunner().invoke(main, ["hang", str(tmp_path), "--format", "json"])
    (entry,) = json.loads(done.stdout)["diagnosis"]
    assert (entry["problem"], entry["message"]) == (
        "hang-rank-behind",
        "ranks 0 and 2 wait in allreduce number 1580; rank 1 did not enter it",
    )


def test_a_program_that_moves_is_healthy() -> None:
    from gpudoctor import doctor
    from gpudoctor.catalog import checks

    report = doctor.judge(machine.load("hang-moves"), checks())
    assert [(row.id, row.status.value) for row in report.checks if row.id in ("hang", "hang-processes")] == [
        ("hang-processes", "pass"),
        ("hang", "pass"),
    ]


def test_a_slurm_job_is_the_processes_that_slurm_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpudoctor.jobs.hanging import tree
    from gpudoctor.jobs.hanging.proc import Proc

    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        "#!/bin/sh\necho 'PID      JOBID    STEPID   LOCALID GLOBALID'\n"
        f"echo '{os.getpid()}   7  0  0  0'\necho '-1 7 extern - -'\n"
    )
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert tree.of_slurm(Proc(), "7").pids[0] == os.getpid()
    scontrol.write_text("#!/bin/sh\necho 'No job steps exist for job 8 on this node.' >&2; exit 1\n")
    with pytest.raises(UserError, match="No job steps exist"):
        tree.of_slurm(Proc(), "8")


def test_ranks_are_told_by_the_variables_of_any_launcher() -> None:
    from gpudoctor.jobs.hanging import tree

    torchrun = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "MASTER_PORT": "29500"}
    mpirun = {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "8",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    }
    assert tree.place(torchrun) == tree.place(mpirun) == tree.Place(3, 8, 1, 4)
    assert tree.place({"RANK": "x", "WORLD_SIZE": "-1"}) == tree.Place(-1, -1, -1, -1)
    assert tree.job_of(torchrun) == ("", "29500", "8", "")
    assert tree.job_of({**torchrun, "WORLD_SIZE": "1"}) is None


@pytest.mark.parametrize(("helper", "kind"), [("pt_gloo_runloop", "collective"), ("python", "lock")])
def test_without_a_stack_the_threads_of_gloo_tell_a_collective_from_a_lock(helper: str, kind: str) -> None:
    threads = (Thread(7, "python", "SSS", call="futex"), Thread(8, helper, "SSS"))
    rank = Process(7, name="python", states="SSS", threads=threads)
    found = waiting.of(Look(processes=(rank,)), rank)
    assert found
    assert found.kind == kind
