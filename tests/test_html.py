"""The page as text: valid, nothing that could run or reach a network, every text escaped, the snapshot in it read back."""

from __future__ import annotations

import base64
import gzip
import math
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

import html5lib
import html_machine
import machine
import pytest
from each import each
from test_report import HEALTHY, REPORT

from gpudoctor.errors import UserError
from gpudoctor.facts import Facts
from gpudoctor.files import page as attachment
from gpudoctor.files import snapshot
from gpudoctor.model import Coverage, Difference, Figure, Measurements, Recognised, Report, Result, Status
from gpudoctor.report import html
from gpudoctor.report.html import page
from gpudoctor.report.html.charts import charts, grown, history, lanes, peers
from gpudoctor.report.html.charts.drawing import Cell

pytestmark = pytest.mark.slow

NAMESPACE = "{http://www.w3.org/1999/xhtml}"
PAYLOAD = "</script></style></title><script>pwned()</script><img src=x onerror=pwned()>\"'`${7*7}{{7*7}}\x1b[31m\x00\udc80&amp;"
BARE = Report("gpudoctor.report/1", "9.8.7", Status.PASS, {}, Coverage(0, 0, {}, "0 checks ran."), (), (), Measurements(), {})
TAKEN = html_machine.busy()
BUSY = html_machine.judged(TAKEN)
PAGES = {"broken": (REPORT, None), "healthy": (HEALTHY, None), "bare": (BARE, None), "eight GPUs": (BUSY, TAKEN)}


def parsed(text: str) -> Any:
    return html5lib.HTMLParser(strict=True).parse(text)


def elements(text: str) -> Iterator[tuple[str, Any]]:
    """Each element by its name, without its namespace."""
    for element in parsed(text).iter():
        if isinstance(element.tag, str):
            yield element.tag.rpartition("}")[2], element


def ids(report: Report) -> set[str]:
    return {chart.id for chart in charts(report)}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_valid_and_reaches_nothing(name: str) -> None:
    text = html.render(*PAGES[name])
    text.encode()
    seen: set[str] = set()
    for tag, element in elements(text):
        assert tag not in ("iframe", "object", "embed", "base", "form", "img", "image", "use", "audio", "video"), tag
        assert not [key for key in element.attrib if key.startswith("on")]
        assert not element.get("src")
        if tag == "link":
            assert element.get("href") == "data:,"
        if tag == "style":
            assert "@import" not in element.text
            assert "url(" not in element.text
        if id := element.get("id"):
            assert id not in seen
            seen.add(id)
        if "href" in element.attrib and element.get("href").startswith("#"):
            assert element.get("href")[1:] in {other.get("id") for _, other in elements(text)}
    assert not re.search(r"\b(None|Undefined|nan)\b", re.sub(r"(?s)<(script|style).*?</\1>", "", text))


@each("case", ["h100-measured", "h200-x2-full", "no-gpu", "all-reduce-crawls", "image-on-h200-x2-one-hidden"])
def test_pages_of_real_machines_are_valid(case: str) -> None:
    taken = machine.load(case)
    report = html_machine.judged(taken)
    text = html.render(report, taken)
    parsed(text)
    for entry in report.diagnosis:
        assert str(page._shown(entry.title)).replace("'", "&#39;") in text.replace("&lt;", "<").replace("&gt;", ">")
    assert "-v says" not in text


def test_a_real_run_has_every_chart_of_two_gpus() -> None:
    taken = machine.load("h200-x2-full")
    text = html.render(html_machine.judged(taken), taken)
    charts = re.findall(r'id="chart-([\w-]+?)-title"', text)
    for name in ("measured-gemm", "roofline", "all-reduce", "peers-0", "overlap", "history-watts"):
        assert any(chart.startswith(name) for chart in charts), charts


def test_the_answer_comes_first() -> None:
    text = html.render(REPORT)
    places = [
        text.index(words) for words in ("2 problems and 1 warning", "sudo reboot", 'id="checks"', 'id="measured"', 'id="facts"')
    ]
    assert places == sorted(places)


