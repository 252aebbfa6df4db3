"""The formats of a report: one module each, imported when it is used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from gpudoctor import choices
from gpudoctor.errors import UserError
from gpudoctor.model import Report, Snapshot


@dataclass(frozen=True)
class Format:
    """suffixes: file name endings, the usual one first. about: what it is for."""

    suffixes: tuple[str, ...]
    about: str


FORMATS: dict[choices.Format, Format] = {
    "text": Format((".txt",), "people"),
    "html": Format((".html", ".htm"), "a browser"),
    "markdown": Format((".md", ".markdown"), "a ticket"),
    "json": Format((".json",), "programs"),
    "junit": Format((".xml",), "CI systems"),
    "sarif": Format((".sarif",), "code scanning"),
    "prometheus": Format((".prom",), "node_exporter's textfile collector"),
    "otlp": Format((".otlp",), "OpenTelemetry's collector"),
}
OF_TEXTS = (".log", ".text", ".out", ".err")  # of any format that people read
PACKED = (".tar.gz", ".tgz")  # how the name of a bundle ends
_MODULES = {"text": "terminal"}


def of(path: Path) -> choices.Format | None:
    """The format that this file name implies."""
    suffix = path.suffix.lower()
    return next((name for name, form in FORMATS.items() if suffix in form.suffixes), None)


def named(path: Path | None, among: Iterable[choices.Format] = FORMATS) -> choices.Format | None:
    """The format that a file name implies; None if it implies none, UserError for an unknown ending."""
    form = of(path) if path else None
    if path and path.suffix and not form and path.suffix.lower() not in OF_TEXTS:
        known = ", ".join(f"{name} ({FORMATS[name].suffixes[0]})" for name in among)
        raise UserError(f"{path}: unknown ending; known are {known}; or choose with --format")
    return form


def is_bundle(path: Path) -> bool:
    return path.name.lower().endswith(PACKED)


def render(name: str, report: Report, taken: Snapshot | None = None) -> str:
    """taken: the snapshot, for the format that contains it."""
    module = import_module(f"gpudoctor.report.{_MODULES.get(name, name)}")
    given = (report, taken) if name == "html" else (report,)
    return cast(str, module.render(*given))
