"""What nvidia-smi printed, in each of its forms and of all generations of drivers, becomes NVML's answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine
import pytest
from each import each

from gpudoctor import catalog, doctor, evidence
from gpudoctor.evidence.readers import (
    READERS,
    nvidia_smi_csv,
    nvidia_smi_lists,
    nvidia_smi_q,
    nvidia_smi_table,
    nvidia_smi_topology,
    nvidia_smi_xml,
)
from gpudoctor.facts import Facts
from gpudoctor.model import Reply, Report, Skip, Unavailable

CAPTURES = Path(__file__).parent / "evidence"
H100 = (CAPTURES / "h100.nvidia-smi-q.txt").read_text()
H200 = (CAPTURES / "h200-x2.nvidia-smi-q.xml").read_text()
# What changes from second to second, and what is another board's of the same kind.
CHANGING = (
    *("Temperature", "MarginTemperature", "MEMORY_TEMP", "PowerUsage", "POWER_INSTANT", "ClockInfo", "CurrentClocksEventReasons"),
    *("bar1Used", "bar1Free", "free", "reserved", "PcieReplayCounter", "ModuleId", "UUID", "BoardPartNumber", "library"),
)


def told(text: str) -> dict[str, Reply]:
    return evidence.of_text(text).replies


def facts(text: str) -> Facts:
    return Facts(evidence.snapshot_of(evidence.of_text(text)))


def judged(text: str) -> Report:
    taken = evidence.snapshot_of(evidence.of_text(text))
    report = doctor.judge(taken, doctor.select(catalog.checks(), "quick"))
    assert not [row for row in report.checks if row.status.value == "error"]
    return report


def problems(text: str) -> list[str]:
    return [entry.problem for entry in judged(text).diagnosis]


def notes(text: str) -> list[str]:
    return [entry.problem for entry in judged(text).notes]


def leaves(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every value that both know."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one.keys() & other.keys() - set(CHANGING):
            yield from leaves(one[name], other[name], f"{path}.{name}")
    else:
        yield path, one, other


@pytest.mark.parametrize(("text", "case", "gpus"), [(H100, "h100", 1), (H200, "h200-x2", 2)], ids=["-q", "-q -x"])
def test_text_says_what_nvml_says(text: str, case: str, gpus: int) -> None:
    own = machine.load(case).replies
    found = told(text)
    questions = ["nvml", *(f"nvml:gpu{index}" for index in range(gpus))]
    both = [leaf for question in questions for leaf in leaves(found[question].value, own[question].value, question)]
    assert len(both) > 80 * gpus
    assert [leaf for leaf in both if leaf[1] != leaf[2]] == []


def test_what_the_text_does_not_tell_is_not_there() -> None:
    gpu = facts(H100).nvml.gpus[0]
    for name in ("cores", "nvlinks", "cpu_affinity"):
        with pytest.raises(Unavailable, match="is unknown"):
            getattr(gpu, name)
    with pytest.raises(Unavailable) as unavailable:
        gpu.retired_pages  # noqa: B018
    assert unavailable.value.kind == Skip.UNSUPPORTED  # N/A


def test_healthy_captures_have_no_finding() -> None:
    assert problems(H100) == []
    assert problems(H200) == []


def test_cut_off_xml_gives_the_gpus_before() -> None:
    cut = H200[: H200.index("<uuid>GPU-00000004")]
    assert facts(cut).nvml.gpus[0].name == "NVIDIA H200"
    assert facts(cut).nvml.driver_version == "580.159.04"


def test_declaration_of_the_xml_is_not_followed() -> None:
    bomb = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "b">]>\n<nvidia_smi_log><driver_version>&a;</driver_version></nvidia_smi_log>'
    assert nvidia_smi_xml.read(bomb) is None


OLD = """
==============NVSMI LOG==============

Timestamp                                 : Wed May  4 10:57:14 2022
Driver Version                            : 470.57.02
CUDA Version                              : 11.4

