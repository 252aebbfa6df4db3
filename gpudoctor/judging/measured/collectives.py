"""GPUs that worked together: what they measured, their links, and the bus bandwidth that an all-reduce can reach over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu_records import NvLink
from gpudoctor.facts.join import index_of
from gpudoctor.facts.known import known
from gpudoctor.judging.measured import expect, watched_link
from gpudoctor.judging.measured.expect import NOTHING, Expected
from gpudoctor.model import Skip

NEAR = ("internal", "single switch", "switches")  # NVML's words for paths over which NCCL uses direct access
# Share of what a PCIe link carries to the host: an all-reduce sends and receives at once, and twice through host memory.
# Measured: 0.57 on two H200 through host memory, 0.5 to 1 on RTX 4090 and RTX PRO 6000.
DIRECT_SHARE, THROUGH_HOST_SHARE = 0.55, 0.25
WORKLOAD = "distributed"
JUDGED_BYTES = 256 << 20  # smaller sizes depend on latency
LONG_MICROSECONDS = 10_000  # longer than any latency


class Session(NamedTuple):
    """What the ranks measured together. gpus: NVML's indices."""

    facts: Facts
    values: dict[str, Any]
    gpus: tuple[int, ...]

    @classmethod
    def of(cls, facts: Facts) -> Session:
        (run,) = facts.measured.runs(WORKLOAD)
        if "connected" not in run.values:
            raise Skip("the ranks did not connect to each other: see measurements", Skip.NO_ANSWER)
        return cls(facts, dict(run.values), tuple(facts.measured.plan["gpus"]))

    @property
    def linked(self) -> bool | None:
        return is_linked(self.facts, self.gpus)

    @property
    def sizes(self) -> list[tuple[str, dict[str, Any]]]:
        """The all-reduces, smallest first."""
        found = [(name, values) for name, values in self.values.items() if name.startswith("all-reduce ")]
        return sorted(found, key=lambda entry: int(entry[1]["bytes"]))

    @property
    def judged(self) -> tuple[str, dict[str, Any]] | None:
        """The largest size, if it is large enough, or took long enough, to judge the links."""
        last = self.sizes[-1] if self.sizes else None
        large = last and (last[1]["bytes"] >= JUDGED_BYTES or last[1]["microseconds"] >= LONG_MICROSECONDS)
        return last if large else None

    @property
    def wrong_sums(self) -> dict[int, dict[str, int]]:
        """GPU (NVML's index) -> size -> how many of its sums were wrong; only GPUs with wrong sums."""
        order = ["8 B", *(name.partition(" ")[2] for name, _ in self.sizes)]
        found = {}
        for name, values in sorted(self.values.items()):
            counts = values.get("wrong_elements", {}) if name.startswith("rank ") else {}
            if any(counts.values()):
                gpu = index_of(self.facts, self.facts.cuda.devices[values["gpu"]])
                found[gpu] = {size: counts[size] for size in [*order, *counts] if counts.get(size)}
        return found

    @property
    def seen(self) -> dict[str, dict[str, Any]]:
        """GPU -> what the sampler saw during the judged size; Skip if there was no sampler."""
        found: dict[str, dict[str, Any]] = self.judged[1].get("during", {}) if self.judged else {}
        if not found:
            raise Skip("the clocks were not sampled", Skip.NO_ANSWER)
        return found

    @property
    def connections(self) -> dict[str, int]:
        """`P2P/CUMEM` ... -> channels; empty without NCCL's log."""
        return dict(self.values.get("nccl", {}).get("connections", {}))

    @property
    def way(self) -> str:
        return ", ".join(f"{name} ({count} channels)" for name, count in self.connections.items())

    @property
    def settings(self) -> dict[str, tuple[str, str]]:
        """NCCL's variables -> value, and the problem of nccl-environment that reports it, "" if it is only in the log."""
        logged = {name: (value, "") for name, value in self.values.get("nccl", {}).get("settings", {}).items()}
        files = "nccl-conf-leftovers"
        return logged | {
            name: (setting.value, "nccl-env-leftovers" if setting.source == "environment" else files)
            for name, setting in self.facts.environment.nccl.items()
        }


def links_to(facts: Facts, index: int, others: Sequence[int]) -> list[NvLink]:
    """The active NVLinks of a GPU that lead to one of the others, directly or through a switch."""
    addresses = {gpu.bus_id for other in others if (gpu := expect.gpu(facts, other))}
    through = all(expect.switched_links(facts, other) for other in others)
    return [
        link
        for link in expect.active_links(facts, index)
        if link.remote_bus_id in addresses or (through and link.remote == "switch")
    ]


