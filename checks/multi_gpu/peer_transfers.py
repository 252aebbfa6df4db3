"""Each GPU sends data to each other GPU at the speed of their connection, and the data arrives intact.

What it means
Training on several GPUs sends gradients and activations between them all the time. A slow pair slows down all of them. A pair
that damages data ruins the training without an error; this happens if an IOMMU or access control (ACS) redirects the traffic.

How it is judged
Measures copies of up to 256 MiB between each two GPUs, one pair after the other, and in both directions at once. NVLink:
compared with the active links between the two (version and count). PCIe: compared with a share of what their links carry to
the host: 80 % below one switch, 60 % below one host bridge, 50 % between bridges of one NUMA node, 30 % between sockets, and
40 % without direct access, through host memory. The data that arrives is compared word by word. So is the data that kernels of
one GPU read from and write to the other's memory, as NCCL's kernels do. If CUDA refuses direct access although NVLink connects
the two, this is reported as the cause.

Known exceptions
In a virtual machine, which does not show the real path, pairs that are not below one switch are shown and not judged. So are
reads by kernels (level full) and copies of 4 B, and all pairs under WSL2, which shows no path at all. peer-access says why a pair
lacks access. A program with one GPU has no peers.

References
https://github.com/NVIDIA/nvbandwidth
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu_records import NvLink
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.judging.measured import expect, faults, slowness
from gpudoctor.judging.measured.expect import NOTHING, Expected
from gpudoctor.judging.measured.pairs import WORKLOAD, Pair, pairs
from gpudoctor.judging.measured.shortfalls import between
from gpudoctor.model import Action, Check, Confidence, Figure, Finding, Fix, Problem, Skip, Status

TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
AGAIN = "gpudoctor check --only peer-transfers"
SWITCHED = ("internal", "single switch", "switches")  # NVML's words for paths that do not go through the CPU
# Of what the slower link carries to the host. Measured: RTX 4090 below one CPU 1.0 (tinygrad/open-gpu-kernel-modules#6), H100
# through host memory 0.68 (NVIDIA/nccl#1264).
SHARES = {**dict.fromkeys(SWITCHED, 0.8), "host bridge": 0.6, "node": 0.5, "system": 0.3}
THROUGH_HOST = 0.4
REDIRECT = 0x1C  # ACS: request redirect, completion redirect, upstream forwarding
SHOWN = 4  # pairs that a message lists
WITHOUT_P2P = Fix("Until it is repaired: disable P2P in NCCL", "export NCCL_P2P_DISABLE=1", where="shell")

DAMAGED = Problem(
    id="peer-copy-damages-data",
    title="Data sent from one GPU to another arrives damaged",
    why="The driver offers direct access and reports no error, but the data that arrives is not the data that was sent. Training "
    "on these GPUs gives wrong results. The usual cause is an IOMMU or access control (ACS) that redirects PCIe traffic.",
    action=Action.FIX_CONFIG,
    fixes=(
        WITHOUT_P2P,
        look("Check whether the IOMMU translates (DMA)", "cat /sys/kernel/iommu_groups/*/type | sort | uniq -c", on=("host",)),
        look(
            "Check whether bridges redirect traffic (SrcValid+, ReqRedir+)",
            "sudo lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'",
            on=("host",),
            root=True,
        ),
        Fix(
            "Disable ACS and the IOMMU in the firmware, or boot with iommu=pt",
            risk="disruptive",
            needs=("root", "reboot"),
            verify=AGAIN,
            on=("host",),
        ),
        Fix("Ask the owner of the host to disable ACS and the IOMMU", verify=AGAIN, on=("container",)),
    ),
    references=(TROUBLE,),
)
DAMAGED_ON_NVLINK = replace(
    DAMAGED,
    why="The driver offers direct access and reports no error, but the data that arrives is not the data that was sent. Training "
    "on these GPUs gives wrong results. NVLink connects them: a link, a switch or the memory of one of them is faulty.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        WITHOUT_P2P,
        look("Check the links for errors, and whether they grow", "nvidia-smi nvlink -e; nvidia-smi nvlink -s"),
        look("Test the memory of both GPUs", "gpudoctor check --level full --only memory-pattern"),
        Fix("If data is still damaged after a reboot: have the board repaired", verify=AGAIN),
    ),
)
REFUSED = Problem(
    id="nvlink-peer-access-refused",
    title="CUDA refuses direct access between GPUs with NVLink",
    why="The links are up, but copies go through host memory, which is many times slower. A driver parameter, a fabric "
    "partition or the way in which the GPUs were assigned to this machine or container forbids it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("Show what NVML reports for each pair", "nvidia-smi topo -p2p r; nvidia-smi topo -m"),
        look(
            "On boards with switches: check whether Fabric Manager is running",
            "systemctl status nvidia-fabricmanager",
            on=("host",),
        ),
        Fix("Ask the owner of the host whether the GPUs are in one partition", verify=AGAIN, on=("container",)),
    ),
    references=(TROUBLE,),
)
IN_GUEST = (
    Fix(
        "A virtual machine needs ACS, which isolates it: let NCCL copy through host memory, and keep what is faster",
        "NCCL_P2P_DISABLE=1 all_reduce_perf -b 8 -e 128M -f 2 -g 2; all_reduce_perf -b 8 -e 128M -f 2 -g 2",
        kind="read",
    ),
    Fix("Ask the provider for GPUs that NVLink connects, or for a host whose GPUs you get without virtual machine", verify=AGAIN),
)
SLOW = Problem(
    id="peer-transfers-slow",
    title="Copies between two GPUs are slower than their connection allows",
    why="Direct access is allowed, and the GPU itself was not slowed down. The remaining causes are links that repeat transfers, "
    "a PCIe path that is redirected through the CPU, or other traffic.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look("Check the links for errors, and whether they grow", "nvidia-smi nvlink -e; nvidia-smi nvlink -s"),
        look("Show the links between the GPUs", "nvidia-smi topo -m"),
        look("Measure again while the machine is idle", AGAIN),
    ),
    references=(TROUBLE,),
)
SLOW_OVER_PCIE = replace(SLOW, fixes=SLOW.fixes[1:])


def figures(facts: Facts) -> Iterator[Figure]:
    (run,) = facts.measured.runs(WORKLOAD)
    sampled = run.values.get("pairs", {}).get("during", {})
    seen = {gpu: {name: value for name, value in of.items() if not name.endswith("_mhz")} for gpu, of in sampled.items()}
    for pair, links in facts.once(_linked):
        expected = way(facts, pair, links)
        yield Figure(
            pair.name,
            pair.values["gb_per_s"],
            "GB/s",
            pair.one,
            expected.value,
            expected.rule,
            wrong=pair.wrong,
            during=seen.get(str(pair.one), {}),
        )
    for pair in pairs(facts, "<>"):
        name = f"copy GPU {pair.one} and {pair.other}, both ways"
        yield Figure(name, pair.values["gb_per_s"], "GB/s", pair.one, wrong=pair.wrong)
    for pair in pairs(facts):
        yield Figure(f"{pair.name}, 4 B", pair.values["microseconds"], "µs", pair.one, less_is_better=True)
        if value := pair.values.get("read_nanoseconds"):
            yield Figure(f"read by GPU {pair.one} from GPU {pair.other}", value, "ns", pair.one, less_is_better=True)


def way(facts: Facts, pair: Pair, links: list[NvLink]) -> Expected:
    """What the connection of the pair can carry: NVLinks, or a path over PCIe; NOTHING for anything else."""
    if links and pair.refused:
        return NOTHING
    version = next((link.version for link in links if link.version), None)
    if version and (found := over_nvlink(int(float(version)), len(links))):
        return found
    path = known(lambda: facts.nvml.topology.get((min(pair[:2]), max(pair[:2]))))
    links_to_host = [expect.pcie_gb_per_s(facts, index) for index in pair[:2]]
    rates = [link.value for link in links_to_host if link.value]
    if links or path not in SHARES or len(rates) < 2:
        return NOTHING
    if path not in SWITCHED and known(lambda: facts.system.hypervisor, "unknown"):  # it hides the real path
        return NOTHING
    share, words = (THROUGH_HOST, " through host memory") if pair.refused else (SHARES[path], "")
    return Expected(share * min(rates), f"{share:.0%}{words} of what its PCIe link carries: {min(rates):.1f}")


@cache
def over_nvlink(version: int, links: int) -> Expected | None:
    rate, shares = knowledge.nvlink_gb_per_s(version, links), knowledge.nvlink_shares(version)
    if not rate or not shares:
        return None
    return Expected(rate * shares[0], f"{shares[0]:.0%} of NVLink {version} × {links} links: {rate:g}")


def _linked(facts: Facts) -> Iterator[tuple[Pair, list[NvLink]]]:
    for pair in pairs(facts):
        yield pair, links_between(facts, pair)


def links_between(facts: Facts, pair: Pair) -> list[NvLink]:
    """The sender's active links that lead to the receiver, directly or through switches."""
    other = expect.gpu(facts, pair.other)
    if expect.gpu(facts, pair.one) is None or other is None:
        return []
    direct = expect.links_by_remote(facts, pair.one).get(other.bus_id)
    return direct or min((expect.switched_links(facts, index) for index in (pair.one, pair.other)), key=len)


