"""Before and after: every program of examples/ and its mended twin on this GPU, one after the other in one run.

    python benchmarks/examples.py [--seconds 0.4] [--only NAME,...] [--most 120] [-o RESULTS.jsonl]
    python benchmarks/examples.py --markdown RESULTS.jsonl [MORE.jsonl ...] [-o ALL.jsonl]

Needs torch, and nothing of gpudoctor. torch is imported once and each program runs in a fork of this process, in a process group
of its own. Prints a JSON line a pair; what does not fit into --most seconds or lacks GPUs is listed as not run, with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import runpy
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))
import pairs  # noqa: E402

SLOWEST = 60.0  # seconds
HANGS = 15.0  # of one that may never end
POLL_SECONDS = 0.005


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=0.4, help="that each program works after its warm-up")
    parser.add_argument("--only", help="names of pairs")
    parser.add_argument("--most", type=float, default=120.0, help="seconds of the whole run")
    parser.add_argument("--slowest", type=float, default=SLOWEST, help="seconds of one program, start and compilation included")
    parser.add_argument("--cpu", action="store_true", help="run without a GPU too, to see that the programs work")
    parser.add_argument("-o", "--output", type=Path, help="also write the JSON lines here")
    parser.add_argument(
        "--markdown", type=Path, nargs="+", metavar="RESULTS", help="print the table of saved results, newer last"
    )
    arguments = parser.parse_args()
    if arguments.markdown:
        rows = merged([[json.loads(line) for line in file.read_text().splitlines()] for file in arguments.markdown])
        save(rows, arguments.output)
        print(markdown(rows), end="")
        return
    names = arguments.only.split(",") if arguments.only else [pair.name for pair in pairs.PAIRS]
    unknown = sorted(set(names) - {pair.name for pair in pairs.PAIRS})
    if unknown:
        parser.error(f"no such pair: {', '.join(unknown)}")
    chosen = [pair for pair in pairs.PAIRS if pair.name in names]
    rows = measure(chosen, arguments.seconds, arguments.most, arguments.slowest, arguments.cpu)
    save(rows, arguments.output)
    print("\n" + markdown(rows), end="")


def merged(runs: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What describes the machine of the first run, then the newest measured row of each pair."""
    rows = {row["pair"]: row for run in runs for row in run[1:] if "not_run" in row}
    rows |= {row["pair"]: row for run in runs for row in run[1:] if "not_run" not in row}
    return [runs[0][0], *(rows[pair.name] for pair in pairs.PAIRS if pair.name in rows)]


def save(rows: list[dict[str, Any]], output: Path | None) -> None:
    if output:
        output.write_text("".join(json.dumps(row) + "\n" for row in rows))


def measure(chosen: list[pairs.Pair], seconds: float, most: float, slowest: float, cpu: bool) -> list[dict[str, Any]]:
    """A row that describes the machine, then one a pair. cpu: also where GPUs are missing."""
    import torch  # before the forks, which then need not

    began = time.monotonic()
    rows: list[dict[str, Any]] = [machine()]
    if not rows[0]["gpus"]:  # else it might use CUDA, which the forks could not then
        import torch._dynamo  # noqa: F401 (which every optimizer loads)
    for pair in chosen:
        row: dict[str, Any] = {"pair": pair.name}
        if rows[0]["gpus"] < pair.gpus and not cpu:
            row["not_run"] = "needs a GPU" if pair.gpus == 1 else f"needs {pair.gpus} GPUs"
        elif time.monotonic() - began > most:
            row["not_run"] = f"the {most:.0f} s of this run were over"
        else:
            stuck = HANGS if pair.figure == pairs.ENDS else slowest
            row.update(broken=figure(pair, pair.name, seconds, stuck), mended=figure(pair, pair.mended, seconds, slowest))
        rows.append(row)
        print(json.dumps(row), flush=True)
    rows[0]["seconds"] = round(time.monotonic() - began, 1)
    return rows


def machine() -> dict[str, Any]:
    """In a fork: this process must not use CUDA, since its forks could not use it then."""
    code = (
        "import json, torch; count = torch.cuda.device_count(); "
        "print(json.dumps([torch.__version__, count, torch.cuda.get_device_name() if count else 'no GPU']))"
    )
    _, text = forked(lambda: exec(code), SLOWEST)
    torch, gpus, name = json.loads(text.splitlines()[-1])
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return {"gpu": name, "gpus": gpus, "torch": torch, "python": platform.python_version(), "cpus": os.cpu_count(), "date": today}


def figure(pair: pairs.Pair, name: str, seconds: float, most: float) -> float | str:
    """The figure of the pair, or why there is none. most: seconds, after which it is ended."""

    def program() -> None:
        sys.argv = [name, "--seconds", str(seconds)]
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")

    code, text = forked(program, most)
    if pair.figure == pairs.ENDS:
        return float(code == 0)
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if code or not lines:
        return f"failed: exit code {code}: {(text.strip().splitlines() or [''])[-1][:200]}"
    return float(json.loads(lines[-1])[pair.figure])


def forked(program: Any, most: float) -> tuple[int, str]:
    """Exit code and output of a fork of this process that runs it; whatever it started ends with it."""
    with tempfile.TemporaryFile() as output:
        pid = os.fork()
        if pid == 0:
            _child(program, output.fileno())
        try:
            code = _wait(pid, most)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        output.seek(0)
        return code, output.read().decode(errors="replace")


def _child(program: Any, output: int) -> None:
    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        import loop

        loop.end_with_parent()
        os.dup2(output, 1)
        os.dup2(output, 2)
        program()
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(pid: int, most: float) -> int:
    """Its exit code; 124 if it was killed because the time was up."""
    until = time.monotonic() + most
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(POLL_SECONDS)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 124


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table of the docs."""
    by_name = {pair.name: pair for pair in pairs.PAIRS}
    about, *measured = rows
    lines = [
        f"Measured on {about['gpus']} × {about['gpu']} with {about['cpus']} CPU cores, torch {about['torch']}, {about['date']}.",
        "",
        "| example | problem | broken | mended | unit | change |",
        "|---|---|--:|--:|---|--:|",
    ]
    for row in measured:
        pair = by_name[row["pair"]]
        told = [row["not_run"], ""] if "not_run" in row else [shown(row["broken"]), shown(row["mended"])]
        change = "" if "not_run" in row else changed(row["broken"], row["mended"])
        lines.append(f"| `{pair.name}.py` | {pair.problem} | {told[0]} | {told[1]} | {pair.unit} | {change} |")
    return "\n".join(lines) + "\n"


def shown(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 else f"{float(f'{value:.3g}'):g}"


def changed(broken: float | str, mended: float | str) -> str:
    if isinstance(broken, str) or isinstance(mended, str):
        return ""
    if min(broken, mended) <= 0:
        return "from 0" if mended > broken else "to 0" if mended < broken else "none"
    return f"{mended / broken:.1f}×" if mended >= broken else f"1/{broken / mended:.1f}"


if __name__ == "__main__":
    main()
