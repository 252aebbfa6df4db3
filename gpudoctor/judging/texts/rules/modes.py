"""A mode in a text that is wrong for what its owner wants: of an idle GPU, a port, packages, MIG, MPS, Windows' driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.places import is_slow
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Skip, Status

SMI = "https://docs.nvidia.com/deploy/nvidia-smi/index.html"
NOT_RESTING = Problem(
    id="idle-gpu-at-full-clocks",
    title="An idle GPU stays at its full clocks",
    why="Without work the clocks fall within seconds (P8). They stay up if they were locked (-lgc, -lmc, -ac), if the power mode "
    "of nvidia-settings prefers performance, or if a program has a CUDA context open.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Release locked clocks",
            "sudo nvidia-smi -rgc; sudo nvidia-smi -rmc; sudo nvidia-smi -rac",
            verify="nvidia-smi -q -d PERFORMANCE,CLOCK",
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        Fix("Find programs that have the GPU open", "sudo fuser -v /dev/nvidia*", kind="read", on=("host",), needs=("root",)),
        Fix("If none has: set the power mode of nvidia-settings to Adaptive or Auto, or suspend and resume the computer once"),
    ),
    references=(SMI,),
)
ETHERNET = Problem(
    id="adapter-port-in-ethernet-mode",
    title="The adapter's port is set to Ethernet, and the network is InfiniBand",
    why="Adapters for both networks (VPI) have a type for each port. A port of the wrong type gets no link, and no subnet "
    "manager sees it.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Set the type to InfiniBand (1; 2 is Ethernet), then reboot",
            "sudo mst start && sudo mlxconfig -d <adapter> set LINK_TYPE_P1=1",
            verify="ibstat <adapter>",
            on=("host",),
            kind="set",
            reboot=True,
            needs=("root",),
            undo="sudo mlxconfig -d <adapter> set LINK_TYPE_P1=2",
        ),
    ),
    references=("https://docs.nvidia.com/networking/display/mftv4320/mlxconfig",),
)
SMALL_MTU = Problem(
    id="roce-mtu-small",
    title="The RoCE port uses small packets: its MTU is below what it supports",
    why="The MTU of RDMA is the largest of 256 to 4096 bytes that fits the MTU of the Ethernet interface: 1024 at 1500. Small "
    "packets cost bandwidth and processing.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Raise the MTU of the interface on all nodes, and allow it on the switch",
            "sudo ip link set dev <interface> mtu 9000",
            verify="ibv_devinfo | grep mtu",
            undo="sudo ip link set dev <interface> mtu 1500",
            where="host",
            kind="set",
            needs=("root",),
        ),
    ),
    references=("https://docs.nvidia.com/networking/display/mlnxofedv24010331/",),
)
ON_HOLD = Problem(
    id="driver-packages-on-hold",
    title="The driver's packages are on hold, so apt does not upgrade them",
    why="A package on hold keeps its version until the hold is removed, and so do packages that depend on it.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        Fix("If the hold is meant to keep one release for the cluster: leave it"),
        Fix(
            "Remove the hold of the driver's packages, then upgrade and reboot",
            "apt-mark showhold | grep -E 'nvidia|cuda' | xargs -r sudo apt-mark unhold && sudo apt full-upgrade",
            verify="apt-mark showhold",
            on=("debian",),
            kind="install",
            reboot=True,
            needs=("root", "network"),
        ),
    ),
    references=("https://manpages.debian.org/stable/apt/apt-mark.8.en.html",),
)
SHARED_PART = Problem(
    id="mps-limits-share",
    title="MPS allows this program only a part of the GPU's processors",
    why="CUDA_MPS_ACTIVE_THREAD_PERCENTAGE limits how many processors (SMs) a client of MPS may use, whether others use the rest "
    "or not.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Let the program use all processors", "unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", where="shell", kind="set"),
        Fix("If a scheduler sets it: request a larger share, or the whole GPU"),
    ),
    references=("https://docs.nvidia.com/deploy/mps/",),
)
IN_WDDM = Problem(
    id="compute-card-in-wddm-mode",
    title="A card for computing uses Windows' display driver model (WDDM)",
    why="In WDDM Windows schedules the GPU as for a desktop: it collects launches, which delays small kernels, and limits "
    "memory. Tesla and Quadro cards without a display can use TCC or MCDM instead.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "In a terminal of Windows as administrator: select TCC for this card, then reboot (no display on it)",
            "nvidia-smi -i <index> -dm 1",
            undo="nvidia-smi -i <index> -dm 0",
            verify="nvidia-smi --query-gpu=name,driver_model.current --format=csv",
            kind="set",
        ),
    ),
    references=(SMI,),
)
PROBLEMS = (NOT_RESTING, ETHERNET, SMALL_MTU, ON_HOLD, SHARED_PART, IN_WDDM)

RESTS, LITTLE_MIB, SHARE_OF_LIMIT = 5, 500, 0.2
_WONDERS = re.compile(
    r"""
    \b(?: idl(?:e|es|ing) | nothing\ (?:runs|is\ running) | power\ (?:draw|consumption|usage) | draw[si] | watts | stuck )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_IN_P0 = re.compile(
    r"""
    ^\|\s*(?:\d+%|N/A)\s+\d+C\s+P[0-2]\s+(?P<draw>\d+)W\s*/\s*(?P<limit>\d+)W\s*\|\s*(?P<mib>\d+)
      MiB\s*/\s*\d+MiB\s*\|\s*(?P<load>\d+)%
    """,
    re.MULTILINE | re.VERBOSE,
)


