"""Copies from each GPU to each other one: peer access, bandwidth, latency, and whether the data is correct.

GPUs are named by CUDA's numbers: "0>1" is from GPU 0 to GPU 1.
"""

from __future__ import annotations

import ctypes
import functools
import statistics
from typing import Any, Callable, Dict, List, NamedTuple

from gpudoctor.worker.measuring import clock
from gpudoctor.worker.measuring.bench import TOGETHER, Bench, Workload, summary
from gpudoctor.worker.measuring.driver import SUCCESS, Driver, Module, Pointer, fill, wrong_words
from gpudoctor.worker.reply import Skip
from gpudoctor.worker.workloads.host_transfers import at_once, moved

BYTES = 256 << 20
SHARE_OF_FREE = 8
MILLISECONDS = 20  # for the copies of one pair
SLOW_GB_PER_S, SLOW_SHARE = 60, 4  # a slow path gets a quarter of the bytes
REACHED_BYTES = 8 << 20  # that kernels read and write directly
SMALL_BYTES, SMALL_REPEATS = 4, 40
# As nvbandwidth: one thread of an SM reads one cache line after the other, none of which is in a cache of that SM.
CHAIN_BYTES, LINE_BYTES, STEPS, SMS = 2 << 20, 128, 1024, 8
ALREADY_ENABLED = 704
OLD = 1 << 40  # a seed that no GPU's pattern has


class Peer(NamedTuple):
    """One GPU with two buffers of `size` bytes: `own` holds its pattern, `other` receives data."""

    gpu: int
    driver: Driver
    module: Module
    own: Pointer
    other: Pointer
    size: int

    @property
    def seed(self) -> int:
        return self.gpu + 1

    def copy(self, to: Peer, size: int, stream: Any = None) -> None:
        """Sends its pattern, directly or through the host."""
        ways = to.other, to.driver.context, self.own, self.driver.context
        self.driver("cuMemcpyPeerAsync", *ways, ctypes.c_size_t(size), stream)

    def forget(self) -> None:
        """Overwrites received data, so that old data cannot pass as new."""
        self.driver.use()
        fill(self.module, self.other, self.size, OLD)
        self.driver.synchronize()

    def wrong_words(self, seed: int, size: int) -> int:
        self.driver.use()
        return wrong_words(self.driver, self.module, self.other, size, seed)


def run(bench: Bench) -> None:
    """Each pair: {"refused": why there is no peer access, "gb_per_s", "spread", "microseconds" of a small copy, "wrong_words",
    "wrong_words_by_kernels", "read_nanoseconds" of one read by a kernel}; "0<>1": {"gb_per_s" of both directions at once,
    "wrong_words"}. The last two of a pair are only there with peer access, and the very last at level full."""
    if len(bench.gpus) < 2:
        raise Skip("there is only one GPU, so it has no peer")
    peers = [prepared(bench, gpu) for gpu in bench.gpus]
    bench.step("peer access")
    pairs = [(one, other, refusal(one, other)) for one in peers for other in peers if one is not other]
    with bench.section("pairs") as values:
        for one, other, refused in pairs:
            name = "%d>%d" % (one.gpu, other.gpu)
            bench.step(name)
            is_chased = not refused and bench.level == "full"
            bench.keep(name, refused=refused, **one_way(one, other, not refused, is_chased))
        for one, other, _ in pairs:
            if one.gpu < other.gpu:
                name = "%d<>%d" % (one.gpu, other.gpu)
                bench.step(name)
                bench.keep(name, **both_ways(one, other))
        values["gpus"] = len(peers)


