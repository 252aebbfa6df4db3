"""Every NVLink that should be up is up, and transfers without errors.

What it means
NVLink carries data between GPUs, many times faster than PCIe. One link that is down slows down collectives on all GPUs, or
stops them. Links correct errors by repeating transfers; a good link never has to.

How it is judged
Reads NVML's state of every link. On boards with switches, and on A100 and newer boards without switches, all links of the GPU
must be up. On older boards a GPU must have as many links up as its siblings. With a bridge, it is a fault if only some links
are up; if both cards lack the same links, the bridge is at fault. The counters of replays, recoveries and uncorrectable errors
must be 0. NVLink 5 also counts recoveries that the link survived, of which 100 since the driver was loaded are too many, and
bit error rates after correction, which must be below 1e-12. On a host with such a board, an option of the module that disables
NVLink warns. If the kernel log shows what broke a link (Xid, SXid), the check for that error reports it.

Known exceptions
Cards without NVLink are skipped. A bridge card without a bridge has all links down. A virtual machine may get its GPUs without
NVLink (the driver's parameter NvLinkDisable). Counters of corrected errors are not judged. A800 and H800 have eight links.

References
https://github.com/Azure/azurehpc/blob/master/experimental/aks_npd_draino/npd/deployment/node-problem-detector-config.yaml
https://github.com/NVIDIA/DCGM/blob/master/dcgmlib/dcgm_errors.h
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.gpu_records import NvLink
from gpudoctor.facts.known import known
from gpudoctor.facts.xids import has_lost_link
from gpudoctor.fixes.common import look, reset_by
from gpudoctor.judging.driver.nvlink_bridges import has_bridge, numbers, of_bridge, twin_of
from gpudoctor.model import NEW_INITRAMFS, Action, Check, Confidence, Finding, Fix, Problem, Skip, Status, Unavailable, for_each

MOST_RECOVERIES = 100  # a link of a GB200 with 505 was named days before its rack faulted: marin-community/marin#9086
MOST_BIT_ERRORS = 1e-12  # of ibdiagnet, too; good links stay below 1e-15
SERIOUS = ("replay", "recovery", "failed_recovery", "malformed_packet", "buffer_overrun", "link_integrity")
ALL_WIRED = 3  # since NVLink 3 every SXM board uses all links; older topologies leave some unused
LOOK = "nvidia-smi nvlink -s"
HOST = Fix("Ask the owner of the host: links cannot be repaired from inside a container", on=("container",), verify=LOOK)

DOWN = Problem(
    id="nvlink-link-down",
    title="An NVLink is down",
    why="A link between this GPU and a switch, a bridge or another GPU is down. The other links carry its traffic, so "
    "collectives are slower or fail.",
    action=Action.RESET_GPU,
    fixes=(
        reset_by(
            "Stop all GPU work, then reset all GPUs together (on boards with switches, while Fabric Manager is stopped)",
            "sudo systemctl stop nvidia-fabricmanager; sudo nvidia-smi --gpu-reset; sudo systemctl start nvidia-fabricmanager",
            verify=LOOK,
        ),
        Fix(
            "If the same link stays down: reseat the bridge or the baseboard, then have it replaced",
            risk="disruptive",
            verify=LOOK,
            on=("physical",),
        ),
        HOST,
    ),
    references=("https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",),
)

ERRORS = Problem(
    id="nvlink-errors",
    title="An NVLink has transfer errors",
    why="The link had to repeat transfers or recover since the driver was loaded. A good link never does. This one is getting "
    "worse, or its bridge or board is not seated well.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look("Check whether the counters grow under load", "nvidia-smi nvlink -e"),
        Fix(
            "If they grow: reseat the bridge or the baseboard, then have it replaced",
            risk="disruptive",
            verify="nvidia-smi nvlink -e",
        ),
    ),
    references=("https://github.com/NVIDIA/DCGM/blob/master/dcgmlib/dcgm_errors.h",),
)

UNSTABLE = Problem(
    id="nvlink-unstable",
    title="An NVLink keeps recovering, or has a high bit error rate",
    why="The link still works: it corrects errors and recovers, and traffic waits meanwhile. Good links do neither. Such a link "
    "often fails within days, and on a rack it can stop the jobs of all nodes.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look("Check whether the counters grow under load", "nvidia-smi nvlink -e; nvidia-smi nvlink -ec"),
        Fix(
            "If they grow: drain the node, then have the cable, the tray or the board replaced",
            risk="disruptive",
            verify="nvidia-smi nvlink -e",
        ),
    ),
    references=(
        "https://github.com/marin-community/marin/issues/9086",
        "https://docs.nvidia.com/deploy/nvml-api/group__NvLink.html",
    ),
)

OFF = Problem(
    id="nvlink-disabled-by-option",
    title="NVLink is disabled by an option of the nvidia module",
    why="NVreg_NvLinkDisable=1 was set for a test, or where Fabric Manager did not start, and stayed. The GPUs of this board "
    "exchange data over PCIe, at a tenth of NVLink's speed.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Remove the option, rebuild the initramfs, then reboot",
            "grep -rl NvLinkDisable /etc/modprobe.d | xargs -r sudo sed -i.bak '\\,NvLinkDisable,d' && " + NEW_INITRAMFS,
            verify=LOOK,
            on=("host",),
            kind="set",
            reboot=True,
        ),
        HOST,
    ),
    references=("https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if is_switched_off(facts):
        yield OFF.found(f"the module's parameter NvLinkDisable is 1, with {len(on_boards(facts))} GPUs on a board with NVLink")
        return
    of_log = [gpu for gpu in facts.nvml.gpus if is_logged(facts, gpu)]
    twins = [twin for gpu in of_log if has_bridge(gpu) and (twin := twin_of(facts, gpu))]
    logged = sorted({gpu.index for gpu in (*of_log, *twins)})
    parts = [(judge_part, gpu) for gpu in facts.nvml.gpus for judge_part in (judge_state, judge_errors, judge_stability)]
    bridges = list(judge_bridges(facts, logged))
    yield from bridges
    reported = {*logged, *(index for bridge in bridges for index in bridge.evidence["gpus"])}
    parts = [(judge_part, gpu) for judge_part, gpu in parts if judge_part is not judge_state or gpu.index not in reported]
    yield from for_each(parts, lambda part: part[0](facts, part[1]))
    if logged:
        raise Skip(f"links of GPU {', '.join(map(str, logged))} are down; the kernel log has the cause: see xids and sxids")


def is_switched_off(facts: Facts) -> bool:
    """Not in a virtual machine, whose owner may have it without NVLink on purpose."""
    disabled = known(lambda: facts.driver.parameters.get("NvLinkDisable")) == "1"
    return disabled and not facts.system.hypervisor and len(on_boards(facts)) > 1


def on_boards(facts: Facts) -> list[Gpu]:
    models = ((gpu, knowledge.gpu_by_name(gpu.name)) for gpu in facts.nvml.reachable.values())
    return [gpu for gpu, model in models if model and model.nvlink and not has_bridge(gpu)]


def judge_bridges(facts: Facts, logged: list[int]) -> Iterator[Finding]:
    """One finding for two cards on a bridge with the same links down: the fault is not a card's."""
    by_links: dict[tuple[int, ...], list[int]] = {}
    for gpu in facts.nvml.gpus:
        with contextlib.suppress(Skip):
            if gpu.index not in logged and has_bridge(gpu) and active(gpu) < expected(facts, gpu):
                by_links.setdefault(tuple(link.link for link in links(gpu) if not link.active), []).append(gpu.index)
    for down, gpus in by_links.items():
        if len(gpus) == 2:
            words = f"{numbers(down)} of GPU {gpus[0]} and GPU {gpus[1]} {'is' if len(down) == 1 else 'are'} down, at both ends"
            yield of_bridge(DOWN).found(words, {"down": list(down), "gpus": gpus}, confidence=Confidence.LIKELY)


