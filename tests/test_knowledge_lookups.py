"""Lookups in the tables, against known values."""

from __future__ import annotations

import pytest
from each import each
from packaging.version import Version

from gpudoctor import knowledge


@each(
    ("release", "minimum", "shipped"),
    [
        ((13, 0), "580.65.06", "580.65.06"),
        ((12, 8), "525.60.13", "570.26"),
        ((12, 7), "525.60.13", None),
        ((11, 8), "450.80.02", "520.61.05"),
        ((10, 2), "440.33", "440.33"),
        ((13, 5), "580.65.06", None),
        ((99, 0), None, None),
    ],
)
def test_drivers_of_a_cuda_release(release: tuple[int, int], minimum: str | None, shipped: str | None) -> None:
    assert knowledge.minimum_driver(release) == minimum
    assert knowledge.shipped_driver(release) == shipped


@each(("branch", "release"), [(580, (13, 0)), (535, (12, 2)), (470, (11, 4)), (390, (9, 1)), (999, None)])
def test_cuda_of_branch(branch: int, release: tuple[int, int] | None) -> None:
    assert knowledge.cuda_of_branch(branch) == release


def test_end_of_life_of_branches() -> None:
    lives = {number: row.is_over("2026-11") for number in (580, 570, 550) if (row := knowledge.branch(number))}
    assert lives == {580: False, 570: True, 550: True}
    assert knowledge.branch(999) is None


@each(
    ("compat", "branch", "answer"),
    [
        ((13, 0), 570, "compatible"),
        ((13, 0), 580, "same"),
        ((13, 0), 590, "not provided"),
        ((13, 0), 550, None),  # end of life: the matrix does not list it
        ((99, 0), 580, None),
    ],
)
def test_forward_compatible(compat: tuple[int, int], branch: int, answer: str | None) -> None:
    assert knowledge.forward_compatible(compat, branch) == answer


def test_architecture_knows_the_end_of_support() -> None:
    volta, ada = knowledge.architecture((7, 0)), knowledge.architecture((8, 9))
    assert volta
    assert (volta.name, volta.last_cuda, volta.last_driver_branch) == ("Volta", (12, 9), 580)
    assert ada
    assert (ada.name, ada.first_cuda, ada.last_driver_branch) == ("Ada", (11, 8), None)
    assert knowledge.architecture((99, 0)) is None


@pytest.mark.parametrize(("release", "gcc"), [((12, 8), 14), ((12, 3), 12), ((11, 6), 11), ((9, 0), None)])
def test_maximum_gcc(release: tuple[int, int], gcc: int | None) -> None:
    assert knowledge.maximum_gcc(release) == gcc


