"""The values that move between collecting, judging and rendering."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, Literal

from gpudoctor import filling
from gpudoctor.worker.reply import Reply as Reply
from gpudoctor.worker.reply import Skip as Skip

REPORT_SCHEMA = "gpudoctor.report/1"
SNAPSHOT_SCHEMA = "gpudoctor.snapshot/1"

# The areas of checks, in the order of the report.
AREAS = (
    *("machine", "hardware", "driver", "cuda", "libraries", "python", "toolchain"),
    *("container", "wsl", "health", "compute", "frameworks", "links", "multi-gpu", "limits", "job", "evidence"),
)
# Their checks read what a user gives: a program, a log.
GIVEN_AREAS = ("job", "evidence")
# Groups of checks from several areas. In a check, the name of another area adds it to that area too.
TAGS = ("docker", "kubernetes", "memory", "nccl", "network", "performance", "pytorch", "slurm")


# How a container gets its GPUs: mode -> name.
WAYS = {"cdi": "CDI", "runtime": "the runtime nvidia", "gpus": "--gpus", "podman": "CDI"}


class Status(str, Enum):
    """The result of one check, best first."""

    PASS = "pass"
    SKIP = "skip"
    WARN = "warn"
    BLOCKED = "blocked"
    FAIL = "fail"
    ERROR = "error"


class Action(str, Enum):
    """What the user has to do, mildest first: the severity."""

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
    """A fact that could not be read. A missing fact never counts as healthy."""

    def __init__(self, reason: str, kind: str = Skip.NO_ANSWER) -> None:
        super().__init__(reason, kind)


Kind = Literal["read", "set", "install", "restart", "manual", "reset"]
Place = Literal["here", "shell", "host"]
Syntax = Literal["bash", "powershell", "cmd", "notebook", "dockerfile"]


@dataclass(frozen=True)
class Fix:
    """One fix: a command to paste and the command that verifies it.

    `<name>` in a command is replaced by the evidence of that name (filling.py). `on` limits a fix to platforms ("debian", "rhel",
    "arch", "suse", "other", "wsl2", "container", "host", "conda"); any of them is enough, and empty means everywhere. A host is
    also "vm", or "physical", and then "bmc" unless it is a laptop or a desktop. `engines`
    limits it to containers of these engines ("docker", "podman", "kubernetes"); fixes/engines.py has the differences of their
    commands. `started_by` limits it to programs that were started so ("login", "service", "slurm", "container").

    Decisions use the fields, not the words of the title. kind: what the command does; `gpudoctor fix` orders and runs fixes by
    it. It never runs a reset (of a GPU, of WSL, of the power). Manual fixes are left to the user, who has to decide something,
    fill in a value or go elsewhere. undo: reverts exactly what the command did; "" if no command does. where: "shell" is the
    shell that starts the program, which a script cannot change; "host" is the machine that runs the container. reboot: the
    command ends with `sudo reboot`, and what comes before it takes effect after the reboot; such a fix needs root and interrupts
    work. syntax: what reads the command; gpudoctor runs none but bash's.
    """

    title: str
    command: str = ""
    risk: str = "safe"  # safe, disruptive (interrupts work) or destructive (loses data or settings)
    needs: tuple[str, ...] = ()  # root, reboot, drain, network
    verify: str = ""
    on: tuple[str, ...] = ()
    undo: str = ""
    recipe: str = ""
    kind: Kind = "manual"
    where: Place = "here"
    reboot: bool = False
    engines: tuple[str, ...] = ()
    started_by: tuple[str, ...] = ()
    syntax: Syntax = "bash"

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
        """The evidence that the command still contains as placeholders."""
        return frozenset(filling.names(self.command))

    @property
    def lines(self) -> tuple[str, ...]:
        """All that can be pasted into bash."""
        return (self.command, self.verify, self.undo) if self.syntax == "bash" else ()

    def suits(self, platform: Iterable[str]) -> bool:
        return not self.on or not set(self.on).isdisjoint(platform)

    def filled(self, values: Mapping[str, Any]) -> Fix:
        """With the evidence in its commands. If a value cannot stand in the command, the fix is left to a person, without one."""
        command = filling.filled(self.command, values)
        recipe = filling.words_filled(self.recipe, values) or ""
        verify = filling.filled(self.verify, values) or ""
        if command is None:
            return replace(self, command="", kind="manual", undo="", verify=verify, recipe=recipe, reboot=False)
        return self._with(command, verify, filling.filled(self.undo, values) or "", recipe)

    @property
    def shown(self) -> Fix:
        """With `${name:?}` for each value that is not known. Other shells have no such form."""
        if self.syntax != "bash":
            return self
        return self._with(filling.shown(self.command), filling.shown(self.verify), filling.shown(self.undo), self.recipe)

    def _with(self, command: str, verify: str, undo: str, recipe: str) -> Fix:
        if (command, verify, undo, recipe) == (self.command, self.verify, self.undo, self.recipe):
            return self  # as most are: copies by the thousand take time
        return replace(self, command=command, verify=verify, undo=undo, recipe=recipe)


REBOOT = "sudo reboot"
NEW_INITRAMFS = "(sudo update-initramfs -u || sudo dracut --force || sudo mkinitcpio -P)"
"""For any distribution. A module in the initramfs reads its options from the initramfs, not from /etc/modprobe.d."""


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
    undos: Mapping[str, str] | None = None,
    **commands: str,
) -> tuple[Fix, ...]:
    """One fix with a command for each platform: `fix_on("Install gcc", debian="sudo apt install gcc", rhel=...)`.

    kinds, undos: platforms on which the fix has a different kind, and the undo of each command.
    """
    fix = Fix(title, "", risk, needs, verify, (), undo, recipe, kind, reboot=reboot)
    return on_platforms(fix, commands, kinds or {}, undos or {})


def on_platforms(fix: Fix, commands: Mapping[str, str], kinds: Mapping[str, Kind], undos: Mapping[str, str]) -> tuple[Fix, ...]:
    """commands: one for each platform. conda needs no recipe and no root."""
    for_conda = replace(fix, recipe="", needs=tuple(need for need in fix.needs if need != "root"))

    def on(platform: str) -> Fix:
        own = for_conda if platform == "conda" else fix
        kind, undo = kinds.get(platform, fix.kind), undos.get(platform, fix.undo)
        return replace(own, command=commands[platform], on=(platform,), kind=kind, undo=undo)

    return tuple(map(on, commands))


@dataclass(frozen=True)
class Problem:
    """Something that can be wrong, with a title, an explanation and fixes."""

    id: str
    title: str
    why: str
    action: Action
    fixes: tuple[Fix, ...] = ()
    references: tuple[str, ...] = ()
    status: Status = Status.FAIL  # WARN: works, but slowly or at risk
    latent: bool = False  # harmless until something else changes; listed after the problems that do harm now
    unfit: bool | None = None  # whether `gpudoctor gate` keeps jobs away; None: only if it hides GPUs that are expected

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
    """A problem seen on this machine: one sentence with its numbers, and the evidence.

    partial: only some GPUs have it, and the others can still be judged. because: the id of another check's problem that explains
    this one; if that was found too, this is shown as its effect. causes: ids of problems that may explain it, the likeliest
    first; a check's id means all of its problems. is_clue: it means nothing alone and is shown only if it explains something
    else. packages: the distributions whose installed version or build it is about. named: environment variables that a failed
    program names: what is wrong with one of them explains the failure. without_gpus: a note that there is no GPU here on purpose:
    checks that need one do not apply.
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
    named: tuple[str, ...] = ()
    without_gpus: bool = False

    @property
    def as_note(self) -> Finding:
        """It costs nothing today: unless it explains another finding, it is listed below the diagnosis and not counted."""
        return replace(self, problem=replace(self.problem, status=Status.PASS))

    @property
    def is_note(self) -> bool:
        return self.problem.status is Status.PASS

    @property
    def gain(self) -> float:
        """The share of a job's time that a fix gives back at most; 0 for what is no matter of time."""
        share, percent = self.evidence.get("saves_at_most"), self.evidence.get("time_given_back_percent")
        return float(share or 0) or float(percent or 0) / 100