def not_resting(facts: Facts) -> Iterator[Finding]:
    """A GPU without load and programs in P0 to P2, which draws a large part of its limit, in a text about that."""
    text = "\n".join(passages(facts))
    for index, row in enumerate(_IN_P0.finditer(text) if _WONDERS.search(text) else ()):
        draw, limit = int(row["draw"]), int(row["limit"])
        is_empty = int(row["load"]) <= RESTS and int(row["mib"]) < LITTLE_MIB
        if is_empty and draw > SHARE_OF_LIMIT * limit and not _OF_SERVERS.search(text):
            words = f"GPU {index} has no load and no program, and draws {draw} of {limit} W"
            yield NOT_RESTING.found(words, {"draw_watts": draw, "limit_watts": limit}, index, Confidence.LIKELY)
            return


_OF_SERVERS = re.compile(r"\b(?:A100|H100|H200|B200|V100|P100|A800|H800|GH200|A30|SXM\d?)\b")  # rest in P0
_PORT = re.compile(
    r"""
    ^CA\ '(?P<adapter>\w+)'\s*\n
    (?: (?!CA\ ')[^\n]*\n ){0,20}?
    [ \t]*State:\ Down\s*\n
    (?: (?!CA\ ')[^\n]*\n ){0,12}?
    [ \t]*Link\ layer:\ Ethernet\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_NETWORK = re.compile(
    r"""
    \b(?: Infini[Bb]and | subnet\ manager | opensm | UFM | QM[89]\d00 | Quantum )\b
    """,
    re.VERBOSE,
)


def port_of_other_type(facts: Facts) -> Iterator[Finding]:
    """ibstat shows a port for Ethernet without a link, and the text is about InfiniBand."""
    text = "\n".join(passages(facts))
    match = _PORT.search(text)
    rest = re.sub(r"(?m)^\s*(?:transport:|CA type|Link layer:)[^\n]*$", "", text)
    if match and _NETWORK.search(rest):
        words = f"the port of {match['adapter']} has the link layer Ethernet and no link"
        yield ETHERNET.found(words, {"adapter": match["adapter"]}, confidence=Confidence.LIKELY)


_MTUS = re.compile(r"max_mtu:\s+(?P<most>\d+)[^\n]*\n\s*active_mtu:\s+(?P<now>\d+)")
_OF_ETHERNET = re.compile(r"link_layer:\s+Ethernet")
_NAMED = re.compile(r"(?m)^\d+: (?P<name>\w+): <[^\n]* mtu 1500 ")
_SLOWER = re.compile(r"(?i)\binstead of\b|\bonly\b|\bslow\w*|\bexpect\w*|\bbandwidth\b")


def small_mtu(facts: Facts) -> Iterator[Finding]:
    """ibv_devinfo shows a RoCE port with an MTU of 1024 or less, in a text about its speed."""
    text = "\n".join(passages(facts))
    match = _MTUS.search(text)
    if match and int(match["now"]) <= 1024 < int(match["most"]) and _OF_ETHERNET.search(text) and _SLOWER.search(text):
        interface = _NAMED.search(text)
        words = f"active_mtu is {match['now']}, and the port supports {match['most']}"
        evidence = {"active_mtu": int(match["now"]), **({"interface": interface["name"]} if interface else {})}
        yield SMALL_MTU.found(words, evidence, confidence=Confidence.LIKELY)


_MEANT = re.compile(r"(?i)\b(?:on purpose|deliberate\w*|intention\w*|pinned|we hold)\b")
_KEPT = re.compile(
    r"""
    kept\ back:?[^\n]*\n(?:[ \t]+[^\n]+\n)+
    | \b(?: never | not | doesn['’]?t | won['’]?t )\b[^\n.]{0,30}\b(?:upgrade|update|install)\w*
    """,
    re.IGNORECASE | re.VERBOSE,
)


def on_hold(facts: Facts) -> Iterator[Finding]:
    """apt-mark lists packages of the driver, and the text says that they are not upgraded."""
    text = "\n".join(passages(facts))
    held = [name for name in facts.shown.output("packages on hold").split() if re.search(r"nvidia-\w+-\d{3}|nvidia-driver", name)]
    if held and _KEPT.search(text) and not _MEANT.search(text):
        words = f"on hold: {', '.join(held[:3])}" + (" …" if len(held) > 3 else "")
        yield ON_HOLD.found(words, {"held": held[:8]}, confidence=Confidence.LIKELY)


_INSTANCES = re.compile(r"(?m)^\|\s+(?P<gpu>\d+)\s+MIG [\w.+]+\s+\d+\s+\d+\s+\d+:\d+\s*\|")
COMPUTE = Fix(
    "Create a compute instance in each GPU instance",
    "sudo nvidia-smi mig -i <index> -cci",
    verify="nvidia-smi -L",
    on=("host",),
    kind="set",
    needs=("root",),
    undo="sudo nvidia-smi mig -i <index> -dci",
)
NO_COMPUTE = "The MIG instances have no compute instances: CUDA cannot use them"
WHY_NO_COMPUTE = (
    "A GPU instance (-cgi) is a part of the GPU's memory and processors. Programs use compute instances within it, which -cgi "
    "creates only together with the option -C."
)


def without_compute_instances(facts: Facts) -> Iterator[Finding]:
    """nvidia-smi mig lists GPU instances, and no compute instance."""
    text = "\n".join(passages(facts))
    instance = _INSTANCES.search(text)
    if instance and "No compute instances found" in text:
        problem = replace(facts.problems["mig-enabled-without-instances"], title=NO_COMPUTE, why=WHY_NO_COMPUTE, fixes=(COMPUTE,))
        words = f"GPU {instance['gpu']} has GPU instances without compute instances"
        yield problem.found(words, {"index": int(instance["gpu"])}, confidence=Confidence.LIKELY)


def share_of_mps(facts: Facts) -> Iterator[Finding]:
    """The variable of MPS limits a program that the text calls slow."""
    told = [match[1] for text in passages(facts) for match in _PERCENTAGE.finditer(text)]
    if told and float(told[-1]) < 100 and is_slow(facts):
        words = f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is {told[-1]}"
        yield SHARED_PART.found(words, {"percent": float(told[-1])}, confidence=Confidence.LIKELY)


_PERCENTAGE = re.compile(r"\bCUDA_MPS_ACTIVE_THREAD_PERCENTAGE=[\"']?(\d{1,3}(?:\.\d+)?)\b")
_MODEL = re.compile(
    r"""
    ^(?:(?P<index>\d+),\ )?(?P<name>(?:NVIDIA\ )?(?:Tesla|Quadro|A100|A40|A30|A10|L40S?|H100)[^,\n]*)
      ,(?:[^,\n]*,)*?\ WDDM\b
    """,
    re.MULTILINE | re.VERBOSE,
)


def in_wddm(facts: Facts) -> Iterator[Finding]:
    """A card for servers is in WDDM, in a text about speed or memory."""
    match = next(filter(None, map(_MODEL.search, passages(facts))), None)
    if match and is_slow(facts):
        with suppress(Skip):
            words = f"{match['name']} uses the driver model WDDM"
            yield IN_WDDM.found(words, {"index": int(match["index"] or 0)}, confidence=Confidence.LIKELY)


_NO_ENCODERS = re.compile(
    r"""
    ffmpeg\b[^\n]*-(?:encoders|decoders|hwaccels)\b[^\n]*\|\s*grep\b[^\n]*(?:nvenc|cuvid|cuda)
      [^\n]*\n\s*(?:[^\n]*[$#]\ |\Z)
    """,
    re.VERBOSE,
)
_BUILT = re.compile(r"(?m)^\s*configuration:(?P<options>[^\n]*)$")


def ffmpeg_without(facts: Facts) -> Iterator[Finding]:
    """ffmpeg lists no encoder of NVIDIA, and its configuration names none."""
    text = "\n".join(passages(facts))
    built = _BUILT.search(text)
    if _NO_ENCODERS.search(text) and (built is None or not re.search(r"nvenc|ffnvcodec|cuda", built["options"])):
        words = "ffmpeg lists no encoder of NVIDIA" + (", and was configured without it" if built else "")
        yield facts.problems["ffmpeg-built-without-nvidia"].found(words, {"lists": "none"}, confidence=Confidence.LIKELY)


RULES = (
    *(not_resting, port_of_other_type, small_mtu, on_hold, without_compute_instances, share_of_mps, in_wddm, ffmpeg_without),
)
