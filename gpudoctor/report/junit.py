"""The report as JUnit XML: an area is a suite, a check is a test case; Jenkins' schema, which other systems also read.

https://github.com/jenkinsci/xunit-plugin/blob/master/src/main/resources/org/jenkinsci/plugins/xunit/types/model/xsd/junit-10.xsd
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from gpudoctor.model import Diagnosis, Report, Result, Status
from gpudoctor.plain import plain
from gpudoctor.report import findings, heading, words

_NOT_XML = re.compile("[^\t\n\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report) -> str:
    own, host = words.by_area(report.checks), words.by_area(report.host)
    told = list(chain(*own.values(), *host.values()))
    root = Element("testsuites", _attributes("gpudoctor", told, with_skipped=False))
    for area, results in own.items():
        _suite(root, area, results, report)
    for area, results in host.items():
        _suite(root, f"host.{area}", results, report, on_host=True)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(root: Element, name: str, results: list[Result], report: Report, on_host: bool = False) -> None:
    suite = SubElement(root, "testsuite", _attributes(f"gpudoctor.{name}", results))
    if "taken" in report.target:
        suite.set("timestamp", str(report.target["taken"]).removesuffix("Z"))
    properties = SubElement(suite, "properties")
    for key, value in _about(report):
        SubElement(properties, "property", name=key, value=text(value))
    for result in results:
        _case(suite, name, result, [entry for entry in report.diagnosis if entry.on_host is on_host])


def _about(report: Report) -> Iterator[tuple[str, str]]:
    yield "gpudoctor", heading.version(report)
    yield "system", heading.system(report)
    yield "gpu", heading.gpus(report)
    yield "python", heading.python(report)
    if examined := heading.container(report):
        yield "image", examined


def _attributes(name: str, results: Iterable[Result], with_skipped: bool = True) -> dict[str, str]:
    statuses = [result.status for result in results]
    seconds = sum(result.seconds for result in results)
    skipped = statuses.count(Status.SKIP) + statuses.count(Status.BLOCKED)
    return {
        "name": text(name),
        "tests": str(len(statuses)),
        "failures": str(statuses.count(Status.FAIL)),
        "errors": str(statuses.count(Status.ERROR)),
        **({"skipped": str(skipped)} if with_skipped else {}),
        "time": f"{seconds:.3f}",
    }


def _case(suite: Element, name: str, result: Result, diagnosis: list[Diagnosis]) -> None:
    case = SubElement(suite, "testcase", classname=text(f"gpudoctor.{name}"), name=text(result.id), time=f"{result.seconds:.3f}")
    message = text(result.message)
    if result.status is Status.SKIP:
        SubElement(case, "skipped", message=message)
    elif result.status is Status.BLOCKED:
        SubElement(case, "skipped", message=text(f"blocked by {result.blocked_by}"))
    elif result.status is Status.ERROR:
        SubElement(case, "error", message=message, type="gpudoctor")
    elif result.status is Status.FAIL:
        found = _found(result, diagnosis)
        failure = SubElement(case, "failure", message=message, type=text(found[0].problem) if found else "effect")
        failure.text = text("\n\n".join(_said(group) for group in findings.groups(found)) or _cause(result, diagnosis))
    else:
        SubElement(case, "system-out").text = text("warning: " * (result.status is Status.WARN) + result.message)


def _found(result: Result, diagnosis: list[Diagnosis]) -> list[Diagnosis]:
    return [entry for entry in diagnosis if entry.check == result.id]


def _cause(result: Result, diagnosis: list[Diagnosis]) -> str:
    explains = [entry for entry in diagnosis if result.id in entry.explains]
    return "\n".join(f"An effect of {entry.problem}: {findings.seen(entry)}" for entry in explains) or result.message


def _said(group: findings.Group) -> str:
    """A problem with its fixes, as lines."""
    first = group[0]
    lines = [f"{first.title} ({words.to_do(first)})", *findings.seen_by_all(group)]
    lines += filter(None, (findings.doubt(first), first.why))
    for fix in findings.fixes(group):
        lines += ["", f"Fix: {fix.title}", *(f"  {line}" for line in fix.command.splitlines())]
    return "\n".join([*lines, *(f"See: {reference}" for reference in first.references)])


def text(raw: str) -> str:
    """XML does not allow control characters."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", plain(raw))
