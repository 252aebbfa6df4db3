"""Copies over PCIe and traffic between GPUs: which share of what the links carry."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.judging.jobs.works import Work
from gpudoctor.knowledge.gpus import gpu_by_name

MIB_OF_A_GB = 1e9 / (1 << 20)
PAGEABLE_MIB_S = 6000.0  # about what one thread copies through staging buffers: 5.8 GiB/s on an H200 with PCIe 5
PINNED_SHARE = 0.8  # of the rate of the link
LEAST_MIB_S = 500.0
BOUND = 0.5  # of what is possible
EMPTY = 0.5  # of the multiprocessors: kernels of NCCL fill fewer
SOME_TRAFFIC = 0.15


def busiest_direction(work: Work) -> float | None:
    """MiB/s over PCIe."""
    rates = [rate for name in ("pcie_rx_mib_s", "pcie_tx_mib_s") if (rate := work.mean(name)) is not None]
    return max(rates) if rates else None


def pcie_mib_s(work: Work) -> float | None:
    """What copies of page-locked memory reach on this link in one direction."""
    rate = work.gpu.still("pcie_gb_per_s")
    return None if rate is None else PINNED_SHARE * rate * MIB_OF_A_GB


def copying(work: Work) -> tuple[float, float] | None:
    """The shares of the time that these copies take: from page-locked memory at least, from pageable memory about.

    Both directions of page-locked copies run at the same time; one thread copies pageable memory there, and then back.
    """
    rate, reachable = busiest_direction(work), pcie_mib_s(work)
    if rate is None or reachable is None or rate < LEAST_MIB_S:
        return None
    both = (work.mean("pcie_rx_mib_s") or 0.0) + (work.mean("pcie_tx_mib_s") or 0.0)
    return min(1.0, rate / reachable), min(1.0, both / min(PAGEABLE_MIB_S, reachable))


def nvlink(work: Work) -> float | None:
    """The share of this GPU's NVLink that is used; None if that is not known."""
    rate = sum(work.mean(name) or 0.0 for name in ("nvlink_rx_mib_s", "nvlink_tx_mib_s"))
    board = gpu_by_name(work.gpu.name)
    if not rate or board is None or board.nvlink is None:
        return None
    return rate / (board.nvlink.gb_per_s * MIB_OF_A_GB)


def network(work: Work) -> tuple[str, float] | None:
    """The busiest interface or RDMA port, and the share of its speed that is used in one direction."""
    shares = work.watched.network_shares
    name = max(shares, key=lambda name: shares[name], default="")
    return (name, shares[name]) if name else None


def limits(work: Work) -> bool:
    """Whether copies explain at least half of the time in which this GPU waits."""
    found = copying(work)
    if not work.waits or not found:
        return False
    pinned, pageable = found
    return pinned >= BOUND * work.idle or (pageable >= BOUND * work.idle and work.main_thread >= 0.5)


@dataclass(frozen=True)
class Traffic:
    """Between GPUs. saves: the share of the time that it takes at most."""

    where: str
    share: float
    saves: float


def communication(work: Work) -> Traffic | None:
    """None if the job uses one GPU, or if its links carry little."""
    if len(work.watched.used) < 2 and not network(work):
        return None
    filled = work.filled
    is_empty = filled is not None and (filled < EMPTY or work.waits)
    link, (name, wire) = nvlink(work), network(work) or ("", 0.0)
    if link is not None and len(work.watched.used) > 1 and (link >= BOUND or (link >= SOME_TRAFFIC and is_empty)):
        return Traffic("NVLink", link, 1 - work.busy * (filled or 1.0))
    if wire >= BOUND and (is_empty or work.waits):
        return Traffic(name, wire, max(work.idle, 1 - work.busy * (filled or 1.0)))
    return None


def is_not_the_traffic(work: Work) -> bool:
    """Kernels of NCCL fill few multiprocessors, and are not too small."""
    return communication(work) is None
