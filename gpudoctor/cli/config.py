"""`gpudoctor config`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from gpudoctor import settings
from gpudoctor.cli import COMMANDS, options

_DEFAULTS = {"level": "standard", "python": "the active environment, else python3 on PATH", "redact": "false", "registry": "none"}
_VARIABLES = {"redact": "GPUDOCTOR_REDACT", "registry": "GPUDOCTOR_REGISTRY"}
_EPILOG = """\
\b
Your own settings are in ~/.config/gpudoctor.toml:
  level = "quick"             # of check and report
  python = "~/train/.venv"    # the environment to examine
  redact = true               # hide names and paths in all output
  registry = "mirror.example.com"

\b
  [ignore.PROBLEM]            # shown, but does not count
  reason = "replaced next week"
  until = 2027-01-31

\b
A project can set level, redact = true and ignore in its pyproject.toml, under
[tool.gpudoctor]. Options override settings.
"""


class Row(NamedTuple):
    """source: a file, a variable, or "default"."""

    key: str
    value: str
    source: str


@click.command(help=COMMANDS["config"], epilog=_EPILOG)
@options.text_or_json
@options.output()
def command(form: str | None, destination: Path | None) -> None:
    from gpudoctor.cli import output

    form = output.prepared(form, destination)
    rows = list(_rows(settings.current()))
    output.deliver(_as_json(rows) if form == "json" else _as_text(rows), destination)


def _rows(known: settings.Settings) -> Iterator[Row]:
    for key, default in _DEFAULTS.items():
        variable, value = _VARIABLES.get(key, ""), getattr(known, key)
        if os.environ.get(variable):
            yield Row(key, os.environ[variable], variable)
        elif value is None:
            yield Row(key, default, "default")
        else:
            yield Row(key, str(value).lower() if isinstance(value, bool) else value, str(known.sources[key]))
    for problem, rule in known.ignore.items():
        name = f"ignore.{problem}"
        yield Row(name, f"until {rule['until']}: {rule['reason']}", str(known.sources[name]))


def _as_json(rows: list[Row]) -> str:
    made: dict[str, Any] = {"file": str(settings.path_of_user() or ""), "settings": [row._asdict() for row in rows]}
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def _as_text(rows: list[Row]) -> str:
    from gpudoctor.plain import plain

    width = max(len(row.key) for row in rows)
    lines = [f"{row.key:<{width}}  {row.value}  ({row.source})" for row in rows]
    file = settings.path_of_user()
    if file and not file.is_file():
        lines.append(f"\nYour own settings can be written to {file} (gpudoctor config --help).")
    return "".join(f"{plain(line)}\n" for line in lines)
