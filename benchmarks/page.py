"""How long a report for a browser takes, of eight GPUs and of 64 that were measured at level full, and how large it is.

    python benchmarks/page.py [--runs 5]

Prints the median seconds of the processor, in a fresh process for each run: for imports and the files of checks, to judge the
snapshot, to render the page; then the size of the page with the snapshot in it. The page of eight GPUs is to take at most 1.0 s
(judged and rendered) and 1.5 MB, that of 64 at most 1 s.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ("start", "judge", "render")
ONE_RUN = """
import sys, time
from gpudoctor import catalog, doctor
from gpudoctor.files import snapshot
from gpudoctor.report import html
checks = doctor.select(catalog.checks(), "full")
taken, times = snapshot.load(sys.argv[1]), [time.process_time()]
report = doctor.judge(taken, checks)
times.append(time.process_time())
page = html.render(report, taken)
times.append(time.process_time())
print(*times, len(page.encode()))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    print(f"{'GPUs':>4} {' '.join(f'{name:>7}' for name in COLUMNS)} {'judge + render':>15} {'MB':>6}")
    for gpus in (8, 64):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            Path(file.name).write_bytes(busy(gpus))
            rows = [one_run(file.name) for _ in range(runs + 1)][1:]  # the first writes the bytecode
        start, judge, render, size = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{gpus:4} {start:7.2f} {judge:7.2f} {render:7.2f} {judge + render:15.2f} {size / 1e6:6.2f}")


def busy(gpus: int) -> bytes:
    """A snapshot of the tests."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    import html_machine

    from gpudoctor.files import snapshot

    return snapshot.dump(html_machine.busy(gpus))


def one_run(snapshot: str) -> tuple[float, float, float, float]:
    said = subprocess.run([sys.executable, "-c", ONE_RUN, snapshot], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    start, judged, rendered, size = map(float, said.split())
    return start, judged - start, rendered - judged, size


if __name__ == "__main__":
    main()
