"""What a code is, what it means and what to do: the tables' rows as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from gpudoctor import catalog
from gpudoctor.codes import known
from gpudoctor.codes.forms import Code
from gpudoctor.codes.text import command, entry, listed, paragraph, parts
from gpudoctor.fixes import engines
from gpudoctor.knowledge import errors, rm, xids
from gpudoctor.knowledge.tables import Row, Table
from gpudoctor.model import Action
from gpudoctor.report import words

MOST_FIXES = 3
STRENGTH = {"confirmed": "Meaning:", "likely": "Likely meaning:", "unknown": "Possible meaning:"}
FOLLOWS = {
    "always": "It is a follow-up: the Xid before it on the same GPU is the cause.",
    "unless alone": "If another Xid of the same GPU came before it, it is a follow-up and that Xid is the cause.",
}
BEFORE = "sudo dmesg | grep -B 12 'RmInitAdapter failed' | head -n 40"
OF_A_SWITCH = {
    "always": "NVIDIA lists it among those that stop the whole switch.",
    "potentially": "NVIDIA lists it among those that can stop a link.",
    "other": "NVIDIA lists it among those that stop nothing: counted, corrected or informational.",
    "unknown": "The driver's source defines it, but no public driver reports it.",
}
OF_A_PROGRAM = "An error in the program: no machine or environment is known to cause it."


def lines(code: Code) -> Iterator[str]:
    """Everything that is known about a code; UserError, with the nearest codes, if it is not known."""
    if code.kind == "xid":
        yield from parts(*_xid(known.numbered("Xid", xids.table().xids, code)))
    elif code.kind == "sxid":
        yield from parts(*_sxid(known.numbered("SXid", xids.table().sxids, code)))
    elif code.kind == "rm":
        yield from parts(*_rm(code))
    elif code.kind == "status":
        yield from parts(*_status(known.status(code)))
    else:
        yield from parts(*_error(code, known.diagnosed(known.error(code))))


def _xid(row: xids.Xid) -> Iterator[Iterable[str]]:
    yield paragraph(f"Xid {row.code}: {row.name}")
    yield chain(
        entry("NVIDIA's name", row.mnemonic + (f", on {row.applies_to}" if row.applies_to else "")),
        entry("NVIDIA's action", _token(row.action) or "none listed in the catalogue"),
        entry("Then", _token(row.investigate)),
    )
    yield chain(
        paragraph(row.meaning),
        paragraph(f"Cause: {row.cause}." if row.cause else ""),
        paragraph(FOLLOWS.get(row.follows, "")),
        paragraph(f"Note: {row.note}." if row.note else ""),
        paragraph("NVIDIA marks it as unused: current drivers do not report it." if row.severity == "unused" else ""),
    )
    yield chain(
        entry("What to do", _work(row.ours)),
        entry("Why", row.why),
        entry("If it also occurred in another boot", _work(row.again) if row.again else ""),
    )
    yield _problem(row.problem)
    yield _more(xids.table(), row, row.problem)


def _sxid(row: xids.SXid) -> Iterator[Iterable[str]]:
    fatal = None if row.fatal == "other" else "nvswitch-error"
    yield paragraph(f"SXid {row.code}: {row.name}")
    yield entry("NVIDIA's name", row.mnemonic)
    yield chain(["An error of an NVSwitch. The line in the log says Fatal or Non-fatal."], paragraph(OF_A_SWITCH[row.fatal]))
    yield chain(
        entry("After a fatal one", _work(Action.REBOOT) + "; this resets all GPUs and switches together"),
        entry("If it also occurred in another boot", _work(Action.REPLACE_HARDWARE)),
        entry("After a non-fatal one", _work(Action.WATCH) if row.is_risky else "nothing"),
    )
    yield _problem(fatal)
    yield _more(xids.table(), row, fatal)


def _rm(code: Code) -> Iterator[Iterable[str]]:
    number, value = code.number or 0, code.status or 0
    steps, status = known.steps(code), rm.rm_status(value)
    yield paragraph(f"RmInitAdapter failed! (0x{number:x}:0x{value:x}{'' if code.line is None else f':{code.line}'})")
    yield ["The driver could not initialise a GPU, so no program can see that GPU."]
    yield chain(
        *(entry(f"Step 0x{step.code:x}{_branches(step)}", f"{step.words} ({step.name})") for step in steps),
        entry(f"Status 0x{value:x}", f"{status.text} ({status.name})" if status else "not in the public driver"),
        entry(f"Line {code.line}", "" if code.line is None else "of the driver's source, which differs between releases"),
    )
    failure = rm.rm_failure(number, value)
    if failure is None:
        yield chain(["The lines that the driver wrote just before it say more:"], command(BEFORE))
        yield _problem("gpu-initialisation-failed")
        yield _more(rm.table(), steps[0], "gpu-initialisation-failed")
        return
    yield chain(
        paragraph(f"{STRENGTH[failure.confidence]} {failure.words}."),
        ["The lines that the driver wrote just before it count more than the numbers:"],
        command(BEFORE),
    )
    yield _problem(failure.problem, bool(failure.causes))
    yield _others(failure.causes, failure.decide)
    yield _more(rm.table(), failure, failure.problem)


def _branches(step: rm.Step) -> str:
    if step.last is None:
        return f" (R{step.first} and newer)" if step.first else ""
    return f" (R{step.first} to R{step.last})"


def _status(row: rm.DriverStatus) -> Iterator[Iterable[str]]:
    failures = [failure for failure in rm.table().failures if failure.status == row.code and failure.step is not None]
    yield paragraph(f"{row.name} (0x{row.code:x}): {row.text}")
    yield [
        'A status inside NVIDIA\'s driver, in kernel messages such as "[NV_ERR_...]".',
        "It does not show the cause. The function and the Xid in the same messages do.",
    ]
    if failures:
        yield chain(
            ['As the second number of "RmInitAdapter failed!" it is known with:'],
            listed(f"step 0x{failure.step:x}: {failure.words}" for failure in failures),
        )
    yield _more(rm.table(), row, None)


def _error(code: Code, row: errors.Error) -> Iterator[Iterable[str]]:
    yield paragraph(known.title(code, row))
    yield entry("Message", f'"{row.text}"' if row.text else "")
    yield chain(
        paragraph(row.meaning or OF_A_PROGRAM),
        paragraph(f"Cause: {row.cause}" + ("." if row.cause_verified else " (from experience).") if row.cause else ""),
        entry("What to do", row.fix),
    )
    yield _problem(row.problem, bool(row.causes))
    yield _others(row.causes, row.decide, "Other possible causes" if row.problem else "Possible causes")
    yield _more(known.table_of(code), row, row.problem)


def _token(token: str) -> str:
    meaning = xids.xid_action(token)
    return f"{token}: {meaning}" if meaning else token


def _work(action: Action) -> str:
    return words.TO_DO.get(action, "nothing")


def _problem(id: str | None, is_one_of_several: bool = False) -> Iterator[str]:
    """The problem that it is diagnosed as, with its first fixes."""
    problem = catalog.problems()[id][1] if id in catalog.problems() else None
    if problem is None:
        return
    yield from paragraph(f"{'Usually it is' if is_one_of_several else 'Diagnosed as'} {problem.id}: {problem.title}.")
    yield f"  {words.to_do(problem)}"
    shown: list[str] = []
    for fix in engines.of(problem.fixes, "docker"):
        if fix.title not in shown and len(shown) < MOST_FIXES and "container" not in fix.on:
            shown.append(fix.title)
            yield from paragraph(f"Fix: {fix.title}", "  ")
            yield from command(fix.command)


def _others(causes: Sequence[str], decide: str, heading: str = "Other possible causes") -> Iterator[str]:
    problems = catalog.problems()
    named = [problems[id][1] for id in causes if id in problems]
    if named:
        yield f"{heading}, in the order in which to rule them out:"
        yield from listed(f"{problem.id}: {problem.title}" for problem in named)
    if decide:
        yield "To decide:"
        yield from command(decide)


def _more(table: Table, row: Row, problem: str | None) -> Iterator[str]:
    yield f"Source (read {table.read(row)}):"
    yield from (f"  {reference}" for reference in table.references(row))
    if problem and problem in catalog.problems():
        yield f"More: gpudoctor explain {problem}"
