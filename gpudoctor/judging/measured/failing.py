"""Why a program failed: the meaning of its words, joined with what the machine shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.judging.measured import stopped
from gpudoctor.judging.python import shadowing
from gpudoctor.judging.texts import own_words, settings
from gpudoctor.knowledge.messages import messages
from gpudoctor.model import Confidence, Finding

PROBLEMS = (stopped.RESOURCE, settings.BREAKS, settings.OWN, shadowing.FILE)
"""What only the words of a failure show; a check that calls `explained` can find them."""
LONGEST_LINE = 200
CRASHES = {"SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"}
MAY_CRASH = (
    *("python-path-shadows-environment", "ld-preload-cuda-library", "nccl-library-shadowed", "duplicate-distributions"),
    *("bare-metal-803-mixed-libcuda", "nvidia-wheel-mix", "container-compat-lib-shadows-driver"),
)
"""Findings of a machine that make processes crash without a word."""
OF_SIGNALS = {
    "SIGKILL": ("memory-limit-reached", "host-memory-exhausted", "memory-limit-below-gpu"),
    "SIGBUS": ("shm-too-small-for-dataloaders", "nccl-shm-no-space", "nccl-shm-leftovers", "temporary-space-full"),
}
TICKET = look("If it stays unexplained: write a ticket with all facts of this machine", "gpudoctor report -o issue.md")
OF_FOLDERS = ("temporary-space-full", "temporary-space-noexec", "temporary-space-not-writable", "root-filesystem-read-only")
PLACES = {"disk-full", "disk-quota-exceeded", "file-system-read-only", "storage-fails", "network-file-system-lost"}
"""The state of a folder: worse than the variable that names the folder."""


@dataclass(frozen=True)
class Failed:
    """A failure in its own words. name: whose words; signal: that killed it; recorded: what the system recorded meanwhile.

    is_known: the check knows what the failure is, so that messages in its words only lead to what was found on the machine.
    clean: what it said with clean settings; "" if it worked or that was not tried. without: the user's settings without which it
    worked; None if it did not.
    """

    name: str
    words: str
    signal: str = ""
    recorded: str = ""
    is_known: bool = False
    clean: str = ""
    without: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Explanation:
    """clues: findings, the surest first, each of which is shown only if it explains a failure. causes: ids of what could explain
    it. tried: what was looked for in vain, a sentence each."""

    clues: tuple[Finding, ...]
    causes: tuple[str, ...]
    named: tuple[str, ...]
    tried: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Equal for failures with the same explanation; "" without one."""
        return " ".join((self.clues[0].problem.id, *self.clues[0].named)) if self.clues else ""


def explanation(facts: Facts, failed: Failed) -> Explanation:
    records = [*stopped.findings(facts, failed.words, failed.signal, failed.recorded)]
    told = [_told(failed, each) for each in _messages(facts, failed) if _counts(failed, each)]
    found = [
        *records,
        *map(_as_clue, [*shadowing.files(facts, failed.words), *_with_settings(facts, failed, told), *_own(failed)]),
    ]
    leads = _messages(facts, failed) if failed.is_known else []
    return Explanation(
        clues=tuple(found),
        causes=(*_ids((*found, *leads)), *OF_SIGNALS.get(failed.signal, ()), *(MAY_CRASH if failed.signal in CRASHES else ())),
        named=tuple(name for each in found for name in each.named),
        tried=() if found or failed.is_known else tuple(_tried(facts, failed)),
    )


def _counts(failed: Failed, message: Finding) -> bool:
    """Whether a message names the cause. If the program works with clean settings, nothing that it misses is missing."""
    return not failed.is_known and (failed.without is None or message.problem.id in PLACES)


def _messages(facts: Facts, failed: Failed) -> list[Finding]:
    return list(own_words.findings(facts, f"the output of {failed.name}", failed.words))


def _as_clue(each: Finding) -> Finding:
    return replace(each, is_clue=True)


def _with_settings(facts: Facts, failed: Failed, told: list[Finding]) -> list[Finding]:
    """The messages, and the variables that the words name: first, unless a message is about the folder that a variable names."""
    variables = known(lambda: facts.environment.variables, {})
    named = [*settings.named(variables, failed.words)]
    found = [_setting(each, failed) for each in named]
    if not (named and told and told[0].problem.id in PLACES):
        return [*found, *told]
    first, *others = told
    words = f"{first.message} ({named[0].variable}={named[0].value})"
    return [replace(first, message=words, evidence={**first.evidence, "set_by": named[0].variable}), *others, *found]


def _ids(found: Iterable[Finding]) -> Iterator[str]:
    return (id for each in found for id in (each.problem.id, *each.causes))


def explained(finding: Finding, why: Explanation) -> Finding:
    """The failure's finding with its possible causes; without any, with what was tried, and the offer of a ticket."""
    finding = replace(finding, causes=tuple(dict.fromkeys((*finding.causes, *why.causes))), named=why.named)
    if not why.tried:
        return finding
    problem = replace(finding.problem, fixes=(*finding.problem.fixes, TICKET))
    evidence = {**finding.evidence, "tried": list(why.tried)}
    return replace(finding, problem=problem, evidence=evidence, confidence=Confidence.UNKNOWN)


def _tried(facts: Facts, failed: Failed) -> Iterator[str]:
    yield f"none of the {len(messages())} known messages is in its output"
    variables = known(lambda: facts.environment.variables)
    if variables is not None:
        yield f"it names none of the {len(variables)} variables that are set"
    if failed.clean:
        yield "it fails with clean caches and default compilers too"
    else:
        yield f"{facts.measured.count} other measurements worked"


def clues(found: Iterable[Explanation]) -> Iterator[Finding]:
    """Each clue once, however many failures have it."""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for clue in (clue for each in found for clue in each.clues):
        if (clue.problem.id, clue.named) not in seen:
            seen.add((clue.problem.id, clue.named))
            yield clue


def _told(failed: Failed, each: Finding) -> Finding:
    """A message with the words in which this failure has it."""
    said = str(each.evidence.get("said", ""))
    return each if said in each.message else replace(each, message=f"{each.message}; {failed.name} says: {_short(said)}")


def _short(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 2] + " …"


def _own(failed: Failed) -> Iterator[Finding]:
    """The user's settings, without which the same program worked."""
    if failed.without is None:
        return
    listed = ", ".join(f"{name}={value}" for name, value in failed.without.items())
    words = f"{failed.name} works with clean caches and settings, not with yours" + (f": {listed}" if listed else "")
    found = settings.OWN.found(words, {"settings": dict(failed.without)})
    yield replace(found, causes=(settings.BREAKS.id, *OF_FOLDERS), named=tuple(failed.without))


def _setting(each: settings.Named, failed: Failed) -> Finding:
    """A variable that the words name; confirmed if the same program also worked without it."""
    words = f"{each.variable}={each.value} is set, and the program says: {_short(each.line)}"
    evidence = {"variable": each.variable, "value": each.value, "said": each.line}
    is_proved = each.variable in (failed.without or ())
    words += f"; {failed.name} works with clean settings" * is_proved
    found = settings.BREAKS.found(words, evidence, confidence=Confidence.CONFIRMED if is_proved else Confidence.LIKELY)
    return replace(found, named=(each.variable,))
