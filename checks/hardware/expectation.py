"""The machine has what it should have: GPUs, links, network, processors, memory and disks.

What it means
A machine can be healthy and still not be the one that was ordered: a GPU, a link, a memory module or a network port is missing or
smaller. Each part that is left works, so no other check finds it, and jobs fail or are slow only on this machine.

How it is judged
With --expect FILE or NAME, everything in the file, or in the table of that type (gpudoctor expect list), is compared. Sizes may
be 3 % below those of a file, and 10 % below those of a table, which are nominal. More than expected is fine. Without --expect, a
type that DMI or cloud-init names and that is in the table is compared by its GPUs, NVLinks and memory only: the rest of an
instance depends on how it was started.

Known exceptions
In a container or a job, which may have only a part of the machine, only --expect counts. A container sees only its own network.
In most virtual machines the kernel does not know the speed of an adapter; then only their number is compared.

References
https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html
https://docs.oracle.com/en-us/iaas/Content/Compute/References/computeshapes.htm
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.judging import expected
from gpudoctor.judging.expected import Difference
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, for_each

RETURN = Fix("In a cloud: stop and start the instance, which moves it to another host, or return it", on=("host",))
CORRECT = Fix("If the machine is meant to be so: correct the expectation (gpudoctor expect write makes one from this machine)")
GPUS = Problem(
    id="gpus-not-as-expected",
    title="GPUs are missing, or are not the expected ones",
    why="This machine should have other GPUs, more of them, or GPUs with more memory. A job made for it does not fit, or "
    "waits for those that are missing.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        look("Check which GPUs are on the bus", "lspci -d 10de: -nn", on=("host",), verify="nvidia-smi -L"),
        look("Read the BMC's event log", "sudo ipmitool sel list | tail -n 30", on=("bmc",), root=True),
        RETURN,
        CORRECT,
    ),
)
LINKS = Problem(
    id="nvlinks-not-as-expected",
    title="Fewer NVLinks are up than expected",
    why="Data between GPUs takes fewer links, or PCIe, so collective operations of all GPUs get slower.",
    action=Action.REBOOT,
    fixes=(
        look("Show the state of each link", "nvidia-smi nvlink -s"),
        look("Show whether Fabric Manager runs", "systemctl status nvidia-fabricmanager", on=("host",)),
        RETURN,
        CORRECT,
    ),
)
NETWORK = Problem(
    id="network-not-as-expected",
    title="Network ports are missing or slower than expected",
    why="Jobs on several machines use all ports of each: one that is down or slow holds up all machines.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Show all network interfaces and their state", "grep -s . /sys/class/net/*/operstate /sys/class/net/*/speed"),
        look("Show the state and rate of InfiniBand and RoCE ports", "ibstat | grep -E '^CA|State|Rate'"),
        Fix("Check the cable, the transceiver and the switch port of a port that is down or slow", on=("host",)),
        CORRECT,
    ),
)
HOST = Problem(
    id="host-not-as-expected",
    title="Processors, memory or disks are missing",
    why="Part of the machine failed or is disabled: data loading and checkpoints get slower, or do not fit.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        look("Show processors and NUMA nodes, memory and file systems", "lscpu; free -h; df -h"),
        look("Read the BMC's event log", "sudo ipmitool sel list | tail -n 30", on=("bmc",), root=True),
        CORRECT,
    ),
)
SETTINGS = Problem(
    id="settings-not-as-expected",
    title="The driver or a GPU setting is not the expected one",
    why="This machine is not set up as the others are, so that what works there can fail here.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look(
            "Show the driver and the settings",
            "nvidia-smi --query-gpu=index,driver_version,persistence_mode,mig.mode.current --format=csv",
        ),
        look("Show the MIG instances", "nvidia-smi -L"),
        Fix("Set the machine up as the others are, with the tool that did so there", on=("host",)),
        CORRECT,
    ),
)
BY_SUBJECT = {"gpus": GPUS, "links": LINKS, "network": NETWORK, "host": HOST, "settings": SETTINGS}
CAUSES = {"gpus": ("gpu-count", "xids", "adapter-init"), "links": ("nvlink", "fabric-manager"), "network": ("infiniband",)}
"""Subject -> the checks whose problems explain that something is missing."""


def judge(facts: Facts) -> Iterator[Finding]:
    wanted = expected.expected(facts)
    found: list[Difference] = []

    def look_at(compare: Callable[[], Iterator[Difference]]) -> Iterator[Finding]:
        found.extend(compare())
        return iter(())

    unread: Skip | None = None
    try:
        list(for_each(expected.comparisons(facts, wanted), look_at))
    except Skip as skip:
        unread = skip
    for about, problem in BY_SUBJECT.items():
        differences = [difference for difference in found if difference.about == about]
        if differences:
            evidence = {
                "expectation": wanted.name,
                "differences": [{"what": one.what, "expected": one.expected, "found": one.found} for one in differences],
            }
            words = "; ".join(difference.words for difference in differences)
            finding = problem.found(f"{words}; expected of {wanted.name}", evidence)
            yield replace(finding, causes=CAUSES.get(about, ()))
    if unread:
        raise unread


def summary(facts: Facts) -> str:
    wanted = expected.expected(facts)
    count = len(expected.comparisons(facts, wanted))
    return f"the hardware is as expected of {wanted.name} ({count} things compared)"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(GPUS, LINKS, NETWORK, HOST, SETTINGS),
    needs=("nvml",),
    explained_by=("gpu-on-bus",),
)
