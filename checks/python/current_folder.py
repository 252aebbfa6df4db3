"""No file in the current folder hides a module that GPU programs import.

What it means
Python searches the folder of a script first, and the current folder with `python -m` and `python -c`. A file there named
random.py or torch.py is imported in place of Python's own module or the installed package, by everything that imports it.
PyTorch alone imports nearly a hundred of Python's modules.

How it is judged
By the names of files alone: nothing in the folder is imported. A file is reported if PyTorch or NumPy import a module of Python
with its name, or if a package for GPU work with its name is installed.

Known exceptions
A folder with an __init__.py is a package: its files are imported as parts of it. Programs elsewhere are not affected. Python 3.11
and later search no such folder with -P or PYTHONSAFEPATH.

References
https://docs.python.org/3/library/sys_path_init.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

# Python's modules that are loaded by importing NumPy 2.4 and PyTorch 2.13 (sys.modules), and not by starting Python 3.11.
STANDARD = re.compile(
    r"""
    argparse | array | ast | asyncio | base64 | binascii | bisect | bz2 | calendar | cmath | collections | concurrent
    | contextlib | contextvars | copy | copyreg | csv | ctypes | dataclasses | datetime | difflib | dis | email | enum
    | fcntl | fnmatch | functools | gettext | glob | grp | gzip | hashlib | heapq | http | importlib | inspect | ipaddress
    | json | keyword | linecache | locale | logging | lzma | math | mmap | multiprocessing | numbers | opcode | operator
    | pathlib | pickle | pickletools | pkgutil | platform | pprint | queue | quopri | random | re | reprlib | runpy
    | select | selectors | shutil | signal | socket | ssl | string | struct | subprocess | tarfile | tempfile | textwrap
    | threading | timeit | token | tokenize | traceback | types | typing | unittest | urllib | uuid | warnings | weakref
    | zipfile | zlib
    """,
    re.VERBOSE,
)
PACKAGES = re.compile(
    r"""
    torch | numpy | triton | jax | jaxlib | cupy | numba | llvmlite | tensorflow | keras | onnxruntime | transformers
    | vllm | sympy | scipy | pandas | nvidia\w*
    """,
    re.VERBOSE,
)

FILE = Problem(
    id="current-folder-shadows-module",
    title="A file in this folder hides a Python module that GPU programs import",
    why="Python searches the folder of a script, or with -m and -c the current folder, before its own modules and the installed "
    "packages. What imports the module gets this file, packages included.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    latent=True,
    fixes=(
        Fix(
            "Rename the file, also in your programs that import it",
            "mv <file> <file>.off",
            verify="test ! -e <file> && echo renamed",
            kind="set",
            undo="mv <file>.off <file>",
        ),
        Fix("In this shell: search no such folder (Python 3.11 and later)", "export PYTHONSAFEPATH=1", where="shell"),
    ),
    references=("https://docs.python.org/3/library/sys_path_init.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if "working-folder" not in facts.replies.starting_with("working-folder"):
        raise Skip("the current folder was not looked at: an older version took this snapshot")
    found = [one for one in facts.python.working_folder["hides"] if matters(one["module"], one["hidden"])]
    if found:
        first, *_ = found = sorted(found, key=lambda one: (not one["hidden"], one["module"]))
        names = [one["module"] for one in found]
        others = f"; so are {', '.join(names[1:])}" if len(found) > 1 else ""
        hidden = f"the one in {first['hidden']}" if first["hidden"] else "Python's own"
        evidence = {"file": first["file"], "module": first["module"], "modules": names}
        yield FILE.found(f"{first['file']} is imported as {first['module']} in place of {hidden}{others}", evidence)


def matters(module: str, hidden: str) -> bool:
    return bool((PACKAGES if hidden else STANDARD).fullmatch(module))


def summary(facts: Facts) -> str:
    return "no file hides a module"


CHECK = Check(judge=judge, summary=summary, problems=(FILE,))
