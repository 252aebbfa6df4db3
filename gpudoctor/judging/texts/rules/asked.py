"""What was asked for against what is given in a text: the GPUs of a pod or job, the instances of MIG, a render node."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.python import answer
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

PRIVILEGED = Problem(
    id="privileged-container-sees-all-gpus",
    title="A privileged container sees all GPUs, not only its own",
    why="A privileged container may open every device of the host, so the request for GPUs only counts for the scheduler. Two "
    "such containers can use the same GPU.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Remove privileged: true from the container's securityContext (or --privileged), and add only the capabilities that "
            "the program needs"
        ),
        Fix(
            "If it has to be privileged: let the device plugin pass the list as volume mounts, so that NVIDIA's runtime still "
            "selects the GPUs",
            "helm upgrade <chosen_name> nvdp/nvidia-device-plugin -n <namespace> --reuse-values "
            "--set deviceListStrategy=volume-mounts",
            verify="kubectl get ds -n <namespace>",
            kind="manual",
        ),
    ),
    references=(
        "https://github.com/SlinkyProject/slurm-operator/issues/45",
        "https://github.com/NVIDIA/k8s-device-plugin#configuration-option-details",
    ),
)
OTHER_NODE = Problem(
    id="render-node-of-another-gpu",
    title="The program is set to the render node of another GPU",
    why="The numbers of /dev/dri/renderD* follow the order in which the drivers started, so renderD128 is often the integrated "
    "GPU. The links in /dev/dri/by-path name the PCI address of each.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Set the program's device (and --device of its container) to the node of the wanted GPU",
            "ls -l /dev/dri/by-path  # wanted: <path>",
            verify="vainfo --display drm --device <path>",
            kind="read",
        ),
        Fix("Name it by its link in /dev/dri/by-path, which stays the same when the numbers change"),
    ),
    references=("https://github.com/jellyfin/jellyfin/issues/10129",),
)
PROBLEMS = (PRIVILEGED, OTHER_NODE)

_PRIVILEGED = re.compile(
    r"""
    ^\s*privileged:\s*true\b|\"Privileged\":\s*true|\bdocker\ run\b[^\n]*--privileged\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_REQUESTED = re.compile(
    r"""
    ^\s*["']?nvidia\.com/gpu["']?:\s*["']?(?P<pod>\d+)
    | \bdocker\ run\b[^\n]*--gpus[=\ ]["'\\]*(?: device=(?P<named>[\w,-]+) | (?P<count>\d+)\b )
    """,
    re.MULTILINE | re.VERBOSE,
)
_LISTS = re.compile(
    r"""
    ^[^\n]*\b(?: kubectl\b[^\n]*\bexec\b | (?:docker|podman)\ (?:exec|run)\b )[^\n]*\bnvidia-smi\ (?:-L|--list-gpus)\ *\n
    (?P<rows> (?:GPU\ \d+:[^\n]*(?:\n|\Z))+ )
    """,
    re.MULTILINE | re.VERBOSE,
)


def privileged_container(facts: Facts) -> Iterator[Finding]:
    """nvidia-smi in a privileged container lists more GPUs than it was given."""
    text = "\n".join(passages(facts))
    requests = {_asked(match) for match in _REQUESTED.finditer(text)}
    seen = [len(match["rows"].strip().splitlines()) for match in _LISTS.finditer(text)]
    if _PRIVILEGED.search(text) and len(requests) == 1 and seen and 0 < (count := requests.pop()) < max(seen):
        words = f"the container asks for {count} GPU{'s' * (count > 1)}, is privileged, and sees {max(seen)}"
        yield PRIVILEGED.found(words, {"requested": count, "listed": max(seen)}, confidence=Confidence.LIKELY)


def _asked(match: re.Match[str]) -> int:
    return len(match["named"].split(",")) if match["named"] else int(match["pod"] or match["count"])


_SRUN = re.compile(
    r"""
    ^[^\n]*\b(?:srun|salloc)\b[^\n]*?
    --(?: gres=gpu(?::[\w.]+)?: | gpus(?:-per-node)?[=\ ](?:[\w.]+:)? )(?P<asked>\d+)\b[^\n]*\n
    """,
    re.MULTILINE | re.VERBOSE,
)
_ROWS = re.compile(r"(?m)(?:^GPU \d+: [^\n]*UUID: GPU-[^\n]*(?:\n|\Z)){2,}")


def confined_by_variable(facts: Facts) -> Iterator[Finding]:
    """Inside of a job CUDA_VISIBLE_DEVICES names what was requested, and nvidia-smi still lists more."""
    text = "\n".join(passages(facts))
    if facts.shown.slurm.get("constrains") is not None:
        return
    visible = (known(lambda: facts.environment.get("CUDA_VISIBLE_DEVICES")) or "").split(",")
    for match in _SRUN.finditer(text):
        rows = _ROWS.search(text, match.end())
        asked = int(match["asked"])
        if not rows or asked != len([number for number in visible if number.strip().isdigit()]):
            continue
        listed = len(rows[0].strip().splitlines())
        if asked < listed:
            words = f"a job with {asked} GPUs sees {listed}: CUDA_VISIBLE_DEVICES alone hides the others"
            evidence = {"requested": asked, "listed": listed, "visible": ",".join(visible)}
            problem = facts.problems["slurm-devices-not-constrained"]
            yield problem.found(words, evidence, confidence=Confidence.LIKELY)
            return


