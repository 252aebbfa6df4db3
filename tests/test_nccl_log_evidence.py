"""What an NCCL_DEBUG=INFO log proves, and what the checks say of it."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor import catalog, doctor, evidence
from gpudoctor.evidence.readers import nccl_log
from gpudoctor.model import Report, Status

TWO_NODES = """\
a1:101:101 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0
a1:101:101 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.5<0>
a1:101:101 [0] NCCL INFO cudaDriverVersion 12040
a1:101:101 [0] NCCL INFO NCCL version 2.21.5+cuda12.4
a1:101:130 [0] NCCL INFO NCCL_IB_HCA set by environment to mlx5_0,mlx5_1
a1:101:130 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.5<0>
a1:101:130 [0] NCCL INFO Using network IB
a1:101:130 [0] NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
a1:101:130 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA
a1:101:130 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
a1:101:130 [0] NCCL INFO 16 coll channels, 0 collnet channels, 16 nvls channels, 16 p2p channels
a1:101:130 [0] NCCL INFO comm 0x5 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1000 commId 0x8b - Init COMPLETE
"""


def value(text: str) -> dict[str, Any]:
    found = nccl_log.read(text)
    assert found
    return dict(found["nccl-log"].value)


def report_of(text: str) -> Report:
    taken = evidence.snapshot_of(evidence.of_text(text))
    return doctor.judge(taken, doctor.select(catalog.checks(), "quick"))


def test_the_log_tells_versions_ranks_and_ways() -> None:
    found = value(TWO_NODES)
    assert found["version"] == "2.21.5"
    assert (found["ranks"], found["nodes"], found["completed"]) == (16, 2, True)
    assert found["network"] == "IB"
    assert found["interfaces"] == ["eth0"]
    assert found["adapters"] == ["mlx5_0:1/IB", "mlx5_1:1/IB"]
    assert found["connections"] == {"NET/IB/GDRDMA": 1, "P2P/CUMEM": 1}
    assert (found["channels"], found["nvls_channels"]) == (16, 16)
    assert found["settings"] == {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": "mlx5_0,mlx5_1"}


def test_the_log_proves_which_cuda_the_driver_runs() -> None:
    found = nccl_log.read(TWO_NODES)
    assert found
    assert found["cuda"].value["driver_version"] == 12040


def test_words_about_nccl_are_no_log_of_it() -> None:
    assert nccl_log.read("RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1, NCCL version 2.18.6\n") is None


def test_a_healthy_job_has_no_fault() -> None:
    report = report_of(TWO_NODES)
    assert report.diagnosis == ()
    assert [text.kinds for text in report.evidence] == [("NCCL_DEBUG log",)]
    result = next(result for result in report.checks if result.id == "nccl-log")
    assert result.status is Status.PASS
    assert result.message == "NCCL 2.21.5, 16 ranks on 2 machines: NET/IB/GDRDMA, P2P/CUMEM"


@pytest.mark.parametrize("variable", ["NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"])
def test_a_variable_for_debugging_is_told(variable: str) -> None:
    report = report_of(TWO_NODES + f"a1:101:130 [0] NCCL INFO {variable} set by environment to 1.\n")
    assert [entry.problem for entry in report.diagnosis] == ["nccl-env-leftovers"]
    assert variable in report.diagnosis[0].message


def test_the_network_within_a_machine_is_told_where_no_variable_explains_it() -> None:
    text = TWO_NODES.replace("nNodes 2", "nNodes 1").replace("NET/IB/0/GDRDMA", "NET/Socket/0")
    (entry,) = report_of(text).diagnosis
    assert entry.problem == "nccl-uses-network-within-machine"
    assert "all 16 ranks are on one machine" in entry.message


def test_tcp_between_machines_is_a_fault_only_where_infiniband_was_wanted() -> None:
    without = "a1:1:1 [0] NCCL INFO NET/IB : No device found.\n"
    text = TWO_NODES.replace("Using network IB", "Using network Socket").replace("NET/IB/0/GDRDMA", "NET/Socket/0") + without
    (entry,) = report_of(text).diagnosis
    assert entry.problem == "nccl-no-ib-falls-back-socket"
    assert report_of(text.replace("NCCL_IB_HCA", "NCCL_SOCKET_NTHREADS")).diagnosis == ()
