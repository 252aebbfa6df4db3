"""The folders in which frameworks keep compiled kernels and downloads can be written.

What it means
Triton, CUDA, PyTorch and Hugging Face keep what they compile or download in folders of this user. If one cannot be written,
each start compiles or downloads again, or fails: "Permission denied" for a file below ~/.triton/cache.

How it is judged
For each folder that a variable names, or that is used without one, this user must be able to write to it or, if it does not
exist, to create it. If the home folder itself is missing or closed, that is reported once, and not each folder in it.

Known exceptions
A folder that several users share may be closed on purpose, with all files in it already.

References
https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

USUAL = {
    "TRITON_CACHE_DIR": "/.triton/cache",
    "CUDA_CACHE_PATH": "/.nv/ComputeCache",
    "TORCH_HOME": "/.cache/torch",
    "TORCH_EXTENSIONS_DIR": "/.cache/torch_extensions",
    "HF_HOME": "/.cache/huggingface",
}
"""Variable -> the folder in the home folder that is used without it."""
ELSEWHERE = 'export <variable>="$(mktemp -d)"'
IN_ANOTHER = Fix("Name another folder in the variable", ELSEWHERE, where="shell", kind="set")
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
        IN_ANOTHER,
    ),
    references=("https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables",),
)
CREATE = Fix(
    "Create the folder for this user",
    'sudo mkdir -p <path> && sudo chown "$(id -u):$(id -g)" <path>',
    verify="ls -ld <path>",
    kind="set",
    needs=("root",),
)
NOT_CREATED = replace(CLOSED, fixes=(CREATE, IN_ANOTHER))
WITHOUT_HOME = replace(
    CLOSED,
    title="Caches cannot be kept: the home folder cannot be written",
    fixes=(
        Fix(
            "Set HOME to a folder of this user",
            'export HOME="/tmp/home-$(id -u)" && mkdir -p "$HOME"',
            verify='touch "$HOME"/.written && rm "$HOME"/.written',
            where="shell",
            kind="set",
        ),
        replace(CREATE, title="Create the home folder for this user"),
    ),
)


def folders(facts: Facts) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = facts.replies.value("cache-folders")
    if not found:
        raise Skip("this user has no home folder, and no variable names a cache")
    return found


def judge(facts: Facts) -> Iterator[Finding]:
    closed = {name: about for name, about in folders(facts).items() if about.get("writable") is False}
    home, inside = in_home(closed)
    if inside and not can_use_home(facts):
        words = f"HOME is {home}, where no folder can be created for {', '.join(inside)}"
        yield WITHOUT_HOME.found(words, {"path": home, "variables": inside})
        closed = {name: about for name, about in closed.items() if name not in inside}
    for variable, about in closed.items():
        exists = about.get("exists")
        words = f"{about['path']} ({variable}) {'is not writable' if exists else 'cannot be created'}"
        problem = CLOSED if exists else NOT_CREATED
        yield problem.found(words, {"variable": variable, "path": about["path"], "exists": exists})


def in_home(closed: dict[str, dict[str, Any]]) -> tuple[str, list[str]]:
    """The home folder, and the variables of those that would be created in it because nothing names another place."""
    absent = {name: about["path"] for name, about in closed.items() if not about.get("exists")}
    homes = {name: path.removesuffix(USUAL[name]) for name, path in absent.items() if path.endswith(USUAL.get(name, "//"))}
    home = next(iter(homes.values()), "")
    return home, [name for name, path in homes.items() if path == home]


def can_use_home(facts: Facts) -> bool:
    """Also if it is unknown: then each folder is reported separately."""
    asked = facts.replies.starting_with("home")
    return "home" not in asked or known(lambda: facts.limits.home.writable is not False, False)


def summary(facts: Facts) -> str:
    return f"{len(folders(facts))} cache folders are writable"


CHECK = Check(judge=judge, summary=summary, problems=(CLOSED,))
