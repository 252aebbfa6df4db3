"""All GPUs together compute correct sums (all-reduce over NCCL), at the speed of their links.

What it means
Training on several GPUs sums the gradients of all GPUs in every step. NCCL does this over the fastest path that it finds:
NVLink, else PCIe, else host memory. If it takes a slow path, it reports nothing; the job is only slow.

How it is judged
A torchrun session with one rank per GPU. Every rank compares every sum with the exact one. The bus bandwidth (as nccl-tests
defines it) of the largest size, from 256 MiB on, is compared with the links between all GPUs: NVLink version and count, or
PCIe generation and width. NCCL's own log shows which path it took. NVLinks that it does not use are a finding, with the
variable or the refusal that causes it. 8 bytes may take at most 100 µs over NVLink, 200 µs over PCIe.
At level full, the time of NCCL's own function, without torch, is shown too.

Known exceptions
If NVLink connects only some of the GPUs, the bandwidth is shown and not judged. Reduction in the switches (NVLS) can be
faster than the links. Under WSL2, NVML shows no links, so the bandwidth is not judged; wsl-nccl judges NCCL and the driver.
Without NVLink, host memory is the usual path, and an RDMA network card may be faster: both are judged by their speed alone. If
NCCL_DEBUG is set, NCCL's log may go elsewhere; the path is then unknown. Without torch, or with one GPU, the check is skipped.

References
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import PROCESSOR, look
from gpudoctor.fixes.engines import again
from gpudoctor.judging.measured import collectives, faults, launching, shortfalls, slowness
from gpudoctor.judging.measured.collectives import WORKLOAD, Session
from gpudoctor.judging.measured.expect import NOTHING
from gpudoctor.judging.measured.shortfalls import Shortfall
from gpudoctor.judging.measured.slowness import Slow
from gpudoctor.model import Action, Cause, Check, Confidence, Figure, Finding, Fix, Problem, Skip, Status, first_cause

GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/"
AGAIN = "gpudoctor check --only all-reduce"
MOST_MICROSECONDS = {True: 100.0, False: 200.0, None: 200.0}  # for 8 bytes, by whether NVLink connects all GPUs
DETOURS = {"NCCL_P2P_DISABLE", "NCCL_P2P_DIRECT_DISABLE", "NCCL_SHM_DISABLE"}  # disable a path, unless they are 0
SHOWN = 4  # GPUs that a message lists
NARROW_LEVELS = {"LOC", "0"}  # values of NCCL_P2P_LEVEL that disable all peer-to-peer access
RESTRICTIONS = {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_NTHREADS", "NCCL_LAUNCH_MODE"}

WRONG = Problem(
    id="all-reduce-wrong",
    title="All-reduce over the GPUs gives wrong sums",
    why="NCCL reported no error, but the result is not the sum of what the GPUs sent. Training on them gives wrong models. "
    "Usually the data is damaged between the GPUs.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Check whether copies between two GPUs are correct", "gpudoctor check --only peer-transfers,all-reduce"),
        look("Check whether the sums are correct without direct access", "NCCL_P2P_DISABLE=1 " + AGAIN),
        look("Check for memory and link errors", "nvidia-smi -q -d ECC,ROW_REMAPPER; nvidia-smi nvlink -e"),
    ),
    references=(GUIDE + "troubleshooting.html",),
)
BYPASSED = Problem(
    id="nccl-bypasses-nvlink",
    title="NCCL does not use the NVLinks between the GPUs",
    why="The links are up, but NCCL sends through host memory or the network, at a tenth of the speed. A variable makes it do "
    "so, or the driver refuses direct access.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("List the NCCL variables and settings", "env | grep NCCL_; cat /etc/nccl.conf ~/.nccl.conf 2>/dev/null"),
        look("Show which GPUs have access to each other", "nvidia-smi topo -p2p r; nvidia-smi topo -m"),
        Fix("Read what NCCL logs at its start in your own job", "NCCL_DEBUG=INFO torchrun --nproc-per-node=gpu train.py"),
        look("Measure again", AGAIN),
    ),
    references=(GUIDE + "env.html", GUIDE + "troubleshooting.html"),
)
NETWORK = Problem(
    id="nccl-uses-network-within-machine",
    title="NCCL sends data between GPUs of one machine over the network",
    why="NCCL uses sockets for data that should stay in this machine. A variable forbids direct access and shared memory, the "
    "ranks cannot share memory (for example in separate containers), or NCCL rates a fast network card as the better path.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Let NCCL use shared memory again", "unset NCCL_SHM_DISABLE NCCL_P2P_DISABLE", verify=AGAIN, where="shell"),
        Fix(
            "If no such variable is set: disable the network within a machine in NCCL",
            "export NCCL_NET_DISABLE_INTRA=1",
            verify=AGAIN,
            where="shell",
        ),
        look("Check whether there is room for shared memory", "df -h /dev/shm"),
        *again(
            "In a container: share the host's memory",
            "run <all_gpus> --ipc=host <image>",
            spec="set hostIPC: true",
            on=("container",),
        ),
    ),
    references=(GUIDE + "troubleshooting.html",),
)
SLOW = Problem(
    id="all-reduce-slow",
    title="All-reduce over the GPUs is slower than their links allow",
    why="Each training step waits for the slowest link. If the message gives no reason, no variable, other process, heat or "
    "lowered clock was found. The remaining causes are links that repeat transfers, other traffic on the path, or processes on "
    "the wrong NUMA node.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look("Find out which pair, or which link to the host, is slow", "gpudoctor check --only peer-transfers,host-transfers"),
        look(
            "Show the links between the GPUs; check whether NVLink errors grow",
            "nvidia-smi topo -m; nvidia-smi nvlink -e",
        ),
        look("Measure again while the machine is idle", AGAIN),
    ),
    references=("https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",),
)
LATENCY = Problem(
    id="all-reduce-latency-high",
    title="Even the smallest all-reduce over the GPUs takes long",
    why="Jobs with many small exchanges, such as a language model on several GPUs, wait for each of them. The cause is a "
    "debugging variable, too few CPU cores, or a detour through host memory or the network.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("List variables that make launches wait", "env | grep -E 'CUDA_|NCCL_|NSIGHT|PROFILE'"),
        PROCESSOR,
        look("Measure again while the machine is idle", AGAIN),
    ),
)


def figures(facts: Facts) -> Iterator[Figure]:
    session = Session.of(facts)
    for name, values in session.sizes:
        expected = collectives.bus_gb_per_s(facts, session.gpus) if (name, values) == session.judged else NOTHING
        yield Figure(f"{name}, bus bandwidth", values["bus_gb_per_s"], "GB/s", None, expected.value, expected.rule)
    for name, what in (("latency", "all-reduce 8 B"), ("latency of NCCL", "all-reduce 8 B, NCCL without torch")):
        if name in session.values:
            yield Figure(what, session.values[name]["microseconds"], "µs", None, less_is_better=True)


def judge(facts: Facts) -> Iterator[Finding]:
    session = Session.of(facts)
    yield from judge_sums(session)
    if not session.sizes:
        raise Skip("no bandwidth was measured: see measurements", Skip.NO_ANSWER)
    detour = list(judge_way(session))
    yield from detour or [*judge_bandwidth(session), *judge_latency(session)]
    if not session.judged and any(failure.workload == WORKLOAD for failure in facts.measured.failures):
        raise Skip("no large all-reduce finished: see measurements", Skip.NO_ANSWER)


def judge_sums(session: Session) -> Iterator[Finding]:
    wrong = session.wrong_sums
    if not wrong:
        return
    words = [
        f"GPU {gpu}: {', '.join(f'{count} wrong sums of {size}' for size, count in bad.items())}" for gpu, bad in wrong.items()
    ]
    more = f"; wrong sums on {len(words) - SHOWN} more" * (len(words) > SHOWN)
    message = "; ".join(words[:SHOWN]) + more + (f"; NCCL used {session.way}" if session.way else "")
    finding = WRONG.found(message, {"wrong": {str(gpu): bad for gpu, bad in wrong.items()}}, *(wrong if len(wrong) == 1 else ()))
    yield replace(finding, because=collectives.damage(session.facts))


def judge_way(session: Session) -> Iterator[Finding]:
    """Links that NCCL could use but does not."""
    detours = [name for name in session.connections if not name.startswith("P2P")]
    network = any(name.startswith("NET/Socket") for name in detours)
    if not network and not (detours and session.linked):
        return
    problem = NETWORK if network else BYPASSED
    expected = collectives.bus_gb_per_s(session.facts, session.gpus).value
    ((name, values),) = session.sizes[-1:]
    words = f"NCCL uses {session.way}; bus bandwidth {values['bus_gb_per_s']:.3g} GB/s with {name.partition(' ')[2]}"
    words += f", expected {expected:.3g} GB/s" if expected else ""
    unknown = problem.found(words, {"connections": session.connections})
    causes = [Cause(problem, partial(look, unknown)) for look in (by_variable, by_refusal, by_topology_file)]
    yield from first_cause(causes, session, unknown)


def by_variable(finding: Finding, session: Session) -> Finding | None:
    """The finding, caused by a variable that disables the better path."""
    for name, (value, because) in session.settings.items():
        narrow = name == "NCCL_P2P_LEVEL" and value.strip().upper() in NARROW_LEVELS
        if narrow or (name in DETOURS and value.strip() not in ("", "0")):
            evidence = {**finding.evidence, "variable": name}
            return replace(finding, message=f"{finding.message}; {name}={value} is set", evidence=evidence, because=because)
    return None


def by_refusal(finding: Finding, session: Session) -> Finding | None:
    """The finding, caused by a driver that refuses direct access."""
    said = session.values.get("nccl", {}).get("refused", [])
    pairs = [pair for pair in session.facts.nvml.p2p.items() if set(pair[0]) <= set(session.gpus) and pair[1] != "ok"]
    words = [f"NVML on GPU {one} and {other}: {word}" for (one, other), word in pairs] + said
    by_cuda = [] if pairs else refused_by_cuda(session)
    words += [f"CUDA refuses direct access from GPU {pair}" for pair in by_cuda]
    if not words or session.linked is False:
        return None
    evidence = {**finding.evidence, "refused": words}
    because = "nvlink-peer-access-refused" if by_cuda else "nvlink-peers-without-p2p"
    return replace(finding, message=f"{finding.message}; {words[0]}", evidence=evidence, because=because)


def refused_by_cuda(session: Session) -> list[str]:
    """`0 to 1`: the pairs for which peer-transfers got no direct access."""
    return [f"{one} to {other}" for (one, other), values in collectives.copies(session.facts).items() if values.get("refused")]


def by_topology_file(finding: Finding, session: Session) -> Finding | None:
    """The finding, likely caused by a topology file that leaves the links out."""
    value = session.settings.get("NCCL_TOPO_FILE", ("", ""))[0]
    if not value:
        return None
    words = f"{finding.message}; NCCL_TOPO_FILE={value} gives NCCL the topology"
    return replace(finding, message=words, confidence=Confidence.LIKELY)


def by_restriction(finding: Finding, session: Session) -> Finding | None:
    """The finding, caused by a variable that fixes a choice which NCCL should make."""
    for name, (value, because) in session.settings.items():
        if name in RESTRICTIONS and value.strip():
            return replace(finding, message=f"{finding.message}; {name}={value} is set", because=because)
    return None


def by_link(finding: Finding, session: Session) -> Finding | None:
    """The finding, caused by a GPU's PCIe link that was narrower or slower under load than it can be."""
    if session.linked:
        return None
    during = session.seen
    low = next(filter(None, (collectives.low_link(session.facts, int(index), during[index]) for index in during)), None)
    if low is None:
        return None
    return replace(finding, message=f"{finding.message}; {low.words}", gpu=low.gpu, because=low.because)


