"""What all commands have in common: names, areas, searches, --format and -o."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import machine
import pytest
from click.shell_completion import BashComplete
from stand_in import environment, run
from terminal import Terminal
from test_report import HEALTHY

from gpudoctor import catalog, doctor, programs
from gpudoctor.cli import last_report, main
from gpudoctor.errors import UserError
from gpudoctor.files import snapshot
from gpudoctor.model import AREAS, TAGS
from gpudoctor.report.layout import Page
from gpudoctor.spelling import nearest
from gpudoctor.version import __version__


def test_the_version_can_be_asked_for_as_elsewhere() -> None:
    assert {run(word).stdout for word in ("-V", "--version", "version")} == {f"gpudoctor, version {__version__}\n"}


@pytest.mark.parametrize("words", [("check",), ("images", "lint")])
def test_help_is_a_command_too(words: tuple[str, ...]) -> None:
    assert run("help", *words).stdout == run(*words, "--help").stdout
    assert run("help").stdout == run("--help").stdout


def _help_pages(group: click.Group, *names: str) -> Iterator[tuple[tuple[str, ...], str]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command
        yield (*names, name), run(*names, name, "--help").stdout
        if isinstance(command, click.Group):
            yield from _help_pages(command, *names, name)


def test_help_pages_have_no_control_characters() -> None:
    """click keeps its own mark for lines as they are, a backspace, unless an empty line is before it."""
    pages = {(): run("--help").stdout, **dict(_help_pages(main))}
    assert len(pages) > 40
    assert {words: page for words, page in pages.items() if not page.replace("\n", "").isprintable()} == {}
    assert "\b" not in run().stderr + run("fleet").stderr
    assert "x08" not in run().stderr + run("fleet").stderr


@pytest.mark.parametrize(
    ("name", "expected"),
    [("no-driver-fond", "no-driver-found"), ("nvlm", "nvml"), ("foo", ""), ("no-such-problem", "")],
)
def test_only_a_near_name_is_suggested(name: str, expected: str) -> None:
    found = nearest(name, [*catalog.checks(), *catalog.problems(), *AREAS])
    assert (found[0] if found else "") == expected


def test_an_area_selects_its_checks_of_the_level() -> None:
    checks = catalog.checks()
    quick = {id for id, check in checks.items() if (check.area, check.level) == ("compute", "quick")}
    standard = {id for id, check in checks.items() if check.area == "compute" and check.level in ("quick", "standard")}
    assert standard - quick
    assert {id for id in doctor.select(checks, "standard", ["compute"]) if checks[id].area == "compute"} == standard
    assert "kernel-module" in doctor.select(checks, "quick", ["driver"])
    assert not {check.area for check in doctor.select(checks, "quick", skip=["driver"]).values()} & {"driver"}
    with pytest.raises(UserError, match="unknown check 'drvier'; did you mean driver"):
        doctor.select(checks, "quick", ["drvier"])


def test_a_tag_selects_checks_of_many_areas() -> None:
    checks = catalog.checks()
    chosen = doctor.select(checks, "quick", ["network"])
    assert {"infiniband", "memlock", "nccl-environment"} <= {*chosen}
    assert not {id for id in {*chosen} - {"nvml"} if checks[id].area == "python"}
    assert not {id for id in doctor.select(checks, "full", skip=["slurm"]) if "slurm" in checks[id].tags}
    hardware = doctor.select(checks, "quick", ["hardware"])
    assert {"gpu-on-bus", "ecc"} <= {*hardware}, "a tag with the name of an area adds to the area"
    with pytest.raises(UserError, match="unknown check 'netwrok'; did you mean network"):
        doctor.select(checks, "quick", ["netwrok"])


def test_an_area_without_a_check_of_the_level_is_not_healthy() -> None:
    checks = {id: check for id, check in catalog.checks().items() if (check.area, check.level) == ("compute", "standard")}
    with pytest.raises(UserError, match="choose a higher --level"):
        doctor.select(checks, "quick", ["compute"])


def test_no_area_or_tag_is_the_name_of_a_check_or_a_problem() -> None:
    assert not {*AREAS, *TAGS} & {*catalog.checks(), *catalog.problems()}


def listed(*words: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(run("list", "--format", "json", *words).stdout)
    return found


def test_list_of_an_area_and_of_words() -> None:
    assert {row["area"] for row in listed("driver")} == {"driver"}
    assert {row["id"] for row in listed("slurm")} == {id for id, check in catalog.checks().items() if "slurm" in check.tags}
    assert {row["id"] for row in listed("kernel", "module")} < {row["id"] for row in listed("kernel")}
    assert [row["id"] for row in listed("--problems", "no-driver-found")] == ["no-driver-found"]
    assert all("nccl" in f"{row['id']} {row['title']}".lower() for row in listed("--problems", "NCCL"))
    assert {str(row["id"]) for row in listed("--problems")} == set(catalog.problems())


@pytest.mark.parametrize("words", [("xyzzy",), ("--problems", "xyzzy"), ("drivr",)])
def test_a_search_in_vain_is_an_error(words: tuple[str, ...]) -> None:
    result = run("list", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "in its id or title" in result.stderr


def test_a_search_in_vain_names_a_near_word_of_an_id() -> None:
    assert run("list", "ncll").stderr == "Error: no check has 'ncll' in its id or title; did you mean nccl?\n"


def test_list_titles_are_those_of_explain() -> None:
    for row in listed("--problems", "driver"):
        assert str(row["title"])[:60] in " ".join(run("explain", str(row["id"])).stdout.split())


@pytest.mark.parametrize(
    "words",
    [("list",), ("knowledge",), ("images", "list"), ("images", "show", "cupy"), ("explain", "Xid", "79"), ("explain", "xids")],
    ids=" ".join,
)
def test_a_result_can_be_written_as_text_and_as_json(words: tuple[str, ...], tmp_path: Path) -> None:
    assert json.loads(run(*words, "--format", "json").stdout)
    file = tmp_path / "x.json"
    assert run(*words, "-o", str(file)).exit_code == 0
    assert json.loads(file.read_text()) == json.loads(run(*words, "--format", "json").stdout)
    assert run(*words, "-o", str(tmp_path)).stderr == f"Error: cannot write {tmp_path}: Is a directory\n"


def test_the_schema_can_be_written_to_a_file(tmp_path: Path) -> None:
    assert run("schema", "-o", str(tmp_path / "s.json")).exit_code == 0
    assert json.loads((tmp_path / "s.json").read_text())["title"] == "gpudoctor.report/1"


def test_explained_for_programs() -> None:
    check, problem = json.loads(run("explain", "kernel-module", "no-driver-found", "--format", "json").stdout)["entries"]
    assert (check["kind"], check["area"]) == ("check", "driver")
    assert (problem["kind"], problem["title"]) == ("problem", catalog.problems()["no-driver-found"][1].title)
    assert problem["fixes"][0]["command"]
    [code] = json.loads(run("explain", "Xid", "79", "--format", "json").stdout)["entries"]
    assert (code["kind"], code["of"], code["number"]) == ("code", "xid", 79)


def test_a_folder_does_not_hide_the_check_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "xids").mkdir()
    assert run("explain", "xids").stdout.startswith("xids: a check")
    (tmp_path / "logs").mkdir()
    assert run("explain", "logs").stderr == "Error: cannot read logs: Is a directory\n"


@pytest.fixture
def saved(tmp_path: Path) -> str:
    file = tmp_path / "machine.json"
    file.write_bytes(snapshot.dump(machine.load("no-driver")))
    return str(file)


def test_fix_for_programs(saved: str) -> None:
    made = json.loads(run("fix", "--replay", saved, "--format", "json").stdout)
    assert (made["schema"], made["status"]) == ("gpudoctor.fix/1", "fail")
    assert "nvidia-driver" in made["steps"][0]["command"]
    assert (made["steps"][0]["problem"], made["steps"][0]["runs"]) == ("no-driver-found", True)


def test_fix_writes_no_script_over_a_report(saved: str, tmp_path: Path) -> None:
    result = run("fix", "--replay", saved, "-o", str(tmp_path / "r.html"))
    assert (result.exit_code, (tmp_path / "r.html").exists()) == (2, False)
    assert "means html" in result.stderr
    assert run("fix", "--replay", saved, "-o", str(tmp_path / "f.json")).exit_code == 0
    assert json.loads((tmp_path / "f.json").read_text())["steps"]


@pytest.mark.parametrize("width", [30, 45])
def test_a_narrow_terminal_is_followed(width: int) -> None:
    paragraphs = Page.fitting(width, verbose=False).wrap(
        "a few words that are longer than one line of it " * 3, "   Seen: ", "     "
    )
    assert max(map(len, paragraphs)) <= width


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("pytorch-24.08", "python", "-c", "a b"), "gpudoctor run --image pytorch-24.08 -- python -c 'a b'"),
        (("-it", "--rm", "--gpus", "all", "x:1"), "gpudoctor run --image x:1 -it --rm --gpus all"),
        (
            ("-e", "HF_TOKEN=secret1", "x:1", "--", "true", "--api-key", "secret2z"),
            "gpudoctor run --image x:1 -e HF_TOKEN -- true --api-key REDACTED",
        ),
    ],
)
def test_run_shows_the_line_to_those_who_type_it_as_with_docker(typed: tuple[str, ...], meant: str) -> None:
    result = run("run", *typed)
    assert result.exit_code == 2
    assert "secret" not in result.stderr
    assert shlex.split(result.stderr.splitlines()[-1].partition("--image: ")[2]) == shlex.split(meant)


def test_verify_takes_the_last_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    result = run("verify")
    assert (result.exit_code, "run gpudoctor check first" in result.stderr) == (2, True)
    last_report.keep(HEALTHY)
    assert last_report.path().stat().st_mode & 0o777 == 0o600
    assert "nothing failed in the last report" in run("verify").stderr


def test_a_check_without_a_state_folder_still_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/1/nowhere")
    last_report.keep(HEALTHY)


def test_run_without_any_image() -> None:
    assert "Missing option '--image'" in run("run", "-it").stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_says_where_it_belongs(shell: str, tmp_path: Path) -> None:
    script = run("completion", shell).stdout
    assert script.startswith("# Completion of gpudoctor. Add this line to ~/")
    assert f"gpudoctor completion {shell}" in script.splitlines()[1]
    assert f"{shell}_complete" in script
    assert run("completion", shell, "-o", str(tmp_path / "c")).exit_code == 0
    assert (tmp_path / "c").read_text() == script


def test_the_completion_script_of_an_unknown_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/dash")
    assert "gpudoctor completion bash|zsh|fish" in run("completion").stderr
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert "fish_complete" in run("completion").stdout


def completed(typed: str, *args: str) -> list[str]:
    found = BashComplete(main, {}, "gpudoctor", "_GPUDOCTOR_COMPLETE").get_completions(list(args), typed)
    return [item.value for item in found]


def test_completion_knows_areas_rules_and_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "driver" in completed("dri", "check", "--only")
    assert "multi-gpu" in completed("multi", "list")
    assert "ecc,performance" in completed("ecc,perf", "check", "--only")
    assert completed("gpu-used-in-b", "images", "lint", "--ignore") == ["gpu-used-in-build"]

    def finished(argv: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
        if argv[0] == "docker":
            raise subprocess.TimeoutExpired(argv, seconds)
        return subprocess.CompletedProcess(argv, 0, "trainer\ntools\n", "")

    monkeypatch.setattr(programs, "finished", finished)
    assert completed("tr", "check", "--container") == ["trainer"]


@pytest.mark.slow
def test_who_pastes_is_told_how_it_ends(tmp_path: Path) -> None:
    opened = Terminal([sys.executable, "-m", "gpudoctor", "explain", "-"], environment(), tmp_path)
    opened.expect("Paste the text, then press Ctrl-D")
    opened.type("Xid 79\n\x04")
    opened.wait()
    opened.close()
