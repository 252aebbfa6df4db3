"""No bridge or IOMMU redirects the PCIe traffic between the GPUs.

What it means
Two GPUs under one bridge send data to each other through it. Access control (ACS) on the bridge redirects this traffic up to
the CPU, where an IOMMU that translates addresses may break it. NCCL then hangs, or copies arrive damaged.

How it is judged
On bare metal, if at least two GPUs reach each other over PCIe and not by NVLink: the ACS control registers of the bridges
above the GPUs (request redirect, completion redirect, upstream forwarding: 0x1c), then the type of the GPUs' IOMMU groups
(DMA and DMA-FQ translate, identity does not). It is likely, not certain, that these settings cause harm; translation alone, with
no transfer blocked, is only noted.

Known exceptions
A virtual machine needs ACS and the IOMMU. GPUs that are connected by NVLink, and GPUs without peer-to-peer access (GeForce
cards since Ada), do not send data over PCIe. Only root can read the registers.

References
https://docs.nvidia.com/deeplearning/nccl/archives/nccl_2262/user-guide/docs/_sources/troubleshooting.rst.txt
https://github.com/NVIDIA/nccl/issues/257
https://github.com/NVIDIA/nccl/issues/2079
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import supported
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status, Unavailable, fix_on

REDIRECT = 0x1C  # request redirect, completion redirect, upstream forwarding
GUIDE = "https://docs.nvidia.com/deeplearning/nccl/archives/nccl_2262/user-guide/docs/_sources/troubleshooting.rst.txt"
ISSUES = "https://github.com/NVIDIA/nccl/issues/"
TEST = "NCCL_DEBUG=INFO all_reduce_perf -b 8 -e 128M -f 2 -g 2"
WITHOUT = Fix("Disable P2P (slower, but safe)", "export NCCL_P2P_DISABLE=1", where="shell")

ACS = Problem(
    id="nccl-p2p-hang-acs-iommu",
    title="PCIe bridges redirect traffic between the GPUs to the CPU (ACS)",
    why="Access control is enabled on bridges above the GPUs, so peer-to-peer traffic takes the longer path through the CPU. "
    "NCCL is slow, hangs after 'Init COMPLETE', or gets wrong data.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Disable ACS on these bridges until the next boot",
            'for bridge in <bridges>; do sudo setpci -s "$bridge" ECAP_ACS+0x6.w=0000; done',
            risk="disruptive",
            verify=TEST,
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        Fix(
            "Disable ACS permanently in the firmware (and VT-d or AMD-Vi, if no virtual machine needs it)",
            needs=("reboot",),
            on=("host",),
        ),
        WITHOUT,
    ),
    references=(GUIDE, ISSUES + "257", ISSUES + "2079"),
)

IOMMU = Problem(
    id="iommu-translates-peer-traffic",
    title="The IOMMU translates traffic between the GPUs",
    why="The kernel runs the IOMMU in translating mode for the GPUs. On bare metal CUDA supports peer-to-peer traffic over PCIe "
    "only without translation. With translation NCCL may hang or get wrong data.",
    action=Action.REBOOT,
    status=Status.WARN,
    fixes=(
        *fix_on(
            "Set the IOMMU to pass-through for the host's devices",
            verify="cat /sys/kernel/iommu_groups/*/type | sort | uniq -c",
            debian="sudo sed -i.bak 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub && sudo update-grub",
            rhel="sudo grubby --update-kernel=ALL --args=iommu=pt",
            suse="sudo sed -i.bak 's/^GRUB_CMDLINE_LINUX_DEFAULT=\"/&iommu=pt /' /etc/default/grub && "
            "sudo grub2-mkconfig -o /boot/grub2/grub.cfg",
            arch="sudo sed -i.bak 's/^GRUB_CMDLINE_LINUX_DEFAULT=\"/&iommu=pt /' /etc/default/grub && "
            "sudo grub-mkconfig -o /boot/grub/grub.cfg",
            kind="set",
            reboot=True,
            undos={
                "debian": "sudo mv /etc/default/grub.bak /etc/default/grub && sudo update-grub",
                "rhel": "sudo grubby --update-kernel=ALL --remove-args=iommu=pt",
                "suse": "sudo mv /etc/default/grub.bak /etc/default/grub && sudo grub2-mkconfig -o /boot/grub2/grub.cfg",
                "arch": "sudo mv /etc/default/grub.bak /etc/default/grub && sudo grub-mkconfig -o /boot/grub/grub.cfg",
            },
        ),
        Fix(
            "On other distributions: add iommu=pt to the kernel command line and reboot", needs=("root", "reboot"), on=("other",)
        ),
        WITHOUT,
    ),
    references=(GUIDE, ISSUES + "631", ISSUES + "667"),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.nvml.count < 2:
        raise Skip("there is only one GPU")
    if facts.system.hypervisor:
        raise Skip("in a virtual machine, the host controls the bridges and the IOMMU")
    if not facts.nvml.p2p:
        raise Unavailable("NVML does not report which GPUs have access to each other")
    pairs = [pair for pair, word in facts.nvml.p2p.items() if word == "ok"]
    if not any(not has_nvlink(facts.nvml.gpus[one]) for pair in pairs for one in pair):
        raise Skip("no two GPUs send data to each other over PCIe")
    bridges, types, faults = redirecting(facts), translating(facts), stopped(facts)
    if not (bridges or types):
        return
    evidence = {"bridges": bridges, "iommu_groups": types, "log": faults[-1] if faults else None}
    seen = [f"peer traffic is redirected by {', '.join(bridges)}"] if bridges else []
    if types and (faults or not bridges):
        seen.append(f"the GPUs' IOMMU groups are of type {', '.join(types)}")
    problem = IOMMU if types and (faults or not bridges) else ACS
    if bridges and types:
        problem = replace(problem, fixes=(*IOMMU.fixes[:-1], *ACS.fixes) if problem is IOMMU else (*ACS.fixes[:2], *IOMMU.fixes))
    if faults:
        seen.append(f"the IOMMU blocked transfers of a GPU ({len(faults)} lines in the log)")
        yield replace(problem, status=Status.FAIL).found("; ".join(seen), evidence)
    else:
        found = problem.found("; ".join(seen), evidence, confidence=Confidence.LIKELY)
        yield found if bridges else found.as_note


FAULT = "|".join(
    (
        r"DMAR: .*[Rr]equest device \[?(?P<intel>[0-9a-f:.]+)",
        r"nvidia (?P<amd>[0-9a-f:.]+): .*IO_PAGE_FAULT",
        r"IO_PAGE_FAULT.*device=(?P<amd_before>[0-9a-f:.]+)",
    )
)


def stopped(facts: Facts) -> list[str]:
    """Log lines in which the IOMMU blocked a GPU: evidence in addition to the settings, if the log is readable."""
    try:
        lines = facts.kernel_log.matching(FAULT)
    except Skip:
        return []
    gpus = [gpu.address for gpu in facts.pci.gpus]
    matches = ((line.text, re.search(FAULT, line.text)) for line in lines)
    return [text for text, match in matches if match and any(gpu.endswith(next(filter(None, match.groups()))) for gpu in gpus)]


def has_nvlink(gpu: Gpu) -> bool:
    return any(link.active for link in supported(lambda: gpu.nvlinks, ()))


def redirecting(facts: Facts) -> list[str]:
    """The bridges above GPUs that redirect peer traffic."""
    above = sorted({address for gpu in facts.pci.gpus for address in gpu.parents})
    bridges = (facts.pci.bridges[address] for address in above if address in facts.pci.bridges)
    return [bridge.address for bridge in bridges if (bridge.acs_control or 0) & REDIRECT]


def translating(facts: Facts) -> list[str]:
    types = {gpu.iommu_group_type for gpu in facts.pci.gpus}
    return sorted(kind for kind in types if kind and kind.startswith("DMA"))


def summary(facts: Facts) -> str:
    types = {gpu.iommu_group_type for gpu in facts.pci.gpus} - {None}
    return "no redirection, " + ("no IOMMU" if not types else f"IOMMU groups of type {', '.join(sorted(filter(None, types)))}")


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(ACS, IOMMU),
    needs=("nvml",),
    tags=("nccl", "performance"),
)
