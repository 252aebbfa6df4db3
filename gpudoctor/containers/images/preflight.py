"""Decides before a pull whether an image runs here: compares its requirements with this driver and these GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, NamedTuple

from packaging.version import Version

from gpudoctor import knowledge
from gpudoctor.containers.images import gpu_code, requirement
from gpudoctor.containers.images.machine import Card, ThisMachine, this_machine
from gpudoctor.containers.images.needs import Needs, Pair, dotted, needs_of
from gpudoctor.knowledge import cuda

__all__ = ["Card", "Needs", "ThisMachine", "Verdict", "driver_cuda", "least_driver", "needs_of", "this_machine", "verdict"]

Runs = Literal["yes", "minor", "compat", "no", "unknown"]
FIRST_WITH_MINOR_VERSIONS = 11  # https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html


@dataclass(frozen=True)
class Verdict:
    """minor and compat: it runs with minor-version or with forward compatibility. brief: a few words for a table."""

    runs: Runs
    why: str
    brief: str


class Obstacle(NamedTuple):
    """Why forward compatibility does not help; words: the end of a sentence that begins with "forward compatibility"."""

    words: str
    is_certain: bool = True


@cache
def verdict(needs: Needs, here: ThisMachine) -> Verdict:
    """Whether an image with these requirements runs on this machine, and how."""
    if needs.processors and here.processor not in needs.processors:
        there = " and ".join(needs.processors)
        return Verdict("no", f"the image is for {there} processors, this machine has {here.processor}", "no: processor")
    if here.driver is None:
        return _without_driver(here)
    found = _by_driver(needs, here)
    if found.runs == "no":
        return found
    return _refusal(needs, here, found) or _by_gpus(needs, here, found)


def _without_driver(here: ThisMachine) -> Verdict:
    if here.is_wsl:
        return Verdict("unknown", "the version of the Windows driver cannot be read here (nvidia-smi shows it)", "?")
    gpus = f", although it has a GPU: {here.gpus[0].name}" if here.gpus else ""
    return Verdict("unknown", f"no NVIDIA driver is loaded on this machine{gpus}", "no driver here")


def _by_driver(needs: Needs, here: ThisMachine) -> Verdict:
    assert here.driver
    has = driver_cuda(here.driver)
    if needs.cuda is None:
        return Verdict("unknown", "the image does not state its CUDA version", "?")
    if has is None:
        return Verdict("unknown", f"driver {here.driver} is not in the tables", "?")
    if has < needs.cuda:
        return _by_older_driver(needs, here, has)
    if forced := _forced_compat(needs, here):
        return forced
    is_stale = needs.compat and _branch(needs.compat) < _branch(here.driver)
    more = "; its cuda-compat is older than the driver and is not used" if is_stale else ""
    return Verdict("yes", f"driver {here.driver} supports CUDA {dotted(has)}, the image has {dotted(needs.cuda)}{more}", "yes")


def _by_older_driver(needs: Needs, here: ThisMachine, has: Pair) -> Verdict:
    """For a driver with an older CUDA than the image: forward compatibility, else minor-version compatibility."""
    assert needs.cuda
    driver = f"driver {here.driver} supports CUDA {dotted(has)}, the image has {dotted(needs.cuda)}"
    obstacle = _compat_obstacle(needs, here)
    if obstacle is None:
        why = f"with forward compatibility: {driver} and the libraries of driver {needs.compat} (cuda-compat)"
        return Verdict("compat", why, "forward compat")
    if not _has_minor_versions(needs.cuda, here):
        least = least_driver(needs, here.is_wsl)
        why = f"{driver}, and forward compatibility {obstacle.words}. {_advice(least)}"
        return _too_old(why, least) if obstacle.is_certain else _unsure(why)
    if forced := _forced_compat(needs, here):
        return forced
    why = f"with minor-version compatibility: {driver}. The driver cannot compile PTX of that CUDA; {needs.driver} or newer can"
    return Verdict("minor", why, "minor version")


def _forced_compat(needs: Needs, here: ThisMachine) -> Verdict | None:
    """NVIDIA's runtime uses a newer cuda-compat whatever the GPU: https://github.com/NVIDIA/nvidia-docker/issues/1515"""
    assert here.driver
    is_used = needs.compat and needs.compat_chosen_by == "runtime" and _branch(needs.compat) > _branch(here.driver)
    if not is_used or here.is_wsl:
        return None
    card = min(here.gpus, key=lambda card: (False, None, True).index(card.forward_compatible), default=None)
    if card and card.forward_compatible:
        return None
    how = f"NVIDIA's runtime replaces driver {here.driver} with the image's cuda-compat ({needs.compat})"
    if card and card.forward_compatible is False:
        return _too_old(f"{how}, which {card.name} does not support (CUDA error 804). {_advice(needs.driver)}", needs.driver)
    unknown = f"it is unknown whether {card.name} supports that" if card else "no GPU was found to check whether it supports that"
    return _unsure(f"{how}, but {unknown}. {_advice(needs.driver)}")


