"""The command that `gpudoctor why` ran worked as wanted.

What it means
The user's own program is the measure: it ended with exit code 0, was not killed, ended in time, and was as fast as wanted.

How it is judged
What the command printed is searched like any log (messages), and its repeats without suspected things are judged as experiments.
If one of them explains the failure, the failure is shown as its effect. The words that a shell prints about a signal, and what
the kernel counted meanwhile for the cgroup, are searched as well. If nothing else explains a failure whose last words are about
GPUs, what hides all GPUs here explains it.

Known exceptions
A command that was interrupted by the user is not judged.

References
https://docs.kernel.org/admin-guide/cgroup-v2.html
https://man7.org/linux/man-pages/man7/signal.7.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.command import NAME, QUESTION, Command
from gpudoctor.judging.experiments import telling, verdict
from gpudoctor.judging.measured import cores
from gpudoctor.knowledge.messages import messages
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Status

MOST_LINES = 12
ERROR_LINES = 4  # the error, and the line of the program above it
ABOUT_GPUS = re.compile(r"\bGPUs?\b|cuda|nvidia|CpuDevice", re.IGNORECASE)
NO_GPUS = "torch-no-gpus-available"
"""The message whose causes hide all GPUs."""
AGAIN = Fix(
    "Let gpudoctor repeat the command without suspected settings, limits and folders, one at a time",
    "gpudoctor why --yes -- <command>",
)
FAILED = Problem(
    id="command-failed",
    title="The command failed, and its cause was not found",
    why="No known message in its output and no fact about this machine explains the failure. The last lines of its output "
    "name the error; if they name a file of the program, the program itself is the first suspect.",
    action=Action.RESTART_APP,
    fixes=(
        AGAIN,
        Fix(
            "Compare with a machine where it works: save a snapshot there, then use it here",
            "gpudoctor why --yes --like <good> -- <command>",
        ),
        Fix(
            "Ask for help: write a ticket with its output and the facts of this machine, redacted",
            "gpudoctor why --yes --redact -o issue.md -- <command>",
        ),
    ),
)
KILLED = Problem(
    id="command-killed",
    title="The command was killed by a signal",
    why="A crash in compiled code (SIGSEGV, SIGBUS, SIGILL, SIGABRT) leaves no Python traceback. Mixed libraries, a wrong build "
    "for this processor and a full memory file system are usual causes. SIGKILL comes from the kernel when memory runs out, or "
    "from a scheduler.",
    action=Action.RESTART_APP,
    fixes=(
        Fix("For a Python program: print where it crashes", "PYTHONFAULTHANDLER=1 <command>", kind="manual"),
        AGAIN,
    ),
)
HANGS = Problem(
    id="command-hangs",
    title="The command did not end in time",
    why="It was ended when its time was up. A process in state D waits for a device or a file system; one in futex_wait waits "
    "for another thread; one that waits for a socket waits for another process.",
    action=Action.RESTART_APP,
    fixes=(
        Fix("While it hangs: show where each thread of a Python program is", "py-spy dump --pid <pid>", kind="read"),
        AGAIN,
    ),
)
SLOW = Problem(
    id="command-slow",
    title="The command is slower than wanted",
    why="It worked, but not as fast as --faster-than or --at-least requires. gpudoctor check measures whether the GPUs, links "
    "and memory reach what they should.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(Fix("Measure this machine", "gpudoctor check", kind="read"), AGAIN),
)
BY_KIND = {"failed": FAILED, "killed": KILLED, "hangs": HANGS, "slow": SLOW}


def judge(facts: Facts) -> Iterator[Finding]:
    command = facts.command
    if command.kind not in BY_KIND:
        return
    evidence = {"command": command.line, "seconds": round(command.seconds, 2)}
    if words_of_end := _last_words(facts):
        evidence["last_words"] = words_of_end
    evidence |= {name: list(value) for name, value in (("waiting", command.waiting), ("left_running", command.left)) if value}
    problem = _with_fixes(BY_KIND[command.kind], command)
    left = cores.core(facts, command.failure)
    at = 0 if all(fix.kind == "read" for fix in left.fixes) else 1  # what needs no repeat comes first
    problem = replace(problem, fixes=(*problem.fixes[:at], *left.fixes, *problem.fixes[at:]))
    words = "; ".join(filter(None, (f"{command.line} {command.failure}", left.words, *command.waiting[:2], *_tried(facts))))
    proved = tuple(verdict.of_command(facts))
    yield from proved
    causes = (*(finding.problem.id for finding in proved), *_of_words(facts))
    unexplained = Confidence.CONFIRMED if causes else Confidence.UNKNOWN
    finding = problem.found(words, evidence, confidence=unexplained)
    yield replace(finding, causes=tuple(dict.fromkeys(causes or _without_gpu(words_of_end))))


def _last_words(facts: Facts) -> str:
    """The end of what the command printed."""
    text = next((text for text in facts.texts.all if text.name == NAME), None)
    return "\n".join(line for _, line in text.lines[-MOST_LINES:]) if text else ""


def _with_fixes(problem: Problem, command: Command) -> Problem:
    """With the words of the command, each one word in the fix, too; repeating is no advice after it was repeated."""
    kept = (fix for fix in problem.fixes if fix is not AGAIN or command.not_repeated)
    return replace(problem, fixes=tuple(fix.filled({"command": command.words or "\n"}) for fix in kept))


def _tried(facts: Facts) -> Iterator[str]:
    """What the repeats show if nothing decides, or why there were none."""
    for proof in verdict.proofs(facts):
        if proof.subject == QUESTION and not proof.guilty:
            yield telling.tried(proof)
    if facts.command.not_repeated:
        yield facts.command.not_repeated


def _of_words(facts: Facts) -> Iterator[str]:
    """The problems that the command's output names."""
    return (finding.problem.id for finding in facts.found.get("messages", ()) if not finding.is_clue)


def _without_gpu(words: str) -> Iterator[str]:
    """What hides all GPUs, if the words of an unexplained failure are about GPUs."""
    said = [line for line in words.splitlines() if not line.lstrip().startswith("File ")]
    if any(ABOUT_GPUS.search(line) for line in said[-ERROR_LINES:]):
        yield from next(row.causes for row in messages() if row.id == NO_GPUS)


def summary(facts: Facts) -> str:
    return f"{facts.command.line} worked"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(FAILED, KILLED, HANGS, SLOW),
    after=("messages",),
)
