"""The environment variables that the words of a failure name, or whose value a program refuses. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Fix, Problem

FILES = "~/.bashrc ~/.profile ~/.zshrc /etc/environment /etc/profile.d/*.sh"
NOT_SETTINGS = re.compile(
    r"PATH | HOME | PWD | PYTHONPATH | VIRTUAL_ENV\w* | _?CONDA_\w+ | SLURM_\w+ | KUBERNETES_\w+ | WSL_\w+", re.VERBOSE
)
"""They say where things are. Unsetting them would not help."""
LEAST_CHARACTERS = 3  # of a value that may be found without quotes around it
NEAR = r"[^\n]{0,60}?"
REFUSED = r"""(?xi:
    invalid | unknown | unrecogni[sz]ed | unsupported | unexpected | illegal | bogus | malformed | mismatch
    | not\ (?: a\ valid | recogni[sz]ed | supported | allowed | understood | one\ of | found | defined | in\ range )
    | could\ not\ (?:parse|convert) | cannot\ (?:parse|convert|interpret) | must\ be | should\ be | expected | has\ no
    | out\ of\ range | bad\ value | failed\ to\ parse
)"""
COMPLAINT = re.compile(REFUSED, re.VERBOSE)
REFUSED_PATH = r"""(?xi:
    no\ such\ file | not\ found | does\ not\ exist | doesn't\ exist | is\ missing | not\ a\ (?:directory|folder|file)
    | is\ a\ directory | file\ exists | permission\ denied | operation\ not\ permitted | read-only | no\ space\ left
    | (?:disk\ )?quota\ exceeded | not\ (?:writable|executable|readable) | exec\ format\ error | text\ file\ busy
    | cannot\ (?:open|find|execute|access|create|be\ (?:opened|found|executed|preloaded)) | could\ not\ (?:open|find)
    | unable\ to\ (?:open|find|access) | file\ too\ short | invalid\ ELF | wrong\ ELF | undefined\ symbol
    | version\ [`'][\w.]+'\ not\ found | failed\ to\ map | stale\ (?:NFS\ )?file | input/output\ error | failed\ with
    | returned\ non-zero | too\ many\ levels
)"""
ADVICE = re.compile(
    r"""
    \b(?: consider | try | please | pass(?:ing)? | set(?:ting)? | specify | export | unset | use | using | via | with
    | increas(?:e|ing) | documentation )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SOURCE_LINE = re.compile(r'(?P<file>^ *File "[^"\n]+", line \d+[^\n]*\n)(?: +(?!File )[^\n]*\n)+', re.MULTILINE)
"""Lines of a program in a traceback: they name many variables."""

UNSET = (
    Fix("Unset it in this shell, then run the program again", "unset <variable>", where="shell"),
    look(
        "Permanently: find the line that sets it and correct or delete it",
        f"grep -sn <variable> {FILES} || echo 'in none of these files'",
        on=("host", "wsl2"),
    ),
    Fix("In a container: remove it from the Dockerfile's ENV, the compose file, or -e of docker run", on=("container",)),
    Fix("In a conda environment: unset it", "conda env config vars unset <variable>", on=("conda",), kind="install"),
)
BREAKS = Problem(
    id="environment-variable-breaks-program",
    title="An environment variable makes a program fail",
    why="The failed program names this variable or its value in its error. Programs that use it stop on the same setting, even "
    "if everything they need is installed.",
    action=Action.FIX_CONFIG,
    fixes=UNSET,
)


OWN = Problem(
    id="own-settings-break-compiler",
    title="A GPU compiler fails with your settings and works without them",
    why="The same kernel was compiled twice: as your programs compile it, and with empty caches in another folder, the default "
    "compilers and no options. Only the second worked, so the installation is intact.",
    action=Action.FIX_CONFIG,
    fixes=(
        look(
            "Show the variables that compilers read", "env | grep -E '^(CC|CXX|C\\w*FLAGS|CPATH|TMPDIR)=|NVCC|CUDA|TRITON|TORCH'"
        ),
        look(
            "Show whether the folders for caches and temporary files have room and are yours",
            'df -h "${TMPDIR:-/tmp}" ~/.triton ~/.cache; ls -ld "${TMPDIR:-/tmp}" ~/.triton ~/.cache/torch_extensions',
        ),
        Fix("Unset one variable after the other, and run the program again"),
    ),
)


class Named(NamedTuple):
    """A variable, and the line of a failure that names it or refuses its value."""

    variable: str
    value: str
    line: str


def named(variables: Mapping[str, str], words: str) -> Iterator[Named]:
    """The variables that the words name first, then those with a value that the words refuse."""
    settings = {name: value for name, value in variables.items() if value and not NOT_SETTINGS.fullmatch(name)}
    words = _SOURCE_LINE.sub(r"\g<file>", words)
    found: dict[str, Named] = {}
    for look_for in (_by_name, _by_value):
        for name, value in settings.items():
            line = look_for(name, value, words)
            if line and name not in found:
                found[name] = Named(name, value, line)
    yield from found.values()


def _by_name(name: str, value: str, words: str) -> str:
    """The line that complains about a variable; advice to set it to something does not."""
    for line in words.splitlines():
        place = re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w/])", line)
        if not place:
            continue
        given = re.match(r"=['\"]?([^\s'\",;]+)", line[place.end() :])
        is_short = len(name) <= LEAST_CHARACTERS and not re.search(rf"\$\{{?{name}\b|{name}\s*=|environment variable", line)
        is_unset = re.match(r"\S*(?: \w+){0,3} (?:not set|unset|not defined|undefined)\b", line[place.end() :])
        is_advice = ADVICE.search(line[: place.start()]) and not COMPLAINT.search(line)
        if not (is_short or is_advice or is_unset or (given and given[1] not in value)):
            return line.strip()
    return ""


def _by_value(name: str, value: str, words: str) -> str:
    for part in dict.fromkeys((value, *re.split(r"[:;,\s]+" if "/" in value else r"[;,\s]+", value))):
        of_path = [part.rpartition(":")[0]] if ":" in part else []
        for text in dict.fromkeys((part, part.partition("=")[2], *of_path, *_architectures(name, part))):
            pattern = _refusal(name, text)
            found = pattern and re.search(pattern, words)
            if found:
                start = words.rfind("\n", 0, found.start()) + 1
                return words[start:].split("\n", 1)[0].strip()
    return ""


def _architectures(name: str, part: str) -> list[str]:
    """What compilers call an architecture: 9.0 is sm_90."""
    number = re.fullmatch(r"(\d+)\.(\d+a?)(?:\+PTX)?", part) if "ARCH" in name else None
    return [f"{prefix}_{number[1]}{number[2]}" for prefix in ("compute", "sm")] if number else []


def _refusal(name: str, part: str) -> str:
    """A pattern for words that refuse a part of a value; "" if it is too common to be recognised."""
    text = re.escape(part)
    if part.startswith("/") and part.count("/") > 1:
        whole = rf"(?<![\w.]){text}(?![\w.-])"
        patterns = [
            rf"{whole}[^\s'\":,]*['\"]?[:,]?\s{{0,2}}(?:\(?[\w']+ ){{0,3}}{REFUSED_PATH}",
            rf"{REFUSED_PATH}[:,]?[^\n/]{{0,24}}{whole}",
            rf"Command '?\[?'{text}['\s][^\n]*(?:returned non-zero|died with)",
        ]
        if "INCLUDE" in name or name == "CPATH":  # its folder holds the file with the error
            patterns.append(rf"{whole}/[^\s:]+:\d+(?::\d+)?: (?:fatal )?error")
        return "|".join(patterns)
    if not re.search(r"\w{2}|\d", part) or part.startswith("/"):
        return ""
    quoted = rf"['\"`(\[<]{text}['\"`)\]>]"
    is_common = len(part) < LEAST_CHARACTERS or part.lower() in COMMON or not re.search(r"[a-zA-Z]", part)
    whole = quoted if is_common else rf"(?:{quoted}|(?<![\w/.-]){text}(?![\w/.-]))"
    return rf"{REFUSED}{NEAR}{whole}|{whole}{NEAR}{REFUSED}"


COMMON = {"true", "false", "yes", "none", "auto", "cuda", "cpu", "gpu", "all", "off", "info", "debug", "warn", "error", "default"}
