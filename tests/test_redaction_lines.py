"""Lines of logs, settings and tables: what names somebody goes from each, and what names nobody stays."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from gpudoctor.model import SNAPSHOT_SCHEMA, Reply, Snapshot
from gpudoctor.redaction import redacted

PARTS = 4  # so that two workers share them
HERE = Path(__file__).parent
CANARIES = [line for line in (HERE / "redaction_canaries.txt").read_text(encoding="utf-8").splitlines() if "⟦" in line]
HARMLESS = (HERE / "redaction_harmless.txt").read_text(encoding="utf-8").splitlines()
LINES = yaml.load((HERE / "redaction_lines.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)


def shown(text: str) -> str:
    return told(text)[0]


def told(text: str) -> tuple[str, dict[str, dict[str, str]]]:
    """The lines as they leave the machine, and what the private map would hold."""
    lines = text.split("\n")
    value = {"lines": [[n, line] for n, line in enumerate(lines, 1)], "total_lines": len(lines), "left_out": 0, "kinds": []}
    done = redacted(Snapshot(SNAPSHOT_SCHEMA, "1", "2025-01-01T00:00:00Z", {"text:a.log": Reply("ok", value)}))
    return "\n".join(line for _, line in done.snapshot.replies["text:a.log"].value["lines"]), done.tokens.private()


@pytest.mark.parametrize("part", range(PARTS))
def test_what_names_somebody_goes(part: int) -> None:
    cases = [(shown(case["text"]), case["words"]) for case in LINES["gone"][part::PARTS]]
    assert [(text, word) for text, words in cases for word in words if word.lower() in text.lower()] == []


@pytest.mark.parametrize("part", range(PARTS))
def test_what_names_nobody_stays(part: int) -> None:
    cases = [(text, shown(text)) for text in LINES["stays"][part::PARTS]]
    assert [(text, changed) for text, changed in cases if text != changed] == []


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_marked_goes_from_lines_as_people_paste_them(part: int) -> None:
    lines = [line.replace("·", "").replace("\\n", "\n") for line in CANARIES[part::PARTS]]
    cases = [(shown(re.sub("[⟦⟧]", "", line)), re.findall("⟦(.*?)⟧", line)) for line in lines]
    assert [(text, value) for text, values in cases for value in values if value in text] == []


@pytest.mark.parametrize("part", range(PARTS))
def test_harmless_lines_stay(part: int) -> None:
    cases = [(text, shown(text)) for text in HARMLESS[part::PARTS]]
    assert [(text, changed) for text, changed in cases if text != changed] == []


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("HTTPS_PROXY=zuser:Zpass123@proxy.initech.com:3128", "Zpass123"),
        ("https://hooks.sl" + "ack.com/services/T02AB3CDE/B04FG5HIJ/kdLmQpZxVbNm", "kdLmQpZxVbNm"),
        ("https://discord.com/api/webhooks/1082736455/kdLmQpZxVbNm", "kdLmQpZxVbNm"),
        ("PASSWORD=kdLmQpZx; ssh kdLmQpZx@n-a-1", "kdLmQpZx"),
    ],
)
def test_no_secret_is_in_the_private_map(line: str, secret: str) -> None:
    _, private = told(line)
    assert secret not in str(private)
