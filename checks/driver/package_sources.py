"""APT can read NVIDIA's package sources, and each is signed by a key that is here.

What it means
Every fix that installs something needs APT. Two files that list one source with different keys, or a file into which an error
page was saved, stop all of APT. A key that is missing, or a repository for another release, stops the driver's upgrades.

How it is judged
Reads the lines for NVIDIA's servers in /etc/apt/sources.list and /etc/apt/sources.list.d, and looks whether their keys exist. A
repository for another release of the distribution is a note.

Known exceptions
Whether the servers answer, and whether a key is the current one, shows only `apt update`. Other package managers are not
examined.

References
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html
https://manpages.debian.org/bookworm/apt/sources.list.5.en.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.package_sources import Source, malformed, sources
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

TWICE, NO_KEY = "nvidia-repository-listed-twice", "nvidia-repository-key-unknown"
"""Problems that messages of APT name, too."""
CUDA = re.compile(r"/cuda/repos/((?:ubuntu|debian)\d+)/")
TROUBLE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html"

MALFORMED = Problem(
    id="nvidia-repository-file-malformed",
    title="APT cannot read a file with NVIDIA's package source",
    why="APT does not understand a line of it, often because an error page was saved instead of the list. Then no apt command "
    "works.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("Show the line", "head -n <line> <file> | tail -n 1"),
        Fix(
            "Move the file away, then set up the repository again as its documentation says",
            "sudo mv <file> <file>.broken",
            verify="sudo apt update",
            kind="set",
            needs=("root",),
            undo="sudo mv <file>.broken <file>",
        ),
    ),
    references=(TROUBLE,),
)
OTHER_RELEASE = Problem(
    id="nvidia-repository-of-another-release",
    title="NVIDIA's repository is for another release of the distribution",
    why="Its packages were built with other libraries and kernels, so an upgrade may fail or remove the driver.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Set up the repository for this release, then remove the file of the other one",
            "distro=$(. /etc/os-release; echo $ID${VERSION_ID/./}); curl -fsSLO https://developer.download.nvidia.com/compute/cuda/"
            "repos/$distro/x86_64/cuda-keyring_1.1-1_all.deb && sudo dpkg -i cuda-keyring_1.1-1_all.deb && sudo apt update",
            verify="apt policy cuda-drivers",
            on=("debian",),
            kind="install",
            needs=("root", "network"),
        ),
    ),
    references=("https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    found = sources(facts.replies)
    for broken in malformed(facts.replies):
        words = f"line {broken.line} of {broken.file} is not a source"
        yield MALFORMED.found(words, {"file": broken.file, "line": broken.line})
    yield from twice(facts, found)
    for source in found:
        if not source.key_exists:
            words = f"{source.file} names the key {source.signed_by}, which does not exist"
            evidence = {"file": source.file, "key": source.signed_by}
            yield replace(facts.problems[NO_KEY], status=Status.WARN).found(words, evidence)
    yield from of_another_release(facts, found)


def twice(facts: Facts, found: Iterable[Source]) -> Iterator[Finding]:
    by_source: dict[tuple[str, str], dict[str, str]] = {}
    for source in found:
        by_source.setdefault((source.uri, source.suite), {}).setdefault(source.signed_by, source.file)
    for (uri, _), files in by_source.items():
        if len(files) > 1:
            words = f"{uri} is in {' and '.join(files.values())} with different keys, so no apt command works"
            problem = replace(facts.problems[TWICE], status=Status.WARN)
            yield problem.found(words, {"source": uri, "files": list(files.values())})


def of_another_release(facts: Facts, found: Iterable[Source]) -> Iterator[Finding]:
    distribution = known(lambda: facts.system.distribution, "")
    release = known(lambda: facts.system.distribution_version, "").replace(".", "")
    for source in found:
        match = CUDA.search(source.uri)
        if match and distribution in ("ubuntu", "debian") and release and match[1] != distribution + release:
            words = f"{source.file} has the repository of {match[1]}, but this is {distribution}{release}"
            yield OTHER_RELEASE.found(words, {"file": source.file, "repository": match[1]}).as_note


def summary(facts: Facts) -> str:
    count = len(sources(facts.replies))
    return f"{count} of NVIDIA's sources, with their keys" if count else "none of NVIDIA's sources is set up"


CHECK = Check(judge=judge, summary=summary, problems=(MALFORMED, OTHER_RELEASE))
