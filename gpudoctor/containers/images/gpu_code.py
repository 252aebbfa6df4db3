"""Whether an image has code for a GPU: in its CUDA libraries, and in the framework on top of them."""

from __future__ import annotations

from functools import cache

from gpudoctor import knowledge
from gpudoctor.containers.images.machine import Card
from gpudoctor.containers.images.needs import Needs, dotted
from gpudoctor.knowledge import cuda

Pair = tuple[int, int]


def serves(needs: Needs, card: Card, compiles_ptx: bool) -> bool | None:
    """None if unknown, or if it differs between the possible GPU models. compiles_ptx: whether the driver can compile PTX."""
    answers = {_has_code(needs, capability, compiles_ptx) for capability in card.compute_capabilities}
    return answers.pop() if len(answers) == 1 else None


def is_too_new(needs: Needs, card: Card) -> bool:
    """Whether the image's CUDA is older than the GPU."""
    row = knowledge.architecture(card.compute_capabilities[0])
    return bool(row and needs.cuda and row.first_cuda > needs.cuda)


def lack(needs: Needs, card: Card) -> str:
    """Why the image has no code for this GPU."""
    assert needs.cuda
    row = knowledge.architecture(card.compute_capabilities[-1])
    capabilities = " or ".join(map(dotted, card.compute_capabilities))
    image = f"CUDA {dotted(needs.cuda)} in the image"
    what, more = "the image is not built", ""
    if row and row.first_cuda > needs.cuda:
        what, more = f"{image} has no code", f", supported from CUDA {dotted(row.first_cuda)} on"
    elif row and row.last_cuda and row.last_cuda < needs.cuda:
        what, more = f"{image} has no code", f", supported up to CUDA {dotted(row.last_cuda)}"
    return f"{what} for {card.name} (compute capability {capabilities}{more})"


def _has_code(needs: Needs, capability: Pair, compiles_ptx: bool) -> bool | None:
    if needs.cuda is None:
        return None
    real = tuple(name for name in needs.architectures if name.startswith("sm_"))
    code = needs.architectures if compiles_ptx else real
    if needs.architectures and not real:
        return knowledge.runs_on(code, capability)  # PTX alone does not need CUDA's libraries
    libraries = knowledge.runs_on(cuda_architectures(needs.cuda), capability)
    own = knowledge.runs_on(code, capability) if needs.architectures else needs.least is None or capability >= needs.least
    return libraries and own


@cache
def cuda_architectures(release: Pair) -> tuple[str, ...]:
    """The architectures that the libraries of a CUDA release are built for."""
    rows = cuda.table().architectures
    known = (row for row in rows if row.first_cuda <= release and (row.last_cuda is None or release <= row.last_cuda))
    return tuple("sm_{}{}".format(*row.compute_capability) for row in known)