def by_pair(finding: Finding, session: Session) -> Finding | None:
    """The finding, caused by a pair of GPUs that peer-transfers found slow."""
    slow = collectives.slowest_pair(session.facts, session.gpus)
    if slow is None or slow.share >= shortfalls.WARN:
        return None
    return replace(finding, message=f"{finding.message}; {slow.words}", because="peer-transfers-slow")


def judge_bandwidth(session: Session) -> Iterator[Finding]:
    for shortfall in shortfalls.shortfalls(session.facts, session.facts.once(figures)):
        problem = replace(SLOW, status=Status.FAIL) if shortfall.is_failure else SLOW
        way = f", over {session.way}" if session.way else ""
        unknown = problem.found(shortfall.words + way, {"connections": session.connections})
        own = [Cause(SLOW, partial(look, unknown)) for look in (by_variable, by_restriction, by_link)]
        shared = [Cause(cause.problem, partial(on_any_gpu, cause.look, shortfall)) for cause in slowness.CAUSES]
        last = Cause(SLOW, partial(by_pair, unknown))  # a pair may be slow because of one of the causes before
        yield from first_cause([*own, *shared, last], session, unknown)


def on_any_gpu(look: Callable[[Any], Finding | None], shortfall: Shortfall, session: Session) -> Finding | None:
    """The cause on the first GPU that it slows down: all other GPUs wait for that one."""
    for index, during in session.seen.items():
        one = shortfall._replace(figure=replace(shortfall.figure, gpu=int(index), during=during))
        finding = look(Slow(session.facts, int(index), one, [one]))
        if finding:
            return finding
    return None


