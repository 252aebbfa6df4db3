"""Runs the engine's own builder, BuildKit if available, and reports the output of a failed step."""

from __future__ import annotations

import os
import re
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpudoctor.containers.engine import client as engines
from gpudoctor.containers.images import ending
from gpudoctor.errors import UserError, WorkError

if TYPE_CHECKING:
    from gpudoctor.containers.engine.client import Engine

LAST_WORDS = 12
MOST_LINES, LONGEST_LINE = 20_000, 4_000
LONGEST_STEP = 90
BUILDX_ONLY = 23  # the first docker command whose own `build` wants buildx for BuildKit

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# BuildKit: `#7 [build 2/5] RUN …`; the classic builder: `Step 2/5 : RUN …`; Podman: `STEP 2/5: RUN …`, `[1/2] STEP 2/5: RUN …`
_STEP = re.compile(
    r"""
    ^(?:
        \#\d+\ \[(?!internal)[^\]]+\][ ]                        # BuildKit: "#7 [2/3] "
        | (?: \[\d+/\d+\][ ] )? (?:Step|STEP)\ \d+/\d+\ ?:[ ]    # "Step 2/3 : ", of Podman "[1/2] STEP 2/3: "
    )
    (?P<title>.+)
    """,
    re.VERBOSE,
)
_INSTRUCTION = re.compile(r"(?:RUN|COPY|ADD|WORKDIR|USER)\b")
_NOISE = re.compile(
    r"""
    \s*$
    | sha256:
    | [ ]--->[ ]
    | Removing\ intermediate\ container
    | DEPRECATED:\ The\ legacy
    | \s+(?: BuildKit\ is | environment-v )
    | -{5}
    """,
    re.VERBOSE,
)
_NO_DOCKERFILE = re.compile(
    r"""
    ^.*(?:
        dockerfile\ parse\ error
        | unknown\ instruction
        | failed\ to\ read\ dockerfile
        | parse\ error\ on\ line
        | can't\ find\ =\ in
        | requires\ (?:exactly|at\ least)\ .*\ argument
    ).*$
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)


def run(engine: Engine, name: str, arguments: Sequence[str], tell: Callable[[str], None]) -> None:
    """`tell` receives each line as it arrives. UserError for an invalid Dockerfile, WorkError for a failed step."""
    argv, environment = command(engine)
    lines: deque[str] = deque(maxlen=MOST_LINES)
    with ending.started(
        [*argv, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **environment}
    ) as building:
        for line in ending.lines(building.stdout):
            lines.append(_COLOUR.sub("", line.rstrip())[:LONGEST_LINE])
            tell(lines[-1])
    if building.returncode:
        raise failure(engine.program, name, list(lines))


def command(engine: Engine) -> tuple[list[str], dict[str, str]]:
    """argv and environment of the best available builder."""
    if engine.is_podman:
        return engine.argv("build"), {}
    if engines.run(engine.argv("buildx", "version"), engines.SECONDS).returncode == 0:
        return engine.argv("buildx", "build", "--load", "--progress=plain"), {}
    client = engines.run(engine.argv("version", "--format", "{{.Client.Version}}"), engines.SECONDS).stdout
    major = re.match(r"\d+", client)
    if major and int(major[0]) < BUILDX_ONLY:
        return engine.argv("build", "--progress=plain"), {"DOCKER_BUILDKIT": "1"}
    return engine.argv("build", "--force-rm"), {"DOCKER_BUILDKIT": "0"}


def step(line: str) -> str:
    """The instruction that a line of a builder announces; empty for any other line."""
    found = _STEP.match(line)
    return found["title"] if found else ""


def failure(program: str, name: str, lines: Sequence[str]) -> UserError | WorkError:
    """One line about why a build failed, with the builder's last output below it."""
    text = "\n".join(lines)
    if re.search(r"(?i)no space left on device", text):
        return engines.error(program, "\n".join(lines[-LAST_WORDS:]))
    if wrong := _NO_DOCKERFILE.search(text):
        return UserError(f"the Dockerfile of {name} is invalid\n  {wrong[0].strip()}")
    said = _said(lines)
    title = step(said[0]) if said else ""
    if not _INSTRUCTION.match(title):
        return engines.error(program, "\n".join(line for line in lines[-LAST_WORDS:] if not line.startswith("---")))
    title = title if len(title) <= LONGEST_STEP else title[: LONGEST_STEP - 1] + "…"
    words = [line for line in said[1:] if not _NOISE.match(line)]
    return WorkError("\n".join([f"build of {name} failed at: {title}", *(f"  {w}" for w in words[-LAST_WORDS:])]))


def _said(lines: Sequence[str]) -> list[str]:
    """The failed step and its output. BuildKit interleaves steps and prefixes each line with the number of its step."""
    numbers = [found[1] for line in lines if (found := re.match(r"#(\d+) ERROR", line))]
    if numbers:
        mine = [line for line in lines if line.startswith(f"#{numbers[-1]} ")]
        return [*mine[:1], *(re.sub(r"^#\d+ (?:\d+\.\d+ )?", "", line) for line in mine[1:])]
    last = max((index for index, line in enumerate(lines) if step(line)), default=len(lines))
    return list(lines[last:])
