"""The live screen of `gpudoctor watch`: GPUs with utilisation and memory, processes, host. Fits 80 columns."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
import tty
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpudoctor.jobs.watching.target import Target
from gpudoctor.plain import plain
from gpudoctor.trying.terminal import IN

BAR = 10
BLOCKS = " ▏▎▍▌▋▊▉█"
HEADS = ("GPU", "busy", "", "SM", "tensor", "DRAM", "W", "°C", "memory", "", "GiB")
MOST_ROWS = 40


class Screen:
    """A full screen at a terminal, drawn once for each state. has_keys: whether q can be read."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._console = Console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._before: Any = None
        self._latest: dict[str, Any] | None = None
        self._size: Any = None

    @property
    def has_keys(self) -> bool:
        return self._before is not None

    def __enter__(self) -> Screen:
        with contextlib.suppress(termios.error, OSError, ValueError):
            if os.isatty(IN) and os.tcgetpgrp(IN) == os.getpgrp():
                self._before = termios.tcgetattr(IN)
                tty.setcbreak(IN)
        self._live.__enter__()
        self._live.update(Text(f"Watching {plain(self._target.name)} …"), refresh=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._live.__exit__(kind, value, trace)
        if self._before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(IN, termios.TCSADRAIN, self._before)

    def update(self, state: dict[str, Any] | None) -> None:
        """None: nothing new; drawn again only if the terminal was resized."""
        if state is None and (self._latest is None or self._console.size == self._size):
            return
        self._latest, self._size = state or self._latest, self._console.size
        assert self._latest is not None
        self._live.update(drawn(self._latest, self._target, self._console.size.height), refresh=True)


def drawn(state: dict[str, Any], target: Target, height: int = 24) -> Group:
    """As many rows as fit."""
    left = f" of {target.seconds:.0f} s" if target.seconds else ""
    own = 100 * float(state["own_cores"])
    title = Text(
        f"{plain(target.name)}  {state['at']:.0f} s{left}   q or ^C ends with the report   gpudoctor {own:.1f} % CPU", "bold"
    )
    title.truncate(79, overflow="ellipsis")
    room = max(4, height - 5)
    shown = state["gpus"][: max(1, room - 2)]
    parts: list[Any] = [title, _gpus(shown)]
    room -= len(shown) + 1
    if state["processes"] and room > 2:
        parts += [Text(), _processes(state["processes"][: room - 2])]
    parts.append(Text(_host(state["host"]), "dim"))
    return Group(*parts)


def _gpus(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), show_edge=False)
    for name in HEADS:
        table.add_column(name, justify="left" if name in ("GPU", "memory") else "right", no_wrap=True)
    for row in rows:
        busy = row.get("graphics", row.get("busy"))
        used, all = row.get("memory_used_mib"), row.get("memory_mib")
        held = used / all if used is not None and all else None
        table.add_row(
            str(row["index"]),
            _percent(busy),
            bar(busy and busy / 100),
            *(_percent(row.get(name)) for name in ("sm", "tensor", "dram")),
            *("-" if row.get(name) is None else f"{row[name]:.0f}" for name in ("watts", "celsius")),
            bar(held),
            _percent(None if held is None else 100 * held),
            "-" if used is None else f"{used / 1024:.1f}",
        )
    if not rows:
        table.add_row("none", *[""] * (len(HEADS) - 1))
    return table


def _processes(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    for name in ("process", "pid", "role", "cores", "busiest thread", "MiB"):
        table.add_column(name, justify="left" if name in ("process", "role") else "right", no_wrap=True, max_width=24)
    for row in rows[:MOST_ROWS]:
        numbers = (f"{row['cores']:.2f}", f"{100 * row['busiest_thread']:.0f} %", f"{row['rss_mib']:.0f}")
        table.add_row(plain(row["name"]), str(row["pid"]), row["role"], *numbers)
    return table


def _host(readings: dict[str, float]) -> str:
    names = {"cpu_used": "CPUs", "iowait": "waiting for disks", "disk_busy": "busiest disk"}
    parts = [f"{said} {100 * readings[name]:.0f} %" for name, said in names.items() if name in readings]
    parts += [f"{readings['available_mib'] / 1024:.0f} GiB free"] if "available_mib" in readings else []
    return "host: " + ", ".join(parts)


def bar(share: float | None) -> str:
    """Ten cells wide; ASCII where the terminal has no blocks."""
    if share is None:
        return ""
    eighths = round(max(0.0, min(1.0, share)) * BAR * 8)
    if "utf" not in (getattr(sys.stdout, "encoding", "") or "").lower():
        return ("#" * (eighths // 8)).ljust(BAR, ".")
    return ("█" * (eighths // 8) + BLOCKS[eighths % 8].strip()).ljust(BAR)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"


def line(state: dict[str, Any]) -> str:
    """One line, for where there is no screen."""
    gpus = [
        f"GPU {row['index']} {_percent(row.get('graphics', row.get('busy')))}, {row.get('memory_used_mib', 0) / 1024:.1f} GiB"
        for row in state["gpus"][:8]
    ]
    busiest = max(state["processes"], key=lambda row: row["cores"], default=None)
    gpus += [f"{busiest['name']} {busiest['cores']:.1f} cores"] if busiest else []
    return f"{state['at']:.0f} s  " + "; ".join(gpus or ["no GPU, no process"])