def judge_latency(session: Session) -> Iterator[Finding]:
    values, most = session.values.get("latency"), MOST_MICROSECONDS[session.linked]
    if not values or values["microseconds"] <= most:
        return
    figure = Figure("all-reduce 8 B", values["microseconds"], "µs", None, less_is_better=True)
    shortfall = Shortfall(figure, most / figure.value, 1.0, f"the limit of {most:g} µs")
    for finding in launching.judge(session.facts, [shortfall], LATENCY, causes=()):
        rest = finding.message.removeprefix(f"GPU 0: {shortfall.words}")
        yield replace(finding, message=f"all-reduce of 8 B takes {figure.value:.0f} µs, more than {most:g} µs{rest}", gpu=None)


def summary(facts: Facts) -> str:
    session = Session.of(facts)
    sizes = [(name.partition(" ")[2], values["bus_gb_per_s"]) for name, values in session.sizes[-1:]]
    speed = [f"{speed:.0f} GB/s bus bandwidth with {size}" for size, speed in sizes]
    latency = [f"{session.values['latency']['microseconds']:.0f} µs for 8 B"] if "latency" in session.values else []
    ways = [f"over {' and '.join(session.connections)}"] if session.connections else []
    return ", ".join([*speed, *ways, *latency, f"all sums correct on {len(session.gpus)} GPUs"])


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(WRONG, BYPASSED, NETWORK, SLOW, LATENCY, *faults.ALL),
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
    tags=("nccl", "performance"),
)
