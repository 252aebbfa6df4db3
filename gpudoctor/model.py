"""The values that move between collecting, judging and rendering."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal

from gpudoctor.worker.reply import Reply as Reply
from gpudoctor.worker.reply import Skip as Skip

REPORT_SCHEMA = "gpudoctor.report/1"
SNAPSHOT_SCHEMA = "gpudoctor.snapshot/1"
_NAMED = re.compile(r"<([a-z_]+)>")  # evidence, in a command

# The areas of checks, in the order in which a person reads them.
AREAS = (
    *("machine", "hardware", "driver", "cuda", "libraries", "python", "toolchain"),
    *("container", "wsl", "health", "compute", "frameworks", "links", "multi-gpu", "limits", "evidence"),
)


# How a container gets its GPUs: mode -> what it is called.
WAYS = {"cdi": "CDI", "runtime": "the runtime nvidia", "gpus": "--gpus", "podman": "CDI"}


class Status(str, Enum):
    """The verdict of one check, best first."""

    PASS = "pass"
    SKIP = "skip"
    WARN = "warn"
    BLOCKED = "blocked"
    FAIL = "fail"
    ERROR = "error"


class Action(str, Enum):
    """What a person has to do, mildest first: the severity that matters."""

    NONE = "none"
    WATCH = "watch"
    FIX_CONFIG = "fix-config"
    INSTALL = "install"
    RESTART_APP = "restart-app"
    RESET_GPU = "reset-gpu"
    REBOOT = "reboot"
    REPLACE_HARDWARE = "replace-hardware"


class Confidence(str, Enum):
    """How sure a diagnosis is."""

    CONFIRMED = "confirmed"
    LIKELY = "likely"
    UNKNOWN = "unknown"


class Unavailable(Skip):
    """A fact that could not be read. A missing fact is never a healthy fact."""

    def __init__(self, reason: str, kind: str = Skip.NO_ANSWER) -> None:
        super().__init__(reason, kind)


Kind = Literal["read", "set", "install", "restart", "manual", "reset"]
Place = Literal["here", "shell", "host"]


@dataclass(frozen=True)
class Fix:
    """One way out: a line to paste and the command that shows it worked.

    `<name>` in a command stands for the evidence of that name. `on` limits a fix to platforms ("debian", "rhel", "arch",
    "suse", "other", "wsl2", "container", "host", "conda"), any of which is enough; empty means everywhere. `engines` limits it
    likewise to containers of these engines ("docker", "podman", "kubernetes"); how their commands differ: fixes/engines.py.

    What is decided about a fix stands in its fields; nothing is read out of its words. kind: what the command does, by which
    `gpudoctor fix` orders and runs it. A reset (of a GPU, of WSL, of the power) it never runs, and what is manual it leaves to a
    person, who has to decide, to fill something in or to go elsewhere. where: "shell" is the one in which the program starts,
    which no script can change; "host" is the machine around a container. reboot: `sudo reboot` ends the line, and what comes
    before it counts from then on; such a fix needs root and interrupts work.
    """

    title: str
    command: str = ""
    risk: str = "safe"  # safe, disruptive (work is interrupted) or destructive (data or settings are lost)
    needs: tuple[str, ...] = ()  # root, reboot, drain, network
    verify: str = ""
    on: tuple[str, ...] = ()
    undo: str = ""
    recipe: str = ""
    kind: Kind = "manual"
    where: Place = "here"
    reboot: bool = False
    engines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.reboot:
            line = self.command if self.command.endswith(REBOOT) else " && ".join(filter(None, (self.command, REBOOT)))
            needs = tuple(dict.fromkeys(("root", "reboot", *self.needs)))
            self._set(command=line, needs=needs, risk="disruptive" if self.risk == "safe" else self.risk)

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def before_reboot(self) -> str:
        """The command without its reboot."""
        if not self.reboot:
            return self.command
        lines = (line.removesuffix(REBOOT).removesuffix(" && ") for line in self.command.splitlines())
        return "\n".join(filter(None, lines))

    @property
    def names(self) -> frozenset[str]:
        """The evidence that the command names and that is not filled in."""
        return frozenset(_NAMED.findall(self.command))

    def suits(self, platform: Iterable[str]) -> bool:
        return not self.on or not set(self.on).isdisjoint(platform)

    def filled(self, values: Mapping[str, Any]) -> Fix:
        def text(of: str) -> str:
            return _fill(of, values)

        return replace(self, command=text(self.command), verify=text(self.verify), undo=text(self.undo), recipe=text(self.recipe))


REBOOT = "sudo reboot"
NEW_INITRAMFS = "(sudo update-initramfs -u || sudo dracut --force || sudo mkinitcpio -P)"
"""On any distribution. A module that the initramfs loads reads its options from there, not from /etc/modprobe.d."""


def fix_on(
    title: str,
    verify: str = "",
    risk: str = "safe",
    needs: tuple[str, ...] = (),
    undo: str = "",
    recipe: str = "",
    kind: Kind = "manual",
    reboot: bool = False,
    kinds: Mapping[str, Kind] | None = None,
    **commands: str,
) -> tuple[Fix, ...]:
    """One fix with a command for each platform: `fix_on("Install gcc", debian="sudo apt install gcc", rhel=...)`.

    kinds: of the platforms on which it is of another kind.
    """
    fix = Fix(title, "", risk, needs, verify, (), undo, recipe, kind, reboot=reboot)
    return on_platforms(fix, commands, kinds or {})


def on_platforms(fix: Fix, commands: Mapping[str, str], kinds: Mapping[str, Kind]) -> tuple[Fix, ...]:
    """commands: one for each platform. conda needs neither a recipe nor root."""
    for_conda = replace(fix, recipe="", needs=tuple(need for need in fix.needs if need != "root"))

    def on(platform: str) -> Fix:
        own = for_conda if platform == "conda" else fix
        return replace(own, command=commands[platform], on=(platform,), kind=kinds.get(platform, fix.kind))

    return tuple(map(on, commands))


def _fill(text: str, values: Mapping[str, Any]) -> str:
    return _NAMED.sub(lambda match: _word(values[match[1]]) if match[1] in values else match[0], text)


def _word(value: Any) -> str:
    """A value as it may stand in a shell command: what a machine called its files must not become a command."""
    return " ".join(map(_word, value)) if isinstance(value, (list, tuple)) else shlex.quote(str(value))


@dataclass(frozen=True)
class Problem:
    """Something that can be wrong, named by what is wrong, with its own explanation and ways out."""

    id: str
    title: str
    why: str
    action: Action
    fixes: tuple[Fix, ...] = ()
    references: tuple[str, ...] = ()
    status: Status = Status.FAIL  # WARN: works, but degraded or at risk
    latent: bool = False  # does no harm until something else is done or happens: told after what harms now

    def found(
        self,
        message: str,
        evidence: Mapping[str, Any] | None = None,
        gpu: int | None = None,
        confidence: Confidence = Confidence.CONFIRMED,
        partial: bool = False,
        packages: Iterable[str] = (),
    ) -> Finding:
        return Finding(self, message, dict(evidence or {}), gpu, confidence, partial, packages=tuple(packages))


@dataclass(frozen=True)
class Finding:
    """A problem seen on this machine: one sentence with the numbers in it, and what was read.

    partial: one GPU of several has it, and the others can still be judged. because: the id of another check's problem that
    explains this one; where that was found too, this is told as its effect. causes: ids of problems that may explain it, the
    likeliest first; a check's id stands for all of its problems. is_clue: alone it means nothing, and it is told only
    where it explains something else. packages: the distributions whose installed version or build it is about.
    """

    problem: Problem
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)
    gpu: int | None = None
    confidence: Confidence = Confidence.CONFIRMED
    partial: bool = False
    because: str = ""
    causes: tuple[str, ...] = ()
    is_clue: bool = False
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A measured number of one GPU, or of all (`gpu` is None), and what a healthy machine reaches.

    expected: in the same unit; None where nothing is known. rule: where that comes from. during: what the sampler saw.
    wrong: how the result differed from the right one, "" if it was verified. unlisted: its GPU is in no table, and `expected`
    comes from its own clocks and widths.
    """

    what: str
    value: float
    unit: str
    gpu: int | None = None
    expected: float | None = None
    rule: str = ""
    less_is_better: bool = False
    wrong: str = ""
    during: dict[str, Any] = field(default_factory=dict)
    unlisted: bool = False

    @property
    def share(self) -> float | None:
        """Of the expected, 1 or more for a healthy one; None where nothing is expected."""
        if not self.expected or not self.value:
            return None if not self.expected else 0.0
        return self.expected / self.value if self.less_is_better else self.value / self.expected


