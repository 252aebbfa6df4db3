"""Published images and their contents: `images.yaml`."""

from __future__ import annotations

from functools import cache
from typing import Literal

from gpudoctor.knowledge.tables import Row, Table, load

Pair = tuple[int, int]


class Brands(Row, frozen=True):
    """GPU brands, by their NVML names, that NVIDIA_REQUIRE_CUDA of some nvidia/cuda images lists."""

    name: str
    brands: tuple[str, ...]


class Month(Row, frozen=True):
    """One month of NGC PyTorch; `unverified` lists the fields without a source."""

    month: str
    cuda: str
    torch: str
    python: str
    ubuntu: str
    least: Pair
    cudnn: str | None = None
    nccl: str | None = None
    cublas: str | None = None
    tensorrt: str | None = None
    triton: str | None = None
    compat: str | None = None
    printed_driver: str | None = None
    branches: tuple[int, ...] = ()
    architectures: tuple[str, ...] = ()
    digest: str | None = None
    unverified: tuple[str, ...] = ()


class CudaImages(Row, frozen=True):
    """The nvidia/cuda images of one CUDA release, newest first; cudnn is its spelling in their tags."""

    cuda: Pair
    releases: tuple[str, ...]
    ubuntu: tuple[str, ...]
    cudnn: Literal["cudnn", "cudnn8", "cudnn9"]
    nccl: str | None = None
    cublas: str | None = None
    brands: str | None = None
    tesla_branches: tuple[int, ...] = ()
    branches: tuple[int, ...] = ()


class TorchImages(Row, frozen=True):
    """The pytorch/pytorch images of one release."""

    torch: str
    cuda: tuple[Pair, ...]
    cudnn: int


class ImageTable(Table, frozen=True):
    brands: tuple[Brands, ...]
    pytorch: tuple[Month, ...]
    cuda: tuple[CudaImages, ...]
    torch: tuple[TorchImages, ...]


@cache
def table() -> ImageTable:
    return load("images", ImageTable)


def requirement(row: CudaImages) -> str | None:
    """NVIDIA_REQUIRE_CUDA of the images of a row, as they set it; None if it is not known."""
    listed = next((entry.brands for entry in table().brands if entry.name == row.brands), None)
    if listed is None:
        return None
    pairs = [("tesla", number) for number in row.tesla_branches]
    pairs += [(brand, number) for number in row.branches for brand in listed]
    return " ".join(["cuda>={}.{}".format(*row.cuda), *(f"brand={b},driver>={n},driver<{n + 1}" for b, n in pairs)])
