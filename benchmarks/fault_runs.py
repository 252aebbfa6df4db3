"""What faults.py runs: programs and gpudoctor, in the environment of a fault."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fault_verdicts import Fault, last, read, verdict

AT_LEAST, SLOW = 0.7, 0.5  # of the figure without the fault: what why asks for, and below which a program is slow
LONGEST = 150.0  # seconds of one run of gpudoctor
GRACE = 20.0  # seconds that a run may take longer than all may take
PRELUDE = 'set -e\ncd "$OWN/work"\n{set}\n: >"$OWN/ready"\nexec {user}"$@"'


class Faults:
    """Runs programs and gpudoctor with and without faults, in a folder that is removed at the end."""

    def __init__(self, work: Path, out: Path, known: dict[str, Any], given: argparse.Namespace) -> None:
        self.work, self.out, self.known, self.given = work, out, known, given
        self.deadline = time.monotonic() + given.minutes * 60
        self.healthy: dict[str, dict[str, Any]] = {}
        self.rows: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.count = 0
        self.measured = _measured()
        self.own_gpu = threading.local()

    def run(self, fault: Fault, argv: list[str], seconds: float) -> dict[str, Any]:
        """One command in the fault's environment. ready: whether the fault could be set up. own: its folder."""
        with self.lock:
            self.count += 1
            number = self.count
        own = self.work / f"{fault['name']}-{number}"
        seconds = min(seconds, max(5.0, self.left + GRACE))
        for folder in (own / "work", own / "home"):
            folder.mkdir(parents=True)
        program = self.known["programs"][fault["program"]]
        file = own / "work" / f"train{program.get('suffix', '.py')}"
        file.write_text(program["code"].replace('"cuda"', '"cpu"') if self.given.cpu else program["code"])
        user = ""
        if fault.get("user"):
            user = f"setpriv --reuid {61000 + number} --regid {61000 + number} --clear-groups -- "
            for path in (own, own / "work", own / "home", file):
                os.chown(path, 61000 + number, 61000 + number)
        script = PRELUDE.format(set=self._cgroup(fault, number) + str(fault.get("set", "")), user=user)
        variables = {"OWN": str(own), "HOME": str(own / "home"), "BAD": str(self.work / "bad"), "SITE": _site()}
        if number_of_gpu := getattr(self.own_gpu, "number", ""):
            variables["CUDA_VISIBLE_DEVICES"] = number_of_gpu
        command = ["unshare", "-m", "bash", "-c", script, "bash", *argv]
        began = time.monotonic()
        code, text, errors = _ran(command, {**os.environ, **variables}, seconds)
        return {
            "code": code,
            "out": text,
            "errors": errors,
            "seconds": round(time.monotonic() - began, 1),
            "ready": (own / "ready").exists(),
            "own": own,
        }

    def _cgroup(self, fault: Fault, number: int) -> str:
        limits = fault.get("cgroup")
        if not limits:
            return ""
        folder = Path(f"/sys/fs/cgroup/faults-{os.getpid()}-{number}")
        lines = [
            "test -f /sys/fs/cgroup/cgroup.controllers",
            f"mkdir {folder}",
            f"test -f {folder}/cgroup.procs",
            *(f"echo {value} >{folder}/{name}" for name, value in limits.items()),
        ]
        return "\n".join([*lines, f"echo $$ >{folder}/cgroup.procs", ""])

    def program(self, fault: Fault) -> list[str]:
        suffix = self.known["programs"][fault["program"]].get("suffix", ".py")
        before = ["env", *(f"{name}={value}" for name, value in fault["env"].items())] if fault.get("env") else []
        return [*before, *(["bash"] if suffix == ".sh" else [sys.executable]), f"train{suffix}"]

    def truth(self, fault: Fault) -> dict[str, Any]:
        """How the user's own program ends. broken: "" if it works, else "fails" or "slow"."""
        seconds = fault.get("timeout", 100)
        ran = self.run(fault, self.program(fault), seconds)
        figure = self.figure(fault, ran["out"])
        well = self.healthy.get(fault["program"], {}).get("figure")
        is_slow = bool(fault.get("slow") and figure and well and figure < well * SLOW)
        broken = "fails" if ran["code"] != 0 else "slow" if is_slow else ""
        said = "did not end" if ran["code"] is None else last(ran["errors"] if ran["code"] else ran["out"])
        self._clean(ran)
        return {"ready": ran["ready"], "broken": broken, "said": said, "seconds": ran["seconds"], "figure": figure}

    def figure(self, fault: Fault, text: str) -> float | None:
        pattern = self.known["programs"][fault["program"]].get("figure")
        found = re.findall(pattern, text) if pattern else []
        return float(found[-1]) if found else None

    def why(self, fault: Fault, truth: dict[str, Any]) -> None:
        options = ["why", "--yes", "--python", sys.executable, "--format", "json", "--no-redact"]
        if "timeout" in fault:
            options += ["--timeout", str(fault["timeout"])]
        if truth["broken"] == "slow":
            goal = self.healthy[fault["program"]]["figure"] * AT_LEAST
            options += ["--metric", self.known["programs"][fault["program"]]["figure"], "--at-least", f"{goal:.4g}"]
        self.ask(fault, truth, "why", options, ["--", *self.program(fault)])

    def check(self, fault: Fault, truth: dict[str, Any]) -> None:
        program = self.known["programs"][fault["program"]]
        wanted = fault.get("check", program.get("check", []))
        if wanted:
            self.ask(
                fault, truth, "check", self.options(wanted, program.get("level", "standard"), truth["broken"] == "fails"), []
            )

    def options(self, wanted: Iterable[str], level: str, has_company: bool) -> list[str]:
        skipped = ",".join(id for id in self.measured if id not in wanted)
        found = ["check", "--python", sys.executable, "--level", level, "--skip", skipped, "--format", "json", "--no-redact"]
        limits = ["--measure-timeout", "50", "--experiment-timeout", "40"]
        return [*found, *limits, *(["--force", "--gpus", "0"] if has_company and "all-reduce" not in wanted else [])]

    def ask(self, fault: Fault, truth: dict[str, Any], tool: str, options: list[str], end: list[str]) -> None:
        doctor = str(self.work / "bin" / "gpudoctor")
        ran = self.run(fault, [doctor, *options, "--save", "../snapshot.json", *end], LONGEST)
        report = read(ran["out"])
        row = {"fault": fault["name"], "tool": tool, "program": fault["program"], "truth": truth["broken"], "said": truth["said"]}
        row |= {"exit": ran["code"], "seconds": ran["seconds"], "ready": ran["ready"], **verdict(report, fault)}
        if report is None:
            row["errors"] = ran["errors"][-1500:]
        is_wrong = not row["right"] or not row["confirmed"] if truth["broken"] else row["alarm"]
        self.keep(row, ran["own"] / "snapshot.json" if is_wrong else None, ran["errors"] if is_wrong else "")
        self._clean(ran)

    def keep(self, row: dict[str, Any], snapshot: Path | None, errors: str = "") -> None:
        with self.lock:
            self.rows.append(row)
            with (self.out / "results.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            texts = {"stderr.txt": errors.encode()[-20000:]}
            if snapshot and snapshot.exists():
                texts["snapshot.json.gz"] = gzip.compress(snapshot.read_bytes())
            with tarfile.open(self.out / "misses.tar", "a") as archive:
                for name, content in texts.items() if snapshot else ():
                    entry = tarfile.TarInfo(f"{row['fault']}.{row['tool']}.{name}")
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
            mark = {True: "ok", False: "NO"}[bool(row["right"])] if row.get("truth") else "!!" if row.get("alarm") else "  "
            print(f"{mark} {row['fault']:20} {row['tool']:7} {row['seconds']:6.1f} s  {row.get('problem', '')}", flush=True)

    def well(self, name: str) -> None:
        """A program without a fault: its figure, and whether it works here at all."""
        fault = {"name": f"healthy-{name}", "program": name}
        ran = self.run(fault, [str(self.work / "bin" / "gpudoctor"), "why", "--yes", "--", *self.program(fault)], 120)
        row = {"fault": fault["name"], "program": name, "said": last(ran["errors"] if ran["code"] else ran["out"])}
        row |= {"seconds": ran["seconds"], "exit": ran["code"]}
        if ran["code"]:  # counted neither as healthy nor as a fault
            self.keep({**row, "tool": "program", "errors": ran["errors"][-800:]}, None)
            print(f"   {name} does not work here: {row['said']}", flush=True)
        else:
            self.healthy[name] = {"figure": self.figure(fault, ran["out"]), "seconds": ran["seconds"]}
            self.keep({**row, "tool": "why", "truth": "", "alarm": False, **self.healthy[name]}, None)
        self._clean(ran)

    def works_as_user(self, fault: Fault) -> bool:
        """Whether the program works as another user without the fault."""
        return not fault.get("user") or self.truth({**fault, "set": "", "cgroup": None})["broken"] == ""

    def whole(self, name: str) -> None:
        """A whole check of this machine as it is: no diagnosis of status fail may appear."""
        fault = {"name": name, "program": "matmul"}
        truth = {"broken": "", "said": ""}
        self.ask(fault, truth, "check", ["check", "--python", sys.executable, "--format", "json", "--no-redact"], [])

    @property
    def left(self) -> float:
        return float(self.deadline - time.monotonic())

    def is_of_all(self, program: str) -> bool:
        """Whether a program uses all GPUs."""
        return bool(self.known["programs"][program].get("gpus", 1) > 1)

    def on_own_gpus(self, jobs: Iterable[tuple[Any, ...]]) -> None:
        """As many jobs at once as there are GPUs, each with a GPU of its own."""
        free: queue.SimpleQueue[str] = queue.SimpleQueue()
        for number in range(self.given.gpus):
            free.put(str(number) if self.given.gpus > 1 else "")

        def alone(job: Callable[..., None], *arguments: Any) -> None:
            self.own_gpu.number = free.get()
            try:
                job(*arguments)
            finally:
                free.put(self.own_gpu.number)
                self.own_gpu.number = ""

        self.in_lanes(self.given.gpus, [(alone, *job) for job in jobs])

    def in_lanes(self, lanes: int, jobs: Iterable[tuple[Any, ...]]) -> None:
        """Runs (function, arguments …), at most `lanes` at once, until no time is left for another."""

        def do(job: tuple[Any, ...]) -> None:
            if self.left > 0:
                try:
                    job[0](*job[1:])
                except Exception as failure:
                    print(f"{job[0].__name__} {job[1]}: {failure!r}", flush=True)

        with ThreadPoolExecutor(max(1, lanes)) as pool:
            list(pool.map(do, jobs))

    def _clean(self, ran: dict[str, Any]) -> None:
        shutil.rmtree(ran["own"], ignore_errors=True)


def _ran(command: list[str], environment: dict[str, str], seconds: float) -> tuple[int | None, str, str]:
    """Exit code (None: ended by the time limit), standard output and error. Its whole group is killed at the end."""
    pipe, no_input = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(
        command, env=environment, stdin=no_input, stdout=pipe, stderr=pipe, start_new_session=True, text=True, errors="replace"
    ) as process:
        code: int | None = None
        try:
            out, err = process.communicate(timeout=seconds)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                out, err = process.communicate(timeout=8)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return code, out, err


def _site() -> str:
    import importlib.util

    torch = importlib.util.find_spec("torch")
    return str(Path(torch.origin).parent.parent) if torch and torch.origin else sysconfig.get_path("purelib")


def _measured() -> list[str]:
    from gpudoctor import catalog

    return [id for id, check in catalog.checks().items() if check.workloads]
