"""What the machine is made of, as files of /sys and cloud-init show it, and which caches its user can write to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from folder_machine import Folder

from checks.limits import cache_folders
from gpudoctor.facts.inventory import Inventory
from gpudoctor.facts.replies import Replies
from gpudoctor.worker.probes import inventory, limits


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    for name, text in (("present", "0-3"), ("online", "0-2"), ("offline", "3")):
        folder.write(f"/sys/devices/system/cpu/{name}", f"{text}\n")
    for cpu in range(3):
        for name, text in (("physical_package_id", "0"), ("core_id", str(cpu // 2))):
            folder.write(f"/sys/devices/system/cpu/cpu{cpu}/topology/{name}", f"{text}\n")
        folder.write(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "powersave\n")
        folder.write(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_driver", "acpi-cpufreq\n")
    for disk, sectors, removable in (("nvme0n1", 3750748848, 0), ("sdb", 100, 1), ("loop0", 100, 0), ("dm-0", 100, 0)):
        folder.write(f"/sys/block/{disk}/size", f"{sectors}\n")
        folder.write(f"/sys/block/{disk}/removable", f"{removable}\n")
    for name, state, speed, device in (
        ("eth0", "up", 100000, "0000:0a:00.0"),
        ("eth1", "up", -1, "virtio1"),
        ("br0", "up", 9, ""),
    ):
        for file, text in (("operstate", state), ("speed", str(speed)), ("type", "1")):
            folder.write(f"/sys/class/net/{name}/{file}", f"{text}\n")
        if device:
            folder.link(f"/sys/class/net/{name}/device", f"../../{device}")
    folder.write("/sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n")
    for name, kind, files in (
        ("ADP1", "Mains", {"online": "0"}),
        ("BAT0", "Battery", {"scope": "System"}),
        ("hid-mouse", "Battery", {"scope": "Device"}),
    ):
        for file, text in {"type": kind, **files}.items():
            folder.write(f"/sys/class/power_supply/{name}/{file}", f"{text}\n")
    folder.write("/sys/firmware/acpi/platform_profile", "quiet\n")
    folder.write("/sys/firmware/acpi/platform_profile_choices", "quiet balanced performance\n")
    folder.write("/proc/sys/kernel/random/boot_id", "a882dd57-e8dc-48aa-ae6e-673f0092a1f6\n")
    return folder


def test_the_parts_of_a_machine(folder: Folder) -> None:
    facts = Inventory(Replies(folder.ask(inventory)))
    assert (facts.online_cpus, facts.offline_cpus, facts.cores) == (3, (3,), 2)
    assert (facts.governors, facts.frequency_drivers) == ({"powersave": 3}, ("acpi-cpufreq",))
    assert [(disk.name, round(disk.gigabytes)) for disk in facts.disks] == [("nvme0n1", 1920)]
    assert [(adapter.name, adapter.gbit_per_s) for adapter in facts.adapters] == [("eth0", 100.0), ("eth1", None)]
    assert facts.port_rates == {("mlx5_0", 1): 400.0}
    assert (facts.power_profile, facts.has_battery, facts.has_dynamic_boost) == ("quiet", True, False)
    assert len(facts.boot) == 12
    assert "a882dd57" not in facts.boot


def test_of_the_cloud_only_what_all_its_machines_share_is_kept(folder: Folder) -> None:
    folder.write("/sys/class/dmi/id/chassis_asset_tag", "RACK-7-SECRET\n")
    data = {"ds": {"meta_data": {"imds": {"compute": {"vmSize": "Standard_ND96isr_H100_v5", "name": "private-name"}}}}}
    folder.write("/run/cloud-init/instance-data.json", json.dumps(data))
    replies = folder.ask(inventory)
    assert replies["cloud"].value == {"asset_tag": "", "instance_type": "Standard_ND96isr_H100_v5"}
    folder.write("/sys/class/dmi/id/chassis_asset_tag", "OracleCloud.com\n")
    for text in ("{", "[]", '{"ds": 3}', '{"ds": {"meta_data": {"instance-type": 7}}}'):
        folder.write("/run/cloud-init/instance-data.json", text)
        assert folder.ask(inventory)["cloud"].value == {"asset_tag": "OracleCloud.com", "instance_type": ""}


def test_a_cache_that_does_not_exist_needs_a_folder_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "file").write_text("")
    for name, path in (
        ("HF_HOME", tmp_path / "a/b/c"),
        ("TORCH_HOME", tmp_path / "file/x"),
        ("CUDA_CACHE_PATH", Path("relative")),
    ):
        monkeypatch.setenv(name, str(path))
    found = limits._caches()
    assert found["HF_HOME"] == {"path": str(tmp_path / "a/b/c"), "exists": False, "writable": True}
    assert found["TORCH_HOME"]["writable"] is False
    assert found["TRITON_CACHE_DIR"]["path"] == str(tmp_path / ".triton/cache")
    assert "CUDA_CACHE_PATH" not in found


def test_the_check_knows_the_folders_that_the_probe_uses_without_a_variable() -> None:
    assert {name: f"/{place}" for name, place in limits.CACHES} == cache_folders.USUAL
