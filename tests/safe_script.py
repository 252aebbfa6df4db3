"""What every script of `gpudoctor fix` must be: taken by shells, harmless by itself, in a safe order."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Sequence

from gpudoctor.model import Diagnosis
from gpudoctor.repair import plan, script
from gpudoctor.repair.plan import Step

SHELLS = tuple(filter(None, map(shutil.which, ("sh", "bash"))))


@functools.cache
def complaint(shell: str, text: str) -> str:
    """What a shell says that only reads a script."""
    return subprocess.run([shell, "-n"], input=text, text=True, capture_output=True).stderr


def check(diagnosis: Sequence[Diagnosis]) -> None:
    steps = plan.of_report(diagnosis)
    if steps:
        text = script.render(tuple(steps), "Ubuntu 24.04")
        assert "\x1b" not in text
        for shell in SHELLS:
            assert complaint(shell, text) == ""
    for step in filter(script.runs, steps):
        _runs_nothing_that_disturbs(step)
    assert [step.kind for step in steps] == sorted((step.kind for step in steps), key=plan.ORDER.index)
    commands = [step.command for step in steps if step.command]
    assert len(commands) == len(set(commands))


def _runs_nothing_that_disturbs(step: Step) -> None:
    assert not re.search(r"\breboot\b|gpu-reset|poweroff|shutdown", step.command)
    assert not re.search(r"<[a-z_]+>|\bIMAGE\b|\bCONTAINER\b", step.command)
    assert step.fix.risk != "destructive"
    assert "drain" not in step.needs
