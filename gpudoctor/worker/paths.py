"""Paths that say what something is. Pure, so that what judges may use it too."""

from __future__ import annotations

import os


def project_folder(prefix: str) -> str:
    """The folder that holds the environment: of /work/train/.venv and of /work/train/.pixi/envs/default /work/train."""
    return os.path.dirname(prefix.split("/.pixi/envs/")[0] + "/x" if "/.pixi/envs/" in prefix else prefix)
