"""A Dockerfile as its stages: what each is built on, and the environment at every instruction."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from gpudoctor.lint import instructions, shell
from gpudoctor.lint.instructions import Instruction, NoDockerfile, Text
from gpudoctor.lint.shell import Command, Word
from gpudoctor.lint.variables import Layer, Timeline, Values, unquoted

_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*'|["'\\])+""", re.DOTALL)
_MOST_STAGES = 150
_SCRIPTS = ("", "sh", "bash", "dash", "ash")


@dataclass(frozen=True, eq=False)
class Setting:
    """One variable of an ENV or ARG. value: expanded with the values known before it. written: as in the file."""

    name: str
    value: str
    written: str
    line: int


@dataclass(frozen=True, eq=False)
class Step:
    """One instruction of a stage. values: ENV and ARG as they are before it."""

    instruction: Instruction
    values: Values
    escape: str

    @property
    def name(self) -> str:
        return self.instruction.name

    @property
    def line(self) -> int:
        return self.instruction.line

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """The words of the instruction as Docker reads them; the JSON form too."""
        body = self.instruction.body
        listed = exec_form(body.text)
        if listed is not None:
            return tuple(Word(word, body.line(max(body.text.find(word), 0))) for word in listed)
        return tuple(
            Word(unquoted(found[0], self.values, self.escape), body.line(found.start())) for found in _WORD.finditer(body.text)
        )

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """What an ENV or ARG sets, in the form `a=b c=d` or the old `a b`."""
        if self.name not in ("ENV", "ARG"):
            return ()
        return tuple(_settings(self))

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        """The shell commands of a RUN."""
        return tuple(self._commands()) if self.name == "RUN" else ()

    def _commands(self) -> Iterator[Command]:
        listed = exec_form(self.instruction.body.text)
        if listed is not None:
            whole = Command(self.words, {})
            is_script = whole.program in _SCRIPTS and "-c" in listed[:-1]
            yield from shell.commands(Text(listed[-1], ((0, self.line),)), self.values) if is_script else (whole,)
            return
        found = list(shell.commands(self.instruction.body, self.values))
        for heredoc in self.instruction.heredocs:
            if not found or all(command.program in (*_SCRIPTS, "EOF") for command in found):
                yield from shell.commands(heredoc.body, self.values)
        yield from found


@dataclass(frozen=True, eq=False)
class Stage:
    """`FROM image AS name`. parent: the stage that it is built on, if any."""

    index: int
    name: str
    image: str
    line: int
    parent: Stage | None
    values: Layer  # only ENV, at the end of the stage
    platform: str = ""
    steps: list[Step] = field(default_factory=list)

    @property
    def root(self) -> Stage:
        """The stage whose image comes from a registry."""
        return self.lineage[0]

    @cached_property
    def lineage(self) -> tuple[Stage, ...]:
        found = [self]
        while found[-1].parent:
            found.append(found[-1].parent)
        return tuple(reversed(found))

    @cached_property
    def history(self) -> tuple[Step, ...]:
        """All steps since the registry image."""
        return tuple(step for stage in self.lineage for step in stage.steps)


@dataclass(frozen=True)
class Dockerfile:
    stages: tuple[Stage, ...]

    @property
    def last(self) -> Stage:
        return self.stages[-1]

    @cached_property
    def shipped(self) -> frozenset[Stage]:
        """Stages whose content is in an image that can be run: the last one, all that no other uses, and those they build on."""
        used = {id(stage.parent) for stage in self.stages} | {id(stage) for stage in self._copied_from()}
        outputs = [stage for stage in self.stages if stage is self.last or id(stage) not in used]
        return frozenset(ancestor for stage in outputs for ancestor in stage.lineage)

    @cached_property
    def built(self) -> frozenset[Stage]:
        """Stages that the last one needs: BuildKit builds no others unless requested."""
        found: set[Stage] = set()
        left = [self.last]
        while left:
            stage = left.pop()
            if stage not in found:
                found.add(stage)
                left += [stage.parent] if stage.parent else []
                left += [other for step in stage.steps for name in sources(step) if (other := self.stage(name))]
        return frozenset(found)

    def _copied_from(self) -> Iterator[Stage]:
        for stage in self.stages:
            for step in stage.steps:
                yield from (found for name in sources(step) if (found := self.stage(name)))

    def stage(self, name: str) -> Stage | None:
        """By name, or by number as in `COPY --from=0`."""
        return self._named.get(name.lower())

    @cached_property
    def _named(self) -> dict[str, Stage]:
        found: dict[str, Stage] = {}
        for stage in self.stages:
            for name in filter(None, (stage.name, str(stage.index))):
                found.setdefault(name, stage)
        return found


