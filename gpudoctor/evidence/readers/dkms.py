"""The output of DKMS, modinfo and NVIDIA's installer about the kernel module."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_MAKE_LOG = re.compile(
    r"""
    ^DKMS\ (?:\(dkms-\S+\)\ )?make\.log\ for[ ]
    (?P<module>nvidia[\w-]*)-(?P<version>\d[\d.]+)\ for\ kernel\ (?P<kernel>\S+)
    """,
    re.VERBOSE,
)
_STATUS = re.compile(r"^nvidia[\w-]*(?:/|, )\d{3}[\d.]*(?:, \S+, \w+)?: (?:added|built|installed)")
LOGS = "/var/lib/dkms/nvidia*/*/build/make.log"


def _answer(out: str) -> Reply:
    return Reply("ok", {"code": 0, "out": out, "err": ""})


def _make_log(text: str) -> dict[str, Reply] | None:
    match = _MAKE_LOG.match(text)
    if not match:
        return None
    path = f"/var/lib/dkms/{match['module']}/{match['version']}/build/make.log"
    return {f"glob:{LOGS}": Reply("ok", [path]), f"file:{path}": Reply("ok", text)}


def _modinfo(text: str) -> dict[str, Reply] | None:
    """Only for the module nvidia itself; the others have different names."""
    return {"command:modinfo nvidia": _answer(text)} if re.search(r"(?m)^filename:\s+\S*/nvidia(?:-current)?\.ko", text) else None


READERS = (
    Reader(
        "dkms status",
        (": added", ": built", ": installed"),
        _STATUS,
        lambda text: {"command:dkms status": _answer(text)},
        re.compile(r"^(?![\w.-]+(?:/|, )[\w.~+-]+(?:, [^:]+)?: \w+)"),
        200,
    ),
    Reader("modinfo", ("filename:",), re.compile(r"^filename:\s+/\S*nvidia"), _modinfo, re.compile(r"^(?![\w-]+:|\t)"), 400),
    Reader("DKMS make.log", ("make.log for nvidia",), _MAKE_LOG, _make_log, most_lines=4000, most_bytes=1 << 20),
    Reader(
        "nvidia-installer.log",
        ("nvidia-installer log file",),
        re.compile(r"^\s*nvidia-installer log file '/"),
        lambda _: {},
        re.compile(r"^(?!\s*nvidia-installer log file)"),
        2,
    ),
)