def test_known_nvml_errors() -> None:
    names = {code: row.name for code in (9, 15, 18) if (row := knowledge.nvml_error(code))}
    assert names == {
        9: "NVML_ERROR_DRIVER_NOT_LOADED",
        15: "NVML_ERROR_GPU_IS_LOST",
        18: "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    }
    assert knowledge.nvml_error(12345) is None


def test_known_cuda_errors() -> None:
    names = {code: row.name for code in (35, 100, 802) if (row := knowledge.cuda_error(code))}
    assert names == {35: "cudaErrorInsufficientDriver", 100: "CUDA_ERROR_NO_DEVICE", 802: "CUDA_ERROR_SYSTEM_NOT_READY"}
    assert knowledge.cuda_error(12345) is None


def test_known_xids() -> None:
    lost, timeout = knowledge.xid(79), knowledge.xid(119)
    assert lost
    assert (lost.name, lost.severity, lost.action) == ("GPU has fallen off the bus", "fatal", "RESTART_BM")
    assert timeout
    assert timeout.mnemonic == "GSP_RPC_TIMEOUT"
    switch = knowledge.sxid(11004)
    assert switch
    assert switch.fatal == "other"
    assert knowledge.xid(9999) is None
    assert knowledge.sxid(1) is None


@each(
    ("name", "found"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100-SXM4-40GB"),
        ("GeForce GTX 1080 Ti", "NVIDIA GeForce GTX 1080 Ti"),
        ("NVIDIA Imaginary 9000", None),
    ],
)
def test_gpu_by_name(name: str, found: str | None) -> None:
    gpu = knowledge.gpu_by_name(name)
    assert (gpu.name if gpu else None) == found


def test_gpu_by_device_id() -> None:
    gpu = knowledge.gpu_by_device_id(0x2330)
    assert gpu
    assert gpu.name == "NVIDIA H100 80GB HBM3"
    assert knowledge.gpu_by_device_id(0x25B6) is None
    assert {gpu.name for gpu in knowledge.gpus_by_device_id(0x25B6)} == {"NVIDIA A2", "NVIDIA A16"}


@each(
    ("device_id", "generation"),
    [
        (0x102D, "Kepler"),  # Tesla K80
        (0x13F2, "Maxwell"),  # Tesla M60
        (0x17FD, "Maxwell"),  # Tesla M40
        (0x15F7, "Pascal"),  # Tesla P100 12 GB
        (0x1BB3, "Pascal"),  # Tesla P4
        (0x1DB6, "Volta"),  # Tesla V100
        (0x1EB8, "Turing"),  # Tesla T4
        (0x2187, "Turing"),  # GTX 1650 SUPER
        (0x20B5, "Ampere"),  # A100 PCIe
        (0x2235, "Ampere"),  # A40
        (0x2331, "Hopper"),  # H100 PCIe
        (0x2684, "Ada"),  # RTX 4090
        (0x2901, "Blackwell"),  # B200
        (0x2B85, "Blackwell"),  # RTX 5090
        (0x3182, "Blackwell"),  # B300
        (0x22A3, None),  # NVSwitch of H100
        (0x1AF1, None),  # NVSwitch of A100
        (0x10F0, None),  # an audio function
        (0x0020, None),  # Riva TNT
    ],
)
def test_architecture_of_device(device_id: int, generation: str | None) -> None:
    assert knowledge.architecture_of_device(device_id) == generation


@each(
    ("version", "found"),
    [
        ("2.9.1+cu128", "2.9.1"),
        ("2.9.0a0+145a3a7bda.nv25.10", "2.9.0"),
        ("2.7.9", "2.7.1"),
        ("1.12.0", "1.12.1"),
        ("999.88.77", None),
        ("not a version", None),
    ],
)
def test_torch_release(version: str, found: str | None) -> None:
    row = knowledge.torch_release(version)
    assert (row.version if row else None) == found


def test_torch_architectures() -> None:
    cu128 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
    assert knowledge.torch_architectures("2.11.0+cu128", "cu128") == cu128
    assert knowledge.torch_architectures("2.14.1", "cu126", "arm64") == ("sm_80", "sm_90")
    assert knowledge.torch_architectures("2.11.0", "cu999") is None
    assert knowledge.torch_architectures("999.88.77", "cu128") is None


@each(
    ("architectures", "compute_capability", "runs"),
    [
        (["sm_80", "sm_86"], (8, 9), True),  # an older minor version of the same major version
        (["sm_86"], (8, 0), False),
        (["sm_80"], (9, 0), False),
        (["sm_80", "compute_80"], (9, 0), True),
        (["compute_90"], (8, 9), False),
        (["sm_120"], (12, 1), True),
        (["sm_100"], (12, 0), False),
        (["sm_90a"], (9, 0), True),
        (["sm_100a"], (10, 3), False),
        (["compute_90a"], (10, 0), False),
        (["sm_100f"], (10, 3), True),
        (["compute_100f"], (12, 0), False),
        (["gfx90a"], (9, 0), False),
        ([], (9, 0), False),
    ],
)
def test_runs_on(architectures: list[str], compute_capability: tuple[int, int], runs: bool) -> None:
    assert knowledge.runs_on(architectures, compute_capability) is runs


@each(
    ("torch", "driver", "compute_capability", "best"),
    [
        ("2.9.1", "580.95.05", (9, 0), "cu128"),  # what plain pip installs
        ("2.9.1", "535.183.06", (8, 0), "cu126"),  # only by minor-version compatibility: the oldest
        ("2.9.1", "470.82.01", (8, 0), None),
        ("2.11.0", "580.95.05", (6, 1), "cu126"),  # the last with Pascal
        ("2.14.1", "570.124.06", (9, 0), "cu126"),  # CUDA 13 needs R580
        ("2.15.0", "595.58.03", (6, 1), None),
        ("2.7.1", "570.124.06", (12, 0), "cu128"),  # the default has no Blackwell
        ("2.6.0", "570.124.06", (12, 0), None),
        ("999.88.77", "580.95.05", (9, 0), None),
    ],
)
def test_variant_for_driver(torch: str, driver: str, compute_capability: tuple[int, int], best: str | None) -> None:
    assert knowledge.variant_for_driver(torch, driver, compute_capability) == best


def test_a_gpu_served_only_by_ptx_needs_the_driver_of_that_cuda() -> None:
    assert knowledge.variant_for_driver("2.14.1", "595.58.03", (99, 0)) == "cu130"
    assert knowledge.variant_for_driver("2.7.1", "560.35.05", (99, 0)) is None


def test_packages_by_name() -> None:
    tensorflow = knowledge.packages("tensorflow")
    assert tensorflow == tuple(sorted(tensorflow, key=lambda row: Version(row.version), reverse=True))
    assert tensorflow[0].cuda == "<13.0,>=12.5.82"
    assert {row.least_driver for row in knowledge.packages("jax-cuda13-plugin")} == {"580"}
    assert knowledge.packages("left-pad") == ()


def test_clock_reasons_by_bit() -> None:
    assert [row.name for row in knowledge.clock_reasons(0x44)] == ["SwPowerCap", "HwThermalSlowdown"]
    assert knowledge.clock_reasons(0) == ()


def test_an_unknown_clock_reason_is_not_dropped() -> None:
    (reason,) = knowledge.clock_reasons(1 << 40)
    assert reason.name == "0x10000000000"
    assert reason.benign is None


def test_modes_and_fabric_health() -> None:
    action = knowledge.mode("gpu_recovery_action", 2)
    assert action
    assert action.meaning == "Node Reboot Required"
    assert knowledge.mode("gpu_recovery_action", 99) is None
    fields = knowledge.fabric_health(0b01 | 0b10 << 2 | 5 << 8)
    assert (fields["DEGRADED_BW"], fields["ROUTE_RECOVERY"], fields["INCORRECT_CONFIGURATION"]) == (1, 2, 5)


@pytest.mark.parametrize(("generation", "width", "rate"), [(3, 16, 15.75), (4, 16, 31.5), (5, 8, 31.5), (9, 16, None)])
def test_pcie_rate(generation: int, width: int, rate: float | None) -> None:
    expected = None if rate is None else pytest.approx(rate, rel=0.01)
    assert knowledge.pcie_gb_per_s(generation, width) == expected
