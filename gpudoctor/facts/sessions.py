"""A pasted session: the commands in it, in their order, and the lines that each printed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

# bash, zsh, root, a container, conda's and venv's names, cmd.exe, PowerShell
PLACE = r"""
    (?:\([\w./ -]{1,40}\)\s*)*
    (?:
        \[?[\w.+-]+@[\w.-]+(?:[: ][^$\#>%\n]{0,80})?\]?\s?[$\#%>❯]
        | PS\ [A-Za-z]:[^>\n]{0,80}>
        | [A-Za-z]:\\[^>\n]{0,80}>
        | (?:bash|sh|zsh)-?[\d.]*[$\#]
        | ➜\ +[~/][^\n ]*(?=\ ) | ➜\ +\S+\ git:\([^)\n]*\)(?:\ ✗)?
        | [~/][\w./~-]{0,60}(?:\ [^$\#>❯\n]{1,40})?\ ?[❯$%](?=\ )
        | (?:Singularity|Apptainer)>
        | [a-z][\w.-]+(?::[~/][^\s$\#>]{0,80}\ ?)?[$\#](?=\ )     # only the host's name
        | (?:\[\.\.\.\])?:~[\w./-]{0,60}>(?=\ )     # of openSUSE, without the names
        | [$%❯➜➭]
        | (?:In\ \[[\d\ ]*\]:\s?)?[!%](?=[a-z])
    )
"""
_COMMAND = re.compile(
    rf"^\s*(?P<place>{PLACE}|\#(?=\ (?:sudo|nvidia-smi|docker|modprobe|systemctl)\b))\s*(?P<words>\S.*)$", re.VERBOSE
)
_MARK = re.compile(r"[$#>%❯➜➭!]")
_HOST = re.compile(r"\(([\w./-]+)\)|@([\w.-]+)")
_FAILS = re.compile(
    r"""
    \b(?: \w*errors? | \w*exception | fail(?:ed|s|ure)? | denied | not\ found | cannot | could\ not | couldn't | unable
    | no\ such | refused | traceback | killed | aborted | core\ dumped | timed?\ ?out | invalid | unknown | out\ of\ memory
    | false | none | no\ devices )\b
    | ^\s*(?:\[\]|0)\s*$
    """,
    re.IGNORECASE | re.VERBOSE,
)
_RECURS = re.compile(
    r"""
    \b(?: (?:fail|happen|occur|crash|stop|break|hang|disappear|com|came)(?:s|es|ed)?\ (?:back|again) | intermittent\w*
      | random(?:ly)?
    | sometimes | occasional(?:ly)? | every\ (?:time|few|\d+) | after\ (?:a\ while|some\ time|an?\ hour)
    | after\ \w+\ (?:hours|minutes|days)
    | (?:un)?til\ (?:the\ next|i|we)\ re\w* | until\ (?:last|yesterday|today|this) | temporar\w+ | works?\ (?:for|until)
      | flaky )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)

_OF_OTHERS = re.compile(
    r"""
    \b(?: some\ (?:people|users|others) | other\ (?:people|users) | others\ (?:get|see|have|report) | someone\ else
    | (?:people|users|others|everybody|everyone)\ (?:getting|having|seeing|who\ (?:get|have|see))
    | (?:read|hear|heard)\ (?:of|about|from)\ (?:people|users|others) )\b
    | \b(?:read|saw|seen|found|heard)\ (?:about\ |of\ )?(?:this\ |it\ |that\ )?(?:in|on)\ (?:a|an|the|this|that|another|some)
      \ (?:\w+\ )?(?:forum|thread|post|blog|reddit|article|wiki|video|issue)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NOT_HERE = re.compile(
    r"""
    \b(?: never\ (?:seen|had|got|happened) | no\ such\ (?:error|line|message)s?\ (?:here|on\ mine) | worried | worry
    | scared | afraid | should\ i\ (?:expect|be\ prepared) | will\ i\ (?:get|see|have|run\ into)
    | before\ i\ (?:buy|order|upgrade|update) | without\ (?:any\ )?(?:trouble|problem|issue)s? )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)

_LONG_AGO = re.compile(
    r"""
    \b(?: yesterday | this\ morning | earlier\ today | last\ (?:night|week|month|year|spring|summer|autumn|fall|winter)
      | (?:days|weeks|months)\ ago
    | back\ in\ \w+ | in\ the\ past )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_MENDED = re.compile(
    r"""
    ^\W*(?: solved | resolved | fixed )\b
    | \b(?:reboot|restart|power\ cycl|reinstall|upgrad)\w*\ (?:\w+\ ){0,4}?(?:fixed|solved|resolved|cured|helped)\b
    | \bsince\ (?:i|we|then)\b.*\b(?: no | not | never | none | fine | stable )\b
    | \b(?:fixed|solved)\ (?:it|that)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_CLOSED = re.compile(
    r"""
    \b(?: (?:can|may|could)\ be\ closed | sorry\ for\ the\ noise | never\ ?mind | my\ (?:own\ )?(?:mistake|typo|fault)\b
    | clos(?:e|ed|ing)\ (?:this|the)\ (?:issue|thread|topic|ticket)
    | since\ then\b.*\b(?:no|not|never|without|fine|stable) | no\ (?:further|more|new)\ (?:\w+\ )?since
    | (?:no|without)\ (?:\w+\ )?(?:problems?|issues?|errors?)\ since
    | (?:kann|können)\b.*\bgeschlossen | seitdem\b.*\b(?:ohne|kein|keine|nicht|stabil)
    | desde\ entonces\b.*\b(?:sin|no|ning\w+|estable) | desde\ então\b.*\b(?:sem|não|nenhum)
    | depuis\b.*\b(?:plus|aucun|stable) | da\ allora\b.*\b(?:nessun|senza|più) )
    | с\ тех\ пор.*(?:без|нет|не|стабильно) | (?:之后|此后|现在).*(?:正常|没有再|没再) | それ以来.*(?:問題|正常|出てい)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ASKS = re.compile(r"[?？]\s*$|^Traceback \(|^\s*File \"")
_COUNTS = re.compile(r"\bgrep (?:-\w+ )*-\w*c\w* ")
_SHOWS_GPU = re.compile(r"NVIDIA-SMI \d|^GPU \d+: ")


class Command(NamedTuple):
    """where: its environment and its host, as far as the prompt names them. said: the numbers and texts of its lines."""

    where: tuple[str, ...]
    words: tuple[str, ...]
    said: Sequence[tuple[int, str]]

    @property
    def name(self) -> tuple[tuple[str, ...], ...]:
        """Two commands with the same name are two runs of one. What nvidia-smi is asked does not matter."""
        end = self.words.index("nvidia-smi") + 1 if "nvidia-smi" in self.words else len(self.words)
        if self.words[0] in ("sbatch", "salloc"):
            end = 1
        return self.where, self.words[:end]

    @property
    def failed(self) -> bool:
        return len(self.said) == 1 or any(_FAILS.search(text) for _, text in self.said[1:])

    @property
    def span(self) -> tuple[int, int]:
        return self.said[0][0], self.said[-1][0]


def commands(lines: Sequence[tuple[int, str]]) -> tuple[Command, ...]:
    """The commands of a text, each with its output up to the next prompt. Many rules ask for those of the same text."""
    return _commands(tuple(lines))


@lru_cache(maxsize=8)
def _commands(lines: tuple[tuple[int, str], ...]) -> tuple[Command, ...]:
    starts = [(place, match) for place, (_, text) in enumerate(lines) if _MARK.search(text) and (match := _COMMAND.match(text))]
    ends = (*(place for place, _ in starts[1:]), len(lines))
    return tuple(
        Command(
            tuple(one or other for one, other in _HOST.findall(match["place"])), tuple(match["words"].split()), lines[start:end]
        )
        for (start, match), end in zip(starts, ends, strict=False)
    )


def mended(lines: Sequence[tuple[int, str]]) -> tuple[tuple[int, int], ...]:
    """First and last lines of the commands that failed, and that succeeded later in the same text.

    >>> mended(((1, "$ nvidia-smi -L"), (2, "No devices found."), (3, "$ nvidia-smi -L"), (4, "GPU 0: NVIDIA L4")))
    ((1, 2),)
    """
    runs: dict[tuple[tuple[str, ...], ...], list[Command]] = {}
    for command in commands(lines):
        runs.setdefault(command.name, []).append(command)
    ended_well = [found for found in runs.values() if len(found) > 1 and found[0].failed and not found[-1].failed]
    if not ended_well or any(_RECURS.search(text) for _, text in lines):
        return ()
    return tuple(run.span for found in ended_well for run in found if run.failed)


def hearsay(lines: Sequence[tuple[int, str]]) -> tuple[tuple[int, int], ...]:
    """First and last line of what a text quotes of other people, or of its author's own past, before its own commands.

    >>> hearsay(((1, "I read in a forum that some get"), (2, "Xid 79"), (3, "Never seen it here. Worried?"), (4, "$ uptime")))
    ((1, 3),)
    """
    own = next((number for number, text in lines if _MARK.search(text) and _COMMAND.match(text)), None)
    told = [line for line in lines if own is None or line[0] < own]
    if own is None and len(told) > 1:
        is_closed = _says(told, _CLOSED) and not _says(told, _RECURS) and not _says(told, _ASKS)
        return ((told[0][0], told[-1][0]),) if is_closed else ()
    if not own or not told:
        return ()
    is_of_others = _says(told, _OF_OTHERS) and _says(told, _NOT_HERE)
    is_bygone = _says(told, _LONG_AGO) and _says(told, _MENDED) and not _says(lines, _RECURS) and _are_well(commands(lines))
    return ((told[0][0], told[-1][0]),) if is_of_others or is_bygone else ()


_ACKNOWLEDGED = re.compile(
    r"""
    ^\W*(?:(?:and\ )?(?:that|this|which|it)(?:['’]s|\ is)\ )?
    (?: (?:correct|expected|intended|richtig|correcto|rightly\ so|符合预期|期待通り)(?=[,.;!)]|\s*$)
      | (?:as\ (?:expected|intended|planned|wanted|desired|it\ should)|by\ design|on\ purpose|so\ gewollt|wie\ erwartet
        |comme\ prévu
        |как\ и\ должно)\b
      | (?:exactly\ )?(?:what|as)\ (?:i|we)\ (?:want|expect)\w*
    )
    | ^\W*(?:rightly|correctly)\ (?:rejected|refused|fails|failed|denied|blocked)\b
    | \b(?:fails?|rejected|refused|denied|blocked|no\ gpus?)\ (?:here\ )?(?:as\ (?:expected|intended|it\ should)
      |on\ purpose|by\ design)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_DOUBTED = re.compile(r"[?？]\s*$|\b(?:but|however|not|isn't|though)\b", re.IGNORECASE)
_IN_COMMENT = re.compile(r"\s#\s+(.*)$")


def acknowledged(lines: Sequence[tuple[int, str]]) -> tuple[tuple[int, int], ...]:
    """First and last lines of the commands whose failure the author calls right, below them or in a comment.

    >>> acknowledged(((1, "$ sbatch -p cpu x.sh"), (2, "sbatch: error: not available"), (3, "(correct, no GPUs there)")))
    ((1, 3),)
    """
    return tuple(command.span for command in commands(lines) if _is_acknowledged(command.said))


def _is_acknowledged(said: Sequence[tuple[int, str]]) -> bool:
    beside = _IN_COMMENT.search(said[0][1])
    words = [text for _, text in said[1:]] + ([beside[1]] if beside else [])
    return any(_ACKNOWLEDGED.search(text) and not _DOUBTED.search(text) for text in words)


_WROTE = re.compile(
    r"""
    \b(?: wrote | writes | posted | reported | schrieb | a\ écrit | escribió | escreveu | ha\ scritto | написал\w* )\b
      [^:]{0,60}:\s*$
    | 写道[:：]\s*$
    """,
    re.VERBOSE,
)
_IS_WELL = re.compile(
    r"""
    \b(?: solved | resolved | fixed | (?:can|may)\ be\ closed | clos(?:e|ed|ing)
    | (?:fine|stable|ok|working|works)\ (?:again|now|since)
    | since\ then | gelöst | resuelto | résolu | решено )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def answered(lines: Sequence[tuple[int, str]]) -> tuple[tuple[int, int], ...]:
    """First and last lines of quoted mails whose problem the text around them calls solved, and after which nothing failed.

    >>> answered(((1, "Solved."), (3, "Ann wrote:"), (4, "$ nvidia-smi"), (5, "No devices were found"), (7, "Thanks")))
    ((3, 5),)
    """
    spans = [(number, _end_of(lines, place)) for place, (number, text) in enumerate(lines) if _WROTE.search(text)]
    own = [line for line in lines if not any(first <= line[0] <= last for first, last in spans)]
    if not spans or not _says(own, _IS_WELL) or _says(own, _RECURS) or _says(own, _ASKS):
        return ()
    failed = any(_FAILS.search(text) for command in commands(own) for _, text in command.said[1:])
    return () if failed else tuple(spans)


def _end_of(lines: Sequence[tuple[int, str]], place: int) -> int:
    """The last line before a blank one."""
    last = lines[place][0]
    for number, _ in lines[place + 1 :]:
        if number != last + 1:
            break
        last = number
    return last


def _says(lines: Sequence[tuple[int, str]], words: re.Pattern[str]) -> bool:
    return any(words.search(text) for _, text in lines)


def _are_well(later: Sequence[Command]) -> bool:
    """Whether one of the commands shows a GPU or counts no errors, and none of them failed."""
    counts = [command for command in later if _COUNTS.search(" ".join(command.words))]
    zero = [command for command in counts if [text.strip() for _, text in command.said[1:2]] == ["0"]]
    others = [command for command in later if command not in counts]
    shown = [command for command in others if any(_SHOWS_GPU.search(text) for _, text in command.said[1:])]
    return bool(zero or shown) and len(zero) == len(counts) and not any(command.failed for command in others)
