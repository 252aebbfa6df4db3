"""The live screen of `gpudoctor burn`: the time left, and each GPU's last readings. Fits 80 columns and 24 rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpudoctor import knowledge
from gpudoctor.cli.watch_screen import bar

HEADS = ("GPU", "W", "°C", "mem °C", "SM MHz", "PCIe", "errors", "held down by")
_USUAL = 0x1 | 0x4  # idle, and the power cap, which is normal at full load
WORDS = 26


class Screen:
    """Drawn for each reading. now: a clock in seconds."""

    def __init__(self, console: Console | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False, transient=True)
        self._now = now
        self._began: float | None = None

    def __enter__(self) -> Screen:
        self._live.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._live.__exit__(*raised)

    def update(self, running: tuple[str, ...], left: float, seen: Mapping[Any, Mapping[str, float]]) -> None:
        self._began = self._now() if self._began is None else self._began
        shown = drawn(running, left, self._now() - self._began, seen, self._console.size.height)
        self._live.update(shown, refresh=True)

    def say(self, doing: str) -> None:
        """What is done when no GPU is under load."""
        self._live.update(Text(doing or "…", no_wrap=True, overflow="ellipsis"), refresh=True)


def drawn(
    running: tuple[str, ...], left: float, spent: float, seen: Mapping[Any, Mapping[str, float]], height: int = 24
) -> Group:
    """As many GPUs as fit."""
    whole = spent + left
    done = spent / whole if whole else 1.0
    head = Text("Burning  ", "bold", no_wrap=True, overflow="ellipsis")
    head.append(f"{bar(done)} {100 * done:.0f} %  {clock(spent)} of {clock(whole)}   ^C ends with the report")
    work = Text(", ".join(running), "dim", no_wrap=True, overflow="ellipsis")
    room = max(1, height - 6)
    rows = list(seen.items())
    parts: list[Any] = [head, work, Text(), _gpus(rows[:room])]
    if len(rows) > room:
        parts.append(Text(f"{len(rows) - room} more GPUs do not fit", "dim"))
    return Group(*parts)


def clock(seconds: float) -> str:
    """`7:05`, `1:07:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _gpus(rows: list[tuple[Any, Mapping[str, float]]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    for name in HEADS:
        table.add_column(name, justify="left" if name in ("GPU", HEADS[-1]) else "right", no_wrap=True, max_width=WORDS)
    for index, sample in rows:
        numbers = (_number(sample, name) for name in ("watts", "celsius", "memory_celsius", "sm_mhz"))
        table.add_row(str(index), *numbers, _link(sample), _number(sample, "errors"), _reasons(sample))
    return table


def _number(sample: Mapping[str, float], name: str) -> str:
    return f"{sample[name]:.0f}" if sample.get(name) is not None else "-"


def _link(sample: Mapping[str, float]) -> str:
    generation, width = sample.get("pcie_generation"), sample.get("pcie_width")
    return f"{generation:.0f} x{width:.0f}" if generation and width else "-"


def _reasons(sample: Mapping[str, float]) -> str:
    mask = int(sample.get("reasons") or 0) & ~_USUAL
    return ", ".join(reason.name for reason in knowledge.clock_reasons(mask))
