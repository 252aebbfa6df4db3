"""A Docker that knows CDI, on a Debian that does not have it: unpacked from a newer Debian's packages, never installed."""

from __future__ import annotations

import hashlib
import http.client
import lzma
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import lab_images

SUITES = ("sid", "trixie")  # the newest first; one that wants a newer libc than we have does not start
PACKAGES = ("docker.io", "docker-cli", "containerd", "tini-static")
SECONDS = 60.0
FAILURES = (OSError, http.client.HTTPException)  # of a download
PAUSES_SECONDS = (2.0, 10.0)  # after each failed download but the last


def unpacked() -> Path:
    """The folder of its programs, kept between runs; RuntimeError where none can be had, and why."""
    with lab_images.locked("docker"):
        kept = sorted(lab_images.cache().glob("docker-*/usr/bin"))
        return kept[0] if kept else _get()


def _get() -> Path:
    reasons = []
    for suite in SUITES:
        try:
            return _unpack(suite)
        except (*FAILURES, RuntimeError, lzma.LZMAError, EOFError) as failure:
            reasons.append(f"{suite}: {failure}")
    raise RuntimeError(f"no Docker with CDI can be had from {lab_images.DEBIAN}: {'; '.join(reasons)}")


def _unpack(suite: str) -> Path:
    root = Path(tempfile.mkdtemp(prefix=".docker-", dir=lab_images.cache()))
    try:
        for package, (path, sha256) in _index(suite).items():
            deb = root / f"{package}.deb"
            deb.write_bytes(read(f"{lab_images.DEBIAN}/{path}"))
            if hashlib.sha256(deb.read_bytes()).hexdigest() != sha256:
                raise RuntimeError(f"{path} is not what the index says")
            lab_images.run("dpkg-deb", "--extract", deb, root)
            deb.unlink()
        programs = root / "usr/bin"
        for program in (root / "usr/sbin").iterdir():
            program.rename(programs / program.name)
        version = _version(programs)
        root.rename(lab_images.cache() / f"docker-{version}")
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)
        raise
    return lab_images.cache() / f"docker-{version}" / "usr/bin"


def _index(suite: str) -> dict[str, tuple[str, str]]:
    """Package -> where its file is in the archive, and its sha256."""
    machine = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    text = lzma.decompress(read(f"{lab_images.DEBIAN}/dists/{suite}/main/binary-{machine}/Packages.xz")).decode()
    found = {}
    for package in PACKAGES:
        if entry := re.search(rf"^Package: {re.escape(package)}\n(?:.+\n)*", text, re.MULTILINE):
            fields = dict(re.findall(r"^(Filename|SHA256): (.+)$", entry[0], re.MULTILINE))
            found[package] = (fields["Filename"], fields["SHA256"])
    return found


def read(url: str) -> bytes:
    """Tried again where that fails: without a Docker that knows CDI, its tests would be missing."""
    for seconds in PAUSES_SECONDS:
        try:
            return _read_once(url)
        except FAILURES:
            time.sleep(seconds)
    return _read_once(url)


def _read_once(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        content: bytes = answer.read()
    return content


def _version(programs: Path) -> str:
    said = lab_images.run(programs / "dockerd", "--version", env={"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"})
    return said.split()[2].split("+")[0].rstrip(",")


if __name__ == "__main__":
    print(unpacked())  # noqa: T201
