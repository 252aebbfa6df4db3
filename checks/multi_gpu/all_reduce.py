"""All GPUs together sum their numbers (all-reduce over NCCL) rightly, and as fast as their links let expect.

What it means
Training on several GPUs adds up the gradients of all of them in every step. NCCL does that, over the fastest way that it finds:
NVLink, else PCIe, else the memory of the host. Where it takes a slow way it says nothing; the job is only slow.

How it is judged
A torchrun session with one rank per GPU. Every rank compares every sum with the exact one. The bus bandwidth (as nccl-tests
defines it) of the largest size counts, from 256 MiB on, against the links that join all GPUs: NVLink version and number, or
generation and width of PCIe. NCCL's own log says which way it took: NVLinks that it leaves alone are a finding, with the variable
or the refusal that is the reason. 8 bytes must not take longer than 100 µs over NVLink, 200 µs over PCIe.

Known exceptions
Where NVLink joins some of the GPUs and not others, the bandwidth is shown and not judged. Reduction in the switches (NVLS) can be
faster than the links. Without NVLink, host memory is the usual way, and an RDMA network card may be a faster one: both are
judged by their speed alone. Where NCCL_DEBUG is set, NCCL's log may be elsewhere: then the way is unknown. Without torch, or
with one GPU, there is nothing to look at.

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
MOST_MICROSECONDS = {True: 100.0, False: 200.0, None: 200.0}  # for 8 bytes, by whether NVLink joins all
DETOURS = {"NCCL_P2P_DISABLE", "NCCL_P2P_DIRECT_DISABLE", "NCCL_SHM_DISABLE"}  # take a way off, unless they are 0
SHOWN = 4  # GPUs that a message names
NARROW_LEVELS = {"LOC", "0"}  # values of NCCL_P2P_LEVEL with which no GPU reaches another
RESTRICTIONS = {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_NTHREADS", "NCCL_LAUNCH_MODE"}

WRONG = Problem(
    id="all-reduce-wrong",
    title="GPUs that add up numbers together get wrong sums",
    why="NCCL reported no error, but the result is not the sum of what the GPUs sent. Training on them gives wrong models. "
    "Mostly data is damaged on its way between the GPUs.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("See whether copies between two GPUs are right", "gpudoctor check --only peer-transfers,all-reduce"),
        look("See whether direct access is at fault: without it the sums are right", "NCCL_P2P_DISABLE=1 " + AGAIN),
        look("Look for errors of memory and links", "nvidia-smi -q -d ECC,ROW_REMAPPER; nvidia-smi nvlink -e"),
    ),
    references=(GUIDE + "troubleshooting.html",),
)
BYPASSED = Problem(
    id="nccl-bypasses-nvlink",
    title="NCCL does not use the NVLinks that join the GPUs",
    why="The links are up, but NCCL sends through host memory or the network, at a tenth of the speed. A variable tells it to, "
    "or the driver refuses direct access.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("See which variables NCCL obeys", "env | grep NCCL_; cat /etc/nccl.conf ~/.nccl.conf"),
        look("See which GPUs may reach each other", "nvidia-smi topo -p2p r; nvidia-smi topo -m"),
        Fix("See what NCCL says when it starts, in a job of your own", "NCCL_DEBUG=INFO torchrun --nproc-per-node=gpu train.py"),
        look("Measure again", AGAIN),
    ),
    references=(GUIDE + "env.html", GUIDE + "troubleshooting.html"),
)
NETWORK = Problem(
    id="nccl-uses-network-within-machine",
    title="GPUs of one machine talk to each other through the network",
    why="NCCL sends by sockets what should stay in this machine. A variable forbids direct access and shared memory, the ranks "
    "cannot share memory, as in containers of their own, or NCCL takes a fast network card for the better way.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Let NCCL use shared memory again", "unset NCCL_SHM_DISABLE NCCL_P2P_DISABLE", verify=AGAIN, where="shell"),
        Fix(
            "If no such variable is set: keep NCCL from the network within a machine",
            "export NCCL_NET_DISABLE_INTRA=1",
            verify=AGAIN,
            where="shell",
        ),
        look("See whether there is room for shared memory", "df -h /dev/shm"),
        *again("In a container: share the host's", "run <all_gpus> --ipc=host IMAGE", spec="--ipc=host", on=("container",)),
    ),
    references=(GUIDE + "troubleshooting.html",),
)
SLOW = Problem(
    id="all-reduce-slow",
    title="All GPUs together add up their numbers more slowly than their links can carry",
    why="Each step of training waits for the slowest link. Where the message names no reason, none was seen: no variable, no "
    "other process, no heat, no lowered clock. What remains are links that repeat transfers, other traffic on the way, or work "
    "on the wrong side of the machine.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look("See which pair, or which link to the host, is slow", "gpudoctor check --only peer-transfers,host-transfers"),
        look(
            "See what joins the GPUs; look for errors of NVLinks, and whether they grow",
            "nvidia-smi topo -m; nvidia-smi nvlink -e",
        ),
        look("Measure again while the machine is idle", AGAIN),
    ),
    references=("https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",),
)
LATENCY = Problem(
    id="all-reduce-latency-high",
    title="Even the smallest sum of all GPUs takes long",
    why="Jobs with many small exchanges, such as a language model that is spread over GPUs, wait for each of them. A variable "
    "for debugging, too few processor cores, or a detour through host or network delay it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("Look for variables that make launches wait", "env | grep -E 'CUDA_|NCCL_|NSIGHT|PROFILE'"),
        PROCESSOR,
        look("Measure again while the machine is idle", AGAIN),
    ),
)


def figures(facts: Facts) -> Iterator[Figure]:
    session = Session.of(facts)
    for name, values in session.sizes:
        expected = collectives.bus_gb_per_s(facts, session.gpus) if (name, values) == session.judged else NOTHING
        yield Figure(f"{name}, bus bandwidth", values["bus_gb_per_s"], "GB/s", None, expected.value, expected.rule)
    if "latency" in session.values:
        yield Figure("all-reduce 8 B", session.values["latency"]["microseconds"], "µs", None, less_is_better=True)


def judge(facts: Facts) -> Iterator[Finding]:
    session = Session.of(facts)
    yield from judge_sums(session)
    if not session.sizes:
        raise Skip("no bandwidth was measured: see measurements", Skip.NO_ANSWER)
    detour = list(judge_way(session))
    yield from detour or [*judge_bandwidth(session), *judge_latency(session)]
    if not session.judged and any(failure.workload == WORKLOAD for failure in facts.measured.failures):
        raise Skip("no large sum came to its end: see measurements", Skip.NO_ANSWER)


def judge_sums(session: Session) -> Iterator[Finding]:
    wrong = session.wrong_sums
    if not wrong:
        return
    words = [
        f"GPU {gpu} got {', '.join(f'{count} of the sums of {size}' for size, count in bad.items())} wrong"
        for gpu, bad in wrong.items()
    ]
    more = f"; so did {len(words) - SHOWN} more" * (len(words) > SHOWN)
    message = "; ".join(words[:SHOWN]) + more + (f"; NCCL took {session.way}" if session.way else "")
    finding = WRONG.found(message, {"wrong": {str(gpu): bad for gpu, bad in wrong.items()}}, *(wrong if len(wrong) == 1 else ()))
    yield replace(finding, because=collectives.damage(session.facts))


def judge_way(session: Session) -> Iterator[Finding]:
    """Whether NCCL leaves links alone that it could take."""
    detours = [name for name in session.connections if not name.startswith("P2P")]
    network = any(name.startswith("NET/Socket") for name in detours)
    if not network and not (detours and session.linked):
        return
    problem = NETWORK if network else BYPASSED
    expected = collectives.bus_gb_per_s(session.facts, session.gpus).value
    ((name, values),) = session.sizes[-1:]
    words = f"NCCL takes {session.way}; " + (f"of the {expected:.3g} GB/s expected it gets " if expected else "")
    words += f"{values['bus_gb_per_s']:.3g} GB/s with {name.partition(' ')[2]}"
    unknown = problem.found(words, {"connections": session.connections})
    causes = [Cause(problem, partial(look, unknown)) for look in (by_variable, by_refusal, by_topology_file)]
    yield from first_cause(causes, session, unknown)


def by_variable(finding: Finding, session: Session) -> Finding | None:
    """The same, because a variable took the better way off."""
    for name, (value, because) in session.settings.items():
        narrow = name == "NCCL_P2P_LEVEL" and value.strip().upper() in NARROW_LEVELS
        if narrow or (name in DETOURS and value.strip() not in ("", "0")):
            evidence = {**finding.evidence, "variable": name}
            return replace(finding, message=f"{finding.message}; {name}={value} is set", evidence=evidence, because=because)
    return None


def by_refusal(finding: Finding, session: Session) -> Finding | None:
    """The same, because the driver refuses direct access."""
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
    """`0 to 1`: the pairs that peer-transfers could not join."""
    return [f"{one} to {other}" for (one, other), values in collectives.copies(session.facts).items() if values.get("refused")]


def by_topology_file(finding: Finding, session: Session) -> Finding | None:
    """The same, likely because a file tells NCCL what joins the GPUs, and leaves the links out."""
    value = session.settings.get("NCCL_TOPO_FILE", ("", ""))[0]
    if not value:
        return None
    words = f"{finding.message}; NCCL_TOPO_FILE={value} tells NCCL what joins the GPUs"
    return replace(finding, message=words, confidence=Confidence.LIKELY)


def by_restriction(finding: Finding, session: Session) -> Finding | None:
    """The same, because a variable fixes what NCCL would choose better."""
    for name, (value, because) in session.settings.items():
        if name in RESTRICTIONS and value.strip():
            return replace(finding, message=f"{finding.message}; {name}={value} is set", because=because)
    return None


def by_link(finding: Finding, session: Session) -> Finding | None:
    """The same, because a GPU's PCIe link was narrower or slower at work than it can be."""
    if session.linked:
        return None
    during = session.seen
    low = next(filter(None, (collectives.low_link(session.facts, int(index), during[index]) for index in during)), None)
    if low is None:
        return None
    return replace(finding, message=f"{finding.message}; {low.words}", gpu=low.gpu, because=low.because)


