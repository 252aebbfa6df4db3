"""Sentences about messages, and tables of them, in texts whose authors report no failure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from gpudoctor.evidence.prompts import NEXT

Lines = Sequence[tuple[int, str]]

_QUOTE = re.compile(
    r"""
    (?<![\w\\])(?:\"[^\"]*\"|`[^`]+`|“[^”]*”|„[^“”]*[“”]|«[^»]*»|「[^」]*」|'[^']*'(?!\w))
    """,
    re.VERBOSE,
)
_PATH = re.compile(r"(?:[A-Za-z]:|~|\.{1,2})?[\\/][^\s:]*")
_BEFORE_QUOTE = re.compile(r"(?:^|[\w)%,.;?!]) $|^\s*$")
_GOES_ON = re.compile(r",? [a-zà-ÿ]+ [a-zà-ÿ]+")
_OPTION = re.compile(r"\s-{1,2}\w[\w-]*[ =]?[\"'`]")
_PIPED = re.compile(r"[\"'`]\s*[|>&;]")
_SENTENCE = re.compile(r"^(?:\[[ xX]\]|[QA]:|[\s>*•\d.:)(-]){0,8}(?:[A-Za-zÀ-ÿА-я¿¡]|[\"“„«`]|[一-鿿぀-ヿ])")
_ASKS = re.compile(r"[\s>*]*Q\d*:.*[\"“„«`'].*\?\s*$")  # in a list of questions and answers
_PLAIN = re.compile(r"\b[a-zà-ÿа-я]{1,}\b")
_OF_PROGRAM = re.compile(
    r"""
    \d\d:\d\d:\d\d | ^\s*\S*(?:Error|Exception|error|warning|fatal|WARN\w*|ERROR|FATAL|E\d{4}|W\d{4})\b\S*\s?: | \w=["'\w/]
    | \bNCCL\ (?:WARN|INFO)\b | \(\d+\):\ (?:catastrophic\ )?(?:error|warning)
    | ^\s*\{
    | \b(?:daemon:|runc|kubelet|stderr|stdout|exit\ status|rpc|OCI|desc)(?!\w) | \S:\d+\b | ^\s*File\ | \w\[\d+\]
    | ^(?![QA]:)\S+:\s | ^(?:cannot|could\ not|failed|unable|docker|nvidia|no|unknown|invalid|unsupported)\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
LEAST_LINES = 4  # of a text: a shorter one is a message alone
MOST_WRAPPED = 30  # lines of a paragraph
LEAST_WIDTH = 60  # characters of the lines of a wrapped paragraph
LEAST_OF_LONG = 20  # words in lower case, outside of the quotes
LEAST_WORDS = 4  # in lower case, outside of the quotes: a sentence

# What a reporter of a failure writes. A sentence that quotes a message, in a text without it, is about the message.
_OFTEN = r"(?:\ (?:am|are|have|had|was|were|just|still|always|now|also|keep|do|then|only|can|often|suddenly|again)){0,3}"
_REPORTS = re.compile(
    rf"""
    \b(?:I|i|[Ww]e)(?:['’]\w+)?{_OFTEN}
      \ (?:get|got|getting|see|seeing|saw|hit|hitting|receiv\w+|fac\w+|encounter\w*|r[au]n(?:ning)?\ into|having|tried|try|trying
      |stuck|experienc\w+|notic\w+|found|observ\w+|installed|upgraded|updated|start\w*|run|running)\b
    | \b[Mm]y\ (?!favou?rite|opinion|advice|guess)\w+ | \b(?:gives?|throws?|tells?|leaves?)\ me\b
    | \b(?:help|stuck|suddenly|please|leak(?:s|ing)?)\b | \bmemory\ (?:\w+\ ){0, 2}(?:increas|grow)\w*
    | \b(?:nvcc|ptxas)\ +(?:fatal|error)\b | \bfatal\ error:
    | \b[Aa]ny\ (?:idea|suggestion|solution|fix|hint|help|advice)\b | \b[Ww]hen(?:ever)?\ (?:I|we)\b
    | \b[Oo]ur\ (?:\S+\ ){0, 4}?(?:shows?|says?|prints?|fails?|crash\w*|stops?|gives?|reports?|hangs?)\b
    | \b(?:no\ longer|stopped\ working|(?:does|is|do)(?:n['’]t|\ not)\ work(?:ing)?)\b
    | \b(?:[Aa]fter|[Ss]ince)\ (?:(?:the|an?|my|our|last|latest)\ (?:\w+\ ){0, 2}?)?
      (?:updat|upgrad|reboot|install|reinstall|resum|suspend)\w*
    | \b[Ww]hy\ (?:do|am|does|is|did)\ (?:I|i|we|my|this|it|the)\b | \b[Ww]hat\ (?:did|do|am)\ I\b
    | \b[Hh]ow\ (?:do|can|could)\ I\ (?:\w+\ ){0, 2}(?:fix|solve|get|make|enable|find|tell)\b
    | \b(?:does|is|do|are)(?:n['’]t|\ not)\ (?:\w+\ )?(?:stick|appear|show\ up|detected|recogni[sz]ed)\b
    | ^(?:(?!\b(?:if|when|hint|that|which|who|without|until|jobs)\b).)*
      \b(?:fails?|failed|failing|crash(?:es|ed|ing)?|aborts?|dies|died|exits?)\ (?:\w+\ )?with\b
    | \b(?:ich\ (?:bekomme|erhalte|kriege|habe|sehe)|(?:bekomme|erhalte|kriege)\ ich|mein\w*\ \w+|bei\ mir
      | wir\ (?:bekommen|erhalten|haben|sehen))\b
    | \b(?:me\ (?:sale|da|aparece|salta)|obtengo|mi\ \w+|tengo|recibo|nos\ (?:sale|da))\b
    | \b(?:j['’](?:ai|obtiens)|je\ (?:re[cç]ois|vois)|mon\ \w+|ma\ \w+|nous\ (?:avons|obtenons))\b
    | \b(?:у\ меня|у\ нас|получаю|мо[йяеи]|вижу|выда[её]т)\b | 我的?|出现了|一直|报错[:：了]|私|エラーが
    """,
    re.VERBOSE,
)

LEAST_ENTRIES = 3  # different messages in a row: a table of messages
_ENTRY = re.compile(r"[\"“„«`']([\w(][^\"“”„«»`]* [^\"“”„«»`]+)[\"”“»`'](?!\s*:)")
_CODE_NAME = re.compile(
    r"""
    \b(?:cudaError[A-Z]|C(?:UDA|UBLAS|UDNN)_(?:ERROR|STATUS)_|NVML_ERROR_|hipError[A-Z])\w+
    """,
    re.VERBOSE,
)
_LOGGED = re.compile(
    r"""
    (?<![\d:])\d\d:\d\d:\d\d
    | ^Traceback[ ]
    | ^\s+File\ \"
    | ^[\w.]*(?:Error|Exception):[ ]
    | ^\s*\"[\w-]+\":[ ]
    | \b(?:ERROR|FATAL|WARN\w*|E\d{4})\b
    | \w\[\d+\]
    | \blevel=\w
    """,
    re.VERBOSE,
)
_JSON = re.compile(r"\{\"[^\n]*\}\s*")  # a line of a structured log


def entries(lines: Lines) -> Iterator[int]:
    """Lines of a table of messages: each has another message, in quotes or by its name, and none a time or a level."""
    run: dict[str, int] = {}
    last = 0
    for number, line in (*lines, (0, "Traceback ")):
        codes = set(_CODE_NAME.findall(line))
        names = sorted(codes) or _ENTRY.findall(line)
        is_output = bool(_LOGGED.search(_QUOTE.sub("", line)) or _JSON.fullmatch(line) or NEXT.match(line))
        if len(codes) > 1 and not is_output:
            yield number
        if is_output or not names or (run and number > last + 2):
            yield from run.values() if len(run) >= LEAST_ENTRIES else ()
            run = {}
        if names and not is_output and run.setdefault(names[0], number) == number:
            last = number


def about_messages(lines: Lines) -> Iterable[int]:
    """Sentences that quote a message, in a text whose author reports no failure. In a short text: only wrapped paragraphs."""
    is_short = len(lines) < LEAST_LINES
    paragraphs = (one for one in _paragraphs(lines) if not is_short or _is_wrapped(one) or _is_long(one))
    quoting = [number for paragraph in paragraphs for number in _quoting(paragraph)]
    return () if not quoting or says_of_failure(line for _, line in lines) else quoting


def says_of_failure(lines: Iterable[str]) -> bool:
    """Whether the author reports a failure, outside of quotes."""
    return any(_REPORTS.search(_QUOTE.sub("", line)) for line in lines)


def _paragraphs(lines: Lines) -> Iterator[Lines]:
    """Lines without a blank one between them."""
    paragraph: list[tuple[int, str]] = []
    for number, line in lines:
        if paragraph and number != paragraph[-1][0] + 1:
            yield paragraph
            paragraph = []
        paragraph.append((number, line))
    yield paragraph


def _is_wrapped(paragraph: Lines) -> bool:
    *upper, _ = [line for _, line in paragraph] or [""]
    return (
        0 < len(upper) < MOST_WRAPPED
        and all(len(line) >= LEAST_WIDTH for line in upper)
        and any(not line.rstrip().endswith((".", "!", "?", ":")) for line in upper)
    )


def _is_long(paragraph: Lines) -> bool:
    """One line of prose, such as the abstract of a paper."""
    return len(paragraph) == 1 and len(_PLAIN.findall(_QUOTE.sub("", paragraph[0][1]))) >= LEAST_OF_LONG


def _quoting(paragraph: Lines) -> Iterable[int]:
    """All lines of a wrapped paragraph, as a quote may go on in the next line."""
    if _is_wrapped(paragraph) and _is_prose(paragraph):
        return [number for number, _ in paragraph]
    goes_on = any(_OF_PROGRAM.search(line) for _, line in paragraph)  # a message of several lines
    return [number for number, line in paragraph if _quotes(line) and not (goes_on and line.lstrip()[:1].islower())]


def _is_prose(paragraph: Lines) -> bool:
    whole = " ".join(line.strip() for _, line in paragraph)
    around = _QUOTE.sub("", whole)
    return bool(
        _QUOTE.search(whole)
        and _SENTENCE.match(whole)
        and len(_PLAIN.findall(around)) >= LEAST_WORDS * len(paragraph)
        and not _OF_PROGRAM.search(around)
        and not any(NEXT.match(line) for _, line in paragraph)
    )


def _quotes(line: str) -> bool:
    around = _QUOTE.sub("", line)
    if not _SENTENCE.match(line) or _OF_PROGRAM.search(around) or _OPTION.search(line) or _PIPED.search(line) or NEXT.match(line):
        return False
    words = len(_PLAIN.findall(around))
    if _ASKS.match(line):
        return True
    found = [match for match in _QUOTE.finditer(line) if not _PATH.fullmatch(match[0][1:-1])]
    quotes = [match for match in found if len(match[0].split()) > 1 or len(match[0]) > 24]
    if not quotes:
        return words >= LEAST_WORDS + 2 and bool(_CODE_NAME.search(around))
    return words >= LEAST_WORDS and all(
        _BEFORE_QUOTE.search(line[: match.start()]) or _GOES_ON.match(line, match.end()) for match in quotes
    )