_MISSES = re.compile(
    r"""
    \b(?: only | just )\ (?: sees?\ | shows?\ | finds?\ | detects?\ | uses?\ )?(?: one | 1 | a\ single )\b
    | \bsees\ (?:only\ |just\ )?(?: one | 1 )\b
    | \b(?: all | both | several | multiple | three | four | seven )\ (?:of\ )?(?:them|instances|slices|devices|MIG)
    """,
    re.IGNORECASE | re.VERBOSE,
)


def one_of_several_instances(facts: Facts) -> Iterator[Finding]:
    """nvidia-smi lists several MIG instances, a program counts one device, and the text misses the others."""
    gpus = known(lambda: facts.nvml.gpus, ())
    devices = [one for gpu in gpus for one in known(lambda gpu=gpu: list(gpu.get("MigDevices")), [])]  # type: ignore[misc]
    instances = [one.get("UUID", "") for one in devices]
    named = known(lambda: facts.environment.get("CUDA_VISIBLE_DEVICES")) or ""
    counted = answer(facts, "torch.cuda.device_count")
    if len(instances) > 1 and counted == "1" and "MIG-" not in named and any(map(_MISSES.search, passages(facts))):
        words = f"nvidia-smi lists {len(instances)} MIG instances, and CUDA gives a process only one of them"
        evidence = {"instances": len(instances)} | ({"instance": instances[0]} if instances[0] else {})
        yield facts.problems["mig-single-instance-per-process"].found(words, evidence, confidence=Confidence.LIKELY)


_BY_PATH = re.compile(
    r"""
    \bpci-(?P<address>[\da-f]{4}:[\da-f]{2}:[\da-f]{2}\.\d)-render\ ->\ \.\./(?P<node>renderD\d+)
    """,
    re.MULTILINE | re.VERBOSE,
)
_DISPLAY = re.compile(
    r"""
    ^\s*(?:(?P<domain>[\da-f]{4}):)?(?P<address>[\da-f]{2}:[\da-f]{2}\.\d)\ (?:VGA|3D|Display)[^\n:]*:\ (?P<name>[^\n]+)
    """,
    re.MULTILINE | re.VERBOSE,
)
_SET_TO = re.compile(
    r"""
    (?: VaapiDevice> | -vaapi_device\ | -init_hw_device\ \w+=\w+: | LIBVA_DEVICE= | --device[=\ ]
      | \bdevices?:\s*(?:\n\s*)?-\s*["']? )
    /dev/dri/(?P<node>renderD\d+)
    """,
    re.VERBOSE,
)
_VENDORS = {
    "intel": re.compile(r"(?i)\bintel\b|\biHD\b|\barc\b"),
    "amd": re.compile(r"(?i)\b(?:amd|radeon|ati)\b"),
    "nvidia": re.compile(r"(?i)\b(?:nvidia|geforce|[rg]tx)\b"),
}


def other_render_node(facts: Facts) -> Iterator[Finding]:
    """A program is set to a render node, and the text misses the work on the GPU of another one."""
    text = "\n".join(passages(facts))
    nodes = {match["node"]: match["address"] for match in _BY_PATH.finditer(text)}
    cards = {f"{match['domain'] or '0000'}:{match['address']}": match["name"] for match in _DISPLAY.finditer(text)}
    chosen = {match["node"] for match in _SET_TO.finditer(text)}
    if len(nodes) < 2 or len(chosen) != 1 or (node := chosen.pop()) not in nodes:
        return
    own = _vendor(cards.get(nodes[node], ""))
    rest = _DISPLAY.sub("", text)
    others = {name: address for name, address in nodes.items() if _vendor(cards.get(address, "")) not in ("", own)}
    for name, address in others.items():
        vendor = _vendor(cards[address])
        if own and _missed(vendor).search(rest):
            words = f"the program is set to {node}, which is {_short(cards[nodes[node]])}; {name} is {_short(cards[address])}"
            evidence = {"set": f"/dev/dri/{node}", "path": f"/dev/dri/{name}", "device_address": address}
            yield OTHER_NODE.found(words, evidence, confidence=Confidence.LIKELY)
            return


def _vendor(name: str) -> str:
    return next((vendor for vendor, pattern in _VENDORS.items() if pattern.search(name)), "")


def _missed(vendor: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?:{_NOT})[^\n]{{0,60}}{_VENDORS[vendor].pattern.replace('(?i)', '')}"
        rf"|{_VENDORS[vendor].pattern.replace('(?i)', '')}[^\n]{{0,60}}(?:{_NOT})",
        re.IGNORECASE,
    )


_NOT = r"\b(?:not|never|n't|idle|unused|instead|rather than|at 0 ?%|wrong)\b|n't"


def _short(name: str) -> str:
    return re.sub(r"^.*\[([^\]]+)\][^\[]*$", r"\1", name) if "[" in name else name.split(" (rev")[0]


RULES = (privileged_container, confined_by_variable, one_of_several_instances, other_render_node)
