"""Whether a text reports an error, or its author complains: then a lack of findings does not mean that all is well. Pure."""

from __future__ import annotations

import re

from gpudoctor.facts import Facts
from gpudoctor.facts.calm import is_calm, sentences
from gpudoctor.facts.texts import Text

OF_LOGS = ("kernel log", "journal", "pytest output", "documentation")
"""Kinds of text in which lines of harmless errors are usual."""

_OF_PROGRAM = re.compile(
    r"""
    ^\s*(?:[\w.]*(?:Error|Exception):\ | Traceback\ \(most\ recent | \S{0,40}\berror:\ \S | fatal:\ | FATAL\b
      | Segmentation\ fault | [Aa]borted\ \(core )
    | ^\s*(?:\d{4}-\S+\ \S+\ |[\d.:-]+\ )?[EF]\ \S+\.(?:cc|cpp|cu|h):\d+\] | ^[EF]\d{4}\ \d\d:
    | \b(?:RuntimeError|ImportError|OSError|ValueError|AssertionError|SystemError):\ \S
    """,
    re.MULTILINE | re.VERBOSE,
)
_SAID = re.compile(
    r"""
    \b(?: throttl\w+ | (?:too|very|extremely|really|so|much)\ slow\w* | slower\ than | hangs? | hung | stuck | spins?\ forever
      | no\ forward\ progress | indefinitely | wrong\ (?:GPU|device|results?) | instead\ of
      | (?:is|are|was|were|does|do|did|can|could|would|has|have)(?:n['’]t|\ not)\ (?:\w+\ ){0,3}?
        (?: use | used | using | see | seen | find | found | show | shown | listed | detect\w* | recogni\w+ | work\w* | free\w*
        | released | de-?allocat\w+ | available | enough | start\w* | help\w* | go | goes | gone )
      | (?:do|does|did)(?:n['’]t|\ not)\ work | no\ longer | stopped\ \w+ing | won['’]t | can(?:['’]t|not|\ not) | unable
      | broken | broke | fail(?:s|ed|ing|ure)? | crash\w* | freez\w+ | frozen | black\ screen | please\ help | any\ ideas?
      | still\ (?:exists?|happens?|fails?|there|the\ same|in\ use|occupied)
      | only\ (?:uses?|sees?|shows?|gets?|finds?|runs?)\ (?:one|1|the) | no\ (?:luck|effect|difference|idea|room)
      | what\ (?:is|am\ I|could\ be)\ (?:doing\ )?wrong )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def is_unexplained(facts: Facts) -> bool:
    """For texts in which nothing was found. What is only the output of healthy tools has nothing to explain."""
    texts = facts.texts.all
    if not facts.texts.alone or facts.shown.is_mac or all(is_calm(text.lines) for text in texts):
        return False
    return any(_reports(text) for text in texts if not text.is_documentation)


def _reports(text: Text) -> bool:
    lines = [line for line in text.lines if not any(first <= line[0] <= last for first, last in text.past)]
    if _SAID.search("\n".join(sentences(lines))):
        return True
    return not {*OF_LOGS} & {*text.kinds} and bool(_OF_PROGRAM.search("\n".join(line for _, line in lines)))
