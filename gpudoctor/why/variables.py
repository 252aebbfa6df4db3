"""Variables that gpudoctor knows nothing about: a command of any kind can depend on them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.judging.experiments.proof import NAMED
from gpudoctor.judging.experiments.suspect import HIDDEN, VARIABLE, Surroundings, Suspect
from gpudoctor.judging.experiments.suspects import POSSIBLE, Failure
from gpudoctor.knowledge import suspects as known

USUAL = re.compile(
    r"""
    PATH | HOME | USER | LOGNAME | SHELL | TERM | PWD | OLDPWD | SHLVL | _ | HOSTNAME | MAIL | DISPLAY | EDITOR | PAGER | VISUAL
    | COLORTERM | LS_COLORS | LESS\w* | PS\d | TMUX\w* | STY
    | ( SSH | DBUS | XDG | GPUDOCTOR | CONDA | PYENV | NVM | SDKMAN | BASH | ZSH | INVOCATION | JOURNAL | SYSTEMD ) _?\w*
    | VIRTUAL_ENV\w* | CONDA\w*
    """,
    re.VERBOSE,
)


def others(surroundings: Surroundings, failure: Failure) -> Iterator[Suspect]:
    """The variables that are in no table; the likeliest are those that the output names, or whose path its last line names."""
    rows = known.table()
    in_tables = {row.name for row in (*rows.kept, *rows.lists, *rows.folders)}
    for name, value in surroundings.variables.items():
        if name in in_tables or known.variable(name) or USUAL.fullmatch(name):
            continue
        is_path = value.count("/") > 1 and value in failure.last_line
        if is_path or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", failure.words):
            yield Suspect(VARIABLE, name, HIDDEN, "the output names it", NAMED)
        else:
            yield Suspect(VARIABLE, name, HIDDEN, "the command inherits it", POSSIBLE)
