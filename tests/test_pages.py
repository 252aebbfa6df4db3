"""The pages of docs/ say what is true: each command runs, each output is what is printed, each link leads somewhere.

UPDATE_DOCS=1 writes the outputs anew, for review in the diff.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import machine
import pages
import pytest
import with_example
import yaml
from browser import CHROMIUM

from gpudoctor import catalog, checkup, doctor
from gpudoctor.cli import COMMANDS
from gpudoctor.knowledge import practices
from gpudoctor.model import Action, Check, Confidence, Diagnosis, Report, Result, Snapshot, Status
from gpudoctor.redaction import KEPT_ON_REQUEST, KINDS
from gpudoctor.redaction.tokens import is_token
from gpudoctor.report import formats, terminal, tickets
from gpudoctor.worker import probes

every_page = pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.stem)
EXAMPLE = pages.DOCS / "add-a-check.md"


def without_counts(text: str) -> str:
    """The number of checks and the tables of knowledge change more often than the pages."""
    text = re.sub(r"\d+ of \d+ applicable checks|\d+ checks that ran", "… checks", text)
    return re.sub(r"\(knowledge \d{4}-\d\d-\d\d-[0-9a-f]{8}\)", "(knowledge …)", text)


def must_be_shown(page: Path, shown: list[tuple[pages.Block, str]]) -> None:
    if os.environ.get("UPDATE_DOCS"):
        text = page.read_text()
        for block, said in reversed(shown):
            text = text[: block.place[0]] + said + text[block.place[1] :]
        page.write_text(text)
        return
    for block, said in shown:
        assert without_counts(block.text) == without_counts(said)


@pytest.mark.slow
@every_page
def test_every_command_runs_and_says_what_is_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = pages.Session(tmp_path)
    session.prepare(monkeypatch)
    shown: list[tuple[pages.Block, str]] = []
    for block in pages.blocks(page.read_text()):
        if "output" in block.comments:
            shown.append((block, session.said))
        elif "output, its first lines" in block.comments:
            most = int(block.comments["output, its first lines"])
            shown.append((block, "".join(session.said.splitlines(True)[:most])))
        elif "output of" in block.comments:
            shown.append((block, session.command(block.comments["output of"].split())[0]))
        else:
            session.run(block)
    must_be_shown(page, shown)


@every_page
def test_every_block_is_run_compared_or_said_to_be_neither(page: Path) -> None:
    text = page.read_text()
    found = pages.blocks(text)
    assert len(found) * 2 == len(re.findall(r"^```", text, re.M))
    for block in found:
        assert block.language in ("sh", "python") or block.comments, block.text


def test_every_command_is_on_a_page() -> None:
    commands = {
        words[1]
        for page in pages.pages()
        for block in pages.blocks(page.read_text())
        if block.language == "sh"
        for line in pages.lines(block)
        for words in line.commands
        if words[0] == "gpudoctor"
    }
    assert commands == set(COMMANDS)


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def table(page: str, heading: str) -> list[list[str]]:
    """The rows of the table that begins with this line, without it."""
    rest = (pages.DOCS / page).read_text().partition(f"\n{heading}\n")[2]
    assert rest, heading
    rows = rest.partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def first_words(page: str, heading: str) -> set[str]:
    return {name.strip("` ") for row in table(page, heading) for name in row[0].split(", ")}


def test_every_exit_code_is_one_that_a_command_of_the_page_ends_with() -> None:
    """That it does is what test_every_command_runs shows."""
    shown = {
        (" ".join(line.commands[0][1:3]), line.code)
        for block in pages.blocks((pages.DOCS / "exit-codes.md").read_text())
        if block.language == "sh"
        for line in pages.lines(block)
    }
    for command, code, _ in table("exit-codes.md", "| command | code | meaning |"):
        assert [words for words, ended in shown if words.startswith(command) and ended == int(code)], (command, code)


def test_every_format_and_every_project_is_named() -> None:
    rows = table("reports.md", "| format | file name | for |")
    assert {name: suffixes for name, suffixes, _ in rows} == {
        name: ", ".join(form.suffixes) for name, form in formats.FORMATS.items()
    }
    assert first_words("reports.md", "| `--for` | the form |") == set(tickets.FORMS)


def test_every_kind_that_is_redacted_is_named() -> None:
    rows = table("privacy.md", "| `--keep` | token | what |")
    assert {keep for keep, _, _ in rows} - {"-"} == set(KEPT_ON_REQUEST)
    assert len(rows) == len(KINDS)
    assert all(is_token(token.strip("`").removeprefix("GPU-")) for _, token, _ in rows)


def test_every_file_of_another_program_that_is_read_is_named() -> None:
    named = re.findall(r"`([/~][^`]+)`", (pages.DOCS / "privacy.md").read_text())
    others = {"/var/log/dmesg", "/var/run"}  # the kernel's log of a fake machine; where sockets are
    files = files_of_probes()
    assert len(files) > 30
    assert [file for file in files if not file.startswith(tuple(named))] == sorted(others)


def files_of_probes() -> list[str]:
    """The files of users and of /etc and /var whose names are in the code."""
    code = [ast.parse(path.read_text()) for path in Path(probes.__file__).parent.glob("*.py")]
    words = [node.value for module in code for node in ast.walk(module) if isinstance(node, ast.Constant)]
    return sorted({word for word in words if isinstance(word, str) and re.match(r"(/etc|/var|~)/\w", word)})


@pytest.mark.parametrize(
    ("kind", "heading", "number"), [(Report, "Top level:", 0), (Diagnosis, "An entry of", 1), (Result, "A row of", 2)]
)
def test_every_field_of_the_report_is_named(kind: type[Any], heading: str, number: int) -> None:
    text = (pages.DOCS / "json.md").read_text()
    rows = text[text.index(heading) :].partition("|---|---|\n")[2].partition("\n\n")[0].splitlines()
    named = [name.strip() for row in rows for name in row.split("|")[1].split(",")]
    assert set(named) == {field.name for field in fields(kind)}


@pytest.mark.parametrize("kind", [Status, Action, Confidence])
def test_every_value_is_named(kind: type[Status] | type[Action] | type[Confidence]) -> None:
    rows = re.findall(rf"^\| {kind.__name__.lower()} \| (.*) \|$", (pages.DOCS / "json.md").read_text(), re.M)
    longest = max((re.split(r", | or ", row) for row in rows), key=len)
    assert longest == [value.value for value in kind]


def test_every_method_of_a_report_in_python_is_named() -> None:
    text = (pages.DOCS / "python.md").read_text()
    named = set(re.findall(r"`(?:report)?\.(\w+)(?:\(\w*\))?`", text))
    public = {name for name in dir(checkup.Checkup) if not name.startswith("_")} | {"report", "snapshot"}
    assert named == public - {"opened", "sweep"}


@pytest.fixture
def example(tmp_path: Path) -> tuple[Check, Path]:
    """The check of the page, and the folder of its files."""
    for block in pages.blocks(EXAMPLE.read_text()):
        if "file" in block.comments:
            path = tmp_path / block.comments["file"]
            path.parent.mkdir(parents=True)
            path.write_text(block.text)
    return catalog.load(tmp_path / "checks" / "machine" / "kernel_release.py"), tmp_path


def test_the_example_of_a_check_finds_what_its_machine_has(example: tuple[Check, Path]) -> None:
    check, folder = example
    case = folder / "tests" / "machines" / "release-candidate"
    described = yaml.load((case / "machine.yaml").read_text(), machine.Loader)
    checks = {**doctor.select(catalog.checks(), "quick"), check.id: check}
    report = doctor.judge(machine._built(described, case), checks)
    assert [entry.problem for entry in report.diagnosis] == described["problems"]
    healthy = doctor.judge(machine.load("workstation"), checks)
    assert next(row for row in healthy.checks if row.id == "kernel-release").status is Status.PASS
    text = terminal.render(report)
    said = text[text.index("DIAGNOSIS") : text.index("   More:")].rstrip() + "\n"
    block = next(block for block in pages.blocks(EXAMPLE.read_text()) if "finding" in block.comments)
    must_be_shown(EXAMPLE, [(block, said)])


def test_the_example_of_a_check_is_as_good_as_those_that_are_there(example: tuple[Check, Path]) -> None:
    check, folder = example
    assert check.id not in catalog.checks(), "it is there by now: the page needs another example"
    assert set(re.findall(r"^(?:What|How|Known|Ref).*$", check.explanation, re.M)) >= {"What it means", "How it is judged"}
    command = [sys.executable, "-m", "ruff", "--config", str(pages.ROOT / "pyproject.toml")]
    for words in (["check"], ["format", "--check"]):
        done = subprocess.run([command[0], *command[1:3], *words, *command[3:], str(folder)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@machine.every
@pytest.mark.slow
def test_the_example_of_a_check_finds_nothing_on_the_other_machines(example: tuple[Check, Path]) -> None:
    check, _ = example
    found = [case for case in machine.cases() if found_by(check, machine.load(case))]
    assert found == []


def found_by(check: Check, taken: Snapshot) -> list[str]:
    report = doctor.judge(taken, {check.id: check})
    assert Status.ERROR not in {row.status for row in report.checks}
    return [entry.problem for entry in report.diagnosis]


OF_ALL_CHECKS = ("machines", "texts", "checks", "layers", "summaries", "contract", "words", "docs", "pages")
OTHERS = r"""(?x)
    test_replay | every_check_passes | every_room | what_travels | every_link | the_example_of  # slow, or not about checks
    | every_command_runs(?!.*getting-started)  # the commands of the other pages are the same few