def judge(facts: Facts) -> Iterator[Finding]:
    found = facts.once(figures)
    yield from judge_data(facts)
    yield from judge_access(facts)
    judged = [replace(figure, wrong="") if figure.wrong else figure for figure in found if figure.expected]
    linked = {pair.name for pair, links in facts.once(_linked) if links}
    yield from slowness.judge(facts, [figure for figure in judged if figure.what in linked], otherwise=SLOW)
    for finding in slowness.judge(facts, [figure for figure in judged if figure.what not in linked], otherwise=SLOW_OVER_PCIE):
        yield redirected(facts, finding) if finding.problem.id == SLOW.id else finding


def judge_data(facts: Facts) -> Iterator[Finding]:
    bad = [pair for sign in (">", "<>") for pair in pairs(facts, sign) if pair.wrong]
    if bad:
        words = [f"GPU {pair.one} to {pair.other}: {pair.wrong}" for pair in bad]
        more = f" and {len(words) - SHOWN} more" * (len(words) > SHOWN)
        linked = any(links_between(facts, pair) for pair in bad)
        finding = (DAMAGED_ON_NVLINK if linked else DAMAGED).found("; ".join(words[:SHOWN]) + more, {"pairs": words})
        yield finding if linked else replace(finding, because=obstacle(facts))