def prepared(bench: Bench, gpu: int) -> Peer:
    bench.step("context of GPU %d" % gpu)
    driver = Driver(gpu)
    size = min(BYTES, driver.memory()[0] // SHARE_OF_FREE) >> 20 << 20
    peer = Peer(gpu, driver, driver.module(), driver.allocate(size), driver.allocate(size), size)
    fill(peer.module, peer.own, size, peer.seed)
    driver.synchronize()
    return peer


def refusal(one: Peer, other: Peer) -> str:
    """Enables access from `one` to the memory of `other`; returns why it failed, or ""."""
    can = ctypes.c_int()
    one.driver("cuDeviceCanAccessPeer", ctypes.byref(can), one.driver.device, other.driver.device)
    if not can.value:
        return "the driver reports no peer access"
    one.driver.use()
    code = one.driver.code("cuCtxEnablePeerAccess", other.driver.context, 0)
    return "" if code in (SUCCESS, ALREADY_ENABLED) else one.driver.name(code)


def bytes_for(one: Peer, other: Peer) -> int:
    """How many bytes to send, depending on the time for a small part."""
    size = min(one.size, other.size)
    part = size // 16
    one.driver.use()
    milliseconds = one.driver.milliseconds(lambda: one.copy(other, part), 1, 1)[0]
    return size if part / milliseconds / 1e6 > SLOW_GB_PER_S else size // SLOW_SHARE


def one_way(one: Peer, other: Peer, direct: bool, is_chased: bool) -> Dict[str, Any]:
    size = bytes_for(one, other)
    other.forget()
    one.driver.use()
    stream = one.driver.stream()
    times = one.driver.fitting(lambda: one.copy(other, size, stream), MILLISECONDS, stream=stream)
    found = summary([size / milliseconds / 1e6 for milliseconds in times])
    soon = latency(one, lambda: one.copy(other, SMALL_BYTES, stream), stream)
    values = {"gb_per_s": found["median"], "spread": found["spread"], "microseconds": soon}
    values["wrong_words"] = other.wrong_words(one.seed, size)
    if direct:
        values["wrong_words_by_kernels"] = by_kernels(one, other)
        if is_chased:
            values.update(chase(one, other))
    return values


def latency(one: Peer, work: Callable[[], None], stream: Any) -> float:
    """Microseconds until a small copy has arrived."""
    times: List[float] = []
    for _ in range(SMALL_REPEATS):
        began = clock.now()
        work()
        one.driver.wait(stream)
        times.append((clock.now() - began) * 1e6)
    return summary(times)["median"]


def by_kernels(one: Peer, other: Peer) -> int:
    """Kernels of `one` read and write the memory of `other`, as NCCL's do: how many words are wrong."""
    size = min(REACHED_BYTES, one.size, other.size)
    one.driver.use()
    read = wrong_words(one.driver, one.module, other.own, size, other.seed)
    other.forget()
    one.driver.use()
    fill(one.module, other.other, size, one.seed)
    one.driver.synchronize()
    return read + other.wrong_words(one.seed, size)


def chase(one: Peer, other: Peer) -> Dict[str, Any]:
    """{"read_nanoseconds": how long a kernel of `one` waits for a read from the memory of `other`}; {} if one ended elsewhere.

    Each read gives the address of the next one.
    """
    size = min(CHAIN_BYTES, one.size, other.size)
    nodes, stride = size // LINE_BYTES, LINE_BYTES // 8
    other.driver.use()
    other.module("fill_chain", other.other, ctypes.c_uint64(nodes), ctypes.c_uint64(stride))
    other.driver.synchronize()
    one.driver.use()
    right = other.other.value + STEPS % nodes * LINE_BYTES
    sms = one.driver.attribute("multiprocessors")
    times: List[float] = []
    with one.driver.buffer(8) as came_to:
        for block in range(0, sms, max(1, sms // SMS)):
            arguments = other.other, ctypes.c_uint64(STEPS), ctypes.c_uint64(block), came_to
            one.driver.put(came_to, bytes(8))
            launch = functools.partial(one.module, "follow_chain", *arguments, grid=sms, threads=1)
            times += one.driver.milliseconds(launch, 1, 0 if times else 1)
            if int.from_bytes(one.driver.bytes_from(came_to, 8), "little") != right:
                return {}
    return {"read_nanoseconds": statistics.mean(times) * 1e6 / STEPS}


def both_ways(one: Peer, other: Peer) -> Dict[str, Any]:
    size = bytes_for(one, other)
    one.forget()
    other.forget()
    one.driver.use()
    first = one.driver.milliseconds(lambda: one.copy(other, size), 1, 0)[0]
    other.forget()
    one.driver.use()
    repeats = max(3, min(10, int(MILLISECONDS / first)))
    times = at_once(
        one.driver, lambda stream: one.copy(other, size, stream), lambda stream: other.copy(one, size, stream), repeats
    )
    together = min(each[-1] for each in times)
    speeds = [moved(each, together) * size / together / 1e6 for each in times]
    wrong = one.wrong_words(other.seed, size) + other.wrong_words(one.seed, size)
    return {"gb_per_s": sum(speeds), "wrong_words": wrong}


WORKLOAD = Workload(run, scope=TOGETHER, seconds=90, typical_seconds=4)
