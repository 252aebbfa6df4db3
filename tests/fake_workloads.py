"""Workloads that need no GPU, most of which misbehave. Travels in place of the real ones (Python 3.8)."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from typing import Any

from gpudoctor.worker.measuring.bench import ALONE, ONCE, TOGETHER, Bench, Workload
from gpudoctor.worker.reply import Skip

SECTION_SECONDS = 0.1
FOREVER = 600


def section(bench: Bench) -> None:
    """A section that took a while, with who worked on what."""
    with bench.section("work") as values:
        began = time.monotonic()
        time.sleep(SECTION_SECONDS)
        values.update(gpus=bench.gpus, pid=os.getpid(), at=began, until=time.monotonic())


def noisy(bench: Bench) -> None:
    print("noise on stdout", flush=True)  # noqa: T201
    os.write(1, b"more noise, as a C library makes it\n")
    section(bench)


def imports(bench: Bench) -> None:
    before = "torch" in sys.modules
    import torch  # type: ignore[import-not-found, unused-ignore]

    section(bench)
    bench.keep("import", forked_from=os.getppid(), imported_by=torch.PID, before=before, ended=torch.ENDED)


def segfaults(bench: Bench) -> None:
    section(bench)
    bench.step("second step")
    ctypes.string_at(0)


def raises(bench: Bench) -> None:
    section(bench)
    raise RuntimeError("the result is wrong")


def hangs(bench: Bench) -> None:
    section(bench)
    bench.step("second step")
    print("noise " * 1000, flush=True)  # noqa: T201
    stuck_here()


def stuck_here() -> None:
    time.sleep(FOREVER)


def stops(bench: Bench) -> None:
    section(bench)
    os.kill(os.getpid(), signal.SIGSTOP)


def exits(bench: Bench) -> None:
    section(bench)
    os._exit(3)


def leaves(bench: Bench) -> None:
    """Grandchildren: an ordinary one, one in its own session, as torchrun starts them, one whose parent is gone, one forked."""
    ordinary = subprocess.Popen(["sleep", str(FOREVER)])
    own_session = subprocess.Popen(["sleep", str(FOREVER)], start_new_session=True)
    orphan = subprocess.run(["sh", "-c", f"setsid sleep {FOREVER} >/dev/null & echo $!"], stdout=subprocess.PIPE, check=True)
    forked = os.fork()
    if not forked:
        os.setsid()
        time.sleep(FOREVER)
    bench.keep("grandchildren", pids=[ordinary.pid, own_session.pid, int(orphan.stdout), forked])


def leaves_and_hangs(bench: Bench) -> None:
    leaves(bench)
    stuck_here()


def keeps(bench: Bench) -> None:
    """On the first GPU it has grandchildren, while the one on the second ends."""
    if bench.gpu == 0:
        leaves(bench)
    time.sleep(3 * SECTION_SECONDS if bench.gpu == 0 else 2 * SECTION_SECONDS)
    if bench.gpu == 0:
        names = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
        bench.keep("later", pids=[int(name) for name in names])


def skips(bench: Bench) -> None:
    raise Skip("this GPU has no such unit", Skip.UNSUPPORTED)


def early(bench: Bench) -> None:
    bench.keep("prepared", at=time.monotonic())
    bench.turn()
    section(bench)


def early_but_stuck(bench: Bench) -> None:
    bench.step("preparing")
    stuck_here()


def one_after_the_other(bench: Bench) -> None:
    bench.keep("first", pid=os.getpid())
    leaves(bench)
    for number in range(FOREVER):
        bench.keep(f"round {number}", number=number)
        time.sleep(0.02)


def plan(run: Any, **more: Any) -> Workload:
    return Workload(run, **{"seconds": 5, "typical_seconds": SECTION_SECONDS, **more})


WORKLOADS = {
    "noisy": plan(noisy),
    "segfaults": plan(segfaults),
    "raises": plan(raises),
    "hangs": plan(hangs, seconds=0.6),
    "stops": plan(stops, seconds=0.6),
    "exits": plan(exits),
    "leaves": plan(leaves),
    "leaves-and-hangs": plan(leaves_and_hangs, seconds=0.6),
    "keeps": plan(keeps),
    "skips": plan(skips),
    "each": plan(section),
    "alone": plan(section, scope=ALONE),
    "once": plan(section, scope=ONCE),
    "together": plan(section, scope=TOGETHER),
    "early": plan(early, starts_early=True),
    "early-but-stuck": plan(early_but_stuck, starts_early=True),
    "endless": plan(one_after_the_other, seconds=FOREVER),
    "torch": plan(imports, runtime="torch"),
    "torch-raises": plan(raises, runtime="torch"),
    "torch-too": plan(imports, runtime="torch"),
    "cupy": plan(imports, runtime="cupy"),
    "numba": plan(imports, runtime="numba"),
    "jax": plan(imports, runtime="jax"),
}
