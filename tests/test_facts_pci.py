"""What the numbers and texts of /sys mean."""

from __future__ import annotations

from typing import Any

import pytest
from each import each

from gpudoctor.facts.pci import Pci, bars, framebuffer_bar, lanes, speed_gts
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Reply, Skip, Unavailable

LINK = {"current_link_speed": "2.5 GT/s PCIe", "current_link_width": "8", "max_link_speed": "16.0 GT/s PCIe"}
GPU = {
    **LINK,
    "max_link_width": "16",
    "vendor": 0x10DE,
    "device": 0x2330,
    "class": 0x030200,
    "driver": "nvidia",
    "subsystem_vendor": 0x10DE,
    "subsystem_device": 0x16C1,
    "numa_node": "-1",
    "resource": [
        "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200",
        "0x0000040000000000 0x0000041fffffffff 0x000000000014220c",
        "0x0000000000000000 0x0000000000000000 0x0000000000000000",
    ],
    "all_ones": False,
    "iommu_group": None,
    "iommu_group_type": None,
    "virtual_function": False,
    "parents": ["0000:00:01.1"],
}
BRIDGE = {**LINK, "max_link_width": "8", "vendor": 0x1022, "device": 0x1483, "class": 0x060400, "driver": "pcieport"}


def pci(functions: dict[str, Any], bridges: dict[str, Any] | None = None, iommu: list[str] | None = None) -> Pci:
    value = {"functions": functions, "bridges": bridges or {}, "other_display": ["1a03:2000"]}
    return Pci(Replies({"pci": Reply("ok", value), "glob:/sys/class/iommu/*": Reply("ok", iommu or [])}))


def test_a_gpu() -> None:
    (gpu,) = pci({"0000:01:00.0": GPU}).gpus
    assert (gpu.address, gpu.device_id, gpu.subsystem, gpu.class_code) == ("0000:01:00.0", 0x2330, "10de:16c1", 0x0302)
    assert (gpu.link_speed_gts, gpu.link_width) == (2.5, 8)
    assert (gpu.maximum_link_speed_gts, gpu.maximum_link_width) == (16.0, 16)
    assert gpu.numa_node is None
    assert gpu.bars == ((0xA0000000, 16 << 20), (0x40000000000, 128 << 30), (0, 0))
    assert gpu.responds


def test_which_functions_are_gpus_and_switches() -> None:
    topology = pci(
        {
            "0000:01:00.0": GPU,
            "0000:01:00.1": {**GPU, "class": 0x040300},
            "0000:02:00.4": {**GPU, "virtual_function": True},
            "0000:05:00.0": {**GPU, "class": 0x068000, "device": 0x22A3},
            "6b60:00:00.0": {**GPU, "class": 0x030000},
        }
    )
    assert [f.address for f in topology.gpus] == ["0000:01:00.0", "6b60:00:00.0"]
    assert [f.address for f in topology.nvswitches] == ["0000:05:00.0"]
    assert len(topology.functions) == 5
    assert topology.other_display == ("1a03:2000",)


def test_a_gpu_off_the_bus_does_not_respond() -> None:
    (gpu,) = pci({"0000:b3:00.0": {**GPU, "all_ones": True, "current_link_width": "63", "max_link_width": "255"}}).gpus
    assert not gpu.responds
    assert (gpu.link_width, gpu.maximum_link_width) == (None, None)


def test_config_that_could_not_be_read_is_not_a_healthy_one() -> None:
    (gpu,) = pci({"0000:01:00.0": {**GPU, "all_ones": None}}).gpus
    with pytest.raises(Unavailable):
        _ = gpu.responds


@pytest.mark.parametrize(("acs", "expected"), [(0x1D, 0x1D), (0, 0), (None, None)])
def test_acs(acs: int | None, expected: int | None) -> None:
    bridge = pci({}, {"0000:00:01.1": {**BRIDGE, "acs": acs}}).bridges["0000:00:01.1"]
    assert bridge.acs_control == expected
    assert bridge.maximum_link_width == 8


def test_acs_that_only_root_may_read() -> None:
    bridge = pci({}, {"0000:00:01.1": {**BRIDGE, "acs": "denied"}}).bridges["0000:00:01.1"]
    with pytest.raises(Unavailable, match="only be read by root") as caught:
        _ = bridge.acs_control
    assert caught.value.kind == Skip.NOT_PERMITTED


def test_a_machine_without_a_bus_has_no_gpu() -> None:
    assert Pci(Replies({"pci": Reply("missing")})).gpus == ()


def test_a_bus_that_was_not_read_is_not_empty() -> None:
    with pytest.raises(Unavailable):
        _ = Pci(Replies({"pci": Reply("timeout")})).gpus


@each(
    ("text", "speed"),
    [("32.0 GT/s PCIe", 32.0), ("8 GT/s", 8.0), ("Unknown", None), ("Unknown speed", None), (None, None)],
)
def test_speed(text: str | None, speed: float | None) -> None:
    assert speed_gts(text) == speed


@each(("text", "width"), [("16", 16), ("0", None), ("255", None), ("63", None), (None, None)])
def test_lanes(text: str | None, width: int | None) -> None:
    assert lanes(text) == width


def test_a_bar_that_was_not_assigned_has_a_size_but_no_start() -> None:
    line = "0x0000000000000000 0x00000007ffffffff 0x000000002014220c"
    assert bars([line]) == ((0, 32 << 30),)


UNUSED = "0x0000000000000000 0x0000000000000000 0x0000000000000000"
H100 = [
    "0x0000102002000000 0x0000102002ffffff 0x000000000014220c",
    UNUSED,
    "0x0000100000000000 0x0000101fffffffff 0x000000000014220c",
    UNUSED,
    "0x0000102000000000 0x0000102001ffffff 0x000000000014220c",
    UNUSED,
]


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        (H100, (0x100000000000, 128 << 30)),
        (GPU["resource"], (0x40000000000, 128 << 30)),
        ([H100[0], UNUSED, UNUSED, UNUSED, H100[4], UNUSED], (0, 0)),
        ([], (0, 0)),
    ],
)
def test_the_framebuffer_is_behind_the_second_bar(resource: list[str], expected: tuple[int, int]) -> None:
    assert framebuffer_bar(resource) == expected