Attached GPUs                             : 1
GPU 00000000:82:00.0
    Product Name                          : Tesla V100-PCIE-32GB
    Product Brand                         : Tesla
    Product Architecture                  : Volta
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : N/A
        Pending                           : N/A
    GPU UUID                              : GPU-00000001-0000-4000-8000-000000000001
    Minor Number                          : 0
    GPU Virtualization Mode
        Virtualization Mode               : None
        Host VGPU Mode                    : N/A
    PCI
        Device Id                         : 0x1DB610DE
        Bus Id                            : 00000000:82:00.0
        GPU Link Info
            PCIe Generation
                Max                       : 3
                Current                   : 1
            Link Width
                Max                       : 16x
                Current                   : 16x
        Replays Since Reset               : 0
    Performance State                     : P8
    Clocks Throttle Reasons
        Idle                              : Not Active
        Applications Clocks Setting       : Not Active
        SW Power Cap                      : Not Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
            HW Power Brake Slowdown       : Not Active
        Sync Boost                        : Not Active
        SW Thermal Slowdown               : Not Active
        Display Clock Setting             : Not Active
    FB Memory Usage
        Total                             : 32510 MiB
        Used                              : 1024 MiB
        Free                              : 31486 MiB
    Compute Mode                          : Exclusive_Process
    Ecc Mode
        Current                           : Enabled
        Pending                           : Disabled
    ECC Errors
        Volatile
            Single Bit
                Device Memory             : 3
                Total                     : 5
            Double Bit
                Device Memory             : 0
                Total                     : 0
        Aggregate
            Single Bit
                Total                     : 150
            Double Bit
                Total                     : 2
    Retired Pages
        Single Bit ECC                    : 4
        Double Bit ECC                    : 1
        Pending Page Blacklist            : Yes
    Remapped Rows                         : N/A
    Temperature
        GPU Current Temp                  : 91 C
        GPU Shutdown Temp                 : 90 C
        GPU Slowdown Temp                 : 87 C
        GPU Max Operating Temp            : 83 C
        Memory Current Temp               : 80 C
        Memory Max Operating Temp         : 85 C
    Power Readings
        Power Management                  : Supported
        Power Draw                        : 44.08 W
        Power Limit                       : 250.00 W
        Default Power Limit               : 250.00 W
        Enforced Power Limit              : 200.00 W
        Min Power Limit                   : 100.00 W
        Max Power Limit                   : 250.00 W
    Clocks
        SM                                : 135 MHz
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 3111
            Type                          : C+G
            Name                          : /usr/bin/python3 train.py
            Used GPU Memory               : 1000 MiB
        Process ID                        : 3112
            Type                          : M+C
            Name                          :
            Used GPU Memory               : N/A
