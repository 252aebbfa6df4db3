"""Lines that mention messages, and are not output of a program that failed.

Results of a search in sources, commits, names of tests that passed, lists of what a release fixes, and samples in instructions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.facts import sessions

Lines = Sequence[tuple[int, str]]

_SOURCE = (
    r"[\w./\\+-]*\.(?:py|pyx|pyi|cc?|cpp|cxx|cuh?|h|hpp|rs|go|jsx?|tsx?|java|rb|lua|proto|md|rst|adoc|html|ipynb|patch|diff)"
)
_CONFIG = r"(?!/)[\w./\\+-]*\.(?:ya?ml|toml|tf|j2|tmpl|sh|bash|cmake|json5)"
_SEARCH = re.compile(r"^(?:sudo )?(?:(?:git )?(?:[ef]?grep|ag|ack)|rg|findstr|Select-String|sls)\b")
_RECURSES = re.compile(r"^(?:sudo )?(?:git grep|rg|ag|ack)\b|\s(?:-\w*[rR]\w*|--recursive)\s")
_OF_SOURCE = re.compile(rf"^(?:{_SOURCE}[:-]|{_CONFIG}(?:[:-]\d+)?[:-].*[\"'#])")
_FILE = re.compile(rf"^(?:{_SOURCE}|{_CONFIG})$")
_OF_COMPILER = re.compile(r":\d+:\d+: (?:fatal )?(?:error|warning|note):")
_ON_LOG = re.compile(
    r"""
    \s\S*(?:\.(?:log|out|err|txt)\b|\blogs?/)
    | \s/(?:etc|proc|sys|run|(?:usr/)?lib/modprobe\.d)/
    """,
    re.VERBOSE,
)
_NUMBERED = re.compile(r"^\d+[:-]")
_ON_SOURCE = re.compile(rf"\s{_SOURCE}\s*$")

_GIT = re.compile(
    r"^git\ (?:-\S+\ (?:\S+\ )?)?(?:log|show|shortlog|reflog|cherry|commit|whatchanged|blame)\b",
    re.VERBOSE,
)
_ONE_LINE = re.compile(r"^(?:[*|\\/ ]*\^?|\[\S+ (?:\([\w-]+\) )?)[0-9a-f]{7,40}\b")
_COMMIT = re.compile(r"^[*|\\/ ]*commit [0-9a-f]{40}\b")
_OF_COMMIT = re.compile(
    r"""
    ^[*|\\/ ]*(?: commit\ [0-9a-f]{7,40} | (?:Author|AuthorDate|Commit|CommitDate|Date|Merge|Tagger):[ ] | \ {4} )
    | ^(?: diff\ --git | index\ [0-9a-f]+\.\. | (?:new|deleted)\ file\ mode | --- | \+\+\+ | @@ | [-+ ] )
    """,
    re.VERBOSE,
)

_GOOD = r"(?:PASSED|SKIPPED|XFAIL|XPASS|PASS|ok|Passed|OK|skipped)"
_TEST = re.compile(
    rf"""
    ^(?:\[gw\d+\]\ )?(?:\[\ *\d+%\]\ )? (?:{_GOOD}\ )? [^\s:]+\.py::.*\s{_GOOD}\b      # pytest -v
    | ^(?:\[gw\d+\]\ )?(?:\[\ *\d+%\]\ )? {_GOOD}\ [^\s:]+\.py::                        # pytest -rA, -n
    | ^\s*\d+/\d+\ Test\ +\#\d+:\ .*\s(?:Passed|\*+Skipped)\b                       # ctest
    | ^\s*Start\ +\d+:\ \S
    | ^\[\ +(?:OK|RUN|SKIPPED)\ +\]\ \S                                             # googletest
    | ^\s*---\ (?:PASS|SKIP):\ \S | ^===\ (?:RUN|PAUSE|CONT)\ +\S                   # go test
    | ^test\ .*\.\.\.\ (?:ok|ignored)\b                                             # cargo test
    | ^\w+\ \([\w.]+\)\ \.\.\.\ (?:ok|skipped)\b                                    # unittest
    | ^\s*ok\ \d+\ -\ | ^\s*[✓✔]\ \S                                                # TAP, mocha
    """,
    re.VERBOSE,
)

_RELEASE = re.compile(
    r"\b(?: release\ notes? | change\ ?log | what(?:'|’)?s\ (?:new|changed) | patch\ notes? )\b", re.IGNORECASE | re.VERBOSE
)
_FIXED = re.compile(
    r"""
    ^[\s\#*=_]*(?:[\d.]+\ )? (?:
        (?:fixed|resolved|closed|addressed)\ (?:issues?|bugs?|problems?|defects?)(?:\ in\ [^:]{1,60})?
        | (?:bug\ ?)?fixes | issues?\ (?:fixed|resolved)(?:\ in\ [^:]{1,60})? | (?:issue|bug)\ resolutions?
    ) [\s:*_]*$
    """,
    re.IGNORECASE | re.VERBOSE,
)
_KNOWN = re.compile(
    r"^[\s\#*=_]*(?:[\d.]+\ )?(?:(?:known|open)\ (?:issues?|limitations?|problems?)|changes|changed)[\s:*_]*$", re.I | re.VERBOSE
)
_ITEM = re.compile(r"^\s*(?:[-*•·–+]|\d+[.)])\s+\S|^\s{2,}\S|^\s*[=~-]{3,}\s*$")
_FIX = re.compile(
    r"""
    ^\s*(?:[-*•·–+]\s+)? (?:\[[\w./\#-]+\]:?\s+)?
    (?:fix(?:e[sd])?|resolve[sd]?|addresse[sd]|correct(?:s|ed))\ (?:an?|the|several|some|rare|intermittent|possible|potential)
    \ (?:\w+\ ){0,3}?
    (?:issue|bug|race|crash(?:e(?=s))?|regression|problem|deadlock|hang|leak|error|failure|case)s?
    \ (?:where|that|which|in\ which|when|with|causing|during|while|on|in)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)

_IF = re.compile(
    r"\b(?:if|when)\ (?:you|the\ (?:output|log|command)|nvidia-smi|dmesg)(?:\ (?:then|instead|still))?"
    r"\ (?:sees?|gets?|says?|shows?|prints?|encounters?|reads?|finds?|is|receives?)"
    r"(?:\ (?:this|the|an?|something|like|following|error|message|line|output|similar|to)){0,5}\s*:?$",
    re.IGNORECASE | re.VERBOSE,
)
_THEN = re.compile(
    r"^(?:,\ )?(?:then|you\ (?:need|should|must|have|can)|go|(?:this|it|that)\ (?:means|usually)|check|make\ sure|run|try|install"
    r"|reboot|the\ \w+\ (?:is|has|was))\b",
    re.IGNORECASE | re.VERBOSE,
)
_HUNK = re.compile(r"^\s*@@ -\d+(?:,\d+)? \+\d+")
_OF_REVIEW = re.compile(r"^[> ]{0,8}\*\*@?[\w-]{1,30}(?: [\w-]{1,30}){0,2}\*\*(?: \([\w ]{1,30}\))?:\s")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
MOST_SAMPLED = 12  # lines


def only_mentioned(lines: Mapping[int, str]) -> set[int]:
    """The numbers of these lines."""
    ordered = sorted(lines.items())
    commands = [command for command in sessions.commands(ordered) if len(command.words) > 1]
    found = {number for number, line in ordered if _TEST.match(line) or _FIX.match(line)}
    for command in commands:
        typed = " ".join(command.words)
        if _SEARCH.match(typed):
            found.update(_results(typed, command.said))
        elif _GIT.match(typed):
            found.update(_commits(command.said))
    if any(_HUNK.match(line) for _, line in ordered):
        found.update(number for number, line in ordered if _OF_REVIEW.match(line))
    return found | set(_logged(ordered)) | set(_released(ordered)) | set(_samples(ordered))


def _results(typed: str, said: Lines) -> Iterator[int]:
    """Results of a search in sources; a log or a setting that was searched is evidence. The pattern itself is none either way."""
    is_piped = "|" in re.sub(r"\"[^\"]*\"|'[^']*'", "", typed)
    if _ON_LOG.search(typed):
        return
    of_one = bool(_ON_SOURCE.search(typed))
    below = False
    is_source = False
    for number, text in said[1:]:
        below = bool(_FILE.match(text)) or (below and bool(_NUMBERED.match(text)))
        if (below or of_one or _OF_SOURCE.match(text)) and not _OF_COMPILER.search(text):
            is_source = True
            yield number
    if is_source or (not is_piped and _RECURSES.search(typed)):
        yield said[0][0]


def _commits(said: Lines) -> Iterator[int]:
    """The command, whose own message counts as little, and the lines up to the first that has not the form of a commit."""
    yield said[0][0]
    for number, text in said[1:]:
        if not (_ONE_LINE.match(text) or _OF_COMMIT.match(text)):
            return
        yield number


def _logged(lines: Lines) -> Iterator[int]:
    """Whole commits without their command."""
    inside = False
    for number, text in lines:
        inside = bool(_COMMIT.match(text) or (inside and _OF_COMMIT.match(text)))
        if inside:
            yield number


def _released(lines: Lines) -> Iterator[int]:
    """Items below a heading of release notes, up to the next paragraph."""
    is_release = any(_RELEASE.search(text) and len(text.split()) < 15 for _, text in lines)
    inside = False
    for number, text in lines:
        if _FIXED.match(text) or (is_release and _KNOWN.match(text)):
            inside = True
        elif inside and _ITEM.match(text):
            yield number
        else:
            inside = False


def _samples(lines: Lines) -> Iterator[int]:
    """The message between "If you see" and what is to be done then."""
    for place, (_, text) in enumerate(lines):
        if text[-1:].isspace() or not _IF.search(text):
            continue
        sample: list[int] = []
        fenced = False
        for number, below in lines[place + 1 : place + 1 + MOST_SAMPLED]:
            fenced ^= bool(_FENCE.match(below))
            if not (fenced or _FENCE.match(below) or below.startswith("  ")):
                yield from sample if _THEN.match(below) else ()
                break
            sample.append(number)
