"""No package is installed twice in one folder.

What it means
Two packages that contain the same files overwrite each other and leave a mix of both. Python then imports files of each, while
pip believes that both are complete.

How it is judged
At most one CuPy package is installed: cupy, cupy-cuda12x, cupy-cuda13x and others all contain the module cupy. No package has
the metadata of two versions in one folder, which an interrupted upgrade leaves behind. conda and pip have not installed
different releases of one framework into the same environment.

Known exceptions
Copies in different folders of sys.path do not overwrite each other; Python imports the first one.

References
https://github.com/cupy/cupy/blob/main/docs/source/install.rst
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.packages import Package
from gpudoctor.judging.python import two_managers
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

CUPY = re.compile(r"cupy(-cuda\d+x?|-rocm[\d-]+)?")
CUDA_13 = 13

CUPY_TWICE = Problem(
    id="cupy-multiple-packages",
    title="Several CuPy packages are installed over each other",
    why="They all contain the same module, each compiled for another CUDA release. The last one installed overwrites the files "
    "of the others, and removing one removes files of all.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Remove all, then install the one for the driver",
            command="<python> -m pip uninstall -y <packages> && <python> -m pip install <wanted>",
            needs=("network",),
            verify="<python> -c 'import cupy; print(cupy.arange(3).sum())'",
            kind="install",
        ),
    ),
    status=Status.WARN,
)

TWICE = Problem(
    id="duplicate-distributions",
    title="A package has the metadata of two versions in one folder",
    why="An installation was interrupted, or two tools wrote into the same folder. It is unknown which files belong to which "
    "version, and pip sees only one of them.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Reinstall it over both; if pip still lists two versions, uninstall it until it is gone, then install it once",
            command="<python> -m pip install --force-reinstall --no-deps <packages>",
            needs=("network",),
            verify="<python> -m pip check",
            kind="install",
        ),
    ),
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    cupy = [copies[0] for name, copies in facts.python.packages.items() if CUPY.fullmatch(name)]
    if len(cupy) > 1:
        named = ", ".join(f"{package.name} {package.version}" for package in cupy)
        packages = [package.name.replace("_", "-") for package in cupy]
        yield CUPY_TWICE.found(f"{named} are installed", {"packages": packages, "wanted": wanted_cupy(facts)}, packages=packages)
    twice = [versions for copies in facts.python.packages.values() if (versions := in_one_folder(copies))]
    if twice:
        named = "; ".join(f"{copies[0].name} {' and '.join(one.version for one in copies)}" for copies in twice)
        evidence = {"packages": [f"{copies[0].name}=={_newest(copies)}" for copies in twice], "folder": twice[0][0].location}
        yield TWICE.found(f"{named} in {twice[0][0].location}", evidence)
    yield from by_both(facts)


def by_both(facts: Facts) -> Iterator[Finding]:
    found = list(two_managers.twice(facts))
    if found:
        named = "; ".join(f"{one.package} {one.of_conda} is from conda, {one.module} {one.of_pip} from pip" for one in found)
        evidence = {"package": found[0].package, "module": found[0].module}
        yield two_managers.PROBLEM.found(named, evidence, packages=[one.module for one in found])


def wanted_cupy(facts: Facts) -> str:
    """The CuPy for the newest CUDA that the driver supports; without a driver, the one that most drivers support."""
    newest = known(lambda: facts.nvml.cuda_version)
    return "cupy-cuda13x" if newest and newest[0] >= CUDA_13 else "cupy-cuda12x"


def in_one_folder(copies: tuple[Package, ...]) -> tuple[Package, ...]:
    """The copies in the folder that Python imports from, if their versions differ."""
    if len(copies) == 1:
        return ()
    here = tuple(package for package in copies if package.location == copies[0].location)
    return here if len({package.version for package in here}) > 1 else ()


def _newest(copies: tuple[Package, ...]) -> str:
    try:
        return max((package.version for package in copies), key=Version)
    except InvalidVersion:
        return copies[0].version


def summary(facts: Facts) -> str:
    count = len(facts.python.packages)
    return f"{count} package{'s' * (count != 1)}, no duplicates"


CHECK = Check(judge=judge, summary=summary, problems=(CUPY_TWICE, TWICE, two_managers.PROBLEM))
