"""The order in which fixes are offered for a text: what it shows as tried, or as known already, comes last. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpudoctor.facts.sessions import Command
from gpudoctor.model import Fix

_CONDITIONAL = re.compile(
    r"""
    ^(?: If | Otherwise | Until | Without | With | For | To | Permanently | When | Only | As | On | After | Then | Later )\b
    | ^In\ (?!(?:an?\ )?(?:Slurm|container|pod|WSL|conda|notebook))  # a place that the text shows
    | \bpermanently\b
    """,
    re.VERBOSE,
)
_REBOOTED = re.compile(
    r"""
    \b(?: rebooted | (?:restarted|power(?:ed)?[ -]cycled)\ the\ (?:machine|node|host|server|computer|pc)
    | last\ reboot | (?:after|since)\ (?:a|the|every|each|\w+)\ (?:reboot|restart)s? )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_IF_AGAIN = re.compile(r"^If (?:it|the \w+) (?:comes back|happens again|keeps|returns)\b")
_RESTARTS = re.compile(r"\breboot\b|--gpu-reset")
_OFTEN = re.compile(
    r"""
    \b(?: (?:second|third|fourth|fifth|\d+(?:nd|rd|th))\ time | (?:twice|\d+\ times|\w+\ times)\ (?:this|a|per|in)\ \w+
    | every\ (?:few|time|day|night|\d+)
    | keeps\ \w+ing | again\ and\ again | comes\ back | happens\ again )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OF_SLURM = re.compile(
    r"""
    ^[^\n]{0,60}[$%❯]\ (?:srun|sbatch|salloc|squeue|sacct|module)\b
    | ^(?:srun|sbatch|salloc)\ [-\w]
    | \bSLURM_JOB_?ID\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_IS_ROOT = re.compile(r"(?m)^[^\n]{0,60}[$%❯]\ sudo\b|^\[?root@|^[^\n]{0,40}#\ \w")
_COMPOSES = re.compile(r"\bdocker[ -]compose\b|(?m:^services:\s*$)|\bcompose\.ya?ml\b")
_ONLY_REBOOTS = re.compile(r"^sudo (?:reboot|poweroff|shutdown\b.*|systemctl (?:reboot|poweroff))$")
_UNSETS = re.compile(r"^unset (\w+)$")
_PARTS = re.compile(r"\s*(?:;|&&|\|\|?|\n)\s*")
_PREFIX = re.compile(r"^(?:sudo(?: -\w+)* |time |[A-Z_]+=\S* )+")
_FILTERS = {"grep", "tail", "head", "sort", "less", "wc", "awk", "sed", "tee", "uniq", "cut", "column", "echo", "printf"}
_WITH_VERB = {"docker", "podman", "kubectl", "systemctl", "conda", "pip", "git", "apt", "dnf", "snap", "nvidia-smi", "scontrol"}


def in_order(fixes: Sequence[Fix], text: str, commands: Sequence[Command]) -> tuple[Fix, ...]:
    """The fixes with another first one if the text shows what the first one shows, or that it changed nothing or cannot be run.

    What the text sets, and a fix unsets, comes first: a variable is easier to take away than a package. What came back after
    restarts is not cured by another one.
    """
    typed = {_whole(" ".join(command.words)) for command in commands}
    programs = {program for command in commands for program in _programs(" ".join(command.words))}
    rebooted = bool(_REBOOTED.search(text))

    is_user = bool(_OF_SLURM.search(text)) and not _IS_ROOT.search(text)

    def is_done(fix: Fix) -> bool:
        if is_user and "root" in fix.needs:
            return True
        return _is_known(fix, programs) or _whole(fix.command) in typed or (rebooted and bool(_ONLY_REBOOTS.match(fix.command)))

    first, *others = fixes
    again = next((fix for fix in others if _IF_AGAIN.match(fix.title)), None)
    if again and _RESTARTS.search(first.command) and _OFTEN.search(text):
        return (again, *(fix for fix in fixes if fix is not again))
    unset = next((fix for fix in others if _is_of_variable(fix, text)), None)
    if unset and (first.kind != "set" or is_done(first)):
        return (unset, *(fix for fix in fixes if fix is not unset))
    composed = next((fix for fix in others if " compose " in fix.command), None)
    if composed and " compose " not in first.command and _COMPOSES.search(text):
        return (composed, *(fix for fix in fixes if fix is not composed))
    if not is_done(first):
        return tuple(fixes)
    best = next((fix for fix in others if fix.command and not is_done(fix) and not _CONDITIONAL.search(fix.title)), None)
    return (best, *(fix for fix in others if fix is not best), first) if best else tuple(fixes)


_LOOKS = re.compile(r"^(?: Show | Find | Read | Look | List | Measure | Check | See | Compare | Print | Count )\b", re.VERBOSE)
_OF_PRODUCT = re.compile(r"^(?P<product>[A-Za-z][\w.+ -]{2,24}?)(?:\ on\ x86)?: [a-z]")
_ALIASES = {
    "llama-cpp-python": r"llama[-_]cpp[-_ ]python|(?:from|import) llama_cpp\b|\bllama_cpp\b",
    "llama.cpp": r"llama\.cpp|\bllama-(?:cli|server|bench)\b|\bggml\w*",
}


def by_words(fixes: Sequence[Fix], text: str, is_sure: bool) -> tuple[Fix, ...]:
    """The fix for the program that a text names first, and a look-up later than a harmless change, if the problem is certain.

    The longest name counts: llama-cpp-python contains llama.cpp.
    """
    named = {fix: match["product"] for fix in fixes if (match := _OF_PRODUCT.match(fix.title)) and not _LOOKS.match(fix.title)}
    shown = {fix: name for fix, name in named.items() if re.search(_ALIASES.get(name, rf"(?i)\b{re.escape(name)}\b"), text)}
    best = max(shown, key=lambda fix: len(shown[fix]), default=None)
    if best and fixes[0] in named and shown.get(fixes[0]) != shown[best]:
        return (best, *(fix for fix in fixes if fix is not best))
    if not is_sure or not _LOOKS.match(fixes[0].title):
        return tuple(fixes)
    way = next((fix for fix in fixes[1:] if _is_harmless_change(fix)), None)
    return (way, *(fix for fix in fixes if fix is not way)) if way else tuple(fixes)


def _is_harmless_change(fix: Fix) -> bool:
    return bool(fix.command) and fix.risk == "safe" and not (_LOOKS.match(fix.title) or _CONDITIONAL.search(fix.title))


def _is_known(fix: Fix, programs: set[tuple[str, ...]]) -> bool:
    """Whether it only shows what programs show that the text has run."""
    if fix.kind != "read" or not fix.command or "<" in fix.command:
        return False
    shown = _programs(fix.command)
    return bool(shown) and shown <= programs


def _is_of_variable(fix: Fix, text: str) -> bool:
    match = _UNSETS.match(fix.command)
    return bool(match and re.search(rf"\b{match[1]}=\S|\${match[1]}\b[^\n]*\n/\S", text))


def _programs(line: str) -> set[tuple[str, ...]]:
    """What a line runs: a program, or a program with its verb or file; filters of output do not count."""
    found: set[tuple[str, ...]] = set()
    for part in _PARTS.split(line):
        words = _PREFIX.sub("", part).split()
        if not words or words[0] in _FILTERS:
            continue
        arguments = [word for word in words[1:] if not word.startswith(("-", "2>", ">"))]
        if words[0] in _WITH_VERB:
            options = [word for word in words[1:2] if words[0] == "nvidia-smi"]
            found.add((words[0], *(options or arguments[:1])))
        elif words[0] in ("cat", "ls", "python", "python3", "<python>"):
            found |= {(words[0].removesuffix("3"), argument) for argument in arguments} or {(words[0],)}
        else:
            found.add((words[0],))
    return found


def _whole(command: str) -> str:
    return " ".join(_PREFIX.sub("", command).split())
