"""`gpudoctor report --for PROJECT`: what a project's form asks for, short enough, and calling nobody."""

from __future__ import annotations

import re
import shlex
import tarfile
from dataclasses import replace
from pathlib import Path

import machine
import pytest
from each import each
from markdown_it import MarkdownIt
from stand_in import run
from test_formats import HOSTILE
from test_report import REPORT

from gpudoctor import doctor, quoting
from gpudoctor.checkup import Checkup
from gpudoctor.choices import PROJECTS, Project
from gpudoctor.cli import check
from gpudoctor.files import opening, snapshot
from gpudoctor.model import Reply, Snapshot
from gpudoctor.report import tickets

TAKEN = snapshot.load(str(Path(__file__).parent / "machines" / "no-gpu" / "snapshot.json"))
HEADINGS = {
    "github": ["What happened", "Environment"],
    "pytorch": ["🐛 Describe the bug", "Versions"],
    "vllm": ["Your current environment", "🐛 Describe the bug"],
    "nccl": ["How is this issue impacting you?", "Share Your Debug Logs", "NCCL Version", "Your platform details"],
    "cupy": ["Description", "To Reproduce", "Installation", "Environment"],
    "toolkit": ["Describe the bug", "To Reproduce", "Expected behavior", "Environment"],
    "driver": ["NVIDIA Open GPU Kernel Modules Version", "Kernel Release", "Hardware: GPU", "nvidia-bug-report.log.gz"],
}
EVERY = pytest.mark.parametrize("project", PROJECTS)


def quoting_(**said: str) -> Snapshot:
    replies = {f"{quoting.PREFIX}{name}": Reply("ok", {"code": 0, "out": text, "err": ""}) for name, text in said.items()}
    return replace(TAKEN, replies={**TAKEN.replies, **replies})


def test_every_project_has_a_form() -> None:
    assert {*PROJECTS} == {*tickets.FORMS} == {*HEADINGS}


@EVERY
def test_a_ticket_has_the_sections_of_its_form_in_their_order(project: Project) -> None:
    lines = tickets.render(project, REPORT, TAKEN).splitlines()
    places = [lines.index(f"### {title}") for title in HEADINGS[project]]
    assert places == sorted(places)


BOXES = {
    "pytorch": ["🐛 Describe the bug", "Versions"],
    "vllm": ["Your current environment", "🐛 Describe the bug"],
    "nccl": [
        "How is this issue impacting you?",
        "Share Your Debug Logs",
        "Steps to Reproduce the Issue",
        "NCCL Version",
        "Your platform details",
        "Error Message & Behavior",
    ],
    "cupy": ["Description", "To Reproduce", "Installation", "Environment", "Additional Information"],
    "driver": [
        "NVIDIA Open GPU Kernel Modules Version",
        "Comparison with proprietary kernel module",
        "Operating System and Version",
        "Kernel Release",
        "Please confirm you are running a stable release kernel",
        "Hardware: GPU",
        "Describe the bug",
        "To Reproduce",
        "Bug Incidence",
        "nvidia-bug-report.log.gz",
        "More Info",
    ],
}


@each("project", BOXES)
def test_every_heading_has_a_box_in_the_projects_form_or_is_told_where_to_go(project: Project) -> None:
    first, _, rest = tickets.render(project, REPORT, TAKEN).partition("\n")
    where, goes_to = re.findall('"([^"]+)"', first)
    titles = re.findall("^### (.+)$", rest, re.MULTILINE)
    without = titles[titles.index(where) :]
    assert titles[: -len(without)] == [box for box in BOXES[project] if box in titles]
    assert not {*without} & {*BOXES[project]}
    assert goes_to in BOXES[project]


def test_what_has_a_box_of_one_line_is_one_line() -> None:
    taken = machine.load("hgx-h200-x8-measured")
    text = tickets.render("driver", doctor.judge_at_its_level(taken, "quick"), taken)
    for title in ("NVIDIA Open GPU Kernel Modules Version", "Operating System and Version", "Kernel Release", "Hardware: GPU"):
        body = text.partition(f"### {title}\n")[2].partition("###")[0]
        assert len(body.strip().splitlines()) == 1
    assert re.search(r"^GPU 0: NVIDIA H200 \(UUID: GPU-\S+\); GPU 1: NVIDIA H200 ", text, re.MULTILINE)


