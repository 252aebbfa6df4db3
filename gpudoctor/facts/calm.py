"""Texts whose authors say themselves that all works, and that what they show is wanted, known or harmless. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

Lines = Sequence[tuple[int, str]]

LEAST_WORDS = 4  # in lower case: a sentence
_WORD = re.compile(r"\b[a-zà-ÿ]{1,}\b")
_OF_PROGRAM = re.compile(
    r"""
    (?<![\dA-Fa-f:])\d\d:\d\d:\d\d | ^\s*\[\w | \w\.(?:cpp|cc|cu|c|h|py|go|rs|java):\d+ | \(errno
    | ^\s*\S*(?:Error|Exception|Warning|error|warning|fatal|WARN\w*|ERROR|INFO|DEBUG|FATAL)\b\S*\s?: | ^\s*File\ \"
    | ^\s*[|+*]{1,3}[-=|\ ] | ^\s*\{ | \w\[\d+\] | level=\w | ^(?:[^\s`\#]\S*)?[$\#%]\ \S | ^>>>\  | ^\s*\d+\s+\S+\s+\S+\s+\d
    """,
    re.VERBOSE,
)
_BEGINS_AS_PROGRAM = re.compile(r"^(?:docker|nvidia|cannot|could not|failed|unable|error)\b")
_OF_EAST = re.compile(r"[一-鿿぀-ヿ]{3}|[а-яё]{3,}\ [а-яё]{2,}")  # words of people who write no Latin
_HEADING = re.compile(r"^\s*(?:\#|\*\*|=)")
_MARKS = re.compile(r"^(?:[\s*=>-]+|\s*##+\s*|\s*#\s+(?=[A-Z]))?(?:\[[A-Z][\w /]{2,20}\]:?\s*)?")
"""Of headings, lists and the kinds of issues."""
_END = re.compile(r"(?<=[.!?])\s+|[。！？]")
_QUOTES = re.compile(r"\"[^\"]*\"|`[^`]+`|“[^”]*”|„[^“”]*[“”]|«[^»]*»|「[^」]*」")

_ALL_WELL = r"(?:just\ )?(?:fine|well|ok(?:ay)?|perfectly|great|normally|nicely|flawlessly|anyway|as\ (?:before|expected|usual))"
_WHERE = r"\s*,?\s*(?:on|in|with|for|if|when|until|before|outside|under|from|inside|without|via|only|but|except|as\ long)\b"
_WORKS = re.compile(
    rf"""
    \b(?:everything|(?:it\ )?all|training|inference|the\ (?:job|jobs|model|gpus?|cards?|box|machine|server|app|service|vm|program
      |script|pipeline|container|pod)s?|gpus?|both\ cards|cards?)
      (?:\ (?:still|otherwise|itself|also|now|just))?\ (?:works?|runs?|trains?|is\ working|is\ running)\ {_ALL_WELL}\b(?!{_WHERE})
    | \b(?:works?|runs?|trains?|falls?\ back)\ (?:\w+\ )?(?:and\ \w+\ )?without\ (?:any\ )?(?:problems?|issues?|errors?|trouble)\b
    | \b(?:is|are)\ of\ course\ fine\b | \b(?:performance|results?|numbers)\ (?:is|are)\ (?:right|fine|correct|as\ expected)\b
    | \b(?:alles|sonst)\ (?:läuft|funktioniert|geht)\b | \bläuft\ (?:alles|einwandfrei|problemlos|stabil)\b
    | \b(?:liefert|rechnet)\b[^.\n]{0, 30}\brichtig\w*\b
    | \btodo\ (?:funciona|va)\b | \bfunciona\ (?:bien|perfectamente|sin\ problemas)\b
    | \btout\ (?:marche|fonctionne)\b | \bfonctionne\ (?:bien|parfaitement|sans\ problème)\b
    | всё\ работает | (?:一切|运行|训练|其他)(?:都)?正常 | 正常(?:运行|使用|工作)
    | 正常に(?:動作|動いて|動い|学習) | 問題なく(?:動|使|学習)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_HARMLESS = re.compile(
    r"""
    \b(?: (?:just|only)\ noise | harmless | (?:can|may|could|should)\ (?:be\ )?(?:safely\ )?(?:be\ )?ignored?
      | safe(?:ly)?\ to\ ignore
    | (?:you\ )?(?:can|may)\ (?:safely\ )?ignore | just\ ignore | (?:don't|do\ not|no\ need\ to)\ worry | nothing\ to\ worry
    | (?:mute|silence|suppress|get\ rid\ of|turn\ off)\ (?:this|that|these|those|the)\ (?:\w+\ )?(?:warnings?|messages?
      |lines?|logs?) )\b
    | \b(?:only|just|merely)\ a\ warning\b | \b(?:simply|purely|just|only)\ informational\b
    | \b(?:does\ not|doesn['’]t|won['’]t|will\ not)\ (?:affect|influence|harm|hurt)\b | \bhas\ no\ (?:effect|influence|impact)\b
    | \b(?:Warnung|Meldung)\w*\ (?:\w+\ )?(?:abschalten|ausschalten|unterdrücken|ignorieren)\b | \bsilenciar\b
    | \bignorer\ (?:ce|cet|cette|ces)\b | (?:警告|メッセージ)[^。\n]{0,10}(?:無視|忽略|屏蔽|消)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_VERDICT = re.compile(
    r"""
    \b(?:this|that|it|which|behaviou?r)(?:['’]s|\ is)\ (?:\w+\ )?(?:expected|intended|intentional|normal|by\ design|not\ a\ bug)\b
    | \bworks?\ as\ (?:intended|designed)\b | \bworking\ as\ (?:intended|designed)\b | \bnot\ a\ bug\b
    | \b(?:is|are|was)\ (?:the\ )?(?:expected|intended)\ behaviou?r\b | ^\W*(?:expected|intended|normal)\ behaviou?r\b[.,!]
    | \bdas\ ist\ (?:\w+\ )?(?:normal|so\ gewollt|beabsichtigt)\b | \b(?:es|esto\ es)\ (?:lo\ )?(?:normal|esperado)\b
    | \bc['’]est\ (?:normal|voulu)\b | (?:是|属于|这很)正常 | 正常现象 | 正常です | 仕様です | это\ нормально
    """,
    re.IGNORECASE | re.VERBOSE,
)
# The last words of an author who found out.
_SETTLED = re.compile(
    r"""
    \b(?:ok(?:ay)?,?\ (?:thanks|thank\ you|got\ it|I\ see)|got\ it|never\ ?mind|makes\ sense(?:\ now)?
      |my\ (?:own\ )?(?:mistake|fault|bad)
    |sorry\ for\ the\ noise)\b[^?]{0,40}$
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NOT = re.compile(
    r"""
    \b(?:not|n['’]t|hardly)\ (?:\w+\ )?(?:expected|intended|normal)\b
    | \bunexpected\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_TO_DO = re.compile(
    r"""
    \b(?:you\ (?:need|have|must|should|will\ need)|please\ (?:install|upgrade|update|set|try|use)|install|upgrade|reinstall|reboot
    |replace|rma|downgrade|update)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_COMPLAINS = re.compile(
    r"""
    \b(?: (?:do|does|did|is|are|was)(?:n['’]t|\ not)\ (?:\w+\ )?(?:work\w*|found|detected|visible|recogni\w+|start\w*|see
      |find|use|using)
    | I\ (?:\w+\ )?(?:get|got|getting|see|receive)\ (?:the\ |an?\ |this\ )?(?:following\ )?(?:\w+\ )?errors?
    | no\ longer | stopped | won['’]t | can(?:['’]t|not|\ not) | unable | broken | broke | crash\w* | hangs? | hung
      | stuck | slow\w*
    | fail(?:s|ed|ing)? | dead | lost | disappear\w* | falls?\ off | reboots? | freez\w+ | frozen | wrong\ results?
    | how\ (?:do|can|to|should)\ (?:I|we)?\ ?(?:fix|solve|resolve|repair)\w* | any\ (?:ideas?|help|suggestions?)
      | please\ help | help!
    | only\ (?:on|in|with|when|after|if|(?:happens?|occurs?|appears?|fails?)\ )
    | leak(?:s|ing)? | gibberish | garbage | nans?
    )\b
    | 报错 | 无法 | 不能 | 失败 | 怎么解决 | エラー | できない | できません | 動かない | geht\ nicht
      | funktioniert\ nicht | no\ funciona
    """,
    re.IGNORECASE | re.VERBOSE,
)


def is_calm(lines: Lines) -> bool:
    """Whether the sentences of a text say that all works or is as it should be, and none complains or says what to do.

    >>> is_calm(((1, "WARNING: no plugin found"), (2, "Can you silence this warning? Everything runs fine on our pod.")))
    True
    >>> is_calm(((1, "It works fine on the host, but not in the container."),))
    False
    """
    said = list(sentences(lines))
    if any(_COMPLAINS.search(one) for one in said):
        return False
    if any(_WORKS.search(one) for one in said) or (lines and _SETTLED.search(lines[-1][1])):
        return True
    answers = [one for one in said if not one.rstrip().endswith(("?", "？"))]
    calms = any((_VERDICT.search(one) and not _NOT.search(one)) or _HARMLESS.search(one) for one in answers)
    return calms and not any(_TO_DO.search(one) for one in answers)


def complains(words: str) -> bool:
    return bool(_COMPLAINS.search(words))


def prose(lines: Lines) -> Iterator[str]:
    """The sentences that a person wrote, with titles and with what they quote; the first line may be a few words."""
    for place, (_, line) in enumerate(lines):
        plain = _MARKS.sub("", line)
        is_message = _OF_PROGRAM.search(plain) or (_BEGINS_AS_PROGRAM.match(plain) and ": " in plain)
        if not is_message and (len(_WORD.findall(plain)) >= LEAST_WORDS - 2 * (not place) or _OF_EAST.search(plain)):
            yield from filter(None, map(str.strip, _END.split(plain)))


def sentences(lines: Lines) -> Iterator[str]:
    """What a person wrote, without what is quoted."""
    for _, line in lines:
        if _HEADING.match(line) or _OF_PROGRAM.search(line) or _BEGINS_AS_PROGRAM.match(line):
            continue
        plain = _QUOTES.sub('""', line)
        if len(_WORD.findall(plain)) >= LEAST_WORDS or _OF_EAST.search(plain):
            yield plain
