"""`nvidia-smi dmon` and `nvidia-smi pmon`: rows of values, and of programs, for each GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import nvidia_smi_csv
from gpudoctor.model import Reply

_COLUMNS = {
    "gtemp": "temperature.gpu",
    "pwr": "power.draw",
    "sm": "utilization.gpu",
    "mclk": "clocks.mem",
    "pclk": "clocks.sm",
    "fb": "memory.used",
}
HOT, LOWERED = 88, 0.8  # °C; of the highest clock in the same output
_HEAD = re.compile(r"^\s*#\s*(?:Date\s+)?(?:Time\s+)?gpu\s+(?=\w)(?!.*\bpid\b)")
_PROGRAMS = re.compile(r"^\s*#\s*gpu\s+pid\s+type\b")


def _rows(text: str) -> Iterator[dict[str, str]]:
    """Each row by the names of its columns; the head is printed again from time to time."""
    names = text.splitlines()[0].replace("#", "# ").split()[1:]
    for line in text.splitlines()[1:]:
        cells = line.split(None, len(names) - 1)
        if not line.lstrip().startswith("#") and len(cells) == len(names):
            yield dict(zip(names, cells, strict=True))


def _values(text: str) -> dict[str, Reply] | None:
    """The last row of each GPU, and how often in how many rows its clocks were lowered by heat."""
    latest: dict[str, Mapping[str, str]] = {}
    hot: dict[str, list[Mapping[str, str]]] = {}
    for row in _rows(text):
        latest[row.get("gpu", "")] = row
        hot.setdefault(row.get("gpu", ""), []).append(row)
    if not latest or not all(index.isdigit() for index in latest):
        return None
    rows = [latest[index] for index in sorted(latest, key=int)]
    there = [name for name in _COLUMNS if all(row.get(name, "-") != "-" for row in rows)]
    lines = [", ".join([row["gpu"], *(row[name] for name in there)]) for row in rows]
    known = nvidia_smi_csv.replies_of(["index", *(_COLUMNS[name] for name in there)], lines) or {}
    return {**known, "shown-hot": Reply("ok", {index: _hot_share(found) for index, found in hot.items()})}


def _hot_share(rows: Sequence[Mapping[str, str]]) -> float:
    """Of the rows of a GPU, those with a violation of the thermal limit, or hot and far below the clock of the others."""
    best = max((_number(row, "pclk") for row in rows), default=0)
    is_hot = [
        _number(row, "tviol") > 0 or (_number(row, "gtemp") >= HOT and 0 < _number(row, "pclk") < LOWERED * best) for row in rows
    ]
    return sum(is_hot) / len(rows)


def _number(row: Mapping[str, str], name: str) -> int:
    cell = row.get(name, "")
    return int(cell) if cell.isdigit() else 0


def _programs(text: str) -> dict[str, Reply] | None:
    found = [
        {
            "pid": row["pid"],
            "name": row.get("command", ""),
            "mib": None,
            "gpu": "",
            "index": row["gpu"],
            "load": row.get("sm", ""),
        }
        for row in _rows(text)
        if row.get("pid", "").isdigit()
    ]
    return {"shown-programs": Reply("ok", list({one["pid"]: one for one in found}.values()))} if found else None


_END = re.compile(r"^(?!\s*#|\s*\d+\s|\s*\d{8}\s|\s*\d\d:\d\d:\d\d\s)")
READERS = (
    Reader("nvidia-smi dmon", ("# gpu ", "#gpu ", "#Date", "#Time"), _HEAD, _values, _END, 4000),
    Reader("nvidia-smi pmon", ("# gpu ", "#gpu "), _PROGRAMS, _programs, _END, 4000),
)
