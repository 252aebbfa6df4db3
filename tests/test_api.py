"""The Python API: what it gives, what it leaves alone, and how it looks in a notebook."""

from __future__ import annotations

import ast
import asyncio
import functools
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import machine
import pytest
from each import each
from process import command_lines
from waiting import HOPELESS_SECONDS, until

import gpudoctor
from gpudoctor import bootstrap, catalog, collect, doctor, interpreter, measure, planning
from gpudoctor.checkup import Checkup
from gpudoctor.choices import FORMATS, PROJECTS
from gpudoctor.files import snapshot
from gpudoctor.model import Reply, Report, Snapshot, Status
from gpudoctor.redaction import remembering
from gpudoctor.report import formats, tickets

MACHINE = "driver-library-version-mismatch"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Asked:
    """In place of a machine: answers like one of tests/machines, and remembers how it was asked."""

    taken: Snapshot
    cut_off_by: int = 0
    asked: dict[str, Any] = field(default_factory=dict)

    def collect(self, where: Any, seconds: float, expected: Any, progress: Callable[[tuple[str, ...]], None]) -> Snapshot:
        self.asked |= {"python": where.path, "timeout": seconds}
        progress(("nvml", "pci"))
        return replace(self.taken, expected=dict(expected), measured={})

    def measure(
        self, where: Any, plan: planning.Plan, level: str, seconds: float, progress: Any, options: Any
    ) -> tuple[dict[str, Reply], int]:
        self.asked |= {"level": level, "measure_timeout": seconds, "gpus": [gpu[0] for gpu in plan.gpus]}
        progress(("gemm:gpu0",), 12.4, {})
        return dict(self.taken.measured), self.cut_off_by


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = Asked(machine.load("h100-measured"))
    monkeypatch.setattr(collect, "collect", made.collect)
    monkeypatch.setattr(measure, "measure", made.measure)
    return made


def checkup(case: str = MACHINE) -> Checkup:
    taken = machine.load(case)
    return Checkup(_judged(case), taken)


@functools.cache
def _judged(case: str) -> Report:
    taken = machine.load(case)
    return doctor.judge(taken, doctor.select(catalog.checks(), "full" if taken.measured else "quick"))


def test_every_name_is_there_for_people_and_for_type_checkers() -> None:
    tree = ast.parse(Path(gpudoctor.__file__).read_text())
    seen = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert set(gpudoctor.__all__) == seen - {"annotations", "import_module", "TYPE_CHECKING"} | {"__version__"}
    for name in gpudoctor.__all__:
        assert getattr(gpudoctor, name)
        assert name in dir(gpudoctor)
        assert name == "__version__" or getattr(gpudoctor, name).__doc__


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'gpudoctor' has no attribute 'chekc'"):
        gpudoctor.chekc  # type: ignore[attr-defined]  # noqa: B018


def test_the_import_is_quick_and_loads_nothing_of_others() -> None:
    code = "import sys; before = {*sys.modules}; import gpudoctor; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(name for name in done.stdout.split() if name.startswith("gpudoctor")) == ["gpudoctor", "gpudoctor.version"]
    assert not [name for name in done.stdout.split() if name.partition(".")[0] not in {"gpudoctor", *sys.stdlib_module_names}]


def test_a_check_of_this_machine(asked: Asked) -> None:
    report = gpudoctor.check(level="quick")
    assert report.status is Status.PASS
    assert report.snapshot
    assert report.target["python_version"]
    assert asked.asked == {"python": sys.executable, "timeout": 20}
    assert {row.id for row in report.checks} == set(doctor.select(catalog.checks(), "quick"))
    assert report.report.schema == "gpudoctor.report/1"


