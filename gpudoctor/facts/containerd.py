"""containerd's config.toml: which other files it imports."""

from __future__ import annotations

import re
from posixpath import join, normpath

HEAD = re.compile(r"(?m)^[ \t]*\[")  # the first table; `imports` comes before it
COMMENT = re.compile(r"(?m)^[ \t]*#.*$")
IMPORTS = re.compile(r"(?m)^[ \t]*imports[ \t]*=[ \t]*\[([^\]]*)\]")
QUOTED = re.compile(r""""([^"]*)"|'([^']*)'""")


def imports_of(text: str, folder: str) -> tuple[str, ...]:
    """The patterns in `imports` as full paths; a relative path starts at the folder of the file."""
    told = IMPORTS.search(HEAD.split(COMMENT.sub("", text), maxsplit=1)[0])
    names = [double or single for double, single in QUOTED.findall(told[1])] if told else []
    return tuple(normpath(join(folder, name)) for name in names)
