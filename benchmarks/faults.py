"""Honest faults on this machine: does gpudoctor name the cause of what breaks a user's own program?

    python benchmarks/faults.py [--gpus 1] [--lanes 12] [--minutes 8.5] [--only NAME,…] [--phases why,slow] [--out DIR]

The faults and the programs are in faults.yaml. Each program first runs without a fault (a program that does not work here is left
out), then with it. That is the truth: a fault with which the program works is not counted. Then `gpudoctor why` and
`gpudoctor check` are asked in the same environment. Each result is appended at once to DIR/results.jsonl, and the snapshots of
misses to DIR/misses.tar. Needs root (mount namespaces). No setting of a GPU is changed, and nothing stays on the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.append(str(ROOT))

from fault_runs import Faults  # noqa: E402
from fault_verdicts import Fault  # noqa: E402

PHASES = ("why", "slow", "alarms", "check")
LIBRARIES = {
    "empty.so": "int nothing_here;",
    "memory.so": "#include <stddef.h>\nint cudaMalloc(void **p, size_t n) { (void)p; (void)n; return 2; }",
    "tracer.so": "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <unistd.h>\ntypedef struct { unsigned x, y, z; } dim3;\n"
    "int cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **a, unsigned long s, void *t) {\n"
    "  static int (*next)(const void *, dim3, dim3, void **, unsigned long, void *);\n"
    '  if (!next) *(void **)&next = dlsym(RTLD_NEXT, "cudaLaunchKernel");\n'
    "  usleep(300); return next(f, g, b, a, s, t); }",
}

IN_NAMESPACE = "GPUDOCTOR_FAULTS_NAMESPACE"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gpus", type=int, default=1, help="how many GPUs there are")
    parser.add_argument("--lanes", type=int, default=12, help="how many runs at once")
    parser.add_argument("--check-lanes", type=int, default=5, help="how many runs of check at once: each needs the GPU")
    parser.add_argument("--minutes", type=float, default=8.5, help="after which nothing new is started")
    parser.add_argument("--only", default="", help="names of faults, or programs")
    parser.add_argument("--phases", default=",".join(PHASES))
    for tool in ("why", "check", "slow"):
        what = "faults that only this is asked about" if tool != "slow" else "slow programs, on the last GPU meanwhile"
        parser.add_argument(f"--{tool}", default="", metavar="NAME,…", help=f"{what}; the programs without a fault are not run")
    parser.add_argument("--out", type=Path, default=Path("faults-results"))
    parser.add_argument("--cpu", action="store_true", help="without a GPU: the programs run on the CPU")
    given = parser.parse_args()
    if IN_NAMESPACE not in os.environ:
        os.environ[IN_NAMESPACE] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])
    del os.environ[IN_NAMESPACE]
    known = yaml.safe_load((HERE / "faults.yaml").read_text())
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpudoctor-faults-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        work.chmod(0o755)
        began = time.monotonic()
        _prepare(work)
        runs = Faults(work, given.out.resolve(), known, given)
        (_chosen if given.check or given.why or given.slow else _phases)(runs, given)
        _table(runs.rows)
        print(f"{time.monotonic() - began:.0f} s")
    for left in Path("/sys/fs/cgroup").glob(f"faults-{os.getpid()}-*"):
        with contextlib.suppress(OSError):
            left.rmdir()


def _prepare(work: Path) -> None:
    """gpudoctor as an own program, readable for all users; the small libraries; NCCL's settings for every process."""
    for name in ("gpudoctor", "checks"):
        shutil.copytree(ROOT / name, work / "source" / name)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(work / "source")], check=False)
    (work / "bin").mkdir()
    program = work / "bin" / "gpudoctor"
    start = f"import sys; sys.path.append({str(work / 'source')!r}); from gpudoctor.cli import main; main()"
    program.write_text(f"#!{sys.executable}\n{start}\n")
    program.chmod(0o755)
    (work / "bad").mkdir()
    for library, code in LIBRARIES.items():
        (work / "bad" / "x.c").write_text(code)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", work / "bad" / library, work / "bad" / "x.c", "-ldl"], check=True)
    settings = "".join(f"{name}={value}\n" for name, value in os.environ.items() if name.startswith("NCCL_"))
    if settings:  # a repeat without these variables keeps them: they can be there to protect GPUs that others use, too
        for folder in ("etc", "etc-work"):
            (work / folder).mkdir()
        options = f"lowerdir=/etc,upperdir={work / 'etc'},workdir={work / 'etc-work'}"
        subprocess.run(["mount", "-t", "overlay", "-o", options, "none", "/etc"], check=True)
        with Path("/etc/nccl.conf").open("a") as file:
            file.write(settings)


