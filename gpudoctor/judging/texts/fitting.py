"""Fixes for tools and distributions that a text does not show are left out of a report about it; Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpudoctor.facts import Facts, sessions
from gpudoctor.facts.known import known
from gpudoctor.facts.system import FAMILIES
from gpudoctor.fixes import engines
from gpudoctor.judging.texts.causes import with_shown_causes
from gpudoctor.judging.texts.offered import by_words, in_order
from gpudoctor.judging.texts.regressed import with_way_back
from gpudoctor.model import Confidence, Finding, Fix

LEAST_COMMANDS = 2  # in a text that shows a machine; a message alone can be from anywhere
_TOOLS = (
    (
        r"\b[Ii]n a (?:container|pod)\b|<docker> |\bdocker (?:run|compose)\b",
        r"docker|podman|container|kube|\bpods?\b|nerdctl|singularity|apptainer|enroot|compose|@[0-9a-f]{12}:|\bk[38]s\b|rancher",
    ),
    (r"\bpodman\b", r"podman|rootless|quadlet|\.(?:fc|el)\d"),
    (r"\bk3s\b", r"\bk3s\b|rancher"),
    (r"\b[Ii]n WSL\b|/usr/lib/wsl|\bwsl\.exe\b", r"\bwsl|/dev/dxg|microsoft|windows"),
    (r"\bconda\b", r"conda|mamba|\(base\)"),
    (r"\b(?:Slurm|srun|scontrol|sbatch)\b", r"slurm|srun|sbatch|scontrol|squeue|sinfo"),
    (r"\bufw\b", r"\bufw\b"),
    (r"\bfirewall-cmd\b", r"firewall"),
    (r"\b(?:setsebool|restorecon)\b", r"selinux|getenforce|\bavc\b|sestatus|\.(?:fc|el)\d"),
    (r"\benvycontrol\b", r"envycontrol"),
    (r"\bprime-select\b", r"prime-select|ubuntu|\bapt\b|mint|suse"),
    (r"%pip\b|\b[Ii]n a notebook\b", r"jupyter|notebook|colab|kaggle|ipython|ipykernel|\bIn \[\d"),
    (r"\bmodule (?:load|unload|purge|swap)\b", r"\bmodule\b|modulefiles|lmod|easybuild|spack"),
    (r"\bhelm\b", r"helm|operator|argo|flux"),
    (r"ClientConfigToken", r"token|\.tok\b|\b[dcn]ls\b"),
    (r"\bsnap (?:remove|install|connect)\b", r"\bsnap"),
    (r"\bray (?:start|stop|status)\b", r"\bray\b"),
    (r"\bflatpak\b", r"flatpak"),
    (r"\bpoetry\b", r"poetry"),
    (r"\bpixi\b", r"\bpixi\b"),
    (r"\bsystemctl\b", r"^(?!(?s:.*\b(?:rc-service|rc-update|openrc|sv status|dinitctl)\b))"),
)
_TOOLS_OF = tuple((re.compile(fix), re.compile(text, re.IGNORECASE)) for fix, text in _TOOLS)
_WORDS = {
    "debian": r"\b(?:apt(?:-get|-mark|-cache)?|dpkg|[Uu]buntu|[Dd]ebian|Mint|Pop!_OS)\b",
    "rhel": r"\b(?:dnf|yum|Fedora|AlmaLinux|Rocky|RHEL|CentOS|Red Hat)\b|\.(?:el|fc)\d{1,2}(?:_\d+)?\b",
    "suse": r"\bzypper\b|openSUSE|\bSUSE\b|\bSLES\b|suserelease|Tumbleweed",
    "arch": r"\bpacman\b|Arch Linux|\byay\b|Manjaro|EndeavourOS|CachyOS",
    "nixos": r"\b[Nn]ixOS\b|nixos-rebuild|/nix/store",
}
_KERNELS = {
    "debian": r"\b\d+\.\d+\.\d+-\d+-(?:generic|lowlatency|aws|azure|gcp|oem)\b|\+deb1\d\b",
    "rhel": r"\b\d+\.\d+\.\d+-[\w.]*\.(?:el|fc)\d{1,2}",
    "suse": r"\b\d+\.\d+\.\d+-[\w.-]+-default\b",
    "arch": r"\b\d+\.\d+(?:\.\d+)?[.-](?:arch\d+-\d|zen\d+-\d+-zen|\d+-(?:cachyos|lts\b))",
}
"""How distributions name their kernels, which a message alone can show."""
_ENGINES = {
    "docker": re.compile(r"\bpodman\b|--container-image|lxc\.cgroup|\bkubectl\b|in the container's spec"),
    "podman": re.compile(r"--container-image|lxc\.cgroup|\bkubectl\b|in the container's spec"),
}
"""What is not offered to a user of an engine: other engines, Slurm's containers, LXC."""
_NAMED = {
    "debian": r"Ubuntu|Mint|Debian|Pop!_OS",
    "rhel": r"Fedora|RHEL|CentOS|Rocky|AlmaLinux|Red Hat",
    "suse": r"openSUSE|SUSE|SLES",
    "arch": r"Arch|Manjaro",
    "nixos": r"NixOS",
}


