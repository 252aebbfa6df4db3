"""The Python API, for notebooks and scripts: the commands `check`, `explain` and `diff` as functions.

The functions print nothing, change nothing, and do not replace signal handlers that your program has set. Wrong input raises
UserError. WorkError means that gpudoctor itself failed. Each message is one clear line.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Union

from gpudoctor import checkup
from gpudoctor.checkup import Checkup
from gpudoctor.choices import LEVELS, Level
from gpudoctor.errors import UserError
from gpudoctor.files import writing
from gpudoctor.results import Compared, Explanation
from gpudoctor.spelling import unknown
from gpudoctor.wanted import Wanted

PathLike = Union[str, "os.PathLike[str]"]
Progress = Callable[[str], None]


def check(
    level: Level = "standard",
    *,
    only: str | Iterable[str] = (),
    skip: str | Iterable[str] = (),
    python: PathLike | None = None,
    logs: PathLike | Iterable[PathLike] = (),
    expect_gpus: int | None = None,
    expect: PathLike | None = None,
    gpus: int | Iterable[int] = (),
    force: bool = False,
    timeout: float = 20,
    measure_timeout: float | None = None,
    experiments: bool = True,
    experiment_timeout: float = 60,
    baseline: PathLike | None = None,
    save: PathLike | None = None,
    progress: Progress | None = None,
) -> Checkup:
    """Finds what is wrong with this machine or container, and how to fix it.

    level: "quick" (no load on any GPU, about a second), "standard" (each GPU is benchmarked) or "full" (also memory, compilers
    and profilers). only: checks to run, from any level, together with the checks that they need. skip: checks to leave out.
    python: the interpreter or environment to examine; default: the running one. logs: files to analyse as well. expect_gpus: how
    many GPUs there should be. expect: a file, or the name of a known type, with what the machine should have. gpus: the GPUs to
    measure, as numbered by nvidia-smi. force: also measure GPUs that are in use.
    timeout, measure_timeout: seconds for all questions, and for all measurements (240, or 1200 at level "full"). experiments:
    repeat what failed without suspected settings, for at most experiment_timeout seconds. baseline: a file to compare with. save:
    where to write the redacted snapshot. progress: called with one line on the current activity.

    ^C stops the run and leaves nothing behind; the file of `save` contains what was measured until then.
    """
    from gpudoctor import examining

    _must_be_a_level(level)
    _must_be_numbers(timeout, measure_timeout, experiment_timeout, expect_gpus)
    wanted = Wanted(
        level,
        _each(only),
        _each(skip),
        _interpreter(python),
        expect_gpus=expect_gpus,
        expect=None if expect is None else os.fspath(expect),
        gpus=_numbers(gpus),
        force=force,
        timeout=timeout,
        measure_timeout=measure_timeout,
        experiments=experiments,
        experiment_timeout=experiment_timeout,
        baseline=None if baseline is None else Path(baseline),
    )
    wanted.checks()
    told = examining.evidence_of(_paths(logs), "logs takes texts; a snapshot is opened by gpudoctor.load(path)")
    if save is not None:
        writing.must_be_writable(Path(save))

    def tell(doing: str) -> None:
        if progress and doing:
            progress(doing)

    found, cut_off_by = examining.examined(wanted, told, tell, lambda said: warnings.warn(said, stacklevel=5))
    if save is not None:
        found.save(save)
    if cut_off_by:
        raise KeyboardInterrupt if cut_off_by == signal.SIGINT else SystemExit(128 + cut_off_by)
    return found


def load(path: PathLike, level: Level | None = None) -> Checkup:
    """Opens a file that gpudoctor wrote: a snapshot, a report as JSON or HTML, or a bundle.

    A snapshot is judged again with today's knowledge, by the checks of `level`; default: the level at which it was taken. A
    report stays as it was written.
    """
    if level is not None:
        _must_be_a_level(level)
    return checkup.load(path, level)


def explain(what: PathLike) -> Explanation:
    """Explains an id, a code, a message or a log.

    A Path is read. A string can be anything that `gpudoctor explain` takes, including a file name, or a whole text.
    """
    from gpudoctor import explaining
    from gpudoctor.report import explained

    words = os.fspath(what)
    if not words.strip() or words == "-":
        raise UserError("give an id, a code, a message, a text or a file")
    if isinstance(what, Path) and not what.exists():
        raise UserError(f"{what} does not exist")
    about = tuple(explaining.known((words,)))
    if about:
        return Explanation("\n".join(about) + "\n")
    found = explaining.checkup_of((words,))
    is_known = explaining.explained_anything(found.report)
    if not is_known and not explaining.are_files((words,)):
        about = tuple(explaining.mentioned(words))
        is_known = bool(about)
        about = about or tuple(explaining.parts_of_messages(words))
    text = "\n".join(about) + "\n" if about else explained.render(found.report)
    return Explanation(text, found, is_known)


def diff(a: Checkup | PathLike, b: Checkup | PathLike) -> Compared:
    """Compares two machines, or two days of one machine, and finds the difference that explains the problem."""
    from gpudoctor import checkup, comparing
    from gpudoctor.files import opening

    one, other = (given if isinstance(given, Checkup) else load(given, "full") for given in (a, b))
    if opening.is_redacted(one.snapshot) or opening.is_redacted(other.snapshot):
        one, other = checkup.alike(one, other)
    names = ("A" if isinstance(a, Checkup) else os.fspath(a), "B" if isinstance(b, Checkup) else os.fspath(b))
    opened = one.opened(names[0]), other.opened(names[1])
    return Compared(*opened, comparing.compare(*opened))


def _must_be_a_level(level: str) -> None:
    if level not in LEVELS:
        raise UserError(unknown("level", level, LEVELS))


def _must_be_numbers(timeout: float, measure_timeout: float | None, experiment_timeout: float, expect_gpus: int | None) -> None:
    given = {"timeout": timeout, "measure_timeout": measure_timeout, "experiment_timeout": experiment_timeout}
    for name, value in given.items():
        if value is not None and value <= 0:
            raise UserError(f"{name}={value!r}: must be a positive number of seconds")
    if expect_gpus is not None and expect_gpus < 1:
        raise UserError(f"expect_gpus={expect_gpus!r}: must be at least 1")


def _each(names: str | Iterable[str]) -> tuple[str, ...]:
    """Also accepts "gemm,attention", as on the command line."""
    return tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)


def _numbers(gpus: int | Iterable[int]) -> tuple[int, ...]:
    return (gpus,) if isinstance(gpus, int) else tuple(gpus)


def _paths(logs: PathLike | Iterable[PathLike]) -> list[str]:
    return [os.fspath(path) for path in ((logs,) if isinstance(logs, (str, os.PathLike)) else logs)]


def _interpreter(python: PathLike | None) -> str:
    """Unlike the command line, the API is called from the environment that matters: by default the running interpreter."""
    if python is None and not sys.executable:
        raise UserError("cannot find the path of this Python: give one with python=PATH")
    return sys.executable if python is None else os.path.expanduser(python)  # noqa: PTH111 (no home is no error)
