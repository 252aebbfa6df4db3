"""`gpudoctor profile` of Python programs without torch: cupti-python in the program, with the tables of torch's profiler."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpudoctor import checkup
from gpudoctor.cli import main
from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Traced
from gpudoctor.jobs.tracing import engines

FAKE = Path(__file__).parent / "stubs/cupti_of_kernels"
Ran = Callable[..., tuple[Result, Traced]]


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Runs a program whose Python has cupti-python, and no torch."""
    monkeypatch.setattr(engines, "_modules", lambda argv, variables: "['cupti']")

    def run(script: str, *options: str, **variables: Any) -> tuple[Result, Traced]:
        file, saved = tmp_path / "program.py", tmp_path / "profile.json"
        file.write_text(textwrap.dedent(script))
        argv = ["profile", "--no-check", "--no-redact", "--save", str(saved), *options, "--", sys.executable, str(file)]
        result = CliRunner().invoke(main, argv, env={"PYTHONPATH": str(FAKE), **variables})
        taken = checkup.load(saved).snapshot
        assert taken
        return result, Facts(taken).job.traced

    return run


def test_a_short_program_is_recorded_from_its_beginning(profile: Ran) -> None:
    script = """
        import sys, cupy
        for number in range(20):
            cupy.kernel("saxpy")
        cupy.copy(1 << 20)
        sys.exit(5)
    """
    result, traced = profile(script)
    assert (result.exit_code, traced.engine) == (5, "cupti-python")
    assert "has cupti-python, and no torch" in traced.why
    (rank,) = traced.ranks
    assert (rank.kernel_count, round(rank.seconds("kernel_s") * 1e6)) == (20, 1000)
    kernel = rank.rows("kernels")[0]
    assert {name: kernel[name] for name in ("name", "calls", "grid", "block", "registers", "shared_bytes")} == {
        "name": "saxpy",
        "calls": 20,
        "grid": [8, 1, 1],
        "block": [256, 1, 1],
        "registers": 32,
        "shared_bytes": 1024,
    }
    assert rank.rows("copies")[0]["name"] == "Memcpy HtoD (Pageable -> Device)"
    assert rank.calls["by_time"][0]["name"] == "cudaLaunchKernel"
    assert rank.window < 30


def test_a_window_leaves_out_what_was_before_and_after(profile: Ran) -> None:
    script = """
        import sys, time, cupy
        recorder = sys.modules["gpudoctor_tracing.activity"].attached[0]
        cupy.kernel("before")
        began = recorder._began_ns
        while recorder._began_ns == began:
            time.sleep(0.001)
        while not recorder._has_ended:
            cupy.kernel("within")
            time.sleep(0.001)
        for number in range(10):
            cupy.kernel("after")
    """
    _, traced = profile(script, "--after", "0.1s", "--for", "0.2s")
    (rank,) = traced.ranks
    assert {row["name"] for row in rank.rows("kernels")} == {"within"}


WAITS = """
    import sys, time, types, cupy
    {}
    recorder = sys.modules["gpudoctor_tracing.activity"].attached[0]
    cupy.kernel("before")
    while not recorder._has_ended:
        cupy.kernel("within")
        time.sleep(0.001)
"""


@pytest.mark.parametrize("uses_torch", [False, True])
def test_where_both_are_installed_the_program_decides(profile: Ran, monkeypatch: pytest.MonkeyPatch, uses_torch: bool) -> None:
    monkeypatch.setattr(engines, "_modules", lambda argv, variables: "['torch', 'cupti']")
    torch = "sys.modules['torch'] = types.SimpleNamespace(cuda=types.SimpleNamespace(is_initialized=lambda: True))"
    _, traced = profile(WAITS.format(torch if uses_torch else ""), "--after", "0.1s", "--for", "0.2s")
    if uses_torch:
        assert (traced.engine, traced.every_rank) == ("torch.profiler", ())
        return
    assert (traced.engine, "without torch" in traced.why) == ("cupti-python", True)
    assert {row["name"] for row in traced.ranks[0].rows("kernels")} == {"within"}


def test_a_program_that_ends_before_cupti_records_says_so(profile: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_modules", lambda argv, variables: "['torch', 'cupti']")
    _, traced = profile("import cupy")
    assert "ended in the first 3 seconds" in traced.nothing


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "variables", "said"),
    [
        ("import cupy", {"CUPTI_IS_TAKEN": "1"}, "ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
        ("import cupy", {}, "CUPTI recorded no kernel"),
        ("print(5)", {}, "imported a library for CUDA"),
    ],
)
def test_one_line_says_why_nothing_was_recorded(profile: Ran, script: str, variables: dict[str, str], said: str) -> None:
    result, traced = profile(script, **variables)
    assert (result.exit_code, said in traced.nothing) == (0, True), traced.nothing


def test_the_engine_is_chosen_by_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "nsys", lambda: "/opt/nsys")
    python = ("python", "train.py")
    for modules, engine in (("['torch', 'cupti']", "torch.profiler"), ("['cupti']", "cupti-python"), ("[]", "nsys")):
        monkeypatch.setattr(engines, "_modules", lambda argv, variables, found=modules: found)
        assert engines.chosen("auto", python, {}).name == engine
    monkeypatch.setattr(engines, "nsys", lambda: "")
    assert engines.chosen("auto", python, {}).name == "torch.profiler"
