"""The words for proofs: what decides, and what was tried."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpudoctor.facts.command import QUESTION
from gpudoctor.judging.experiments.outcome import Outcome
from gpudoctor.judging.experiments.proof import ELSEWHERE, UNSTEADY, Proof, Trial
from gpudoctor.judging.experiments.suspect import (
    AFFINITY,
    CURRENT_FOLDER,
    ENTRY,
    FOLDER,
    GPU,
    HIDDEN,
    LIMIT,
    LIMITS,
    PATH_OF_GPUS,
    PATHS_OF_GPUS,
    SETTING,
    USER_SITE,
    VARIABLE,
    Suspect,
)

MODULE = re.compile(r"^(?:\w+\.)+(?=\w+:)")  # of an exception
MOST_WORDS = 200
MOST_GUILTY = 4  # that are named as the cause; more are left only if the search was ended
MOST_NAMES, MOST_NAMES_OF_RUN, MOST_OF_KIND = 6, 2, 2

# The fact, and how the program runs without it.
_FACTS = {
    VARIABLE: ("{name} is set to {value}", "without it"),
    ENTRY: ("{name} contains {value}", "without this entry"),
    USER_SITE: ("Python searches the user's site-packages {value}", "without this folder"),
    CURRENT_FOLDER: ("Python searches the current folder {value} first", "without this folder"),
    LIMIT: ("the soft limit on {limit} is {value}", "with a higher limit"),
    FOLDER: ("{name} is {value}", "with a fresh folder"),
    AFFINITY: ("only {value} CPU cores may be used", "with all cores"),
    GPU: ("GPU {value} is used", "without this GPU"),
    SETTING: ("{name} is not {value}", "with {name}={value}"),
    PATH_OF_GPUS: ("NCCL uses {path}", "with {name}={value}"),
}


def subject(id: str) -> str:
    """ "gemm on GPU 0", "the import of torch", or a command as it is."""
    if id == QUESTION:
        return "the command"
    name, _, where = id.rpartition(":")
    if name == "import":
        return f"the import of {where}"
    if where == "all" and name:
        return name
    return f"{name} on GPU {where[3:]}" if name and where[:3] == "gpu" and where[3:].isdecimal() else id


def sentence(proof: Proof, set_in: Iterable[str] = ()) -> str:
    """What the guilty do to the subject: "X is set to 1: gemm on GPU 0 fails (…) and works without it".

    set_in: where the first of them is set.
    """
    if len(proof.guilty) > MOST_GUILTY:
        names = _listed(map(str, proof.guilty), MOST_GUILTY)
        return f"{effect(proof, f'without {names}')}; no more runs were made to find out which of them decide"
    facts = " and ".join(fact(suspect) for suspect in proof.guilty)
    facts += "".join(f" ({place})" for place in list(set_in)[:1])
    without = _worded(proof.guilty[0], 1) if len(proof.guilty) == 1 else "without them"
    return f"{facts}: {effect(proof, without)}" + "; confirmed by experiment" * proof.is_confirmed


def effect(proof: Proof, without: str) -> str:
    working = proof.working
    if proof.failing.worked and working:
        return f"{subject(proof.subject)} reaches {figure(proof.failing)}, but {figure(working)} {without}"
    return f"{subject(proof.subject)} fails ({error(proof.failing)}) and works {without}"


def fact(suspect: Suspect) -> str:
    return _worded(suspect, 0).removesuffix(f" to {HIDDEN}")


def _worded(suspect: Suspect, place: int) -> str:
    limit, path = LIMITS.get(suspect.name, suspect.name), PATHS_OF_GPUS.get(suspect.name, suspect.name)
    return _FACTS[suspect.kind][place].format(name=suspect.name, value=suspect.value, limit=limit, path=path)


def figure(outcome: Outcome) -> str:
    """Three significant digits and the unit."""
    value = outcome.metric
    if value is None:
        return "no result"
    digits = ".0f" if abs(value) >= 100 else ".3g"
    return f"{value:{digits}} {outcome.unit}".rstrip()


def error(outcome: Outcome) -> str:
    """The last line of a failure's words, or how it ended."""
    lines = outcome.words.strip().splitlines()
    words = MODULE.sub("", lines[-1].strip()) if lines and not outcome.how.startswith("killed") else outcome.how
    return words if len(words) <= MOST_WORDS else words[:MOST_WORDS] + " …"


def tried(proof: Proof) -> str:
    """What the runs of a proof without a culprit show."""
    names = _listed(names_of(proof.suspects))
    if proof.verdict == UNSTEADY:
        return "it worked when it was repeated with nothing changed: it fails only sometimes"
    if proof.verdict == ELSEWHERE:
        return f"it fails in the same way without {names}: the cause lies elsewhere"
    if proof.ended and not any(map(proof.taken, proof.trials)):
        return proof.ended
    ended = f" ({proof.ended})" if proof.ended else ""
    return f"no single cause found among {names}{ended}"


def names_of(suspects: Iterable[Suspect]) -> list[str]:
    """The names of suspects, in their order; many of a kind are one: "9 entries of PATH", "9 folders such as TMPDIR and HOME"."""
    groups: dict[tuple[str, str], list[Suspect]] = {}
    for suspect in suspects:
        own = "" if suspect.kind in (FOLDER, LIMIT) else suspect.name if suspect.kind == ENTRY else str(suspect)
        groups.setdefault((suspect.kind, own), []).append(suspect)
    return [name for group in groups.values() for name in _named(group)]


def _named(group: Sequence[Suspect]) -> list[str]:
    first, size = group[0], len(group)
    if size <= MOST_OF_KIND or first.kind not in (ENTRY, FOLDER, LIMIT):
        return [str(suspect) for suspect in group]
    if first.kind == ENTRY:
        return [f"{size} entries of {first.name}"]
    names = " and ".join(LIMITS.get(one.name, one.name) for one in group[:MOST_OF_KIND])
    return [f"{size} {'folders' if first.kind == FOLDER else 'limits'} such as {names}"]


def runs(proof: Proof) -> list[str]:
    """One line for each run."""
    return [f"{_without(proof, trial)}: {_result(trial.outcome, trial.good)}" for trial in proof.trials]


def _without(proof: Proof, trial: Trial) -> str:
    if taken := proof.taken(trial):
        return changed([proof.suspects[place] for place in taken])
    return "as it is, with empty caches of compilers" if trial.away else "as it is"


def changed(away: Sequence[Suspect]) -> str:
    """What is different in a run: "without A, B and 3 more and with X=1"; "" if nothing is."""
    taken = [str(suspect) for suspect in away if suspect.kind not in (SETTING, PATH_OF_GPUS)]
    given = [f"{suspect.name}={suspect.value}" for suspect in away if suspect.kind in (SETTING, PATH_OF_GPUS)]
    words = (f"{how} {_listed(names, MOST_NAMES_OF_RUN)}" for how, names in (("without", taken), ("with", given)) if names)
    return " and ".join(words)


def _result(outcome: Outcome, good: bool) -> str:
    if outcome.metric is not None:
        return figure(outcome)
    return "worked" if good else f"failed ({error(outcome)})"


def _listed(names: Iterable[str], most: int = MOST_NAMES) -> str:
    every = list(names)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")