"""
SOME = "release-candidate|h200|no-gpu|dist-bus"  # of the machines and texts


@pytest.mark.slow
def test_the_example_of_a_check_touches_nothing_else(example: tuple[Check, Path]) -> None:
    """With its two files, every test that judges by all checks still passes, on some of the machines."""
    [check] = (example[1] / "checks").rglob("*.py")
    [case] = (example[1] / "tests" / "machines").iterdir()
    said = with_example.said(check, case, OF_ALL_CHECKS, OTHERS, SOME)
    assert re.fullmatch(r"1\d\d tests", said), said


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Strict: a broken link, or a page that is in no menu, is an error."""
    folder = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=pages.ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONWARNINGS": "default"}
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_the_site_has_a_page_for_every_check_and_problem(site: Path) -> None:
    for folder, names in (("checks", catalog.checks()), ("problems", catalog.problems()), ("practices", practices.practices())):
        made = {path.stem for path in (site / folder).glob("*.html")}
        assert made == {*names, "index"}
    for page in pages.DOCS.glob("*.md"):
        assert (site / f"{page.stem}.html").exists()
    assert not list(site.rglob("*.py"))
    for path in ("checks/driver-version.html", "problems/program-asks-for-missing-gpu.html", "index.html"):
        html = (site / path).read_text()
        assert not re.search(r"(?:src|<link[^>]*href)=\"https?:", html), "it asks the network"