@dataclass(frozen=True)
class Cause:
    """One possible cause of a symptom: `look` returns the finding if its evidence is there, None if it is ruled out."""

    problem: Problem
    look: Callable[[Any], Finding | None]


def first_cause(causes: Iterable[Cause], facts: Any, otherwise: Finding) -> Iterator[Finding]:
    """The first cause whose evidence is there; where none is, `otherwise`, with what was ruled out and what could not be read."""
    ruled_out, unread = [], {}
    for cause in causes:
        try:
            finding = cause.look(facts)
        except Skip as skip:
            unread[cause.problem.id] = skip.reason
            continue
        if finding:
            yield finding
            return
        ruled_out.append(cause.problem.id)
    evidence = dict(otherwise.evidence, ruled_out=[id for id in dict.fromkeys(ruled_out) if id != otherwise.problem.id])
    if unread:
        evidence["could_not_check"] = unread
    yield replace(otherwise, evidence=evidence, confidence=Confidence.UNKNOWN)


def for_each(things: Iterable[Any], judge_one: Callable[[Any], Iterable[Finding]]) -> Iterator[Finding]:
    """Judges every thing (a GPU, a link). One that could not be read makes the check a SKIP, unless something was found.

    One on which the question makes no sense (not supported, not applicable) only counts where that is so for all.
    """
    unread, judged = [], False
    for thing in things:
        try:
            yield from judge_one(thing)
            judged = True
        except Skip as skip:
            unread.append(skip)
    harmless = (Skip.NOT_APPLICABLE, Skip.UNSUPPORTED) if judged else ()
    for reason in unread:
        if reason.kind not in harmless:
            raise reason
    if not judged:
        raise Skip("there is none")