def by_pair(finding: Finding, session: Session) -> Finding | None:
    """The same, because peer-transfers found one pair of GPUs slow."""
    slow = collectives.slowest_pair(session.facts, session.gpus)
    if slow is None or slow.share >= shortfalls.WARN:
        return None
    return replace(finding, message=f"{finding.message}; {slow.words}", because="peer-transfers-slow")


def judge_bandwidth(session: Session) -> Iterator[Finding]:
    for shortfall in shortfalls.shortfalls(session.facts, session.facts.once(figures)):
        problem = replace(SLOW, status=Status.FAIL) if shortfall.is_failure else SLOW
        way = f", by {session.way}" if session.way else ""
        unknown = problem.found(shortfall.words + way, {"connections": session.connections})
        own = [Cause(SLOW, partial(look, unknown)) for look in (by_variable, by_restriction, by_link)]
        shared = [Cause(cause.problem, partial(on_any_gpu, cause.look, shortfall)) for cause in slowness.CAUSES]
        last = Cause(SLOW, partial(by_pair, unknown))  # a pair may be slow for one of the causes before
        yield from first_cause([*own, *shared, last], session, unknown)


def on_any_gpu(look: Callable[[Any], Finding | None], shortfall: Shortfall, session: Session) -> Finding | None:
    """One of the causes that slow a GPU down, of the first GPU on which it was seen: all others wait for that one."""
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
    shortfall = Shortfall(figure, most / figure.value, 1.0, f"the pace of {most:g} µs")
    for finding in launching.judge(session.facts, [shortfall], LATENCY, causes=()):
        rest = finding.message.removeprefix(f"GPU 0: {shortfall.words}")
        yield replace(finding, message=f"all-reduce 8 B {figure.value:.0f} µs, where {most:g} µs are enough{rest}", gpu=None)


def summary(facts: Facts) -> str:
    session = Session.of(facts)
    speed = [
        f"{values['bus_gb_per_s']:.0f} GB/s bus bandwidth with {name.partition(' ')[2]}" for name, values in session.sizes[-1:]
    ]
    latency = [f"{session.values['latency']['microseconds']:.0f} µs for 8 B"] if "latency" in session.values else []
    ways = [f"by {' and '.join(session.connections)}"] if session.connections else []
    return ", ".join([*speed, *ways, *latency, f"every sum right on {len(session.gpus)} GPUs"])


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(WRONG, BYPASSED, NETWORK, SLOW, LATENCY, *faults.ALL),
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
)
