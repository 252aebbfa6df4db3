"""Workloads that need no GPU, most of which misbehave. Travels in place of the real ones (Python 3.8)."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpudoctor.worker.measuring.bench import ALONE, ONCE, TOGETHER, Bench, Workload
from gpudoctor.worker.reply import Skip

SECTION_SECONDS = 0.1
FOREVER, HOPELESS_SECONDS = 600, 120
POLL_SECONDS = 0.01


def shared(name: str) -> Path:
    """A file by which the processes of a test tell each other how far they are."""
    return Path(os.environ["GPUDOCTOR_TEST_RUN"], name)


def wait_for(*names: str) -> None:
    while not all(shared(name).exists() for name in names):
        time.sleep(POLL_SECONDS)


class UntilStuck(float):
    """A limit that is over as soon as somebody is stuck, however long it took to get there."""

    file: Path

    def __new__(cls, name: str) -> UntilStuck:
        limit = super().__new__(cls, FOREVER)
        limit.file = shared("stuck-" + name)
        return limit

    def __radd__(self, now: float) -> UntilStuck:
        return self

    def __gt__(self, now: float) -> bool:
        return not self.file.exists()

    def __lt__(self, now: float) -> bool:
        return self.file.exists()


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
    stuck_here("hangs")


def stuck_here(name: str) -> None:
    """Neither call has a frame in Python, so that its stack ends here from the moment in which the folder exists."""
    os.mkdir(shared("stuck-" + name))  # noqa: PTH102
    time.sleep(FOREVER)


def stops(bench: Bench) -> None:
    section(bench)
    stopped = os.getpid()
    if not os.fork():
        while " T " not in Path(f"/proc/{stopped}/stat").read_text():
            time.sleep(POLL_SECONDS)
        shared("stuck-stops").touch()
        os._exit(0)
    os.kill(stopped, signal.SIGSTOP)


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
    stuck_here("leaves-and-hangs")


def keeps(bench: Bench) -> None:
    """On the first GPU it has grandchildren, while the one on the second ends."""
    if bench.gpu == 0:
        leaves(bench)
        shared("has-grandchildren").touch()
        wait_for("ends-now")
        time.sleep(SECTION_SECONDS)
        names = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
        bench.keep("later", pids=[int(name) for name in names])
    else:
        wait_for("has-grandchildren")
        shared("ends-now").touch()


def sampled(bench: Bench) -> None:
    """A section in which the fake NVML was read at least twice, with the count of its readings at both ends."""
    from fake_pynvml import readings

    with bench.section("work") as values:
        began = readings(bench.gpu)
        while readings(bench.gpu) < began + 2:
            time.sleep(POLL_SECONDS)
        values.update(began=began, ended=readings(bench.gpu))


def meets(name: str, *others: str) -> Any:
    """Work that is done only if the others work meanwhile."""

    def run(bench: Bench) -> None:
        with bench.section("work") as values:
            began = time.monotonic()
            shared(f"{name}-{bench.gpu}").touch()
            wait_for(*others)
            time.sleep(SECTION_SECONDS)
            values.update(gpus=bench.gpus, at=began, until=time.monotonic())

    return run


def skips(bench: Bench) -> None:
    raise Skip("this GPU has no such unit", Skip.UNSUPPORTED)


def early(bench: Bench) -> None:
    bench.keep("prepared", at=time.monotonic())
    bench.turn()
    section(bench)


def early_but_stuck(bench: Bench) -> None:
    """Once the other one is prepared."""
    bench.step("preparing")
    while not Path(bench.folder, f"early-gpu{bench.gpu}.waits").exists():
        time.sleep(POLL_SECONDS)
    stuck_here("early")


def one_after_the_other(bench: Bench) -> None:
    bench.keep("first", pid=os.getpid())
    leaves(bench)
    for number in range(FOREVER):
        bench.keep(f"round {number}", number=number)
        time.sleep(0.02)


def plan(run: Any, **more: Any) -> Workload:
    return Workload(run, **{"seconds": HOPELESS_SECONDS, "typical_seconds": SECTION_SECONDS, **more})


WORKLOADS = {
    "noisy": plan(noisy),
    "segfaults": plan(segfaults),
    "raises": plan(raises),
    "hangs": plan(hangs, seconds=UntilStuck("hangs")),
    "stops": plan(stops, seconds=UntilStuck("stops")),
    "exits": plan(exits),
    "leaves": plan(leaves),
    "leaves-and-hangs": plan(leaves_and_hangs, seconds=UntilStuck("leaves-and-hangs")),
    "keeps": plan(keeps),
    "skips": plan(skips),
    "each": plan(section),
    "alone": plan(section, scope=ALONE),
    "once": plan(section, scope=ONCE),
    "together": plan(section, scope=TOGETHER),
    "early": plan(early, starts_early=True),
    "early-but-stuck": plan(early_but_stuck, starts_early=True),
    "endless": plan(one_after_the_other, seconds=FOREVER),
    "sampled": plan(sampled),
    "sampled-too": plan(sampled),
    "once-beside-each": plan(meets("once", "each-1"), scope=ONCE),
    "each-beside-once": plan(meets("each", "once-0")),
    "torch-beside-torch": plan(meets("torch", "torch-0", "torch-1"), runtime="torch"),
    "torch": plan(imports, runtime="torch"),
    "torch-raises": plan(raises, runtime="torch"),
    "torch-too": plan(imports, runtime="torch"),
    "cupy": plan(imports, runtime="cupy"),
    "numba": plan(imports, runtime="numba"),
    "jax": plan(imports, runtime="jax"),
}
