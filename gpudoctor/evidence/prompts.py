"""A pasted session: where a command of the user begins, and where its output ends."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpudoctor.evidence.reader import Reader
from gpudoctor.facts.sessions import PLACE
from gpudoctor.model import Reply

Read = Callable[[str, str], dict[str, Reply] | None]
"""(the command without its prompt, its output) -> the replies that they prove."""

_COMMAND = "the_command"
FILTER = r"(?:[ef]?grep|rg|findstr|[Ss]elect-[Ss]tring|sls)"
_ROOT = r"(?:\([\w./ -]{1,40}\)\s*)*\#"  # also the start of a comment
_SUDO = r"(?:sudo\ (?:-\w+\ )*)?"
_INSIDE = r"""
    (?:
        (?:docker|podman|nerdctl)\ (?:compose\ |container\ )?(?:exec|run)\ [^|;&\n]*?
        | (?:apptainer|singularity)\ (?:exec|run)\ [^|;&\n]*?
        | (?:lxc|incus|pct)\ exec\ [^|;&\n]*?
        | \S*(?:kubectl|k|oc)\ [^|;&\n]*?exec\ [^|;&\n]*?
        | srun\ [^|;&\n]*?
        | ssh\ [\w@.-]+
    )\s+
    (?: (?:ba)?sh\ -l?c\ ["'] )?
"""
OF_SHELL = re.compile(rf"^\s*(?:{PLACE})\s*(?=\S)", re.VERBOSE)
_BARE = r"""
    ^(?:sudo\ )?(?: lsmod | lspci | modinfo | uname | dmesg | mokutil | nvidia-smi | dkms | prime-select | systemctl | cat | ls
      | grep )
    (?: \ +[-/|'"$].* | \ +(?:status|query|nvidia|is-\w+)\b.* )?$
"""  # where the prompt was left out, or taken for the mark of a quote
_OVER = r"^\s*(?:```|~~~|</?(?:details|summary|pre|code)>)|^(?:>>>|In\ \[\d+\]:)\ "
NEXT = re.compile(rf"^\s*(?:{PLACE})\s*\S|{_OVER}", re.VERBOSE)
_CELL = r"^import\ \w|^from\ \w\S*\ import\ "  # the next cell of a notebook
NEXT_OR_ROOT = re.compile(rf"^\s*(?:{PLACE})\s*\S|^\s*{_ROOT}\s?\w|{_BARE}|{_OVER}|{_CELL}", re.VERBOSE)


def reader(
    kind: str,
    anchors: tuple[str, ...],
    command: str,
    read: Read,
    *,
    bare: bool = True,
    files: bool = False,
    inside: bool = False,
    most_lines: int = 400,
) -> Reader:
    """A reader of a command's output. command: a verbose expression for it; bare: also where no prompt stands before it.

    files: the output is a file, in which a line can begin with "# ". inside: also where another command runs it in a container
    or a job, as `docker exec NAME` does.
    """
    before = rf"(?:(?:{PLACE}|{_ROOT})\s*){'?' if bare else ''}"
    within = rf"(?:{_INSIDE})?" if inside else ""
    end = r"[\"'`*:\s]*$" if bare else r"(?:\s|$)"
    begins = re.compile(rf"^\s*{before}[`*]*{_SUDO}{within}(?P<{_COMMAND}>{command}){end}", re.VERBOSE)
    return Reader(kind, anchors, begins, lambda text: _read(begins, text, read), NEXT if files else NEXT_OR_ROOT, most_lines)


def _read(begins: re.Pattern[str], text: str, read: Read) -> dict[str, Reply] | None:
    first, _, output = text.partition("\n")
    match = begins.search(first)
    return read(first[match.start(_COMMAND) :].strip(" `*:\t"), output) if match else None