def links(gpu: Gpu) -> tuple[NvLink, ...]:
    """The links of a GPU; skips a model without NVLink."""
    model = knowledge.gpu_by_name(gpu.name)
    if model and model.nvlink is None:
        raise Skip("this GPU has no NVLink")
    return gpu.nvlinks


def active(gpu: Gpu) -> int:
    return sum(link.active for link in links(gpu))


def judge_state(facts: Facts, gpu: Gpu) -> Iterator[Finding]:
    up, wanted = active(gpu), expected(facts, gpu)
    if up >= wanted:
        return
    down = [link.link for link in links(gpu) if not link.active]
    yield DOWN.found(
        f"GPU {gpu.index} has {up} of {wanted} links up; down: {', '.join(map(str, down))}",
        {"up": up, "expected": wanted, "down": down},
        gpu=gpu.index,
        confidence=Confidence.LIKELY if has_bridge(gpu) else Confidence.CONFIRMED,
    )


def is_logged(facts: Facts, gpu: Gpu) -> bool:
    """Whether links are down and the kernel log has the cause: an error of this GPU (Xid) or of a switch (SXid)."""
    try:
        if active(gpu) >= expected(facts, gpu):
            return False
        by_switch = any(sxid.is_fatal for sxid in facts.kernel_log.sxids) and not has_bridge(gpu)
        return by_switch or has_lost_link(facts, gpu)
    except Skip:
        return False


