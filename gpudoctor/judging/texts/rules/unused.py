"""What is there in a text and not used, or kept from rest: enclosures, adapters, a plugin, a polled GPU, memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.applied import FEWER_ADAPTERS
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

NOT_ALLOWED = Problem(
    id="enclosure-not-authorised",
    title="The Thunderbolt enclosure of the GPU is not authorised",
    why="Thunderbolt gives a device access to memory, so it asks the user once. Until then the enclosure is connected without "
    "PCIe, and lspci does not list the GPU.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Authorise it now and whenever it is connected",
            "boltctl enroll --policy auto <enclosure>",
            verify="boltctl list; lspci -d 10de:",
            on=("host",),
            kind="set",
            undo="boltctl forget <enclosure>",
        ),
        Fix("If it stays connected only: allow PCIe in the firmware setup (Thunderbolt security, USB4 PCIe tunnelling)"),
    ),
    references=("https://docs.kernel.org/admin-guide/thunderbolt.html",),
)
OTHER_ECC = Problem(
    id="ecc-enabled-on-some-gpus",
    title="Cards of one model have different ECC modes, so their memory differs",
    why="Cards with GDDR memory keep the check bits of ECC in their memory, which leaves about 6 % less for programs. The mode "
    "is stored in each card and can be changed.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Disable ECC on it (or enable it on the others, with 1), then reboot",
            "sudo nvidia-smi -i <address> -e 0",
            verify="nvidia-smi --query-gpu=index,memory.total,ecc.mode.current --format=csv",
            on=("host",),
            kind="set",
            reboot=True,
            needs=("root",),
            undo="sudo nvidia-smi -i <address> -e 1",
        ),
    ),
    references=("https://docs.nvidia.com/deploy/nvidia-smi/index.html",),
)
PROBLEMS = (NOT_ALLOWED, OTHER_ECC)

_ENCLOSURE = re.compile(
    r"""
    ^\s*●\ (?P<name>[^\n]+)\n
    (?: [ \t]*[├│└][^\n]*\n ){0,8}?
    [ \t]*[├└]─\ uuid:\s+(?P<uuid>[\da-f-]{36})\s*\n
    (?: [ \t]*[├│└][^\n]*\n ){0,4}?
    [ \t]*[├└]─\ status:\s+(?P<status>\S+)
    """,
    re.MULTILINE | re.VERBOSE,
)
_OF_GPU = re.compile(
    r"""
    \be-?gpu\b
    | \bcore\ x\b
    | \bakitio\b
    | \bbreakaway\b
    | \bnvidia\b
    | \b[gr]tx\b
    | \benclosure\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def not_allowed(facts: Facts) -> Iterator[Finding]:
    """boltctl shows an enclosure that is connected and not authorised, in a text about a GPU."""
    text = "\n".join(passages(facts))
    for match in _ENCLOSURE.finditer(text):
        if match["status"] == "connected" and _OF_GPU.search(text):
            words = f"boltctl lists {match['name'].strip()} as connected, not as authorized"
            yield NOT_ALLOWED.found(words, {"enclosure": match["uuid"]}, confidence=Confidence.LIKELY)
            return


