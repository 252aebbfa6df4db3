"""Where Python runs in a text: a module or GPU that one place has, and a notebook, an editor or a service lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding, Fix

TITLE = "The editor or notebook runs another Python than the terminal"
IN_EDITOR = Fix(
    "In the editor: choose the Python of that environment (PyCharm: Settings, Project, Python Interpreter; VS Code: the command "
    "Python: Select Interpreter), then start its console again"
)
_EDITOR = re.compile(r"(?i)\b(?:pycharm|vs ?code|visual studio code|spyder)\b")

_NAMES = r"(?:torch|tensorflow|jax|cupy|cudf|numba|onnxruntime|keras|transformers|flash_attn|xformers|bitsandbytes)"
_IMPORTED = re.compile(
    rf"""
    ^\s*>>>\ (?:import|from)\ (?P<module>{_NAMES})\b[^\n]*\n (?! Traceback | \s*File\ " | ModuleNotFound | ImportError )
    """,
    re.MULTILINE | re.VERBOSE,
)
_MISSED = re.compile(rf"No module named ['\"]?(?P<module>{_NAMES})\b")
_CELL = re.compile(r"(?m)^[ \t]*In ?\[\d*\]:|<ipython-input-\d|\b(?:Cell|Input) In ?\[\d+\]")
_PLACE = r"(?:jupyter(?:lab)?|(?:the\ |my\ )?notebooks?|ipython|pycharm|vs\ ?code|visual\ studio\ code|spyder|idle)"
_SHELL = (
    r"(?:terminal|command\ (?:line|prompt)|cmd|shell|console|bash|anaconda\ prompt|conda\ prompt|powershell|python\ prompt"
    r"|python\ (?:REPL|interpreter))"
)
_WORKS = (
    r"(?:works?|working|worked|succe\w+|no\ (?:error|problem)|fine|okay?|finds?|True|is\ successful|without\ (?:an\ )?errors?)"
)
_SAID = re.compile(
    rf"""
    \b{_SHELL}\b[^\n]{{0,120}}\b{_WORKS}\b | \b{_WORKS}\b[^\n]{{0,80}}\b(?:in|from|at|on|using)\ [^\n]{{0,25}}\b{_SHELL}\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ELSEWHERE = re.compile(rf"\b(?P<place>{_PLACE})\b", re.IGNORECASE | re.VERBOSE)
_RUN = re.compile(
    r"""
    ^(?P<path>(?:/|[A-Z]:\\)\S{0,200}[/\\]python[\d.]{0,6}(?:\.exe)?)\ +(?!-)\S+\.py\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_PRINTED = re.compile(
    r"""
    ^['(\s]*(?P<path>(?:/|[A-Z]:\\)\S{0,200}[/\\]python[\d.]{0,6}(?:\.exe)?)\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_SEEN = re.compile(r"device:GPU:0|\bTrue\b|CudaDevice|\bcuda:0\b")
_UNSEEN = re.compile(r"(?m)^\[\]$|^False$|No module named|CpuDevice|not compiled with CUDA|^cpu$")
_PREFIX = re.compile(r"(?:[/\\]bin|[/\\]Scripts)?[/\\][^/\\]+$", re.IGNORECASE)


def missed_in_cells(facts: Facts) -> Iterator[Finding]:
    """A module is imported at Python's own prompt, and is missing in the cells of a notebook or of IPython."""
    text = "\n".join(passages(facts))
    imported = {match["module"] for match in _IMPORTED.finditer(text)}
    missed = {match["module"] for match in _MISSED.finditer(text)}
    if (both := sorted(imported & missed)) and _CELL.search(text) and len(facts.shown.executables) < 2:
        place = "IPython" if re.search(r"(?m)^\S*.*[$%#] ipython3?\s*$", text) else "the notebook"
        yield _found(facts, f"python imports {both[0]}, and {place} does not find it: it runs another Python", both[0])


def said_to_work_in_shell(facts: Facts) -> Iterator[Finding]:
    """The text says that it works in a terminal, and a notebook or editor misses the module."""
    for text in passages(facts):
        missed, said = _MISSED.search(text), _SAID.search(text)
        place = _ELSEWHERE.search(text)
        if missed and said and place and place["place"].lower() != "idle":
            words = f"{missed['module']} is found in the terminal, but not in {place['place']}: it runs another Python"
            yield _found(facts, words, missed["module"])
            return


def run_by_another(facts: Facts) -> Iterator[Finding]:
    """A program is started by a path of Python that is not the one where the GPU is seen."""
    text = "\n".join(passages(facts))
    runs = list(_RUN.finditer(text))
    own = [match for match in _PRINTED.finditer(text) if not any(run.start() == match.start("path") for run in runs)]
    if len(runs) != 1 or not own or not _SEEN.search(text) or not _UNSEEN.search(text, runs[0].end()):
        return
    used, other = runs[0]["path"], own[0]["path"]
    if _PREFIX.sub("", used) != _PREFIX.sub("", other):
        yield _found(facts, f"the program runs with {used}, and the GPU is seen by {other}", "", python=other, used=used)


def _found(facts: Facts, words: str, module: str, **more: str) -> Finding:
    evidence = {**({"package": module} if module else {}), **more}
    problem = facts.problems["notebook-kernel-of-another-python"]
    if any(_EDITOR.search(text) for text in passages(facts)):
        kernels = problem.fixes[:1] if any(_CELL.search(text) for text in passages(facts)) else ()
        problem = replace(problem, title=TITLE, fixes=(IN_EDITOR, *kernels))
    return problem.found(words, evidence, confidence=Confidence.LIKELY)


RULES = (missed_in_cells, said_to_work_in_shell, run_by_another)
