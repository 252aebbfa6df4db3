"""All GPUs as one job: the torchrun session, what its ranks hand over, what NCCL's log says, and how that is judged."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import machine
import pytest
from each import each
from process import Process, command_lines
from waiting import HOPELESS_SECONDS, until

from gpudoctor import catalog
from gpudoctor.facts import Facts
from gpudoctor.judging.measured import collectives
from gpudoctor.model import Confidence, Finding, Reply, Skip, Snapshot, Status
from gpudoctor.worker.measuring import bench, nccl, nccl_log, ranks
from gpudoctor.worker.measuring import collectives as exchanges
from gpudoctor.worker.measuring.all_reduce import rows
from gpudoctor.worker.measuring.bench import Bench
from gpudoctor.worker.measuring.rank import Rank
from gpudoctor.worker.workloads import burn_collectives, distributed

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]  # pytest-xdist has threads
ROOT = Path(__file__).parent.parent
ALL_REDUCE, TRAINING = (catalog.checks()[id] for id in ("all-reduce", "distributed-training"))

DIRECT = """vm:666:666 [0] NCCL INFO cudaDriverVersion 13000
vm:666:666 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
vm:667:667 [1] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0.
vm:666:666 [0] NCCL INFO Channel 00/24 : 0 1
vm:666:666 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer
vm:667:667 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM
vm:666:666 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
vm:666:666 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
"""
DETOUR = """a:1:1 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to LOC
a:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1
a:1:1 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.
a:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
a:1:1 [0] NCCL INFO Channel 00/0 : 1[50] -> 0[60] [send] via NET/Socket/0/Shared
a:1:1 [0] NCCL INFO Channel 01/0 : 1[50] -> 0[60] [receive] via NET/IB/2(3)/GDRDMA
a:1:9 [0] transport/shm.cc:590 NCCL WARN Error: failed to extend /dev/shm/nccl-Xy to 9637892 bytes
"""


def test_what_nccl_says_of_itself() -> None:
    assert nccl_log.parsed(DIRECT) == {
        "version": "2.28.9",
        "connections": {"P2P/CUMEM": 2},
        "channels": 24,
        "nvls_channels": 0,
        "settings": {"NCCL_NVLS_ENABLE": "0"},
    }
    found = nccl_log.parsed(DETOUR)
    assert found["connections"] == {"SHM/direct/direct": 1, "NET/Socket/Shared": 1}
    assert found["settings"] == {"NCCL_P2P_LEVEL": "LOC", "NCCL_P2P_DISABLE": "1"}
    assert found["refused"] == ["P2P is disabled between connected GPUs 1 and 0"]
    assert nccl_log.first_warning(DETOUR) == "Error: failed to extend /dev/shm/nccl-Xy to 9637892 bytes"
    assert nccl_log.parsed("") == {}


TORCHRUN = """
import json, os, signal, sys, time
if os.environ["FAKE"] == "import":
    raise ImportError("libcudart.so.13: cannot open shared object file")
file = json.loads(sys.argv[-1])["file"]
for rank in range(2):
    open(file + ".rank%d" % rank, "w").close()
while not os.path.exists(file + ".go"):
    time.sleep(0.01)
if os.environ["FAKE"] == "killed":
    print("failed (exitcode: -11) local_rank: 1 (pid: 123) of binary: python")
if os.environ["FAKE"] == "failed":
    open(file + ".failures", "w").write("rank 1: RuntimeError: no\\nrank 0: DistBackendError: closed\\n")
if os.environ["FAKE"] == "warned":
    open(os.environ["NCCL_DEBUG_FILE"].replace("%p", "7"), "w").write("a:1:9 [0] x.cc:5 NCCL WARN Cuda failure 2\\n")
if os.environ["FAKE"] == "hung":
    print("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE) ran for 40000 ms")
if os.environ["FAKE"] == "unsupported":
    open(file + ".skip", "w").write("this build of torch has no NCCL")
    sys.exit(0)
