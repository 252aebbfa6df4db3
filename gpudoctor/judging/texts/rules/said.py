"""The words of a text around its outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.model import Problem

_LXC = re.compile(
    r"""
    \bpct\ (?:enter|exec|start|config)\b
    | /etc/pve/ | \blxc\.\w+
    | \b(?:lxc|incus)\ (?:exec|config|shell|list|launch)\b
    """,
    re.VERBOSE,
)


def is_lxc(facts: Facts) -> bool:
    """Whether the text shows a container of LXC, Proxmox, LXD or Incus."""
    return any(_LXC.search(text) for text in passages(facts))


_OTHER_GPU = re.compile(r"(?m)^[ \t]*[\da-f:.]+ (?:VGA compatible|3D|Display) controller")
_OF_AMD = re.compile(
    r"""
    ROCm\ System\ Management\ Interface | \bAMD[-\ ]SMI\b | \brocminfo\b | \bAMD\ (?:Radeon|Instinct)\b
    """,
    re.VERBOSE,
)
_NVIDIA = re.compile(r"\bNVIDIA Corporation\b|\bGeForce\b|\b[RG]TX\b|\bQuadro\b|\bTesla\b")
_FOR_CPUS = re.compile(
    r"""
    \bCPU[- ]only\ (?: \w+\ ){0,2}?
      (?: runner | machine | box | node | host | server | image | environment | container | laptop | CI )
    | \b(?: has | have | with )\ no\ (?: NVIDIA | GPU | graphics\ card ) | \bno\ GPUs?\ (?: here | on\ th | in\ th | by\ design )
    | \b(?: on\ purpose | deliberately | intentionally | by\ design )\b
    | \brequirements-cpu\b | \bnot\ a\ problem\b | \b(?:Intel|AMD|Iris|Radeon)\b[^.\n]{0,30}\bonly\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def has_only_others(facts: Facts) -> bool:
    """lspci lists display controllers, or a tool of AMD a GPU, and the text names no NVIDIA GPU."""
    text = "\n".join(passages(facts))
    return bool(_OTHER_GPU.search(text) or _OF_AMD.search(text)) and not _NVIDIA.search(text)


def names_gpu(facts: Facts) -> bool:
    """Whether a text, of which no machine's answers are known, names a GPU of NVIDIA."""
    return facts.texts.alone and any(_NVIDIA.search(text) for text in passages(facts))


_MEANT = r"(?:on\ purpose|deliberately|intentionally|by\ design)"
_LEFT_WITHOUT = re.compile(
    rf"""
    \b(?:GPUs?|--gpus|CPU|cpu|driver)\b[^.\n]{{0,60}}\b{_MEANT}\b
    | \b{_MEANT}\b[^.\n]{{0,60}}\b(?:no|without|only|CPUs?|dropped)\b[^.\n]{{0,20}}\b(?:GPUs?|CPUs?)\b
    | \b(?:needs?|uses?|wants?)\ (?:no|neither\ an?)\ GPUs?\b
    """,
    re.VERBOSE,
)
_WORKS_ELSEWHERE = re.compile(
    r"""
    \b\d[\d.]*\+(?:rocm|xpu)\S*
    | \bgfx\d{3,4}\w?\b | \bLevel-Zero\b | \b(?:ROCm|HIP|SYCL|Metal|Vulkan)\b
    """,
    re.VERBOSE,
)


def is_for_cpus(facts: Facts) -> bool:
    """The text shows only other display controllers, and says that this is on purpose, or uses one of another vendor.

    A program that was left without GPUs on purpose shows no controllers.
    """
    if any(_LEFT_WITHOUT.search(text) for text in passages(facts)):
        return True
    if not has_only_others(facts):
        return False
    return any(_FOR_CPUS.search(text) or _WORKS_ELSEWHERE.search(text) for text in passages(facts))


_COMPLAINS = re.compile(
    r"""
    \b(?: (?:do|does|did)(?:n't|\ not) | no\ longer | stopped | won't | can't | cannot | never | nothing | isn't | not ) \ work\w*
    | \b(?: broken | broke | fail\w* | crash\w* | gone | missing | dead | black\ screen | no\ (?:driver|gpu|output|display) )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def complains(facts: Facts) -> bool:
    """Whether the words of the text say that something does not work."""
    return any(_COMPLAINS.search(text) for text in passages(facts))


def passages(facts: Facts) -> Iterator[str]:
    yield from (passage.text for text in facts.texts.all for passage in text.passages)


def with_ways_of_wsl(problem: Problem, facts: Facts) -> Problem:
    """A lack of the host's memory, with the fixes of a WSL that gets less memory than Windows has."""
    is_wsl = known(lambda: facts.system.wsl, 0) == 2 or any(".wslconfig" in text for text in passages(facts))
    ways = facts.problems["wsl-pinned-memory-limit"].fixes[:1] if is_wsl else ()
    return replace(problem, fixes=(*ways, *problem.fixes))