"""


def test_layout_of_older_drivers() -> None:
    gpu = facts(OLD).nvml.gpus[0]
    assert (gpu.architecture, gpu.compute_capability, gpu.bus_id) == ("Volta", (7, 0), "0000:82:00.0")
    assert (gpu.pcie_generation, gpu.maximum_pcie_generation, gpu.pcie_width) == (1, 3, 16)
    assert gpu.clock_reasons == 0x48
    assert (gpu.memory_used_mib, gpu.compute_mode) == (1024, "exclusive-process")
    assert gpu.ecc_mode == (True, False)
    assert (gpu.ecc_volatile_corrected, gpu.ecc_aggregate_uncorrected) == (5, 2)
    assert (gpu.retired_pages.single_bit, gpu.retired_pages.double_bit, gpu.retired_pages_pending) == (4, 1, True)
    assert (gpu.temperature_limit_c("slowdown"), gpu.memory_temperature_c) == (87, 80)
    assert (gpu.power_limit_watts, gpu.enforced_power_limit_watts, gpu.maximum_power_limit_watts) == (250, 200, 250)
    assert [(process.pid, process.name, process.used_mib) for process in gpu.processes] == [
        (3111, "python3", 1000),
        (3112, None, None),
    ]
    with pytest.raises(Unavailable, match="NOT_SUPPORTED"):
        gpu.remapped_rows  # noqa: B018


def test_findings_of_older_layout() -> None:
    assert sorted(problems(OLD)) == [
        "compute-mode-exclusive-busy",
        "ecc-mode-change-pending",
        "ecc-retired-pages-pending-perf",
        "hw-thermal-slowdown",
    ]
    assert notes(OLD) == ["sw-power-cap-low-limit"]


@each(
    ("old", "new", "problem"),
    [
        (
            "        Pending                                        : No",
            "        Pending : Yes",
            "ecc-retired-pages-pending-perf",
        ),
        ("Remapping Failure Occurred                     : No", "Remapping Failure Occurred : Yes", "row-remap-failed"),
        ("GPU Recovery Action                                : None", "GPU Recovery Action : Reset", "gpu-recovery-action"),
        ("SRAM Threshold Exceeded                    : No", "SRAM Threshold Exceeded : Yes", "sram-errors-need-replacement"),
        ("DRAM Uncorrectable                         : 0", "DRAM Uncorrectable : 4", "ecc-uncorrected-errors"),
        ("HW Power Brake Slowdown                    : Not Active", "HW Power Brake Slowdown : Active", "hw-power-brake"),
        ("                Current                                : 16x", "                Current : 4x", "pcie-width-downgraded"),
    ],
)
def test_one_changed_line_is_one_finding(old: str, new: str, problem: str) -> None:
    assert old in H100
    assert problems(H100.replace(old, new, 1)) == [problem]


@each(
    ("old", "new"),
    [
        ("                Current                                : 5\n", "                Current : 1\n"),
        ("DRAM Correctable                           : 0", "DRAM Correctable : 177"),
        ("Performance State                                  : P0", "Performance State : P8"),
        ("GPU Target Temperature                         : N/A", "GPU Target Temperature : 83 C"),
        ("        Uncorrectable Error                            : 0", "        Uncorrectable Error : 2"),
    ],
)
def test_what_is_merely_unusual_is_no_finding(old: str, new: str) -> None:
    assert old in H100
    assert problems(H100.replace(old, new, 1)) == []


def test_names_of_the_newest_drivers() -> None:
    newest = H100.replace("Driver Version   ", "KMD Version      ").replace("CUDA Version    ", "CUDA UMD Version")
    assert facts(newest).nvml.driver_version == "580.159.04"
    deprecated = newest.replace(
        "Attached GPUs", "CUDA Version : [Deprecated; will be removed. Use CUDA UMD Version]\nAttached GPUs"
    )
    assert facts(deprecated).nvml.cuda_version == (13, 0)


def test_lost_gpu() -> None:
    lost = H200.replace("GPU-00000004-0000-4000-8000-000000000004", "GPU is lost")
    assert [gpu.handle_error for gpu in facts(lost).nvml.gpus] == [None, 15]


def test_reset_status_before_the_recovery_action() -> None:
    status = "    GPU Reset Status\n        Reset Required : Yes\n        Drain and Reset Recommended : No\n"
    text = H100.replace("    GPU Recovery Action                                : None\n", status)
    assert facts(text).nvml.gpus[0].recovery_action == "gpu-reset"


def test_mig_devices_and_licence() -> None:
    mig = """GPU 00000000:07:00.0
    MIG Mode
        Current                               : Enabled
        Pending                               : Enabled
    MIG Device
        Index                                 : 0
        GPU Instance ID                       : 7
        Compute Instance ID                   : 0
        FB Memory Usage
            Total                             : 4864 MiB
    MIG Device
        Index                                 : 1
        GPU Instance ID                       : 8
        Compute Instance ID                   : 0
    vGPU Software Licensed Product
        Product Name                          : NVIDIA RTX Virtual Workstation
        License Status                        : Unlicensed (Restricted)
    FB Memory Usage
        Total                                 : 40960 MiB
