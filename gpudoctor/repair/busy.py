"""Which processes use a GPU now: from NVML, or from open device files if NVML does not answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu_records import Process
from gpudoctor.model import Skip

NODE = re.compile(r"/dev/(nvidia\d+|dxg)$")
OF_THE_DRIVER = re.compile(r"nvidia-persiste|nv-fabricmanag|nv-hostengine|nvidia-smi")
NOT_SEEN = "processes that only root can see (NVML does not list them; use sudo gpudoctor fix --run)"


def users(facts: Facts, root: Path = Path("/")) -> list[str]:
    """Empty only if it is certain that none does. Display servers do not count."""
    try:
        return [name for gpu in facts.nvml.reachable.values() for name in of_gpu(gpu.index, gpu.processes)]
    except Skip:
        return by_open_files(root)


def of_gpu(index: int, processes: Iterable[Process]) -> Iterator[str]:
    for process in processes:
        if process.kind != "graphics":
            yield f"{process.name or 'a process'} (pid {process.pid}) on GPU {index}"


def by_open_files(root: Path) -> list[str]:
    if not any(NODE.search(f"/dev/{node.name}") for node in root.glob("dev/*")):
        return []
    found, hidden = [], False
    for folder in sorted(root.glob("proc/[0-9]*")):
        try:
            opened = {str(file.readlink()) for file in (folder / "fd").iterdir()}
            name = (folder / "comm").read_text().strip()
        except PermissionError:
            hidden = True
        except OSError:  # it has ended
            continue
        else:
            nodes = sorted(node for node in opened if NODE.fullmatch(node))
            if nodes and not OF_THE_DRIVER.match(name):
                found.append(f"{name} (pid {folder.name}), which has {nodes[0]} open")
    return found or ([NOT_SEEN] if hidden else [])
