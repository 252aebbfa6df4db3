"""The container's Python starts.

What it means
If the container's Python is installed but does not start, no Python program starts either. The cause can be a wrong environment
variable, a missing library or a lack of memory.

How it is judged
gpudoctor entered the container from outside and found a Python that did not start. The output of that Python is the finding.

Known exceptions
A container without Python, or with one older than 3.8, is examined with its shell. That is not a fault.

References
https://docs.python.org/3/using/cmdline.html#environment-variables
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Problem, Skip

MOST_SAID = 300  # characters of Python's output

BROKEN = Problem(
    id="container-python-broken",
    title="The container's Python is installed, but does not start",
    why="Programs that run on it cannot start either. Usually an environment variable (PYTHONHOME, PYTHONPATH, LD_LIBRARY_PATH) "
    "names a path that does not exist, or a part of the Python is missing.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Show the environment variables that affect it", "env | grep -E '^(PYTHON|LD_)'"),
        look("Start it without these variables", "env -u PYTHONHOME -u PYTHONPATH -u LD_LIBRARY_PATH <python> -c 'print(1)'"),
    ),
    references=("https://docs.python.org/3/using/cmdline.html#envvar-PYTHONHOME",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    broken = facts.replies.starting_with("broken-python").get("broken-python")
    if broken:
        python, words = broken.value["python"], broken.value["words"]
        yield BROKEN.found(f"{python}: {telling(words) or 'no output'}", {"python": python})
    elif not facts.replies.starting_with("container-start"):
        raise Skip("no container was examined from outside")
    elif facts.replies.starting_with("reduced"):
        raise Skip("the container has no usable Python")


def telling(words: str) -> str:
    """The lines that name an error; everything if no line does."""
    lines = [line for line in words.splitlines() if "error" in line.lower()] or [words]
    return " ".join(" ".join(lines).split())[:MOST_SAID]


CHECK = Check(judge=judge, summary=lambda facts: "the container's Python starts", problems=(BROKEN,))
