"""A GPU in an enclosure (Thunderbolt, USB4) whose cable or tunnel failed: the link is at fault, not the GPU. Pure."""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.xids import FALLEN_OFF, GpuXids
from gpudoctor.fixes.common import look, power_off
from gpudoctor.model import Action, Fix, Problem

UNPLUGGED = r"thunderbolt \S+: device disconnected|thunderbolt \S+:.*(?:tunnel|link).*(?:failed|lost|down)"
LINK_DOWN = r"pciehp: Slot\([^)]*\): (?:Link Down|Card not present)"
TUNNEL = r"\bthunderbolt \d|\bUSB4\b"
NEAR_SECONDS = 60.0
LOOK = "nvidia-smi -i <address>"
ISSUES = "https://github.com/NVIDIA/open-gpu-kernel-modules/"


def of_cable(problem: Problem, facts: Facts, gpu: GpuXids) -> Problem:
    """The same problem if the connection of an enclosure was lost at that time."""
    if FALLEN_OFF not in gpu.codes or not known(lambda: _lost(facts, gpu), False):
        return problem
    return replace(
        problem,
        title="An external GPU lost its connection (Xid 79)",
        why="The kernel reports at the same time that the enclosure or its PCIe tunnel went away, so the driver lost the GPU. "
        "The cable, the enclosure's power supply, the port or their firmware is at fault more often than the GPU.",
        action=Action.REBOOT,
        fixes=(
            power_off(
                "Power off computer and enclosure, connect a short certified cable directly to the computer, power on",
                verify=LOOK,
            ),
            look(
                "Show whether the enclosure is authorised, and when the connection was lost",
                "boltctl list; sudo dmesg | grep -iE 'thunderbolt|pciehp|AER|Xid' | tail -n 30",
                root=True,
            ),
            Fix("If it recurs: update the firmware of computer and enclosure, and try another port and the enclosure's own PSU"),
            Fix("If it happens when the GPU is idle: disable power saving of PCIe links (kernel parameter pcie_aspm=off)"),
        ),
        references=(*problem.references, ISSUES + "issues/1229", ISSUES + "issues/979"),
    )


def _lost(facts: Facts, gpu: GpuXids) -> bool:
    lines = facts.kernel_log.matching(UNPLUGGED)
    if facts.kernel_log.matching(TUNNEL):
        lines += facts.kernel_log.matching(LINK_DOWN)
    times = [xid.seconds for xid in gpu.all if xid.code == FALLEN_OFF]
    return any(_is_near(line.seconds, seconds) for line in lines for seconds in times)


def _is_near(one: float | None, other: float | None) -> bool:
    """Logs without times are short extracts."""
    return None in (one, other) or abs((one or 0.0) - (other or 0.0)) < NEAR_SECONDS
