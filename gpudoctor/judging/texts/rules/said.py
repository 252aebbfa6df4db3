"""The words of a text around its outputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps

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


def _once(is_so: Callable[[Facts], bool]) -> Callable[[Facts], bool]:
    """Many rules ask the same of a text."""

    def made(facts: Facts) -> tuple[bool]:
        return (is_so(facts),)

    @wraps(is_so)
    def known(facts: Facts) -> bool:
        return facts.once(made)[0]

    return known


@_once
def is_lxc(facts: Facts) -> bool:
    """Whether the text shows a container of LXC, Proxmox, LXD or Incus."""
    return any(_LXC.search(text) for text in passages(facts))


_OTHER_GPU = re.compile(r"(?m)^[ \t]*[\da-f:.]+ (?:VGA compatible|3D|Display) controller")
_OF_AMD = re.compile(
    r"""
    ROCm\ System\ Management\ Interface | \bAMD[-\ ]SMI\b | \brocminfo\b | \bAMD\ (?:Radeon|Instinct)\b
    | \b(?:VGA\ compatible|3D|Display)\ controller:\ (?:Advanced\ Micro\ Devices|Intel\ Corporation)
    | \bRadeon\ (?:RX|PRO|Pro|VII)\b | \bRX\ ?[5-9]\d{3}\b | \bInstinct\ MI\d | \bApple\ M\d\b | \bIntel\ Arc\b
    """,
    re.VERBOSE,
)
_NVIDIA = re.compile(
    r"""
    \bNVIDIA\ Corporation\b | \bGeForce\b | \b[RG]TX\b | \bQuadro\b | \bTesla\b | NVIDIA-SMI\ \d
    | \b(?:NVIDIA|Nvidia|nvidia)\ (?:[AHLTBV]\d{1,3}\b|GB\d|GH\d|DGX|Jetson|Graphics|GPU|card) | \b[AHBV]\d00\b
      | \bDGX\b | \bJetson\b
    """,
    re.VERBOSE,
)
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


@_once
def has_only_others(facts: Facts) -> bool:
    """lspci lists display controllers, or a tool of AMD a GPU, and the text names no NVIDIA GPU."""
    text = "\n".join(passages(facts))
    return bool(_OTHER_GPU.search(text) or _OF_AMD.search(text)) and not _NVIDIA.search(text)


@_once
def names_gpu(facts: Facts) -> bool:
    """Whether a text, of which no machine's answers are known, names a GPU of NVIDIA."""
    return facts.texts.alone and any(_NVIDIA.search(text) for text in passages(facts))


_MODEL = re.compile(
    r"""
    \b(?: GTX | RTX | GT | Quadro | Tesla | TITAN | GeForce )[ \ ]?(?:RTX\ |GTX\ |Xp?\b|V\b)?[A-Z]{0,2}\d{2,5}
    | \bNVIDIA\ (?:GeForce|RTX|[AHLBTV]\d) | \b[AHLTV]\d{1,3}0[0S]?(?:\ ?GPU|-SXM|-PCI) | ^\|\ NVIDIA-SMI | \bnvidia-smi\b
    """,
    re.MULTILINE | re.VERBOSE,
)


@_once
def has_gpu(facts: Facts) -> bool:
    """An output of the text lists a GPU, or its words name a model or nvidia-smi, and none is from another vendor."""
    if known(lambda: facts.nvml.count, 0) or known(lambda: facts.pci.gpus, ()):
        return True
    return not has_only_others(facts) and any(_MODEL.search(text) for text in passages(facts))