print("last words", os.environ.get("NCCL_DEBUG"))
sys.exit(1)
"""


@pytest.fixture
def fake_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench of two GPUs whose turn it is, and a torch of which there is only torchrun."""
    package = tmp_path / "site" / "torch" / "distributed"
    package.mkdir(parents=True)
    for name in (package.parent / "__init__.py", package / "__init__.py"):
        name.touch()
    (package / "run.py").write_text(TORCHRUN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delenv("NCCL_DEBUG", raising=False)
    (tmp_path / "all.go").touch()
    return Bench(str(tmp_path / "all"), [0, 1])


@pytest.mark.parametrize(
    ("fake", "words"),
    [
        ("killed", "torchrun: rank 1 was killed by SIGSEGV"),
        ("failed", "torchrun: rank 1: RuntimeError: no"),
        ("warned", "torchrun: NCCL WARN Cuda failure 2"),
        ("hung", "torchrun: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE) ran for 40000 ms"),
        ("otherwise", "torchrun: last words INFO"),
    ],
)
def test_why_a_session_failed(fake: str, words: str, fake_torch: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", fake)
    with pytest.raises(RuntimeError) as failure:
        distributed.session(fake_torch, "nccl")
    assert str(failure.value) == words


@pytest.mark.parametrize(
    ("fake", "reason", "kind"),
    [
        ("import", "torch cannot be imported: ImportError: libcudart.so.13: cannot open shared object file", Skip.NO_ANSWER),
        ("unsupported", "this build of torch has no NCCL", Skip.UNSUPPORTED),
    ],
)
def test_what_cannot_be_done_here(fake: str, reason: str, kind: str, fake_torch: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", fake)
    with pytest.raises(Skip) as skip:
        distributed.session(fake_torch, "nccl")
    assert (skip.value.reason, skip.value.kind) == (reason, kind)


def test_what_somebody_asked_nccl_for_is_left_alone(fake_torch: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "otherwise")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    with pytest.raises(RuntimeError, match="last words WARN"):
        distributed.session(fake_torch, "nccl")


def test_one_gpu_or_no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Skip, match="one GPU"):
        distributed.session(Bench(str(tmp_path / "all"), [0]), "nccl")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(Skip) as skip:
        distributed.session(Bench(str(tmp_path / "all"), [0, 1]), "nccl")
    assert skip.value.kind == Skip.NOT_INSTALLED


@functools.cache
def python_with_torch() -> str:
    """GPUDOCTOR_TEST_PYTHON names interpreters that have frameworks, where this one has none."""
    for python in [*filter(None, os.environ.get("GPUDOCTOR_TEST_PYTHON", "").split(":")), sys.executable]:
        if subprocess.run([python, "-c", "import importlib.util as i; exit(i.find_spec('torch') is None)"]).returncode == 0:
            return python
    pytest.skip("needs torch")


SESSION = """
import sys
sys.path.insert(0, {root!r})
from gpudoctor.worker.measuring.bench import Bench
from gpudoctor.worker.workloads import distributed
distributed.ranks.__file__ = {program!r}
distributed.session(Bench({file!r}, [0, 1], "full"), "gloo")
"""
# The program of the ranks with all of torch that they need until it is their turn, which never comes.
WAITS = """
import runpy, sys, types
torch = types.ModuleType("torch")
torch.optim, torch.zeros = types.SimpleNamespace(Adam=list), str
sys.modules["torch"] = sys.modules["torch.distributed"] = torch
runpy.run_path({program!r}, run_name="__main__")
"""
# Ranks as torchrun starts them, but forked from a process that has imported torch: its import takes longer than their work.
FORKS = """
import json, os, runpy, socket, sys, traceback
sys.path.insert(0, {root!r})
import torch
torch.optim.Adam([torch.zeros(1)])
torch.set_num_threads(1)
from gpudoctor.worker.measuring import all_reduce
all_reduce.BATCH_SECONDS = 0.002

def forked(program, job, rank):
    if child := os.fork():
        return child
    try:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        sys.argv = [program, job]
        runpy.run_path(program, run_name="__main__")
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
codes = []
for *_, program, job in json.loads(sys.argv[1]):
    ranks = len(json.loads(job)["gpus"])
    os.environ["WORLD_SIZE"] = str(ranks)
    children = [forked(program, job, rank) for rank in range(ranks)]
    codes.append([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
print(json.dumps(codes))
"""


@pytest.fixture(scope="module")
def forked_ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[int]], str]:
    """Of two that measure (file all) and of one that cannot (file alone): the folder, their exit codes, their errors."""
    folder = tmp_path_factory.mktemp("ranks")
    asked = {"all": ([0, 1], "gloo"), "alone": ([0], "carrier-pigeon")}
    commands = []
    for name, (gpus, backend) in asked.items():
        (folder / f"{name}.go").touch()
        commands.append(distributed.command(Bench(str(folder / name), gpus, "full"), backend))
    argv = [python_with_torch(), "-c", FORKS.format(root=str(ROOT)), json.dumps(commands)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=HOPELESS_SECONDS)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout), done.stderr


