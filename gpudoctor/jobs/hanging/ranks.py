"""Whether NCCL's RAS socket of a job can be asked, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpudoctor.jobs.hanging import ras
from gpudoctor.jobs.hanging.proc import Proc
from gpudoctor.jobs.hanging.process import Sampled
from gpudoctor.jobs.hanging.sockets import Sockets


def asked(proc: Proc, every: Mapping[int, Sampled]) -> tuple[dict[str, Any] | None, str]:
    """The answer, or why it was not asked."""
    members = [one for one in every.values() if one.place.world > 1] or [one for one in every.values() if one.is_python]
    if not members:
        return None, "no rank was found"
    variables = members[0].variables
    if variables.get("NCCL_RAS_ENABLE") == "0":
        return None, "NCCL_RAS_ENABLE=0 turned it off"
    address = variables.get("NCCL_RAS_ADDR") or ras.DEFAULT
    pid = members[0].pid
    if proc.link(pid, "ns/net") != str(Path("/proc/self/ns/net").readlink()):
        return None, "the program runs in another network namespace: run gpudoctor in its container"
    port = address.rpartition(":")[2]
    listening = Sockets(proc, pid).listening(int(port)) if port.isdigit() else []
    if not listening:
        return None, f"no NCCL answers at {address} (NCCL 2.24 or newer does, once it is initialised)"
    wanted = {f"socket:[{inode}]" for inode in listening}
    holders = [other for other in every if any(proc.link(other, f"fd/{fd}") in wanted for fd in proc.names(other, "fd"))]
    if not holders and not proc.denied & every.keys():
        return None, f"{address} belongs to another program"
    return ras.asked(address), ""


def can_ask_again(answer: Mapping[str, Any]) -> bool:
    """A second answer shows whether the counts grow; a rank that does not answer would make it wait again."""
    report = answer.get("report")
    return "text" in answer or (report is not None and not any(one["missing"] for one in report["communicators"]))
