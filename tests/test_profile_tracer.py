"""The tracer in a user's program: what it records, and that the program does not notice. torch is a fake."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from waiting import until

from gpudoctor import checkup
from gpudoctor.cli import main
from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Traced
from gpudoctor.worker.tracing.around import MainThread
from gpudoctor.worker.tracing.scopes import Scopes
from gpudoctor.worker.tracing.stepping import Steps

FAKE = Path(__file__).parent / "stubs/torch_of_steps"
BEGINNING = """
    import os, sys, time
    import torch
    def train(steps, seconds=0.001):
        optimizer = torch.optim.SGD()
        for number in range(steps):
            time.sleep(seconds)
            optimizer.step()
"""


@dataclass
class Profile:
    """Runs `gpudoctor profile` on a program, in this process as far as gpudoctor goes."""

    folder: Path
    capfd: pytest.CaptureFixture[str]
    out: str = ""
    err: str = ""

    def __call__(self, script: str, *options: str, python: tuple[str, ...] = (sys.executable,), **variables: str) -> Result:
        file = self.folder / "train.py"
        file.write_text(textwrap.dedent(BEGINNING) + textwrap.dedent(script))
        argv = ["profile", "--no-check", "--no-redact", "--save", str(self.saved), *options, "--", *python, str(file)]
        result = CliRunner().invoke(main, argv, env={"PYTHONPATH": str(FAKE), **variables})
        self.out, self.err = self.capfd.readouterr()
        return result

    @property
    def saved(self) -> Path:
        return self.folder / "profile.json"

    @property
    def traced(self) -> Traced:
        found = checkup.load(self.saved).snapshot
        assert found
        return Facts(found).job.traced

    @property
    def rank(self) -> dict[str, Any]:
        (rank,) = self.traced.ranks
        return dict(rank.value)


@pytest.fixture
def profile(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Profile:
    return Profile(tmp_path, capfd)


def test_some_steps_after_the_warm_up_are_recorded_and_nothing_else_changes(profile: Profile) -> None:
    result = profile(
        """
        torch.cuda.init()
        train(60)
        print("done", [entry for entry in sys.path if "gpudoctor-profile" in entry], torch.autograd.profiler.scopes)
        print("to the other stream", file=sys.stderr)
        sys.exit(7)
        """,
        "--steps",
        "8",
        "--warmup",
        "6",
    )
    assert result.exit_code == 7
    assert (profile.out, profile.err) == ("done [] [{'user'}]\n", "to the other stream\n")
    rank = profile.rank
    assert (rank["steps"]["count"], rank["steps"]["on"], len(rank["steps"]["ms"])) == (8, "gpu", 7)
    assert rank["steps"]["outside_count"] >= 30
    assert rank["device"]["capability"] == [9, 0]
    assert rank["optimizer_steps"] == 8
    assert profile.traced.engine == "torch.profiler"
    assert "Matrix products run in full FP32" in result.stderr


def test_the_traces_are_kept_where_they_are_wanted(profile: Profile, tmp_path: Path) -> None:
    result = profile("torch.cuda.init()\ntrain(3)", "--traces", str(tmp_path / "traces"))
    assert (result.exit_code, len([*(tmp_path / "traces").glob("trace-*.json")])) == (0, 1)
    assert f"the traces are in {tmp_path / 'traces'}" in result.stderr


@pytest.mark.slow
def test_a_short_program_is_recorded_from_its_beginning(profile: Profile) -> None:
    profile("torch.cuda.init()\ntime.sleep(0.01)\ntrain(2)")
    assert (profile.rank["kernel_count"], profile.rank["steps"]) == (1, {})


@pytest.mark.slow
def test_no_window_begins_while_the_program_ends(profile: Profile) -> None:
    """CUPTI would still record while the interpreter is torn down: a segmentation fault."""
    result = profile(
        """
        torch.cuda.init()
        module = sys.modules["gpudoctor_tracing.tracer"]
        module.EARLY_SECONDS = 0.02
        kind, plain, begin = torch.autograd.profiler.Trace, torch.autograd.profiler.Trace.save, torch.autograd._enable_profiler
        def save(self, path):
            until = time.time() + 0.5  # the time of the window comes meanwhile
            while time.time() < until:
                time.sleep(0.001)
            plain(self, path)
        def told(*options):
            print("a window begins")
            begin(*options)
        kind.save, torch.autograd._enable_profiler = save, told
        while not module.tracers[0].early:
            time.sleep(0.001)
        """,
        "--after",
        "0.3s",
    )
    assert (result.exit_code, profile.out) == (0, "")
    assert profile.rank["kernel_count"] == 1


@pytest.mark.slow
def test_a_program_without_steps_is_recorded_for_some_time(profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    profile(
        """
        torch.cuda.init()
        sys.modules["gpudoctor_tracing.tracer"].EARLY_SECONDS = 0.02
        began = time.time()
        while torch.autograd.profiler.made.count("cuda") < 2 or torch.autograd.profiler.running:
            time.sleep(0.002)
            assert time.time() < began + 20
        """,
        "--for",
        "0.1s",
        "--after",
        "0.2s",
    )
    assert profile.rank["kernel_count"] == 1
    assert 0.05 < profile.rank["window_s"] < 2


@pytest.mark.slow
def test_the_programs_own_profiler_comes_first(profile: Profile) -> None:
    result = profile(
        """
        torch.cuda.init()
        train(12)
        with torch.autograd.profiler.profile():
            train(5)
        print("done")
        """,
        "--warmup",
        "5",
    )
    assert (result.exit_code, profile.out) == (0, "done\n")
    assert profile.rank["steps"]["count"] == 7
    assert "the program uses its own profiler, which comes first" in profile.traced.notes


@pytest.mark.slow
def test_a_profiler_that_already_runs_is_left_alone(profile: Profile) -> None:
    result = profile("with torch.autograd.profiler.profile():\n    torch.cuda.init()\n    train(20)\nprint('done')")
    assert (result.exit_code, profile.out) == (0, "done\n")
    assert "its own profiler" in profile.traced.nothing


@pytest.mark.slow
def test_a_crash_stays_a_crash(profile: Profile) -> None:
    result = profile("torch.cuda.init()\ntrain(12)\nraise RuntimeError('it broke')", "--warmup", "5")
    assert result.exit_code == 1
    assert "RuntimeError: it broke" in profile.err
    assert profile.rank["steps"]["count"] == 7
    assert profile.traced.ended == "exit code 1"


@pytest.mark.slow
def test_a_capture_is_not_broken(profile: Profile) -> None:
    result = profile(
        """
        torch.cuda.init()
        torch.cuda.state["capturing"] = True
        train(10)
        torch.cuda.state["capturing"] = False
        train(50)
        """
    )
    assert (result.exit_code, profile.rank["steps"]["count"]) == (0, 20)


@pytest.mark.slow
def test_children_by_fork_and_programs_by_exec(profile: Profile) -> None:
    """A fork does not write for its parent; a new program is traced instead of the one that it replaces."""
    result = profile(
        """
        if len(sys.argv) == 1:
            os.execv(sys.executable, [sys.executable, __file__, "again"])
        torch.cuda.init()
        train(3)
        if os.fork() == 0:
            train(50)
            sys.exit(0)
        print(os.wait()[1])
        """
    )
    assert (result.exit_code, profile.out) == (0, "0\n")
    assert profile.rank["steps"] == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("print('done')", "imports torch but never used CUDA"),
        ("torch.cuda.init()\ntrain(3)\nos.kill(os.getpid(), 9)", "ended before the profiler could write"),
        ("train(40)", "the program used no GPU: its steps ran on the processor"),
        (
            "import resource\ntorch.cuda.init()\nresource.setrlimit(resource.RLIMIT_FSIZE, (9, 9))\ntrain(40)",
            "could not write all of its trace",
        ),
    ],
)
def test_one_line_says_why_nothing_was_recorded(profile: Profile, script: str, said: str) -> None:
    result = profile(script)
    assert said in profile.traced.nothing
    assert f"Nothing to show: {profile.traced.nothing}." in " ".join(result.stderr.split())
    assert result.exit_code == (137 if "kill" in script else 0)


@pytest.mark.slow
def test_an_isolated_python_says_why(profile: Profile) -> None:
    profile("", python=(sys.executable, "-I"))
    assert "no Python of the command imported torch" in profile.traced.nothing


@pytest.mark.slow
def test_the_users_own_sitecustomize_runs(profile: Profile, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text("print('mine')\n")
    profile("print(sys.modules['sitecustomize'].__file__)", PYTHONPATH=f"{tmp_path / 'own'}:{FAKE}")
    assert profile.out == f"mine\n{tmp_path / 'own/sitecustomize.py'}\n"


@pytest.mark.slow
def test_the_scaler_works_as_before(profile: Profile) -> None:
    profile(
        """
        torch.cuda.init()
        train(12)
        print(torch.amp.GradScaler().update(), torch.amp.GradScaler.update.__wrapped__ is not None)
        """
    )
    assert profile.out == "updated True\n"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["no-such-program"], "no-such-program: command not found"),
        (["--for", "soon", "--", "true"], "is not a time between"),
        (["--steps", "0", "--", "true"], "Invalid value for '--steps'"),
        (["--engine", "nsys", "--", "true"], "nsys is not installed"),
        (["--compare", "one.json"], "--compare requires two files"),
        (["--kernel", " ", "--", "true"], "--kernel requires a part of the name"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(argv: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    result = CliRunner().invoke(main, ["profile", *argv])
    assert (result.exit_code, result.stderr.strip().splitlines()[-1].count(said)) == (2, 1)


@pytest.mark.slow
def test_a_real_program_on_the_processor(profile: Profile) -> None:
    """The whole way with a real torch, as far as it goes without a GPU."""
    found = importlib.util.find_spec("torch")
    if found is None or not found.origin:
        pytest.skip("torch is not installed in this environment")
    script = """
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(40):
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
            for batch in torch.utils.data.DataLoader([1]):
                pass
            torch.nn.LazyLinear(2).to("cpu")  # its parameters refuse methods that are not torch's own
        print("done")
    """
    result = profile(script, "--warmup", "3", "--steps", "5", PYTHONPATH=str(Path(found.origin).parent.parent))
    assert (result.exit_code, profile.out, profile.err) == (0, "done\n", "")
    (rank,) = profile.traced.every_rank
    assert (rank.steps, rank.kernel_count) == (5, 0)
    assert any(row["name"] == "aten::addmm" and row["calls"] == 5 for row in rank.rows("operators"))
    assert rank.count("loads") == 10  # one batch a step, and the end after it
    assert profile.traced.nothing == "the program used no GPU: its steps ran on the processor"


@pytest.mark.slow
def test_steps_that_come_late_still_count(profile: Profile) -> None:
    """torch.compile can take longer than the time for which a program without steps is recorded."""
    profile(
        """
        torch.cuda.init()
        sys.modules["gpudoctor_tracing.tracer"].EARLY_SECONDS = 0.01
        tracer = sys.modules["gpudoctor_tracing.tracer"].tracers[0]
        began = time.time()
        while tracer.state != "done":
            time.sleep(0.002)
            assert time.time() < began + 20
        train(40)
        """,
        "--for",
        "0.1s",
        "--after",
        "0.1s",
        "--warmup",
        "3",
        "--steps",
        "5",
    )
    assert profile.rank["steps"]["count"] == 5


def test_what_runs_between_two_bytecodes_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo would take the tracer's functions for parts of the program that it compiles at this moment."""
    chosen: list[Any] = []

    def choose(callback: Any) -> str:
        chosen.append(callback)
        return "the program's"

    dynamo = SimpleNamespace(set_eval_frame=choose)
    monkeypatch.setitem(sys.modules, "torch._dynamo.eval_frame", dynamo)
    called: list[list[Any]] = []
    main = MainThread(lambda failure: called.append([failure]))
    main.post(lambda: called.append([*chosen]))
    assert until(lambda: called)
    assert (called, chosen) == ([[None]], [None, "the program's"])