@pytest.mark.xdist_group("ranks")
def test_two_ranks_on_the_processor(forked_ranks: tuple[Path, list[list[int]], str]) -> None:
    folder, (codes, _), errors = forked_ranks
    assert codes == [0, 0], errors
    heard = bench.read(str(folder / "all"))
    for rank in (0, 1):
        own = heard.values[f"rank {rank}"]
        assert own["gpu"] == rank
        assert own["wrong_elements"] == {"8 B": 0, "1 MiB": 0, "16 MiB": 0}
        assert own["gradient_error"] < 1e-6
    assert heard.values["rank 0"]["gradient_checksum"] == heard.values["rank 1"]["gradient_checksum"]
    assert heard.values["connected"]["ranks"] == 2
    sums = heard.values["all-reduce 16 MiB"]
    assert sums["bus_gb_per_s"] == sums["algorithm_gb_per_s"] == pytest.approx(16.777e6 / sums["microseconds"] / 1e3, rel=1e-3)
    assert heard.values["training"]["last_loss"] < heard.values["training"]["first_loss"] < 2
    assert heard.values["rank 1"]["wrong_parts"] == {
        f"{name} {size}": 0 for name in exchanges.OPERATIONS for size in ("8 B", "1 MiB")
    }
    gathered = heard.values["all-gather 1 MiB"]
    assert gathered["bus_gb_per_s"] == pytest.approx(1.049e6 / 2 / gathered["microseconds"] / 1e3, rel=1e-3)
    assert set(heard.windows) >= {"latency", "all-reduce 16 MiB", "training", "send/recv 8 B"}


@pytest.mark.xdist_group("torch")
def test_sums_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank on the CPU, which has no products; one of its sums is changed behind its back."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(burn_collectives, "BYTES", 1 << 16)
    monkeypatch.setattr(burn_collectives, "LEAST_SECONDS", 0.01)
    monkeypatch.setattr(burn_collectives, "ROUND_SECONDS", 0.001)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    file = str(tmp_path / "burn")
    try:
        rank = Rank(torch, 0, 1, 3, torch.device("cpu"), Bench(file, [3]), Bench(file, [3]), {})
        burn_collectives.burn(rank, 0.01)
        healthy = bench.read(file).values
        load = burn_collectives.Load(rank)
        load.expected[7] += 1
        wrong = load.sustained(0.01)
    finally:
        torch.distributed.destroy_process_group()
    assert healthy["sums 0"]["wrong_words"] == {"3": 0}
    assert healthy["sums 0"]["sums"] >= 1
    assert healthy["complete"] == {"seconds": 0.01}
    assert wrong["wrong_words"] == {"3": wrong["sums"] * load.lines.shape[0]}


@pytest.mark.xdist_group("ranks")
def test_an_error_of_a_rank_is_kept_for_the_message(forked_ranks: tuple[Path, list[list[int]], str]) -> None:
    """What becomes of its words is tested above."""
    folder, (_, codes), _ = forked_ranks
    assert codes == [1]
    [said] = (folder / "alone.failures").read_text().splitlines()
    assert said.startswith("rank 0: ")
    assert "carrier-pigeon" in said.lower()


