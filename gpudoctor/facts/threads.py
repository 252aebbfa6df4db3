"""Threads whose last post calls the problem solved, and reports about incidents: what they quote is of the past."""

from __future__ import annotations

import re
from collections.abc import Sequence

Lines = Sequence[tuple[int, str]]

_HEAD = re.compile(
    r"""
    ^\S+\ ·\ (?:description|comment|review|answer)\ ·\ \d{4}
    | ^@?[\w.-]+\ (?:commented|wrote|replied|posted|said|opened\ this|answered)(?:\ this\ issue)?(?:\ on\ .*|\ .*\bago)?:?\s*$
    | ^@?[A-Za-z][\w.-]{2,38}:\ (?=(?:I|I'm|I’m|You|Yes|No|Ok|OK|Thanks?|Great|That|This|It|Can|Could|Try|Please|Have|Did
      |Do|Hi|What
      |Which|Ah|Oh|Closing|Glad|Nice|Sounds|We|If|Looks|My|Sorry|Same|Hmm|Maybe|Are|Is|Just|And|So|Well)\b)
    | ^(?:\*\*|\#+\ )?(?:Answer|Comment|Reply|Post|Re|EDIT|UPDATE)\b[^.]{0,50}:?(?:\*\*)?\s*$
    """,
    re.VERBOSE,
)
_WELL = re.compile(
    r"""
    \b(?: that\ (?:was|did|fixed|solved)\ (?:it|the\ (?:problem|issue|trick)) | (?:works?|working|runs?)\ (?:now|again|fine\ now)
    | (?:it|everything|all)\ (?:is\ )?(?:works?|working|fine|good)\ now | solved | resolved | fixed\ (?:it|now|for\ me)
    | (?:it['’]s|it\ is|all)\ (?:now\ )?(?:ok(?:ay)?|fine|good)(?:\ now)?(?=[.,!]|$) | did\ the\ trick | closing\b
      | (?:das\ war(?:['’]s|\ es)|funktioniert\ jetzt|gelöst) | funciona\ ahora | ça\ marche
    )
    | \b[Ff]ixed[.!,] | 解决了 | 解決
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NOT_WELL = re.compile(
    r"""
    \?\s*$
    | \b(?: but | however | still | unfortunately | until\ (?!it\ (?:fits|works|runs)) | again\ after | comes?\ back
    | not\ (?:fixed|solved|resolved|working) | (?:another|different|new)\ (?:error|problem)
    | now\ (?:i|we)\ (?:get|see|have) | same\ (?:here|problem|issue) | sometimes | intermittent\w* )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


_AFTERWARDS = re.compile(r"\b(?:post-?\ ?mortem|incident\ report|root\ cause\ analysis|RCA)\b", re.IGNORECASE | re.VERBOSE)
_FINE_SINCE = re.compile(
    r"""
    \bsince\ then\b.*\b(?: no | not | never | without | fine | stable )\b
    | \bnothing\ is\ broken\b | \b(?:returned|put\ back)\ (?:in)?to\ (?:service|production)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


# A wish, or a change to code, quotes what it is about.
_WISH = re.compile(
    r"""
    ^\W*(?:feat(?:ure)?|enhancement|rfe|proposal|rfc|idea)(?:\ requests?)?\b\W*(?:[\])(]|:\s)
    | ^\W*feature\ requests?\b
    | ·\ (?:pull\ request\ \#\d+\ ·\ )?merged\b | \bpull\ request\ \#\d+\b
    | ^\W*(?:fix|feat|docs?|chore|refactor|perf|tests?|ci|build)(?:\([\w./,-]+\))?!?:\ [a-z]
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OF_PULL = re.compile(
    r"""
    \b(?:[Ii]n\ [Tt]his\ (?:PR|MR|pull\ request|patch),?\ (?:we|I)\b
    | [Tt]his\ (?:PR|MR|pull\ request|patch|commit)\ (?:is|adds?|fix(?:es)?|updates?|changes?|introduces?|improves?
      |removes?|implements?|makes?
      |allows?|does|bumps?|replaces?|documents?|handles?)\b)
    """,
    re.VERBOSE,
)


# What a log shows is of a time that the author calls over.
_NOTHING_SINCE = re.compile(
    r"""
    \b(?:since\ then|ever\ since|since\ that)\b[^.\n]{0,60}\b(?: nothing | no\ (?:more|new|further|other|such|error|xid
      |problem|issue)s?
      | never\ again | not\ (?:once|a\ single) | fine | stable | clean | without )\b
    | \b(?: nothing | no\ (?:more|new|further|other) \ \w+ | never\ (?:came\ back|happened\ again) )\b[^.\n]{0,30}\bsince\b
    | \bhas\ (?:not|never)\ (?:come\ back|happened|occurred|appeared)\ (?:again|since)\b
    | \bseitdem\b[^.\n]{0,60}\b(?:nichts|kein\w*|ohne|stabil|nie) | \bdesde\ entonces\b[^.\n]{0,60}\b(?:nada|sin|ning\w+|nunca)
    | \bdepuis\b[^.\n]{0,60}\b(?:plus\ rien|aucun|rien) | (?:之后|此后|从那以后)[^。\n]{0,20}(?:没有再|没再|再也没|正常)
    | それ以来[^。\n]{0,20}(?:問題|正常|出てい|起きてい)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_AGAIN = re.compile(
    r"\b(?: until | yesterday\ again | again\ (?:today|yesterday|now|this) | came\ back | comes?\ back"
    r" | but\ (?:now|today|yesterday|it|the) | every\ (?:day|few|hour|night) | sometimes | keeps?\ )\b",
    re.IGNORECASE | re.VERBOSE,
)


# The description of a change to code: what was wrong, what it changes, and that it was accepted.
_OF_CHANGE = {
    "problem": re.compile(r"(?i)^#+\s*(?:problem|issue|bug|motivation|why|background|context)\b"),
    "change": re.compile(r"(?i)^#+\s*(?:fix|solution|changes?|resolution|summary of changes)\b"),
    "accepted": re.compile(r"(?i)^\W*merged\b|\bLGTM\b|\ball checks have passed\b|^(?:closes|fixes) #\d+"),
}
_IS_MERGED = _OF_CHANGE.keys()


def over(lines: Lines) -> tuple[tuple[int, int], ...]:
    return written_afterwards(lines) or solved(lines)


def written_afterwards(lines: Lines) -> tuple[tuple[int, int], ...]:
    """First and last line of a report about an incident that is over."""
    is_report = any(_AFTERWARDS.search(line) for _, line in lines[:3])
    if {kind for _, line in lines for kind, words in _OF_CHANGE.items() if words.search(line)} >= _IS_MERGED:
        return ((lines[0][0], lines[-1][0]),)
    if any(_WISH.search(line) for _, line in lines[:2]) or any(_OF_PULL.search(line) for _, line in lines):
        return ((lines[0][0], lines[-1][0]),)
    is_over = any(_NOTHING_SINCE.search(line) for _, line in lines) and not any(_AGAIN.search(line) for _, line in lines)
    is_over = is_over or (is_report and any(_FINE_SINCE.search(line) for _, line in lines))
    return ((lines[0][0], lines[-1][0]),) if is_over else ()


def solved(lines: Lines) -> tuple[tuple[int, int], ...]:
    """First and last line of the posts before the one that calls the problem solved, if nothing after it doubts that.

    >>> solved(((1, "a · description · 2025-01-01"), (2, "No devices"), (3, "a · comment · 2025-01-02"), (4, "That was it.")))
    ((1, 2),)
    """
    heads = [place for place, (_, line) in enumerate(lines) if _HEAD.match(line)]
    for head in reversed(heads):
        if head == 0 or not any(_WELL.search(line) for _, line in lines[head:]):
            continue
        if any(_NOT_WELL.search(line) for _, line in lines[head:]):
            return ()
        return ((lines[0][0], lines[head - 1][0]),)
    return ()