def test_what_is_asked_for_is_what_is_done(asked: Asked, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("RuntimeError: CUDA error: invalid device ordinal\n")
    lines: list[str] = []
    report = gpudoctor.check(
        only="gemm",
        skip=["power-limit"],
        python=tmp_path / "python",
        logs=log,
        expect_gpus=2,
        gpus=0,
        timeout=7,
        measure_timeout=50,
        progress=lines.append,
    )
    python = str(tmp_path / "python")
    assert asked.asked == {"python": python, "timeout": 7, "level": "standard", "measure_timeout": 50, "gpus": [0]}
    assert lines == ["Collecting nvml, pci", "Measuring, about 12 s left: gemm:gpu0"]
    assert "gemm" in {row.id for row in report.checks}
    assert "attention" not in {row.id for row in report.checks}
    assert report.snapshot
    assert report.snapshot.expected == {"gpus": 2}
    assert [text.name for text in report.report.evidence] == [str(log)]


def test_nothing_is_printed(asked: Asked, capfd: pytest.CaptureFixture[str]) -> None:
    gpudoctor.check()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"level": "quik"}, "unknown level 'quik'; did you mean quick?"),
        ({"only": "gem"}, "unknown check 'gem'"),
        ({"skip": ["gem"]}, "unknown check 'gem'"),
        ({"logs": "/nonexistent/log"}, "cannot read"),
        ({"gpus": [7]}, "CUDA lists only the GPUs 0"),
        ({"baseline": "/nonexistent/baseline"}, "cannot read"),
        ({"timeout": -1}, "timeout=-1: must be a positive number of seconds"),
        ({"measure_timeout": 0}, "measure_timeout=0: must be a positive number of seconds"),
        ({"expect_gpus": 0}, "expect_gpus=0: must be at least 1"),
    ],
)
def test_what_is_given_wrong_is_one_clear_line(options: dict[str, Any], words: str, asked: Asked) -> None:
    with pytest.raises(gpudoctor.UserError, match=re.escape(words)) as caught:
        gpudoctor.check(**options)
    assert "\n" not in str(caught.value)


def test_a_place_without_room_is_said_before_the_work(asked: Asked) -> None:
    with pytest.raises(gpudoctor.WorkError, match="there is no folder"):
        gpudoctor.check(save="/nonexistent/folder/machine.json")
    assert not asked.asked


def test_a_broken_baseline_that_nobody_named_is_a_warning(asked: Asked, tmp_path: Path) -> None:
    file = tmp_path / "state" / "gpudoctor" / "baseline.json"
    file.parent.mkdir(parents=True)
    file.write_text("{")
    with pytest.warns(UserWarning, match="It is ignored") as warned:
        gpudoctor.check(level="quick")
    assert warned[0].filename == __file__


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_what_was_measured_until_an_interrupt_is_kept(
    number: int, error: type[BaseException], asked: Asked, tmp_path: Path
) -> None:
    asked.cut_off_by = number
    with pytest.raises(error):
        gpudoctor.check(save=tmp_path / "machine.json")
    assert snapshot.load(str(tmp_path / "machine.json")).measured


PROBES = """
import time
from typing import Any, NamedTuple
class Probe(NamedTuple):
    name: str
    ask: Any
    seconds: float
    after: str = ""
"""


def test_a_real_check_in_a_thread_beside_an_event_loop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As in a notebook. Of the signals nobody takes note, and no file is left."""
    quick = PROBES + 'PROBES = (Probe("quick", lambda machine: [machine.file("/etc/hostname")], 600),)'
    sources = {**bootstrap.travelling_sources(), "gpudoctor/worker/probes/table.py": quick}
    monkeypatch.setattr(interpreter, "travelling_sources", lambda: sources)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = list(map(signal.getsignal, SIGNALS))
    names: list[str] = []

    def here() -> Checkup:
        names.append(threading.current_thread().name)
        return gpudoctor.check(level="quick", only="probes")

    async def cell() -> tuple[Checkup, Checkup]:
        return await asyncio.to_thread(here), here()

    beside, inside = asyncio.run(cell())
    assert beside.checks[0].status is inside.checks[0].status is Status.PASS
    assert names[0] != names[1] == "MainThread"
    assert list(map(signal.getsignal, SIGNALS)) == before
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


SLOW = f"""
import signal, gpudoctor
from gpudoctor import interpreter

