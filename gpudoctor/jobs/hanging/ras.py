"""NCCL's RAS socket: every NCCL program since 2.24 answers there how far its ranks are.

https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from typing import Any

DEFAULT = "localhost:28028"
SECONDS = 12.0
NCCL_SECONDS = 5  # for which the RAS threads wait for each other
MOST_BYTES = 2 << 20
MOST_COMMUNICATORS, MOST_RANKS = 64, 512
MOST_TEXT = 60_000
_NO_COMMA = re.compile(r'("nvml_dev": -?\d+)(\s+"status")')
"""In the missing ranks of NCCL 2.28.7 to 2.28.9 (jsonWriteMissingRank); seen on two H200."""


def asked(address: str) -> dict[str, Any]:
    """{"address", "report"} since NCCL 2.28.7, {"address", "text"} before it, or {"address", "failed"}."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "localhost"
    try:
        number = int(port)
        text = _talk(host, number, ("SET FORMAT json", "STATUS"))
        if text.startswith("ERROR") or not text.lstrip().startswith("{"):
            text = _talk(host, number, ("VERBOSE STATUS",))
            return {"address": address, "text": text[:MOST_TEXT]}
        return {"address": address, "report": _reduced(json.loads(_NO_COMMA.sub(r"\1,\2", text)))}
    except (OSError, ValueError, RecursionError, OverflowError, LookupError, TypeError, AttributeError) as failure:
        return {"address": address, "failed": f"{type(failure).__name__}: {failure}"[:200]}


def _talk(host: str, port: int, commands: tuple[str, ...]) -> str:
    """Each command but the last is answered by one line; the answer to the last ends with the connection."""
    end = time.monotonic() + SECONDS
    with socket.create_connection((host, port), timeout=3) as connection:
        rest = b""
        for command in (f"TIMEOUT {NCCL_SECONDS}", *commands[:-1]):
            connection.sendall(command.encode() + b"\n")
            line, rest = _line(connection, rest, end)
            if line.startswith(b"ERROR"):
                return line.decode("utf-8", "replace")
        connection.sendall(commands[-1].encode() + b"\n")
        with contextlib.suppress(ConnectionResetError):
            while len(rest) < MOST_BYTES:
                connection.settimeout(max(0.05, end - time.monotonic()))
                piece = connection.recv(1 << 16)
                if not piece:
                    return rest.decode("utf-8", "replace")
                rest += piece
                if time.monotonic() > end:
                    raise TimeoutError(f"no end of the answer in {SECONDS:g} s")
    if len(rest) >= MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES} bytes came back")
    return rest.decode("utf-8", "replace")


def _line(connection: socket.socket, rest: bytes, end: float) -> tuple[bytes, bytes]:
    while b"\n" not in rest:
        connection.settimeout(max(0.05, end - time.monotonic()))
        piece = connection.recv(4096)
        if not piece or len(rest) > 1 << 16:
            raise ValueError("this is not the RAS protocol")
        rest += piece
    line, _, rest = rest.partition(b"\n")
    return line, rest


def _reduced(said: dict[str, Any]) -> dict[str, Any]:
    """The parts of the report that are judged, in fixed shape and limited number."""
    communicators = []
    for one in said["communicators"][:MOST_COMMUNICATORS]:
        ranks = [
            {**_rank(rank), "counts": {str(name): int(number) for name, number in rank["collective_counts"].items() if number}}
            for rank in one["ranks"][:MOST_RANKS]
        ]
        missing = [
            {**_rank(rank), "dead": bool(rank["status"].get("considered_dead"))} for rank in one["missing_ranks"][:MOST_RANKS]
        ]
        communicators.append({"hash": str(one["hash"]), "size": int(one["size"]), "ranks": ranks, "missing": missing})
    return {"version": str(said.get("nccl_version", "")), "communicators": communicators}


def _rank(said: dict[str, Any]) -> dict[str, Any]:
    status = said["status"]
    return {
        "rank": int(said["rank"]),
        "host": str(said["host"]),
        "pid": int(said["pid"]),
        "gpu": int(said.get("nvml_dev", said.get("cuda_dev", -1))),
        "error": int(status.get("async_error", 0)),
        "ready": int(status.get("init_state", 0)) == 0,
    }
