"""GPUs that are connected by NVLink can read each other's memory.

What it means
With peer-to-peer access a GPU reads another GPU's memory directly. Without it all data goes through the host's memory. Over
NVLink this is the difference between hundreds and tens of gigabytes per second.

How it is judged
NVML's peer-to-peer status of every pair of GPUs that have active NVLinks to each other or to the same switches. For GeForce
cards of the Ada generation also the driver: 525.60 to 525.85 offer access over PCIe that does not work.

Known exceptions
"Chipset not supported" and "GPU not supported" between cards without NVLink are normal: GeForce cards since Ada have no
peer-to-peer access, and many virtual machines and boards do not allow it. GPUs with MIG on do not have it either. Under WSL2,
NVML does not report it.

References
https://github.com/NVIDIA/nccl-tests/issues/117
https://github.com/NVIDIA/nccl/issues/631
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.gpu_records import NvLink
from gpudoctor.facts.known import known, supported
from gpudoctor.fixes.common import install_on, look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, Unavailable

MATRIX = "nvidia-smi topo -p2p r"
ADA = (8, 9)
SHOWN = 4  # pairs that the message lists
FIRST_BROKEN, LAST_BROKEN = Version("525.60"), Version("525.86")  # LAST_BROKEN is the first release that works

NO_ACCESS = Problem(
    id="nvlink-peers-without-p2p",
    title="GPUs with NVLink are not allowed to read each other's memory",
    why="The links are up, but the driver allows no peer-to-peer access over them, so NCCL uses host memory. A driver parameter "
    "or a fabric partition forbids it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look(
            "Show the driver's parameters",
            "grep -E 'RegistryDwords|NvLinkDisable' /proc/driver/nvidia/params; nvidia-smi topo -p2p n",
        ),
        Fix(
            "Remove such a parameter from /etc/modprobe.d, rebuild the initramfs and reboot; in a virtual machine, ask its host",
            needs=("root", "reboot"),
            risk="disruptive",
            verify=MATRIX,
        ),
    ),
    references=("https://github.com/NVIDIA/nccl/issues/631",),
)

BROKEN_OFFER = Problem(
    id="nccl-rtx4090-no-p2p",
    title="This driver offers peer-to-peer access that does not work on GeForce",
    why="GeForce cards of the Ada generation have no peer-to-peer access over PCIe. Early drivers of branch 525 report that "
    "they do, and NCCL then hangs or gives wrong results.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        *install_on(
            "Install a newer driver",
            verify=MATRIX,
            recipe="driver 580",
            debian="(sudo apt install nvidia-driver-580-open || sudo apt install nvidia-driver)",
            rhel="sudo dnf upgrade '*nvidia*'",
            suse="sudo zypper update '*nvidia*'",
            arch="sudo pacman -Syu",
            other="sudo sh NVIDIA-Linux-*.run",
            reboot=True,
        ),
        Fix("Until then: disable P2P in NCCL", "export NCCL_P2P_DISABLE=1", where="shell"),
    ),
    references=("https://github.com/NVIDIA/nccl-tests/issues/117",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.nvml.count < 2:
        raise Skip("there is only one GPU")
    yield from judge_geforce(facts)
    if not facts.nvml.p2p and known(lambda: facts.system.wsl) == 2:
        raise Skip("under WSL2, NVML does not report which GPUs have access to each other; peer-transfers measures it")
    if not facts.nvml.p2p:
        raise Unavailable("NVML does not report which GPUs have access to each other")
    gpus = facts.nvml.gpus
    refused = {pair: word for pair, word in facts.nvml.p2p.items() if word != "ok" and linked(gpus[pair[0]], gpus[pair[1]])}
    if refused:
        pairs = [f"{one} and {other}" for one, other in sorted({(min(pair), max(pair)) for pair in refused})]
        words = ", ".join(sorted(set(refused.values())))
        more = f" and {len(pairs) - SHOWN} more pairs" * (len(pairs) > SHOWN)
        yield NO_ACCESS.found(f"{words}: GPU {'; '.join(pairs[:SHOWN])}{more}", {"pairs": pairs, "status": words})


def judge_geforce(facts: Facts) -> Iterator[Finding]:
    cards = [gpu.name for gpu in facts.nvml.gpus if is_geforce_since_ada(gpu)]
    driver = facts.nvml.driver_version
    if len(cards) > 1 and FIRST_BROKEN <= Version(driver) < LAST_BROKEN:
        yield BROKEN_OFFER.found(f"{len(cards)} {cards[0]} cards with driver {driver}", {"cards": cards})


def is_geforce_since_ada(gpu: Gpu) -> bool:
    return "GeForce" in gpu.name and gpu.compute_capability >= ADA


def linked(one: Gpu, other: Gpu) -> bool:
    """Whether NVLinks connect the two GPUs, directly or through switches."""
    ours, theirs = active_links(one), active_links(other)
    if any(link.remote_bus_id == other.bus_id for link in ours):
        return True
    return all(any(link.remote == "switch" for link in links) for links in (ours, theirs))


def active_links(gpu: Gpu) -> tuple[NvLink, ...]:
    """The active links; empty with MIG on, which does not use NVLink."""
    return () if gpu.is_in_mig_mode else tuple(link for link in supported(lambda: gpu.nvlinks, ()) if link.active)


def summary(facts: Facts) -> str:
    words = list(facts.nvml.p2p.values())
    reachable = words.count("ok")
    if reachable == len(words):
        return f"each of {facts.nvml.count} GPUs has access to all others"
    return f"{reachable} of {len(words)} pairs have access, including all with NVLink"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_ACCESS, BROKEN_OFFER),
    needs=("nvml",),
    tags=("nccl", "performance"),
)