sources = interpreter.travelling_sources
interpreter.travelling_sources = lambda: {{**sources(), "gpudoctor/worker/probes/table.py": PROBES}}
PROBES = {PROBES + 'PROBES = (Probe("slow", lambda machine: time.sleep(600), 600),)'!r}
{{before}}
try:
    gpudoctor.check(level="quick", timeout=600, progress=lambda line: print(line, flush=True))
except KeyboardInterrupt:
    print("interrupted")
except OSError as own:
    print("own handler:", own)
"""
OWN = """
def stop(number, frame):
    raise OSError(number)
signal.signal(signal.SIGTERM, stop)
"""


@pytest.mark.parametrize(
    ("before", "number", "said", "code"),
    [("", signal.SIGINT, "interrupted\n", 0), (OWN, signal.SIGTERM, "own handler: 15\n", 0), ("", signal.SIGTERM, "", 143)],
)
@pytest.mark.slow
def test_an_interrupt_leaves_nothing_and_a_handler_of_the_program_is_kept(
    before: str, number: int, said: str, code: int, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SLOW.replace("{before}", before))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary), "GPUDOCTOR_TEST": str(tmp_path)}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "Collecting slow\n"
            process.send_signal(number)
            assert (process.communicate(timeout=HOPELESS_SECONDS)[0], process.returncode) == (said, code)
        finally:
            process.kill()
    assert list(temporary.iterdir()) == []
    assert until(lambda: not command_lines(of=str(tmp_path)))


def test_a_report_in_a_line_in_full_and_as_true() -> None:
    report = checkup()
    words = r"<gpudoctor\.Checkup: fail, driver-library-version-mismatch; \d+ of \d+ applicable checks ran>"
    assert re.fullmatch(words, repr(report))
    assert str(report) == report.render() == report.render("text")
    assert not {"__bool__", "__len__", "__iter__"} & set(dir(report))


def test_every_format() -> None:
    report = checkup()
    assert json.loads(report.to_json())["schema"] == "gpudoctor.report/1"
    assert report.to_markdown().startswith("## gpudoctor: ✗ fail")
    assert report.to_html().startswith("<!doctype html>")
    assert "testsuites" in report.render("junit")
    assert report.ticket("toolkit").startswith("### ")
    with pytest.raises(gpudoctor.UserError, match="unknown format 'pdf'"):
        report.render("pdf")  # type: ignore[arg-type]
    with pytest.raises(gpudoctor.UserError, match="unknown project 'jax'"):
        report.ticket("jax")  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report.html", "report.md", "report.json", "report.tar.gz", "machine.json"])
def test_what_is_written_is_redacted_and_opens_again(name: str, tmp_path: Path) -> None:
    report = checkup()
    assert "/home/user/venv" in str(report)
    taken = report.snapshot
    assert taken
    private = {question: _renamed(reply, "/home/user", "/home/zaphod") for question, reply in taken.replies.items()}
    report = Checkup(report.report, replace(taken, replies=private))
    path = tmp_path / name
    if name == "machine.json":
        report.save(path)
    else:
        report.write(path)
    data = path.read_bytes()
    assert b"zaphod" not in (gzip.decompress(data) if name.endswith("gz") else data)
    if name != "report.md":
        assert gpudoctor.load(path, "quick").status is Status.FAIL
    if name in ("report.html", "machine.json", "report.tar.gz"):
        again = gpudoctor.load(path, "quick")
        assert [entry.problem for entry in again.diagnosis] == [entry.problem for entry in report.diagnosis]


def _renamed(reply: Reply, old: str, new: str) -> Reply:
    return replace(reply, value=json.loads(json.dumps(reply.value).replace(old, new)))


def test_redaction_on_request(tmp_path: Path) -> None:
    report = checkup()
    assert report.redacted().status is report.status
    assert [row.id for row in report.redacted().checks] == [row.id for row in report.checks]
    report.save(tmp_path / "machine.json", redact=False)
    assert snapshot.load(str(tmp_path / "machine.json")) == report.snapshot
    report.write(tmp_path / "report.txt", redact=False)
    assert (tmp_path / "report.txt").read_text() == str(report)


def test_what_tokens_stand_for_is_kept_for_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = checkup()
    found.write(tmp_path / "report.json")
    redacted = json.loads((tmp_path / "report.json").read_text())["target"]
    assert redacted["python"] == "/home/user-1/venv/bin/python3"
    assert found.target["python"] == "/home/user/venv/bin/python3"
    assert remembering.recognised(redacted["python"], redacted["taken"]) == found.target["python"]


def test_a_map_that_cannot_be_written_costs_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").write_text("a file in the place of the folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.warns(UserWarning, match="you will not be able to look up what a token stands for"):
        checkup().write(tmp_path / "report.json")
    assert gpudoctor.load(tmp_path / "report.json").status is Status.FAIL


def test_a_report_without_its_snapshot(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(checkup().to_json())
    kept = gpudoctor.load(tmp_path / "report.json")
    assert kept.snapshot is None
    assert [entry.problem for entry in kept.diagnosis] == [MACHINE]
    kept.write(tmp_path / "report.md", redact=False)
    assert (tmp_path / "report.md").read_text() == kept.to_markdown()
    kept.write(tmp_path / "report.md")
    assert "/home/user-1/" in (tmp_path / "report.md").read_text()
    with pytest.raises(gpudoctor.UserError, match="which contains no snapshot"):
        kept.save(tmp_path / "machine.json", redact=False)
    assert kept.redacted().target["python"].startswith("/home/user-1/")


def test_type_checkers_know_every_format_and_project() -> None:
    assert tuple(formats.FORMATS) == FORMATS
    assert tuple(tickets.FORMS) == PROJECTS


def test_a_file_of_a_name_that_is_no_format(tmp_path: Path) -> None:
    with pytest.raises(gpudoctor.UserError, match="unknown ending"):
        checkup().write(tmp_path / "report.docx")
    checkup().write(tmp_path / "report.docx", "markdown")
    assert (tmp_path / "report.docx").read_text().startswith("## gpudoctor")


class Tags(HTMLParser):
    """The elements and attributes of a piece of HTML, and that each ends where it should."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


