"""The output of other tools on this machine, word for word, as the maintainers of a project expect it."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpudoctor import programs
from gpudoctor.model import Reply

PREFIX = "quoted:"
SECONDS = 60.0  # torch's collect_env imports torch and runs a dozen programs
MOST_CHARACTERS = 200_000
AWAY = "/"  # python -m and -c would import from the current folder
OF_PYTHON = ("torch", "vllm", "cupy")  # tools that run in the examined Python
_PYTHON = "python"  # placeholder for the examined Python
COMMANDS = {
    "nvidia-smi": ("nvidia-smi",),
    "topology": ("nvidia-smi", "topo", "-m"),
    "infiniband": ("ibstatus",),
    "torch": (_PYTHON, "-m", "torch.utils.collect_env"),
    "vllm": (_PYTHON, "-m", "vllm.collect_env"),
    "cupy": (_PYTHON, "-c", "import cupy; cupy.show_config(_full=True)"),
}


def commands(python: str) -> dict[str, tuple[str, ...]]:
    """Name -> the command line of each tool that can be quoted. python: the Python of the environment in question."""
    return {name: tuple(python if word == _PYTHON else word for word in argv) for name, argv in COMMANDS.items()}


def shown(name: str) -> str:
    """The command line of a tool, ready to paste."""
    return shlex.join(COMMANDS[name])


def quoted(names: Sequence[str], python: str, tell: Callable[[str], None] = lambda doing: None) -> dict[str, Reply]:
    """The replies "quoted:NAME", run in parallel; a tool that is not installed is "missing", one that does not end a timeout."""
    known = commands(python)
    if not names:
        return {}
    tell(f"Running {', '.join(names)}")
    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip((PREFIX + name for name in names), pool.map(_asked, (known[name] for name in names)), strict=True))


def said(replies: Mapping[str, Reply], name: str) -> str:
    """The output of the tool; "" if it printed nothing, only failed, or was not run."""
    value = _value(replies, name)
    return str(value.get("out") or (value.get("code") == 0 and value.get("err")) or "").strip("\n")


def failed(replies: Mapping[str, Reply], name: str) -> str:
    """The last line of a tool that failed without other output."""
    value = _value(replies, name)
    lines = str(value.get("err") or "").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _value(replies: Mapping[str, Reply], name: str) -> dict[str, Any]:
    reply = replies.get(PREFIX + name)
    return reply.value if reply and reply.status == "ok" and isinstance(reply.value, dict) else {}


def _asked(argv: tuple[str, ...]) -> Reply:
    started = time.monotonic()
    path = os.path.abspath(argv[0]) if "/" in argv[0] else argv[0]  # noqa: PTH100 (a link stays a link, as in a venv)
    try:
        done = programs.finished((path, *argv[1:]), SECONDS, AWAY)
    except OSError as failure:
        return Reply("missing", detail=f"{argv[0]} cannot be run: {failure.strerror}")
    except programs.TooMuch as failure:
        return Reply("error", detail=f"{argv[0]} was killed: {failure}")
    except subprocess.TimeoutExpired:
        return Reply("timeout", detail=f"{argv[0]} did not finish in {SECONDS:g} s", seconds=time.monotonic() - started)
    value = {"code": done.returncode, "out": done.stdout[:MOST_CHARACTERS], "err": done.stderr[-MOST_CHARACTERS:]}
    return Reply("ok", value, seconds=time.monotonic() - started)
