"""Files of variables, as `docker run --env-file` reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpudoctor.errors import UserError

VARIABLE = re.compile(r"[^\s=\0]+(=[^\0]*)?")


def variables(files: Iterable[str]) -> Iterator[str]:
    """Each NAME=VALUE or NAME of the files, which an engine would not show; UserError for a line that is neither."""
    for name in files:
        try:
            lines = Path(name).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as failure:
            raise UserError(f"{name}: {getattr(failure, 'strerror', None) or 'not a text file'}") from None
        for number, line in enumerate(lines, 1):
            text = line.lstrip()
            if not text or text.startswith("#"):
                continue
            if not VARIABLE.fullmatch(text):
                raise UserError(f"{name}, line {number}: {text.partition('=')[0]!r} is not a name of a variable")
            yield text
