"""What autotuners measured before they chose: Triton's own cache, and what was heard from Inductor's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HEARD = "tuned-*.jsonl"  # of worker/tracing/tuned.py
MOST_ROWS, MOST_BYTES = 40, 16 << 20
PLAIN = ("num_warps", "num_stages", "num_ctas", "maxnreg")
WRONG = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError)


def rows(folder: Path, cache: Path, wanted: str) -> list[dict[str, Any]]:
    """{"kernel", "by", "key", "configs": [{"config", "ms"}, the fastest first]} of each choice that was made."""
    found = [*_of_triton(cache, wanted), *_of_inductor(folder, wanted)]
    return found[:MOST_ROWS]


def is_other(found: list[dict[str, Any]], threads: float | None) -> bool:
    """Whether launches with so many threads cannot be of a configuration that was chosen: an autotuner made them."""
    warps = {choice["configs"][0]["config"].get("num_warps") for choice in found}
    return bool(threads and None not in warps and threads not in {32 * number for number in warps})


def threads(found: list[dict[str, Any]]) -> dict[str, int]:
    """Of a block of the first choice, if its warps are known."""
    warps = found[0]["configs"][0]["config"].get("num_warps")
    return {"threads_per_block": 32 * warps} if isinstance(warps, int) else {}


def _of_triton(cache: Path, wanted: str) -> Iterator[dict[str, Any]]:
    for file in sorted(cache.glob("**/*.autotune.json")):
        name = file.name.removesuffix(".autotune.json")
        try:
            value = json.loads(_read(file))
            configs = [_measured(config, ms[0] if isinstance(ms, list) else ms) for config, ms in value["configs_timings"]]
        except WRONG:
            continue
        if wanted in name and configs:
            yield {"kernel": name, "by": "Triton", "key": str(value.get("key"))[:200], "configs": _sorted(configs)}


def _of_inductor(folder: Path, wanted: str) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob(HEARD)):
        for line in _lines(file):
            try:
                value = json.loads(line)
                configs = [_measured(config, ms) for config, ms in value["configs"]]
                name = str(value["kernel"])
            except WRONG:
                continue
            if wanted in name and configs:
                yield {"kernel": name, "by": "Inductor", "key": "", "configs": _sorted(configs)}


def _lines(file: Path) -> list[str]:
    try:
        return _read(file).splitlines()
    except OSError:
        return []


def _measured(config: Mapping[str, Any], ms: Any) -> dict[str, Any]:
    """Of a Config of Triton: its block sizes, and what else is set."""
    sizes = dict(config.get("kwargs") or {})
    return {"config": {**sizes, **{name: config[name] for name in PLAIN if config.get(name) is not None}}, "ms": float(ms)}


def _sorted(configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What could not run has no time, and is last."""
    ordered = sorted(configs, key=lambda one: one["ms"])
    return [{**one, "ms": one["ms"] if one["ms"] < 1e9 else None} for one in ordered][:MOST_ROWS]


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.stat().st_size < MOST_BYTES else ""
