"""Fixes for tools and distributions that a text does not show are left out of a report about it. Pure."""

from __future__ import annotations

import re
from dataclasses import replace

from gpudoctor.facts import Facts, sessions
from gpudoctor.judging.texts.causes import with_shown_causes
from gpudoctor.model import Finding, Fix

LEAST_COMMANDS = 2  # in a text that shows a machine; a message alone can be from anywhere
_TOOLS = (
    (
        r"\b[Ii]n a (?:container|pod)\b|<docker> |\bdocker (?:run|compose)\b",
        r"docker|podman|container|kube|\bpods?\b|nerdctl|singularity|apptainer|enroot|compose|@[0-9a-f]{12}:|\bk[38]s\b|rancher",
    ),
    (r"\bk3s\b", r"\bk3s\b|rancher"),
    (r"\b[Ii]n WSL\b|/usr/lib/wsl|\bwsl\.exe\b", r"\bwsl|/dev/dxg|microsoft|windows"),
    (r"\bconda\b", r"conda|mamba|\(base\)"),
    (r"\b(?:Slurm|srun|scontrol|sbatch)\b", r"slurm|srun|sbatch|scontrol|squeue|sinfo"),
)
_TOOLS_OF = tuple((re.compile(fix), re.compile(text, re.IGNORECASE)) for fix, text in _TOOLS)
_FAMILIES = {
    "debian": re.compile(
        r"""
        \b(?: apt(?:-get|-mark|-cache)? | dpkg | [Uu]buntu | [Dd]ebian | Mint | Pop!_OS )\b
        """,
        re.VERBOSE,
    ),
    "rhel": re.compile(
        r"""
        \b(?: dnf | yum | Fedora | AlmaLinux | Rocky | RHEL | CentOS | Red\ Hat )\b | \.(?:el|fc)\d{1,2}(?:_\d+)?\b
        """,
        re.VERBOSE,
    ),
    "suse": re.compile(r"\bzypper\b|openSUSE|\bSUSE\b|\bSLES\b|suserelease|Tumbleweed"),
    "arch": re.compile(r"\bpacman\b|Arch Linux|\byay\b|Manjaro|EndeavourOS|CachyOS"),
    "nixos": re.compile(r"\b[Nn]ixOS\b|nixos-rebuild|/nix/store"),
}
_NAMED = {
    "debian": r"Ubuntu|Mint|Debian|Pop!_OS",
    "rhel": r"Fedora|RHEL|CentOS|Rocky|AlmaLinux|Red Hat",
    "suse": r"openSUSE|SUSE|SLES",
    "arch": r"Arch|Manjaro",
    "nixos": r"NixOS",
}


def fitted(finding: Finding, facts: Facts) -> Finding:
    """With the causes and the fixes that fit the text; all fixes if it shows no machine, or if none would be left."""
    finding = with_shown_causes(finding, facts)
    lines = [line for text in facts.texts.all for line in text.lines]
    if not facts.texts.alone or not finding.problem.fixes or len(sessions.commands(lines)) < LEAST_COMMANDS:
        return finding
    from gpudoctor.judging.texts.rules.said import passages  # with all rules: only a text needs them

    text = "\n".join(passages(facts))
    families = {name for name, words in _FAMILIES.items() if words.search(text)}
    kept = tuple(fix for fix in finding.problem.fixes if _is_shown(fix, text) and _is_of(fix, families))
    if not kept or len(kept) == len(finding.problem.fixes) or not any(fix.command for fix in kept):
        return finding
    return replace(finding, problem=replace(finding.problem, fixes=kept))


def _is_shown(fix: Fix, text: str) -> bool:
    words = f"{fix.title}\n{fix.command}"
    return all(shown.search(text) for tool, shown in _TOOLS_OF if tool.search(words))


def _is_of(fix: Fix, families: set[str]) -> bool:
    """Whether the beginning of a fix names the only distribution that the text shows, or none."""
    named = {name for name, words in _NAMED.items() if re.search(rf"\b(?:{words})\b", fix.title)}
    return len(families) != 1 or not named or bool(named & families)
