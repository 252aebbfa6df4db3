"""Tags of nvidia/cuda that never existed, or that NVIDIA deleted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpudoctor.lint.bases import base
from gpudoctor.lint.compose import Compose
from gpudoctor.lint.devcontainer import Devcontainer
from gpudoctor.lint.dockerfile import Dockerfile
from gpudoctor.lint.model import Fault, Rule

MISSING = Rule(
    id="cuda-tag-missing",
    title="This tag of nvidia/cuda cannot be pulled",
    why="A tag 'latest' does not exist: every tag names a CUDA version of three numbers, a flavour and an operating system. "
    "NVIDIA deletes the tags of old releases. The build fails with 'manifest unknown'.",
    write="FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04",
    references=(
        "https://gitlab.com/nvidia/container-images/cuda/-/blob/master/doc/support-policy.md",
        "https://github.com/NVIDIA/nvidia-docker/issues/1454",
        "https://github.com/NVIDIA/nvidia-docker/issues/1735",
        "https://github.com/NVIDIA/nvidia-docker/issues/1768",
    ),
    status="fail",
)
RULES = (MISSING,)

_TAG = re.compile(
    r"""
    (\d+)\.(\d+)(?:\.(\d+))?
    (?:-( cudnn\d* | tensorrt ))?
    -( base | runtime | devel )
    (?:-( [a-z]+[\d.]* ))?          # the distribution
    """,
    re.VERBOSE,
)
# https://github.com/replicate/cog/blob/main/pkg/config/cuda_compatibility.json lists it next to 11.6.2.
_ALSO_KEPT = ("11.6.1",)
# https://github.com/OpenDroneMap/ODM/issues/1675, https://github.com/iterative/cml/pull/1405,
# https://github.com/deepmodeling/abacus-develop/pull/2698
_SEEN_DELETED = {(11, 2, 0), (11, 2, 1), (11, 7, 0)}


@dataclass(frozen=True)
class Wrong:
    """Why a tag cannot be pulled, and the nearest that can. certain: it was seen to be missing, or never existed."""

    why: str
    tag: str
    certain: bool = True

    @property
    def status(self) -> str:
        return "fail" if self.certain else "warn"


def dockerfile(file: Dockerfile) -> Iterator[Fault]:
    for stage in file.stages:
        if not stage.parent and (found := wrong(stage.image)):
            alias = f" AS {stage.name}" if stage.name else ""
            line = f"FROM nvidia/cuda:{found.tag}{alias}"
            yield MISSING.at(stage.line, f"{stage.image}: {found.why}", line, found.status)


def compose(file: Compose) -> Iterator[Fault]:
    for service in file.services:
        if not service.node.at("build") and (found := wrong(service.image.text)):
            message = f"{service.image.text}: {found.why}"
            yield MISSING.at(service.image.line, message, f"    image: nvidia/cuda:{found.tag}", found.status)


def devcontainer(file: Devcontainer) -> Iterator[Fault]:
    if found := wrong(file.image.text):
        message = f"{file.image.text}: {found.why}"
        yield MISSING.at(file.image.line, message, f'"image": "nvidia/cuda:{found.tag}"', found.status)


def wrong(reference: str) -> Wrong | None:
    """Why the image of this reference cannot be pulled; None if no reason is known."""
    image = base(reference)
    if image.repository != "nvidia/cuda" or "$" in image.tag or "@" in reference:
        return None
    flavour = image.flavour or "runtime"
    usual = f"12.9.1-{flavour}-ubuntu24.04"
    if image.tag in ("", "latest"):
        return Wrong("the tag 'latest' does not exist", usual)
    found = _TAG.fullmatch(image.tag)
    if not found:
        # A placeholder, or an unknown form: only a version without the rest is certainly wrong.
        return Wrong("no tag has this form", usual) if re.fullmatch(r"\d+(?:\.\d+)*", image.tag) else None
    release = tuple(int(part or 0) for part in found.group(1, 2, 3))
    cudnn, system = found[4] or "", found[6] or ""
    on_hub = not reference.startswith("nvcr.io/")  # where the deletions were seen
    if release < (11, 0, 0):
        tag = _tag("11.8.0", "cudnn8" if cudnn else "", flavour, "ubuntu22.04")
        return Wrong("NVIDIA has deleted the images of CUDA 10 and older", tag, on_hub)
    if not found[3]:
        tag = _tag(_patched(release), cudnn, flavour, system or "ubuntu22.04")
        return Wrong("the CUDA version needs three numbers", tag, on_hub or release >= (11, 2, 0))
    if release[0] == 11 and ".".join(map(str, release)) not in (*_published(release), *_ALSO_KEPT):
        tag = _tag(_patched(release), cudnn, flavour, system or "ubuntu20.04")
        return Wrong("NVIDIA deletes all but the last release of a CUDA version", tag, release in _SEEN_DELETED and on_hub)
    if not system:
        return Wrong("the operating system is missing", _tag(image.tag.partition("-")[0], cudnn, flavour, "ubuntu22.04"))
    return _mismatched(image.tag, release, cudnn, system)


def _mismatched(tag: str, release: tuple[int, ...], cudnn: str, system: str) -> Wrong | None:
    if re.fullmatch(r"cudnn\d+", cudnn) and release >= (12, 4, 1):
        return Wrong("since CUDA 12.4.1 the tags contain cudnn without a number", tag.replace(cudnn, "cudnn"))
    if system == "ubuntu24.04" and release < (12, 5, 1):
        return Wrong("images on Ubuntu 24.04 start with CUDA 12.5.1", tag.replace(system, "ubuntu22.04"))
    if system == "ubuntu22.04" and release < (11, 7, 0):
        return Wrong("images on Ubuntu 22.04 start with CUDA 11.7", tag.replace(system, "ubuntu20.04"))
    if system == "ubuntu20.04" and release >= (13, 0, 0):
        return Wrong("images on Ubuntu 20.04 end with CUDA 12", tag.replace(system, "ubuntu22.04"))
    return None


def _published(release: tuple[int, ...]) -> tuple[str, ...]:
    """The releases of its CUDA version that can be pulled, newest first."""
    from gpudoctor.knowledge import images

    return next((row.releases for row in images.table().cuda if row.cuda == release[:2]), ())


def _patched(release: tuple[int, ...]) -> str:
    return next(iter(_published(release)), f"{release[0]}.{release[1]}.0")


def _tag(version: str, cudnn: str, flavour: str, system: str) -> str:
    return "-".join(filter(None, (version, cudnn, flavour, system)))
