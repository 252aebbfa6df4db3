"""All GPUs together gather, scatter, exchange and send data correctly (over NCCL), at the speed of their links.

What it means
Training with sharded weights gathers and scatters them in every step, mixtures of experts exchange their tokens all-to-all,
and pipelines send activations from one GPU to the next. Each uses the links in its own way, so that a good all-reduce does not
prove the others.

How it is judged
At level full, the torchrun session of all-reduce also measures all-gather, reduce-scatter, all-to-all, broadcast and a ring of
send/recv, with 8 B for each GPU and 1 to 256 MiB, by NCCL's own functions on torch's communicator. Every rank compares every
element that it receives, before and after the timing. The bus bandwidth (as nccl-tests defines it) of the largest size, from
256 MiB on, is compared with the share of an all-reduce's expected bandwidth that each reaches on healthy links.

Known exceptions
If NVLink connects only some of the GPUs, the bandwidth is shown and not judged. The times for 8 B are shown and not judged. If
torch does not give its communicator away, the collectives go through torch, and the short ones take longer.

References
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/collectives.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.join import index_of
from gpudoctor.fixes.common import look
from gpudoctor.judging.measured import collectives, shortfalls
from gpudoctor.judging.measured.collectives import JUDGED_BYTES, LONG_MICROSECONDS, WORKLOAD, Session
from gpudoctor.judging.measured.expect import NOTHING, Expected
from gpudoctor.model import Action, Check, Figure, Finding, Problem, Skip, Status

OPERATIONS = ("all-gather", "reduce-scatter", "all-to-all", "broadcast", "send/recv")
AGAIN = "gpudoctor check --level full --only all-reduce,collectives"
SHOWN = 4  # wrong results that a message lists
PERFORMANCE = "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"

WRONG = Problem(
    id="collective-wrong",
    title="A collective over the GPUs delivers wrong data",
    why="NCCL reported no error, but what arrived is not what the other GPUs sent. Training with sharded weights, experts or "
    "pipelines on them computes wrong results.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Check whether copies and sums between the GPUs are correct", "gpudoctor check --only peer-transfers,all-reduce"),
        look("Check whether the data is correct without direct access", "NCCL_P2P_DISABLE=1 " + AGAIN),
        look("Check for memory and link errors", "nvidia-smi -q -d ECC,ROW_REMAPPER; nvidia-smi nvlink -e"),
    ),
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",),
)
SLOW = Problem(
    id="collective-slow",
    title="A collective is slower than the links between the GPUs allow",
    why="All GPUs wait for the slowest link in each exchange. If the all-reduce is fast, the links are good: NCCL chose a slow "
    "algorithm for this collective, or one direction or pair is slow.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look("Find out which pair, or which link to the host, is slow", "gpudoctor check --only peer-transfers,host-transfers"),
        look("List the NCCL variables and settings", "env | grep NCCL_; cat /etc/nccl.conf ~/.nccl.conf 2>/dev/null"),
        look("Measure again while the machine is idle", AGAIN),
    ),
    references=(PERFORMANCE,),
)


def sizes(session: Session, operation: str) -> list[tuple[str, dict[str, Any]]]:
    """What was measured of a collective, smallest first."""
    found = [(name, values) for name, values in session.values.items() if name.startswith(operation + " ")]
    return sorted(found, key=lambda entry: int(entry[1]["bytes"]))


def figures(facts: Facts) -> Iterator[Figure]:
    session = Session.of(facts)
    for operation in OPERATIONS:
        for name, values in sizes(session, operation):
            if "bus_gb_per_s" not in values:
                yield Figure(name, values["microseconds"], "µs", None, less_is_better=True)
                continue
            large = values["bytes"] >= JUDGED_BYTES or values["microseconds"] >= LONG_MICROSECONDS
            expected = share_of_links(session, operation) if large else NOTHING
            yield Figure(f"{name}, bus bandwidth", values["bus_gb_per_s"], "GB/s", None, expected.value, expected.rule)


def share_of_links(session: Session, operation: str) -> Expected:
    """What a collective reaches, from what an all-reduce over the same links does."""
    links, share = collectives.bus_gb_per_s(session.facts, session.gpus), knowledge.collective_share(operation)
    if links.value is None or share is None:
        return NOTHING
    return Expected(links.value * share, f"{share:.0%} of an all-reduce, which is {links.rule}")


def judge(facts: Facts) -> Iterator[Finding]:
    session = Session.of(facts)
    found = facts.once(figures)
    if not found:
        raise Skip("the collectives were not measured", Skip.NOT_MEASURED)
    yield from judge_data(session)
    for shortfall in shortfalls.shortfalls(facts, found):
        problem = replace(SLOW, status=Status.FAIL) if shortfall.is_failure else SLOW
        way = f", over {session.way}" if session.way else ""
        finding = problem.found(shortfall.words + way, {"connections": session.connections})
        yield replace(finding, because=cause(session))


def judge_data(session: Session) -> Iterator[Finding]:
    wrong: dict[int, dict[str, int]] = {}
    for name, values in sorted(session.values.items()):
        counts = values.get("wrong_parts", {}) if name.startswith("rank ") else {}
        if any(counts.values()):
            gpu = index_of(session.facts, session.facts.cuda.devices[values["gpu"]])
            wrong[gpu] = {what: count for what, count in counts.items() if count}
    if not wrong:
        return
    words = [f"GPU {gpu}: {count} wrong elements of {what}" for gpu, bad in wrong.items() for what, count in bad.items()]
    more = f"; and {len(words) - SHOWN} more" * (len(words) > SHOWN)
    evidence = {"wrong": {str(gpu): bad for gpu, bad in wrong.items()}}
    finding = WRONG.found("; ".join(words[:SHOWN]) + more, evidence, *(wrong if len(wrong) == 1 else ()))
    yield replace(finding, because=collectives.damage(session.facts) or ("all-reduce-wrong" if session.wrong_sums else ""))


def cause(session: Session) -> str:
    """The problem of all-reduce that slows the others down, too; "" if there is no such problem."""
    if session.linked and any(not name.startswith("P2P") for name in session.connections):
        return "nccl-bypasses-nvlink"
    expected = collectives.bus_gb_per_s(session.facts, session.gpus).value
    if session.judged is None or expected is None:
        return ""
    return "all-reduce-slow" if session.judged[1]["bus_gb_per_s"] < shortfalls.WARN * expected else ""


def summary(facts: Facts) -> str:
    session = Session.of(facts)
    last = [(operation, sizes(session, operation)[-1:]) for operation in OPERATIONS]
    speeds = [
        f"{operation} {values['bus_gb_per_s']:.0f}"
        for operation, found in last
        for _, values in found
        if "bus_gb_per_s" in values
    ]
    return f"GB/s of bus bandwidth: {', '.join(speeds)}; all data correct on {len(session.gpus)} GPUs"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(WRONG, SLOW),
    needs=("cuda-context",),
    level="full",
    workloads=(WORKLOAD,),
    figures=figures,
    tags=("nccl", "performance"),
)