@EVERY
def test_without_a_snapshot_it_says_what_to_paste(project: Project) -> None:
    assert "Not recorded in this file. Please paste the output of `" in tickets.render(project, REPORT, None)


@pytest.mark.parametrize("project", ["pytorch", "vllm"])
def test_collect_env_is_quoted_unchanged(project: Project) -> None:
    said = "PyTorch version: 2.9.1+cu128\nIs debug build: False\n\n[pip3] numpy==2.3.5 # @numpy #12\n```\n<b>|x|"
    rendered = tickets.render(project, REPORT, quoting_(torch=said))
    assert f"````text\n{said}\n````" in rendered


@EVERY
def test_a_log_calls_nobody_and_breaks_out_of_nothing(project: Project) -> None:
    evil = "```\n</details>\n@root #1 <script>alert(1)</script>\n```sh"
    rendered = tickets.render(project, HOSTILE, quoting_(**dict.fromkeys(quoting.commands("python"), evil)))
    outside = [token for token in MarkdownIt().parse(rendered) if token.type not in ("fence", "code_block")]
    assert not [token.content for token in outside if "<script>" in token.content and token.type.startswith("html")]
    text = "".join(child.content for token in outside for child in token.children or () if child.type == "text")
    assert "@root" not in text
    assert "\x1b" not in rendered
    assert "\x00" not in rendered


LINES = "\n".join(f"line {number}: it said this and that" for number in range(4000))


@EVERY
def test_what_is_too_long_is_cut_at_a_line_and_the_rest_is_in_the_attachment(project: Project) -> None:
    rendered = tickets.render(project, REPORT, quoting_(**dict.fromkeys(quoting.COMMANDS, LINES)))
    assert tickets.MOST_CHARACTERS * 0.9 < len(rendered) <= tickets.MOST_CHARACTERS
    assert re.search(r"it said this and that\n```\n\n</details>\n\n_[\d,]+ characters left out", rendered)
    assert "see `raw/machine/…-quoted-" in rendered
    assert rendered.count("```") % 2 == 0


def test_gpudoctors_own_report_goes_before_what_the_project_wants_to_read() -> None:
    taken = machine.load("hgx-h200-x8-measured")
    report, said = doctor.judge_at_its_level(taken, "full"), LINES[:46_000]
    rendered = tickets.render("pytorch", report, quoting_(torch=said), attachment="gpudoctor report q.json --bundle r.tgz")
    assert f"```text\n{said}\n```" in rendered
    assert len(rendered) <= tickets.MOST_CHARACTERS
    whole = rendered.partition("### Full report\n\n")[2].partition("\n\n###")[0]
    says = (
        r"_([\d,]+) characters left out to keep the ticket short: see `report.md` in the attachment from `gpudoctor report q.json"
    )
    match = re.match(says, whole)
    assert match
    assert int(match[1].replace(",", "")) > 10_000


@EVERY
def test_a_long_message_is_cut_between_two_words(project: Project) -> None:
    long = replace(REPORT.diagnosis[0], message="what it said " * 16_000)
    rendered = tickets.render(project, replace(REPORT, diagnosis=(long,)), TAKEN)
    assert tickets.MOST_CHARACTERS * 0.9 < len(rendered) <= tickets.MOST_CHARACTERS
    said = re.search(
        r"(\w+)\n\n_([\d,]+) characters left out to keep the ticket short: see `report.md` in the attachment", rendered
    )
    assert said
    assert said[1] in ("what", "it", "said")
    assert int(said[2].replace(",", "")) > 140_000


