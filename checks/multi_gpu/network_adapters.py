"""The adapters for RDMA are healthy: no flapping links, no error counters that grow fast, one firmware, direct access to GPUs.

What it means
A job on several machines is as fast as its worst link. A port that loses its link for a moment now and then, or that corrects
ever more errors, looks healthy at any given moment, and still stops jobs or slows all of them.

How it is judged
Reads the counters of each active port since the driver was loaded: five losses of the link or more, more than 120 symbol
errors an hour (the limit of InfiniBand's specification), or any violation of link integrity or buffer overrun warn. The kernel
log must not have reports of the adapter's own health. Adapters of one model must have the same firmware. With InfiniBand ports
and the proprietary driver, which has no DMA-BUF, nvidia_peermem must be loaded. Several adapters must not all be on one NUMA
node while GPUs are on others. An EFA adapter needs its device node.

Known exceptions
A machine without such adapters is skipped. Symbol errors of ports that run on Ethernet are not counted by the adapter. Which
adapters are for storage is not known, so that their place is judged only if all active ports are on one node.

References
https://docs.nvidia.com/nvsentinel/components/nic-health-monitor/link-counter-detection
https://docs.nvidia.com/cuda/gpudirect-rdma/
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.adapters import Adapter
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

MOST_LOSSES = 5
SYMBOLS_PER_HOUR = 120
NEVER = ("local_link_integrity_errors", "excessive_buffer_overrun_errors")
LEAST_HOURS = 1.0  # a rate over less time says little
SICK = re.compile(r"(?:mlx[45]_core|bnxt_en|irdma) .*(?:health|timeout|fatal|compromised)", re.I)
EFA = "efa"
COUNTERS = "https://docs.nvidia.com/nvsentinel/components/nic-health-monitor/link-counter-detection"
LOOK = "grep . /sys/class/infiniband/*/ports/*/counters/{link_downed,symbol_error,link_error_recovery}"

ERRORS = Problem(
    id="network-port-errors",
    title="A network port for RDMA loses its link or counts errors",
    why="Each loss of the link aborts the transfers of all jobs on it, and each error delays them. A cable, a transceiver or a "
    "switch port is going bad.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look("Check whether the counters grow", LOOK),
        look("Show the signal's quality and the transceiver", "sudo mlxlink -d <adapter> -m -c -e", on=("host",), root=True),
        Fix("If they grow: clean or replace the cable or transceiver, then try another switch port", verify=LOOK, on=("host",)),
    ),
    references=(COUNTERS,),
)
SICK_ADAPTER = Problem(
    id="network-adapter-unhealthy",
    title="The kernel reports that a network adapter is unhealthy",
    why="The driver cannot talk to the adapter's firmware, or the firmware reports a fatal error. Links can still look up "
    "while jobs hang.",
    action=Action.REBOOT,
    fixes=(
        look("Show the reports of the driver", "sudo dmesg | grep -E 'mlx5_core|bnxt_en|irdma'", on=("host",), root=True),
        look("Show the adapter's own health reports", "sudo devlink health show", on=("host",), root=True),
        Fix("Reboot; if it comes back, update the firmware, then have the adapter replaced", on=("host",), reboot=True),
        Fix("Ask the owner of the host: an adapter cannot be repaired from inside a container", on=("container",)),
    ),
    references=("https://docs.nvidia.com/nvsentinel/components/nic-health-monitor/syslog-detection-and-correlation",),
)
FIRMWARE = Problem(
    id="network-firmware-differs",
    title="Network adapters of one model have different firmware",
    why="Usually one was replaced, or an update failed. If adapters differ under load, the traffic of one GPU is slower "
    "than that of its siblings.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        look("Show the firmware of each adapter", "grep . /sys/class/infiniband/*/fw_ver"),
        Fix("Update them to one version with the vendor's tool (mlxfwmanager), then reboot", on=("host",), reboot=True),
    ),
)
NO_PEERMEM = Problem(
    id="gpudirect-rdma-without-peermem",
    title="Network adapters cannot reach GPU memory: nvidia_peermem is missing",
    why="With the proprietary module, adapters read and write GPU memory through nvidia_peermem only. Without it NCCL copies "
    "everything through host memory, at a fraction of the speed, and reports no error.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Load the module, now and at each boot",
            "sudo modprobe nvidia-peermem && echo nvidia-peermem | sudo tee /etc/modules-load.d/nvidia-peermem.conf",
            verify="lsmod | grep nvidia_peermem",
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        Fix("Install the open kernel module instead, which offers GPU memory through DMA-BUF", on=("host",)),
        Fix("Ask the owner of the host to load nvidia-peermem", on=("container",), verify="lsmod | grep nvidia_peermem"),
    ),
    references=("https://docs.nvidia.com/cuda/gpudirect-rdma/",),
)
FAR = Problem(
    id="network-adapters-on-one-node",
    title="All network adapters are on one socket, and GPUs are on another",
    why="The GPUs of the other socket send their traffic across the link between the CPUs, which all of them share. Direct "
    "access from adapter to GPU is slow or impossible there.",
    action=Action.WATCH,
    status=Status.WARN,
    latent=True,
    fixes=(
        look("Show which adapter is near which GPU", "nvidia-smi topo -m"),
        Fix("Move an adapter to a slot of the other socket", on=("host",), verify="nvidia-smi topo -m"),
    ),
)
NO_NODE = Problem(
    id="efa-without-device-node",
    title="An EFA adapter has no device node here, so NCCL uses TCP",
    why="libfabric opens /dev/infiniband/uverbs* to use EFA. Without it NCCL's plugin finds no adapter and falls back to TCP, "
    "at a fraction of the speed.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Give the container the devices: --device=/dev/infiniband for Docker", on=("container",), verify="ls /dev/infiniband"
        ),
        look("On the host: check whether the driver is loaded", "lsmod | grep -E '^(efa|ib_uverbs)'", on=("host",)),
    ),
    references=("https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    found = facts.adapters
    if not found:
        raise Skip("no adapter for RDMA")
    active = {(port.device, port.port): port for port in facts.system.infiniband_ports if port.state == "ACTIVE"}
    yield from judge_log(facts)
    yield from judge_firmware(found)
    yield from judge_ports(facts, found, set(active))
    used = [adapter for adapter in found if any(device == adapter.name for device, _ in active)]
    yield from judge_place(facts, used)
    if any(port.link_layer == "InfiniBand" for port in active.values()):
        yield from judge_peermem(facts)
    yield from judge_efa(facts, [adapter for adapter in used if adapter.driver == EFA])
    if not any(adapter.counters for adapter in used):
        raise Skip("the counters of the ports are not visible here", Skip.UNSUPPORTED)


def judge_efa(facts: Facts, used: list[Adapter]) -> Iterator[Finding]:
    nodes = known(lambda: facts.devices.nodes)
    if used and nodes is not None and not any(path.startswith("/dev/infiniband/uverbs") for path in nodes):
        verb = "are" if len(used) > 1 else "is"
        yield NO_NODE.found(f"{names(used)} {verb} active, and /dev/infiniband/uverbs* is missing")


def judge_ports(facts: Facts, found: tuple[Adapter, ...], active: set[tuple[str, int]]) -> Iterator[Finding]:
    hours = known(lambda: facts.system.uptime_seconds / 3600)
    words = []
    for adapter in found:
        for port, counters in adapter.counters.items():
            if (adapter.name, port) in active and (bad := list(of_port(counters, hours))):
                words.append((adapter.name, f"{adapter.name} port {port}: {', '.join(bad)}"))
    if words:
        yield ERRORS.found("; ".join(text for _, text in words), {"adapter": words[0][0], "ports": [text for _, text in words]})


def of_port(counters: dict[str, int], hours: float | None) -> Iterator[str]:
    losses, symbols = counters.get("link_downed", 0), counters.get("symbol_error", 0)
    if losses >= MOST_LOSSES:
        yield f"lost its link {losses} times"
    if hours is not None and symbols > SYMBOLS_PER_HOUR * max(hours, LEAST_HOURS):
        yield f"{symbols} symbol errors in {hours:.0f} hours"
    for name in NEVER:
        if counters.get(name):
            yield f"{counters[name]} {name.replace('_', ' ')}"


def judge_log(facts: Facts) -> Iterator[Finding]:
    lines = known(lambda: [line.text for line in facts.kernel_log.lines], [])
    sick = [text for text in lines if SICK.search(text)]
    if sick:
        more = f", and {len(sick) - 1} more lines" * (len(sick) > 1)
        yield SICK_ADAPTER.found(f"{sick[-1].strip()}{more}", {"lines": sick[-4:]})


def judge_firmware(found: tuple[Adapter, ...]) -> Iterator[Finding]:
    by_model: dict[str, dict[str, list[str]]] = {}
    for adapter in found:
        if adapter.model and adapter.firmware:
            by_model.setdefault(adapter.model, {}).setdefault(adapter.firmware, []).append(adapter.name)
    for model, versions in by_model.items():
        if len(versions) > 1:
            words = "; ".join(f"{version} on {', '.join(adapters)}" for version, adapters in sorted(versions.items()))
            yield FIRMWARE.found(f"{model}: {words}", {"firmware": versions})


def judge_peermem(facts: Facts) -> Iterator[Finding]:
    modules, is_open = known(lambda: facts.driver.loaded_modules), known(lambda: facts.driver.module_is_open)
    if modules is None or is_open is not False or "nvidia" not in modules:
        return
    if modules.isdisjoint(("nvidia_peermem", "nv_peer_mem")):
        yield NO_PEERMEM.found("InfiniBand is active, the module is proprietary, and nvidia_peermem is not loaded")


def judge_place(facts: Facts, used: list[Adapter]) -> Iterator[Finding]:
    nodes = {adapter.numa_node for adapter in used}
    gpus = known(lambda: {gpu.numa_node for gpu in facts.pci.gpus}, set())
    if len(used) < 2 or len(nodes) != 1 or None in nodes | gpus:
        return
    far = sorted(node for node in gpus - nodes if node is not None)
    if far:
        (node,) = nodes
        words = f"{names(used)} are on NUMA node {node}; GPUs are also on {', '.join(map(str, far))}"
        yield FAR.found(words, {"node": node, "far": far}, confidence=Confidence.LIKELY)


def names(found: list[Adapter]) -> str:
    return ", ".join(sorted(adapter.name for adapter in found))


def summary(facts: Facts) -> str:
    versions = sorted({adapter.firmware for adapter in facts.adapters if adapter.firmware})
    firmware = f", firmware {', '.join(versions)}" if versions else ""
    return f"{len(facts.adapters)} adapters, no errors counted{firmware}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(ERRORS, SICK_ADAPTER, FIRMWARE, NO_PEERMEM, FAR, NO_NODE),
    tags=("hardware", "nccl", "network"),
)
