"""Whether a GPU waits for the processes that load its data, and what holds those back."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from gpudoctor.judging.jobs.works import Work

SATURATED = 0.8  # of a core
ALL_CPUS = 0.9  # of those that the job may use
BLOCKED = 0.3  # of the looks
QUEUED = 0.2  # of the time, ready without a CPU
ON_DISK = (
    *("io_schedule", "folio_wait", "wait_on_page", "wait_on_buffer", "blk_", "bio_", "submit_bio"),
    *("filemap", "jbd2", "ext4", "xfs"),
)
ON_NETWORK = ("nfs", "rpc", "ceph", "lustre", "ll_", "cl_", "fuse", "p9_", "smb", "cifs", "gpfs", "beegfs")
ON_SOCKET = ("tcp", "sk_wait", "wait_woken", "inet", "unix_stream_read")


@dataclass(frozen=True)
class Loading:
    """What the loaders of one GPU did. all: their CPU time, in cores. each: the mean of one. disk, network, socket: the shares of
    the looks in which one waited there."""

    number: int
    all: float
    each: float
    busiest: float
    affinity: int | None
    disk: float
    network: float
    socket: float
    queued: float
    file_systems: tuple[str, ...]

    @property
    def is_saturated(self) -> bool:
        return self.each >= SATURATED or (self.busiest >= 0.95 and self.number == 1)

    @property
    def is_on_few_cores(self) -> bool:
        """They are bound to fewer CPUs than there are loaders, and use all of them."""
        return self.affinity is not None and self.affinity < self.number and self.all >= 0.8 * self.affinity

    @property
    def is_blocked(self) -> bool:
        return self.disk + self.network >= BLOCKED


def loading(work: Work) -> Loading | None:
    """None without loaders."""
    loaders = work.loaders
    if not loaders:
        return None
    systems = tuple(dict.fromkeys(kind for loader in loaders for kind in loader.network_file_systems))
    network = _waiting(work, ON_NETWORK)
    blocked = statistics.fmean(loader.state("D") for loader in loaders)
    disk = max(_waiting(work, ON_DISK), blocked - network)
    if systems and disk:  # pages of a network file system are waited for in the same functions
        network, disk = network + disk, 0.0
    within = work.median("loader_cores")  # while kernels ran; while they start, loaders do not load
    all = sum(loader.cores for loader in loaders) if within is None else within
    return Loading(
        number=len(loaders),
        all=all,
        each=all / len(loaders),
        busiest=max(work.busiest_loader, max(loader.cores for loader in loaders)),
        affinity=min((loader.affinity for loader in loaders if loader.affinity), default=None),
        disk=disk,
        network=network,
        socket=_waiting(work, ON_SOCKET),
        queued=statistics.fmean(loader.queued for loader in loaders),
        file_systems=systems,
    )


def _waiting(work: Work, where: tuple[str, ...]) -> float:
    """The mean share of the looks at which a loader waited in one of these functions."""
    return statistics.fmean(
        sum(share for name, share in loader.waits.items() if name.startswith(where)) for loader in work.loaders
    )


def limits(work: Work) -> bool:
    """Whether loading explains why this GPU waits; then nothing else needs to."""
    found = loading(work)
    return bool(found and work.waits and (found.is_saturated or found.is_on_few_cores or found.is_blocked or starves(found)))


def starves(found: Loading) -> bool:
    """They are ready to run and get no CPU."""
    return found.queued >= QUEUED and found.each >= 0.2


def no_core_is_free(work: Work) -> bool:
    used = work.watched.host("cpu_used")
    job = sum(process.cores for process in work.watched.processes)
    return (used is not None and used >= ALL_CPUS) or job >= ALL_CPUS * work.watched.cpus


def without_more(work: Work) -> str:
    """Why there is no more CPU for the loaders."""
    used = work.watched.host("cpu_used") or 0.0
    if used >= ALL_CPUS:
        return f", and {used:.0%} of the host's CPUs were busy"
    return f" of the {work.watched.cpus:g} CPUs that the job may use"