@dataclass(frozen=True)
class Check:
    """What is looked at, named by its file. `judge` is pure and yields what is wrong; `summary` describes a healthy one.

    needs: checks without whose health this one cannot be judged. explained_by: checks whose failure, even a partial one,
    this one would only say again. after: checks whose findings this one reads. workloads: what it wants measured.
    figures: the numbers of that, for the report; judge and summary read them by `facts.once(figures)`. of_gpus: it looks at each
    GPU that NVML reaches, and says of the others that it could not.
    """

    judge: Callable[[Any], Iterable[Finding]]
    summary: Callable[[Any], str]
    problems: tuple[Problem, ...] = ()
    needs: tuple[str, ...] = ()
    explained_by: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    level: str = "quick"
    workloads: tuple[str, ...] = ()
    figures: Callable[[Any], Iterable[Figure]] = lambda facts: ()
    of_gpus: bool = False
    id: str = ""  # the file's name, set by the catalog
    area: str = ""  # the folder's name, set by the catalog
    explanation: str = ""  # the file's docstring, set by the catalog


@dataclass(frozen=True)
class Snapshot:
    """Everything that was asked of a machine and what it answered; a file that can be judged again anywhere.

    host: of a container that gpudoctor looked into from outside, what the machine around it answered. level: by the checks of
    which it is judged; "" in what an older gpudoctor wrote.
    """

    schema: str
    version: str
    taken: str  # UTC, ISO 8601
    replies: dict[str, Reply]
    expected: dict[str, int] = field(default_factory=dict)
    measured: dict[str, Reply] = field(default_factory=dict)  # "gemm:gpu0", "all-reduce:all", "import:torch" ...
    baseline: dict[str, dict[str, float]] = field(default_factory=dict)  # UUID of a GPU -> figure -> value when all was well
    host: dict[str, Reply] = field(default_factory=dict)
    level: str = ""


