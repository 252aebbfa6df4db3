"""The files of GPU packages against their RECORD: https://packaging.python.org/en/latest/specifications/recording-installed-packages/"""

from __future__ import annotations

import csv
import os
import re
import struct
from typing import Any, Dict, Iterator, List

from gpudoctor.worker.probes.interpreter import import_path
from gpudoctor.worker.probes.machine import Answer, Machine

# Packages with code for GPUs, and those that the frameworks need to be imported.
_PACKAGES = re.compile(
    r"""
    ( torch | triton | pytorch-triton | nvidia- | cupy | jax | tensorflow | onnxruntime | bitsandbytes | flash-attn | cuda- ).*
    | numba | numba-cuda | llvmlite | numpy | xformers
    """,
    re.VERBOSE,
)
_FOLDER = re.compile(r"(.+?)-\d[^-]*\.dist-info")
_CODE = re.compile(r".*(\.so(\.[\d.]+)?|\.py|\.bc|\.cubin|\.fatbin|/bin/[\w-]+)")
_NOT_LOADED = re.compile(r"(^|/)(tests?|testing|benchmarks?|examples?|docs?)/")
MOST_FILES, MOST_BYTES = 8, 8 << 20


def ask(machine: Machine) -> Iterator[Answer]:
    """`package-files`: for each package {"name", "checked"} and, as far as there are some, files that differ from RECORD."""
    yield machine.ask("package-files", lambda: [found for site in import_path() for found in _of_site(machine, site)])


def _of_site(machine: Machine, site: str) -> Iterator[Dict[str, Any]]:
    try:
        names = sorted(os.listdir(machine.path(site)))
    except OSError:
        return
    for folder in names:
        match = _FOLDER.fullmatch(folder)
        if match and _PACKAGES.fullmatch(re.sub(r"[-_.]+", "-", match[1]).lower()):
            about = _compared(machine, site, os.path.join(site, folder))
            if about:
                yield {"name": match[1], "location": site, **about}


def _compared(machine: Machine, site: str, metadata: str) -> Dict[str, Any]:
    """Empty without a RECORD, and for packages of conda, which changes files when it installs them."""
    try:
        if machine.read(os.path.join(metadata, "INSTALLER")).strip() == "conda":
            return {}
    except OSError:
        pass
    try:
        rows = list(csv.reader(machine.read(os.path.join(metadata, "RECORD"), MOST_BYTES).splitlines()))
    except (OSError, csv.Error):
        return {}
    found: Dict[str, List[Any]] = {"missing": [], "truncated": [], "changed": []}
    checked = 0
    for row in rows:
        if len(row) == 3 and row[2].isdigit() and _CODE.fullmatch(row[0]) and not _NOT_LOADED.search(row[0]):
            checked += 1
            kind = _difference(machine.path(os.path.join(site, row[0])), int(row[2]))
            if kind:
                found[kind].append(row[0])
    counts = {kind: {"count": len(files), "files": files[:MOST_FILES]} for kind, files in found.items() if files}
    return {"checked": checked, **counts}


def _difference(path: str, size: int) -> str:
    """missing, truncated, changed or ""; what cannot be looked at does not differ."""
    try:
        now = os.stat(path).st_size
    except FileNotFoundError:
        return "missing"
    except OSError:
        return ""
    if now == size:
        return ""
    return "truncated" if now < size and _is_cut_off(path, now) else "changed"


def _is_cut_off(path: str, size: int) -> bool:
    """Whether a library ends before its table of sections, or a file is empty. A stripped library is only smaller."""
    if not size:
        return True
    try:
        with open(path, "rb") as file:
            header = file.read(64)
    except OSError:
        return False
    if header[:5] != b"\x7fELF\x02" or len(header) < 64:
        return header[:4] != b"\x7fELF" and ".so" in os.path.basename(path)
    offset, each, count = struct.unpack_from("<Q", header, 40)[0], *struct.unpack_from("<HH", header, 58)
    return bool(offset + each * count > size)
