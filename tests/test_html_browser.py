"""The page in a real browser: no error, no request, no mouse needed, nothing serious for axe, as wide as a phone."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import html_machine
import machine
import pytest
from browser import CHROMIUM
from test_html import PAGES, TAKEN, hostile
from waiting import HOPELESS_SECONDS

from gpudoctor.files import snapshot
from gpudoctor.report import html

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
DESKTOP, TABLET, PHONE = 1280, 768, 360
TWO = machine.load("h200-x2-full")
ASKED = {"resultTypes": ["violations"]}  # of other results axe names one element instead of all, which take it longer
LIKE_OTHERS = {"exclude": [["tbody tr:nth-child(n+9)"]]}  # rows of long tables


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    written = {}
    for name, given in {**PAGES, "hostile": (hostile(), TAKEN), "two GPUs": (html_machine.judged(TWO), TWO)}.items():
        written[name] = folder / f"{name}.html"
        written[name].write_text(html.render(*given), encoding="utf-8")
    return written


@pytest.fixture(scope="module")
def browser(files: dict[str, Path]) -> Iterator[Any]:
    """Its first context has a page that stays: so the next ones need no new process, whose start takes longer than most tests."""
    with playwright.sync_playwright() as engine:
        started = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        started.new_context().new_page().goto(files["healthy"].as_uri())
        yield started
        started.close()


class Opened:
    """A page with all that it said and asked for."""

    def __init__(self, browser: Any, file: Path, width: int = DESKTOP, **context: Any) -> None:
        self.context = browser.new_context(**context) if context else browser.contexts[0]
        self.context.set_default_timeout(1000 * HOPELESS_SECONDS)
        self.page = self.context.new_page()
        self.page.set_viewport_size({"width": width, "height": 800})
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())

    def __enter__(self) -> Any:
        return self.page

    def __exit__(self, *failure: object) -> None:
        self.page.close()
        if self.context is not self.context.browser.contexts[0]:
            self.context.close()


@pytest.mark.parametrize("name", [*PAGES, "hostile"])
def test_nothing_is_asked_nothing_is_wrong_and_it_fits(browser: Any, files: dict[str, Path], name: str) -> None:
    opened = Opened(browser, files[name])
    with opened as page:
        page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true })")
        assert page.evaluate("typeof pwned") == "undefined"
        for width, scheme in ((DESKTOP, "light"), (TABLET, "light"), (PHONE, "dark")):
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            if name in ("broken", "eight GPUs") and width != TABLET:  # between them they hold all that a page can
                found = axe.Axe().run(page, context=LIKE_OTHERS, options=ASKED).response["violations"]
                told = [(entry["id"], entry["impact"], entry["nodes"][0]["html"][:200], len(entry["nodes"])) for entry in found]
                assert told == []
    assert opened.said == []
    assert opened.asked == [files[name].as_uri()]


# Of each chart: whether it is cut at the side, its letters in pixels, and the labels that lie on each other.
CHARTS = """charts => charts.map(chart => {
  const box = chart.getBoundingClientRect(), frame = chart.closest("figure").getBoundingClientRect();
  const texts = [...chart.querySelectorAll("text")].filter(text => text.textContent.trim() && text.checkVisibility());
  const at = texts.map(text => text.getBoundingClientRect());
  const on = (one, other) => one.left < other.right - 1 && other.left < one.right - 1
    && one.top < other.bottom - 4 && other.top < one.bottom - 4;
  const letters = texts.map(text => parseFloat(getComputedStyle(text).fontSize) * box.width / chart.viewBox.baseVal.width);
  return {
    chart: chart.closest("figure").id,
    cut: box.left < frame.left || box.right > frame.right || at.some(text => text.left < box.left || text.right > box.right),
    letters: Math.min(...letters),
    overlapping: texts.flatMap((text, one) => texts.slice(one + 1).filter((_, other) => on(at[one], at[one + 1 + other]))
      .map(other => `${text.textContent} / ${other.textContent}`)),
  };
})"""


def test_charts_are_read_on_a_phone_as_on_a_desk(browser: Any, files: dict[str, Path]) -> None:
    for name in ("eight GPUs", "two GPUs"):
        with Opened(browser, files[name]) as page:
            for width in (DESKTOP, TABLET, PHONE):
                page.set_viewport_size({"width": width, "height": 800})
                charts = page.locator("svg.chart").evaluate_all(CHARTS)
                assert len(charts) > 8
                assert [chart for chart in charts if chart["cut"] or chart["letters"] < 12 or chart["overlapping"]] == []
                fits = "found => found.length > 1 && found.every(box => box.scrollWidth <= box.clientWidth)"
                assert page.locator(".heat .scroll").evaluate_all(fits)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("node 7's.html", "'./node 7'\\''s.html'"),
        ("-o.html", "'./-o.html'"),
        ("gpu_03.html", "gpu_03.html"),
        ("ü$(id).html", "'./ü$(id).html'"),
    ],
)
def test_the_footer_names_the_file_as_it_is_called_now(
    browser: Any, files: dict[str, Path], tmp_path: Path, name: str, word: str
) -> None:
    (tmp_path / name).write_bytes(files["eight GPUs"].read_bytes())
    opened = Opened(browser, tmp_path / name)
    with opened as page:
        assert page.text_content("#again code") == f"gpudoctor report {word} --format text"
    assert opened.said == []


@pytest.mark.parametrize("way", ["clipboard", "by hand"])
def test_a_command_is_copied(browser: Any, files: dict[str, Path], way: str) -> None:
    opened = Opened(browser, files["broken"], permissions=["clipboard-read", "clipboard-write"])
    with opened as page:
        if way == "by hand":
            page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        page.locator(".copy").nth(1).click()
        page.get_by_role("button", name="Copy: Reload").filter(has_text="Copied").wait_for()
        page.locator("#find-check").focus()
        page.keyboard.press("Control+V")
        pasted = page.locator("#find-check").input_value()
    assert pasted.startswith("sudo systemctl stop nvidia-persistenced")
    assert pasted.endswith("sudo modprobe nvidia")
    assert opened.said == []


def test_where_copying_is_forbidden_the_command_is_selected(browser: Any, files: dict[str, Path]) -> None:
    with Opened(browser, files["broken"]) as page:
        page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined }); document.execCommand = () => false")
        page.locator(".copy").first.click()
        page.locator(".copy", has_text="Ctrl+C").wait_for()
        assert page.evaluate("getSelection().toString()") == "sudo reboot"


def background(page: Any) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_light_and_dark(browser: Any, files: dict[str, Path]) -> None:
    light, dark = "rgb(247, 247, 245)", "rgb(21, 23, 26)"
    with Opened(browser, files["healthy"]) as page:
        for scheme, own in (("light", light), ("dark", dark)):
            page.emulate_media(color_scheme=scheme)
            assert background(page) == own
            for name, expected in (("Dark", dark), ("Light", light), ("Auto", own)):
                button = page.get_by_role("button", name=name)
                button.click()
                assert (background(page), button.get_attribute("aria-pressed")) == (expected, "true")
        page.get_by_role("button", name="Dark").click()
        page.emulate_media(media="print")
        assert background(page) == "rgb(255, 255, 255)"


def test_on_paper_everything_is_open_and_then_as_before(browser: Any, files: dict[str, Path]) -> None:
    with Opened(browser, files["broken"]) as page:
        closed = page.locator("details:not([open])").count()
        page.evaluate(
            "addEventListener('beforeprint', () => { window.open_then = document.querySelectorAll('details[open]').length })"
        )
        assert page.pdf().startswith(b"%PDF")
        assert page.evaluate("window.open_then") == page.locator("details").count()
        assert page.locator("details:not([open])").count() == closed > 0


def test_on_paper_tables_stay_in_their_cards_and_charts_with_their_captions(browser: Any, files: dict[str, Path]) -> None:
    for name in ("eight GPUs", "two GPUs"):
        with Opened(browser, files[name], width=703) as page:  # A4 without its margins
            page.emulate_media(media="print")
            page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true })")
            beyond = "tables => tables.filter(table => table.scrollWidth > table.parentElement.clientWidth).length"
            assert page.locator("table").evaluate_all(beyond) == 0
            breaks = "found => found.map(one => [getComputedStyle(one).breakInside, getComputedStyle(one).breakAfter])"
            assert {*map(tuple, page.locator("figcaption").evaluate_all(breaks))} == {("avoid", "avoid")}
            assert {inside for inside, _ in page.locator("svg.chart").evaluate_all(breaks)} == {"avoid"}


def test_the_keyboard_reaches_everything_in_order(browser: Any, files: dict[str, Path]) -> None:
    with Opened(browser, files["broken"]) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
        places: list[tuple[float, str, str]] = []
        wanted = page.locator("a[href], button, input, summary, [tabindex='0']").filter(visible=True).count()
        for _ in range(wanted - 1):
            page.keyboard.press("Tab")
            places.append(
                page.evaluate(
                    """() => {
                      const on = document.activeElement, box = on.getBoundingClientRect();
                      return [box.top + scrollY, on.tagName, getComputedStyle(on).outlineStyle];
                    }"""
                )
            )
        assert {outline for _, _, outline in places} == {"solid"}
        assert "BODY" not in {tag for _, tag, _ in places}
        tops = [top for top, _, _ in places[3 + 3 :]]  # behind the bar, which stays where it is
        assert all(after > before - 60 for before, after in itertools.pairwise(tops))
        page.keyboard.press("Tab")
        summary = page.locator("summary", has_text="Evidence").first
        summary.focus()
        page.keyboard.press("Enter")
        assert summary.evaluate("summary => summary.parentElement.open")
        page.locator(".jump").focus()
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "verdict"


def test_checks_are_found(browser: Any, files: dict[str, Path]) -> None:
    with Opened(browser, files["broken"]) as page:
        before = page.locator("details.area[open]").count()
        page.locator("#find-check").fill("blocked nvlink")
        assert page.locator(".check:visible").all_inner_texts() == [page.locator(".check", has_text="nvlink").inner_text()]
        assert page.locator("details.area:visible").count() == 1
        assert page.locator("#checks .count").inner_text() == "1 of 16"
        page.locator("#find-check").fill("")
        assert page.locator("details.area[open]").count() == before


def test_the_checks_of_an_area_are_found_by_its_name(browser: Any, files: dict[str, Path]) -> None:
    with Opened(browser, files["eight GPUs"]) as page:
        areas = page.locator("details.area .title").all_inner_texts()
        assert {"frameworks", "toolchain"} <= {*areas}
        for area in areas:
            page.locator("#find-check").fill(area)
            found = page.locator("details.area", has=page.locator(".title", has_text=re.compile(f"^{area}$")))
            assert found.locator(".check:visible").count() == found.locator(".check").count() > 0


def test_facts_and_answers_are_found(browser: Any, files: dict[str, Path]) -> None:
    opened = Opened(browser, files["eight GPUs"])
    with opened as page:
        page.locator("#find-fact").fill("driver version")
        assert page.locator("#facts-table tbody tr:visible").all_inner_texts() == [
            "driver version\t580.159.04",
            "cuda driver version\t13.0",
        ]
        page.locator("#find-fact").fill("memtotal")
        page.locator("#answers li").first.wait_for()
        assert page.locator("#facts-table tbody tr:visible").count() == 0
        assert "memtotal" in page.locator("#answers li").first.inner_text().lower()
    assert opened.said == []


def test_the_snapshot_is_saved_as_it_was(browser: Any, files: dict[str, Path], tmp_path: Path) -> None:
    with Opened(browser, files["eight GPUs"]) as page:
        with page.expect_download() as download:
            page.get_by_role("button", name="Save the snapshot").click()
        download.value.save_as(tmp_path / "snapshot.json")
    assert json.loads((tmp_path / "snapshot.json").read_bytes()) == json.loads(snapshot.dump(TAKEN))


def test_without_scripts_the_answer_is_there(browser: Any, files: dict[str, Path]) -> None:
    with Opened(browser, files["broken"], java_script_enabled=False) as page:
        assert page.get_by_text("sudo reboot").is_visible()
        assert page.locator(".scripted:visible").count() == 0
        page.emulate_media(media="print")
        assert page.get_by_text("module version").is_visible()
        page.emulate_media(media="screen")
        assert not page.get_by_text("module version").is_visible()
        page.locator("summary", has_text="Evidence").first.click()
        assert page.get_by_text("module version").is_visible()


def test_a_chart_tells_its_numbers_on_screen_and_on_paper(browser: Any, files: dict[str, Path]) -> None:
    with Opened(browser, files["eight GPUs"]) as page:
        bars = page.locator("#chart-measured-gemm svg .mark")
        assert bars.count() == 48
        assert bars.first.locator("xpath=..").locator("title").text_content().startswith("GPU 0, GEMM fp64: ")
        assert page.locator("#chart-measured-gemm svg").get_attribute("role") == "img"
        assert page.locator("#chart-peers-0 td").count() == 64
        shown = bars.first.evaluate("bar => getComputedStyle(bar).fill")
        page.get_by_role("button", name="Dark").click()
        assert bars.first.evaluate("bar => getComputedStyle(bar).fill") != shown != "rgb(0, 0, 0)"
        page.emulate_media(media="print")
        for shape in ("#chart-measured-gemm .mark", "#chart-overlap .copying path", "#chart-history-watts .gpu-7 path"):
            seen = "found => found.length > 0 && found.every(one => one.checkVisibility())"
            assert page.locator(shape).evaluate_all(seen), shape
        assert page.locator("header, .copy").filter(visible=True).count() == 0
