"""`gcc --version`, `g++ --version`, `gcc -v`, `lsmod | grep`, and the prompt of a container."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers.package_sessions import patterns
from gpudoctor.model import Reply

_GCC = re.compile(
    r"""
    ^\s*(?:
        gcc\ version\ (?P<v>\d+\.\d+)
        | (?P<name>[\w.-]*(?:gcc|g\+\+)(?:-\d+)?)\ \([^)]*\)\ .*?(?P<version>\d+\.\d+\.\d+)
    )
    """,
    re.VERBOSE,
)
_INSIDE = re.compile(
    r"""
    ^\s*(?:\(\S+\)\s*)?root@(?P<id>[0-9a-f]{12}):\S*[#$]
    | ^(?=\d*[a-f])[0-9a-f]{12}:\d+:\d+\ \[\d+\]\ .*NCCL  # the host's name in NCCL's lines
    """,
    re.VERBOSE,
)


def _gcc(text: str) -> dict[str, Reply] | None:
    """The two compilers of one release are installed together."""
    match = _GCC.match(text)
    if not match:
        return None
    line = text.splitlines()[0]
    said = f"gcc (GCC) {match['v']}.0" if match["v"] else line
    names = ("gcc", "g++")
    return {"toolchain": Reply("ok", {"programs": {name: [name] for name in names}, "versions": dict.fromkeys(names, said)})}


def _modules(command: str, output: str) -> dict[str, Reply] | None:
    """The modules whose names grep looks for; those of other names are unknown. grep -c prints only how many."""
    names = [line.split()[0] for line in output.splitlines() if re.match(r"^\w+\s+\d+\s+\d+", line)]
    asked = [word.replace("-", "_") for word in patterns(command)]
    if re.search(r"(?:grep|rg)\b.* -\w*[vc]", command) and output.strip() != "0":
        return None
    absent = {"file:/sys/module/nvidia/version": Reply("missing", detail="lsmod does not list nvidia")}
    is_absent = any(word in "nvidia" for word in asked) and "nvidia" not in names
    shown = {"shown-modules": Reply("ok", {"asked": asked, "loaded": names})}
    return {**shown, **(absent if is_absent else {})} if asked else None


def _inside(text: str) -> dict[str, Reply]:
    """Docker names a container's host after the first 12 digits of its id."""
    return {"prompt-of-container": Reply("ok", "docker")}


READERS = (
    Reader("gcc --version", ("gcc ", "g++ ", "gcc-", "g++-"), _GCC, _gcc, re.compile(""), 1),
    prompts.reader("lsmod, filtered", ("lsmod",), rf"lsmod\ *\|\ *{prompts.FILTER}\b.*", _modules, most_lines=100),
    Reader("the prompt of a container", ("root@", "] NCCL "), _INSIDE, _inside, re.compile(""), 1, once=True),
)