"""
    gpu = facts(f"Attached GPUs                             : 1\n{mig}").nvml.gpus[0]
    assert [device["GpuInstanceId"] for device in gpu.get("MigDevices")] == [7, 8]
    assert gpu.memory_total_mib == 40960
    assert [licence.licensed for licence in gpu.vgpu_licences] == [False]


def test_fabric() -> None:
    starting = H200.replace("<state>Completed</state>", "<state>In Progress</state>")
    assert facts(starting).nvml.gpus[0].fabric.state == "in progress"
    broken = H200.replace("<route_unhealthy>N/A</route_unhealthy>", "<route_unhealthy>True</route_unhealthy>")
    assert facts(broken).nvml.gpus[0].fabric.problems == ("route unhealthy",)


TABLE = """\
Fri Apr 18 12:26:18 2025
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-40GB          On  |   00000000:00:04.0 Off |                    2 |
| N/A   32C    P0             44W /  400W |       5MiB /  40960MiB |      0%      Default |
|                                         |                        |            Disabled* |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA A100-SXM4-40GB          Off |   00000000:00:05.0 Off |                    0 |
|ERR!   32C    P0            ERR! /  400W |   39000MiB /  40960MiB |    100%   E. Process |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    1   N/A  N/A      1522      C   /opt/conda/bin/python                       38990MiB |
+-----------------------------------------------------------------------------------------+
"""


def test_table() -> None:
    nvml = facts(TABLE).nvml
    first, second = nvml.gpus
    assert (nvml.driver_version, nvml.cuda_version, nvml.count) == ("550.54.15", (12, 4), 2)
    assert (first.name, first.bus_id, first.persistence_mode) == ("NVIDIA A100-SXM4-40GB", "0000:00:04.0", True)
    assert (first.ecc_volatile_uncorrected, first.mig_mode, second.mig_mode) == (2, (False, True), (False, False))
    assert (first.memory_used_mib, first.memory_total_mib, second.compute_mode) == (5, 40960, "exclusive-process")
    assert second.refusals == {"FanSpeed": 999, "PowerUsage": 999}
    assert ([process.name for process in second.processes], first.processes) == (["python"], ())


def test_table_of_the_oldest_drivers_cuts_names() -> None:
    old = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 418.87.00    Driver Version: 418.87.00    CUDA Version: N/A      |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla V100-SXM2...  Off  | 00000000:00:1E.0 Off |                    0 |
| N/A   37C    P0    38W / 300W |      0MiB / 16130MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
"""
    nvml = facts(old).nvml
    assert (nvml.count, nvml.cuda_version, nvml.gpus[0].memory_total_mib) == (1, None, 16130)
    with pytest.raises(Unavailable):
        nvml.gpus[0].name  # noqa: B018
    with pytest.raises(Unavailable):
        nvml.gpus[0].processes  # noqa: B018


def test_of_a_table_that_repeats_the_last_counts() -> None:
    found = nvidia_smi_table.read(TABLE.replace("5MiB /  40960MiB", "9MiB /  40960MiB") + TABLE)
    assert found is not None
    assert found["nvml"].value["count"] == 2
    assert found["nvml:gpu0"].value["MemoryInfo_v2"]["used"] == 5 << 20


def test_csv_is_read_by_its_names() -> None:
    text = (
        "name, pci.bus_id, driver_version, memory.total [MiB], remapped_rows.correctable, remapped_rows.uncorrectable, "
        "remapped_rows.pending, remapped_rows.failure, clocks_event_reasons.active\n"
        "NVIDIA A100-SXM4-80GB, 00000000:07:00.0, 535.104.05, 81920 MiB, 0, 1, No, Yes, 0x0000000000000004\n"
        "NVIDIA A100-SXM4-80GB, 00000000:0F:00.0, 535.104.05, 81920, 0, 0, [N/A], 0, [N/A]\n"
    )
    first, second = facts(text).nvml.gpus
    assert (first.remapped_rows.failure, first.clock_reasons, first.memory_total_mib) == (True, 4, 81920)
    with pytest.raises(Unavailable):
        second.remapped_rows  # noqa: B018
    assert problems(text) == ["row-remap-failed"]


def test_csv_that_does_not_tell_whose_rows_they_are_is_left_out() -> None:
    assert nvidia_smi_csv.read("timestamp, utilization.gpu [%], memory.used [MiB]\nnow, 1 %, 5 MiB\nthen, 2 %, 5 MiB\n") is None
    assert nvidia_smi_csv.read("index, utilization.gpu [%]\n3, 1 %\n") is None
    assert nvidia_smi_csv.read("a, b, c\n1, 2, 3\n") is None


def test_list() -> None:
    text = (
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-00000001-0000-4000-8000-000000000001)\n"
        "  MIG 1g.5gb      Device  0: (UUID: MIG-00000001-0000-4000-8000-000000000001)\n"
        "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-00000002-0000-4000-8000-000000000002)\n"
    )
    nvml = facts(text).nvml
    assert ([gpu.name for gpu in nvml.gpus], nvml.gpus[0].get("MigDevices")[0]["Name"]) == (
        ["NVIDIA A100-SXM4-40GB"] * 2,
        "MIG 1g.5gb",
    )
    answer = facts(text).driver.nvidia_smi
    assert answer is not None
    assert (answer.code, answer.out) == (0, text)
    assert nvidia_smi_lists.read(text.replace("GPU 0:", "GPU 5:")) is None


