"""Lines that quote messages without a failure: sources, settings, manuals, names of tasks, and sentences about messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpudoctor.evidence import samples, sentences
from gpudoctor.evidence.prompts import NEXT
from gpudoctor.facts import sessions

Lines = Sequence[tuple[int, str]]

LEAST_LINES = 4  # of a source in a text

_SHOWS_DOCUMENT = re.compile(
    r"""
    ^(?:sudo\ )? (?:
        (?:gh|glab|hub)\ (?:issue|pr|mr|search|release)\b
        | history\b | fc\ -l\b | (?:man|info|tldr|apropos|whatis|pydoc|perldoc|strings|diff|sdiff|colordiff)\ \S
        | (?:apt(?:-get)?|dnf)\ changelog\b | rpm\ -q\S*\ --changelog\b
        | .*\s(?:--help|--collect-only|--co)(?:\s|$)
    )
    """,
    re.VERBOSE,
)
_SHOWS_FILE = re.compile(
    r"""
    ^(?:sudo\ )?(?:cat|bat|less|more|head|tail|sed|nl|vim?|nano|zcat|zless|systemctl\ cat)\s
    """,
    re.VERBOSE,
)
_PRINTED = re.compile(
    r"""\.(?:py|pyx|cc?|cpp|cxx|cuh?|h|hpp|rs|go|jsx?|tsx?|java|rb|lua|md|rst|adoc|html|po|patch|diff|ya?ml|toml|conf|cfg
    |ini|service|timer|rules|sh|bash|env|example|tf|j2)(?:\s|$)|ocker[Ff]ile|[Mm]akefile|/(?:NEWS|README|CHANGES|changelog)\b
    |\bsystemctl\ cat\ """,
    re.VERBOSE,
)

_TASK = re.compile(
    r"""
    ^(?:TASK|PLAY|RUNNING\ HANDLER)\ \[.*\]\ \*+$                               # Ansible
    | ^\S+\.py::[^\s\[]+(?:\[.*\])?$                                            # pytest --collect-only
    | ^//\S+:\S+\s+(?:\(cached\)\ )?(?:PASSED|NO\ STATUS|SKIPPED)\b             # Bazel
    | ^\#?\d+\s{2,}\S.*\b\d+\ (?:minute|hour|day|week|month|year)s?\ ago\s*$    # gh issue list
    | ^(?:msgid|msgstr|msgctxt)(?:\[\d\])?\ "                                   # gettext
    """,
    re.VERBOSE,
)
_HISTORY = re.compile(r"^\s{0,5}\d{1,6}\s{2}(?:sudo )?[a-z]\S* \S")
_USAGE = re.compile(r"^usage: \S", re.IGNORECASE)
_PART_OF_USAGE = re.compile(r"^(?:\s|$|[\w ]+:$)")
_MANUAL = re.compile(
    r"""
    ^(?:NAME|SYNOPSIS|DESCRIPTION|OPTIONS|NOTES|(?:RETURN|EXIT)\ (?:VALUE|STATUS)S?|DIAGNOSTICS|ERRORS|FILES|SEE\ ALSO)$
    """,
    re.VERBOSE,
)
_PAGE = re.compile(r"^(\S+\(\d\w*\))\s.*\s\1$")

_CODE = re.compile(
    r"""
    ^\s*(?:
        (?:import|from|def|class|return|if|elif|else|for|while|try|except|raise|with|assert|async|await|yield)\b.*(?::|\)|,|\w)$
        | (?:\#\s*(?:include|define|ifdef|ifndef|endif|pragma)|typedef|static|const|struct|enum|switch|case|default)\b
        | \#!|(?:fi|done|esac|then|do|set|exit|local|export|echo|logger|continue|break)\b
        | (?:assert|return|raise)\ .*["'] | [\w.]+\(.*[(\[{,] | (?:-?\w+,\ )?[bfr]?"[^"]*"[)\]},;.\w]*
        | \w[\w.]*\ ?=\ ?[(\[{"'].* | print\(.* | @\w+.*
        | [A-Z][A-Z0-9_]+\ *=\ *-?\w+\s*,?\s*(?://.*|/\*.*)?$                     # a constant
        | (?://|/\*|\*[ /]).* | .*[;{}]\s*(?://.*)?$ | [)\]}],?;?$
        | (?:FROM|RUN|ENV|ARG|COPY|WORKDIR|CMD|ENTRYPOINT|LABEL|USER|EXPOSE)\ \S.*
        | (?:export\ )?[A-Z][A-Z0-9_]+=\S* | \[[A-Z]\w+\] | [\w-]+\ =\ \S.*
        | (?:-\ )?[\w.-]+:(?:\ [|>"'\[{\w$/].*)? | -\ [\w"'./-]\S*
    )
    """,
    re.VERBOSE,
)
_COMMENT = re.compile(
    r"""
    ^\s*(?: \#(?!!|\d|SBATCH|PBS|BSUB|\$)(?!\s*(?:sudo|nvidia-smi|docker|podman|kubectl|k3s|crictl|cat|ls|grep|dmesg|journalctl
        |lspci|lsmod
        |systemctl|modprobe|mokutil|s(?:control|info|run|batch)|python3?|pip3?|conda|helm|ip|ib\w+|export|cd|echo|dpkg|apt|dnf|rpm
        |zypper|pacman|uname|env|ps|dcgmi|nvcc|ldd|ldconfig|mount|findmnt)\b)
      | // | /\* | \*\s | ; | <!-- )
    | \s(?:\#|//|/\*)[!<]*\s
    """,
    re.VERBOSE,
)
_WORDS = re.compile(r"[A-Za-z(][\w'’.:-]* [\w'’.():/-]+ [\w'’.():/-]+")
_INLINE = re.compile(r"\s-\w*c[ =]?[\"'`]|--wrap\b")
_LITERAL = re.compile(
    r"""
    ^\s*(?:-\ )?["']?(?:name|title|summary|description|pattern|alert|expr|help|label|text|regex|match(?:es)?|desc
        |legendFormat|runbook|condition|reason)["']?\s*[:=]\s
    | (?:^|[{;&|]|\ -)\s*(?:echo|print\w*|printf|raise|grep|assert\w*|log\w*\.\w+|puts|throw|fputs|die|logger|notify\S*)\b.*["']
    | ^\s*(?:[A-Z_]+|[a-z_][\w.]*)\ ?=\ ?[(\[{"'] | ^\s*["'][^"']*["'][,;]?$
      | ^\s+(?:-?\w+,\ )?[bfr]?"[^"]*"[)\]},;.\w]*$ | ["'][^"']+["']\s+in\b | =\[?[\w.]+\([bfr]?"[^"\n]+"
    """,
    re.VERBOSE,
)
_OUTPUT = re.compile(
    r"""
    ^Traceback\ \(
    | ^\s+File\ \"
    | ^[\w.]*(?:Error|Exception)\b:(?!\ (?:true|false|null)\b)
    | ^\[?\d{4}-\d\d-\d\d
    | ^\[\s*\d+\.\d+\]
    | ^(?:time|ts|level)=\S+\ \w+=
    | ^[$>%]\s
    | ^(?:\#?\d+\ )?(?:\d+\.\d+\ )?(?:(?:nvcc|ptxas|cicc|fatbinary|ld|collect2|cc1plus|make|ninja)\b[^\n]{0,12}|\S+\(\d+\)):[ ]
    | ^[^\s@]{1,80}@\S{1,80}?[:~]
    """,
    re.VERBOSE,
)

_CALM = re.compile(
    r"""
    \b(?:INFO|DEBUG|TRACE|NOTICE|info|debug|trace|notice)\b
    | \blevel=(?:info|debug|trace)\b
    """,
    re.VERBOSE,
)
_WATCHES = re.compile(
    r"""
    \b(?:handlers?|patterns?|matching|scan\w*|search\w*|watch\w*|look\w*|filter\w*|ignor\w+|handl\w+|simulat\w+|expect\w*)\b
    [^\"'`]{0,60}[\"'`]\S+\ [^\"'`]*[\"'`]
    """,
    re.VERBOSE | re.IGNORECASE,
)

_CAUGHT = re.compile(r"\bcaught\b|\b(?:will\ retry|retrying|trying\ again|falling\ back)\b", re.IGNORECASE | re.VERBOSE)
_SUCCEEDED = re.compile(
    r"\b(?:retry|attempt\ \d+)\ (?:succeeded|worked|ok)\b|\bsucceeded\ (?:on|after)\ (?:retry|attempt)",
    re.IGNORECASE | re.VERBOSE,
)
_TRIGGER = re.compile(r"^\s*(?:Trigger|Alert|Check|Alarm|Rule|Summary|Title|Problem)\s*:\s", re.IGNORECASE)
_GOOD_STATE = re.compile(
    r"^\s*(?:Status|State|Result)\s*[:=]\s*(?:OK|resolved|closed|done|passed|healthy|normal|inactive)\b",
    re.IGNORECASE | re.VERBOSE,
)
# Passed tests print the messages that they provoke.
_PASSES = (re.compile(r"^\[ RUN      \] (\S+)|^=== RUN +(\S+)"), re.compile(r"^\[       OK \] (\S+)|^\s*--- PASS: (\S+)"))


def only_quoted(lines: Mapping[int, str]) -> set[int]:
    """The numbers of these lines. What readers find in them stays: a setting is a fact, and its comment is none."""
    ordered = sorted(lines.items())
    found = {number for number, line in ordered if _TASK.match(line) or (_CALM.search(line[:80]) and _WATCHES.search(line))}
    for command in sessions.commands(ordered):
        typed = " ".join(command.words)
        if _SHOWS_DOCUMENT.match(typed):
            found.update(number for number, _ in command.said)
        elif _SHOWS_FILE.match(typed) and _PRINTED.search(typed):
            found.update(number for number, line in command.said[1:] if _says_nothing(line))
    found.update(_runs(ordered), _usage(ordered), _manual(ordered), _sources(ordered), _passed(ordered))
    found.update(_overcome(ordered), samples.of_patches(ordered))
    found.update(sentences.entries([line for line in ordered if line[0] not in found]))
    found.update(sentences.about_messages([line for line in ordered if line[0] not in found]))
    return found


def _says_nothing(line: str) -> bool:
    return bool(
        _WORDS.search(line)
        and (_COMMENT.search(line) or _LITERAL.search(line))
        and not (NEXT.match(line) or _INLINE.search(line))
    )


def _passed(lines: Lines) -> Iterator[int]:
    began: list[int] = []
    name = ""
    for number, line in lines:
        if match := _PASSES[0].match(line):
            began, name = [], match[1] or match[2]
        elif (match := _PASSES[1].match(line)) and (match[1] or match[2]) == name:
            yield from began
            name = ""
        elif name:
            began.append(number)


def _overcome(lines: Lines) -> Iterator[int]:
    """What was caught and worked in the end, and the name of a trigger whose state is good."""
    ended = max((number for number, line in lines if _SUCCEEDED.search(line)), default=0)
    for (number, line), (_, below) in zip(lines, (*lines[1:], (0, "")), strict=False):
        if (number < ended and _CAUGHT.search(line)) or (_TRIGGER.match(line) and _GOOD_STATE.match(below)):
            yield number


def _runs(lines: Lines) -> Iterator[int]:
    """Lines of a shell's history."""
    run: list[int] = []
    for number, line in (*lines, (0, "")):
        if _HISTORY.match(line):
            run.append(number)
            continue
        yield from run if len(run) >= LEAST_LINES else ()
        run = []


def _usage(lines: Lines) -> Iterator[int]:
    inside = False
    for number, line in lines:
        inside = bool(_USAGE.match(line) or (inside and _PART_OF_USAGE.match(line)))
        if inside:
            yield number


def _manual(lines: Lines) -> Iterator[int]:
    headings = [line for _, line in lines if _MANUAL.match(line.rstrip())]
    if len(headings) < 2 and not any(_PAGE.match(line.rstrip()) for _, line in lines):
        return
    inside = False
    for number, line in lines:
        inside = bool(_MANUAL.match(line.rstrip()) or (inside and line.startswith("  ")))
        if inside:
            yield number


def _sources(lines: Lines) -> Iterator[int]:
    """Comments and literals of a source or of settings: of lines in a row, most of which have that form."""
    run: list[tuple[int, str]] = []
    for number, line in (*lines, (0, "Traceback (")):
        if not _OUTPUT.match(line):
            run.append((number, line))
            continue
        yield from _of_source(run)
        run = []


def _of_source(run: Lines) -> Iterable[int]:
    code = [line for _, line in run if _CODE.match(line) or _COMMENT.match(line)]
    if len(run) < LEAST_LINES or len(code) < 0.6 * len(run) or all(_COMMENT.match(line) for line in code):
        return ()
    return (number for number, line in run if _says_nothing(line) or _CONSTANT.match(line))


_CONSTANT = re.compile(r"^\s*[A-Z][A-Z0-9_]+\s*=\s*-?\w+\s*,?\s*(?://|/\*)")
