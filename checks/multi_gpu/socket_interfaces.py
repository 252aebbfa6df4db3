"""NCCL and Gloo choose an interface that leads to the other machines of a job.

What it means
Before a job on several machines begins, its processes find each other over ordinary sockets. NCCL takes the first interface by
a rule of names, PyTorch's Gloo the address that the machine's own name leads to. If that is a bridge of containers or the
loopback interface, the job waits until its time limit, or fails with "Connection refused", on a machine that is otherwise
healthy.

How it is judged
Applies NCCL's rule to the interfaces that are up and have an address: names that begin with ib, then all but docker, lo and
virbr; NCCL_SOCKET_IFNAME replaces it. Resolves the machine's name as PyTorch does. A virtual interface before a real one, and
a name that leads to the loopback interface or to no address of this machine, are warned about only on machines that take part
in jobs with others: with active InfiniBand ports, or inside a job of Slurm on several nodes. GLOO_SOCKET_IFNAME must name
interfaces that exist: prefixes and ^ are NCCL's alone.

Known exceptions
On one machine every interface does, also the loopback one. NCCL_COMM_ID, which changes NCCL's choice, is not followed. Whether a
firewall lies between the machines is not known.

References
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname
https://github.com/NVIDIA/nccl/blob/master/src/misc/socket.cc
https://github.com/pytorch/pytorch/pull/26166
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, for_each

VIRTUAL = re.compile(
    r"docker | br- | virbr | veth | cni | flannel | cali | tunl | podman | lxc | lxd | tailscale | wg | zt | dummy | kube",
    re.VERBOSE,
)
NODES = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")
SHOW = look(
    "Show the interfaces with their addresses, and where the machine's name leads", "ip -br addr; getent ahosts $(hostname)"
)

BRIDGE = Problem(
    id="nccl-chooses-virtual-interface",
    title="NCCL chooses a virtual network interface before a real one",
    why="NCCL finds the ranks of a job over the first interface by its rule, which leaves out docker, lo and virbr only. A "
    "bridge of containers or a tunnel does not lead to the other machines, so the job waits or fails.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Name the interface that leads to the other machines", "export NCCL_SOCKET_IFNAME=<there>", where="shell"),
        SHOW,
    ),
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname",),
)
LOOPBACK = Problem(
    id="gloo-uses-loopback",
    title="The machine's name leads to no interface, so Gloo uses loopback",
    why="PyTorch's Gloo binds to the address of the machine's own name, and else to 127.0.0.1. Ranks on other machines then "
    "connect to themselves: connectFullMesh fails with 'Connection refused', or waits.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Name the interface that leads to the other machines", "export GLOO_SOCKET_IFNAME=<there>", where="shell"),
        Fix("Let the machine's name lead to that interface's address, in DNS or /etc/hosts", on=("host",)),
        SHOW,
    ),
    references=("https://github.com/pytorch/pytorch/pull/26166",),
)
NO_SUCH = Problem(
    id="gloo-socket-interface-missing",
    title="GLOO_SOCKET_IFNAME names an interface that does not exist",
    why="Gloo takes whole names of interfaces. With any other it stops: 'Unable to find address for'. Prefixes and ^ work in "
    "NCCL_SOCKET_IFNAME only.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Name an interface that exists", "export GLOO_SOCKET_IFNAME=<there>", where="shell"),
        Fix(
            "Unset the variable, so that the machine's name decides",
            "unset GLOO_SOCKET_IFNAME",
            verify="env | grep GLOO_ || echo 'no Gloo variables are set'",
            where="shell",
        ),
        SHOW,
    ),
    references=("https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupGloo.cpp",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if not has_others(facts) and not known(lambda: facts.sockets.interfaces):
        raise Skip("this machine shows no sign of jobs with other machines")
    yield from for_each((named, bridge, loopback), lambda part: part(facts))


def has_others(facts: Facts) -> bool:
    """Whether this machine takes part in jobs with others."""
    nothing: dict[str, str] = {}
    variables = known(lambda: facts.environment.variables, nothing)
    several = any(variables.get(name, "").isdigit() and int(variables[name]) > 1 for name in NODES)
    return several or any(port.state == "ACTIVE" for port in known(lambda: facts.system.infiniband_ports, ()))


def real(facts: Facts) -> list[str]:
    """Interfaces that may lead to other machines."""
    return [
        each.name
        for each in facts.sockets.interfaces
        if each.running and each.has_address and not each.loopback and not VIRTUAL.match(each.name)
    ]


def named(facts: Facts) -> Iterator[Finding]:
    value = facts.environment.get("GLOO_SOCKET_IFNAME") or ""
    wanted = [name for name in value.split(",") if name] if len(value) > 1 else []
    there = [each.name for each in facts.sockets.interfaces if each.has_address]
    missing = [name for name in wanted if name not in there]
    if missing:
        yield NO_SUCH.found(
            f"GLOO_SOCKET_IFNAME is {value!r}; interfaces with an address are {', '.join(there) or 'none'}",
            {"value": value, "interfaces": there, "there": next(iter(real(facts)), None)},
        )


def bridge(facts: Facts) -> Iterator[Finding]:
    setting = facts.environment.nccl.get("NCCL_SOCKET_IFNAME")
    chosen, others = facts.sockets.chosen_by_nccl(setting.value if setting else None), real(facts)
    if chosen and others and has_others(facts) and VIRTUAL.match(chosen[0]):
        yield BRIDGE.found(
            f"NCCL would take {', '.join(chosen)}, in this order; {others[0]} is the first that is not virtual",
            {"chosen": list(chosen), "there": others[0]},
        )


def loopback(facts: Facts) -> Iterator[Finding]:
    own, others = facts.sockets.own, real(facts)
    if facts.environment.get("GLOO_SOCKET_IFNAME") or own.kind == "interface" or not others or not has_others(facts):
        return
    yield LOOPBACK.found(f"the machine's name {LEADS[own.kind]}", {"leads_to": own.kind, "there": others[0]})


LEADS = {
    "loopback": "leads to the loopback interface",
    "foreign": "leads to an address that no interface here has",
    "unresolved": "is not resolved to any address",
}


def summary(facts: Facts) -> str:
    setting, gloo = facts.environment.nccl.get("NCCL_SOCKET_IFNAME"), facts.environment.get("GLOO_SOCKET_IFNAME")
    nccl = ", ".join(facts.sockets.chosen_by_nccl(setting.value if setting else None)) or "no interface"
    own = facts.sockets.own
    by_name = (own.interface or "an interface") if own.kind == "interface" else "the loopback interface"
    return f"NCCL would use {nccl}, Gloo {gloo or by_name}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(BRIDGE, LOOPBACK, NO_SUCH),
    tags=("nccl", "network"),
)
