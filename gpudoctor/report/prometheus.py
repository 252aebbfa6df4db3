"""The report as metrics, for the textfile collector of node_exporter.

https://github.com/prometheus/node_exporter#textfile-collector
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpudoctor.model import Diagnosis, Report, Result, Status
from gpudoctor.plain import plain
from gpudoctor.report import watched

STATUSES = {Status.PASS: 0, Status.WARN: 1, Status.FAIL: 2, Status.SKIP: 3, Status.ERROR: 3}


class _Metrics(Collector):
    def __init__(self, report: Report) -> None:
        self._report = report

    def collect(self) -> Iterator[GaugeMetricFamily]:
        report = self._report
        yield _info(report)
        about = "The verdict: 0 pass, 1 warn, 2 fail, 3 no problem found but not every check could run."
        yield GaugeMetricFamily("gpudoctor_status", about, STATUSES[report.verdict])
        if taken := report.target.get("taken"):
            seconds = datetime.fromisoformat(str(taken).replace("Z", "+00:00")).timestamp()
            yield GaugeMetricFamily("gpudoctor_taken_timestamp_seconds", "Time at which the data was collected.", seconds)
        yield GaugeMetricFamily("gpudoctor_checks_applicable", "Checks that apply to this machine.", report.coverage.applicable)
        yield GaugeMetricFamily("gpudoctor_checks_ran", "Checks that ran.", report.coverage.ran)
        yield _checks(report)
        yield _problems(report)
        yield from _figures(report)
        yield from _watched(report)
        yield from _under_load(report)


def metrics(report: Report) -> Iterator[GaugeMetricFamily]:
    return _Metrics(report).collect()


def render(report: Report) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(report))
    return generate_latest(registry).decode()


def _watched(report: Report) -> Iterator[GaugeMetricFamily]:
    """Means over the time in which a program was watched."""
    found = watched.of(report)
    if not found:
        return
    metric = GaugeMetricFamily("gpudoctor_watched", "Mean reading of a GPU while it was watched.", labels=("gpu", "reading"))
    for gpu in found["gpus"]:
        for name in watched.READINGS:
            if isinstance(value := gpu.get(name), (int, float)):
                metric.add_metric(_plain(str(gpu["index"]), name), value)
    yield metric


def _under_load(report: Report) -> Iterator[GaugeMetricFamily]:
    """By how much counters rose during a long load; those that did not are left out."""
    prefix = "watch:gpu"
    about = "By how much a counter of errors rose under load."
    metric = GaugeMetricFamily("gpudoctor_load_counter_rise", about, labels=("gpu", "counter", "link"))
    runs = {id: run for id, run in report.measured.runs.items() if id.startswith(prefix)}
    for id, run in sorted(runs.items()):
        for name, points in (run.get("moved") or {}).items():
            counter, _, link = name.partition(":")
            with contextlib.suppress(LookupError, TypeError):  # of a snapshot that was changed by hand
                metric.add_metric(_plain(id.removeprefix(prefix), counter, link), points[-1][1] - points[0][1])
    if runs:
        yield metric


def _info(report: Report) -> GaugeMetricFamily:
    metric = GaugeMetricFamily("gpudoctor_info", "Versions in use.", labels=("version", "knowledge", "driver"))
    driver = str(report.facts.get("driver_version") or "")
    metric.add_metric(_plain(report.version, report.knowledge, driver), 1)
    return metric


def _checks(report: Report) -> GaugeMetricFamily:
    metric = GaugeMetricFamily("gpudoctor_check", "1 for each check, with its status.", labels=("check", "area", "status", "on"))
    for where, results in (("target", report.checks), ("host", report.host)):
        for result in results:
            metric.add_metric(_labels(result, where), 1)
    return metric


def _labels(result: Result, where: str) -> tuple[str, ...]:
    return _plain(result.id, result.area, result.status.value, where)


def _problems(report: Report) -> GaugeMetricFamily:
    names = ("problem", "check", "gpu", "status", "action", "confidence", "on")
    metric = GaugeMetricFamily("gpudoctor_problem", "1 for each root cause that was found.", labels=names)
    for labels in dict.fromkeys(map(_problem, report.diagnosis)):  # one problem may be found at several places
        metric.add_metric(labels, 1)
    return metric


def _problem(entry: Diagnosis) -> tuple[str, ...]:
    gpu = "" if entry.gpu is None else str(entry.gpu)
    kinds = (entry.status.value, entry.action.value, entry.confidence.value)
    return _plain(entry.problem, entry.check, gpu, *kinds, "host" if entry.on_host else "target")


def _plain(*values: str) -> tuple[str, ...]:
    return tuple(map(plain, values))


def _figures(report: Report) -> Iterator[GaugeMetricFamily]:
    names = ("check", "what", "unit", "gpu")
    measured = GaugeMetricFamily("gpudoctor_measured", "Measured value, in its unit.", labels=names)
    expected = GaugeMetricFamily("gpudoctor_expected", "Expected value, in its unit.", labels=names)
    seen = set()
    for check, figures in report.measured.figures.items():
        for figure in figures:
            labels = _plain(check, figure.what, figure.unit, "" if figure.gpu is None else str(figure.gpu))
            if labels in seen:
                continue
            seen.add(labels)
            measured.add_metric(labels, figure.value)
            if figure.expected is not None:
                expected.add_metric(labels, figure.expected)
    yield measured
    yield expected
