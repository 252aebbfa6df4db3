"""The CDI specification of a fake machine's GPUs, as `nvidia-ctk cdi generate` would write it: an engine that knows CDI puts
them into a container itself, and only what belongs to the kernel is the hook's.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

VERSION = "0.5.0"  # the newest that Podman 4.3 reads
LIBRARIES = f"/usr/lib/{os.uname().machine}-linux-gnu"


def write(folder: Path, gpus: int, driver: str) -> None:
    """JSON, which is YAML too."""
    (folder / "cdi").mkdir(exist_ok=True)
    (folder / "cdi" / "nvidia.yaml").write_text(json.dumps(specification(folder, gpus, driver), indent=1))


def specification(folder: Path, gpus: int, driver: str) -> dict[str, Any]:
    each = [[_node(folder, f"nvidia{gpu}")] for gpu in range(gpus)]
    every = [node for nodes in each for node in nodes]
    devices = [(str(gpu), nodes) for gpu, nodes in enumerate(each)] + [("all", every)]
    hook = str(folder / "hookbin/nvidia-container-runtime-hook")
    mounts = {
        **{f"{LIBRARIES}/{name}.so.{driver}": f"lib/{name}.so.{driver}" for name in ("libcuda", "libnvidia-ml")},
        "/usr/bin/nvidia-smi": "bin/nvidia-smi",
    }
    return {
        "cdiVersion": VERSION,
        "kind": "nvidia.com/gpu",
        "devices": [{"name": name, "containerEdits": {"deviceNodes": nodes}} for name, nodes in devices],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [_node(folder, name) for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")],
            "mounts": [
                {"hostPath": str(folder / path), "containerPath": place, "options": ["ro", "nosuid", "nodev", "bind"]}
                for place, path in mounts.items()
            ],
            "hooks": [{"hookName": "createRuntime", "path": hook, "args": [hook, "cdi"], "env": [f"PATH={os.environ['PATH']}"]}],
        },
    }


def _node(folder: Path, name: str) -> dict[str, str]:
    return {"path": f"/dev/{name}", "hostPath": str(folder / "dev" / name)}
