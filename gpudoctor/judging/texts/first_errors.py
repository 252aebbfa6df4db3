"""The error of a program itself, if a launcher, watchdog or server reports only that something failed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gpudoctor.facts.texts import Text
from gpudoctor.fixes.common import look
from gpudoctor.knowledge.messages import Message
from gpudoctor.model import Confidence, Finding, Fix, Problem

PROBLEM = "program-raised-error"
MOST_TOLD = 160  # characters of the error

# Prefixes of a line: the rank, the process of Ray or vLLM, the time and location from a logger.
_BEFORE = re.compile(
    r"""
    (?:
        \[?[Rr]ank\ ?(?P<rank>\d+)\]?:?\ ?
        | \(\w[^\n]{0,120}?\ ?pid=\d+[^)\n]*\)\ ?                     # Ray, vLLM
        | (?:ERROR|CRITICAL)\ [^\]\n]{0,60}\]\ ?                      # the level and location from a logger
        | \d{4}-\d\d-\d\d[T ][\d:.,]+Z?\ ?(?:ERROR\ )?
    )*
    """,
    re.VERBOSE,
)
_ERROR = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): \S[^\n]{2,}")
_NOT_STARTED = re.compile(
    r"""
    \S*python[\d.]*:[ ]
    (?P<words> Error\ while\ finding\ module\ specification\ for\ \S[^\n]* | can't\ open\ file\ [^\n]+ )
    """,
    re.VERBOSE,
)
# What a process reports about another process or about its own end.
_ECHO = re.compile(
    r"""
    \b(?:
        ChildFailed | DistBackend | DistStore | DistNetwork | CalledProcess | EngineDead | ActorDied | RayActor | RayTask
        | BrokenPipe | Timeout | Connection(?:Reset|Refused|Aborted)? | EOF | WorkerCrashed
    )Error\b
    | \b(?:Signal|ProcessRaised|ProcessExited)Exception\b
    | NCCL | nccl | gloo/ | CUDA\ error
    | Engine\ core\ init | [Ee]ngine\ process
    | Broken\ pipe | [Cc]onnection\ (?:reset|closed|refused)
    """,
    re.VERBOSE,
)


# Errors that do not end a program: ignored exceptions, tests that provoke an error, a server's failed request.
_NO_END = re.compile(
    r"""
    Exception\ ignored\ in
    | Exception\ in\ ASGI\ application
    | During\ task\ with\ name
    | Task\ exception\ was\ never\ retrieved
    """,
    re.VERBOSE,
)
_GOES_ON = re.compile(
    r"""
    \b(?:loss|epoch|step|iter\w*)\b[ =:]
    | \bit/s | \d%\|
    | skipp | retry | continu | \bsaved\b | finished | success\b | succeeded | passed | complete
    | \b200\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OF_GPU = re.compile(
    r"cuda | gpu | nccl | nvidia | nvml | cudnn | cublas | device | driver | memory | libnv | triton | kernel",
    re.IGNORECASE | re.VERBOSE,
)
MOST_UNSEEN = 20  # lines after the error, at least half of which a long text must have kept
MOST_FRAME_LINES = 12  # above an error; one of them must be a frame of its traceback
_FRAME = re.compile(
    r"""
    Traceback\ \(most\ recent\ call\ last\)
    | \bFile\ "[^"]+",\ line\ \d+
    | ^-+>\ ?\d+[ ]        # IPython
    | ^\S+\ in\ \S+\(
    | ^File\ \S+:\d+
    """,
    re.VERBOSE,
)
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([A-Za-z_]\w*)'")
MOST_CONTINUED = 4  # lines that may continue an error
MOST_BEHIND = 3  # lines that a program prints after its last error and the rest of the message

NOT_OF_GPU = (
    "The text ends with a traceback of the program, and nothing in it points to a fault of the GPU, its driver or CUDA. The "
    "last line names the error; the lines above it name the file and line of the program."
)
WAYS = (
    Fix(
        "Find the lowest line of the traceback that is in your own code: it received something that it cannot use, such as "
        "tensors of the wrong shape or type, a wrong checkpoint, or an empty data folder"
    ),
    look(
        "If the error is in a package: check which versions it requires and which are installed",
        "python -m pip check; python -m pip list",
    ),
    Fix("Stop at the error and inspect the values (train.py: your program)", "python -m pdb -c continue train.py"),
)


class Said(NamedTuple):
    """An error where it first occurs; rank is "" if unknown."""

    text: Text
    line: int
    rank: str
    words: str


def first_error(texts: Iterable[Text], wrapping: Sequence[Message], problems: Mapping[str, Problem]) -> Iterator[Finding]:
    """The first error of a program that no message matches. wrapping: the messages that only report that something failed."""
    if not any(PROBLEM in message.causes for message in wrapping):
        return
    said = next((error for text in texts for error in _errors(text, wrapping)), None)
    if said:
        who = f"rank {said.rank}" if said.rank else "the program"
        evidence = {"said": said.words, "where": f"{said.text.name}, line {said.line}"}
        problem = replace(problems[PROBLEM], fixes=_ways(said.words, problems[PROBLEM].fixes))
        yield Finding(problem, f"{who} ended with its own error: {_short(said.words)}", evidence, confidence=Confidence.LIKELY)


def last_error(texts: Iterable[Text], problems: Mapping[str, Problem]) -> Iterator[Finding]:
    """The error of a program at the end of a text, if no message is known and the error does not mention the GPU."""
    for text in texts:
        if text.of_passed_tests:
            continue
        *_, said = (None, *_errors(text, ()))
        if said and not _OF_GPU.search(said.words) and _is_the_end(text, said):
            problem = replace(problems[PROBLEM], why=NOT_OF_GPU, fixes=_ways(said.words, WAYS))
            evidence = {"said": said.words, "where": f"{text.name}, line {said.line}"}
            yield Finding(
                problem, f"the program ended with its own error: {_short(said.words)}", evidence, confidence=Confidence.LIKELY
            )
            return


def _short(words: str) -> str:
    return words if len(words) <= MOST_TOLD else words[: MOST_TOLD - 2].rstrip() + " …"


def _is_the_end(text: Text, said: Said) -> bool:
    """Whether a traceback leads to the error and hardly anything follows it."""
    behind = [
        line for number, line in text.lines if number > said.line and line.strip() and not line.startswith((" ", "\t", ">"))
    ]
    above = [line for number, line in text.lines if number < said.line]
    rest = text.total_lines - said.line
    if rest > MOST_UNSEEN and 2 * sum(number > said.line for number, _ in text.lines) < rest:
        return False
    if not any(_FRAME.search(line) for line in above[-MOST_FRAME_LINES:]):
        return False
    starts = [place for place, line in enumerate(above) if "Traceback (most recent call last)" in line]
    start = starts[-1] if starts else 0
    if any(_NO_END.search(line) for line in above[max(start - 2, 0) : start + 1]):
        return False
    return len(behind) <= MOST_BEHIND and not any(_GOES_ON.search(line) for line in behind)


def _ways(words: str, otherwise: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """The fixes; for a missing module, first the one that installs it."""
    missing = _MISSING.match(words)
    return (*(_install(missing[1]) if missing else ()), *otherwise)


def _install(module: str) -> tuple[Fix, ...]:
    return (
        Fix(
            f"Install the module {module} in this environment (its package may have another name); for a job: on all its nodes",
            "<python> -m pip install <module>",
            needs=("network",),
            verify="<python> -c 'import <module>'",
            kind="install",
        ).filled({"module": module}),
    )


def _errors(text: Text, wrapping: Sequence[Message]) -> Iterator[Said]:
    for passage in text.passages:
        above = " "
        lines = passage.text.split("\n")
        for number, line in enumerate(lines, passage.first):
            before = _BEFORE.match(line)
            rest = line[before.end() :] if before else line
            error = _ERROR.match(rest) if above.startswith((" ", "\t", "Traceback (")) else None
            started = _NOT_STARTED.match(rest)
            words = error[0] if error else started["words"] if started else ""
            if words and not _ECHO.search(words) and not any(message.regex.search(line) for message in wrapping):
                more = _continued(words, lines[number - passage.first + 1 :][:MOST_CONTINUED])
                yield Said(text, number, (before["rank"] or "") if before else "", " ".join(f"{words} {more}".split()))
            above = rest if rest.strip() else above


def _continued(words: str, following: Sequence[str]) -> str:
    """The rest of an error that ends with a colon, from the next lines: TensorFlow's reasons, the keys of a state_dict."""
    if not words.rstrip().endswith(":"):
        return ""
    told = [line.strip() for line in following if line.startswith((" ", "\t")) and line.strip()]
    return next((line for line in told if line.startswith("(0) ")), told[0] if told else "")
