"""The container's Python starts.

What it means
A Python that is there but does not start (a variable that leads it astray, a library that is missing, no memory left) takes
every program of its kind with it.

How it is judged
Where gpudoctor came into a container from outside and found a Python that did not start, what that said is the finding.

Known exceptions
A container without any Python, or with one older than 3.8, is asked by its shell; that is no fault.

References
https://docs.python.org/3/using/cmdline.html#environment-variables
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Problem, Skip

MOST_SAID = 300  # characters of what a Python says

BROKEN = Problem(
    id="container-python-broken",
    title="The container's Python is there, but does not start",
    why="Nothing that runs on it can start either. Mostly a variable of the container (PYTHONHOME, PYTHONPATH, LD_LIBRARY_PATH) "
    "names what is not there, or a part of it is missing.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("See what it is told by the environment", "env | grep -E '^(PYTHON|LD_)'"),
        look("Start it without that", "env -u PYTHONHOME -u PYTHONPATH -u LD_LIBRARY_PATH <python> -c 'print(1)'"),
    ),
    references=("https://docs.python.org/3/using/cmdline.html#envvar-PYTHONHOME",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    broken = facts.replies.starting_with("broken-python").get("broken-python")
    if broken:
        python, words = broken.value["python"], broken.value["words"]
        yield BROKEN.found(f"{python}: {telling(words) or 'it says nothing'}", {"python": python})
    elif not facts.replies.starting_with("container-start"):
        raise Skip("no container was looked into from outside")
    elif facts.replies.starting_with("reduced"):
        raise Skip("it has none that could be asked")


def telling(words: str) -> str:
    """The lines that name an error; all of it where none does."""
    lines = [line for line in words.splitlines() if "error" in line.lower()] or [words]
    return " ".join(" ".join(lines).split())[:MOST_SAID]


CHECK = Check(judge=judge, summary=lambda facts: "its Python starts", problems=(BROKEN,))