def sources(step: Step) -> tuple[str, ...]:
    """The stages or images that a COPY or a mount takes files from."""
    flags = step.instruction.flags
    mounted = re.findall(r"(?:^|[\s,])from=([^\s,]+)", flags.get("mount", ""))
    return tuple(unquoted(name, step.values) for name in (*mounted, flags.get("from", "")) if name)


def exec_form(text: str) -> list[str] | None:
    """`["a", "b"]` as a list; None for anything else."""
    if not text.lstrip().startswith("["):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, list) and all(isinstance(word, str) for word in found) else None


def parse(text: str) -> Dockerfile:
    parsed = instructions.parse(text)
    everywhere: dict[str, str] = {}
    stages: list[Stage] = []
    named: dict[str, Stage] = {}
    values = Timeline(everywhere)
    for instruction in parsed.instructions:
        step = Step(instruction, values.view() if stages else everywhere, parsed.escape)
        if instruction.name == "FROM":
            stages.append(_stage(step, everywhere, len(stages), named))
            named[stages[-1].name] = stages[-1]
            values = Timeline(stages[-1].values.below)
            if len(stages) > _MOST_STAGES:
                raise NoDockerfile(instruction.line, f"it has more than {_MOST_STAGES} stages")
            continue
        if not stages and instruction.name != "ARG":
            raise NoDockerfile(instruction.line, f"{instruction.name} is before the first FROM")
        if stages:
            stages[-1].steps.append(step)
        if step.settings:
            _set(step, values, stages, everywhere)
    return Dockerfile(tuple(stages))


def _stage(step: Step, everywhere: dict[str, str], number: int, named: dict[str, Stage]) -> Stage:
    words = [word.text for word in Step(step.instruction, everywhere, step.escape).words]
    if not words:
        raise NoDockerfile(step.line, "FROM names no image")
    name = words[2].lower() if len(words) > 2 and words[1].lower() == "as" else ""
    parent = named.get(words[0].lower())
    environment = Layer(parent.values if parent else {})
    return Stage(number, name, words[0], step.line, parent, environment, step.instruction.flags.get("platform", ""))


def _set(step: Step, values: Timeline, stages: list[Stage], everywhere: dict[str, str]) -> None:
    """Sets the values after an ENV or ARG. An ARG without a default is unknown; ENV outlives the stage."""
    for setting in step.settings:
        if step.name == "ENV":
            stages[-1].values.own[setting.name] = setting.value
            values.set(setting.name, setting.value)
        elif not stages:
            everywhere[setting.name] = setting.value
        elif setting.name not in stages[-1].values:
            if setting.written:
                values.set(setting.name, setting.value)
            elif setting.name in everywhere:
                values.set(setting.name, everywhere[setting.name])


def _settings(step: Step) -> Iterator[Setting]:
    body = step.instruction.body
    found = list(_WORD.finditer(body.text))
    if step.name == "ENV" and found and "=" not in found[0][0]:
        written = body.text[found[0].end() :].strip()
        yield Setting(found[0][0], unquoted(written, step.values, step.escape), written, body.line(found[0].start()))
        return
    for word in found:
        name, equals, written = word[0].partition("=")
        if equals or step.name == "ARG":
            value = unquoted(written, step.values, step.escape)
            yield Setting(name, value, written + ("=" if equals and not written else ""), body.line(word.start()))
