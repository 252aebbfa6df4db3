"""The report as OpenTelemetry metrics: one line of OTLP/JSON, with the names and labels of the Prometheus format.

The collector knows the host (its processor resourcedetection adds host.name), so the line does not name it.

The collector's otlpjsonfile receiver reads it; so does any OTLP/HTTP endpoint (POST to /v1/metrics, application/json).
https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/metrics/v1/metrics.proto
https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from prometheus_client.core import Metric

from gpudoctor.model import Report
from gpudoctor.report.prometheus import metrics


def render(report: Report) -> str:
    resource = {"service.name": "gpudoctor", "service.version": report.version}
    found = [_metric(metric, _nanoseconds(report)) for metric in metrics(report) if metric.samples]
    scope = {"scope": {"name": "gpudoctor", "version": report.version}, "metrics": found}
    data = {"resourceMetrics": [{"resource": {"attributes": _attributes(resource)}, "scopeMetrics": [scope]}]}
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"


def _nanoseconds(report: Report) -> str:
    """When the data was collected; 64-bit integers are strings in OTLP/JSON."""
    taken = report.target.get("taken")
    seconds = datetime.fromisoformat(str(taken).replace("Z", "+00:00")).timestamp() if taken else 0
    return str(round(seconds * 1000) * 1_000_000)


def _metric(metric: Metric, when: str) -> dict[str, Any]:
    points = [
        {"attributes": _attributes(sample.labels), "timeUnixNano": when, "asDouble": float(sample.value)}
        for sample in metric.samples
    ]
    return {"name": metric.name, "description": metric.documentation, "gauge": {"dataPoints": points}}


def _attributes(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in labels.items()]
