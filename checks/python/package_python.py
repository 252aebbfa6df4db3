"""Compiled GPU packages were built for the Python that imports them.

What it means
The compiled modules of a wheel carry the version of Python in their names, such as cp312. Another Python does not see them, so
the import fails with "No module named" although `pip list` shows the package.

How it is judged
Compares the tags in each GPU package's WHEEL file with the version of this Python. Wheels for the stable interface (abi3), and
those without compiled modules of Python, fit later versions.

Known exceptions
Packages of conda and of distributions have no such tags and are not judged.

References
https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.packages import Package
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip

CPYTHON = re.compile(r"cp(\d)(\d+)")
OTHER = Problem(
    id="package-for-another-python",
    title="A GPU package was installed for another version of Python",
    why="Its compiled modules are named for that version, so this Python does not find them. It was copied, or PYTHONPATH "
    "names the packages of another Python.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install it again for this Python, from the index that it came from",
            "<python> -m pip install --force-reinstall --no-deps <package>",
            verify="<python> -c 'import <module>'",
            kind="install",
            needs=("network",),
        ),
    ),
    references=("https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    python = facts.python.version[:2]
    for package in tagged(facts):
        if not any(fits(tag, python) for tag in package.tags):
            wanted = sorted({f"{major}.{minor}" for tag in package.tags for major, minor in CPYTHON.findall(tag.split("-")[0])})
            words = f"{package.name} {package.version} is for Python {' and '.join(wanted)}, this is {python[0]}.{python[1]}"
            evidence = {
                "package": package.name,
                "version": package.version,
                "module": package.name.lower().replace("-", "_"),
                "tags": list(package.tags),
                "location": package.location,
                "python": facts.python.executable,
            }
            yield OTHER.found(words, evidence, packages=(package.name,))


def tagged(facts: Facts) -> list[Package]:
    """The copies that are imported, as far as they name what they were built for."""
    found = [copies[0] for copies in facts.python.packages.values() if copies[0].tags]
    if not found:
        raise Skip("no GPU package names the Python that it was built for")
    return found


def fits(tag: str, python: tuple[int, ...]) -> bool:
    """Of another implementation of Python, and in other forms, nothing is claimed.

    >>> fits("cp312-cp312-manylinux_2_28_x86_64", (3, 13)), fits("cp39-abi3-linux_x86_64", (3, 13)), fits("py3-none-any", (3, 9))
    (False, True, True)
    """
    names, _, rest = tag.partition("-")
    versions = [(int(major), int(minor)) for major, minor in CPYTHON.findall(names)]
    if len(versions) < len(names.split(".")):
        return True
    if rest.startswith(("abi3", "none")):
        return min(versions) <= python
    return python in versions


def summary(facts: Facts) -> str:
    python = facts.python.version
    return f"{len(tagged(facts))} GPU packages for Python {python[0]}.{python[1]}"


CHECK = Check(judge=judge, summary=summary, problems=(OTHER,), tags=("pytorch",))
