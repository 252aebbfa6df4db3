"""Whether a text is documentation, a changelog or a web page: it quotes messages that did not just occur."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

KIND = "documentation"
LEAST_MARKS, LEAST_SHARE, LEAST_LINES = 5, 0.1, 8
MANY_MARKS, SHARE_OF_MANY = 30, 0.05  # of a long page
OFTEN = 3  # a report has each of its headings once
MOST_LOGGED = 0.12  # of the lines outside of code blocks
_MARK = re.compile(
    r"""
    # Markdown and reStructuredText
    ^\s*(?:
        \#{2,6}\ [A-Z`]
        | [*•]\ [A-Z`\["(a-z]
        | -\ (?![^:]{1,50}:\ \S) (?: [A-Z`\["(] | \*\* )    # an item of a list; "- key: value" is YAML
        | \.\.\ [\w-]+::
    )
    | \]\(\S+\)
    | `[^`\s][^`]*`_
    # HTML
    | ^\s*<(?:p|h[1-6]|li|ul|div|a|td|tr|section|pre|code|img)\b
    # a log of commits, a list of changes, a manual page
    | ^(?: commit\ [0-9a-f]{7,40} | Author:[ ] | Date:[ ] | \ {4}Signed-off-by:[ ] )
    | ^\d{4}-\d\d-\d\d\ \ .*<\S+@
    | ^\ --\ .*<\S+@\S+>\ [ ]
    | ^[\w.+-]+\ \(\S+\)\ [\w-]+;\ urgency=
    | ^\.[A-Z]{2}[ ]
    """,
    re.VERBOSE,
)
_OF_CHANGE = re.compile(r"docs(?:\([\w /.-]{1,40}\))?!?: \S")  # the title of a change, https://www.conventionalcommits.org
_RULE = re.compile(r"^([=~^\"*-])\1{3,}\s*$")
_LOGGED = re.compile(
    r"""
    # times
    ^\s*\[?\s*\d+\.\d{4,}
    | ^\[?\d{4}-\d\d-\d\d[ T]\d\d:
    | ^[A-Z][a-z]{2}\ +\d+\ \d\d:\d\d:\d\d[ ]
    # tracebacks and levels
    | ^Traceback\ \(
    | ^\s+File\ "
    | ^\[?(?:ERROR|WARNING|INFO|E|W|I)\b
    | ^\w*(?:Error|Exception):[ ]
    # prompts
    | ^(?:[^\s`#]\S*)?[$#]\ [a-z]
    | ^\(\w+\)[ ]
    | ^\S+@\S+[:~]
    # nvidia-smi, progress
    | ^\|\ +NVIDIA-SMI
    | ^\|\ .*\d+W\ /[ ]
    | \S\ \.{3,}\ \S
    """,
    re.VERBOSE,
)
# Headings in the forms for bug reports.
_HEADING = r"^\s*(?: \#+\ * | \*\* )\S{0,4}\ ?"
_REPORT = re.compile(
    _HEADING
    + r"""(?:
        describe\ (?:the|your)[ ]
        | to\ reproduce
        | steps\ to\ reproduce
        | expected\ (?:behaviou?r|results?)
        | actual\ (?:behaviou?r|results?)
        | what\ (?:happened|i\ did)
        | bug\ (?:description|report)
        | your\ current\ environment
        | \S+\ error\ report
    )""",
    re.MULTILINE | re.IGNORECASE | re.VERBOSE,
)
_PART_OF_REPORT = re.compile(
    _HEADING
    + r"""(?:
        environment\b
        | reproduc
        | what\ version
        | system\ info
        | error\ (?:log|message|logs)
        | (?:relevant\ )?log(?:s|\ output)\b
        | versions?\b
        | (?:the\ )?(?:problem|issue)\b
        | additional\ context
        | issue\ type\b
        | (?:tensorflow|pytorch|python|cuda(?:/cudnn)?|driver|ollama|package)\ version
        | os\ platform
        | current\ behaviou?r
        | standalone\ code
    )""",
    re.MULTILINE | re.IGNORECASE | re.VERBOSE,
)
LONG = 40  # lines
_QUESTION = re.compile(r"^(?!\s*(?:\#|\*\*)).*\?\s*$")
_FENCE = re.compile(r"^\s*(?:```|~~~)")


def is_documentation(lines: Sequence[str]) -> bool:
    """Decided by the form of its lines outside of code blocks. A bug report is not documentation, however well formatted."""
    prose = list(_outside(lines))
    if prose and _OF_CHANGE.match(prose[0]):
        return True
    marks = sum(bool(_MARK.search(line)) for line in prose) + sum(map(_is_heading, prose, prose[1:]))
    share = SHARE_OF_MANY if marks >= MANY_MARKS else LEAST_SHARE
    if len(prose) < LEAST_LINES or marks < LEAST_MARKS or marks < share * len(prose) or _is_report("\n".join(prose)):
        return False
    if _asks(prose) or any(line.startswith("Traceback (most recent call last)") for line in prose):
        return False
    return sum(bool(_LOGGED.search(line)) for line in prose) <= MOST_LOGGED * len(prose)


def _asks(prose: Sequence[str]) -> bool:
    """A short text with a question, headings apart: its author wants to know something."""
    return len(prose) < LONG and any(_QUESTION.search(line) for line in prose)


def _is_heading(line: str, rule: str) -> bool:
    """A line underlined from end to end."""
    return bool(_RULE.match(rule)) and abs(len(rule.rstrip()) - len(line.rstrip())) <= 1


def _is_report(text: str) -> bool:
    parts = Counter(part.strip(" #*\n").lower() for part in _PART_OF_REPORT.findall(text))
    return bool(_REPORT.search(text)) or sum(parts[part] for part in parts if parts[part] < OFTEN) > 1


def _outside(lines: Sequence[str]) -> list[str]:
    kept = []
    inside = False
    for line in lines:
        if _FENCE.match(line):
            inside = not inside
        elif line.strip() and not inside:
            kept.append(line)
    return kept
