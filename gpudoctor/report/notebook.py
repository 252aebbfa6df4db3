"""The report in a notebook: the verdict and the fixes, as HTML without a style sheet, because notebooks remove it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from markupsafe import Markup

from gpudoctor.model import Fix, Report, Status
from gpudoctor.plain import plain
from gpudoctor.report import findings, heading, words

# Each has a colour of its own below white letters, so that they are readable in light and dark.
_COLOURS = {Status.PASS: "#1a7f37", Status.WARN: "#8a5a00", Status.FAIL: "#b42318"}
_GREY = "#57606a"
_BADGE = "background:{};color:#fff;border-radius:4px;padding:1px 7px;font-weight:600;white-space:nowrap"
_FRAME = "border-left:3px solid {};padding:0 0 0 10px;margin:12px 0;max-width:60em"
_CODE = "white-space:pre;overflow-x:auto;padding:6px 9px;margin:4px 0;background:rgba(128,128,128,.15);border-radius:4px"
_SHOWN = 5  # problems, and of each the first fix; the rest is folded


def render(report: Report) -> str:
    """The verdict, the problems and their fixes."""
    parts = [_verdict(report), _problems(report), _tag("p", report.coverage.sentence)]
    return str(Markup("<div>{}</div>").format(Markup("").join(parts)))


def problems(report: Report) -> str:
    """Only the problems, for texts without a machine."""
    return str(Markup("<div>{}</div>").format(_problems(report)))


def text(said: str) -> str:
    return str(_pre(said.rstrip("\n")))


def _verdict(report: Report) -> Markup:
    about = f"{heading.system(report)}; GPU: {heading.gpus(report)}"
    return Markup("<p>{} <b>{}</b><br>{}</p>").format(_badge(report.verdict), plain(words.headline(report)), plain(about))


def _problems(report: Report) -> Markup:
    groups = [_problem(group) for group in findings.groups(report.diagnosis)]
    notes = (_tag("p", line) for line in findings.notes(report))
    return Markup("").join([*groups[:_SHOWN], _folded(f"{len(groups) - _SHOWN} more", groups[_SHOWN:]), *notes])


def _problem(group: findings.Group) -> Markup:
    first, said_of_gpus = group[0], findings.seen_by_all(group)
    title = ("On the host: " if first.on_host else "") + first.title
    seen = Markup("").join(_tag("div", f"Seen: {line}") for line in said_of_gpus[:_SHOWN])
    more = f"and on {len(said_of_gpus) - _SHOWN} more GPUs" if len(said_of_gpus) > _SHOWN else ""
    decides = findings.decides(first)
    fixes = [_fix("Or" if number else "Fix", fix) for number, fix in enumerate(findings.fixes(group))]
    said = [
        Markup("<div>{} <b>{}</b></div>").format(_badge(first.status), plain(title)),
        seen,
        *(_tag("div", sentence) for sentence in (more, findings.doubt(first), first.why) if sentence),
        *([_tag("div", "To confirm or rule it out:"), _pre(decides)] if decides else []),
        *fixes[:1],
        _folded("Alternatives", fixes[1:]),
        _folded("Evidence", _evidence(group)),
    ]
    return Markup('<div style="{}">{}</div>').format(_FRAME.format(_colour(first.status)), Markup("").join(said))


def _fix(word: str, fix: Fix) -> Markup:
    terms = f" ({words.terms(fix)})" if words.terms(fix) else ""
    parts = [_tag("div", f"{word}: {fix.title}{terms}"), _pre(fix.command) if fix.command else ""]
    for said, command in (("Undo:", fix.undo), ("Check that it worked:", fix.verify)):
        parts += [_tag("div", said), _pre(command)] if command else []
    return Markup('<div style="margin-top:6px">{}</div>').format(Markup("").join(parts))


def _pre(said: str) -> Markup:
    return Markup('<pre style="{}">{}</pre>').format(_CODE, plain(said))


def _evidence(group: findings.Group) -> Iterator[Markup]:
    for entry in group[:_SHOWN]:
        for name, value in findings.evidence(entry).items():
            yield _tag("div", f"{name}: {value}")


def _folded(summary: str, parts: Iterable[Markup]) -> Markup:
    inside = Markup("").join(parts)
    return Markup("<details><summary>{}</summary>{}</details>").format(summary, inside) if inside else inside


def _badge(status: Status) -> Markup:
    return Markup('<span style="{}">{}</span>').format(_BADGE.format(_colour(status)), words.label(status))


def _colour(status: Status) -> str:
    return _COLOURS.get(status, _GREY)


def _tag(name: str, said: str) -> Markup:
    return Markup(f"<{name}>{{}}</{name}>").format(plain(said))
