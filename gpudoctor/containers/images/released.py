"""The published images, generated from the table, each with one name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from gpudoctor import knowledge
from gpudoctor.containers.images.needs import Needs, Pair, dotted, named_branches, pair_of
from gpudoctor.knowledge import images as table
from gpudoctor.knowledge.images import CudaImages, Month, TorchImages

NGC = "nvcr.io/nvidia/pytorch"
REPOSITORIES = ("nvidia/pytorch", "nvidia/cuda", "pytorch/pytorch")  # of all images in the table, in any registry
NGC_REQUIRES = "cuda>=9.0"  # of every NGC framework image: its entrypoint warns, the runtime does not refuse
KINDS = ("devel", "runtime", "base", "cudnn-devel", "cudnn-runtime")
INSIDE = ("cuda", "torch", "python", "ubuntu", "cudnn", "nccl", "cublas", "tensorrt", "triton")


@dataclass(frozen=True)
class Released:
    """One named image, with the data from the table."""

    name: str
    reference: str
    title: str
    family: str
    versions: Mapping[str, str]
    needs: Needs
    source: tuple[str, ...]
    verified: bool
    unverified: tuple[str, ...] = ()
    printed_driver: str = ""
    digest: str = ""
    note: str = ""


@cache
def images() -> tuple[Released, ...]:
    rows = table.table()
    months = map(_month, rows.pytorch)
    torch = (image for row in rows.torch for image in _torch(row))
    cuda = (_cuda(row, row.releases[0], kind, ubuntu, True) for row in rows.cuda for ubuntu in row.ubuntu for kind in KINDS)
    return (*months, *torch, *cuda)


def exact_cuda(name: str) -> Released | None:
    """The image for an exact release such as cuda-12.6.1-devel-ubuntu22.04; the catalog names only the newest 12.6."""
    match = re.fullmatch(r"cuda-(\d+\.\d+\.\d+)-([a-z-]+)-ubuntu(\d\d\.\d\d)", name)
    for row in table.table().cuda if match else ():
        if match and match[1] in row.releases and match[2] in KINDS and match[3] in row.ubuntu:
            return _cuda(row, match[1], match[2], match[3], False)
    return None


def no_such_month(month: str) -> str:
    """A message that the table has no pytorch-MONTH, and why."""
    months = [row.month for row in table.table().pytorch]
    if month > months[0]:
        return f"pytorch-{month} is not in the table, which ends at {months[0]}: use the full reference, {NGC}:{month}-py3"
    if month < months[-1]:
        return f"pytorch-{month} is not in the table, which begins at {months[-1]}: use the full reference, {NGC}:{month}-py3"
    near = (max(other for other in months if other < month), min(other for other in months if other > month))
    return f"pytorch-{month} does not exist; the nearest are {' and '.join(f'pytorch-{other}' for other in near)}"


def _month(row: Month) -> Released:
    release = pair_of(row.cuda)
    assert release
    needs = Needs(
        cuda=release,
        driver=knowledge.shipped_driver(release),
        compat=row.compat or knowledge.shipped_driver(release),
        compat_chosen_by="entrypoint",
        branches=row.branches,
        require=(NGC_REQUIRES,),
        least=row.least,
        architectures=row.architectures,
    )
    return Released(
        name=f"pytorch-{row.month}",
        reference=f"{NGC}:{row.month}-py3",
        title=f"NGC PyTorch {row.month}",
        family="pytorch",
        versions={name: value for name in INSIDE if (value := getattr(row, name))},
        needs=needs,
        source=table.table().references(row),
        verified=row.verified,
        unverified=row.unverified,
        printed_driver=row.printed_driver or "",
        digest=row.digest or "",
        note=row.note,
    )


def _cuda(row: CudaImages, release: str, kind: str, ubuntu: str, is_newest: bool) -> Released:
    versions = {"cuda": release, "ubuntu": ubuntu}
    if kind.startswith("cudnn"):
        versions["cudnn"] = row.cudnn.removeprefix("cudnn") or "9"
    if kind != "base" and release == row.releases[0]:
        versions |= {name: value for name in ("nccl", "cublas") if (value := getattr(row, name))}
    number = dotted(row.cuda) if is_newest else release
    return Released(
        name=f"cuda-{number}-{kind}-ubuntu{ubuntu}",
        reference=f"nvidia/cuda:{release}-{kind.replace('cudnn', row.cudnn)}-ubuntu{ubuntu}",
        title=f"CUDA {release}, {kind.replace('cudnn-', 'cuDNN, ')}, Ubuntu {ubuntu}",
        family="cuda",
        versions=versions,
        needs=_cuda_needs(row.cuda),
        source=table.table().references(row),
        verified=row.verified,
        note=row.note,
    )


@cache
def _cuda_needs(release: Pair) -> Needs:
    """The requirements of the nvidia/cuda images of a CUDA release, and of images built on them."""
    shipped = knowledge.shipped_driver(release)
    row = next((row for row in table.table().cuda if row.cuda == release), None)
    requirement = table.requirement(row) if row else None
    require = (requirement,) if requirement else ()
    return Needs(cuda=release, driver=shipped, compat=shipped, branches=named_branches(require), require=require)


def _torch(row: TorchImages) -> Iterator[Released]:
    for release in row.cuda:
        plain = Needs(cuda=release, driver=knowledge.shipped_driver(release))
        architectures = knowledge.torch_architectures(row.torch, _variant(release)) or ()
        for kind, needs in (("devel", _cuda_needs(release)), ("runtime", plain)):
            tag = f"{row.torch}-cuda{dotted(release)}-cudnn{row.cudnn}-{kind}"
            yield Released(
                name=f"torch-{tag}",
                reference=f"pytorch/pytorch:{tag}",
                title=f"PyTorch {row.torch}, CUDA {dotted(release)}, {kind}",
                family="torch",
                versions=_torch_versions(row, release),
                needs=replace(needs, architectures=architectures),
                source=table.table().references(row),
                verified=row.verified,
                note=row.note,
            )


def _variant(release: Pair) -> str:
    return "cu{}{}".format(*release)


def _torch_versions(row: TorchImages, release: Pair) -> dict[str, str]:
    """The versions that the wheel of that variant pins."""
    versions = {"cuda": dotted(release), "torch": row.torch, "cudnn": str(row.cudnn)}
    wheel = knowledge.torch_release(row.torch)
    if wheel is None or wheel.version != row.torch:
        return versions
    variant = _variant(release)
    is_default = wheel.default == variant
    cudnn = wheel.cudnn_by_variant.get(variant) or (wheel.cudnn if is_default else None)
    nccl = wheel.nccl_by_variant.get(variant) or (wheel.nccl if is_default else None)
    return {**versions, **({"cudnn": cudnn} if cudnn else {}), **({"nccl": nccl} if nccl else {})}
