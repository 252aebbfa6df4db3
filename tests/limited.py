"""gpudoctor in a process of its own, with limits on CPU time and memory: a slow machine changes neither."""

from __future__ import annotations

import resource
import subprocess
import sys


def limited(
    args: list[str], cpu_seconds: int, address_bytes: int = 1 << 30, timeout: float | None = 300, **options: object
) -> subprocess.CompletedProcess[str]:
    """Killed if it takes more CPU time; MemoryError in it if it takes more memory. timeout: in case it waits for something."""

    def set_limits() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        resource.setrlimit(resource.RLIMIT_AS, (address_bytes, address_bytes))

    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", "gpudoctor", *args],
        preexec_fn=set_limits,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
        **options,
    )
