"""Writes which packages Debian and Ubuntu have into gpudoctor/knowledge/apt.yaml, from the lists of their archives.

Run by hand: python3 tests/package_lists.py. Names stay; what comes after `releases:` and the date are written.
"""

from __future__ import annotations

import lzma
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

TABLE = Path(__file__).parent.parent / "gpudoctor" / "knowledge" / "apt.yaml"
DEBIAN = {"11": "bullseye", "12": "bookworm", "13": "trixie"}
UBUNTU = {"20.04": "focal", "22.04": "jammy", "24.04": "noble", "25.10": "questing", "26.04": "resolute"}
INDEX = "{archive}/dists/{suite}/{component}/binary-amd64/Packages.xz"
ROW = re.compile(r"(?P<before>  - name: (?P<name>\S+)\n    releases: )\S[^\n]*")

Archives = dict[str, set[str]]


def main() -> None:
    table = TABLE.read_text(encoding="utf-8")
    archives = read()
    table = ROW.sub(lambda row: row["before"] + written(row["name"], archives), table)
    table = re.sub(r"(archives:\n    read: )\S+", rf"\g<1>{datetime.now(timezone.utc).date()}", table)
    TABLE.write_text(table, encoding="utf-8")


def read() -> Archives:
    """Release ("debian 12") -> the names of all its packages."""
    pairs = list(indices())
    with ThreadPoolExecutor(4) as several:
        lists = list(several.map(names, [address for _, address in pairs]))
    found: Archives = {}
    for (release, _), there in zip(pairs, lists, strict=True):
        found.setdefault(release, set()).update(there)
    return found


def indices() -> Iterator[tuple[str, str]]:
    """Release and address of each list."""
    for version, suite in DEBIAN.items():
        for component in ("main", "contrib", "non-free", "non-free-firmware"):
            yield f"debian {version}", INDEX.format(archive="http://deb.debian.org/debian", suite=suite, component=component)
    for version, suite in UBUNTU.items():
        for pocket in (suite, f"{suite}-updates"):
            for component in ("main", "restricted", "universe", "multiverse"):
                address = INDEX.format(archive="http://archive.ubuntu.com/ubuntu", suite=pocket, component=component)
                yield f"ubuntu {version}", address


def names(address: str) -> set[str]:
    try:
        with urllib.request.urlopen(address, timeout=120) as answer:
            text = lzma.decompress(answer.read()).decode("utf-8", "replace")
    except urllib.error.HTTPError as failure:
        if failure.code == 404:  # Debian 11 has no non-free-firmware
            return set()
        raise
    return set(re.findall(r"^Package: (\S+)$", text, re.MULTILINE))


def written(name: str, archives: Archives) -> str:
    if "#" not in name:
        pattern = re.compile(re.escape(name).replace(r"\*", ".+"))
        return "[" + ", ".join(release for release, there in archives.items() if any(map(pattern.fullmatch, there))) + "]"
    pattern = re.compile(re.escape(name).replace(r"\#", r"(\d+)"))
    numbers = {release: numbered(pattern, there) for release, there in archives.items()}
    return "{" + ", ".join(f"{release}: [{', '.join(map(str, found))}]" for release, found in numbers.items() if found) + "}"


def numbered(pattern: re.Pattern[str], there: Iterable[str]) -> list[int]:
    return sorted({int(found[1]) for name in there if (found := pattern.fullmatch(name))})


if __name__ == "__main__":
    main()
