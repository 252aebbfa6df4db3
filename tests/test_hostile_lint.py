"""`images lint` reads files from anywhere: its time and memory grow with their size, and it refuses what is too much."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hostile_lint
import pytest
from each import each
from limited import limited

from gpudoctor.errors import UserError
from gpudoctor.lint import files
from gpudoctor.lint.files import lint_text

SIZE = 100_000
MOST_CPU_SECONDS, MOST_BYTES = 20, 1 << 30  # of address space; much less is used
FILES = [
    (kind, name)
    for kind, made in (
        ("dockerfile", hostile_lint.dockerfiles(1000)),
        ("compose", hostile_lint.composes(1000)),
        ("devcontainer", hostile_lint.devcontainers(1000)),
        ("script", hostile_lint.scripts(1000)),
    )
    for name in made
]
MADE = {
    "dockerfile": hostile_lint.dockerfiles,
    "compose": hostile_lint.composes,
    "devcontainer": hostile_lint.devcontainers,
    "script": hostile_lint.scripts,
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), FILES)
def test_a_file_takes_time_and_memory_by_its_size(tmp_path: Path, kind: str, name: str) -> None:
    file = tmp_path / "file"
    file.write_text(MADE[kind](SIZE)[name])
    result = limited(["images", "lint", "--kind", kind, str(file)], MOST_CPU_SECONDS, MOST_BYTES)
    assert result.returncode in (0, 1, 2), result.stderr[-500:]
    assert len(result.stderr.splitlines()) == (result.returncode == 2)
    assert "Traceback" not in result.stderr


@each(
    ("text", "words"),
    [
        (hostile_lint.dockerfiles(50_000)["doubling"], "stand for more than 32 MB"),
        ("FROM a\n" * 151, ":151: not a Dockerfile: it has more than 150 stages"),
        ("FROM a\n" + "RUN a\n" * 20_000, ":20001: not a Dockerfile: it has more than 20000 instructions"),
        ("FROM a\nRUN " + "a" * 300_000, ":2: not a Dockerfile: it has more than 256 KB in one instruction"),
        ("FROM a\nRUN " + "[" * 100_000, "nested too deeply"),
    ],
    ids=["doubling", "stages", "instructions", "long", "nested"],
)
def test_what_is_too_much_is_refused_in_a_line(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        lint_text(text, "dockerfile", "Dockerfile")


@pytest.mark.parametrize("text", ["[" * 101, "{a: " * 101, "".join(" " * level + "a:\n" for level in range(101))], ids=len)
def test_the_loader_in_c_never_meets_what_it_cannot_nest(text: str) -> None:
    with pytest.raises(UserError, match="nested more than 100 levels deep"):
        lint_text(text, "compose", "compose.yaml")


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM a\n" + "#" * 1_000_000)
    with pytest.raises(UserError, match="larger than 1 MB"):
        files.lint(tmp_path / "Dockerfile")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml"])
def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / name).symlink_to(tmp_path / "pipe")
    result = limited(["images", "lint", str(tmp_path)], 5, MOST_BYTES)
    assert (result.returncode, result.stderr) == (2, f"Error: {tmp_path / name}: not a regular file\n")


@pytest.mark.slow
def test_a_file_beside_that_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "compose.gpu.yaml")
    (tmp_path / "compose.yaml").write_text("services:\n  a: {extends: {file: compose.gpu.yaml, service: b}, image: x}\n")
    result = limited(["images", "lint", str(tmp_path / "compose.yaml")], 5, MOST_BYTES)
    assert result.returncode == 0


def test_a_process_substitution_is_read() -> None:
    line = f"{sys.executable} -m gpudoctor images lint --kind dockerfile <(echo FROM ubuntu)"
    assert subprocess.run(["bash", "-c", line], capture_output=True, check=False).returncode == 0


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "secret", tmp_path / "project"
    outside.write_text("FROM nvidia/cuda:11.0-base\n")
    (folder / "docker").mkdir(parents=True)
    (folder / "docker" / "Dockerfile").write_text("FROM x\n")
    (folder / "Dockerfile").symlink_to(outside)
    (folder / "Dockerfile.gpu").symlink_to("docker/Dockerfile")
    assert [path.relative_to(folder).as_posix() for path in files.search(folder)] == ["Dockerfile.gpu", "docker/Dockerfile"]