def test_several_problems_are_listed_before_the_first_is_told() -> None:
    text = html.render(REPORT)
    assert text.count('<a href="#problem-') == 3
    assert text.index('<a href="#problem-3"') < text.index('id="problem-1"')
    assert "<title>✗ fail: User-space driver upgraded, old kernel module still loaded (and 2 more) | 3 × NVIDIA H100" in text
    assert '<a href="#problem-' not in html.render(replace(REPORT, diagnosis=REPORT.diagnosis[:1]))


def test_a_machine_of_which_nothing_could_be_checked_is_not_called_healthy() -> None:
    assert 'class="verdict skip"' in html.render(BARE)
    assert 'class="verdict pass"' in html.render(HEALTHY)
    skipped = replace(BARE, checks=(Result("xids", Status.SKIP, "no log", reason="no answer", area="health"),))
    assert 'class="verdict skip"' in html.render(skipped)


def test_the_same_report_gives_the_same_page() -> None:
    assert html.render(BUSY, TAKEN) == html.render(BUSY, TAKEN)


def poisoned(value: Any, keys: bool = True) -> Any:
    """The same with a payload behind every text in it; keys that lead to charts stay as they are."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return value + PAYLOAD
    if is_dataclass(value) and not isinstance(value, type):
        kept = {"schema", "runs", "figures", "unit"}
        changes = {field.name: poisoned(getattr(value, field.name), field.name not in kept) for field in fields(value)}
        return replace(value, **changes)
    if isinstance(value, dict):
        return {
            poisoned(key) if keys and key not in BUSY.target and key not in BUSY.facts else key: poisoned(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return type(value)(map(poisoned, value))
    return value


def hostile() -> Report:
    known = BUSY.measured.runs
    report: Report = poisoned(
        replace(
            BUSY,
            host=REPORT.checks,
            comparison=(Difference("driver", "1", "2", True),),
            evidence=(Recognised("train.log", ("kernel log",), 4),),
            diagnosis=REPORT.diagnosis,
            checks=REPORT.checks,
        )
    )
    # The charts read their numbers by name: what they print comes from figures, facts and the history's workloads.
    runs = {id: run for id, run in known.items() if not id.startswith("history:")}
    made = {f"history:gpu{gpu}": html_machine.history(gpu) | {"workloads": {PAYLOAD: [3.0, 60.0]}} for gpu in range(8)}
    return replace(report, measured=replace(report.measured, runs=runs | made, left_alone=(PAYLOAD,)))


def test_no_text_of_a_machine_becomes_markup() -> None:
    report = hostile()
    text = html.render(report, TAKEN)
    found = list(elements(text))
    assert [element.get("type") for tag, element in found if tag == "script"] == [attachment.TYPE, None]
    assert not [tag for tag, _ in found if tag in ("img", "iframe")]
    assert not [key for _, element in found for key in element.attrib if key.startswith("on")]
    assert "pwned()</script>" in "".join(parsed(text).itertext())
    assert not {"\x1b", "\x00", "\udc80"} & {*text}
    assert len(ids(report)) > 5
    assert text.count("&lt;img src=x") > 200


def test_where_nothing_is_wrong_the_checks_that_could_not_look_are_shown() -> None:
    text = html.render(BUSY)
    assert re.search(r"\d+ checks got no answer", text)
    unseen = [result for result in BUSY.checks if result.reason == "not measured"]
    areas = re.findall(
        r'<details class="area \w+"( open)?>.*?<span class="title">([\w-]+)</span>.*?<code class="id">([\w-]+)', text, re.S
    )
    assert {area for is_open, area, _ in areas if is_open} == {result.area for result in unseen}
    assert {first for is_open, _, first in areas if is_open} <= {result.id for result in unseen}
    assert "<details open" not in html.render(HEALTHY)


def test_only_links_to_the_web_are_links() -> None:
    entry = replace(
        REPORT.diagnosis[0], references=("javascript:alert(1)", "https://docs.nvidia.com/x?a=1&b=2", "file:///etc/passwd")
    )
    found = elements(html.render(replace(REPORT, diagnosis=(entry,))))
    links = [element.get("href") for tag, element in found if tag == "a" and not element.get("href").startswith("#")]
    assert links == ["https://docs.nvidia.com/x?a=1&b=2"]


def test_the_policy_knows_the_script_that_is_there() -> None:
    text = html.render(REPORT)
    (script,) = [element.text for tag, element in elements(text) if tag == "script"]
    (policy,) = [
        element.get("content") for _, element in elements(text) if element.get("http-equiv") == "Content-Security-Policy"
    ]
    assert f"script-src '{page._hash(script)}'" in policy
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize("case", ["h100-measured", "no-gpu"])
def test_the_snapshot_comes_back_as_it_was(case: str) -> None:
    taken = machine.load(case)
    data = attachment.embedded(html.render(html_machine.judged(taken), taken))
    assert data == snapshot.dump(taken)
    assert snapshot.parse(data, "page") == snapshot.parse(snapshot.dump(taken), "file")


def test_a_page_without_a_snapshot_has_none() -> None:
    assert attachment.embedded(html.render(REPORT)) == b""
    assert attachment.embedded("<html>") == b""
    assert "gpudoctor report report.html" not in html.render(REPORT)


def test_a_text_that_looks_like_a_snapshot_is_none() -> None:
    fake = f'<script id="snapshot" type="{attachment.TYPE}">AAAA</script>'
    taken = machine.load("no-gpu")
    report = replace(REPORT, facts={fake: fake})
    assert attachment.embedded(html.render(report)) == b""
    assert attachment.embedded(html.render(report, taken)) == snapshot.dump(taken)


def holding(data: bytes) -> str:
    return f'<script id="snapshot" type="{attachment.TYPE}">{base64.b64encode(data).decode()}</script>'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (holding(b"no gzip"), "is damaged"),
        (holding(gzip.compress(b"{}" * 999, mtime=0)[:-9]), "is incomplete"),
        (holding(b""), "is incomplete"),
        (f'<script type="{attachment.TYPE}">not base64!</script>', "is damaged"),
    ],
)
def test_a_broken_snapshot_is_told_in_one_line(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        attachment.embedded(text)
    assert "\n" not in str(caught.value)


def test_a_snapshot_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachment, "MOST_BYTES", 1 << 20)
    with pytest.raises(UserError, match="larger than 1 MiB"):
        attachment.embedded(holding(gzip.compress(b"\0" * (2 << 20))))


def test_every_chart_that_was_measured_is_drawn() -> None:
    measured = {"measured-gemm", "measured-memory-bandwidth", "measured-host-transfers", "measured-cupy-kernels"}
    several = {"all-reduce", "peers-0", "peers-1"}
    assert ids(BUSY) == measured | several | {"roofline-0", "overlap", "history-sm_mhz", "history-watts", "history-celsius"}


def test_a_snapshot_from_before_histories_has_no_chart_of_them() -> None:
    old = html_machine.judged(machine.load("h100-measured"))
    assert "roofline-0" in ids(old)
    assert not {id for id in ids(old) if id.startswith(("history", "overlap", "peers", "all-reduce"))}
    assert ids(REPORT) == {"measured-gemm"}
    assert ids(BARE) == set()


def test_a_history_is_no_measurement() -> None:
    without = replace(TAKEN, measured={id: reply for id, reply in TAKEN.measured.items() if not id.startswith("history:")})
    assert Facts(TAKEN).measured.count == Facts(without).measured.count > 0
    checks = html_machine.judged(without).checks
    assert [replace(check, seconds=0) for check in checks] == [replace(check, seconds=0) for check in BUSY.checks]


def test_a_chart_shows_what_was_measured() -> None:
    (chart,) = [chart for chart in charts(REPORT) if chart.id == "measured-gemm"]
    assert [key.kind for key in chart.keys] == ["good", "warn"]
    assert "GPU 1, GEMM bf16: 512 TFLOP/s, healthy 692 (70% of the datasheet's 989)" in chart.svg
    assert chart.table
    assert [[cell.text for cell in row] for row in chart.table.rows] == [["GPU 0", "693 (100%)"], ["GPU 1", "512 (74%)"]]
    heights = [float(bar) for bar in re.findall(r'<rect[^>]* height="([\d.]+)"[^>]*class="mark', chart.svg)]
    assert heights[1] / heights[0] == pytest.approx(512 / 693, abs=0.01)
    for leftover in ("<style", "<script", "pygal", "<desc", " id="):
        assert leftover not in chart.svg


def test_the_numbers_of_few_gpus_are_told_row_by_row() -> None:
    whats = ("GEMM fp32", "GEMM bf16", "GEMM fp8")
    found = tuple(figure(gpu, 650 + gpu, what=what) for gpu in range(2) for what in whats)
    (chart,) = charts(replace(BARE, measured=Measurements({"gemm": found})))
    assert chart.table
    assert chart.table.head == ("Measured", "Expected", "GPU 0", "GPU 1")
    assert [cell.text for cell in chart.table.rows[1]] == ["bf16", "700 TFLOP/s", "650 (93%)", "651 (93%)"]


def figure(gpu: int, value: float, wrong: str = "", what: str = "GEMM bf16") -> Figure:
    return Figure(what, value, "TFLOP/s", gpu, 700.0, "", wrong=wrong)


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ((700, 690, 710), ["good"] * 3),
        ((700, 690, 580), ["good", "good", "warn"]),
        ((700, 690, 400), ["good", "good", "fail"]),
        ((900, 910, 800), ["good", "good", "warn"]),  # slower than its siblings
    ],
)
def test_a_bar_has_the_colour_of_its_status(values: tuple[float, ...], kinds: list[str]) -> None:
    measured = Measurements({"gemm": tuple(figure(gpu, value) for gpu, value in enumerate(values))})
    (chart,) = charts(replace(BARE, measured=measured))
    assert re.findall(r'class="mark (\w+)"', str(chart.svg)) == kinds


def test_a_wrong_result_is_no_good_bar_however_fast() -> None:
    measured = Measurements({"gemm": (figure(0, 700), figure(1, 700, wrong="3 wrong rows"))})
    (chart,) = charts(replace(BARE, measured=measured))
    assert re.findall(r'class="mark (\w+)"', chart.svg) == ["good", "fail"]
    assert "3 wrong rows" in chart.svg
    assert chart.table
    assert chart.table.rows[1][1] == Cell("700 (100%, wrong)", "fail", "3 wrong rows")


def test_of_many_gpus_the_slowest_the_middle_and_the_fastest_are_drawn() -> None:
    whats = [f"GEMM {dtype}" for dtype in ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")]
    found = tuple(figure(gpu, 650 + gpu - 300 * (gpu == 9), what=what) for gpu in range(64) for what in whats)
    (chart,) = charts(replace(BARE, measured=Measurements({"gemm": found})))
    assert "the slowest, the middle and the fastest of 64 GPUs" in chart.about
    assert re.findall(r'class="mark (\w+)" /><title>(GPU \d+), GEMM fp8', chart.svg) == [
        ("fail", "GPU 9"),
        ("good", "GPU 31"),
        ("good", "GPU 63"),
    ]
    assert chart.table
    assert (len(chart.table.rows), len(chart.table.head)) == (64, 7)
    assert chart.table.rows[9][1].kind == "fail"


def test_of_many_gpus_a_wrong_result_is_drawn_however_fast() -> None:
    whats = [f"GEMM {dtype}" for dtype in ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")]
    found = tuple(figure(gpu, 650 + gpu, "3 wrong rows" if gpu == 60 else "", what) for gpu in range(64) for what in whats)
    (chart,) = charts(replace(BARE, measured=Measurements({"gemm": found})))
    assert chart.svg.count("3 wrong rows") == 6


def test_a_heat_map_marks_what_is_slow_or_damaged() -> None:
    pairs = {(0, 1): (400.0, ""), (1, 0): (200.0, ""), (0, 2): (320.0, ""), (2, 0): (400.0, "5 wrong words")}
    found = tuple(
        Figure(f"copy GPU {one} to {other}", value, "GB/s", one, 400.0, "NVLink", wrong=wrong)
        for (one, other), (value, wrong) in pairs.items()
    )
    (chart,) = peers.charts(replace(BARE, measured=Measurements({"peer-transfers": found})))
    assert chart.table
    kinds = [[cell.kind for cell in row[1:]] for row in chart.table.rows]
    assert kinds == [["none", "level-6", "warn"], ["fail", "none", "none"], ["fail", "none", "none"]]
    assert [key.kind for key in chart.keys] == ["warn", "fail"]
    assert [row[1].text for row in chart.table.rows] == ["–", "200", "400 ✗"]


def test_a_history_of_many_gpus_is_its_middle_and_its_edges() -> None:
    runs = {f"history:gpu{gpu}": {"every_seconds": 1.0, "watts": [100.0 + gpu, None, 200.0 + gpu]} for gpu in range(9)}
    (chart,) = history.charts(replace(BARE, measured=Measurements(runs=runs)))
    assert [key.kind for key in chart.keys] == ["good", "faint"]
    assert chart.table
    assert [cell.text for cell in chart.table.rows[3]] == ["GPU 3", "103", "153", "203"]
    assert chart.svg.count("<path") > 3


def test_a_history_tells_what_was_reached_while_a_workload_ran() -> None:
    runs = {
        f"history:gpu{gpu}": {
            "every_seconds": 1.0,
            "watts": [100.0, 600.0 + gpu, 700.0, 100.0],
            "workloads": {"gemm": [0.9, 3.1], "too short": [0.4, 0.6]},
        }
        for gpu in range(2)
    }
    (chart,) = history.charts(replace(BARE, measured=Measurements(runs=runs)))
    assert chart.table
    assert [[cell.text for cell in row] for row in chart.table.rows[2:]] == [["gemm, 0.9 to 3.1 s", "600", "650", "700"]]


def of_history(runs: dict[str, Any]) -> Any:
    (chart,) = history.charts(replace(BARE, measured=Measurements(runs={f"history:{gpu}": run for gpu, run in runs.items()})))
    return chart


def seen(began: float) -> dict[str, Any]:
    """Ten seconds, of which the GPU worked three."""
    watts = [700.0 if began <= second < began + 3 else 100.0 for second in range(10)]
    return {"every_seconds": 1.0, "watts": watts, "workloads": {"gemm": [began, began + 3]}}


def test_a_workload_is_told_of_the_gpu_that_it_ran_on() -> None:
    chart = of_history({"gpu0": seen(6.0), "gpu1": seen(1.0)})
    rows = [[cell.text for cell in row] for row in chart.table.rows]
    assert rows[2:] == [["gemm, GPU 0, 6.0 to 9.0 s", *["700"] * 3], ["gemm, GPU 1, 1.0 to 4.0 s", *["700"] * 3]]
    assert re.findall(r"<title>(gemm[^<]*)</title>", chart.svg) == [rows[2][0], rows[3][0]]
    assert re.findall(r">(GPU \d+)</text>", chart.svg) == ["GPU 0", "GPU 1"]


def test_only_counters_that_moved_under_load_are_drawn() -> None:
    moved = {"nvlink_replay:3": [[1.0, 5], [60.0, 6], [90.0, 9]], "ecc_corrected": [[1.0, 0]]}
    log = {"lines": ["[ 1090.1] NVRM: Xid (PCI:0000:05:00): 13, pid=7"], "line_seconds": [90.0], "xids": [[90.0, 1, 94]]}
    runs = {"watch:gpu0": {"moved": moved}, "watch:gpu1": {"moved": {}}, "watch:all": log}
    (chart,) = grown.charts(replace(BARE, measured=Measurements(runs=runs)))
    assert chart.table
    assert [[cell.text for cell in row] for row in chart.table.rows] == [
        ["GPU 0, link 3: NVLink replay", "60 s", "5", "9"],
        ["GPU 1: Xid 94 (NVML)", "90 s", "", ""],
        ["NVRM: Xid (PCI:0000:05:00): 13, pid=7", "90 s", "", ""],
    ]
    assert [key.text for key in chart.keys] == ["GPU 0, link 3: NVLink replay"]
    quiet = {"watch:gpu0": {"moved": {}}, "watch:all": {"xids": [], "lines": []}}
    assert [*grown.charts(replace(BARE, measured=Measurements(runs=quiet)))] == []


def test_gpus_that_keep_the_same_time_share_a_lane() -> None:
    chart = of_history({"gpu0": seen(6.0), **{f"gpu{gpu}": seen(1.0 + 0.01 * gpu) for gpu in range(1, 12)}})
    assert [row[0].text for row in chart.table.rows[12:]] == ["gemm, GPU 0, 6.0 to 9.0 s", "gemm, GPU 1 to 11, 1.0 to 4.1 s"]
    assert re.findall(r">(GPU [^<]*)</text>", chart.svg) == ["GPU 0", "GPU 1–11"]


def test_of_many_gpus_that_all_keep_their_own_time_there_are_a_few_lanes() -> None:
    chart = of_history({f"gpu{gpu}": seen(0.1 * gpu) for gpu in range(64)})
    said = re.findall(r"<title>gemm, (GPU [^<]*), ", chart.svg)
    assert 1 < len(said) <= lanes.MOST
    assert said[0].startswith("GPU 0 to ")


BROKEN: list[Any] = [
    None,
    "text",
    [],
    {"timeline": 4},
    {"every_seconds": "x", "watts": 3},
    {"bf16": 3},
    math.nan,
    {"to GPU": {"timeline": {"copy": [1]}}},
]


@each("value", BROKEN, ids=repr)
def test_runs_of_another_shape_cost_only_their_chart(value: Any) -> None:
    runs = dict.fromkeys(BUSY.measured.runs, value)
    text = html.render(replace(BUSY, measured=replace(BUSY.measured, runs=runs)))
    parsed(text)
    assert 'id="chart-measured-gemm"' in text
    assert 'id="chart-overlap"' not in text


def test_one_problem_of_several_gpus_is_one_card_with_all_commands() -> None:
    text = html.render(REPORT)
    assert text.count('class="problem ') == 3
    assert "nvidia-smi -i 0 -q -d TEMPERATURE\nnvidia-smi -i 2 -q -d TEMPERATURE" in text


def test_blocked_and_skipped_checks_say_why() -> None:
    text = html.render(REPORT)
    assert "blocked by driver-version" in text
    assert "not permitted: the kernel log may not be read" in text
    assert "gpudoctor&#39;s own bug" in text


def test_what_host_and_container_see_is_there() -> None:
    report = replace(
        BARE,
        host=(Result("driver-version", Status.FAIL, "m", area="driver"),),
        comparison=(Difference("driver", "1.0", "2.0", True),),
    )
    text = html.render(report)
    assert "on the host" in text
    assert '<td class="warn">differs</td>' in text


def test_eight_gpus_fit_into_a_page_that_can_be_sent() -> None:
    assert len(html.render(BUSY, TAKEN).encode()) < 1_500_000


def test_what_was_found_in_an_area_is_not_hidden_by_what_could_not_run() -> None:
    rows = (
        Result("slow", Status.WARN, "too slow", area="links"),
        Result("waits", Status.BLOCKED, "", blocked_by="driver", area="links"),
        Result("other", Status.BLOCKED, "", blocked_by="driver", area="health"),
    )
    areas = {area: (status, results) for area, status, results in page._areas(replace(HEALTHY, checks=rows))}
    assert {area: status for area, (status, _) in areas.items()} == {"links": Status.WARN, "health": Status.BLOCKED}
    assert [page._summed(results) for _, results in areas.values()] == ["by driver", "slow"]
    assert page._is_open(areas["links"][1], HEALTHY)


def test_numbers_on_bars_keep_away_from_the_line_of_the_expected_value() -> None:
    measured = html_machine.judged(machine.load("h100-measured"))
    [chart] = [chart for chart in charts(measured) if chart.id == "measured-gemm"]
    svg = re.sub(r"(?s)<title>.*?</title>", "", str(chart.svg))
    [line] = re.findall(r'd="M0 ([\d.]+) h\S+" class="major guide line"', svg)
    labels = re.findall(r'y="([\d.]+)" class="label"', svg)
    assert labels
    assert min(map(float, labels)) > float(line) + 40


def test_facts_have_units() -> None:
    assert ("memory", "515000 MiB") in dict(page._facts(replace(HEALTHY, facts={"memory_mib": 515000}))).items()
