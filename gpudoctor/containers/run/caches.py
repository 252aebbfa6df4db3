"""Folders of this machine in which containers keep what they downloaded and compiled, so that the next run has it.

Downloads are shared by all images. What a compiler made is kept for each image by itself: another image has another compiler.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

INSIDE = "/cache"
SHARED = {"HF_HOME": "hf", "TORCH_HOME": "torch", "PIP_CACHE_DIR": "pip"}
# CUDA's own comes first, in the folder that is mounted: whether a driver makes missing folders is not documented.
OF_THE_IMAGE = {
    "CUDA_CACHE_PATH": "",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "CUPY_CACHE_DIR": "cupy",
    "NUMBA_CACHE_DIR": "numba",
}
HOME = "home"  # of a user who has none in the image
DIGITS = 16  # of the image's digest: enough to tell images of one machine apart
PRIVATE, FOR_ANYBODY = 0o700, 0o777


@dataclass(frozen=True)
class Caches:
    """The two folders of one user of one image. made_by_daemon: they would belong to root inside only if root made them."""

    root: Path
    shared: Path
    image: Path
    made_by_daemon: bool = False

    @property
    def mounts(self) -> tuple[tuple[Path, str], ...]:
        return (self.shared, f"{INSIDE}/shared"), (self.image, f"{INSIDE}/image")

    def prepare(self) -> str:
        """Makes what is missing; says why where that is not possible.

        The root is for its user alone, so that those below it can be for anybody: a container may have any user.
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
    """user: who runs in the container; what one wrote, another may not change."""
    below = root / re.sub(r"[^\w.-]", "-", user or "root")
    return Caches(root, below / "shared", below / digest.rpartition(":")[2][:DIGITS], made_by_daemon)


def variables() -> dict[str, str]:
    """What programs are told of the folders."""
    shared = {name: f"{INSIDE}/shared/{folder}" for name, folder in SHARED.items()}
    return {**shared, **{name: f"{INSIDE}/image/{folder}".rstrip("/") for name, folder in OF_THE_IMAGE.items()}}
