"""Fixtures and skips that several test files share."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

# Programs start here by the hundred, and some import torch: without bytecode, each of them compiles all that it imports.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    sys.dont_write_bytecode = False

sys.path.insert(0, str(Path(__file__).parent))

import browser
import each
import lab_leftovers
from lab import (  # noqa: F401
    _cdi_daemon,
    _gpu_daemon,
    _machine,
    _podman,
    bare,
    bookworm,
    builds_alone,
    cdi_daemon,
    gpu_daemon,
    is_required,
    lab_image,
    lab_machine,
    ngc,
    nothing_left,
    podman,
    registry,
)

# Each takes seconds to start, or lets no other test be at work beside it: its tests go to one worker.
GROUPS = {name: name for name in ("gpu_daemon", "cdi_daemon", "podman", "registry")} | {"builds_alone": "registry"}


@pytest.fixture(autouse=True, scope="session")
def _state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterable[None]:
    """No test reads or writes the baseline and the redaction map of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("VIRTUAL_ENV", sys.prefix)  # the environment of the tests is active, however they were started
        patch.delenv("CONDA_PREFIX", raising=False)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterable[None]:
    """What a test leaves ignored or blocked, the programs of later tests would not hear."""
    before = _signals()
    yield
    assert _signals() == before


def _signals() -> tuple[object, ...]:
    ending = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM)
    return (*map(signal.getsignal, ending), signal.pthread_sigmask(signal.SIG_BLOCK, ()))


# What nohup or a shell's & has us ignore, the programs that tests start would ignore as well, and those end them by signals.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)

signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())

LONG = ("slow", "docker", "browser")
THERE = pytest.StashKey[frozenset[str]]()
LEFT = pytest.StashKey[list[str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[THERE] = lab_leftovers.of_all()
    if session.config.args_source is pytest.Config.ArgsSource.TESTPATHS and "PYTEST_XDIST_WORKER" in os.environ:
        _import_all(int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


def _import_all(worker: int, workers: int) -> None:
    """Each worker begins elsewhere: of new files, it then compiles its share, and finds the bytecode of the others."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py"))
    first = len(names) * worker // workers
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in (*names[first:], *names[:first]):
            with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting it will say so
                importlib.import_module(name)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Once, when all workers have ended."""
    if hasattr(session.config, "workerinput"):
        return
    left = lab_leftovers.new_since(session.config.stash[THERE], lab_leftovers.of_all)
    session.config.stash[LEFT] = left
    if left and is_required():  # else somebody may be at work beside us
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    _list(terminalreporter, "skipped", _why_skipped(terminalreporter.stats.get("skipped", [])))
    _list(terminalreporter, "still there after the tests, perhaps of another run on this machine", config.stash.get(LEFT, []))


def _why_skipped(reports: list[pytest.TestReport]) -> list[str]:
    """A line for each reason, the most frequent first."""
    reasons = Counter(str(each.longrepr[2]).removeprefix("Skipped: ") for each in reports if isinstance(each.longrepr, tuple))
    return [f"{count:5} {reason}" for reason, count in reasons.most_common()]


def _list(reporter: pytest.TerminalReporter, title: str, lines: list[str]) -> None:
    if lines:
        reporter.section(title)
        for line in lines:
            reporter.line(line)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", metavar="CASE", action="append", default=[], help="write the expected report of this machine")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("keyword") or metafunc.config.getoption("update")
    parts, names = each.parts_of(metafunc.function, by_name=bool(chosen) or any("::" in word for word in metafunc.config.args))
    if parts:
        metafunc.parametrize("part", parts, ids=names)


@pytest.fixture(scope="session")
def updated(pytestconfig: pytest.Config) -> frozenset[str]:
    """The cases of tests/machines whose reports are to be written, for review."""
    return frozenset(pytestconfig.getoption("--update"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "xdist_group: tests of one worker, where pytest-xdist has them in groups")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not any(map(item.get_closest_marker, LONG)))  # what is left for the end is short
    missing = {"gpu": _no_gpu(), "docker": _no_docker(), "browser": browser.missing()}
    for item in items:
        for fixture, group in GROUPS.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(group))
                break
        for marker, reason in missing.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """What is loaded, by now and later, stays until the end: the garbage collector searches it seldom, which saves a quarter."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def _no_gpu() -> str:
    return "" if Path("/dev/nvidiactl").exists() else "this machine has no NVIDIA GPU (/dev/nvidiactl)"


def _no_docker() -> str:
    if is_required():
        return ""
    if not shutil.which("docker"):
        return "docker is not installed"
    done = subprocess.run(["docker", "info"], capture_output=True, text=True)
    return "" if done.returncode == 0 else "no Docker daemon can be reached"