_D3_ENABLED = re.compile(r"Runtime D3 status:\s+Enabled")
_IS_AWAKE = re.compile(r"(?m)^\s*Video Memory:\s+Active|runtime_status\s*\n\s*active\b|^D0$")
_POLLS = re.compile(
    r"""
    ^(?:\S+\s+)?\d+\s[^\n]*?(?P<name>nvidia-smi\ (?:-l|--loop|dmon|pmon)
      |nvtop|btop|nvitop|gpustat|dcgm-exporter|conky)\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_REST = re.compile(
    r"""
    \bbattery\b
    | \bsleeps?\b
    | \bd3(?:cold)?\b
    | \bpowers?\ down\b
    | \bsuspended\b
    | \bwatts?\b
    | \b\d+\ ?W\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
STOP = Fix(
    "Stop the program that asks the GPU for its values, or set it not to ask a sleeping GPU",
    "systemctl list-units --type=service | grep -iE 'agent|exporter|monitor'; ps -eo pid,ppid,args | grep -E 'nvidia-smi|nvtop'",
    kind="read",
    on=("host",),
)
POLLED = "A monitoring program keeps the laptop's GPU awake"
WHY_POLLED = (
    "Each query of nvidia-smi or NVML wakes the GPU, which needs up to half a minute without any to power down again. A program "
    "that asks every few seconds keeps it on."
)


def polled(facts: Facts) -> Iterator[Finding]:
    """Runtime power management is enabled, the GPU is awake, and ps shows a program that asks it again and again."""
    text = "\n".join(passages(facts))
    monitor = _POLLS.search(text)
    if monitor and _D3_ENABLED.search(text) and _IS_AWAKE.search(text) and _REST.search(text):
        problem = facts.problems["gpu-never-powers-down"]
        problem = replace(problem, title=POLLED, why=WHY_POLLED, fixes=(STOP,))
        words = f"runtime D3 is enabled, and {monitor['name']} runs"
        yield problem.found(words, {"program": monitor["name"]}, confidence=Confidence.LIKELY)


_WONDERS = re.compile(
    r"""
    \bless\b
    | \bmissing\b
    | \bdifferen\w+
    | \bbroken\b
    | \bwhy\b
    | \blost\b
    | \bsmaller\b
    | \bonly\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def other_ecc(facts: Facts) -> Iterator[Finding]:
    """Of cards of one model, those with ECC have less memory, and the text asks for the difference."""
    gpus = [gpu for gpu in known(lambda: facts.nvml.gpus, ()) if _mode(gpu) is not None and known(lambda gpu=gpu: gpu.name, "")]  # type: ignore[misc]
    on, off = ([gpu for gpu in gpus if _mode(gpu) is mode] for mode in (True, False))
    for one in on:
        others = [gpu for gpu in off if gpu.name == one.name and _memory(gpu) > _memory(one) > 0]
        if others and any(map(_WONDERS.search, passages(facts))):
            words = f"GPU {one.index} has ECC enabled and {_memory(one):,} MiB, GPU {others[0].index} {_memory(others[0]):,} MiB"
            yield OTHER_ECC.found(
                words, {"address": one.selector, "with_ecc": [gpu.index for gpu in on]}, one.index, Confidence.LIKELY
            )
            return


def _mode(gpu: Gpu) -> bool | None:
    """Queries can show the mode without what is pending."""
    shown = known(lambda: gpu.get("EccModeShown"), None)
    return bool(shown) if shown is not None else known(lambda: gpu.ecc_mode.current, None)


def _memory(gpu: Gpu) -> int:
    return known(lambda: gpu.memory_total_mib, 0)


_HCA = re.compile(
    r"""
    \bNCCL_IB_HCA(?:=|\ set\ by\ environment\ to\ )[\"'=]*(?P<names>mlx5_\w+(?::\d+)?(?:,mlx5_\w+(?::\d+)?)*)
      [\"']?\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_LISTED = re.compile(r"(?m)^\s*(?:CA ')?(?P<name>mlx5_\d+)'?\s*$")
FEWEST = 4
_LITTLE = re.compile(r"(?i)\bonly\b|\bslow\w*|\binstead of\b|\bexpect\w*|\blow\b|\bbandwidth|\bbusbw\b")


def adapters_not_named(facts: Facts) -> Iterator[Finding]:
    """ibstat lists several adapters, and NCCL_IB_HCA names one of them."""
    text = "\n".join(passages(facts))
    chosen, there = _HCA.search(text), {match["name"] for match in _LISTED.finditer(text)}
    named = {name.partition(":")[0] for name in chosen["names"].split(",")} if chosen else set()
    if named and len(there) >= FEWEST and len(named & there) * 2 < len(there) and named <= there and _LITTLE.search(text):
        words = f"NCCL_IB_HCA names {', '.join(sorted(named))}, and the node has {len(there)} adapters"
        yield FEWER_ADAPTERS.found(words, {"left_out": sorted(there - named)}, confidence=Confidence.LIKELY)


_NO_PLUGIN = re.compile(
    r"""
    NET/Plugin\ ?:\ (?:No\ plugin\ found|Could\ not\ find|Plugin\ load[^\n]*)[^\n]*libnccl-net
    """,
    re.VERBOSE,
)
_BY_SOCKETS = re.compile(r"Using network Socket")
_HAS_EFA = re.compile(
    r"""
    \bprovider:\ efa\b
    | \bp[456](?:d|de|e|en)?\.\d+xlarge
    | \befa_\d\b
    | \brdmap\d+s\d+
    """,
    re.IGNORECASE | re.VERBOSE,
)
OF_EFA = (
    Fix(
        "Install the plugin with the installer of EFA, and add it to the library path of the job",
        "export LD_LIBRARY_PATH=/opt/amazon/ofi-nccl/lib:/opt/amazon/efa/lib:$LD_LIBRARY_PATH",
        where="shell",
        kind="set",
    ),
    Fix("Look for the plugin", "ls /opt/amazon/ofi-nccl/lib*/libnccl-net* /opt/aws-ofi-nccl/lib/libnccl-net*", kind="read"),
)
NO_PLUGIN = "NCCL does not find its plugin for EFA and uses sockets"
WHY_NO_PLUGIN = (
    "NCCL itself supports InfiniBand, RoCE and sockets. EFA needs aws-ofi-nccl, whose library libnccl-net.so has to be in the "
    "library path, also in a container."
)


def without_plugin(facts: Facts) -> Iterator[Finding]:
    """The instance has EFA adapters, and NCCL found no network plugin and uses sockets."""
    text = "\n".join(passages(facts))
    if _NO_PLUGIN.search(text) and _BY_SOCKETS.search(text) and _HAS_EFA.search(text):
        words = "NCCL finds no network plugin (libnccl-net.so) and uses sockets, although the instance has EFA"
        problem = replace(facts.problems["nccl-net-plugin-missing"], title=NO_PLUGIN, why=WHY_NO_PLUGIN, fixes=OF_EFA)
        yield problem.found(words, {"network": "Socket"}, confidence=Confidence.LIKELY)


def without_library(facts: Facts) -> Iterator[Finding]:
    """NCCL does not find libibverbs and uses sockets, in a text that shows or names an active RDMA adapter."""
    text = "\n".join(passages(facts))
    if _NO_VERBS.search(text) and _BY_SOCKETS.search(text) and _HAS_ADAPTER.search(text):
        words = "NCCL does not find the library libibverbs and exchanges data over sockets, although there is an RDMA adapter"
        problem = facts.problems["nccl-no-ib-falls-back-socket"]
        yield problem.found(words, {"missing": "libibverbs.so.1"}, confidence=Confidence.LIKELY)


_NO_VERBS = re.compile(r"Failed to open libibverbs\.so")
_BY_SOCKETS = re.compile(r"Using network Socket|NET/Socket ?: Using|via NET/Socket")
_HAS_ADAPTER = re.compile(
    r"""
    \bState:\ (?:Active|PORT_ACTIVE) | \bPhysical\ state:\ LinkUp | \bmlx5_\d | \b(?:InfiniBand|ConnectX|RoCE|[HN]DR|EDR)\b
    | /dev/infiniband/uverbs\d
    """,
    re.IGNORECASE | re.VERBOSE,
)


RULES = (without_library, not_allowed, polled, other_ecc, adapters_not_named, without_plugin)
