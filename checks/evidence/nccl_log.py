"""The log of a job tells no detour of NCCL.

What it means
With NCCL_DEBUG=INFO NCCL says which way each channel takes: straight between the GPUs, through host memory, or through a network.

How it is judged
Only logs that were given as evidence are. Ranks of one machine that talk through a network take a detour. Machines that talk by
TCP while NCCL names a missing library or adapter may lack InfiniBand: whether they have any, the log does not tell.

Known exceptions
Shared memory between GPUs without NVLink is normal, and so is TCP where there is no other network: then nothing is told unless
NCCL's variables switched the better way off. Within a machine NCCL may take a fast adapter on purpose, not a socket.

References
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.model import Check, Confidence, Finding, Skip

DETOURS = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_P2P_LEVEL")
WANTED_INFINIBAND = ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_TC", "NCCL_IB_TIMEOUT", "NCCL_IB_SL", "NCCL_NET_GDR_LEVEL")


def judge(facts: Facts) -> Iterator[Finding]:
    log = facts.nccl_log
    if not log.values:
        raise Skip("no log of NCCL was given as evidence (--log FILE)")
    way = ", ".join(f"{name} ({count} channels)" for name, count in log.connections.items())
    sockets = any(name.startswith("NET/Socket") for name in log.connections)
    if log.nodes == 1 and sockets:
        yield within_machine(facts, way)
    wanted = [name for name in WANTED_INFINIBAND if name in log.settings]
    if (log.nodes or 1) > 1 and log.found_no_infiniband and wanted and "NCCL_IB_DISABLE" not in log.settings:
        words = f"{' and '.join(wanted)} ask for InfiniBand, but NCCL found no adapter or no libibverbs, and takes {log.network}"
        evidence = {"wanted": wanted, "nodes": log.nodes, "network": log.network}
        yield facts.problems["nccl-no-ib-falls-back-socket"].found(words, evidence, confidence=Confidence.LIKELY)


def within_machine(facts: Facts, way: str) -> Finding:
    """Through the network within one machine: because of a variable, where the log names one."""
    settings = facts.nccl_log.settings
    named = {name: settings[name] for name in DETOURS if settings.get(name, "0") not in ("", "0")}
    words = f"all {facts.nccl_log.ranks} ranks are on one machine; NCCL takes {way}"
    words += "".join(f"; {name}={value} is set" for name, value in named.items())
    finding = facts.problems["nccl-uses-network-within-machine"].found(words, {"connections": facts.nccl_log.connections})
    return replace(finding, because="nccl-env-leftovers" if named else "")


def summary(facts: Facts) -> str:
    log = facts.nccl_log
    way = ", ".join(log.connections) or "the way is not told"
    where = f"{log.ranks} ranks on {log.nodes} machine{'s' if log.nodes != 1 else ''}" if log.ranks and log.nodes else "a job"
    return f"NCCL {log.version or 'of unknown version'}, {where}: {way}"


CHECK = Check(
    judge=judge,
    summary=summary,
)