def _phases(runs: Faults, given: argparse.Namespace) -> None:
    only = set(filter(None, given.only.split(",")))
    phases = given.phases.split(",")
    faults = [fault for fault in runs.known["faults"] if fault.get("gpus", 1) <= given.gpus]
    faults = [fault for fault in faults if not only or {fault["name"], fault["program"]} & only]
    faults = [fault for fault in faults if ("slow" in phases if fault.get("slow") else {"why", "check"} & set(phases))]
    healthy = runs.known["healthy"] if "alarms" in phases and not only else []
    can_be_slow = [fault for fault in faults if fault.get("slow")]
    programs = {fault["program"] for fault in (*faults, *healthy)}
    quiet = {fault["program"] for fault in can_be_slow}
    _say("healthy programs")
    runs.in_lanes(given.lanes, [(runs.well, name) for name in sorted(programs - quiet)])
    runs.on_own_gpus([(runs.well, name) for name in sorted(quiet) if not runs.is_of_all(name)])
    runs.in_lanes(1, [(runs.well, name) for name in sorted(quiet) if runs.is_of_all(name)])
    broken: list[tuple[Fault, dict[str, Any]]] = []
    slow: list[tuple[Fault, dict[str, Any]]] = []

    def tried(fault: Fault) -> None:
        if not runs.works_as_user(fault):
            print(f"-- {fault['name']:20} dropped, the program does not work as another user", flush=True)
            return
        truth = runs.truth(fault)
        if not truth["ready"] or not truth["broken"]:
            said = "works" if truth["ready"] else f"could not be set up: {truth['said']}"
            print(f"-- {fault['name']:20} dropped, the program {said}", flush=True)
            runs.keep({"fault": fault["name"], "tool": "truth", **truth, "right": None}, None)
            return
        (slow if truth["broken"] == "slow" else broken).append((fault, truth))
        if {"why", "slow"} & set(phases):
            runs.why(fault, truth)

    faults = [fault for fault in faults if fault["program"] in runs.healthy]
    can_be_slow = [fault for fault in can_be_slow if fault["program"] in runs.healthy]
    of_all = [fault for fault in can_be_slow if runs.is_of_all(fault["program"])]
    _say("faults")
    runs.in_lanes(given.lanes, [(tried, fault) for fault in faults if fault not in can_be_slow])
    _say("slow programs, one on each GPU")
    runs.on_own_gpus([(tried, fault) for fault in can_be_slow if fault not in of_all])
    runs.in_lanes(1, [(tried, fault) for fault in of_all])
    if "alarms" in phases:
        _say("healthy settings")
        works = {"broken": "", "said": "works"}
        runs.in_lanes(1, [(runs.whole, f"whole-{number}") for number in (1, 2)])
        runs.on_own_gpus([(runs.check, fault, works) for fault in healthy if fault["program"] in runs.healthy])
    if "check" in phases:
        _say("check of the same faults")
        runs.in_lanes(given.check_lanes, [(runs.check, fault, truth) for fault, truth in broken])
        runs.in_lanes(1, [(runs.check, fault, truth) for fault, truth in slow])


def _chosen(runs: Faults, given: argparse.Namespace) -> None:
    """Only some faults, whose programs are known to work here: why at once, then check in few lanes, slow ones meanwhile."""
    by_name = {fault["name"]: fault for fault in runs.known["faults"]}
    whys, checks, slow = (list(filter(None, names.split(","))) for names in (given.why, given.check, given.slow))
    truths: dict[str, dict[str, Any]] = {}

    def tried(name: str) -> None:
        truths[name] = runs.truth(by_name[name])
        if truths[name]["broken"] and name in whys:
            runs.why(by_name[name], truths[name])

    def checked(name: str) -> None:
        if truths.get(name, {}).get("broken"):
            runs.check(by_name[name], truths[name])

    def slowed(names: list[str]) -> None:
        runs.own_gpu.number = str(given.gpus - 1)
        for name in (name for name in names if runs.left > 0):
            runs.well(by_name[name]["program"])
            tried(name)

    whys += slow
    on_cpu = [name for name in slow if by_name[name]["program"] == "cpu"]
    beside = threading.Thread(
        target=runs.in_lanes, args=(2, [(slowed, [name for name in slow if name not in on_cpu]), (slowed, on_cpu)])
    )
    beside.start()
    runs.in_lanes(given.lanes, [(tried, name) for name in dict.fromkeys((*whys, *checks)) if name not in slow])
    runs.in_lanes(given.check_lanes, [(checked, name) for name in checks])
    beside.join()


def _say(words: str) -> None:
    print(f"== {words}", flush=True)


def _table(rows: list[dict[str, Any]]) -> None:
    print(f"\n{'fault':20} {'tool':6} {'first cause':34} {'right':5} {'conf.':5} {'any':4} {'s':>5}  truth")
    for row in sorted(rows, key=lambda row: (row["tool"], row["fault"])):
        if row.get("truth"):
            marks = [("yes" if row[key] else "NO") for key in ("right", "confirmed", "anywhere")]
            found = f"{row['problem'][:34]:34} {marks[0]:5} {marks[1]:5} {marks[2]:4}"
            print(f"{row['fault']:20} {row['tool']:6} {found} {row['seconds']:5.0f}  {row['said'][:90]}")
    for tool in ("why", "check"):
        counted = [row for row in rows if row.get("truth") and row["tool"] == tool]
        if counted:
            right, sure = (sum(bool(row[key]) for row in counted) for key in ("right", "confirmed"))
            share = f"{right} first ({right / len(counted):.0%}), {sure} confirmed ({sure / len(counted):.0%})"
            print(f"{tool}: {len(counted)} faults, {share}")
    well = [row for row in rows if row.get("truth") == ""]
    print(f"healthy: {len(well)} runs, false alarms: {', '.join(row['fault'] for row in well if row['alarm']) or 'none'}")


if __name__ == "__main__":
    main()
