"""`dpkg -l` and `rpm -qa`, often filtered by grep: packages of the driver, CUDA and containers."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply
from gpudoctor.worker.probes.modules import PACKAGE_OF_INTEREST, package

_DPKG = r"""
    ([uirph][nciUFHWt])[ R]?                # wanted and present state
    \s+([a-z0-9][a-z0-9.+-]*)(?::\w+)?      # name, architecture
    \s+(\d\S*)\s                            # version
"""
_RPM = r"""
    ([A-Za-z0-9][\w.+-]*?)-                 # name
    ((?:\d+:)?\d[\w.~^+]*-\d\S*?)           # epoch, version, release
    \.(?:x86_64|aarch64|noarch|i686)\s*$
"""
_STATES = {"i": "installed", "F": "half-configured", "U": "unpacked", "H": "half-installed"}
# In these states the package is not installed, or only its configuration is left.
_GONE = "nc"


def read(text: str) -> dict[str, Reply] | None:
    packages = []
    for line in text.splitlines():
        if match := re.match(_DPKG, line, re.VERBOSE):
            state, name, version = match.groups()
            if state[1] not in _GONE:
                packages.append(package("dpkg", name, version, _STATES.get(state[1], "installed")))
        elif match := re.match(_RPM, line, re.VERBOSE):
            packages.append(package("rpm", *match.groups()))
    packages = [one for one in packages if PACKAGE_OF_INTEREST.search(one["name"])]
    return {"os-packages": Reply("ok", packages)} if packages else None


READER = Reader(
    kind="packages of the system",
    anchors=(
        "ii  nvidia-",
        "nvidia-driver",
        "libnvidia-",
        "nvidia-utils",
        "nvidia-kernel",
        "cuda-drivers",
        "Desired=Unknown",
        "kmod-nvidia",
    ),
    begins=re.compile(rf"^(?: Desired=Unknown | {_DPKG} | {_RPM} )", re.VERBOSE),
    ends=re.compile(rf"^(?! {_DPKG} | {_RPM} | [|+] | Desired )", re.VERBOSE),
    read=read,
    most_lines=10_000,
)