def judge_access(facts: Facts) -> Iterator[Finding]:
    refused = [pair for pair, links in facts.once(_linked) if pair.refused and links]
    if refused:
        names = [f"{pair.one} to {pair.other}" for pair in refused]
        more = f" and {len(names) - SHOWN} more pairs" * (len(names) > SHOWN)
        speeds = [pair.values["gb_per_s"] for pair in refused]
        words = f"GPU {', '.join(names[:SHOWN])}{more}: {refused[0].refused}; a copy gets {min(speeds):.1f} GB/s"
        yield replace(REFUSED.found(words, {"pairs": names}), because="nvlink-peers-without-p2p")


def redirected(facts: Facts, finding: Finding) -> Finding:
    """The finding with its cause, if the path goes up to the CPU instead of through the switch."""
    if known(lambda: facts.system.hypervisor) and known(lambda: has_redirecting_bridge(facts), False):
        words = f"{finding.message}; bridges of this virtual machine redirect the traffic between the GPUs to the CPU (ACS)"
        problem = replace(finding.problem, fixes=(*IN_GUEST, *finding.problem.fixes))
        return replace(finding, message=words, problem=problem, confidence=Confidence.LIKELY)
    because = obstacle(facts)
    if not because:
        return finding
    words = f"{finding.message}; bridges or the IOMMU redirect the traffic between the GPUs"
    return replace(finding, message=words, because=because, confidence=Confidence.LIKELY)


def has_redirecting_bridge(facts: Facts) -> bool:
    return any((bridge.acs_control or 0) & REDIRECT for bridge in facts.pci.bridges.values())


def obstacle(facts: Facts) -> str:
    """The problem of iommu-acs that affects peer traffic over PCIe, or ""."""
    try:
        if facts.system.hypervisor:
            return ""
        if has_redirecting_bridge(facts):
            return "nccl-p2p-hang-acs-iommu"
        translated = any((gpu.iommu_group_type or "").startswith("DMA") for gpu in facts.pci.gpus)
        return "iommu-translates-peer-traffic" if translated else ""
    except Skip:
        return ""


def summary(facts: Facts) -> str:
    all_pairs = list(pairs(facts))
    speeds = between([pair.values["gb_per_s"] for pair in all_pairs])
    staged = sum(bool(pair.refused) for pair in all_pairs)
    through = f", {staged} of them through host memory" if staged else ""
    return f"{speeds} GB/s between {len(all_pairs)} pairs{through}, data intact"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(DAMAGED, REFUSED, SLOW, *faults.ALL),
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
    tags=("performance",),
)
