"""`gpudoctor why`: from a command that fails or is slow to the cause, with what is repeated, asked and left."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import machine
import pytest
from click.testing import CliRunner, Result
from each import each
from terminal import Terminal

from gpudoctor import checkup, doctor, examining
from gpudoctor.checkup import Checkup
from gpudoctor.cli import main, solving
from gpudoctor.errors import UserError
from gpudoctor.evidence import Evidence
from gpudoctor.facts.command import QUESTION
from gpudoctor.files import snapshot
from gpudoctor.judging.experiments.outcome import Outcome
from gpudoctor.judging.experiments.proof import Proof
from gpudoctor.judging.experiments.suspect import ENTRY, FOLDER, HIDDEN, VARIABLE, Suspect
from gpudoctor.model import Reply
from gpudoctor.trying import command
from gpudoctor.trying.start import Goal, Ran
from gpudoctor.wanted import Wanted
from gpudoctor.why.case import outcome
from gpudoctor.why.search import is_alike
from gpudoctor.why.variables import named_by, own_files

NEEDS = """
    import os
    print("starting", flush=True)
    if "CUDA_LAUNCH_BLOCKING" in os.environ and "NCCL_PROTO" in os.environ:
        raise RuntimeError("the collective timed out")
    if os.environ.get("APP_MODE") == "fast":
        raise SystemExit("fast mode needs two GPUs")
