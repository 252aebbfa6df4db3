"""The InfiniBand and RoCE ports are up, and NCCL can use them.

What it means
Between machines NCCL uses InfiniBand or RoCE if it can, and otherwise TCP, without an error and at a fraction of the speed.
Ports that are down, or of two kinds, stop a job with "error 12" when NCCL pairs two ports that cannot reach each other.

How it is judged
Reads the ports in /sys/class/infiniband: their state, physical state and link layer. If an InfiniBand port is active, or
NCCL's settings name adapters, it also checks the device nodes /dev/infiniband/uverbs* and the library libibverbs.so.1. An
adapter that NCCL_IB_HCA allows must exist.

Known exceptions
A machine without such ports is skipped. An Ethernet adapter that supports RoCE is usually just a network card. Ethernet ports
without a cable, ports that were disabled, and a machine on which no port is up are unused, not broken. Two kinds of ports are
fine if NCCL_IB_HCA names the ones to use, or if there is an active InfiniBand port for each GPU: NCCL then takes the nearest, and
Ethernet carries storage. NCCL_IB_DISABLE is judged by nccl-environment. Ports of NVSwitches that stay in
INIT follow from a Fabric Manager that is not running.

References
https://github.com/NVIDIA/nccl-tests/issues/166
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.system import InfinibandPort
from gpudoctor.fixes.common import install_on, look
from gpudoctor.fixes.engines import again
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

SOCKETS = "https://github.com/NVIDIA/nccl-tests/issues/166"
TEST = "NCCL_DEBUG=INFO all_reduce_perf -b 8 -e 128M -f 2 2>&1 | grep 'Using network'"
LIBRARY = "libibverbs.so.1"
PACKAGES = ("libibverbs1", "libibverbs")
# The NVSwitches of B200 and B300 appear here as InfiniBand ports, which wait for NVLink's own subnet manager.
NO_MANAGER = "ib-subnet-manager-missing"
# The adapters of a board with NVLink 5 get their manager from Fabric Manager.
MANAGER_OF_NVLINK = (
    *("fabricmanager-ib-umad-missing", "nvlink-subnet-manager-missing", "fabricmanager-version-mismatch"),
    *("fabricmanager-not-running-802", NO_MANAGER),
)
NAMING = {"NCCL_IB_HCA", "NCCL_IB_GID_INDEX"}  # setting one of these means that RoCE is wanted

BROKEN_PORTS = Problem(
    id="nccl-ib-completion-error-12",
    title="InfiniBand ports are down or of two kinds, so NCCL may fail",
    why="NCCL uses every active port and pairs the ports between machines. If one is down or on another network, a job fails "
    "with 'Got completion from peer with error 12'.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("List the ports; each port for GPU traffic should be Active and LinkUp", "ibstat || ibv_devinfo"),
        look(
            "Check cable and switch of the ports that are down; INIT means that no subnet manager answers",
            "sudo sminfo; sudo iblinkinfo | head -n 40",
            on=("host",),
            root=True,
        ),
        Fix("Name the ports to use", "export NCCL_IB_HCA=<active>", verify=TEST, where="shell"),
    ),
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
)

NOT_THERE = Problem(
    id="nccl-ib-adapter-missing",
    title="NCCL_IB_HCA matches no InfiniBand or RoCE adapter",
    why="NCCL uses only the adapters that the variable allows. If none of them exists, it falls back to TCP without an error, at "
    "a fraction of the speed.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Unset the variable, so that NCCL chooses", "unset NCCL_IB_HCA", verify=TEST, where="shell"),
        Fix("Name adapters that exist", "export NCCL_IB_HCA=<active>", verify=TEST, where="shell"),
        look("List the adapters; the variable takes beginnings of names", "ls /sys/class/infiniband"),
    ),
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
)

UNUSABLE = Problem(
    id="nccl-no-ib-falls-back-socket",
    title="InfiniBand is active, but NCCL cannot use it and falls back to TCP",
    why="NCCL needs the library libibverbs and the device nodes in /dev/infiniband. Without one of them it uses sockets, without "
    "a message, at a few gigabytes per second instead of dozens.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        *install_on(
            "If the library is missing: install it",
            verify=TEST,
            debian="sudo apt install libibverbs1 ibverbs-providers rdma-core",
            rhel="sudo dnf install libibverbs rdma-core",
            suse="sudo zypper install libibverbs1 rdma-core",
            arch="sudo pacman -S rdma-core",
        ),
        Fix("If the library is missing: install rdma-core, which contains it", on=("other",), verify=TEST),
        Fix(
            "If the nodes are missing: load ib_uverbs",
            "sudo modprobe ib_uverbs",
            verify="ls /dev/infiniband",
            on=("host",),
            kind="restart",
            needs=("root",),
        ),
        *again(
            "If the nodes are missing: restart the container with them",
            "run <all_gpus> --device=/dev/infiniband --cap-add=IPC_LOCK --ulimit memlock=-1 --network=host <image>",
            spec="request the RDMA device of its device plugin, add the capability IPC_LOCK, and set hostNetwork: true",
            risk="disruptive",
            verify="ls /dev/infiniband",
            on=("container",),
        ),
    ),
    references=(SOCKETS,),
)


def judge(facts: Facts) -> Iterator[Finding]:
    active = [port for port in facts.system.infiniband_ports if is_active(port)]
    ports = [port for port in facts.system.infiniband_ports if is_used(port, active)]
    if not ports:
        raise Skip("no InfiniBand or RoCE port is in use")
    yield from judge_ports(facts, ports, active)
    yield from judge_names(facts, active)
    meant = [port for port in active if is_infiniband(port) or not NAMING.isdisjoint(facts.environment.nccl)]
    if meant and (lacking := missing(facts)):
        words = f"{names(meant)} could be used, but {' and '.join(lacking)} {'are' if len(lacking) > 1 else 'is'} missing"
        yield UNUSABLE.found(words, {"ports": names(meant), "missing": lacking})


def judge_names(facts: Facts, active: list[InfinibandPort]) -> Iterator[Finding]:
    """`mlx5_1:1,mlx5` allows this port and names with this beginning, `=mlx5_1` this name only, and `^mlx5_8` all other names."""
    setting = facts.environment.nccl.get("NCCL_IB_HCA")
    if setting is None or not active or setting.value.startswith("^"):
        return
    wanted = [name.partition(":")[0] for name in setting.value.lstrip("=").split(",")]
    exact = setting.value.startswith("=")
    there = sorted({port.device for port in facts.system.infiniband_ports})
    if any(name == one if exact else name.startswith(one) for name in there for one in wanted):
        return
    evidence = {"value": setting.value, "active": ",".join(sorted(port.device for port in active)), "adapters": there}
    yield NOT_THERE.found(f"NCCL_IB_HCA is {setting.value!r}; the adapters are {', '.join(there)}", evidence)


def is_active(port: InfinibandPort) -> bool:
    return port.state == "ACTIVE"


def is_infiniband(port: InfinibandPort) -> bool:
    return port.link_layer == "InfiniBand"


def is_used(port: InfinibandPort, active: list[InfinibandPort]) -> bool:
    """Whether this port is meant to be used: it has a link, or it is an InfiniBand port without one while another is active."""
    if is_active(port) or port.physical_state == "LinkUp":
        return True
    return is_infiniband(port) and port.physical_state != "Disabled" and any(map(is_infiniband, active))


def judge_ports(facts: Facts, ports: list[InfinibandPort], active: list[InfinibandPort]) -> Iterator[Finding]:
    down = [port for port in ports if not is_active(port)]
    kinds = sorted({port.link_layer for port in active})
    words = [f"{port.device} port {port.port} is {port.state} ({port.physical_state})" for port in down]
    if len(kinds) > 1 and "NCCL_IB_HCA" not in facts.environment.nccl and not one_for_each_gpu(facts, active):
        words.append(f"the active ports are of two kinds: {' and '.join(kinds)}")
    if words:
        wanted = list(filter(is_infiniband, active)) or active or ports
        evidence = {"active": ",".join(sorted(port.device for port in wanted)), "down": names(down), "link_layers": kinds}
        waits = all(port.state == "INIT" and port.physical_state == "LinkUp" for port in down) and len(kinds) < 2
        problem = replace(facts.problems[NO_MANAGER], status=Status.WARN) if waits else BROKEN_PORTS
        found = problem.found("; ".join(words), evidence, confidence=Confidence.LIKELY)
        yield replace(found, causes=MANAGER_OF_NVLINK) if waits else found


def one_for_each_gpu(facts: Facts, active: list[InfinibandPort]) -> bool:
    """Whether there are as many InfiniBand ports as GPUs: NCCL takes the nearest ones, and Ethernet is for storage."""
    gpus = len(facts.pci.gpus)
    return 1 < gpus <= sum(map(is_infiniband, active))


def missing(facts: Facts) -> list[str]:
    lacking = []
    if not any(path.startswith("/dev/infiniband/uverbs") for path in facts.devices.nodes):
        lacking.append("/dev/infiniband/uverbs*")
    if facts.libraries.resolved(LIBRARY) is None and not has_package(facts):
        lacking.append(LIBRARY)
    return lacking


def has_package(facts: Facts) -> bool:
    """Whether the distribution's package of the library is installed, wherever it puts its files."""
    return known(
        lambda: any(package.name in PACKAGES and package.state == "installed" for package in facts.driver.packages), False
    )


def names(ports: list[InfinibandPort]) -> str:
    return ", ".join(sorted(port.device for port in ports))


def summary(facts: Facts) -> str:
    active = [port for port in facts.system.infiniband_ports if is_active(port)]
    kinds = " and ".join(sorted({port.link_layer for port in active}))
    return f"{len(active)} active {kinds} ports"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(BROKEN_PORTS, NOT_THERE, UNUSABLE),
    tags=("nccl", "network"),
)