@dataclass  # not frozen, which takes three times as long to make: a machine of eight GPUs has 700
class Figure:
    """A measured number of one GPU, or of all (`gpu` is None), with the value expected of a healthy machine.

    expected: in the same unit; None if unknown. rule: the source of `expected`. during: what the sampler saw. wrong: how the
    result differed from the correct one, "" if it was verified. unlisted: the GPU is in no table, and `expected` was computed
    from its own clocks and widths.
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

    def __post_init__(self) -> None:
        if not isinstance(self.value, (int, float)) or not isinstance(self.during, dict):
            raise TypeError(f"{self.what} was not reported as a number with what was sampled meanwhile")

    @property
    def share(self) -> float | None:
        """The fraction of the expected value, 1 or more for a healthy machine; None if nothing is expected."""
        if not self.expected or not self.value:
            return None if not self.expected else 0.0
        return self.expected / self.value if self.less_is_better else self.value / self.expected


@dataclass(frozen=True)
class Cause:
    """A possible cause of a symptom. `look` returns the finding if there is evidence for it, None if it is ruled out."""

    problem: Problem
    look: Callable[[Any], Finding | None]


def first_cause(causes: Iterable[Cause], facts: Any, otherwise: Finding) -> Iterator[Finding]:
    """The first cause with evidence; without one, `otherwise`, with what was ruled out and what could not be read."""
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
    kept = {otherwise.problem.id, *unread}  # two causes of one problem: one may be unread
    evidence = dict(otherwise.evidence, ruled_out=[id for id in dict.fromkeys(ruled_out) if id not in kept])
    if unread:
        evidence["could_not_check"] = unread
    yield replace(otherwise, evidence=evidence, confidence=Confidence.UNKNOWN)


def for_each(things: Iterable[Any], judge_one: Callable[[Any], Iterable[Finding]]) -> Iterator[Finding]:
    """Judges each thing (a GPU, a link). If one could not be read, the check is a SKIP, unless something was found.

    Things to which the question does not apply (not supported) only lead to a SKIP if it applies to none.
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
    """One thing to look at, named by its file. `judge` is pure and yields problems; `summary` describes a healthy machine.

    needs: checks that have to pass before this one can be judged. explained_by: checks whose failure, even a partial one, this
    check would only repeat. after: checks whose findings this one reads. workloads: what it needs measured. figures: the numbers
    of the workloads, for the report; judge and summary read them by `facts.once(figures)`. of_gpus: it looks at each GPU that
    NVML reaches, and reports the others as not examined. tags: more groups than the area, for --only and --skip.
    """

    judge: Callable[[Any], Iterable[Finding]]
    summary: Callable[[Any], str]
    problems: tuple[Problem, ...] = ()
    more_problems: Callable[[], tuple[Problem, ...]] = tuple  # of modules that are not loaded with the check
    needs: tuple[str, ...] = ()
    explained_by: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    level: str = "quick"
    workloads: tuple[str, ...] = ()
    figures: Callable[[Any], Iterable[Figure]] = lambda facts: ()
    of_gpus: bool = False
    tags: tuple[str, ...] = ()
    id: str = ""  # the file's name, set by the catalog
    area: str = ""  # the folder's name, set by the catalog
    explanation: str = ""  # the file's docstring, set by the catalog

    @cached_property
    def groups(self) -> frozenset[str]:
        """The area and the tags: by any of them the check can be chosen together with others."""
        return frozenset((self.area, *self.tags))


