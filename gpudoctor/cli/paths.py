"""File names on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gpudoctor.errors import UserError


class _Named(click.Path):
    """Rejects an empty name, which usually comes from an unset variable."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if value == "":
            raise UserError(f"{_called(parameter)} is empty")
        return super().convert(value, parameter, context)


def _called(parameter: click.Parameter | None) -> str:
    if isinstance(parameter, click.Option):
        return parameter.opts[0]
    return parameter.human_readable_name.strip("[]") if parameter else "a name"


PATH = _Named(path_type=Path)
NAME = _Named(readable=False)  # as it was typed; may be -