def is_linked(facts: Facts, indices: Sequence[int]) -> bool | None:
    """Whether NVLinks connect every pair of GPUs; None if they connect only some pairs."""
    if all(expect.switched_links(facts, index) for index in indices):
        return True
    pairs = [bool(links_to(facts, one, [other])) for one, other in permutations(indices, 2)]
    return all(pairs) if all(pairs) or not any(pairs) else None


def bus_gb_per_s(facts: Facts, indices: Sequence[int]) -> Expected:
    """What a large all-reduce among these GPUs reaches; NOTHING if NVLink connects only some of them."""
    linked = is_linked(facts, indices)
    if linked is None:
        return NOTHING
    each = [_over_nvlink(facts, index, indices) if linked else _over_pcie(facts, index, indices) for index in indices]
    return min(each, key=lambda expected: expected.value or 0)


def _over_nvlink(facts: Facts, index: int, indices: Sequence[int]) -> Expected:
    links = links_to(facts, index, [other for other in indices if other != index])
    version = max((int(float(link.version)) for link in links if link.version), default=0)
    nominal, shares = knowledge.nvlink_gb_per_s(version, 1), knowledge.nvlink_shares(version)
    if nominal is None or shares is None:
        return NOTHING
    # Some boards run their links slower than others with the same version: GeForce RTX 3090 at 14 GB/s.
    rate = sum(min(nominal, link.mb_per_s / 1000 if link.mb_per_s else nominal) for link in links)
    return Expected(rate * shares[1], f"{shares[1]:.0%} of NVLink {version} × {len(links)} links: {rate:.3g}")


def _over_pcie(facts: Facts, index: int, indices: Sequence[int]) -> Expected:
    host = expect.pcie_gb_per_s(facts, index)
    paths = known(lambda: (facts.nvml.topology, facts.nvml.p2p))
    if host.value is None or paths is None:
        return NOTHING
    topology, p2p = paths
    pairs = list(permutations(indices, 2))
    direct = all(p2p.get(pair) == "ok" and topology.get((min(pair), max(pair))) in NEAR for pair in pairs)
    share, way = (DIRECT_SHARE, "direct access") if direct else (THROUGH_HOST_SHARE, "through host memory")
    return Expected(host.value * share, f"{share:.0%} ({way}) of what its PCIe link carries: {host.value:.1f}")


class LowLink(NamedTuple):
    """A GPU's PCIe link that ran below what it can do. because: the problem of another check that reports it."""

    gpu: int
    words: str
    because: str


def low_link(facts: Facts, index: int, during: Mapping[str, Any]) -> LowLink | None:
    """during: what the sampler saw; Skip if it did not see the link."""
    low = watched_link.low(facts, expect.gpu(facts, index), during)
    if low is None:
        return None
    because = "pcie-width-downgraded" if low.is_narrow else "pcie-link-low-while-copying"
    return LowLink(index, f"GPU {index}'s link {low.words}", because)


class SlowPair(NamedTuple):
    """A copy between two GPUs, as a share of what their connection can carry."""

    share: float
    words: str


def slowest_pair(facts: Facts, indices: Sequence[int]) -> SlowPair | None:
    """The slowest of the pairs with NVLink; None if none was measured."""
    found = []
    for (one, other), values in copies(facts).items():
        expected = _copy_over_nvlink(facts, one, other) if {one, other} <= set(indices) and not values.get("refused") else None
        if expected:
            words = f"a copy from GPU {one} to {other} reached {values['gb_per_s']:.0f} of {expected:.0f} GB/s"
            found.append(SlowPair(values["gb_per_s"] / expected, words))
    return min(found, default=None)


def copies(facts: Facts) -> dict[tuple[int, int], dict[str, Any]]:
    """What peer-transfers measured, by sender and receiver; empty if it did not run."""
    try:
        (run,) = facts.measured.runs("peer-transfers")
        devices = [index_of(facts, device) for device in facts.cuda.devices]
    except Skip:
        return {}
    names = [(name.partition(">"), values) for name, values in run.values.items()]
    return {
        (devices[int(one)], devices[int(other)]): values for (one, _, other), values in names if one.isdigit() and other.isdigit()
    }


def _copy_over_nvlink(facts: Facts, one: int, other: int) -> float | None:
    links = links_to(facts, one, [other])
    version = max((int(float(link.version)) for link in links if link.version), default=0)
    rate, shares = knowledge.nvlink_gb_per_s(version, len(links)), knowledge.nvlink_shares(version)
    return rate * shares[0] if rate and shares else None


def damage(facts: Facts) -> str:
    """The problem of peer-transfers that explains wrong sums; "" if its data was correct."""
    keys = ("wrong_words", "wrong_words_by_kernels")
    return "peer-copy-damages-data" if any(values.get(key) for values in copies(facts).values() for key in keys) else ""
