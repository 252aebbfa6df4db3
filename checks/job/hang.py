"""The program that gpudoctor hang looked at moves.

What it means
A program moves if its main thread was found in different places, or if it read or wrote data meanwhile. A training loop that
waits for its GPU in each step moves as well, because its samples differ.

How it is judged
For some seconds, stacks are sampled and /proc is read. If no rank of the job moves (or, without ranks, no process), the program
hangs; the checks hang-processes and hang-collectives look for the cause, and an Xid that names one of its processes is a cause as
well. In files without a program, what they record is judged alone.

Known exceptions
A program that sleeps or waits for work on purpose, such as a server, is found to stand still. A launcher stands still while its
ranks work; it is not judged. A program that uses the processor, but whose stacks cannot be read, is not judged: then only the
rest of /proc is known, and how to get the stacks is said.

References
https://man7.org/linux/man-pages/man5/proc.5.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.job.stuck import Look, Process
from gpudoctor.facts.known import known
from gpudoctor.judging.jobs.hanging import ras, stacks, waiting
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip

MOST_SHOWN = 8
FOUND_BY = ("hang-processes", "hang-collectives")
OF_DRIVER = ("xids", "program-xids", "memory-xids")
HANGS = Problem(
    id="program-hangs",
    title="The program does not move",
    why="Each of its processes stood still all the time that gpudoctor looked. If nothing below or above explains it, the "
    "stacks in the evidence show what the program waits for.",
    action=Action.RESTART_APP,
    fixes=(
        Fix(
            "Look again, for longer and with the frames of C code (pauses each process for an instant)",
            "sudo gpudoctor hang --pid <pid> --for 20 --native",
            needs=("root",),
        ),
        Fix(
            "Install py-spy, which reads the Python stacks of a running program from outside",
            "<python> -m pip install py-spy",
            kind="install",
            needs=("network",),
        ),
        Fix(
            "Next time: let PyTorch record the collectives of each rank",
            "export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 TORCH_FR_DUMP_TEMP_FILE=/tmp/nccl_trace_rank_",
            where="shell",
        ),
        Fix("Next time: let the program print its stacks on SIGUSR1: faulthandler.register(signal.SIGUSR1, all_threads=True)"),
    ),
    references=("https://github.com/benfred/py-spy", "https://docs.python.org/3/library/faulthandler.html"),
)


def judge(facts: Facts) -> Iterator[Finding]:
    look = facts.job.stuck.look
    found = tuple(dict.fromkeys(finding.problem.id for check in FOUND_BY for finding in facts.found.get(check, ())))
    causes = (*found, *_of_driver(facts, look))
    if not look.processes:
        if not (look.dumps or look.timeouts):
            raise Skip("the given files do not tell which collectives the ranks entered")
        return
    judged = judged_of(look)
    known_moves = {process.pid: ras.grows(look.ras) or waiting.moves(look, process) for process in judged}
    if any(known_moves.values()) and not causes:
        return
    unknown = [process for process in judged if known_moves[process.pid] is None]
    if unknown and not causes:
        raise Skip(_why_not(look, unknown[0]), Skip.NOT_INSTALLED if look.no_stacks else Skip.NOT_PERMITTED)
    still = [process for process in judged if known_moves[process.pid] is False]
    if not still and not causes:
        return
    words = "; ".join(_shown(look, process) for process in (still or judged)[:2])
    evidence: dict[str, Any] = {"asked": look.asked, "seconds": round(look.seconds, 1), "pid": (still or judged)[0].pid}
    evidence["processes"] = [_shown(look, process) for process in judged[:MOST_SHOWN]]
    if stack := _stack(judged):
        evidence["stack"] = stack
    if look.no_stacks:
        evidence["no_stacks"] = look.no_stacks
    sure = Confidence.CONFIRMED if causes else Confidence.UNKNOWN
    finding = HANGS.found(f"for {look.seconds:.0f} s, {words}", evidence, confidence=sure)
    yield replace(finding, causes=causes)


def judged_of(look: Look) -> tuple[Process, ...]:
    """The ranks; without ranks, all processes but launchers and those that only wait for their children."""
    if look.ranks:
        return look.ranks
    own = [process for process in look.processes if not process.launcher]
    active = [process for process in own if not _waits_for_child(look, process)]
    return tuple(active or own or look.processes[:1])


def _waits_for_child(look: Look, process: Process) -> bool:
    wait = waiting.of(look, process)
    return bool(wait and wait.toward and wait.kind in ("child", "pipe-read")) and any(
        child.moves for child in look.children(process.pid)
    )


def _of_driver(facts: Facts, look: Look) -> tuple[str, ...]:
    """The problems of an Xid that names a process of the program, or that came after the program had started."""
    started = min((process.started for process in look.processes), default=0.0)
    pids = {process.pid for process in look.processes}
    xids = known(lambda: facts.kernel_log.xids, ())
    if not any(xid.pid in pids or (xid.seconds is not None and xid.seconds >= started) for xid in xids):
        return ()
    return tuple(finding.problem.id for check in OF_DRIVER for finding in facts.found.get(check, ()))


def _shown(look: Look, process: Process) -> str:
    if wait := waiting.of(look, process):
        return f"{process.shown} {wait.words}"
    place = stacks.shown(process.main)
    moves = ras.grows(look.ras) or waiting.moves(look, process)
    how = "moves" if moves else "stands still" if moves is False else f"uses {process.cores:g} cores"
    return f"{process.shown} {how}{f' at {place}' if place else ''}"


def _stack(judged: Sequence[Process]) -> list[str]:
    frames = next((process.main.frames for process in judged if process.moves is False and process.main.frames), ())
    return [f"{frame.function} ({frame.file}:{frame.line})" for frame in frames[:16]]


def _why_not(look: Look, process: Process) -> str:
    reason = look.no_stacks or process.no_stack or "its stacks could not be read"
    return f"{process.shown} uses {process.cores:g} cores, but whether it gets on cannot be seen: {reason}"


def summary(facts: Facts) -> str:
    look = facts.job.stuck.look
    moving = [process for process in judged_of(look) if waiting.moves(look, process)] if look.processes else []
    if not look.processes:
        return "no collective that does not end in the given files"
    return f"{_shown(look, moving[0])}" if moving else "nothing hangs"


CHECK = Check(judge=judge, summary=summary, problems=(HANGS,), after=(*FOUND_BY, *OF_DRIVER))
