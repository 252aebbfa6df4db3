"""Functions on paths. Pure, so that judging can use them too."""

from __future__ import annotations

import os


def project_folder(prefix: str) -> str:
    """The folder of the project: /work/train for both /work/train/.venv and /work/train/.pixi/envs/default."""
    return os.path.dirname(prefix.split("/.pixi/envs/")[0] + "/x" if "/.pixi/envs/" in prefix else prefix)
