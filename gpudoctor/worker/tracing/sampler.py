"""Where the program's own lines spend the time of a window: the stack of one thread, every few milliseconds."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

PERIOD_SECONDS = 0.002
MOST_SAMPLES = 20000
OURS = os.path.dirname(os.path.abspath(__file__))
Place = Tuple[str, int, str]


class Sampler:
    """samples: [nanoseconds since the epoch, index of a place]. places: the user's line, the innermost line outside torch,
    and the innermost function."""

    def __init__(self, thread: int) -> None:
        self.samples: List[Tuple[int, int]] = []
        self.places: List[Tuple[Place, Place, str]] = []
        self._known: Dict[Tuple[Place, Place, str], int] = {}
        self._kinds: Dict[str, str] = {}
        self._thread = thread
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._library = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")})

    def start(self) -> None:
        threading.Thread(target=self._run, name="gpudoctor-sampler", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(PERIOD_SECONDS):
            self.take()

    def take(self) -> None:
        """Another sample."""
        frame = sys._current_frames().get(self._thread)
        if frame is None or len(self.samples) >= MOST_SAMPLES:
            return
        now = time.time_ns()
        number = self.number(frame)
        if number is not None:
            self.samples.append((now, number))

    def number(self, frame: Any) -> Optional[int]:
        """Of the place at which a frame is; None if no line of the program or of a package leads there."""
        place = self._place(frame)
        if place is None:
            return None
        with self._lock:
            if place not in self._known:
                self._known[place] = len(self.places)
                self.places.append(place)
            return self._known[place]

    def _place(self, frame: Any) -> Optional[Tuple[Place, Place, str]]:
        leaf = frame.f_code.co_name
        outside: Optional[Place] = None
        while frame is not None:
            kind = self.kind(frame.f_code.co_filename)
            if kind in ("user", "package") and outside is None:
                outside = _line(frame)
            if kind == "user":
                return _line(frame), outside or _line(frame), leaf
            frame = frame.f_back
        return (outside, outside, leaf) if outside else None

    def kind(self, file: str) -> str:
        """Whose code it is: "user", "package", "torch" or "python"."""
        if file not in self._kinds:
            self._kinds[file] = self._kind_of(file)
        return self._kinds[file]

    def _kind_of(self, file: str) -> str:
        if file.startswith((OURS, "<frozen", "<string>")):
            return "python"
        parts = file.replace("\\", "/").split("/")
        if any(part.startswith("torchinductor_") for part in parts):
            return "torch"
        for folder in ("site-packages", "dist-packages"):
            if folder in parts:
                package = parts[len(parts) - parts[::-1].index(folder)]
                return "torch" if package in ("torch", "triton") else "package"
        return "python" if file.startswith(self._library) else "user"


def _line(frame: Any) -> Place:
    return (frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name)