def expected(facts: Facts, gpu: Gpu) -> int:
    """How many links should be up."""
    model = knowledge.gpu_by_name(gpu.name)
    every = min(len(links(gpu)), model.nvlink.links) if model and model.nvlink else len(links(gpu))
    if has_bridge(gpu):
        return every if active(gpu) else 0
    if facts.system.hypervisor and not active(gpu):
        raise Skip("this virtual machine has its GPUs without NVLink", Skip.UNSUPPORTED)
    if model and model.nvlink and model.nvlink.version < ALL_WIRED:
        return max(siblings(facts, gpu))
    return every


def siblings(facts: Facts, gpu: Gpu) -> Iterator[int]:
    """The active links of the GPUs of this model."""
    for other in facts.nvml.gpus:
        if other.name == gpu.name:
            try:
                yield active(other)
            except Unavailable:
                yield 0  # that GPU is judged separately


def judge_errors(facts: Facts, gpu: Gpu) -> Iterator[Finding]:
    counted = {link.link: link.errors for link in links(gpu) if link.active and link.errors is not None}
    if not counted:
        raise Skip("NVML has no error counters for these links", Skip.UNSUPPORTED)
    bad = {link: {name: errors[name] for name in SERIOUS if errors.get(name)} for link, errors in counted.items()}
    bad = {link: errors for link, errors in bad.items() if errors}
    if bad:
        words = [
            f"link {link}: " + ", ".join(f"{count} {name}" for name, count in errors.items()) for link, errors in bad.items()
        ]
        yield ERRORS.found(
            f"GPU {gpu.index}, " + "; ".join(words).replace("_", " "),
            {"links": sorted(bad), "errors": {str(link): errors for link, errors in bad.items()}},
            gpu=gpu.index,
        )


def judge_stability(facts: Facts, gpu: Gpu) -> Iterator[Finding]:
    words: dict[int, list[str]] = {}
    for link in links(gpu):
        if link.active and (link.recoveries or 0) >= MOST_RECOVERIES:
            words.setdefault(link.link, []).append(f"{link.recoveries} recoveries")
        if link.active and (link.bit_error_rate or 0) >= MOST_BIT_ERRORS:
            words.setdefault(link.link, []).append(f"bit error rate {link.bit_error_rate:.0e}")
    if words:
        message = "; ".join(f"link {link}: {', '.join(each)}" for link, each in words.items())
        yield UNSTABLE.found(f"GPU {gpu.index}, {message}", {"links": sorted(words)}, gpu=gpu.index)


def summary(facts: Facts) -> str:
    counts = sorted({active(gpu) for gpu in facts.nvml.gpus})
    if counts == [0]:
        return "no NVLink bridge is fitted"
    return f"{' or '.join(map(str, counts))} links up on each of {facts.nvml.count} GPUs, no errors"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(DOWN, ERRORS, UNSTABLE, OFF),
    needs=("nvml", "fabric-manager"),
    tags=("hardware", "multi-gpu"),
)
