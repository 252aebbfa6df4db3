"""The files of GPU packages are complete, as their RECORD lists them.

What it means
pip writes the size of every file that it installs into RECORD. A full disk, an interrupted installation or a cleanup leaves files
missing or truncated. The package is still listed as installed, and fails when it is imported or when a kernel loads.

How it is judged
Libraries, programs and Python files of GPU packages, without their tests, are compared with RECORD. A library is truncated if it
ends before its own table of sections, any other file if it is empty. Missing files are reported. Files of another size are only
mentioned if they explain a failure, since people change and strip them on purpose. At level full the content of the files is
compared, too: a library whose size is right and whose content is not is damaged.

Known exceptions
Packages of conda are left out, because conda changes files when it installs them; so are packages without RECORD. Images that
delete unused libraries to save space have missing files that nothing needs. A Python file that was edited without changing its
size is only mentioned if it explains a failure.

References
https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.judging.python.package_files import CHANGED_ID, MISSING_ID, TRUNCATED_ID
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

REINSTALL = Fix(
    "Reinstall the package, without its cached copy",
    "<python> -m pip install --force-reinstall --no-deps --no-cache-dir <packages>",
    needs=("network",),
    verify="gpudoctor check --level quick --only package-files",
    kind="install",
)
DISK = look("Check whether the disk is full", "df -h <folder>; df -i <folder>")
SPECIFICATION = "https://packaging.python.org/en/latest/specifications/recording-installed-packages/"

TRUNCATED = Problem(
    id=TRUNCATED_ID,
    title="Files of an installed GPU package are truncated",
    why="The files end too early, so they cannot be loaded. A full disk or an interrupted installation leaves such files.",
    action=Action.INSTALL,
    fixes=(REINSTALL, DISK),
    references=(SPECIFICATION,),
)
MISSING = Problem(
    id=MISSING_ID,
    title="Files of an installed GPU package are missing",
    why="The package is listed as installed, but some of its libraries or modules were removed or never written. What needs them "
    "fails.",
    action=Action.INSTALL,
    fixes=(REINSTALL, DISK),
    references=(SPECIFICATION,),
    status=Status.WARN,
)
CHANGED = Problem(
    id=CHANGED_ID,
    title="Files of an installed GPU package were changed",
    why="Their size or content differs from what was installed: another tool or a person wrote over them, or the disk damaged "
    "them.",
    action=Action.INSTALL,
    fixes=(REINSTALL,),
    references=(SPECIFICATION,),
    status=Status.WARN,
)
PROBLEMS = {"truncated": TRUNCATED, "missing": MISSING, "changed": CHANGED, "other": CHANGED}
WORDS = {
    "truncated": "is truncated",
    "missing": "is missing",
    "changed": "has another size than when it was installed",
    "other": "has the size, but not the content that was installed",
}


def judge(facts: Facts) -> Iterator[Finding]:
    if not facts.replies.starting_with("package-files"):
        raise Skip("files were not compared: an older version took this snapshot", Skip.NOT_APPLICABLE)
    for kind, problem in PROBLEMS.items():
        found = [differing for differing in facts.python.differing_files if differing.kind == kind]
        if found:
            files = [f"{one.package}/{file}" for one in found for file in one.files]
            count = sum(one.count for one in found)
            more = f" and {count - 1} more" if count > 1 else ""
            evidence = {"packages": _named(facts, {one.package for one in found}), "folder": found[0].location, "files": files}
            confidence = Confidence.LIKELY if problem is CHANGED else Confidence.CONFIRMED
            message = f"{found[0].files[0]} of {found[0].package} {WORDS[kind]}{more}"
            is_clue = kind == "changed" or (kind == "other" and all(file.endswith(".py") for file in files))
            yield Finding(problem, message, evidence, confidence=confidence, is_clue=is_clue)


def _named(facts: Facts, packages: set[str]) -> list[str]:
    """With their versions, so that the same ones are installed again."""
    copies = {name: facts.python.package(name) for name in sorted(packages)}
    return [f"{name.replace('_', '-')}=={copy.version}" if copy else name for name, copy in copies.items()]


def summary(facts: Facts) -> str:
    count, files = facts.python.compared_files
    if not count:
        raise Skip("no GPU package has a RECORD", Skip.NOT_INSTALLED)
    contents = f", {facts.python.hashed_bytes >> 20} MiB of content compared" if facts.python.hashed_bytes else ""
    return f"{files} files of {count} GPU package{'s' * (count != 1)} are complete{contents}"


CHECK = Check(judge=judge, summary=summary, problems=(TRUNCATED, MISSING, CHANGED))
