"""Steps as a shell script; what is left to a person is a comment in it."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence

from gpudoctor import filling, placeholders
from gpudoctor.model import Fix
from gpudoctor.plain import plain
from gpudoctor.repair.plan import Step, is_checked_later
from gpudoctor.report import words
from gpudoctor.version import __version__

_WIDTH = 78
_HEAD = """\
#!/bin/sh
# Fixes by gpudoctor {version}{where}, in a safe order.
#
# Read it before you run it. It stops at the first step that fails and never
# reboots or resets. Steps that interrupt work or need a decision, another
# machine or your own shell are comments, and so are alternatives.
set -e

step='' undo=''
stopped() {{
    code=$?
    [ "$code" = 0 ] && return
    printf '\\nStopped in step %s (exit code %s).\\n' "$step" "$code" >&2
    [ -z "$undo" ] || printf 'Undo: %s\\n' "$undo" >&2
}}
trap stopped EXIT
"""
_SUDO = """\
if [ "$(id -u)" = 0 ] && ! command -v sudo >/dev/null 2>&1; then
    sudo() { "$@"; }
fi
"""
_USER = "USER=${SUDO_USER:-$(id -un)}  # the user, even under sudo\n"


def render(steps: Sequence[Step], where: str = "", notes: Sequence[str] = ()) -> str:
    return "\n".join(_lines(steps, where, notes)) + "\n"


def _lines(steps: Sequence[Step], where: str, notes: Sequence[str]) -> Iterator[str]:
    yield _HEAD.format(version=__version__, where=f" for {plain(where)}" if where else "")
    for note in notes:
        yield from [*_comment(note), ""]
    if any("sudo " in step.command for step in steps if runs(step)):
        yield _SUDO
    if any("$USER" in step.command for step in steps if runs(step)):
        yield _USER
    for number, step in enumerate(steps, 1):
        yield from _step(number, steps, step)
        yield ""
    yield from _end(steps)


def _step(number: int, steps: Sequence[Step], step: Step) -> Iterator[str]:
    yield f"# {'-' * (_WIDTH - 2)}"
    yield from _comment(f"Step {number} of {len(steps)}: {step.fix.title}")
    for why in (step, *step.also):
        yield from _comment(f"Why:    {why.title} ({why.problem})", 8)
    if cost := terms(step):
        yield from _comment(f"Cost:   {cost}", 8)
    if runs(step):
        yield from _run(number, step, is_checked_later(step, steps))
    else:
        yield from _for_a_person(step)
    for other in step.alternatives:
        yield from _other(other.fix)


def runs(step: Step) -> bool:
    """What interrupts work is for a person to start."""
    return step.may_run and not step.disturbs


def terms(step: Step) -> str:
    return words.terms(Fix("", "", step.risk, step.needs))


def _run(number: int, step: Step, later: bool) -> Iterator[str]:
    if step.fix.undo:
        yield from _comment(f"Undo:   {step.fix.undo}", 8)
    if step.replaces_driver:
        yield from _comment("Until the reboot, new programs on the GPU may fail.")
    yield f"step={number} undo={shlex.quote(plain(step.fix.undo).replace(chr(10), '; '))}"
    yield f"printf '\\n== Step {number}: %s\\n' {shlex.quote(plain(step.fix.title))}"
    # A list of && does not end a script that has `set -e`; a subshell that fails does.
    for line in _commands(step.command):
        yield from ("(", f"    {line}", ") || :" if step.kind == "read" else ")")
    if step.fix.verify and later:
        when = "After the reboot" if step.reboots else "When all steps are done"
        yield from _comment(f"{when}, check that it worked: {step.fix.verify}")
    elif step.fix.verify:
        yield "# Check that it worked:"
        yield from (line for command in _commands(step.fix.verify) for line in ("(", f"    {command}", ")"))


def _for_a_person(step: Step) -> Iterator[str]:
    yield from _comment(reason(step))
    yield from (f"#     {line}" for line in _commands(step.command))
    if step.fix.verify:
        yield from _comment("Check that it worked:")
        yield from (f"#     {line}" for line in _commands(step.fix.verify))
    if step.fix.undo:
        yield from _comment(f"Undo:   {step.fix.undo}", 8)
    for line in placeholders.explained(name for text in step.fix.lines for name in filling.names(text)):
        yield from _comment(line, 4)


def reason(step: Step) -> str:
    """Why a step is left to a person."""
    if step.kind == "reset":
        return "For you to run once nothing uses the GPU:"
    if not step.command:
        return "Needs a reboot: see the end." if step.fix.command else "For you to do: there is no command for it."
    if step.disturbs and step.may_run:
        return "For you to run once nothing uses the GPU or the service:"
    if step.fix.risk == "destructive":
        return "For you to run, because it deletes data or settings:"
    if step.fix.where == "shell":
        return "For you to run in the shell that starts your program:"
    return "For you to run: it needs a decision or a value from you, or another machine."


def _other(fix: Fix) -> Iterator[str]:
    yield "#"
    cost = f" ({words.terms(fix)})" if words.terms(fix) else ""
    yield from _comment(f"Alternative: {fix.title}{cost}")
    yield from (f"#     {line}" for line in _commands(fix.command))


def _end(steps: Sequence[Step]) -> Iterator[str]:
    waiting = [str(number) for number, step in enumerate(steps, 1) if step.reboots]
    if waiting:
        yield f"# {'-' * (_WIDTH - 2)}"
        which = f"step{'s' if len(waiting) > 1 else ''} {', '.join(waiting)}"
        yield from _comment(f"Last: save all work, then reboot once, for {which}.")
        yield "#     sudo reboot"
        yield f"printf '\\n%s\\n' 'Now reboot for {which}: sudo reboot'"
    yield "printf '\\n%s\\n' 'Then check again: gpudoctor check'"


def _commands(command: str) -> list[str]:
    return plain(command).splitlines()


def _comment(text: str, indent: int = 0) -> list[str]:
    lines = textwrap.wrap(
        plain(text),
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="# " + " " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or ["#"]