@pytest.mark.browser
@pytest.mark.xdist_group("site")
def test_the_site_offers_a_search_only_where_it_can_find_something(site: Path) -> None:
    engine = pytest.importorskip("playwright.sync_api")
    with engine.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        served = "http://site.example"
        page.route(f"{served}/**", lambda route: route.fulfill(path=f"{site}{urlsplit(route.request.url).path}"))
        for address in (served, site.as_uri()):
            page.goto(f"{address}/index.html")
            assert page.locator("[role=search]").is_visible() == (address == served)
        browser.close()


def test_a_page_of_a_problem_holds_what_people_search_for() -> None:
    sys.path.insert(0, str(pages.DOCS))
    import catalog_pages

    made = catalog_pages.pages()
    page = made["problems/program-asks-for-missing-gpu.md"]
    assert "CUDA error: invalid device ordinal" in page
    assert "unset CUDA_VISIBLE_DEVICES" in page
    assert "## How it is judged" in made["checks/driver-version.md"]
    assert "On Arch:" in made["problems/driver-upgrade-incomplete.md"]
    for path, text in made.items():
        assert text.count("```") % 2 == 0, path
        assert not re.search(r"^On :", text, re.M), path


def test_a_report_that_was_written_first_still_opens() -> None:
    """As docs/json.md promises."""
    kept = checkup.load(pages.ROOT / "tests" / "reports" / "first.json")
    assert kept.report.schema == "gpudoctor.report/1"
