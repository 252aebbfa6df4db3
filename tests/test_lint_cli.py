"""`gpudoctor images lint`: files and folders, what is printed, exit codes, bad input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result
from each import each

from gpudoctor.cli import main
from gpudoctor.lint import files

FAULTY = "FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04\nRUN nvidia-smi\nENV CUDA_VISIBLE_DEVICES=0\n"
CLEAN = "FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04\nRUN true\n"


def lint(*arguments: str | Path, text: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["images", "lint", *map(str, arguments)], input=text)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_reads_like_a_compiler(tmp_path: Path) -> None:
    path = written(tmp_path, "Dockerfile", FAULTY)
    result = lint(path)
    lines = result.stdout.splitlines()
    assert lines[0] == f"{path}:2: fail: A GPU is used while the image is built [gpu-used-in-build]"
    assert lines[1] == "  RUN nvidia-smi"
    assert any(line.startswith("  Write: ") for line in lines)
    assert f"{path}:3: warn: CUDA_VISIBLE_DEVICES is fixed in the image [cuda-visible-devices-baked]" in lines
    assert lines[-1] == "1 file: 1 fail, 1 warn"
    assert result.exit_code == 1
    assert all(len(line) <= 80 for line in lines if not line.startswith((str(path), "  Write:")))


@pytest.mark.parametrize(
    ("text", "fail_on", "code"),
    [
        (CLEAN, "warn", 0),
        ("FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04\nENV CUDA_VISIBLE_DEVICES=0\n", "fail", 0),
        ("FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04\nENV CUDA_VISIBLE_DEVICES=0\n", "warn", 1),
        ("FROM python:3.12\nRUN pip install torch --index-url https://download.pytorch.org/whl/cu128\n", "warn", 0),  # info
    ],
)
def test_exit_code(tmp_path: Path, text: str, fail_on: str, code: int) -> None:
    assert lint(written(tmp_path, "Dockerfile", text), "--fail-on", fail_on).exit_code == code


def test_json_is_a_list_of_faults(tmp_path: Path) -> None:
    path = written(tmp_path, "app.Dockerfile", FAULTY)
    rows = json.loads(lint(path, "--format", "json").stdout)
    assert [(row["file"], row["line"], row["rule"], row["status"]) for row in rows] == [
        (str(path), 2, "gpu-used-in-build", "fail"),
        (str(path), 3, "cuda-visible-devices-baked", "warn"),
    ]
    assert set(rows[0]) == {"file", "line", "rule", "status", "message", "why", "fix", "reference"}
    assert lint(written(tmp_path, "Dockerfile", CLEAN), "--format", "json").stdout == "[]\n"


def test_a_folder_is_searched(tmp_path: Path) -> None:
    for name in ("Dockerfile", "b/Dockerfile.gpu", "c/x.dockerfile", "d/Containerfile", "e/Dockerfile_cuda"):
        written(tmp_path, name, CLEAN)
    for name in ("compose.yaml", "f/docker-compose.gpu.yml", "g/compose.override.yaml"):
        written(tmp_path, name, "services:\n  a: {image: b}\n")
    written(tmp_path, ".devcontainer/devcontainer.json", '{"image": "python:3.12"}')
    written(tmp_path, "run.sh", "docker run a\n")
    for name in (
        "build.sh",
        "README.md",
        "Dockerfile.j2",
        "Dockerfile.md",
        ".git/Dockerfile",
        "node_modules/x/Dockerfile",
        "other.yaml",
        "Dockerfile.dockerignore",
    ):
        written(tmp_path, name, "{% no file to read %}")
    result = lint(tmp_path)
    assert (result.stdout, result.exit_code) == ("10 files: no GPU faults found\n", 0)


def test_standard_input_needs_a_kind() -> None:
    result = lint("-", "--kind", "dockerfile", text=FAULTY)
    assert result.stdout.startswith("-:2: fail: ")
    assert result.exit_code == 1
    without = lint("-", text=FAULTY)
    assert without.exit_code == 2
    assert "--kind" in without.stderr


def test_the_kind_is_seen_in_the_text_where_the_name_does_not_say_it(tmp_path: Path) -> None:
    assert lint(written(tmp_path, "gpu.txt", FAULTY)).exit_code == 1
    assert lint(written(tmp_path, "stack.yml", "services:\n  a: {gpus: 2, image: b}\n")).exit_code == 1
    assert lint(written(tmp_path, "stack", "FROM a\nRUN nvidia-smi\n"), "--kind", "compose").exit_code == 2


BROKEN = {
    "Dockerfile": [
        ("", "it is empty"),
        ("RUN true\n", "it has no FROM"),
        ("FROM a\nHELLO x\n", ":2: not a Dockerfile: HELLO"),
        ("FROM a\n\0\n", ": binary file"),
    ],
    "compose.yaml": [("a: [", "not a compose file"), ("- a\n", "it has no services"), ("\n", "it is empty")],
    "devcontainer.json": [("[]", "it is not a JSON object"), ('{"a": ', ":1: not a devcontainer.json")],
    "unknown": [("hello\n", "neither a Dockerfile, a compose file nor a script")],
}


@pytest.mark.parametrize(("name", "text", "why"), [(name, *case) for name, cases in BROKEN.items() for case in cases])
def test_what_cannot_be_read_is_one_line_and_exit_code_2(tmp_path: Path, name: str, text: str, why: str) -> None:
    result = lint(written(tmp_path, name, text))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"Error: {tmp_path / name}")
    assert why in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_files_that_are_not_there_or_not_text(tmp_path: Path) -> None:
    gone = lint(tmp_path / "Dockerfile")
    assert (gone.exit_code, gone.stderr) == (2, f"Error: cannot read {tmp_path}/Dockerfile: No such file or directory\n")
    latin = tmp_path / "Dockerfile"
    latin.write_bytes(b"FROM a\n# \xfcber\n")
    assert "not UTF-8 text" in lint(latin).stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no Dockerfile, compose file, devcontainer.json or script" in lint(empty).stderr
    assert lint().exit_code == 2
    assert "larger than" in lint("-", "--kind", "dockerfile", text="FROM a\n" * 400_000).stderr


def test_one_broken_file_does_not_hide_the_others(tmp_path: Path) -> None:
    written(tmp_path, "a/Dockerfile", FAULTY)
    written(tmp_path, "b/compose.yaml", "a: [")
    result = lint(tmp_path)
    assert "gpu-used-in-build" in result.stdout
    assert "b/compose.yaml" in result.stderr
    assert result.exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        "FROM nvidia/cuda:12.9.1-base-ubuntu24.04\n# gpudoctor: ignore=gpu-used-in-build\nRUN nvidia-smi\n",
        "FROM nvidia/cuda:12.9.1-base-ubuntu24.04\nRUN nvidia-smi # gpudoctor: ignore=gpu-used-in-build\n",
        "FROM nvidia/cuda:12.9.1-base-ubuntu24.04\n# gpudoctor: ignore=x, gpu-used-in-build\nRUN true && \\\n  nvidia-smi\n",
        "FROM nvidia/cuda:12.9.1-base-ubuntu24.04\nRUN true && \\\n  # gpudoctor: ignore=gpu-used-in-build\n  nvidia-smi\n",
    ],
)
def test_a_comment_switches_a_rule_off(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, "Dockerfile", text)
    assert lint(path).stdout == "1 file: no GPU faults found\n"
    path.write_text(text.replace("gpu-used-in-build", "another-rule"))
    assert lint(path).exit_code == 1


def test_a_comment_speaks_of_its_own_line_or_the_next_only(tmp_path: Path) -> None:
    text = "FROM nvidia/cuda:12.9.1-base-ubuntu24.04\nRUN nvidia-smi # gpudoctor: ignore=gpu-used-in-build\nRUN nvidia-smi\n"
    assert ":3: fail: " in lint(written(tmp_path, "Dockerfile", text)).stdout


def test_a_file_cannot_command_the_terminal(tmp_path: Path) -> None:
    path = written(tmp_path, "Dockerfile", "FROM nvidia/cuda:12.9.1-base-ubuntu24.04\nENV CUDA_VISIBLE_DEVICES=0\x1b[2J\n")
    assert "\x1b" not in lint(path).stdout


def test_rules_are_listed_with_their_sources() -> None:
    text = lint("--rules").stdout
    rows = json.loads(lint("--rules", "--format", "json").stdout)
    assert len(rows) > 30
    for row in rows:
        assert f"{row['rule']} ({row['status']})" in text
        assert row["references"][0] in text


@pytest.mark.slow
def test_it_imports_nothing_heavy(tmp_path: Path) -> None:
    path = written(tmp_path, "Dockerfile", "FROM python:3.12\nRUN pip install torch==2.1.2+cu124\n")
    command = [sys.executable, "-X", "importtime", "-m", "gpudoctor", "images", "lint", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "gpudoctor.lint.report" in imported
    assert imported & {"docker", "requests", "pynvml", "gpudoctor.doctor", "gpudoctor.facts"} == set()


def test_sarif_follows_its_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "a b/Dockerfile", FAULTY)
    assert lint(".", "-o", "x.sarif").exit_code == 1
    log = json.loads((tmp_path / "x.sarif").read_text())
    jsonschema.validate(log, json.loads((Path(__file__).parent / "schemas" / "sarif-2.1.0.json").read_text()))
    [run] = log["runs"]
    found = [(result["ruleId"], result["level"]) for result in run["results"]]
    assert found == [("gpu-used-in-build", "error"), ("cuda-visible-devices-baked", "warning")]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("a%20b/Dockerfile", 2)
    assert all(run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])


def test_annotations_for_github_are_one_line_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "a,b/Dockerfile", FAULTY)
    lines = lint("a,b/Dockerfile", "--format", "github").stdout.splitlines()
    assert [line.partition(",title=")[0] for line in lines] == [
        "::error file=a%2Cb/Dockerfile,line=2",
        "::warning file=a%2Cb/Dockerfile,line=3",
    ]
    assert all("%0AWrite:%0A" in line for line in lines)


def test_rules_are_selected_and_ignored(tmp_path: Path) -> None:
    path = written(tmp_path, "Dockerfile", FAULTY)

    def rules(*options: str) -> list[str]:
        return [row["rule"] for row in json.loads(lint(path, "--format", "json", *options).stdout)]

    assert rules("--ignore", "gpu-used-in-build") == ["cuda-visible-devices-baked"]
    assert rules("--select", "gpu-used-in-build,cpu-wheel-in-gpu-image") == ["gpu-used-in-build"]
    assert lint(path, "--ignore", "gpu-used-in-build").exit_code == 0
    unknown = lint(path, "--select", "gpu-used-in-biuld")
    assert (unknown.exit_code, unknown.stderr) == (
        2,
        "Error: unknown rule 'gpu-used-in-biuld'; did you mean gpu-used-in-build?\n",
    )
    assert lint(path, "--select", "").exit_code == 2


def test_a_report_format_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "Dockerfile", FAULTY)
    result = lint(path, "-o", str(tmp_path / "r.html"))
    assert (result.exit_code, "means html" in result.stderr) == (2, True)


@each(
    "name",
    [
        *("Dockerfile", "a/Dockerfile.gpu", "x.dockerfile", "Containerfile", "compose.yaml", "docker-compose.gpu.yml"),
        *(".devcontainer/devcontainer.json", "Dockerfile.j2", "Dockerfile.md", "other.yaml", "Dockerfile.dockerignore", "a.json"),
        *("run.sh", "a/Makefile", "gpu.mk", "README.md", "run.shx", "make"),
    ],
)
def test_pre_commit_passes_the_files_that_are_linted(name: str) -> None:
    [hook] = yaml.safe_load((Path(__file__).parent.parent / ".pre-commit-hooks.yaml").read_text())
    passed = bool(re.search(hook["files"], name)) and not re.search(hook["exclude"], name)
    assert passed == bool(files.kind_of_name(name.rpartition("/")[2]))
    assert hook["entry"].split()[1:] == ["images", "lint"]