def test_links() -> None:
    text = (
        "GPU 0: NVIDIA H100 (UUID: GPU-00000001-0000-4000-8000-000000000001)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
        "GPU 1: NVIDIA H100 (UUID: GPU-00000002-0000-4000-8000-000000000002)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n"
    )
    links = facts(text).nvml.gpus[0].nvlinks
    assert [(link.active, link.mb_per_s) for link in links] == [(True, 26562), (False, None)]


def test_topology() -> None:
    head = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\n"
    text = TABLE + f"{head}GPU0\t X \tPHB\tSYS\t0-15\t0\nGPU1\tPHB\t X \tSYS\t0-15\t0\nNIC0\tSYS\tSYS\t X\n\nLegend:\n"
    nvml = facts(text).nvml
    assert nvml.topology == {(0, 1): "host bridge"}
    with pytest.raises(Unavailable):
        nvml.p2p  # noqa: B018
    hidden = nvidia_smi_topology.read(f"{head}GPU0\t X \tNV18\t\n GPU1\tNV18\t X \n")
    assert hidden is None
    access = nvidia_smi_topology.read(" \tGPU0\tGPU1\n GPU0\tX\tCNS\n GPU1\tCNS\tX\n")
    assert access == {"nvml:peers": Reply("ok", {"p2p": {"0,1": 1, "1,0": 1}})}


def test_pasted_into_an_issue_between_other_words() -> None:
    text = f"An error:\n```\n$ nvidia-smi\n{TABLE}```\nand also\n<details>\n```\n$ nvidia-smi -q\n{OLD}\n```\n</details>\nHelp!"
    (name,) = (name for name in told(text) if name.startswith("text:"))
    assert told(text)[name].value["kinds"] == ["nvidia-smi", "nvidia-smi -q"]


@pytest.mark.slow
@each("reader", READERS, ids=lambda reader: reader.kind)
def test_no_reader_breaks_on_damaged_text(reader: Any) -> None:
    chance = random.Random(11)
    texts = [H100, H200, OLD, TABLE, (CAPTURES / "h100.collect_env.txt").read_text()]
    for text in texts:
        for _ in range(12):
            start, end = sorted(chance.randrange(len(text)) for _ in range(2))
            rows = text[start:end].split("\n")
            chance.shuffle(rows)
            reader.read(text[start:end])
            reader.read("\n".join(rows))
            reader.read(text[start:end].replace(":", "").replace("|", ""))


@pytest.mark.slow
def test_damaged_text_is_judged_without_an_error() -> None:
    chance = random.Random(12)
    for text in (H100, H200, OLD, TABLE):
        for _ in range(3):
            rows = [row for row in text.split("\n") if chance.random() < 0.8]
            problems("\n".join(rows))


def test_q_of_one_gpu_keeps_it_apart_from_the_table_around() -> None:
    found = nvidia_smi_q.read(OLD)
    assert found is not None
    assert found["nvml"].value["count"] == 1


def test_csv_of_a_loop_has_its_head_again_and_again() -> None:
    head = "index, pci.bus_id, memory.used [MiB]\n"
    replies = nvidia_smi_csv.read(f"{head}0, 00000000:07:00.0, 1 MiB\n{head}0, 00000000:07:00.0, 2 MiB\n")
    assert replies
    assert replies["nvml"].value["count"] == 1
    assert replies["nvml:gpu0"].value["MemoryInfo"]["used"] == 2 << 20


def test_csv_of_two_queries_is_one_machine() -> None:
    one, other = "index, name, driver_version\n0, NVIDIA L4, 550.54\n", "index, uuid, pci.bus_id\n0, GPU-1, 00000000:07:00.0\n"
    replies = nvidia_smi_csv.read(one + other)
    assert replies
    answers = replies["nvml:gpu0"].value
    assert (answers["Name"], answers["UUID"]) == ("NVIDIA L4", "GPU-1")