def test_no_rank_outlives_the_workload(tmp_path: Path) -> None:
    """torchrun gives each rank a session of its own, so that killing the process group does not reach it."""
    program = tmp_path / "waits.py"
    program.write_text(WAITS.format(program=ranks.__file__))
    text = SESSION.format(root=str(ROOT), file=str(tmp_path / "all"), program=str(program))
    with Process([python_with_torch(), "-c", text], stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert until(lambda: len(ranks_in(tmp_path)) == 2 and all((tmp_path / f"all.rank{rank}").exists() for rank in (0, 1)))
        os.killpg(process.pid, signal.SIGKILL)
    assert until(lambda: not ranks_in(tmp_path))


def ranks_in(folder: Path) -> list[str]:
    return [line for line in command_lines().values() if " -u " in line and str(folder) in line]


# How it is judged.

SEEN = {"samples": 9, "sm_mhz": 1980, "memory_mhz": 3201, "watts": 300.0, "celsius": 40, "reasons": {}}
DURING = {"0": SEEN, "1": SEEN}
HEALTHY: dict[str, Any] = {
    "connected": {"seconds": 0.7, "ranks": 2, "backend": "nccl"},
    "latency": {"bytes": 8, "microseconds": 21.0, "spread": 0.02, "iterations": 200},
    "nccl": nccl_log.parsed(DIRECT),
    "all-reduce 1 MiB": {"bytes": 1 << 20, "microseconds": 20.3, "bus_gb_per_s": 51.8, "during": DURING},
    "all-reduce 1 GiB": {"bytes": 1 << 30, "microseconds": 3264.0, "bus_gb_per_s": 329.0, "during": DURING},
    "rank 0": {"gpu": 0, "wrong_elements": {"8 B": 0, "1 GiB": 0}, "gradient_checksum": 7, "gradient_error": 1e-7},
    "rank 1": {"gpu": 1, "wrong_elements": {"8 B": 0, "1 GiB": 0}, "gradient_checksum": 7, "gradient_error": 1e-7},
    "training": {"milliseconds_per_step": 9.0, "first_loss": 1.0, "last_loss": 0.1},
    "training without communication": {"milliseconds_per_step": 8.5},
}
DETOURED = {"bus_gb_per_s": 29.7, "microseconds": 36150.0}


def taken(
    changes: dict[str, Any] | None = None, base: str = "h200-x2", replies: dict[str, Any] | None = None, **variables: str
) -> Snapshot:
    """Two GPUs that worked together, with some results changed."""
    snapshot = machine.load(base)
    known = dict(snapshot.replies)
    environment = {name: value for name, value in known["environment"].value.items() if name != "NCCL_NVLS_ENABLE"}
    known["environment"] = Reply("ok", {**environment, **variables})
    for question, value in (replies or {}).items():
        known[question] = Reply("ok", machine._merged(known[question].value if question in known else None, value))
    plan = {"workloads": {"distributed": "all-reduce"}, "gpus": [0, 1], "left_alone": {}, "kind": "busy"}
    values = machine._merged(HEALTHY, changes or {})
    return replace(snapshot, replies=known, measured={"plan": Reply("ok", plan), "distributed:all": Reply("ok", values)})


def found(snapshot: Snapshot) -> list[Finding]:
    return list(ALL_REDUCE.judge(Facts(snapshot)))


def only(snapshot: Snapshot) -> Finding:
    (finding,) = found(snapshot)
    return finding


def test_healthy_gpus() -> None:
    facts = Facts(taken())
    assert list(ALL_REDUCE.judge(facts)) == list(TRAINING.judge(facts)) == []
    words = "329 GB/s bus bandwidth with 1 GiB, over P2P/CUMEM, 21 µs for 8 B, all sums correct on 2 GPUs"
    assert ALL_REDUCE.summary(facts) == words
    assert TRAINING.summary(facts) == "gradients correct and identical on 2 GPUs, 9.0 ms a step"
    figures = {figure.what: figure for figure in ALL_REDUCE.figures(facts)}
    assert figures["all-reduce 1 GiB, bus bandwidth"].expected == pytest.approx(324)
    assert figures["all-reduce 1 MiB, bus bandwidth"].expected is None


def shared_memory(**settings: str) -> dict[str, Any]:
    nccl = {"connections": machine.Only({"SHM/direct/direct": 48}), "settings": machine.Only(settings)}
    return {"nccl": nccl, "all-reduce 1 GiB": DETOURED}


def test_nvlink_that_a_variable_takes_off() -> None:
    finding = only(taken(shared_memory(NCCL_P2P_DISABLE="1"), NCCL_P2P_DISABLE="1"))
    assert finding.problem.id == "nccl-bypasses-nvlink"
    assert finding.because == "nccl-env-leftovers"
    assert "29.7 GB/s with 1 GiB, expected 324 GB/s; NCCL_P2P_DISABLE=1 is set" in finding.message
    file = taken(shared_memory(NCCL_P2P_DISABLE="1"), replies={"file:/etc/nccl.conf": "NCCL_P2P_DISABLE=1\n"})
    assert only(file).because == "nccl-conf-leftovers"
    level = only(taken(shared_memory(NCCL_P2P_LEVEL="LOC"), NCCL_P2P_LEVEL="LOC"))
    assert level.confidence is Confidence.CONFIRMED
    assert only(taken(shared_memory(NCCL_P2P_DISABLE="0"), NCCL_P2P_DISABLE="0")).confidence is Confidence.UNKNOWN


def test_nvlink_that_the_driver_refuses() -> None:
    finding = only(taken(shared_memory(), replies={"nvml:peers": {"p2p": {"0,1": 4, "1,0": 4}}}))
    assert finding.because == "nvlink-peers-without-p2p"
    assert "NVML on GPU 0 and 1: " in finding.message


def test_nvlink_that_is_left_alone_without_a_reason() -> None:
    finding = only(taken(shared_memory()))
    assert finding.confidence is Confidence.UNKNOWN
    assert finding.problem.status is Status.FAIL


def test_a_variable_explains_a_slow_sum_where_the_log_is_not_known() -> None:
    finding = only(taken({"nccl": machine.Only({}), "all-reduce 1 GiB": DETOURED}, NCCL_P2P_DISABLE="1"))
    assert finding.problem.id == "all-reduce-slow"
    assert finding.because == "nccl-env-leftovers"
    assert finding.problem.status is Status.FAIL


def test_the_network_within_one_machine() -> None:
    finding = only(taken({"nccl": {"connections": machine.Only({"NET/Socket": 8})}}, NCCL_SHM_DISABLE="1"))
    assert finding.problem.id == "nccl-uses-network-within-machine"
    assert finding.because == "nccl-env-leftovers"


def test_wrong_sums_name_the_gpu() -> None:
    finding = only(taken({"rank 1": {"wrong_elements": {"1 GiB": 3}}}))
    assert finding.problem.id == "all-reduce-wrong"
    assert finding.gpu == 1
    assert finding.message == "GPU 1: 3 wrong sums of 1 GiB; NCCL used P2P/CUMEM (2 channels)"


def slow(**seen: Any) -> dict[str, Any]:
    during = {"0": SEEN, "1": {**SEEN, **seen}}
    return {"all-reduce 1 GiB": {"bus_gb_per_s": 220.0, "during": machine.Only(during)}}


def test_slow_sums_and_their_causes() -> None:
    assert only(taken(slow())).confidence is Confidence.UNKNOWN
    assert only(taken(slow())).problem.status is Status.WARN
    other = only(taken(slow(others=[{"pid": 7, "name": "python", "mib": 900}])))
    assert other.problem.id == "gpu-shared-while-measured"
    assert other.gpu == 1
    assert only(taken(slow(), NCCL_MAX_NCHANNELS="1")).because == "nccl-env-leftovers"
    unwatched = {"all-reduce 1 GiB": machine.Only({"bytes": 1 << 30, "microseconds": 1.0, "bus_gb_per_s": 220.0})}
    assert "gpu-shared-while-measured" in only(taken(unwatched)).evidence["could_not_check"]


def test_a_long_wait_for_a_small_sum() -> None:
    finding = only(taken({"latency": {"microseconds": 150.0}}, CUDA_LAUNCH_BLOCKING="1"))
    assert finding.problem.id == "all-reduce-latency-high"
    assert finding.because == "cuda-launch-blocking-left-on"
    assert finding.gpu is None
    assert finding.message.startswith("all-reduce of 8 B takes 150 µs")


def test_what_is_missing_is_no_pass() -> None:
    snapshot = taken()
    apart = {"connected": HEALTHY["connected"], "rank 0": HEALTHY["rank 0"], "rank 1": HEALTHY["rank 1"]}
    for values in ({"prints": "..."}, apart):
        measured = {**snapshot.measured, "distributed:all": Reply("error", values)}
        with pytest.raises(Skip):
            found(replace(snapshot, measured=measured))
        with pytest.raises(Skip):
            list(TRAINING.judge(Facts(replace(snapshot, measured=measured))))


@each(
    ("changes", "problem", "words"),
    [
        ({"rank 1": {"gradient_checksum": 8}}, "distributed-gradients-wrong", "checksums differ: GPU 0 7, GPU 1 8"),
        ({"rank 1": {"gradient_error": 0.3}}, "distributed-gradients-wrong", "gradients of GPU 1 are off by 0.3"),
        ({"rank 0": {"gradient_error": None}}, "distributed-gradients-wrong", "gradients of GPU 0 are not finite"),
        ({"training": {"last_loss": 1.1}}, "distributed-training-does-not-learn", "the loss went from 1 to 1.1"),
        ({"training": {"last_loss": None}}, "distributed-training-does-not-learn", "the loss went from 1 to not finite"),
    ],
)
def test_training_that_goes_wrong(changes: dict[str, Any], problem: str, words: str) -> None:
    (finding,) = TRAINING.judge(Facts(taken(changes)))
    assert (finding.problem.id, finding.message) == (problem, words)


def test_what_joins_the_gpus_decides_what_is_expected() -> None:
    pcie = collectives.bus_gb_per_s(Facts(machine.load("dual-4090")), [0, 1])
    assert pcie.value == pytest.approx(0.25 * 24.57, rel=1e-3)
    near = {"nvml:peers": {"p2p": {"0,1": 0, "1,0": 0}, "topology": {"0,1": 10}}}
    direct = collectives.bus_gb_per_s(Facts(taken(base="dual-4090", replies=near)), [0, 1])
    assert direct.value == pytest.approx(0.55 * 24.57, rel=1e-3)
    assert collectives.bus_gb_per_s(Facts(machine.load("nvlink-link-down")), range(8)).rule == "72% of NVLink 4 × 17 links: 425"


def test_the_job_of_a_rank_is_json(tmp_path: Path) -> None:
    words = distributed.command(Bench(str(tmp_path / "all"), [0, 3]), "nccl")
    assert json.loads(words[-1])["gpus"] == [0, 3]
    assert Path(words[-2]).name == "ranks.py"
    assert words[1:5] == ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]


