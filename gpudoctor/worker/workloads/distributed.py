"""All GPUs as one job: a torchrun session with one rank per GPU runs all-reduces over NCCL, then DistributedDataParallel.

The ranks run measuring/all_reduce.py and measuring/data_parallel.py, called by measuring/ranks.py.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List

from gpudoctor.worker.captured import MOST_BYTES
from gpudoctor.worker.child import die_with_parent
from gpudoctor.worker.measuring import nccl_log, ranks
from gpudoctor.worker.measuring.bench import TOGETHER, Bench, Workload
from gpudoctor.worker.reply import Skip

LAST_LINES = 3
# "failed (exitcode: -11) local_rank: 1 (pid: 123) of binary": torchrun's message about the rank that failed first
EXIT = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")
TIMEOUT = re.compile(r"Watchdog caught collective operation timeout: .{1,300}")
NO_IMPORT = re.compile(r"^(?:ImportError|ModuleNotFoundError|OSError): .*", re.M)


def run(bench: Bench) -> None:
    """See measuring/all_reduce.py and measuring/data_parallel.py for the results."""
    session(bench, "nccl")


def session(bench: Bench, backend: str, load: str = "") -> None:
    """A torchrun session; on failure, an exception with the messages of NCCL and of the rank that failed first.

    load: a module with the long load of each rank; "" to measure.
    """
    if len(bench.gpus) < 2:
        raise Skip("there is only one GPU, so there is nothing to communicate with")
    if importlib.util.find_spec("torch") is None:
        raise Skip("torch is not installed", Skip.NOT_INSTALLED)
    file = bench._file
    with open(file + ".log", "wb") as log:
        process = subprocess.Popen(
            command(bench, backend, load),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=bench.folder,  # a file there could hide a module otherwise
            env={**files_of_torch(file), **os.environ, **debugging(file)},
            preexec_fn=die_with_parent,
        )
    bench.step("importing torch in %d ranks" % len(bench.gpus))
    while process.poll() is None and not all(os.path.exists(file + ranks.READY % rank) for rank in range(len(bench.gpus))):
        time.sleep(ranks.POLL_SECONDS)
    if process.poll() is None:
        bench.turn()
    code = process.wait()
    if code:
        sys.stderr.write(text_of(file + ".log"))
        refused = NO_IMPORT.findall(text_of(file + ".log"))
        if refused and not EXIT.search(text_of(file + ".log")):  # torchrun itself did not start
            raise Skip("torch cannot be imported: " + refused[-1], Skip.NO_ANSWER)
        raise RuntimeError("torchrun: %s" % cause(file, code))
    if os.path.exists(file + ".skip"):
        raise Skip(text_of(file + ".skip"), Skip.UNSUPPORTED)


def command(bench: Bench, backend: str, load: str = "") -> List[str]:
    job: Dict[str, Any] = {"file": bench._file, "gpus": bench.gpus, "level": bench.level, "backend": backend}
    job.update(load=load, seconds=bench.options.get("seconds"))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=%d" % len(bench.gpus)]
    return [*torchrun, "--log_dir=" + bench._file + ".torchrun", ranks.__file__, json.dumps(job)]


def debugging(file: str) -> Dict[str, str]:
    """Makes NCCL log to files, unless the user has set NCCL_DEBUG."""
    if "NCCL_DEBUG" in os.environ:
        return {}
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH", "NCCL_DEBUG_FILE": file + ".nccl.%p"}


def files_of_torch(file: str) -> Dict[str, str]:
    """Where torch writes its records of a collective that hung."""
    return dict.fromkeys(("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"), file + ".trace.")


def cause(file: str, code: int) -> str:
    """Why a session failed, the most useful message first: NCCL's, that of the rank that failed first, else the last lines."""
    log = text_of(file + ".log")
    warning = nccl_log.first_warning(ranks.logs(file))
    words = ["NCCL WARN " + warning] if warning else []
    words += TIMEOUT.findall(log)[:1]
    first = EXIT.search(log)
    if first and int(first[1]) < 0:
        words.append("rank %s was killed by %s" % (first[2], signal.Signals(-int(first[1])).name))
    words += text_of(file + ".failures").splitlines()[:1]
    lines = [line for line in log.splitlines() if line.strip()]
    return "; ".join(words or lines[-LAST_LINES:] or ["exit code %d" % code])


def text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MOST_BYTES)
    except FileNotFoundError:
        return ""


WORKLOAD = Workload(run, scope=TOGETHER, seconds=120, typical_seconds=6, starts_early=True)
