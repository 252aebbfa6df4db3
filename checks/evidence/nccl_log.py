"""The log of a job shows no needlessly slow transport in NCCL.

What it means
With NCCL_DEBUG=INFO, NCCL logs the transport of each channel: directly between the GPUs, through host memory, or over a network.

How it is judged
Only logs given as evidence are judged. If ranks on one machine communicate over a network socket, NCCL takes a slower path than
it could. If several machines communicate over TCP and NCCL reports a missing library or adapter, InfiniBand may be missing; the
log does not show whether the machines have it.

Known exceptions
Shared memory between GPUs without NVLink is normal, and so is TCP if there is no other network. TCP between machines is
reported only if NCCL's variables ask for InfiniBand. Within a machine NCCL may use a fast network adapter on purpose, but not a
socket.

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
        raise Skip("no NCCL log was given (--log FILE)")
    way = ", ".join(f"{name} ({count} channels)" for name, count in log.connections.items())
    sockets = any(name.startswith("NET/Socket") for name in log.connections)
    if log.nodes == 1 and sockets:
        yield within_machine(facts, way)
    wanted = [name for name in WANTED_INFINIBAND if name in log.settings]
    if (log.nodes or 1) > 1 and log.found_no_infiniband and wanted and "NCCL_IB_DISABLE" not in log.settings:
        words = (
            f"InfiniBand is requested ({', '.join(wanted)}), but NCCL found no adapter or no libibverbs and uses {log.network}"
        )
        evidence = {"wanted": wanted, "nodes": log.nodes, "network": log.network}
        yield facts.problems["nccl-no-ib-falls-back-socket"].found(words, evidence, confidence=Confidence.LIKELY)


def within_machine(facts: Facts, way: str) -> Finding:
    """Network transport between ranks of one machine; the cause is an NCCL variable if the log shows one."""
    settings = facts.nccl_log.settings
    named = {name: settings[name] for name in DETOURS if settings.get(name, "0") not in ("", "0")}
    words = f"all {facts.nccl_log.ranks} ranks are on one machine, but NCCL uses {way}"
    words += "".join(f"; {name}={value} is set" for name, value in named.items())
    finding = facts.problems["nccl-uses-network-within-machine"].found(words, {"connections": facts.nccl_log.connections})
    return replace(finding, because="nccl-env-leftovers" if named else "")


def summary(facts: Facts) -> str:
    log = facts.nccl_log
    way = ", ".join(log.connections) or "transport not shown in the log"
    where = f"{log.ranks} ranks on {log.nodes} machine{'s' if log.nodes != 1 else ''}" if log.ranks and log.nodes else "a job"
    return f"NCCL {log.version or 'of unknown version'}, {where}: {way}"


CHECK = Check(
    judge=judge,
    summary=summary,
    tags=("multi-gpu", "nccl", "network", "performance"),
)