PLAIN = {"div", "p", "b", "br", "span", "pre", "details", "summary"}
HOSTILE = "<img src=x onerror=alert(1)></pre><script>alert(2)</script>\x1b[31m & \"'"


@pytest.mark.parametrize("case", [MACHINE, "h100-measured", "no-gpu", "xid-79-fallen-off-bus"])
def test_in_a_notebook(case: str) -> None:
    report = checkup(case)
    html = report._repr_html_()
    tags = Tags(html)
    assert type(html) is str
    assert tags.names <= PLAIN
    assert tags.attributes <= {"style"}
    assert report.status.value in html
    assert len(html) < 20_000
    assert " -v" not in html


def test_what_decides_between_causes_is_told_in_a_notebook() -> None:
    report = checkup()
    entry = replace(report.diagnosis[0], evidence={"decide": "sudo dmesg | grep Xid"})
    shown = Checkup(replace(report.report, diagnosis=(entry,)))._repr_html_()
    assert "sudo dmesg | grep Xid</pre>" in shown


@pytest.mark.slow
def test_the_text_is_given_and_not_shown_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """There rich shows what is printed to any console, and writes nothing."""
    outside = (
        str(checkup()),
        str(gpudoctor.explain("invalid device ordinal")),
        str(gpudoctor.diff(checkup("workstation"), checkup())),
    )
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    inside = (
        str(checkup()),
        str(gpudoctor.explain("invalid device ordinal")),
        str(gpudoctor.diff(checkup("workstation"), checkup())),
    )
    assert inside == outside
    assert all(inside)