"""


@dataclass
class Why:
    """Runs the command line in this process, with a quick check that has already been made."""

    folder: Path
    checks: list[Wanted]

    def __call__(self, *words: str, script: str = "", **variables: str) -> Result:
        argv = list(words)
        if script:
            file = self.folder / "program.py"
            file.write_text(textwrap.dedent(script))
            argv += ["--", sys.executable, str(file)]
        return CliRunner().invoke(main, ["why", *argv], env=variables)


@pytest.fixture
def why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Why:
    checks: list[Wanted] = []
    taken = replace(machine.load("h100"), measured={}, level="quick")

    def examined(wanted: Wanted, told: Evidence | None, tell: object, warn: object) -> tuple[Checkup, int]:
        checks.append(wanted)
        return Checkup(snapshot=examining.with_evidence(taken, told)), 0

    monkeypatch.setattr(examining, "examined", examined)
    for name in ("CUDA_LAUNCH_BLOCKING", "NCCL_PROTO", "APP_MODE"):
        monkeypatch.delenv(name, raising=False)
    return Why(tmp_path, checks)


def test_a_command_that_works_is_left_alone(why: Why, capfd: pytest.CaptureFixture[str]) -> None:
    result = why("--yes", script=NEEDS)
    assert result.exit_code == 0
    assert "the command worked" in result.stderr
    assert capfd.readouterr().out == "starting\n"
    assert why.checks == []


def test_what_decides_is_named_with_its_fix(why: Why, tmp_path: Path) -> None:
    saved = tmp_path / "why.json"
    result = why("--yes", "--no-redact", "--save", str(saved), script=NEEDS, APP_MODE="fast", OMP_SCHEDULE="dynamic")
    assert result.exit_code == 1
    first = result.stderr.partition("DIAGNOSIS")[2]
    assert "APP_MODE is set: the command fails (fast mode needs two GPUs) and works without it" in " ".join(first.split())
    assert "unset APP_MODE" in first
    assert why.checks[0].python == sys.executable
    again = checkup.load(saved)
    assert again.snapshot
    assert Proof.from_value(again.snapshot.experiments[QUESTION].value).is_confirmed
    assert next(entry.problem for entry in again.diagnosis) == "variable-breaks-programs"
    assert "fast mode" not in again.report.target.get("image", "")


@pytest.mark.slow
def test_two_that_only_break_it_together(why: Why) -> None:
    result = why("--yes", "--format", "json", script=NEEDS, CUDA_LAUNCH_BLOCKING="1", NCCL_PROTO="LL")
    found = json.loads(result.stdout)["diagnosis"][0]
    assert (found["problem"], found["confidence"]) == ("variable-breaks-programs", "confirmed")
    assert re.match("(CUDA_LAUNCH_BLOCKING|NCCL_PROTO) is set to", found["message"])


def test_a_report_for_a_program_has_the_standard_output(why: Why, capfd: pytest.CaptureFixture[str]) -> None:
    result = why("--format", "json", script=NEEDS, APP_MODE="fast")
    json.loads(result.stdout)
    shown = capfd.readouterr()
    assert (shown.out, "starting" in shown.err) == ("", True)


def test_without_a_terminal_and_yes_it_only_explains(why: Why, tmp_path: Path) -> None:
    log = tmp_path / "runs"
    counting = f"open({str(log)!r}, 'a').write('x')\nraise RuntimeError('CUDA error: an illegal memory access was encountered')"
    result = why(script=counting)
    assert log.read_text() == "x"
    assert result.exit_code == 1
    assert "A kernel of the program did something the GPU forbids" in result.stderr
    assert "it was not repeated: there is no terminal to ask on" in result.stderr


@pytest.mark.slow
def test_nothing_known_is_code_3_with_what_was_tried(why: Why) -> None:
    result = why("--yes", "--", "sh", "-c", "echo the frobnicator is out of cheese >&2; exit 4")
    words = " ".join(result.stderr.split())
    assert result.exit_code == 3
    assert "The command failed, and its cause was not found" in words
    assert "ended with exit code 4; it fails in the same way without" in words


@pytest.mark.slow
def test_what_fails_only_once_is_not_blamed_on_a_setting(why: Why, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    script = f"test -e {flag} && exit 0; touch {flag}; exit 1"
    result = why("--yes", "--", "sh", "-c", script, OMP_SCHEDULE="dynamic")
    assert (result.exit_code, "it fails only sometimes" in " ".join(result.stderr.split())) == (3, True)


@pytest.mark.slow
def test_what_needs_its_input_is_said(why: Why) -> None:
    script = "read word || { echo no input >&2; exit 9; }; echo $word >&2; exit 1"
    reading = ["--yes", "--", "sh", "-c", script]
    before, (source, sink) = os.dup(0), os.pipe()
    os.write(sink, b"hello\n")
    os.dup2(source, 0)
    try:
        result = why(*reading)
    finally:
        os.dup2(before, 0)
        for number in (before, source, sink):
            os.close(number)
    said = " ".join(result.stderr.split())
    assert "repeated without input and terminal, it failed in another way: no input" in said


@pytest.mark.slow
def test_a_slow_command_is_compared_by_its_metric(why: Why) -> None:
    script = "import os; print(f\"{10 if 'OMP_NUM_THREADS' in os.environ else 80} samples/s\")"
    result = why("--yes", "--metric", "([0-9.]+) samples/s", "--at-least", "50", script=script, OMP_NUM_THREADS="1")
    said = " ".join(result.stderr.split())
    assert result.exit_code == 1
    assert "OMP_NUM_THREADS is set to 1: the command reaches 10 samples/s, but 80 samples/s without it" in said


@pytest.mark.slow
def test_a_folder_can_make_a_command_slow(why: Why, tmp_path: Path) -> None:
    full = tmp_path / "cache"
    full.mkdir()
    (full / "entry").touch()
    script = "import os; print(10 if os.listdir(os.environ['TORCHINDUCTOR_CACHE_DIR']) else 90, 'it/s')"
    result = why("--yes", "--metric", "([0-9]+) it/s", "--at-least", "50", script=script, TORCHINDUCTOR_CACHE_DIR=str(full))
    said = " ".join(result.stderr.split())
    assert f"TORCHINDUCTOR_CACHE_DIR is {full}: the command reaches 10 it/s, but 90 it/s with a fresh folder" in said


@pytest.mark.slow
def test_an_address_is_taken_away_but_never_shown(why: Why) -> None:
    script = "import os\nif 'MASTER_ADDR' in os.environ: raise SystemExit('no answer from the first rank')"
    result = why("--yes", script=script, MASTER_ADDR="10.77.66.55", HF_TOKEN="hf_private")
    said = " ".join(result.stderr.split())
    assert "MASTER_ADDR is set: the command fails (no answer from the first rank) and works without it" in said
    assert not {"10.77.66.55", "hf_private", "HF_TOKEN"} & {*re.findall(r"[\w.]+", said)}


@pytest.mark.slow
def test_attempts_are_the_most_repeats(why: Why, tmp_path: Path) -> None:
    log = tmp_path / "runs"
    result = why("--yes", "--attempts", "2", "--", "sh", "-c", f"echo x >> {log}; exit 1")
    assert len(log.read_text().split()) <= 3
    assert result.exit_code == 3


@pytest.mark.slow
def test_differences_to_a_good_machine_are_the_suspects(why: Why, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = tmp_path / "good.json"
    taken = replace(machine.load("h100"), measured={}, level="quick")
    variables = {**taken.replies["environment"].value, "TF_ONLY_THERE": "1"}
    good.write_bytes(snapshot.dump(replace(taken, replies={**taken.replies, "environment": Reply("ok", variables)})))
    here = {**taken.replies["environment"].value, "NCCL_PROTO": "LL"}
    bad = replace(taken, replies={**taken.replies, "environment": Reply("ok", here)})
    monkeypatch.setattr(examining, "examined", lambda wanted, told, *_: (Checkup(snapshot=examining.with_evidence(bad, told)), 0))
    script = "import os\nif 'NCCL_PROTO' in os.environ: raise SystemExit('bad protocol')"
    result = why("--yes", "--like", str(good), script=script, NCCL_PROTO="LL", OMP_SCHEDULE="dynamic")
    said = " ".join(result.stderr.split())
    assert "without one or more of: NCCL_PROTO=LL." in said
    assert "environment TF_ONLY_THERE: there 1, here absent" in said
    assert "NCCL_PROTO is set to LL: the command fails (bad protocol) and works without it" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Missing argument"),
        (("",), "the command is empty"),
        (("no-such-program",), "no-such-program: command not found"),
        (("/no/such/program",), "/no/such/program does not exist"),
        ((f"/etc/passwd/{'x' * 300}",), "cannot be run: "),
        (("/",), "/ is a folder, not a program"),
        (("--until", "(", "true"), "is not a regular expression"),
        (("--metric", "x", "true"), "--metric and --at-least require each other"),
        (("--like", "/no/such.json", "true"), "/no/such.json"),
        (("--image", "a", "--container", "b", "true"), "cannot be used together"),
        (("--format", "nonsense", "true"), "nonsense"),
    ],
)
def test_bad_input_is_one_clear_line(why: Why, words: tuple[str, ...], said: str) -> None:
    result = why(*words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_script_without_permission_names_the_python(why: Why, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    result = why(str(tmp_path / "train.py"))
    assert "is not executable (for a Python script: gpudoctor why -- python" in result.stderr


def test_the_signal_of_a_killed_command_is_explained(why: Why) -> None:
    result = why("--", "sh", "-c", "kill -KILL $$")
    assert "The host's memory, not the GPU's, ran out" in result.stderr
    assert "was killed by SIGKILL" in result.stderr


def test_a_hanging_command_says_what_it_does(why: Why) -> None:
    result = why("--timeout", "0.3", "--", "sleep", "600")
    said = " ".join(result.stderr.split())
    assert "The command did not end in time" in said
    assert re.search(r"did not end within 0.3 s; sleep \(pid \d+\) is (waiting|running)", said)


def test_a_check_that_fails_leaves_the_words(why: Why, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise UserError("no Python found")

    monkeypatch.setattr(examining, "examined", refuses)
    result = why("--", "sh", "-c", "echo 'OSError: [Errno 24] Too many open files' >&2; exit 1")
    assert "only the output is explained: no Python found" in result.stderr
    assert "limit on open files" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["examined", "repeated"])
def test_an_interrupt_leaves_a_report(why: Why, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, phase: str) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    if phase == "examined":
        monkeypatch.setattr(examining, "examined", interrupted)
    else:
        monkeypatch.setattr("gpudoctor.why.search.laboratory.again", interrupted)
    report = tmp_path / "report.json"
    result = why("--yes", "-o", str(report), "--", "sh", "-c", "exit 5")
    assert result.exit_code == 128 + signal.SIGINT
    assert "command-failed" in {entry["problem"] for entry in json.loads(report.read_text())["diagnosis"]}


def test_an_interrupt_of_the_first_run_is_all_that_is_said(why: Why) -> None:
    result = why("--", "sh", "-c", "kill -INT $$")
    assert result.exit_code == 128 + signal.SIGINT
    assert re.fullmatch(r"gpudoctor: interrupted in its first run, after [\d.]+ s: nothing was .*\n", result.stderr)
    explained = why("--", "sh", "-c", "echo 'OSError: [Errno 24] Too many open files' >&2; kill -INT $$")
    assert "limit on open files" in explained.stderr
    assert "checks" not in explained.stderr.partition("DIAGNOSIS")[0]


@pytest.mark.slow
def test_the_user_is_asked_before_a_repeat(tmp_path: Path) -> None:
    log = tmp_path / "runs"
    env = {**os.environ, "TERM": "dumb", "HOME": str(tmp_path)}
    there = Terminal([sys.executable, "-m", "gpudoctor", "why", "--", "sh", "-c", f"echo x >> {log}; exit 1"], env, tmp_path)
    there.expect("It is repeated at most 16 times")
    there.expect(r"Repeat it\? \[y/N\]")
    there.type("n\n")
    there.expect("it was not repeated, as you wanted")
    assert there.wait() == 3
    assert log.read_text() == "x\n"


def test_a_report_of_a_machine_without_a_command_is_unchanged() -> None:
    report = doctor.judge_at_its_level(replace(machine.load("h100"), measured={}), "quick")
    row = next(row for row in report.checks if row.id == "command")
    assert (row.status.value, row.reason) == ("skip", "not applicable")


@each(
    ("argv", "rest", "variables"),
    [
        (("env", "A=1", "-u", "B", "x"), ("x",), {"A": "1"}),
        (("/usr/bin/env", "A=1", "B=2", "x", "C=3"), ("x", "C=3"), {"A": "1", "B": "2"}),
        (("env", "-i", "x"), ("env", "-i", "x"), {"B": "0"}),
        (("env",), ("env",), {"B": "0"}),
        (("x", "A=1"), ("x", "A=1"), {"B": "0"}),
    ],
)
def test_variables_of_env_belong_to_the_command(argv: tuple[str, ...], rest: tuple[str, ...], variables: dict[str, str]) -> None:
    assert command.unwrapped(argv, {"B": "0"}) == (rest, variables)


@pytest.mark.parametrize(
    ("first_line", "python"),
    [
        ("#!{python}", "{python}"),
        ("#!{python} -I", "{python}"),
        ("#!/usr/bin/env python3", "{folder}/python3"),
        ("#!/usr/bin/env -S python3 -u", "{folder}/python3"),
        ("#!/bin/sh", None),
        ("\x7fELF", None),
        ("#!", None),
        ('#!"', None),
    ],
)
def test_the_python_of_a_command(tmp_path: Path, first_line: str, python: str | None) -> None:
    names = {"python": sys.executable, "folder": str(tmp_path)}
    (tmp_path / "python3").symlink_to(sys.executable)
    script = tmp_path / "torchrun"
    script.write_text(first_line.format(**names) + "\n")
    script.chmod(0o755)
    wanted = python and python.format(**names)
    assert command.python_of([str(script)], {"PATH": str(tmp_path)}) == wanted
    assert command.python_of(["torchrun"], {"PATH": str(tmp_path)}) == wanted
    assert command.python_of(["python3"], {"PATH": str(tmp_path)}) == str(tmp_path / "python3")


RUN = [
    ("uv run train.py", {}, "/w/.venv"),
    ("uv run --project /w/other -- torchrun train.py", {}, "/w/other/.venv"),
    ("uv run python -m x", {"UV_PROJECT_ENVIRONMENT": "/opt/env"}, "/opt/env"),
    ("uv run --no-project train.py", {"VIRTUAL_ENV": "/opt/active"}, "/opt/active"),
    ("uv run --active train.py", {"VIRTUAL_ENV": "/opt/active"}, "/opt/active"),
    ("uv run inline.py", {}, None),
    ("uv run --with numpy train.py", {}, None),
    ("uv pip list", {}, None),
    ("conda run -n ml python train.py", {"CONDA_EXE": "/w/conda/bin/conda"}, "/w/conda/envs/ml"),
    ("conda run --no-capture-output -p /opt/p x", {}, "/opt/p"),
    ("micromamba run -n ml x", {"MAMBA_ROOT_PREFIX": "/w/conda"}, "/w/conda/envs/ml"),
    ("conda run -n base x", {"CONDA_PREFIX": "/w/conda/envs/ml"}, "/w/conda"),
    ("conda run -n absent x", {"CONDA_EXE": "/w/conda/bin/conda"}, None),
    ("pixi run train", {}, "/w/.pixi/envs/default"),
    ("pixi run -e cuda train", {}, "/w/.pixi/envs/cuda"),
    ("poetry run train", {}, "/w/.venv"),
    ("poetry run train", {"OUTSIDE": "1"}, "/cache/virtualenvs/x-py3.12"),
]


@each(("line", "variables", "prefix"), RUN)
def test_the_python_of_what_runs_in_an_environment(
    line: str, variables: dict[str, str], prefix: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.chdir(folder)
        top = Path(folder).resolve()
        for name in ("other", ".venv", "conda/envs/ml", "bin"):
            (top / name).mkdir(parents=True)
        for name in ("pyproject.toml", "other/pyproject.toml", "pixi.toml"):
            (top / name).touch()
        (top / "inline.py").write_text("# /// script\n# dependencies = []\n# ///\n")
        if "OUTSIDE" in variables:
            (top / ".venv").rmdir()
        for name in ("uv", "conda", "micromamba", "pixi", "poetry"):
            program = top / "bin" / name
            program.write_text("#!/bin/sh\necho /cache/virtualenvs/x-py3.12\n")
            program.chmod(0o755)
        here = {name: value.replace("/w", str(top)) for name, value in variables.items()}
        found = command.python_of(line.replace("/w/", f"{top}/").split(), {"PATH": f"{top}/bin", **here})
        assert found == (f"{prefix.replace('/w', str(top))}/bin/python" if prefix else None)


@each("line", ["nice -n 5 {python} train.py", "timeout 60 {python} x.py", "taskset -c 0-3 {python} -c 1", "srun -n 2 {python} x"])
def test_the_python_behind_a_wrapper(line: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("nice", "timeout", "taskset", "srun"):
            (Path(folder) / name).write_bytes(b"\x7fELF")
            (Path(folder) / name).chmod(0o755)
        assert command.python_of(line.format(python=sys.executable).split(), {"PATH": folder}) == sys.executable


@each(
    ("words", "folder"),
    [
        (("python", "/srv/train.py", "-c"), "/srv"),
        (("python3.11", "-u", "-X", "dev", "/srv/train.py"), "/srv"),
        (("python", "-m", "torch"), "."),
        (("python", "-c", "1"), "."),
        (("python", "-uc", "1"), "."),
        (("python", "-I", "/srv/train.py"), ""),
        (("torchrun", "--nproc-per-node=2", "/srv/train.py"), "/srv"),
        (("nvidia-smi",), ""),
    ],
)
def test_the_folder_that_python_searches_first(words: tuple[str, ...], folder: str) -> None:
    assert command.folder_of(words) == (str(Path.cwd()) if folder == "." else folder)


@each(
    ("printed", "error"),
    [
        ("Traceback\nValueError: bad 1\n==========\nroot cause\n==========\n", "ValueError: bad 1"),
        ("[rank0]: RuntimeError: NCCL error\nE0101 torchrun: exitcode 1\n", "RuntimeError: NCCL error"),
        ("\x1b[31mValueError\x1b[0m: bad\x1b]0;title\x07\n", "ValueError: bad"),
        ("ld: error: cannot find -lcuda\nmake: *** [all] Error 1\n", "ld: error: cannot find -lcuda"),
        ("one\ntwo\n\n", "two"),
        ("", ""),
    ],
)
def test_the_last_words_end_with_the_error(printed: str, error: str) -> None:
    ran = Ran(1, 0.1, output=printed.encode())
    assert outcome(ran, Goal()).words.rpartition("\n")[2] == error


def test_a_repeat_without_a_terminal_is_alike() -> None:
    def failed(words: str) -> Outcome:
        return Outcome(False, "exit code 1", words)

    assert is_alike(failed("ValueError: a long line that"), failed("ValueError: a long"))
    assert not is_alike(failed("ValueError: bad"), failed("EOFError: EOF when reading a line"))
    assert not is_alike(failed("bad"), failed("worse"))


def test_many_suspects_are_listed_in_short() -> None:
    found: Callable[..., str] = solving._listed
    variables = [Suspect(VARIABLE, name, "1") for name in "ABCDEF"]
    assert found(variables) == "A=1, B=1, C=1, D=1 and 2 more"
    of_path = [Suspect(ENTRY, "PATH", f"/{number}") for number in range(3)]
    folders = [Suspect(FOLDER, name, "/tmp") for name in ("TMPDIR", "HOME", "TRITON_CACHE_DIR")]
    assert found([*of_path, *folders, variables[0]]) == "3 entries of PATH, 3 folders such as TMPDIR and HOME, A=1"
    assert found(of_path[:2]) == "/0 in PATH, /1 in PATH"


COMPILES = """
    import os, pathlib
    built = pathlib.Path(os.environ.get("TRITON_CACHE_DIR") or pathlib.Path.home() / ".triton" / "cache", "launcher.so")
    if not built.exists():
        if os.environ.get("{variable}") == "{value}":
            raise FileNotFoundError({words})
        built.parent.mkdir(parents=True, exist_ok=True)
        built.touch()
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", ["2, 'No such file or directory', '/opt/gcc-9/bin/gcc'", "'cannot compile the launcher'"])
def test_what_a_repeat_compiles_does_not_help_the_next(why: Why, tmp_path: Path, words: str) -> None:
    script = COMPILES.format(variable="CC", value="/opt/gcc-9/bin/gcc", words=words)
    result = why("--yes", script=script, CC="/opt/gcc-9/bin/gcc", HOME=str(tmp_path), NCCL_PROTO="LL")
    assert "CC is set to /opt/gcc-9/bin/gcc: the command fails" in " ".join(result.stderr.split())
    assert "confirmed by experiment" in " ".join(result.stderr.split())
    assert not (tmp_path / ".triton").exists()


