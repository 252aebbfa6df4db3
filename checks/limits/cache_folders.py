"""The folders in which frameworks keep compiled kernels and downloads can be written.

What it means
Triton, CUDA, PyTorch and Hugging Face keep what they compile or download in folders of this user. If one cannot be written,
each start compiles or downloads again, or fails: "Permission denied" for a file below ~/.triton/cache.

How it is judged
For each folder that a variable names, or that is used without one, this user must be able to write to it or, if it does not
exist, to create it.

Known exceptions
A folder that several users share may be closed on purpose, with all files in it already.

References
https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

CLOSED = Problem(
    id="cache-folder-not-writable",
    title="A cache folder of a framework is not writable for this user",
    why="Compiled kernels and downloads cannot be kept, so each start repeats them, or stops with a permission error.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("Show who owns it", "ls -ld <path>"),
        Fix(
            "Give the folder to this user, if no other one needs it",
            'sudo chown -R "$(id -u):$(id -g)" <path>',
            verify="ls -ld <path>",
            kind="set",
            needs=("root",),
        ),
        Fix("Name another folder in the variable", "export <variable>=/tmp/cache", where="shell", kind="set"),
    ),
    references=("https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables",),
)


def folders(facts: Facts) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = facts.replies.value("cache-folders")
    if not found:
        raise Skip("this user has no home folder, and no variable names a cache")
    return found


def judge(facts: Facts) -> Iterator[Finding]:
    for variable, about in folders(facts).items():
        if about.get("writable") is False:
            words = f"{about['path']} ({variable}) {'is not writable' if about.get('exists') else 'cannot be created'}"
            yield CLOSED.found(words, {"variable": variable, "path": about["path"], "exists": about.get("exists")})


def summary(facts: Facts) -> str:
    return f"{len(folders(facts))} cache folders are writable"


CHECK = Check(judge=judge, summary=summary, problems=(CLOSED,))
