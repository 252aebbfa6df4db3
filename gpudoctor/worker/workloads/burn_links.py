"""Copies between all GPUs at once, around a ring and both ways, for minutes; what arrives is verified: `gpudoctor burn`."""

from __future__ import annotations

import time
from typing import Any, Dict, List

from gpudoctor.worker.measuring.bench import TOGETHER, Bench, Workload
from gpudoctor.worker.reply import Skip
from gpudoctor.worker.workloads.burn import LEAST_SECONDS, MOST_SECONDS, SECONDS, STRETCHES
from gpudoctor.worker.workloads.peer_transfers import Peer, prepared, refusal

BATCH = 16


def run(bench: Bench) -> None:
    """Stretches "ring 0" …: {"gb_per_s" of all copies together, "copies", "wrong_words": "0>1" -> count}; direct: {"pairs"} whose
    copies do not pass through the host; complete: {"seconds"} at the very end."""
    if len(bench.gpus) < 2:
        raise Skip("there is only one GPU, so it has no peer")
    peers = [prepared(bench, gpu) for gpu in bench.gpus]
    pairs = [(one, other) for one in peers for other in peers if one is not other]
    bench.keep("direct", pairs=["%d>%d" % (one.gpu, other.gpu) for one, other in pairs if not refusal(one, other)])
    total = float(bench.options.get("seconds", SECONDS))
    end = time.monotonic() + total
    length = min(MOST_SECONDS, max(LEAST_SECONDS, total / STRETCHES))
    streams = [_stream(peer) for peer in peers]
    number = 0
    while (left := end - time.monotonic()) > 0:
        step = number % (len(peers) - 1) + 1  # the distance of the partners around the ring
        with bench.section("ring %d" % number) as values:
            values.update(around(peers, streams, step, min(length, left)), load="links")
        number += 1
    bench.keep("complete", seconds=total)


def around(peers: List[Peer], streams: List[Any], step: int, seconds: float) -> Dict[str, Any]:
    """Each GPU sends its pattern to the one `step` places further, all at the same time."""
    ring = [(peer, peers[(place + step) % len(peers)]) for place, peer in enumerate(peers)]
    wrong: Dict[str, int] = {}
    count, spent, end = 0, 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        for peer in peers:
            peer.forget()
        began = time.monotonic()
        for _ in range(BATCH):
            for (one, other), stream in zip(ring, streams):
                one.driver.use()
                one.copy(other, one.size, stream)
        for peer, stream in zip(peers, streams):
            peer.driver.use()
            peer.driver.wait(stream)
        spent += time.monotonic() - began
        count += BATCH * len(ring)
        for one, other in ring:
            name = "%d>%d" % (one.gpu, other.gpu)
            wrong[name] = wrong.get(name, 0) + other.wrong_words(one.seed, one.size)
    return {"copies": count, "gb_per_s": count * peers[0].size / spent / 1e9, "wrong_words": wrong}


def _stream(peer: Peer) -> Any:
    peer.driver.use()
    return peer.driver.stream()


WORKLOAD = Workload(run, scope=TOGETHER, seconds=120, typical_seconds=3)
