"""The page: what the templates need from a report, with every text escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from gpudoctor.files import page as snapshot_in_page
from gpudoctor.model import Report, Result, Snapshot, Status
from gpudoctor.plain import plain
from gpudoctor.report import figures, findings, heading, profiled, watched, words
from gpudoctor.report.html.charts import charts

_FOUND = (Status.FAIL, Status.ERROR, Status.WARN)
_UNHEALTHY = (*_FOUND, Status.BLOCKED)
_WITH_TABLES = ("profiled", "acceptance", "loaded_libraries")
_AROUND = ("wsl", "hypervisor", "container")  # what a machine may be in
_LONG = 240  # characters of an area's line; the page cuts what does not fit


def render(report: Report, taken: Snapshot | None = None) -> str:
    """taken: the snapshot; it is embedded in the page, to be diagnosed again."""
    return _templates().get_template("page.html").render(_content(report, taken)) + "\n"


def made(template: str, script: str, **content: Any) -> str:
    """Another page of this look, with every text in it escaped. script: the file of its only script."""
    return _templates().get_template(template).render(script_hash=_hash(_source(script)), **content) + "\n"


def _content(report: Report, taken: Snapshot | None) -> dict[str, Any]:
    return {
        "report": report,
        "status": report.verdict,
        "headline": words.headline(report),
        "problems": findings.groups(report.diagnosis),
        "areas": list(_areas(report)),
        "charts": list(charts(report)),
        "rows": figures.rows(report, all=True),
        "models": figures.about_models(report),
        "profiled": list(profiled.sections(report, most=profiled.ALL)),
        "facts": list(_facts(report)),
        "snapshot": Markup(snapshot_in_page.packed(taken)) if taken else "",
        "snapshot_type": snapshot_in_page.TYPE,
        "script_hash": _hash(_source("page.js")),
    }


def _areas(report: Report) -> Iterator[tuple[str, Status, list[Result]]]:
    """Areas with their status and their checks, the worst check first."""
    for area, results in words.areas(report).items():
        yield area, words.worst(results), _worst_first(results)


def _worst_first(results: Any) -> list[Result]:
    """Failed checks first, then those that could not run."""
    return sorted(results, key=_rank, reverse=True)


def _rank(result: Result) -> tuple[int, bool]:
    return list(Status).index(result.status) if result.status in _UNHEALTHY else -1, result.reason in words.UNSEEN


def _is_open(results: list[Result], report: Report) -> bool:
    """Whether an area is expanded: it has findings, or checks that could not run if nothing was found."""
    unsure = not report.diagnosis and any(result.reason in words.UNSEEN for result in results)
    return unsure or words.worst(results) in _FOUND


def _summed(results: list[Result]) -> str:
    """The summary of an area: the names of its failed checks, or the messages of the passed ones."""
    if words.does_not_apply(results):
        return "not applicable"
    worst = words.worst(results)
    if worst in (Status.PASS, Status.SKIP):
        return "; ".join(dict.fromkeys(result.message for result in results if result.status is worst and result.message))[:_LONG]
    if worst is Status.BLOCKED:
        return f"by {', '.join(words.blocked(results))}"
    return ", ".join(result.id for result in results if result.status in _FOUND)


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    """All facts about the machine, as path and value."""
    yield from _flat("", {name: "no" if name in _AROUND and not value else value for name, value in report.target.items()})
    shown = ((name, value) for name, value in report.facts.items() if name not in _WITH_TABLES)
    yield from _flat("", {name: value for name, value in shown if (name, value) != ("driver_is_open", None)})


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{name} › {key}" if name else str(key), item)
    elif isinstance(value, (list, tuple)) and any(isinstance(item, (Mapping, list, tuple)) for item in value):
        for number, item in enumerate(value):
            yield from _flat(f"{name} {number}", item)
    else:
        said, worded = findings.named(name, value)
        yield said, worded or "none"


@cache
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("gpudoctor.report.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(
        findings=findings,
        heading=heading,
        words=words,
        figures=figures,
        watched=watched,
        Status=Status,
        source=_source,
        summed=_summed,
        is_open=_is_open,
    )
    return made


def _shown(value: Any) -> Any:
    """Removes control characters, which replies of a machine can contain."""
    if isinstance(value, Markup):
        return value
    return plain(value) if isinstance(value, str) else value


def _source(name: str) -> Markup:
    """A file that is embedded unchanged."""
    loader = _templates().loader
    assert loader
    return Markup(loader.get_source(_templates(), name)[0].strip())


def _hash(script: str) -> str:
    """The hash by which the page's policy allows its script and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
