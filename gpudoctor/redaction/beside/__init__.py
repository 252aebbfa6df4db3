"""Text that reveals that a name is next to it: of hosts, users, jobs, pods, containers; in logs, tables and command lines.

A pattern has the word of the token; lower-case text that has to occur; and an expression, one group of which is the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.redaction.beside.clusters import CLUSTERS
from gpudoctor.redaction.beside.hosts import HOSTS
from gpudoctor.redaction.beside.users import USERS
from gpudoctor.redaction.literals import Literals

BESIDE = tuple((word, sign, re.compile(pattern, re.MULTILINE)) for word, sign, pattern in (*HOSTS, *USERS, *CLUSTERS))
ARGUMENTS = (
    # ps -ef, ps aux, and the lines of nvidia-smi -q and -x that name a process.
    re.compile(r"(?m)^(\S+\s+\d+\s+\d+\s+\d+\s+\S+\s+\S+\s+\d\d:\d\d:\d\d\s+\S+)([ \t]+\S.*)$"),
    re.compile(
        r"""
        ^( \S+\s+\d+\s+\d+\.\d\s+\d+\.\d\s+\d+\s+\d+\s+\S+\s+[A-Za-z]\S*\s+\S+\s+\d+:\d\d\s+\S+ )
        ( [ \t]+\S.* )$
        """,
        re.MULTILINE | re.VERBOSE,
    ),
    re.compile(r"(?m)^(\s*Name\s+: \S*(?:python|bash|sh|perl|java|node|ruby)[\d.]*)( \S.*)$"),
    re.compile(r"(<process_name>[^<\s]+)( [^<]+)(?=</process_name>)"),
    re.compile(
        r"""
        ^( \|\s+\d+\s+\S+\s+\S+\s+\d+\s+[CGM+]+\s+\S+ )
        ( \ (?=\S)[^|\n]*\S )(?=\s+\d+MiB\ \|)
        """,
        re.MULTILINE | re.VERBOSE,
    ),
    re.compile(r"(?i)(\bcmd_?line[\"']?\s*[:=]\s*[\"']?[^\s\"',]+)([ ,][^\n]*)"),
)
_SIGNS = Literals(sign for _, sign, _ in BESIDE)


def beside(lower: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Word and expression of each row whose text occurs here, in order."""
    return ((BESIDE[place][0], BESIDE[place][2]) for place in _SIGNS.places(lower))
