"""Copies of GPU memory in a text: p2pBandwidthLatencyTest with and without peer-to-peer access, and MPI without CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding

_MATRIX = re.compile(
    r"""
    ^\s*Unidirectional\ P2P=(?P<state>Enabled|Disabled)\ Bandwidth[^\n]*\n
    \s*D\\D[^\n]*\n
    (?P<rows> (?: \s*\d+(?:\s+[\d.]+)+\s*(?:\n|\Z) )+ )
    """,
    re.MULTILINE | re.VERBOSE,
)
_REDIRECTS = re.compile(r"ACSCtl:[^\n]*ReqRedir\+")
_PASSED_THROUGH = re.compile(r"\biommu=pt\b|\b(?:intel_|amd_)?iommu=off\b")
WORTH = 0.6  # of the speed without it: peer-to-peer access that is slower than this goes the long way
WHY = (
    "Peer-to-peer access should be faster than a copy through the host's memory. It is slower where the IOMMU translates each "
    "transfer, or PCIe bridges send it to the CPU first (ACS)."
)


def slower_with_peers(facts: Facts) -> Iterator[Finding]:
    """Peer-to-peer access makes the copies slower."""
    text = "\n".join(passages(facts))
    speeds = {match["state"]: _between(match["rows"]) for match in _MATRIX.finditer(text)}
    on, off = speeds.get("Enabled", 0.0), speeds.get("Disabled", 0.0)
    if on and off and on < WORTH * off:
        words = f"copies between GPUs reach {on:.1f} GB/s with peer-to-peer access, and {off:.1f} GB/s without"
        is_acs = _REDIRECTS.search(text) or _PASSED_THROUGH.search(text)
        problem = facts.problems["nccl-p2p-hang-acs-iommu" if is_acs else "iommu-translates-peer-traffic"]
        evidence = {"with_gb_s": round(on, 1), "without_gb_s": round(off, 1)}
        yield replace(problem, why=WHY).found(words, evidence, confidence=Confidence.LIKELY)


def _between(rows: str) -> float:
    """The median of a matrix without its diagonal, which is the speed inside of one GPU."""
    lines = [line.split() for line in rows.splitlines() if line.strip()]
    values = [float(value) for line in lines for column, value in enumerate(line[1:]) if column != int(line[0])]
    return median(values) if values else 0.0


def unaware_mpi(facts: Facts) -> Iterator[Finding]:
    """ompi_info shows a build without CUDA, and a rank of a GPU program crashes."""
    text = "\n".join(passages(facts))
    if _NO_CUDA.search(text) and _CRASH.search(text) and _OF_GPU.search(text):
        words = "Open MPI was built without CUDA, and a rank crashed with an invalid address"
        yield facts.problems["mpi-without-cuda"].found(words, {"cuda_support": False}, confidence=Confidence.LIKELY)


_NO_CUDA = re.compile(r"mpi_built_with_cuda_support:value:false")
_CRASH = re.compile(r"Signal: (?:Segmentation fault|Bus error)|exited on signal 11|Caught signal 11")
_OF_GPU = re.compile(r"(?i)\bgpus?\b|cuda(?!_support)|kokkos|\bnvidia")
RULES = (slower_with_peers, unaware_mpi)
