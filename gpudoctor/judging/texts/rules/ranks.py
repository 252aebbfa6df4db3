"""How the ranks of a text reach each other: the interface of NCCL, peer-to-peer access, MPI and UCX without CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding, Fix

_BOOTSTRAP = re.compile(
    r"""
    ^(?P<host>[\w.-]+):\d+:\d+\ \[\d+\]\ NCCL\ INFO\ Bootstrap\ :\ Using\ (?:\[\d+\])?(?P<name>[\w.-]+):
    """,
    re.MULTILINE | re.VERBOSE,
)
_VIRTUAL = re.compile(
    r"docker | br- | virbr | veth | cni | flannel | cali | tunl | podman | lxc | lxd | tailscale | wg\d | zt | dummy | vmnet",
    re.VERBOSE,
)
_OFFERED = re.compile(r"\[\d+\]([a-z][\w.-]*):\d+\.\d+\.\d+\.\d+")
_UNREACHED = re.compile(
    r"""
    Connect\ to\ \S+\ failed | Call\ to\ connect\ | Connection\ (?:refused|timed\ out|closed) | No\ route\ to\ host
    | \b(?:hang|hung|stuck|freez\w+|timeout|timed\ out|waits?)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def virtual_bootstrap(facts: Facts) -> Iterator[Finding]:
    """The ranks of several hosts start over a bridge of containers or a tunnel, and do not reach each other."""
    text = "\n".join(passages(facts))
    found = list(_BOOTSTRAP.finditer(text))
    used = {match["name"] for match in found if _VIRTUAL.match(match["name"])}
    if not used or len({match["host"] for match in found}) < 2 or not _UNREACHED.search(_BOOTSTRAP.sub("", text)):
        return
    name = sorted(used)[0]
    real = sorted({other for other in _OFFERED.findall(text) if not _VIRTUAL.match(other) and other != "lo"})
    evidence = {"chosen": name, **({"there": real[0]} if real else {})}
    words = f"NCCL starts over {name}" + (f", although there is {real[0]}" if real else ", which other machines do not reach")
    yield facts.problems["nccl-chooses-virtual-interface"].found(words, evidence, confidence=Confidence.LIKELY)