@dataclass(frozen=True)
class Snapshot:
    """All questions to a machine and its answers; a file that can be judged again anywhere.

    host: the answers of the host, if gpudoctor examined a container from outside. level: the level of the checks that judge it;
    "" in files of older versions of gpudoctor. ignored: problem -> why it is ignored ("reason"), and the last day ("until").
    experiments: what failed or was slow, such as "gemm:gpu0" -> the runs without suspected things (judging/experiments/proof.py).
    counters: UUID of a GPU -> its error counters when its baseline was saved (facts/counters.py).
    expectation: what the user expects of the machine (knowledge/expectations.py), and `from`: a file, or a known type.
    """

    schema: str
    version: str
    taken: str  # UTC, ISO 8601
    replies: dict[str, Reply]
    expected: dict[str, int] = field(default_factory=dict)
    measured: dict[str, Reply] = field(default_factory=dict)  # "gemm:gpu0", "all-reduce:all", "import:torch" ...
    baseline: dict[str, dict[str, float]] = field(default_factory=dict)  # UUID of a GPU -> figure -> value on the healthy machine
    host: dict[str, Reply] = field(default_factory=dict)
    level: str = ""
    ignored: dict[str, dict[str, str]] = field(default_factory=dict)
    experiments: dict[str, Reply] = field(default_factory=dict)
    expectation: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """The row of one check in the report."""

    id: str
    status: Status
    message: str
    seconds: float = 0.0
    blocked_by: str | None = None
    reason: str | None = None
    area: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """One root cause, with everything it explains; a note has the status PASS.

    on_host: on the host of the examined container. seen_in: the commands and files in which a person sees it.
    """

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
    seen_in: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ignored:
    """A problem that was found, and that the user decided not to count up to and including the day `until` (ISO 8601)."""

    problem: str
    title: str
    message: str
    gpu: int | None
    status: Status
    on_host: bool
    reason: str
    until: str


