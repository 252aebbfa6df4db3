"""The files of GPU packages against their RECORD: https://packaging.python.org/en/latest/specifications/recording-installed-packages/"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
import struct
from functools import partial
from typing import Any, Dict, Iterator, List, Tuple

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
MOST_FILES, MOST_BYTES, BLOCK = 8, 8 << 20, 1 << 20


def ask(machine: Machine) -> Iterator[Answer]:
    """`package-files`: for each package {"name", "checked"} and, as far as there are some, files that differ from RECORD."""
    yield machine.ask("package-files", lambda: [found for site in import_path() for found in _of_site(machine, site)])


def ask_contents(machine: Machine) -> Iterator[Answer]:
    """`package-hashes:NAME`: for each package {"name", "location", "checked", "bytes"} and the files whose content RECORD does
    not have. It reads gigabytes."""
    for site in import_path():
        for name, metadata in _packages(machine, site):
            yield machine.ask("package-hashes:" + name, partial(_hashed, machine, site, name, metadata))


def _of_site(machine: Machine, site: str) -> Iterator[Dict[str, Any]]:
    for name, metadata in _packages(machine, site):
        about = _compared(machine, site, metadata)
        if about:
            yield {"name": name, "location": site, **about}


def _packages(machine: Machine, site: str) -> Iterator[Tuple[str, str]]:
    """The names of GPU packages, and the folders with their metadata."""
    try:
        names = sorted(os.listdir(machine.path(site)))
    except OSError:
        return
    for folder in names:
        match = _FOLDER.fullmatch(folder)
        if match and _PACKAGES.fullmatch(re.sub(r"[-_.]+", "-", match[1]).lower()):
            yield match[1], os.path.join(site, folder)


def _recorded(machine: Machine, metadata: str) -> List[List[str]]:
    """The rows of code in RECORD; none without one, and for packages of conda, which changes files when it installs them."""
    try:
        if machine.read(os.path.join(metadata, "INSTALLER")).strip() == "conda":
            return []
    except OSError:
        pass
    try:
        rows = list(csv.reader(machine.read(os.path.join(metadata, "RECORD"), MOST_BYTES).splitlines()))
    except (OSError, csv.Error):
        return []
    return [
        row for row in rows if len(row) == 3 and row[2].isdigit() and _CODE.fullmatch(row[0]) and not _NOT_LOADED.search(row[0])
    ]


def _compared(machine: Machine, site: str, metadata: str) -> Dict[str, Any]:
    """Empty for a package that is left out."""
    rows = _recorded(machine, metadata)
    if not rows:
        return {}
    found: Dict[str, List[Any]] = {"missing": [], "truncated": [], "changed": []}
    for path, _, size in rows:
        kind = _difference(machine.path(os.path.join(site, path)), int(size))
        if kind:
            found[kind].append(path)
    counts = {kind: {"count": len(files), "files": files[:MOST_FILES]} for kind, files in found.items() if files}
    return {"checked": len(rows), **counts}


def _hashed(machine: Machine, site: str, name: str, metadata: str) -> Dict[str, Any]:
    """Only files of the recorded size: the others are in `package-files`."""
    other: List[str] = []
    checked = read = 0
    for path, hashed, size in _recorded(machine, metadata):
        digest = _digest(machine.path(os.path.join(site, path)), int(size)) if hashed.startswith("sha256=") else ""
        if digest:
            checked += 1
            read += int(size)
            if digest != hashed[len("sha256=") :].rstrip("="):
                other.append(path)
    found = {"other": {"count": len(other), "files": other[:MOST_FILES]}} if other else {}
    return {"name": name, "location": site, "checked": checked, "bytes": read, **found}


def _digest(path: str, size: int) -> str:
    """As RECORD writes it; "" for a file of another size, or that cannot be read."""
    hashed = hashlib.sha256()
    try:
        if os.stat(path).st_size != size:
            return ""
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(BLOCK), b""):
                hashed.update(block)
    except OSError:
        return ""
    return base64.urlsafe_b64encode(hashed.digest()).decode().rstrip("=")


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
