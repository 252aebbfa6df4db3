"""Whether GPUs are reserved for virtual machines on purpose. Pure."""

from __future__ import annotations

import re

from gpudoctor.facts import Facts

STARTS_A_VM = r"\bqm start\b|\bvirsh start\b|\bhostpci\d|-device vfio-pci,"
SHOWS_A_VM = re.compile(
    r"""
    ^hostpci\d+:\  | <hostdev\b | \bvirsh\ (?:dumpxml|list|edit)\b | ^\s*\d+\s+\S+\s+running\b | -device\ vfio-pci,
    | \bqm\ (?:list|status|config|showcmd|guest)\b | \bvirtctl\b | \bget\ vmis?\b | \bHarvester\b
    | \bvfio[-_]pci(?:\.|\ +(?:\S+\ +)*)ids=
    | \bvfio-pci\ [\da-f]{4}:[\da-f:.]+:\ (?:enabling\ device|vfio_|resett?ing|BAR\ \d:\ can't\ reserve)
    | \b(?:[Pp]assed|[Pp]assing)\ (?:on|through|in(?:to)?)\b | \b[Pp]ass-?thr(?:ough|u)\b
    | \b(?:to|for|of|in|into|by)\ (?:(?:the|an?|my|our)\ )?(?:\S+\ ){0,2}?(?:VMs?|guests?|virtual\ machines?)\b
    """,
    re.MULTILINE | re.VERBOSE,
)
WANTED_BACK = re.compile(
    r"""
    \b(?: no\ longer | not\ any\ ?more | any\ more | used\ to | left\ ?overs? | formerly
    | (?:removed|deleted)\ the\ (?:VM|guest) | back\ (?:to|on)\ the\ host | (?:on|for)\ the\ host\ (?:again|now|itself)
    | (?:don't|do\ not)\ use\ (?:it|pass|VMs|the\ VM) )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def is_passed_on(facts: Facts) -> bool:
    """Whether the given text reserves GPUs on purpose: it shows a virtual machine, its settings, or ids for vfio-pci."""
    said = "\n".join(passage.text for text in facts.texts.all for passage in text.passages)
    if not facts.texts.alone or WANTED_BACK.search(said):
        return False
    return bool(SHOWS_A_VM.search(said) or (re.search(STARTS_A_VM, said) and "nvidia-smi" not in said))