def test_no_recording_begins_in_a_range_that_another_one_saw_begin() -> None:
    """torch would write the end of the range into memory that it has freed."""
    scopes, seen, record_function = Scopes(), [], contextlib.nullcontext

    def step(at_start: Callable[[], object], at_end: Callable[[], object]) -> None:
        with record_function("forward"):
            at_start()
        at_end()

    def ask() -> None:
        seen.append(scopes.are_closed())

    def note_and_ask() -> None:
        scopes.note()
        ask()

    ask()
    step(note_and_ask, ask)
    step(scopes.note, str)
    step(ask, ask)
    assert seen == [True, False, True, True, True]


def test_a_program_without_gradients_is_no_range() -> None:
    """@torch.no_grad() around a whole program would leave it without a profile."""
    scopes, seen = Scopes(), list[bool]()

    def note_and_ask() -> None:
        scopes.note()
        seen.append(scopes.are_closed())

    for file, name in (("utils/_contextlib.py", "decorate_context"), ("autograd/profiler.py", "decorate_context")):
        code = compile(f"def {name}(call):\n    call()", f"/usr/lib/python3/dist-packages/torch/{file}", "exec")
        names: dict[str, Any] = {}
        exec(code, names)
        names[name](note_and_ask)
    assert seen == [True, False]


def test_a_step_is_late_that_lasts_much_longer_than_the_others() -> None:
    steps = Steps(None)
    now = time.time_ns()
    steps.ended_ns += [now - ago * 1_000_000 for ago in (950, 940, 930, 920, 910, 900)]
    assert steps.is_late()
    steps.ended_ns.append(time.time_ns())
    assert not steps.is_late()


@pytest.mark.slow
def test_each_rank_has_its_own_profile(profile: Profile, tmp_path: Path) -> None:
    """As a launcher starts them, with their ranks in variables."""
    script = "torch.cuda.init()\ntrain(40)"
    launcher = tmp_path / "launch.sh"
    launcher.write_text('for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 "$@" & done; wait\n')
    result = profile(script, python=("sh", str(launcher), sys.executable))
    assert [(rank.number, rank.steps) for rank in profile.traced.ranks] == [(0, 20), (1, 20)]
    assert "Ranks" in result.stderr