_MEANT = (
    r"(?:on\ purpose|purposely|deliberately|intentional(?:ly)?|intended|by\ design|by\ choice"
    r"|absichtlich|mit\ Absicht|bewusst|gewollt"
    r"|a\ propósito|adrede|exprès|volontairement|intencional\w*|намеренно|специально)"
)
_LEFT_WITHOUT = re.compile(
    rf"""
    \b(?:GPUs?|--gpus|CPU|cpu|driver|CUDA)\b[^.\n]{{0,60}}\b{_MEANT}
    | \b{_MEANT}[^.\n]{{0,60}}\b(?:no|without|only|CPUs?|dropped|ohne|nur|sin|sans|solo|hid\w+)\b[^.\n]{{0,20}}\b(?:GPUs?|CPUs?)\b
    | \b(?:Intel|AMD|Büro|Grafik\w*|Rechner)\b[^.\n]{{0,60}}\b(?:absichtlich|gewollt|bewusst)\b
    | \b(?:ohne|keine)\ (?:GPU|Grafikkarte)\b[^.\n]{{0,40}}\b(?:absichtlich|gewollt|bewusst)\b | \b(?:sin|sans)\ GPU\ y\ uso\b
    | \b(?:needs?|uses?|wants?)\ (?:no|neither\ an?)\ GPUs?\b | \b(?:doesn['’]t|does\ not|don['’]t
      |do\ not)\ (?:even\ )?(?:need|require)\ (?:an?\ |any\ |the\ )?(?:NVIDIA\ )?(?:GPUs?|CUDA)\b
    | \b(?:I|we|it|CI|tests?)\ (?:\w+\ )?hid(?:e|es|ing|den)\ (?:all\ |the\ |my\ |our\ )?GPUs?\b
    | \b(?:nodes?|machines?|hosts?|runners?|workers?)\ (?:without|that\ (?:have|has)\ no)\ (?:an?\ |any\ )?GPUs?\b
      | \bnon-GPU\ (?:node|machine|host|worker)s?\b
    | \b(?:[Mm]y|[Tt]his|[Tt]he|[Oo]ur|[Tt]hese)\ (?:\w+\ )?(?:laptop|NAS|Synology|QNAP|server|box|PC|machine|Pi|VPS
      |(?:login\ |head\ ?)?nodes?)
      \ ha(?:s|ve)\ no\ (?:NVIDIA\ |discrete\ |dedicated\ )?(?:GPUs?|graphics\ cards?)\b
    | \b(?:node|machine|server|host|box|laptop)s?,?\ which\ ha(?:s|ve)\ no\ GPUs?\b
    | \bI\ (?:don['’]t|do\ not)\ (?:even\ )?have\ an?\ (?:NVIDIA\ )?(?:GPU|graphics\ card)\b
    | (?:故意|特意|有意)[^。\n]{{0,20}}(?:CPU|GPU|显卡) | 不(?:需要|用)(?:GPU|显卡) | (?:GPU|CPU)[^。\n]{{0,20}}(?:意図的
      |わざと) | (?:意図的|わざと)[^。\n]{{0,20}}[CG]PU
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


LONG_SENTENCE = 300  # characters
_DENIED = re.compile(
    r"""
    \b(?:did|was|is|were|are)(?:n['’]t|\ not)\b
    | \b(?:says?|thinks?|claims?|reports?|complain\w*)\b
    """,
    re.VERBOSE,
)
_NO_NVIDIA_THERE = re.compile(
    r"""
    \bmacOS\b | \b[Mm]ac[Bb]ook\b | \bApple\ (?:M\d|Silicon|silicon)\b | \bM[1-5]\ (?:Pro|Max|Ultra|[Mm]ac)\b | \bDarwin\b
    | \bRaspberry\ Pi\b
    """,
    re.VERBOSE,
)


@_once
def is_left_without(facts: Facts) -> bool:
    """The author says that a program or a machine has no GPU, and that this is as wanted."""
    return any(not _is_denied(match) for text in passages(facts) for match in _LEFT_WITHOUT.finditer(text))


def _is_denied(match: re.Match[str]) -> bool:
    """Whether the sentence says the opposite, or what a program says."""
    before = match.string[max(match.start() - LONG_SENTENCE, 0) : match.start()]
    return bool(_DENIED.search(re.split(r"[.\n]", before)[-1] + match[0]))


@_once
def is_without_nvidia(facts: Facts) -> bool:
    """The machine of the text can have no GPU of NVIDIA, and the text names none."""
    text = "\n".join(passages(facts))
    return bool(_NO_NVIDIA_THERE.search(text)) and not _NVIDIA.search(text)


@_once
def is_for_cpus(facts: Facts) -> bool:
    """The text shows only other display controllers, and says that this is on purpose, or uses one of another vendor.

    A program that was left without GPUs on purpose shows no controllers.
    """
    if is_left_without(facts):
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


@_once
def complains(facts: Facts) -> bool:
    """Whether the words of the text say that something does not work."""
    return any(_COMPLAINS.search(text) for text in passages(facts))


def passages(facts: Facts) -> tuple[str, ...]:
    return facts.once(_passages)


def _passages(facts: Facts) -> Iterator[str]:
    yield from (passage.text for text in facts.texts.all for passage in text.passages)


def with_ways_of_wsl(problem: Problem, facts: Facts) -> Problem:
    """A lack of the host's memory, with the fixes of a WSL that gets less memory than Windows has."""
    is_wsl = known(lambda: facts.system.wsl, 0) == 2 or any(".wslconfig" in text for text in passages(facts))
    ways = facts.problems["wsl-pinned-memory-limit"].fixes[:1] if is_wsl else ()
    return replace(problem, fixes=(*ways, *problem.fixes))
