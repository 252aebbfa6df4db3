"""Folders on this machine in which containers cache downloads and compiled kernels for the next run.

All images share the downloads. Compiled kernels are kept separately for each image, because each has its own compiler.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

INSIDE = "/cache"
SHARED = {"HF_HOME": "hf", "TORCH_HOME": "torch", "PIP_CACHE_DIR": "pip"}
# CUDA's cache uses the mounted folder itself: it is not documented whether a driver creates missing folders.
OF_THE_IMAGE = {
    "CUDA_CACHE_PATH": "",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "CUPY_CACHE_DIR": "cupy",
    "NUMBA_CACHE_DIR": "numba",
}
HOME = "home"  # for a user without a home in the image
DIGITS = 16  # of the image's digest: enough to distinguish the images of one machine
PRIVATE, FOR_ANYBODY = 0o700, 0o777


@dataclass(frozen=True)
class Caches:
    """The two folders of one user and one image. made_by_daemon: root's daemon creates them, so that root inside owns them."""

    root: Path
    shared: Path
    image: Path
    made_by_daemon: bool = False

    @property
    def mounts(self) -> tuple[tuple[Path, str], ...]:
        return (self.shared, f"{INSIDE}/shared"), (self.image, f"{INSIDE}/image")

    def prepare(self) -> str:
        """Creates missing folders; returns the reason if that fails, else "".

        Only the user can enter the root, so the folders below it can be open to all: a container may run as any user.
        """
        try:
            self.root.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            self.shared.parent.mkdir(mode=FOR_ANYBODY, exist_ok=True)
            for folder in () if self.made_by_daemon else (self.shared, self.image, self.image / HOME):
                folder.mkdir(exist_ok=True)
                with contextlib.suppress(PermissionError):
                    folder.chmod(FOR_ANYBODY)
        except OSError as failure:
            return f"{failure.filename}: {failure.strerror}"
        return ""


def of(root: Path, digest: str, user: str, made_by_daemon: bool = False) -> Caches:
    """user: the user in the container. Each has separate folders, because one cannot change the files of another."""
    below = root / re.sub(r"[^\w.-]", "-", user or "root")
    return Caches(root, below / "shared", below / digest.rpartition(":")[2][:DIGITS], made_by_daemon)


def variables() -> dict[str, str]:
    """The environment variables that point programs to the folders."""
    shared = {name: f"{INSIDE}/shared/{folder}" for name, folder in SHARED.items()}
    return {**shared, **{name: f"{INSIDE}/image/{folder}".rstrip("/") for name, folder in OF_THE_IMAGE.items()}}
