"""NCCL's output with NCCL_DEBUG=INFO, in the log of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply
from gpudoctor.worker.measuring import nccl_log

BY_NCCL = re.compile(r"NCCL (?:INFO|WARN) ", re.M)
DRIVER = re.compile(r"NCCL INFO cudaDriverVersion (\d+)")
COMMUNICATOR = re.compile(r"NCCL INFO comm \w+ rank \d+ n[rR]anks (\d+) nNodes (\d+)")
STARTED = re.compile(r"n[rR]anks (\d+) cudaDev .* Init (?:START|COMPLETE)")
NETWORK = re.compile(r"NCCL INFO Using network (\S.*)")
INTERFACE = re.compile(r"NCCL INFO (?:Bootstrap ?: Using |NET/Socket : Using .*?\[\d+\])([\w.-]+):")
ADAPTERS = re.compile(r"NCCL INFO NET/IB : Using (\[\d+\]\S+.*?)(?: ?; OOB| \[RO\]|$)", re.M)
NO_LIBRARY = re.compile(r"NCCL INFO Failed to open libibverbs\.so|NCCL INFO NET/IB : No device found")
HOST = re.compile(r"(?:^|[\s|])([\w.-]+):\d+:\d+ \[\d+\] NCCL (?:INFO|WARN) ")
OF_HOSTS = ("NCCL INFO Bootstrap", "NCCL INFO Using network", "NCCL INFO NCCL version", "via NET/IB")
BOOTSTRAP = re.compile(r"NCCL INFO Bootstrap ?: Using (?:\[\d+\])?([\w.-]+):")
OTHERS = ("NCCL INFO Channel ", "NCCL INFO Using network", "NCCL INFO NET/", "NCCL INFO Connected all", "NCCL WARN ")


def read(text: str) -> dict[str, Reply] | None:
    """`nccl-log`, and the CUDA version that the driver supports. None if the text does not come from NCCL."""
    if not BY_NCCL.search(text):
        return None
    found = {"nccl-log": Reply("ok", value(text))}
    driver = DRIVER.search(text)
    if driver and int(driver[1]):
        found["cuda"] = Reply("ok", {"library": "libcuda.so.1", "load_error": "", "driver_version": int(driver[1])})
    return found


def value(text: str) -> dict[str, Any]:
    """As in measuring/nccl_log.py, with "ranks" and "nodes" of the largest group, "network", "interfaces", "adapters".

    without_infiniband: NCCL reports no adapter, or no library for it. completed: at least one group started.
    """
    found = nccl_log.parsed(text)
    groups = [(int(match[1]), int(match[2])) for match in COMMUNICATOR.finditer(text)]
    ranks = [ranks for ranks, _ in groups] + [int(match[1]) for match in STARTED.finditer(text)]
    if ranks:
        found["ranks"] = max(ranks)
    if groups:
        found["nodes"] = max(nodes for _, nodes in groups)
    networks = [match[1].strip() for match in NETWORK.finditer(text)]
    if networks:
        found["network"] = networks[-1]
    found["interfaces"] = sorted({match[1] for match in INTERFACE.finditer(text)})
    found["adapters"] = sorted({name for match in ADAPTERS.finditer(text) for name in re.findall(r"\[\d+\]([\w:/]+)", match[1])})
    found["without_infiniband"] = bool(NO_LIBRARY.search(text))
    found["completed"] = "Init COMPLETE" in text
    found["hosts"] = sorted({match[1] for word in OF_HOSTS for line in _with(text, word) if (match := HOST.search(line))})
    found["versions"] = sorted(set(nccl_log.VERSION.findall(text)))
    found["bootstrap"] = sorted({match[1] for match in BOOTSTRAP.finditer(text)})
    return {**found, **_direct(text)}


def _direct(text: str) -> dict[str, Any]:
    """The hosts whose adapters reach the GPUs' memory (GDRDMA), and those that receive into host memory only."""
    channels = [
        (match[1], "/GDRDMA" in line, "[receive]" in line) for line in _with(text, "via NET/IB") if (match := HOST.search(line))
    ]
    direct = {host for host, is_direct, _ in channels if is_direct}
    staged = {host for host, _, is_receiving in channels if is_receiving} - direct
    return {"direct": sorted(direct), "staged": sorted(staged)} if channels else {}


def _with(text: str, word: str) -> Iterator[str]:
    """The lines that contain a word."""
    at = text.find(word)
    while at >= 0:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield text[text.rfind("\n", 0, at) + 1 : end]
        at = text.find(word, end)


READER = Reader(
    kind="NCCL_DEBUG log",
    anchors=("cudaDriverVersion", "set by environment to", "NCCL INFO Bootstrap", "NCCL INFO comm ", "Init START", *OTHERS),
    begins=BY_NCCL,
    read=read,
)