def _compat_obstacle(needs: Needs, here: ThisMachine) -> Obstacle | None:
    assert here.driver
    assert needs.cuda
    branch = _branch(here.driver)
    if needs.compat is None:
        return Obstacle("is not possible: the image does not contain cuda-compat")
    if here.is_wsl:
        return Obstacle("is not possible on WSL")
    if _branch(needs.compat) <= branch:
        return Obstacle(f"is not possible: the image's cuda-compat ({needs.compat}) is not newer than the driver")
    if denied := [card for card in here.gpus if card.forward_compatible is False]:
        return Obstacle(f"works on data-centre GPUs only, not on {denied[0].name}")
    if knowledge.forward_compatible(needs.cuda, branch) != "compatible" and branch not in needs.branches:
        return Obstacle(f"is not supported on driver branch {branch}")
    unsure = [card for card in here.gpus if card.forward_compatible is None and not _is_named(needs, here, card)]
    if unsure:
        return Obstacle(f"works on data-centre GPUs and some RTX workstation cards, perhaps not on {unsure[0].name}", False)
    return None if here.gpus else Obstacle("works on data-centre GPUs only, and no GPU was found here", False)


def _is_named(needs: Needs, here: ThisMachine, card: Card) -> bool:
    """Whether NVIDIA_REQUIRE_CUDA of the image names this brand of GPU with this driver branch."""
    expressions = [text for text in needs.require if _branch(here.driver) in requirement.branches(text)]
    return bool(expressions) and all(_holds(text, here, card) for text in expressions)


def _has_minor_versions(wanted: Pair, here: ThisMachine) -> bool:
    assert here.driver
    least = _floor(wanted, here.is_wsl)
    return wanted[0] >= FIRST_WITH_MINOR_VERSIONS and least is not None and Version(here.driver) >= Version(least)


def _refusal(needs: Needs, here: ThisMachine, otherwise: Verdict) -> Verdict | None:
    """A verdict if the container runtime would refuse to start the image, whatever its CUDA version; else None."""
    for expression in needs.require:
        try:
            is_refused = any(_holds(expression, here, card) is False for card in here.gpus or (Card(""),))
        except ValueError as invalid:
            return Verdict("no", f"NVIDIA's runtime cannot read its NVIDIA_REQUIRE_CUDA: {invalid}", "no: requirement")
        if is_refused:
            why = (
                f"NVIDIA's runtime refuses to start it: NVIDIA_REQUIRE_CUDA requires {expression.split()[0]}, with no exception "
                f"for driver {here.driver} on this GPU. {_advice(needs.driver)}; with -e NVIDIA_DISABLE_REQUIRE=1 or with CDI it "
                f"starts anyway, and then {_sentence(otherwise)}"
            )
            return _too_old(why, needs.driver)
    return None


def _sentence(otherwise: Verdict) -> str:
    return otherwise.why if otherwise.runs == "unknown" else f"runs: {otherwise.why}"


def _holds(expression: str, here: ThisMachine, card: Card) -> bool | None:
    """Whether a requirement is satisfied; None if that depends on unknown properties of the GPU."""
    assert here.driver
    known = {"driver": here.driver}
    if has := driver_cuda(here.driver):
        known["cuda"] = dotted(has)
    if len(card.compute_capabilities) == 1:
        known["arch"] = dotted(card.compute_capabilities[0])
    if not card.brands:
        return requirement.holds(expression, known)
    answers = {requirement.holds(expression, {**known, "brand": brand}) for brand in card.brands}
    return answers.pop() if len(answers) == 1 else None


def _by_gpus(needs: Needs, here: ThisMachine, found: Verdict) -> Verdict:
    """The verdict of the driver, unless the image has no code for the GPUs."""
    if needs.any_gpu:
        return found
    unserved = [card for card in here.gpus if gpu_code.serves(needs, card, found.runs != "minor") is False]
    if not unserved:
        return found
    card = unserved[0]
    why = gpu_code.lack(needs, card)
    if len(unserved) < len(here.gpus):
        return replace(found, why=f"{found.why}; but {why}")
    if not gpu_code.is_too_new(needs, card):
        return Verdict("no", why, "no: GPU too old")
    if needs.has_kernels:
        return Verdict("no", why, "no: GPU too new")
    return Verdict("unknown", f"{why}: only programs that contain PTX run", "PTX only")


@cache
def driver_cuda(driver: str) -> Pair | None:
    """The newest CUDA that a driver supports; for an unlisted branch, that of the last listed branch before it."""
    number = _branch(driver)
    listed = [row.number for row in cuda.table().branches if row.number <= number]
    return knowledge.cuda_of_branch(number) or (knowledge.cuda_of_branch(max(listed)) if listed else None)


def least_driver(needs: Needs, is_wsl: bool = False) -> str | None:
    """The oldest driver that runs the image without forward compatibility."""
    if needs.cuda is None or needs.cuda[0] < FIRST_WITH_MINOR_VERSIONS:
        return needs.driver
    return _floor(needs.cuda, is_wsl) or needs.driver


def _floor(wanted: Pair, is_wsl: bool) -> str | None:
    if not is_wsl:
        return knowledge.minimum_driver(wanted)
    return next((row.least_windows for row in cuda.table().floors if row.cuda_major == wanted[0]), None)


def _advice(driver: str | None) -> str:
    return f"Install driver {driver} or newer, or use an older image" if driver else "Use an older image"


def _too_old(why: str, least: str | None) -> Verdict:
    return Verdict("no", why, f"no: driver < {_branch(least)}" if least else "no: driver too old")


def _unsure(why: str) -> Verdict:
    return Verdict("unknown", why, "?")


def _branch(driver: str | None) -> int:
    return int(driver.split(".")[0]) if driver else 0