@dataclass(frozen=True)
class Difference:
    """One value as seen by the host and by the container; `differs` if they are not the same."""

    what: str
    host: str
    container: str
    differs: bool


@dataclass(frozen=True)
class Recognised:
    """What gpudoctor recognised in a text given as evidence. kinds: the formats it understood; lines: the number of lines."""

    name: str
    kinds: tuple[str, ...]
    lines: int


@dataclass(frozen=True)
class Model:
    """A language model of one size and precision: how many GPUs of this machine it needs, None if it does not fit.

    least_milliseconds: per token, the time in which these GPUs read all weights once from GPU memory. kv_gigabytes: of the KV
    cache of one answer, by its length in tokens. longest_context: the tokens of all answers that fit next to the weights.
    tokens_per_second: at most, of all answers, by batch size, with 2048 tokens each; None where their caches do not fit.
    compute_bound_batch: with short contexts, the batch from which compute is the bound. Empty and None if not measured.
    """

    size: str
    precision: str
    gigabytes: float
    gpus: int | None
    least_milliseconds: float | None
    kv_gigabytes: dict[str, float] = field(default_factory=dict)
    longest_context: int | None = None
    tokens_per_second: dict[str, float | None] = field(default_factory=dict)
    compute_bound_batch: int | None = None


@dataclass(frozen=True)
class Measurements:
    """All measurements, taken in `seconds`.

    figures: check -> the numbers that it judged. runs: "gemm:gpu0" -> results of the workload. left_alone: why some GPUs were not
    measured although others were. with_baseline: how many figures were compared with the saved baseline. spent: seconds of each
    workload and import, the longest first, with GPUs in parallel.
    """

    figures: dict[str, tuple[Figure, ...]] = field(default_factory=dict)
    models: tuple[Model, ...] = ()
    runs: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    left_alone: tuple[str, ...] = ()
    with_baseline: int = 0
    spent: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Coverage:
    """How many of the applicable checks ran."""

    ran: int
    applicable: int
    skipped: dict[str, int]  # kind of skip -> number of checks
    sentence: str


@dataclass(frozen=True)
class Report:
    """The verdict on one machine, or on a container and its host.

    host: the checks that were judged on the host of a container. comparison: values that both sides see. evidence: the given
    texts. knowledge: the version of the built-in tables (`gpudoctor knowledge`). ignored: problems that do not count. notes: what
    costs nothing today.
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
    ignored: tuple[Ignored, ...] = ()
    notes: tuple[Diagnosis, ...] = ()

    @property
    def verdict(self) -> Status:
        """The status; but if nothing was found, SKIP if nothing could be examined, and ERROR if a check broke."""
        seen = {result.status for result in (*self.checks, *self.host)}
        if self.diagnosis:
            return self.status
        if Status.ERROR in seen:
            return Status.ERROR
        return self.status if seen & {Status.PASS, Status.WARN} else Status.SKIP


@dataclass(frozen=True)
class Opened:
    """A report and its snapshot. taken: None if only a report was kept, with no answers to judge again."""

    name: str
    report: Report
    taken: Snapshot | None