TITLE = "Programs hang where GPUs use peer-to-peer access"
WHY = (
    "One GPU works, and several stop at the first exchange over PCIe. There the IOMMU of the host, or its PCIe bridges (ACS), do "
    "not let GPUs write to each other, although the driver offers it. Copies through the host's memory still work."
)
WITHOUT = Fix(
    "Start the job without peer-to-peer access; if it works then, this is the cause",
    "export NCCL_P2P_DISABLE=1",
    where="shell",
    kind="set",
)
_BETWEEN = re.compile(r"\bvia P2P\b|P2P/(?:CUMEM|IPC|direct)|custom_all_reduce|gpu_p2p_access_cache")
_HANGS = re.compile(r"(?i)\b(?:hang(?:s|ing)?|hung|stuck|freez(?:es?|ing)|frozen|stalls?|forever)\b")
_ALONE = re.compile(
    r"""
    \b(?: 1 | one | single | tensor[_-]parallel[_-]size\ ?=?\ ?1 )\b [^.\n]{0,40} \b(?: fine | works? | ok | good | no\ problem )
    | \b(?: fine | works? | ok | no\ problem )\b [^.\n]{0,30} \b(?: 1 | one | single )[ -]gpu
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LINKED = re.compile(r"\bNV\d{1,2}\b|\bNVLink\b|\bNVL\b", re.IGNORECASE)
_ENDED = re.compile(r"NCCL WARN|NCCL error|out of memory|Init COMPLETE|init COMPLETE")
_TRIED = re.compile(r"NCCL_P2P_DISABLE\s*[=:]\s*[\"']?1")


_EXPLAINED = re.compile(r"\biommu=(?:on|force|1)\b|ReqRedir\+")


def hanging_peers(facts: Facts) -> Iterator[Finding]:
    """One GPU works; several hang after NCCL or vLLM has set up peer-to-peer access, and NCCL reports no error."""
    text = "\n".join(passages(facts))
    if not (_BETWEEN.search(text) and _HANGS.search(text) and _ALONE.search(text)):
        return
    if not (_LINKED.search(text) or _EXPLAINED.search(text) or _ENDED.search(text) or _TRIED.search(text)):
        problem = facts.problems["nccl-p2p-hang-acs-iommu"]
        problem = replace(problem, title=TITLE, why=WHY, fixes=(WITHOUT, *problem.fixes))
        words = "one GPU works, and several hang once they use peer-to-peer access"
        yield problem.found(words, {"transport": "P2P"}, confidence=Confidence.LIKELY)


_WRONG_COPY = re.compile(
    r"""
    Verification\ error\ @\ element | \bsimpleP2P\b[^\n]*\bFAIL | Result\ of\ (?:P2P|peer)[^\n]*(?:mismatch|wrong)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_CARDS = re.compile(r"(?:NVIDIA )?GeForce RTX 40\d0(?: Ti| SUPER| D)?")
_DRIVER = re.compile(r"(?i)driver(?: version)?:?\s*v?(5\d\d\.\d+(?:\.\d+)?)")
FIRST_BROKEN, FIRST_WORKING = Version("525.60"), Version("525.86")


def wrong_copies(facts: Facts) -> Iterator[Finding]:
    """NVIDIA's sample reads other values through peer-to-peer access than were written."""
    text = "\n".join(passages(facts))
    said, card = _DRIVER.search(text), _CARDS.search(text)
    release = known(lambda: facts.nvml.driver_version) or (said[1] if said else "")
    if not _WRONG_COPY.search(text):
        return
    if card and release and FIRST_BROKEN <= Version(release) < FIRST_WORKING:
        words = f"{card[0]} with driver {release}: a copy between the GPUs arrives with other values"
        yield facts.problems["nccl-rtx4090-no-p2p"].found(words, {"driver": release}, confidence=Confidence.LIKELY)
    elif "iommu=pt" not in text:
        words = "a copy between the GPUs arrives with other values"
        yield facts.problems["iommu-translates-peer-traffic"].found(words, {}, confidence=Confidence.LIKELY)


_TRANSPORTS = re.compile(r"(?m)^#?\s*Transport: (?P<name>\w+)")
_CRASH = re.compile(r"Caught signal 11|Signal: (?:Segmentation fault|Bus error)|exited on signal 11")
_OF_GPU = re.compile(r"(?i)\bgpus?\b|\bcuda(?!_support)|cupy|\bnvidia|device pointer")


def ucx_without_cuda(facts: Facts) -> Iterator[Finding]:
    """A rank crashes with an address of a GPU, and ucx_info lists transports without one for CUDA."""
    text = "\n".join(passages(facts))
    names = {match["name"] for match in _TRANSPORTS.finditer(text)}
    if names and _CRASH.search(text) and _OF_GPU.search(text) and not any("cuda" in name or "gdr" in name for name in names):
        words = "UCX has no transport for CUDA, and a rank crashed with an address of GPU memory"
        evidence = {"transports": sorted(names)}
        yield facts.problems["mpi-without-cuda"].found(words, evidence, confidence=Confidence.LIKELY)


_NO_CUDA = re.compile(r"mpi_built_with_cuda_support:value:false|does not have CUDA-aware support")
_DIRECT = re.compile(
    r"""
    \b(?: device\ (?:pointers?|buffers?|memory) | gpu\ (?:buffers?|pointers?|memory|arrays?) | cuda[- ]aware | cupy )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_FAILS = re.compile(r"(?i)\b(?:crash|segfault|segmentation|fail|slow|wrong|not work|host copies)")


def mpi_without_cuda(facts: Facts) -> Iterator[Finding]:
    """ompi_info shows a build without CUDA, and the text says that MPI is passed GPU memory."""
    text = "\n".join(passages(facts))
    rest = _NO_CUDA.sub("", text)
    if _NO_CUDA.search(text) and _DIRECT.search(rest) and _FAILS.search(rest):
        words = "Open MPI was built without CUDA, and is passed memory of a GPU"
        yield facts.problems["mpi-without-cuda"].found(words, {"cuda_support": False}, confidence=Confidence.LIKELY)


RULES = (virtual_bootstrap, hanging_peers, wrong_copies, ucx_without_cuda, mpi_without_cuda)