@pytest.mark.slow
def test_a_broken_cache_is_found_by_an_empty_one(why: Why, tmp_path: Path) -> None:
    (tmp_path / ".triton" / "cache" / "launcher.so").mkdir(parents=True)
    script = COMPILES.format(variable="", value="", words="") + "    assert built.is_file(), 'the launcher cannot be loaded'\n"
    result = why("--yes", script=script, HOME=str(tmp_path), NCCL_PROTO="LL")
    assert "TRITON_CACHE_DIR is" in result.stderr
    assert "confirmed by experiment" in " ".join(result.stderr.split())


def test_a_variable_that_the_program_reads_is_tried_before_others(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("world = int(os.environ.get('WORLD_SIZE', 2))  # of ranks")
    (tmp_path / "large").write_bytes(b"MODE " * (1 << 20))
    found = [
        Suspect(VARIABLE, name, HIDDEN, "", weight) for name, weight in (("MODE", 1), ("NCCL_PROTO", 150), ("WORLD_SIZE", 1))
    ]
    sources = own_files(["python3", str(tmp_path / "train.py"), str(tmp_path / "large"), str(tmp_path), "no\0file"])
    weights = {suspect.name: suspect.weight for suspect in named_by(sources, found)}
    assert 1 == weights["MODE"] < weights["WORLD_SIZE"] < weights["NCCL_PROTO"]


@pytest.mark.slow
def test_a_variable_whose_value_the_output_contains_is_tried_first(why: Why, tmp_path: Path) -> None:
    script = """
        import os
        if os.environ.get("MASTER_ADDR"):
            print(f"cannot resolve {os.environ['MASTER_ADDR']}:29500", flush=True)
            raise RuntimeError("the rendezvous failed")
    """
    saved = tmp_path / "why.json"
    why("--yes", "--no-redact", "--save", str(saved), script=script, MASTER_ADDR="node-17.cluster", NCCL_PROTO="LL")
    proof = Proof.from_value(snapshot.load(str(saved)).experiments[QUESTION].value)
    assert [suspect.name for suspect in proof.guilty] == ["MASTER_ADDR"]
    assert len(proof.trials) == 3
    assert "node-17" not in saved.read_text().replace("cannot resolve node-17", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("works", "problem", "fix"),
    [
        ("NCCL_P2P_DISABLE') == '1'", "gpu-path-breaks-programs", "export NCCL_P2P_DISABLE=1"),
        ("CUDA_VISIBLE_DEVICES') == '0'", "gpu-breaks-programs", "export CUDA_VISIBLE_DEVICES=0"),
        ("NOTHING')", "command-failed", ""),
    ],
)
def test_parts_are_tried_if_no_setting_decides(
    why: Why, monkeypatch: pytest.MonkeyPatch, works: str, problem: str, fix: str
) -> None:
    taken = replace(machine.load("h200-x2"), measured={}, level="quick")
    monkeypatch.setattr(examining, "examined", lambda w, told, *_: (Checkup(snapshot=examining.with_evidence(taken, told)), 0))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    script = f"import os\nif not os.environ.get('{works}: raise SystemExit('the NCCL ranks disagree')"
    result = why("--yes", "--format", "json", script=script)
    assert "it is also repeated without direct access between GPUs (NVLink, PCIe)" in " ".join(result.stderr.split())
    first = json.loads(result.stdout)["diagnosis"][0]
    assert first["problem"] == problem
    assert not fix or fix in first["fixes"][0]["command"]
    assert first["confidence"] == ("confirmed" if fix else "unknown")


@pytest.mark.slow
def test_a_variable_is_set_as_on_the_good_machine(why: Why, tmp_path: Path) -> None:
    taken = replace(machine.load("h100"), measured={}, level="quick")
    variables = {**taken.replies["environment"].value, "CUPY_TF32": "1"}
    good = tmp_path / "good.json"
    good.write_bytes(snapshot.dump(replace(taken, replies={**taken.replies, "environment": Reply("ok", variables)})))
    script = "import os\nif os.environ.get('CUPY_TF32') != '1': raise SystemExit('it does not converge')"
    result = why("--yes", "--like", str(good), script=script)
    said = " ".join(result.stderr.split())
    assert "CUPY_TF32 is not 1: the command fails (it does not converge) and works with CUPY_TF32=1" in said
    assert "export CUPY_TF32=1" in said