@dataclass(frozen=True)
class Result:
    """One check's row in the report."""

    id: str
    status: Status
    message: str
    seconds: float = 0.0
    blocked_by: str | None = None
    reason: str | None = None
    area: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """One root cause, with everything it explains. on_host: it is on the host of the container that was examined."""

    problem: str
    title: str
    why: str
    message: str
    action: Action
    status: Status
    confidence: Confidence
    check: str
    gpu: int | None
    evidence: dict[str, Any]
    explains: tuple[str, ...]
    fixes: tuple[Fix, ...]
    references: tuple[str, ...] = ()
    on_host: bool = False


@dataclass(frozen=True)
class Difference:
    """One thing as the host and as the container see it; `differs` where that is not the same."""

    what: str
    host: str
    container: str
    differs: bool


@dataclass(frozen=True)
class Recognised:
    """What gpudoctor saw in a text that was given as evidence. kinds: of the parts that it understood; lines: how many."""

    name: str
    kinds: tuple[str, ...]
    lines: int


@dataclass(frozen=True)
class Model:
    """A language model of one size and precision on this machine: how many of its GPUs it needs, None where it does not fit.

    least_milliseconds: per token, the time in which these GPUs read all weights once from memory.
    """

    size: str
    precision: str
    gigabytes: float
    gpus: int | None
    least_milliseconds: float | None


@dataclass(frozen=True)
class Measurements:
    """All that was measured, in `seconds`.

    figures: check -> the numbers that it judged. runs: "gemm:gpu0" -> what the workload gave. left_alone: why GPUs were not
    measured although others were.
    """

    figures: dict[str, tuple[Figure, ...]] = field(default_factory=dict)
    models: tuple[Model, ...] = ()
    runs: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    left_alone: tuple[str, ...] = ()


@dataclass(frozen=True)
class Coverage:
    """How much of what could be looked at was looked at."""

    ran: int
    applicable: int
    skipped: dict[str, int]  # kind of skip -> checks
    sentence: str


@dataclass(frozen=True)
class Report:
    """The verdict on one machine, or on a container and its host.

    host: the checks that were judged on the host of a container. comparison: what both see. evidence: the texts that were given.
    knowledge: the version of the tables that were used (`gpudoctor knowledge`).
    """

    schema: str
    version: str
    status: Status  # pass, warn or fail
    target: dict[str, Any]
    coverage: Coverage
    diagnosis: tuple[Diagnosis, ...]
    checks: tuple[Result, ...]
    measured: Measurements
    facts: dict[str, Any]
    host: tuple[Result, ...] = ()
    comparison: tuple[Difference, ...] = ()
    evidence: tuple[Recognised, ...] = ()
    knowledge: str = ""

    @property
    def verdict(self) -> Status:
        """The status; but where nothing was found, SKIP if nothing could be looked at, and ERROR if a check broke."""
        seen = {result.status for result in (*self.checks, *self.host)}
        if self.diagnosis:
            return self.status
        if Status.ERROR in seen:
            return Status.ERROR
        return self.status if seen & {Status.PASS, Status.WARN} else Status.SKIP


@dataclass(frozen=True)
class Opened:
    """A report and what it was judged from. taken: None where only a report was kept, with no answers to judge again."""

    name: str
    report: Report
    taken: Snapshot | None