def test_nothing_of_a_machine_is_markup_in_a_notebook() -> None:
    report = checkup()
    entry = report.diagnosis[0]
    fix = replace(entry.fixes[0], title=HOSTILE, command=HOSTILE, verify=HOSTILE, undo=HOSTILE)
    hostile = replace(entry, title=HOSTILE, message=HOSTILE, why=HOSTILE, evidence={HOSTILE: HOSTILE}, fixes=(fix, fix))
    facts = {**report.facts, "gpus": [{"name": HOSTILE}]}
    shown = Checkup(replace(report.report, diagnosis=(hostile,), facts=facts, target={"distribution": HOSTILE}))._repr_html_()
    tags = Tags(shown)
    assert tags.names <= PLAIN
    assert tags.attributes <= {"style"}
    assert "\x1b" not in shown
    assert shown.count("onerror") == 15


def test_badges_are_readable_in_light_and_dark() -> None:
    """White letters on their own colour, at least 4.5 to 1: https://www.w3.org/TR/WCAG22/#contrast-minimum."""
    colours = set(re.findall(r"background:(#\w{6})", checkup()._repr_html_() + checkup("h100-measured")._repr_html_()))
    assert len(colours) > 1
    for colour in colours:
        channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        assert 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05) >= 4.5, colour


@each(
    ("what", "words"),
    [
        ("driver-version", "driver-version: a check in the area driver"),
        ("Xid 79", "Xid 79: GPU has fallen off the bus"),
        ("invalid device ordinal", "A program requests a GPU that it does not have"),
        ("NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus.", "A GPU has fallen off the bus"),
        ("the weather is fine", "Nothing in this text is recognised"),
    ],
)
def test_an_explanation(what: str, words: str) -> None:
    told = gpudoctor.explain(what)
    assert words in str(told)
    assert words in told.text
    assert "weather" not in what or not told.is_known
    assert Tags(told._repr_html_()).names <= PLAIN
    assert repr(told).startswith("<gpudoctor.Explanation: ")


def test_an_explanation_of_a_file(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("RuntimeError: CUDA error: invalid device ordinal\n")
    told = gpudoctor.explain(log)
    assert [entry.problem for entry in told.diagnosis] == ["program-asks-for-missing-gpu"]
    assert told.checkup
    assert gpudoctor.explain(str(log)).text == told.text


@each("what", ["", " \n", "-", Path("missing.log"), "missing.log", "no-such-problem"])
def test_what_cannot_be_explained(what: str | Path) -> None:
    with pytest.raises(gpudoctor.UserError):
        gpudoctor.explain(what)


@pytest.mark.slow
def test_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # other tests redact reports of the same second
    healthy, broken = checkup("workstation"), checkup()
    healthy.save(tmp_path / "healthy.json", redact=False)
    found = gpudoctor.diff(tmp_path / "healthy.json", broken)
    assert not found.is_same
    assert found.changes
    assert json.loads(found.to_json())["b"] == "B"
    assert "driver-library-version-mismatch" in str(found)
    assert Tags(found._repr_html_()).names == {"pre"}
    assert gpudoctor.diff(broken, broken).is_same
    broken.save(tmp_path / "redacted.json")
    broken.save(tmp_path / "as-it-is.json", redact=False)
    assert gpudoctor.diff(tmp_path / "redacted.json", tmp_path / "as-it-is.json").is_same


def test_the_docstrings_name_every_option() -> None:
    code = gpudoctor.check.__code__
    options = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    assert [name for name in options if not re.search(rf"\b{name}\b", textwrap.dedent(gpudoctor.check.__doc__ or ""))] == []
