"""What a base image is known to contain, by its name alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

Pair = tuple[int, int]
_NGC = re.compile(
    r"nvidia/(?: pytorch | tensorflow | tritonserver | nemo | modulus | physicsnemo | jax | mxnet | tensorrt | merlin-pytorch )",
    re.VERBOSE,
)
_PLAIN = re.compile(
    r"""
    (?:library/)?(?:
        python | ubuntu | debian | fedora | centos | rockylinux | almalinux | amazonlinux | oraclelinux
        | buildpack-deps | node | golang | rust
    )
    | (?:continuumio|condaforge|mambaorg)/[\w-]+
    | astral-sh/uv
    | pypy
    | bitnami/python
    | tiangolo/uvicorn-gunicorn[\w-]*
    | (?:redhat/)?ubi\d+(?:/[\w-]+)?
    """,
    re.VERBOSE,
)
_CUDA_TAG = re.compile(r"(?:cuda|cu)-?(\d{2})[.\-]?(\d)(?!\d)")


@dataclass(frozen=True)
class Base:
    """family: cuda, ngc, pytorch, plain, alpine, jetson or other. flavour: base, runtime, devel or "" if it is not known."""

    repository: str  # without registry and tag
    tag: str
    family: str
    cuda: Pair | None = None
    flavour: str = ""

    @property
    def has_cuda(self) -> bool:
        """Whether it certainly contains the CUDA libraries."""
        return self.family in ("cuda", "ngc", "pytorch")

    @property
    def lacks_compiler(self) -> bool:
        """Whether it certainly has no nvcc."""
        return self.family in ("plain", "alpine") or (self.family in ("cuda", "pytorch") and self.flavour in ("base", "runtime"))


def base(reference: str) -> Base:
    """The base of an image reference, which may still contain variables."""
    repository, tag = _parts(reference)
    if repository in ("nvidia/cuda", "nvidia/cudagl"):
        version = re.match(r"(\d+)\.(\d+)", tag)
        return Base(repository, tag, "cuda", (int(version[1]), int(version[2])) if version else None, _flavour(tag))
    if re.search(r"l4t|jetson|jetpack|-igpu\b", reference):
        return Base(repository, tag, "jetson")
    if reference.startswith("nvcr.io/nvidia/") and _NGC.fullmatch(repository):
        return Base(repository, tag, "ngc", _cuda_of_month(tag) if repository == "nvidia/pytorch" else None)
    if repository == "pytorch/pytorch" and "cuda" in tag:
        found = _CUDA_TAG.search(tag)
        return Base(repository, tag, "pytorch", (int(found[1]), int(found[2])) if found else None, _flavour(tag))
    if repository in ("alpine", "library/alpine") or re.search(r"(^|[-.])alpine([\d.]*$|-)", tag):
        return Base(repository, tag, "alpine")
    return Base(repository, tag, "plain" if _PLAIN.fullmatch(repository) else "other")


@cache
def _cuda_of_month(tag: str) -> Pair | None:
    """CUDA of an NGC PyTorch image."""
    from gpudoctor.knowledge import images

    row = next((row for row in images.table().pytorch if row.month == tag.partition("-")[0]), None)
    parts = row.cuda.split(".") if row and "cuda" not in row.unverified else []
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 else None


def _flavour(tag: str) -> str:
    found = re.search(r"-(base|runtime|devel)(?:-|$)", tag)
    return found[1] if found else ""


def _parts(reference: str) -> tuple[str, str]:
    """Repository without its registry, and tag, of `registry:5000/a/b:tag@digest`."""
    name = reference.partition("@")[0]
    head, _, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    path = f"{head}/{last}" if head else last
    first, slash, rest = path.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        path = rest
    return path, tag