def test_a_message_of_one_endless_word_is_cut_all_the_same() -> None:
    long = replace(REPORT.diagnosis[0], message="x" * 200_000)
    assert len(tickets.render("nccl", replace(REPORT, diagnosis=(long,)), TAKEN)) <= tickets.MOST_CHARACTERS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "again"),
    [
        ([], "q.json"),
        (["--level", "full", "--keep", "users,paths"], "q.json --level full --keep users,paths"),
        (["--redact-word", "atlantis"], "q.json --redact-word WORD"),
    ],
)
def test_what_is_left_out_is_in_the_bundle_that_the_ticket_names(words: list[str], again: str, tmp_path: Path) -> None:
    file = tmp_path / "q.json"
    file.write_bytes(snapshot.dump(quoting_(torch=LINES)))
    text = run("report", str(file), "--for", "pytorch", *words).stdout
    assert f"from `gpudoctor report {again} --bundle report.tar.gz`._" in text
    assert f"`gpudoctor report {again} --for pytorch` (" in text
    packed = run("report", str(file), *words, "--bundle", str(tmp_path / "report.tar.gz"))
    assert packed.exit_code == 0
    with tarfile.open(tmp_path / "report.tar.gz") as archive:
        [name] = [name for name in archive.getnames() if name.endswith("-quoted-torch.txt")]
        held = archive.extractfile(name)
        assert held
        assert held.read().decode() == LINES


def test_a_bundle_of_this_machine_holds_what_every_project_wants_to_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(check, "examined", lambda wanted, told: (Checkup(snapshot=TAKEN), 0))
    monkeypatch.setattr(quoting, "commands", lambda python: {name: ("echo", f"{name} says") for name in quoting.COMMANDS})
    assert run("report", "--bundle", str(tmp_path / "b.tar.gz")).exit_code == 0
    taken = opening.taken_in(str(tmp_path / "b.tar.gz"))
    assert {name: quoting.said(taken.replies, name) for name in quoting.COMMANDS} == {
        name: f"{name} says" for name in quoting.COMMANDS
    }


def test_only_the_wanted_checks_are_in_a_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "examined", lambda wanted, told: (Checkup(snapshot=TAKEN, checks=wanted.checks()), 0))
    monkeypatch.setattr(quoting, "commands", lambda python: dict.fromkeys(quoting.COMMANDS, ("true",)))
    asked = ["--only", "memlock", "--skip", "open-files", "--gpus", "0,1", "--expect-gpus", "2"]
    text = run("report", "--for", "github", *asked).stdout
    assert f"`gpudoctor report {shlex.join(asked)} --for github` (" in text
    assert ("`memlock`" in text, "`shared-memory`" in text) == (True, False)


def test_the_host_of_a_container_is_named_and_not_the_container() -> None:
    taken = machine.load("image-with-seven-of-eight-gpus")
    inside = Reply("ok", 'PRETTY_NAME="Debian GNU/Linux 11 (bullseye)"\nID=debian\n')
    taken = replace(taken, replies={**taken.replies, "file:/etc/os-release": inside})
    text = tickets.render("toolkit", doctor.judge_at_its_level(taken, "quick"), taken)
    assert "- Host OS: Ubuntu 24.04.3 LTS" in text
    assert "- Container Runtime Version: docker 28.5.2" in text
    alone = tickets.render("toolkit", doctor.judge_at_its_level(taken, "quick"), None)
    assert "- Host OS: unknown" in alone


def test_the_toolkit_asks_for_the_logs_of_the_container() -> None:
    assert "\nContainer logs:\n\n<!-- " in tickets.render("toolkit", REPORT, TAKEN)
    taken = machine.load("container-start-with-gpu")
    refusal = 'could not select device driver "" with capabilities: [[gpu]]'
    start = replace(taken.replies["container-start"], value={"engine": "docker", "message": refusal})
    text = tickets.render("toolkit", REPORT, replace(taken, replies={"container-start": start}))
    assert f"Output of <code>docker</code></summary>\n\n```text\n{refusal}\n```" in text


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("nccl-conf-p2p-level-loc", "NCCL\\_NVLS\\_ENABLE=1 (environment), NCCL\\_P2P\\_LEVEL=LOC (/etc/nccl.conf), "),
        ("h200-x2-measured", "NCCL\\_NVLS\\_ENABLE=0 (environment)"),
        ("workstation", "none |"),
    ],
)
def test_nccls_settings_are_those_of_its_files_too(case: str, said: str) -> None:
    taken = machine.load(case)
    assert f"| NCCL settings | {said}" in tickets.render("nccl", doctor.judge_at_its_level(taken, "quick"), taken)