def not_meant(found: Iterable[Finding], facts: Facts, area: str) -> Iterator[Finding]:
    """The findings of a check in this area, without those that a text calls wanted."""
    if not facts.texts.alone:
        yield from found
        return
    for finding in found:
        from gpudoctor.judging.texts.meant import is_meant  # with all rules: only a text needs them

        if not is_meant(finding, facts, area):
            yield finding


def fitted(finding: Finding, facts: Facts) -> Finding:
    """With the causes and the fixes that fit the text; all fixes if it shows no machine, or if none would be left."""
    finding = with_shown_causes(finding, facts)
    finding = with_way_back(_with_limit_of_container(finding, facts), facts)
    if not facts.texts.alone:
        return finding
    from gpudoctor.judging.texts.worded import worded  # with all rules: only a text needs them

    finding = worded(finding, facts)
    fixes = finding.problem.fixes
    if len(fixes) < 2:
        return finding
    all_fixes = fixes
    commands = sessions.commands([line for text in facts.texts.all for line in text.lines])
    families = set(known(lambda: facts.system.platform, ())) & FAMILIES.keys()
    text = ""
    if len(commands) >= LEAST_COMMANDS:
        from gpudoctor.judging.texts.rules.said import passages  # with all rules: only a text needs them

        text = "\n".join(passages(facts))
    engine = engines.of_text(facts)
    fixes = tuple(fix for fix in fixes if engine not in _ENGINES or not _ENGINES[engine].search(f"{fix.title}\n{fix.command}"))
    families = families if len(families) == 1 else _families(facts, text)
    kept = tuple(fix for fix in fixes if _is_of(fix, families) and (not text or _is_shown(fix, text)))
    kept = kept if any(fix.command for fix in kept) else all_fixes
    ordered = in_order(kept, text, commands) if text else kept
    ordered = by_words(ordered, facts.texts.words, finding.confidence is not Confidence.UNKNOWN)
    return finding if ordered == all_fixes else replace(finding, problem=replace(finding.problem, fixes=ordered))


UNLOCKED = Fix(
    "Start the container without this limit",
    "<docker> run <all_gpus> --ulimit memlock=-1 --ulimit stack=67108864 --network host --device /dev/infiniband <image>",
    verify="ulimit -l",
    kind="manual",
)


def _with_limit_of_container(finding: Finding, facts: Facts) -> Finding:
    """A container has the limits of its engine and a job those of its service, not those that the host sets for its users."""
    if finding.problem.id in SHARED_MEMORY and facts.texts.alone:
        return _with_shared_memory(finding, facts)
    if finding.problem.id != "memlock-limited" or not facts.texts.alone:
        return finding
    from gpudoctor.judging.texts.rules.applied import limit_of_service  # with all rules, as above

    if of_service := next(limit_of_service(facts), None):
        return replace(finding, problem=replace(finding.problem, why=of_service.problem.why, fixes=of_service.problem.fixes))
    starts = [line for one in facts.texts.all for _, line in one.lines if _STARTS.search(line)]
    if not starts or any("memlock" in line for line in starts):
        return finding
    return replace(finding, problem=replace(finding.problem, fixes=(UNLOCKED, *finding.problem.fixes)))


SHARED_MEMORY = ("nccl-shm-no-space", "shm-too-small-for-dataloaders")
_INSIDE = re.compile(
    r"""
    \b(?:inside|within|in)\ (?:of\ )?(?:the|a|my|our|this)\ (?:[\w-]+\ ){0,3}?container\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def _with_shared_memory(finding: Finding, facts: Facts) -> Finding:
    """A container's /dev/shm is enlarged by its start, which needs no rights in it."""
    lines = [line for one in facts.texts.all for _, line in one.lines]
    if not any(_STARTS.search(line) or _INSIDE.search(line) for line in lines):
        return finding
    inside = tuple(replace(fix, on=()) for fix in finding.problem.fixes if fix.on == ("container",))
    rest = tuple(fix for fix in finding.problem.fixes if not fix.on)
    return replace(finding, problem=replace(finding.problem, fixes=(*inside, *rest))) if inside else finding


_STARTS = re.compile(r"^\s*(?:\S*[$#]\s+)?(?:sudo )?(?:docker|podman) run\b")


def _families(facts: Facts, text: str) -> set[str]:
    """The distributions that the words of a machine's text name, or else the kernels in it."""
    named = {name for name, words in _WORDS.items() if re.search(words, text)}
    if named:
        return named
    lines = [line for one in facts.texts.all for _, line in one.lines]
    return {name for name, kernel in _KERNELS.items() if any(re.search(kernel, line) for line in lines)}


def _is_shown(fix: Fix, text: str) -> bool:
    words = f"{fix.title}\n{fix.command}"
    return all(shown.search(text) for tool, shown in _TOOLS_OF if tool.search(words))


def _is_of(fix: Fix, families: set[str]) -> bool:
    """Whether a fix is for the only distribution that the text shows, or for all."""
    named = {name for name, words in _NAMED.items() if name in fix.on or re.search(rf"\b(?:{words})\b", fix.title)}
    return len(families) != 1 or not named or bool(named & families)
