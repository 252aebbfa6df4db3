"""The formats of a fleet: one module each, imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from gpudoctor.fleet.model import Fleet

FORMATS = ("text", "html", "json", "junit", "sarif", "prometheus")


def render(name: str, fleet: Fleet) -> str:
    return cast(str, import_module(f"gpudoctor.report.fleet.{name}").render(fleet))