def test_the_toolkit_is_that_of_the_host() -> None:
    taken = machine.load("image-with-seven-of-eight-gpus")
    version = Reply("ok", {"code": 0, "out": "NVIDIA Container Toolkit CLI version 1.18.1\ncommit: x\n", "err": ""})
    taken = replace(taken, host={**taken.host, "command:nvidia-ctk --version": version})
    text = tickets.render("toolkit", doctor.judge_at_its_level(taken, "quick"), taken)
    assert "`nvidia-container-toolkit` version: NVIDIA Container Toolkit CLI version 1.18.1\n" in text


def test_a_gpu_that_does_not_answer_is_not_called_none() -> None:
    taken = machine.load("xid-79-fallen-off-bus")
    text = tickets.render("driver", doctor.judge_at_its_level(taken, "quick"), taken)
    assert "; GPU 1: unknown model\n" in text


def test_where_no_driver_names_a_gpu_it_is_counted() -> None:
    taken = machine.load("driver-library-version-mismatch")
    assert "- GPU Model(s): 1 GPU on the PCI bus\n" in tickets.render("toolkit", doctor.judge_at_its_level(taken, "quick"), taken)


def test_a_tool_that_only_failed_is_not_quoted() -> None:
    failed = Reply("ok", {"code": 1, "out": "", "err": "Traceback\nModuleNotFoundError: No module named 'torch'\n"})
    text = tickets.render("pytorch", REPORT, replace(TAKEN, replies={f"{quoting.PREFIX}torch": failed}))
    assert "printed nothing (exit code 1): ModuleNotFoundError: No module named 'torch'" in text
    assert "Traceback" not in text


def test_each_tool_is_named_by_the_command_line_that_was_run() -> None:
    failed = dict.fromkeys(quoting.COMMANDS, Reply("ok", {"code": 1, "out": "", "err": ""}))
    missing = dict.fromkeys(quoting.COMMANDS, Reply("missing", detail="it cannot be run: No such file or directory"))
    for project, form in tickets.FORMS.items():
        lines = [f"`{quoting.shown(name)}`" for name in form.quotes if (project, name) != ("vllm", "torch")]
        for said, words in ((failed, "{} printed nothing (exit code 1)."), (missing, "No output of {}: it cannot be run")):
            taken = replace(TAKEN, replies={f"{quoting.PREFIX}{name}": reply for name, reply in said.items()})
            text = tickets.render(project, REPORT, taken)
            assert [line for line in lines if words.format(line) not in text] == []
    run = {name: shlex.split(quoting.shown(name)) for name in quoting.COMMANDS}
    assert run == {name: [*argv] for name, argv in quoting.commands("python").items()}


def test_a_vllm_without_its_own_script_quotes_torchs() -> None:
    assert "<summary>The output of <code>python -m torch.utils.collect_env</code></summary>" in tickets.render(
        "vllm", REPORT, quoting_(torch="x")
    )


def test_tools_are_quoted_as_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = {"says": ("echo", "yes"), "fails": ("sh", "-c", "echo no >&2; exit 3"), "is not here": ("no-such-program",)}
    monkeypatch.setattr(quoting, "commands", lambda python: commands)
    said = quoting.quoted(tuple(commands), "")
    assert (quoting.said(said, "says"), quoting.said(said, "fails"), quoting.failed(said, "fails")) == ("yes", "", "no")
    assert [said[f"quoted:{name}"].status for name in commands] == ["ok", "ok", "missing"]


def test_a_tool_that_does_not_end_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quoting, "commands", lambda python: {"slow": ("sh", "-c", "sleep 100 & sleep 100")})
    monkeypatch.setattr(quoting, "SECONDS", 0.3)
    assert quoting.quoted(("slow",), "")["quoted:slow"].status == "timeout"


def test_for_a_project_from_the_command_line() -> None:
    result = run("report", str(Path(__file__).parent / "machines" / "no-gpu" / "snapshot.json"), "--for", "nccl")
    assert result.exit_code == 0
    assert "### NCCL Version\n" in result.stdout
