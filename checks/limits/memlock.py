"""Programs may lock as much memory as RDMA needs, and the kernel can lock it.

What it means
Network adapters and GPUs write to memory that must not move. To lock it, a program needs permission (ulimit -l) and the kernel
needs free pages. Without either, NCCL over InfiniBand fails with "Cannot allocate memory".

How it is judged
The soft limit on locked memory of this process: less than 1 MiB is always too little. With an active InfiniBand port, or an
active RoCE port if NCCL's settings select RoCE, any limit is too little, unless this process may ignore it (CAP_IPC_LOCK). On DGX
Spark, kernel 7.0.0-1019-nvidia with CmaTotal 0 is reported too.

Known exceptions
Without such ports, the desktop defaults (8 MiB, or an eighth of the memory) are enough. CUDA's pinned memory does not count
against the limit.

References
https://docs.nvidia.com/deeplearning/nccl/archives/nccl_2262/user-guide/docs/_sources/troubleshooting.rst.txt
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.limits import MEMLOCK
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

KIB = 1024
LEAST_BYTES = KIB * KIB
SPARK_KERNEL = "7.0.0-1019-nvidia"
NAMING = {"NCCL_IB_HCA", "NCCL_IB_GID_INDEX"}  # these are set for RoCE
GUIDE = "https://docs.nvidia.com/deeplearning/nccl/archives/nccl_2262/user-guide/docs/_sources/troubleshooting.rst.txt"

LIMITED = Problem(
    id="memlock-limited",
    title="The limit on locked memory is low (ulimit -l)",
    why="RDMA registers memory, which locks it. Above the limit, registration fails and NCCL ends with 'Call to ibv_reg_mr "
    "failed with error Cannot allocate memory'.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=MEMLOCK.ways,
    references=(GUIDE,),
)

SPARK = Problem(
    id="dgx-spark-cma-regression",
    title="This DGX Spark kernel cannot lock memory for RDMA",
    why="Kernel 7.0.0-1019-nvidia has no contiguous memory (CmaTotal is 0). Registering even 1 KB fails with 'Cannot allocate "
    "memory', although no limit is reached.",
    action=Action.REBOOT,
    fixes=(
        Fix(
            "Install the previous kernel and choose it in the boot menu",
            "sudo apt install linux-image-6.17.0-1031-nvidia",
            verify="uname -r; grep CmaTotal /proc/meminfo",
            on=("host",),
            kind="install",
            reboot=True,
        ),
        Fix("Ask the owner of the host to boot kernel 6.17.0-1031-nvidia", verify="uname -r", on=("container",)),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    kernel = known(lambda: facts.system.kernel)
    if kernel == SPARK_KERNEL and not facts.system.memory_mib.get("CmaTotal"):
        yield SPARK.found(f"kernel {kernel}, CmaTotal is 0", {"running_kernel": kernel})
    soft, hard = facts.limits.memlock
    if soft is None:
        return
    ports = known(lambda: rdma_ports(facts), []) if soft < LEAST_BYTES else rdma_ports(facts)
    if soft < LEAST_BYTES or (ports and not may_ignore_it(facts)):
        evidence = {"soft_kib": soft // KIB, "hard_kib": "unlimited" if hard is None else hard // KIB, "rdma_ports": len(ports)}
        words = f"{soft // KIB} KiB may be locked" + f", with {len(ports)} active InfiniBand or RoCE ports" * bool(ports)
        yield replace(LIMITED, fixes=MEMLOCK.raised(soft, hard)).found(words, evidence)


def rdma_ports(facts: Facts) -> list[str]:
    """The active ports that are meant for RDMA. An Ethernet adapter that supports RDMA is usually just a network card."""
    named = not NAMING.isdisjoint(facts.environment.nccl)
    active = (port for port in facts.system.infiniband_ports if port.state == "ACTIVE")
    return [port.device for port in active if named or port.link_layer == "InfiniBand"]


def may_ignore_it(facts: Facts) -> bool:
    return "CAP_IPC_LOCK" in facts.container.capabilities and not facts.container.user_namespace


def summary(facts: Facts) -> str:
    soft, _ = facts.limits.memlock
    return "memlock unlimited" if soft is None else f"memlock {soft // KIB} KiB, enough without RDMA"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(LIMITED, SPARK),
    tags=("memory", "nccl", "network", "slurm"),
)
