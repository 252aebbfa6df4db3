"""Lines of logs, settings and tables: what names somebody goes from each, and what names nobody stays."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpudoctor.model import SNAPSHOT_SCHEMA, Reply, Snapshot
from gpudoctor.redaction import redacted

PARTS = 4  # so that two workers share them
LINES = yaml.load((Path(__file__).parent / "redaction_lines.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)


def shown(text: str) -> str:
    lines = text.split("\n")
    told = {"lines": [[n, line] for n, line in enumerate(lines, 1)], "total_lines": len(lines), "left_out": 0, "kinds": []}
    done = redacted(Snapshot(SNAPSHOT_SCHEMA, "1", "2025-01-01T00:00:00Z", {"text:a.log": Reply("ok", told)}))
    return "\n".join(line for _, line in done.snapshot.replies["text:a.log"].value["lines"])


@pytest.mark.parametrize("part", range(PARTS))
def test_what_names_somebody_goes(part: int) -> None:
    cases = [(shown(case["text"]), case["words"]) for case in LINES["gone"][part::PARTS]]
    assert [(text, word) for text, words in cases for word in words if word.lower() in text.lower()] == []


@pytest.mark.parametrize("part", range(PARTS))
def test_what_names_nobody_stays(part: int) -> None:
    cases = [(text, shown(text)) for text in LINES["stays"][part::PARTS]]
    assert [(text, changed) for text, changed in cases if text != changed] == []