class FakeTensor:
    """Of bf16, at an address; a chunk of it lies further on."""

    dtype = "torch.bfloat16"

    def __init__(self, address: int, elements: int) -> None:
        self.address, self.elements = address, elements

    def data_ptr(self) -> int:
        return self.address

    def numel(self) -> int:
        return self.elements

    def chunk(self, count: int) -> list[FakeTensor]:
        each = self.elements // count
        return [FakeTensor(self.address + 2 * each * number, each) for number in range(count)]


class FakeNccl:
    """Notes what it is called with, and returns a code."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.code = 0

    def __getattr__(self, name: str) -> Any:
        def function(*arguments: Any) -> int:
            self.calls.append((name, *(getattr(argument, "value", argument) for argument in arguments)))
            return self.code

        function.__dict__["restype"] = None
        setattr(self, name, function)
        return function

    @staticmethod
    def ncclGetErrorString(code: int) -> bytes:  # noqa: N802
        return b"unhandled system error"


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeNccl, nccl.Nccl]:
    fake = FakeNccl()
    monkeypatch.setattr(ctypes, "CDLL", lambda path: fake)
    stream = SimpleNamespace(current_stream=lambda: SimpleNamespace(cuda_stream=7))
    rank = Rank(SimpleNamespace(cuda=stream), 1, 3, 1, SimpleNamespace(type="cuda"), None, None, {})
    return fake, nccl.Nccl(rank, "libnccl.so.2", 5)


@pytest.mark.parametrize(
    ("name", "sent", "received", "calls"),
    [
        ("all_reduce", 6, 6, [("ncclAllReduce", 100, 900, 6, 9, 0, 5, 7)]),
        ("all_gather", 2, 6, [("ncclAllGather", 100, 900, 2, 9, 5, 7)]),
        ("reduce_scatter", 6, 2, [("ncclReduceScatter", 100, 900, 2, 9, 0, 5, 7)]),
        ("broadcast", 6, 6, [("ncclBroadcast", 100, 900, 6, 9, 0, 5, 7)]),
        (
            "send_recv",
            6,
            6,
            [("ncclGroupStart",), ("ncclSend", 100, 6, 9, 2, 5, 7), ("ncclRecv", 900, 6, 9, 0, 5, 7), ("ncclGroupEnd",)],
        ),
        (
            "all_to_all",
            6,
            6,
            [
                ("ncclGroupStart",),
                ("ncclSend", 100, 2, 9, 0, 5, 7),
                ("ncclRecv", 900, 2, 9, 0, 5, 7),
                ("ncclSend", 104, 2, 9, 1, 5, 7),
                ("ncclRecv", 904, 2, 9, 1, 5, 7),
                ("ncclSend", 108, 2, 9, 2, 5, 7),
                ("ncclRecv", 908, 2, 9, 2, 5, 7),
                ("ncclGroupEnd",),
            ],
        ),
    ],
)
def test_what_nccl_is_called_with(
    library: tuple[FakeNccl, nccl.Nccl], name: str, sent: int, received: int, calls: list[tuple[Any, ...]]
) -> None:
    fake, own = library
    getattr(own, name)(FakeTensor(100, sent), FakeTensor(900, received))()
    assert fake.calls == calls


def test_an_error_of_nccl_has_its_words(library: tuple[FakeNccl, nccl.Nccl]) -> None:
    fake, own = library
    work = own.send_recv(FakeTensor(100, 2), FakeTensor(900, 2))
    fake.code = 2
    with pytest.raises(nccl.NcclError, match=r"unhandled system error \(2\)"):
        work()


@pytest.mark.xdist_group("torch")
def test_parts_that_are_wrong_or_elsewhere_are_counted() -> None:
    """Rank 1 of three, to which the test delivers what it wants."""
    torch = pytest.importorskip("torch")

    class Alone(Rank):
        def barrier(self) -> None: ...

    rank = Alone(torch, 1, 3, 1, torch.device("cpu"), None, None, {})
    for name, operation in exchanges.OPERATIONS.items():
        elements = 8192
        sent = torch.zeros(elements * (3 if operation.sends_parts else 1))
        received = torch.zeros(elements * (3 if operation.receives_parts else 1))
        wanted = exchanges.expected(rank, name, rows(rank, elements, sent.dtype))
        right = torch.cat([row.repeat(elements // row.numel()) for row in wanted])
        count: Any = lambda data: exchanges.wrong_elements(rank, name, lambda: received.copy_(data), sent, received)  # noqa: B023, E731
        assert count(right) == 0, name
        assert count(right.roll(1)) > elements / 2, name
        if len(wanted) > 1:
            assert count(right.roll(elements)) > elements, name
