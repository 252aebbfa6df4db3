"""What the machine is made of other than its GPUs: processors, disks, network adapters; and the type that its maker gives it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.replies import Replies
from gpudoctor.facts.system import number_list
from gpudoctor.model import Skip, Unavailable

ETHERNET, INFINIBAND = "1", "32"  # ARPHRD_ETHER and ARPHRD_INFINIBAND of include/uapi/linux/if_arp.h


@dataclass(frozen=True)
class Adapter:
    """A network interface with a device. gbit_per_s: None if the kernel does not know it, as in most virtual machines."""

    name: str
    is_up: bool
    is_ethernet: bool
    driver: str
    gbit_per_s: float | None


@dataclass(frozen=True)
class Disk:
    name: str
    gigabytes: float
    model: str


class Inventory(Guarded):
    """The machine's parts. A container sees only its own network."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def vendor(self) -> str:
        """As DMI has it; "" if DMI does not name it."""
        return (self._replies.file("/sys/class/dmi/id/sys_vendor") or "").strip()

    @cached_property
    def product(self) -> str:
        return (self._replies.file("/sys/class/dmi/id/product_name") or "").strip()

    @cached_property
    def instance_type(self) -> str:
        """The type of a cloud's instance, as cloud-init read it; "" if it did not."""
        return str(self._replies.value("cloud").get("instance_type") or "")

    @cached_property
    def power_profile(self) -> str:
        """The firmware's profile, such as low-power; "" without one."""
        return str(self._replies.value("power-supply").get("profile") or "")

    @cached_property
    def has_battery(self) -> bool:
        return bool(self._replies.value("power-supply").get("batteries"))

    @cached_property
    def has_dynamic_boost(self) -> bool:
        """Whether NVIDIA's service for it is installed."""
        return bool(self._replies.value("power-supply").get("has_powerd"))

    @cached_property
    def boot(self) -> str:
        """The same for all snapshots between two boots."""
        return str(self._replies.value("boot"))

    @cached_property
    def online_cpus(self) -> int:
        return len(number_list(self._replies.value("cpu-topology")["online"]))

    @cached_property
    def offline_cpus(self) -> tuple[int, ...]:
        """Those that the machine has and does not use."""
        said = self._replies.value("cpu-topology")
        return tuple(sorted({*number_list(said["present"])} - {*number_list(said["online"])}))

    @cached_property
    def cores(self) -> int:
        """Of the processors that are online."""
        return _positive(self._replies.value("cpu-topology")["cores"], "the number of cores")

    @cached_property
    def sockets(self) -> int:
        """With processors that are online."""
        return _positive(self._replies.value("cpu-topology")["sockets"], "the number of sockets")

    @cached_property
    def governors(self) -> dict[str, int]:
        """Governor -> on how many processors; empty where the firmware or a hypervisor decides."""
        return {name: int(count) for name, count in (self._replies.value("cpu-frequency").get("scaling_governor") or {}).items()}

    @cached_property
    def energy_preferences(self) -> dict[str, int]:
        said = self._replies.value("cpu-frequency").get("energy_performance_preference") or {}
        return {name: int(count) for name, count in said.items()}

    @cached_property
    def frequency_drivers(self) -> tuple[str, ...]:
        return tuple(self._replies.value("cpu-frequency").get("scaling_driver") or ())

    @cached_property
    def disks(self) -> tuple[Disk, ...]:
        return tuple(
            Disk(name, about["bytes"] / 1e9, about.get("model") or "")
            for name, about in self._replies.value("disks").items()
            if about.get("bytes")
        )

    @cached_property
    def adapters(self) -> tuple[Adapter, ...]:
        """Interfaces with a device: no bridges, bonds or tunnels."""
        return tuple(
            _adapter(name, about)
            for name, about in self._replies.value("network-interfaces").items()
            if about.get("device") and about.get("type") in (ETHERNET, INFINIBAND)
        )

    @cached_property
    def port_rates(self) -> dict[tuple[str, int], float]:
        """(adapter, port) -> Gbit/s."""
        rates = {}
        for port, said in self._replies.value("infiniband-rates").items():
            device, _, number = port.rpartition("/")
            if found := re.match(r"([\d.]+) Gb/sec", said or ""):
                rates[device, int(number)] = float(found[1])
        return rates


def _adapter(name: str, about: dict[str, object]) -> Adapter:
    speed = about.get("mbit_per_s")
    known = float(speed) / 1000 if isinstance(speed, int | float) and speed > 0 else None
    return Adapter(name, about.get("state") == "up", about.get("type") == ETHERNET, str(about.get("driver") or ""), known)


def _positive(number: int, what: str) -> int:
    if not number:
        raise Unavailable(f"{what} is unknown", Skip.UNSUPPORTED)
    return int(number)
