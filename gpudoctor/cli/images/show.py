"""`gpudoctor images show`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli import options
from gpudoctor.cli.images import COMMANDS

if TYPE_CHECKING:
    from gpudoctor.containers.images.about import Known
    from gpudoctor.containers.images.catalog import Image

_WIDTH = 80
_MARGIN = 14
_WORDS = {"yes": "yes", "minor": "yes", "compat": "yes", "no": "no", "unknown": "unknown"}
_NAMES = {
    "cuda": "CUDA",
    "torch": "PyTorch",
    "python": "Python",
    "ubuntu": "Ubuntu",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "cublas": "cuBLAS",
    "tensorrt": "TensorRT",
    "triton": "Triton",
}


@click.command(help=COMMANDS["show"] + " NAME is a name from `images list`, or a full image reference.")
@options.image_name
@options.registry
@options.text_or_json
@options.output()
def command(name: str, registry: str, form: str | None, destination: Path | None) -> None:
    from gpudoctor.cli import output
    from gpudoctor.containers.images import about, catalog

    form = output.prepared(form, destination)
    found = about.look(catalog.resolve(name, registry))
    text = json.dumps(as_object(found), indent=2, ensure_ascii=False) + "\n" if form == "json" else as_text(found)
    output.deliver(text, destination)


def as_object(found: Known) -> dict[str, Any]:
    from dataclasses import asdict

    from gpudoctor.containers.images import preflight

    image = found.image
    return {
        "name": image.name,
        "reference": image.reference,
        "family": image.family,
        "title": image.title,
        "versions": dict(image.versions),
        "needs": asdict(found.needs),
        "least_driver": preflight.least_driver(found.needs, found.machine.is_wsl),
        "runs": found.verdict.runs,
        "why": found.verdict.why,
        "on_disk": found.on_disk,
        "disk_bytes": found.disk_bytes,
        "registry_bytes": found.registry_bytes,
        "pinned": found.pinned,
        "built_here": image.recipe is not None,
        "verified": image.verified,
        "unverified": image.unverified,
        "source": image.source,
    }


def as_text(found: Known) -> str:
    image = found.image
    lines = [image.name + (f": {image.title}" if image.title else "")]
    for label, paragraphs in _about(found):
        for number, text in enumerate(filter(None, paragraphs)):
            lines += _wrapped("" if number else label, text)
    return "\n".join(lines) + "\n"


def _wrapped(label: str, text: str) -> list[str]:
    first, others = f"  {label:<{_MARGIN - 2}}", " " * _MARGIN
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )


def _about(found: Known) -> Iterator[tuple[str, Iterable[str]]]:
    """Label and paragraphs of each row; unknown values are left out."""
    from gpudoctor.containers.images import catalog
    from gpudoctor.containers.images.pulling import gigabytes

    image = found.image
    family = catalog.families().get(image.family)
    yield "runs here", [f"{_WORDS[found.verdict.runs]}: {found.verdict.why}"]
    yield "reference", [image.reference]
    if image.recipe:
        yield "built by", [f"gpudoctor images build {image.name}", f"from {image.recipe}"]
    yield "inside", [", ".join(_version(name, value) for name, value in image.versions.items() if _is_verified(image, name))]
    yield "driver", _drivers(found)
    yield "GPUs", [_gpus(found)]
    yield "on disk", [found.disk_words]
    yield "size", [f"{gigabytes(found.registry_bytes)} to pull" if found.registry_bytes else family.size if family else ""]
    yield "pinned", [found.pinned or ""]
    yield "digest", [f"{image.digest} when this table was made" if image.digest else ""]
    yield "about", [family.about if family else ""]
    yield "names", [family.naming if family else ""]
    yield "note", ["" if "unverified" in image.note else image.note]
    links = [source for source in image.source if "://" in source]
    yield "sources", [*links, "" if image.verified else "These sources did not suffice to verify the entry."]


def _version(name: str, value: str) -> str:
    return f"{_NAMES.get(name, name)} {value}"


def _is_verified(image: Image, field: str) -> bool:
    """What is not verified is only in the JSON."""
    return field not in image.unverified


def _drivers(found: Known) -> Iterator[str]:
    from gpudoctor.containers.images import preflight

    image, needs = found.image, found.needs
    least = preflight.least_driver(needs, found.machine.is_wsl)
    if needs.driver is None:
        return
    yield f"{needs.driver} or newer"
    if least and least != needs.driver:
        yield f"{least} or newer with minor-version compatibility, which does not cover PTX that the driver has to compile"
    if branches := forward_branches(found):
        listed = ", ".join(f"R{branch}" for branch in branches)
        yield f"{listed} with forward compatibility: on data-centre GPUs, with the image's own libraries of driver {needs.compat}"
    if image.printed_driver and _is_verified(image, "printed_driver"):
        yield f"The release notes require R{image.printed_driver}."


def _gpus(found: Known) -> str:
    from gpudoctor.containers.images import gpu_code

    needs = found.needs
    if needs.any_gpu:
        return "any that the driver supports: the driver compiles its code for the GPU"
    if needs.architectures:
        return f"built for {' '.join(needs.architectures)}"
    if needs.cuda is None:
        return ""
    about = [(int(name[3:-1]), int(name[-1])) for name in gpu_code.cuda_architectures(needs.cuda)]
    if not _is_verified(found.image, "least"):
        return "compute capability up to {}.{}".format(*about[-1])
    return "compute capability {}.{} to {}.{}".format(*max(needs.least or about[0], about[0]), *about[-1])


def forward_branches(found: Known) -> list[int]:
    """The driver branches on which NVIDIA supports the image's cuda-compat, or that the image itself names."""
    from gpudoctor import knowledge
    from gpudoctor.knowledge import cuda

    needs = found.needs
    if needs.cuda is None or needs.compat is None:
        return []
    listed = {row.number for row in cuda.table().branches if knowledge.forward_compatible(needs.cuda, row.number) == "compatible"}
    return sorted(listed | {branch for branch in needs.branches if branch < int(needs.compat.split(".")[0])})
