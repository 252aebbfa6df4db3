"""The search for what decides: suspects, changes, the order of runs, and what the outcomes prove."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import msgspec
import pytest
from each import each

from gpudoctor.facts.guarded import WRONG
from gpudoctor.judging.experiments import proof as proofs
from gpudoctor.judging.experiments import telling, verdict
from gpudoctor.judging.experiments.change import Change, change
from gpudoctor.judging.experiments.outcome import Outcome, improved
from gpudoctor.judging.experiments.proof import Proof, Trial
from gpudoctor.judging.experiments.search import proved, search
from gpudoctor.judging.experiments.suspect import ENTRY, FOLDER, LIMIT, USER_SITE, VARIABLE, Surroundings, Suspect
from gpudoctor.judging.experiments.suspects import Failure, suspects

FAILS, WORKS = Outcome(False, "error", "RuntimeError: it broke at 0x7f12"), Outcome(True)
Run = Callable[[tuple[Suspect, ...]], Outcome]


def some(number: int) -> tuple[Suspect, ...]:
    return tuple(Suspect(VARIABLE, f"NCCL_{number}", "1") for number in range(number))


def works_without(*sets: Iterable[Suspect]) -> Run:
    """A program that works if all suspects of one of these sets are away."""
    return lambda away: WORKS if any({*each} <= {*away} for each in sets) else FAILS


def counted(every: tuple[Suspect, ...], run: Run) -> Proof:
    return proved(search("it", every, FAILS), run)


@each("guilty", range(10))
def test_one_guilty_of_ten_takes_at_most_seven_runs(guilty: int) -> None:
    every = some(10)
    found = counted(every, works_without([every[guilty]]))
    assert (found.verdict, found.guilty) == (proofs.CONFIRMED, (every[guilty],))
    assert len(found.trials) - 1 <= 7
    assert every[guilty] not in found.ruled_out


def test_a_likely_one_takes_two_runs() -> None:
    every = (Suspect(VARIABLE, "A", "1", weight=1000), *some(20))
    found = counted(every, works_without([every[0]]))
    assert [trial.away for trial in found.trials] == [(), (0,), ()]
    assert found.is_confirmed


@each("seed", range(60))
def test_random_sets_that_matter_together_are_found(seed: int) -> None:
    chance = random.Random(seed)
    every = tuple(Suspect(VARIABLE, f"A{n}", "", weight=chance.choice((1, 10, 90, 1000))) for n in range(chance.randint(2, 14)))
    guilty = chance.sample(every, chance.randint(1, min(3, len(every))))
    found = counted(every, works_without(guilty))
    assert (found.verdict, {*found.guilty}) == (proofs.CONFIRMED, {*guilty})


@each("seed", range(30))
def test_of_two_that_suffice_one_smallest_set_is_found(seed: int) -> None:
    chance = random.Random(seed)
    every = some(9)
    sets = [chance.sample(every, chance.randint(1, 3)) for _ in range(2)]
    found = counted(every, works_without(*sets))
    assert found.is_confirmed
    assert any({*each} == {*found.guilty} for each in sets)


def test_the_cause_lies_elsewhere_if_it_fails_without_all() -> None:
    every = some(8)
    found = counted(every, works_without())
    assert (found.verdict, found.guilty, found.ruled_out) == (proofs.ELSEWHERE, (), every)
    assert len(found.trials) == 2


def test_a_suspect_that_is_needed_does_not_hide_the_guilty() -> None:
    """Without the first it fails in another way, as without a folder of libraries that it needs."""
    every = some(6)

    def run(away: tuple[Suspect, ...]) -> Outcome:
        if every[0] in away:
            return Outcome(False, "error", "OSError: libcudart.so.12: cannot open shared object file")
        return WORKS if every[4] in away else FAILS

    found = counted(every, run)
    assert (found.verdict, found.guilty) == (proofs.CONFIRMED, (every[4],))
    assert every[0] not in found.ruled_out
    without = counted(every[:4], run)
    assert (without.verdict, without.ruled_out) == (proofs.ELSEWHERE, every[1:4])


def test_without_the_last_run_it_is_only_likely() -> None:
    every = some(1)
    outcomes = iter((WORKS, None))
    found = proved(search("it", every, FAILS), lambda away: next(outcomes))
    assert (found.verdict, found.guilty) == (proofs.LIKELY, every)
    assert found.ended


def test_stopped_before_it_was_narrowed_down_it_names_all_that_are_left() -> None:
    every = some(4)
    outcomes = iter((WORKS, FAILS, None))
    found = proved(search("it", every, FAILS), lambda away: next(outcomes))
    assert (found.verdict, found.guilty) == (proofs.LIKELY, every)
    many = proved(search("it", some(30), FAILS, most=1), lambda away: WORKS)
    assert telling.sentence(many).count("NCCL_") == 4
    assert "and 26 more; no more runs were made" in telling.sentence(many)
    assert [fix.command for fix in verdict.problem_of(many, {"variable": "NCCL_0"}).fixes] == [""]


def test_a_run_that_leaves_a_file_does_not_clear_what_the_error_names() -> None:
    every = (Suspect(VARIABLE, "CC", "/opt/gcc", weight=proofs.NAMED), *some(3))
    outcomes = iter((WORKS, WORKS))
    found = proved(search("it", every, FAILS), lambda away: next(outcomes))
    assert (found.verdict, found.guilty) == (proofs.LIKELY, every[:1])


def test_what_was_always_away_is_no_culprit() -> None:
    every = (Suspect(FOLDER, "TRITON_CACHE_DIR", "/cache"), *some(2))
    trials = (Trial((0,), FAILS, good=False), Trial((0, 2), WORKS, good=True), Trial((0,), FAILS, good=False))
    found = Proof("command", every, trials, always=(0,))
    assert (found.verdict, found.guilty, found.ruled_out) == (proofs.CONFIRMED, (every[2],), (every[0],))
    assert telling.runs(found)[0].startswith("as it is, with empty caches of compilers: failed")
    assert Proof.from_value(found.as_value()) == found


def test_a_failure_that_goes_away_by_itself_blames_nothing() -> None:
    found = counted(some(5), lambda away: WORKS)
    assert (found.verdict, found.guilty) == (proofs.UNSTEADY, ())


def test_no_run_is_made_without_suspects_and_none_twice() -> None:
    assert len(counted((), works_without()).trials) == 1
    every = some(12)
    tried = [trial.away for trial in counted(every, works_without(every[3:6])).trials[1:]]
    assert len(tried) == len({*tried})


def test_runs_are_limited() -> None:
    every = some(64)
    found = proved(search("it", every, FAILS, most=5), works_without(every[::9]))
    assert len(found.trials) == 6
    assert found.verdict == proofs.LIKELY


def test_a_slow_program_is_searched_by_its_figure() -> None:
    every = some(6)
    slow = Outcome(True, metric=29.7, unit="GB/s")
    run: Run = lambda away: Outcome(True, metric=330.0 if every[2] in away else 30.1, unit="GB/s")  # noqa: E731
    found = proved(search("it", every, slow, improved(slow)), run)
    assert (found.verdict, found.guilty) == (proofs.CONFIRMED, (every[2],))
    assert found.working
    assert found.working.metric == 330.0
    assert improved(slow, less_is_better=True)(Outcome(True, metric=10.0))
    assert not improved(slow)(Outcome(False, metric=400.0))
    assert not improved(Outcome(True, metric=0.0))(Outcome(True, metric=0.0))


def test_a_proof_is_the_same_after_json() -> None:
    every = (Suspect(FOLDER, "TMPDIR", "/full", "the error message names it", 1000), *some(3))
    found = counted(every, works_without([every[2]]))
    again = Proof.from_value(msgspec.json.decode(msgspec.json.encode(found.as_value())))
    assert (again, again.verdict, again.guilty) == (found, found.verdict, found.guilty)


@each(
    "broken",
    [
        {},
        {"trials": []},
        {"suspects": [{"kind": "gremlin", "name": "", "value": ""}]},
        {"suspects": [{"kind": "limit", "name": "patience", "value": "1"}]},
        {"trials": [{"away": [7], "outcome": {"worked": False}, "good": False}]},
        {"trials": [{"away": [0], "outcome": {"worked": True}, "good": True}]},
        {"trials": [{"away": [], "outcome": [], "good": True}]},
    ],
)
def test_what_is_no_proof_is_refused(broken: dict[str, object]) -> None:
    value = {**Proof("it", some(1), (Trial((), FAILS, False),)).as_value(), **broken} if broken else {}
    with pytest.raises(WRONG):
        Proof.from_value(value)


def test_failures_are_alike_whatever_their_numbers_and_paths() -> None:
    assert FAILS.is_like(Outcome(False, "error", "Traceback\nRuntimeError: it broke at 0x55aa"))
    assert not FAILS.is_like(Outcome(False, "error", "OSError: it broke at 0x55aa"))
    assert not FAILS.is_like(Outcome(False, "timeout", FAILS.words))
    assert Outcome(False, "timeout", "in all-reduce").is_like(Outcome(False, "timeout", "not finished after 20 s"))


HERE = Surroundings(
    variables={
        "HOME": "/home/u",
        "PATH": "/opt/old/bin:/usr/bin:/venv/bin",
        "LD_LIBRARY_PATH": "/opt/a:/opt/b",
        "LD_PRELOAD": "liba.so libb.so",
        "PYTORCH_CUDA_ALLOC_CONF": "roundup:7",
        "NCCL_P2P_DISABLE": "1",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "EDITOR": "vi",
    },
    limits={"open_files": (200, 4096), "processes": (100, 100), "memlock": (None, None), "stack": (8 << 20, None)},
    user_site="/home/u/.local/lib",
    cores=1,
    all_cores=8,
    python="/venv/bin",
)


def named(found: Iterable[Suspect]) -> list[tuple[str, str]]:
    return [(suspect.name or suspect.kind, suspect.value) for suspect in found]


def test_what_the_words_name_comes_first() -> None:
    found = suspects(HERE, Failure("RuntimeError: Unrecognized CachingAllocator option: roundup", readers=("torch",)))
    assert found[0].name == "PYTORCH_CUDA_ALLOC_CONF"
    assert suspects(HERE, Failure("cannot read /opt/b/libx.so"))[0].value == "/opt/b"
    assert suspects(HERE, Failure("NCCL WARN NCCL_P2P_DISABLE is set"))[0].name == "NCCL_P2P_DISABLE"
    assert suspects(HERE, Failure("OSError: [Errno 24] Too many open files"))[0].name == "open_files"
    cache = suspects(HERE, Failure("File /home/u/a.py\nOSError: /home/u/.nv/ComputeCache/x is broken"))
    assert cache[0].name == "CUDA_CACHE_PATH"
    assert suspects(HERE, Failure("", blamed=("NCCL_P2P_DISABLE",)))[0].name == "NCCL_P2P_DISABLE"


def test_only_what_may_be_taken_away_is_suspected() -> None:
    found = named(suspects(HERE, Failure()))
    assert ("open_files", "200") in found
    absent = {"CUDA_VISIBLE_DEVICES", "EDITOR", "processes", "memlock", "stack", "LD_LIBRARY_PATH=/opt/a:/opt/b"}
    assert absent.isdisjoint(name for name, _ in found)
    assert [value for name, value in found if name == "PATH"] == ["/opt/old/bin"]
    assert ("TMPDIR", "/tmp") in found
    assert ("CUDA_CACHE_PATH", "/home/u/.nv/ComputeCache") in found
    root = Surroundings(limits=HERE.limits, raises_hard=True)
    assert ("processes", "100") in named(suspects(root, Failure()))
    assert named(suspects(Surroundings(), Failure())) == [("TMPDIR", "/tmp")]


def test_a_slow_program_suspects_what_slows_first() -> None:
    slow = suspects(Surroundings({"CUDA_LAUNCH_BLOCKING": "1", "CUDA_HOME": "/opt/x"}), Failure(is_slow=True))
    assert slow[0].name == "CUDA_LAUNCH_BLOCKING"


def test_a_change_takes_exactly_the_suspects_away() -> None:
    away = (
        Suspect(ENTRY, "LD_LIBRARY_PATH", "/opt/a"),
        Suspect(ENTRY, "LD_PRELOAD", "liba.so"),
        Suspect(ENTRY, "LD_PRELOAD", "libb.so"),
        Suspect(VARIABLE, "NCCL_P2P_DISABLE", "1"),
        Suspect(LIMIT, "open_files", "200"),
        Suspect(FOLDER, "TMPDIR", "/full"),
        Suspect(USER_SITE, "", "/home/u/.local/lib"),
    )
    assert change(away, HERE) == Change(
        put={"LD_LIBRARY_PATH": "/opt/b", "PYTHONNOUSERSITE": "1"},
        unset=("NCCL_P2P_DISABLE", "LD_PRELOAD"),
        raised=("open_files",),
        fresh={"TMPDIR": "/full"},
    )
    assert change((), HERE) == Change()
    assert Change().as_value() == {"put": {}, "unset": [], "raised": [], "fresh": {}, "all_cores": False}


def test_what_the_program_does_not_use_is_no_suspect_unless_it_is_named() -> None:
    here = Surroundings({"HOME": "/home/u", "CUPY_TF32": "1", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4"})
    found = suspects(here, Failure("", readers=("torch", "driver")))
    assert {"CUPY_TF32", "NCCL_DEBUG", "CUPY_CACHE_DIR"}.isdisjoint(name for name, _ in named(found))
    assert ("OMP_NUM_THREADS", "4") in named(found)
    assert suspects(here, Failure("CUPY_TF32 is odd", readers=("torch",)))[0].name == "CUPY_TF32"
