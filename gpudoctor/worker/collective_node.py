"""One node of `gpudoctor fleet collective`: runs torchrun, relays what its ranks report, and ends with its standard input.

It comes by standard input as text, followed by a line with the job. Its standard input stays open until it is no longer needed:
when the caller or the connection dies, nothing is left running here.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Dict, List, Optional

PR_SET_CHILD_SUBREAPER = 36
LEAVE_SECONDS = 2.0
LEAVING = threading.Lock()
MOST_LOG_BYTES = 4 << 20
MOST_LINES = 400
TELLING = re.compile(r"via |NET/|NVLS|MNNVL|NCCL WARN|coll channels|NCCL version|set by environment")


def say(job: Dict[str, Any], **told: Any) -> None:
    sys.stdout.write(job["marker"] + json.dumps(told) + "\n")
    sys.stdout.flush()


def adopt_orphans() -> None:
    """Ranks whose torchrun died become children of this process, which can then end them."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


def children() -> List[int]:
    """Every process below this one."""
    parents: Dict[int, int] = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        parents[int(path.split("/")[2])] = int(text.rpartition(")")[2].split()[1])
    found: List[int] = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid and child not in found]
    return found[1:]


def end_all() -> None:
    """Kills until nothing is left: a process that is killed may have started another one."""
    deadline = time.monotonic() + LEAVE_SECONDS
    while time.monotonic() < deadline:
        left = children()
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except OSError:
                break
        time.sleep(0.02)


def read(pattern: str) -> Optional[str]:
    found = []
    for path in sorted(glob.glob(pattern)):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                found.append(file.read(200).strip())
        except OSError:
            pass
    return found[0] if found else None


def adapters() -> List[Dict[str, Any]]:
    """The ports of InfiniBand and RoCE adapters, and the physical network interfaces that are up."""
    found: List[Dict[str, Any]] = []
    for port in sorted(glob.glob("/sys/class/infiniband/*/ports/*")):
        parts = port.split("/")
        layer, state, rate = (read(port + "/" + name) for name in ("link_layer", "state", "rate"))
        active = "ACTIVE" in (state or "")
        found.append({"name": parts[4] + ":" + parts[6], "kind": layer or "InfiniBand", "active": active, "rate": rate})
    for interface in sorted(glob.glob("/sys/class/net/*/device")):
        name = interface.split("/")[4]
        state, speed = read("/sys/class/net/" + name + "/operstate"), read("/sys/class/net/" + name + "/speed")
        found.append({"name": name, "kind": "net", "active": state == "up", "rate": speed})
    return found


def nccl_lines(folder: str) -> List[str]:
    lines: List[str] = []
    for path in sorted(glob.glob(folder + "/nccl.*")):
        with open(path, encoding="utf-8", errors="replace") as file:
            lines += [line.strip()[:300] for line in file.read(MOST_LOG_BYTES).splitlines() if TELLING.search(line)]
    return list(dict.fromkeys(re.sub(r"^\S+:\d+:\d+ ", "", line) for line in lines))[:MOST_LINES]


def preflight(job: Dict[str, Any], folder: str) -> None:
    """Whether this Python can import torch, alone."""
    done = subprocess.run(
        [sys.executable, "-c", "import torch.distributed"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        timeout=job["seconds"],
    )
    last = done.stdout.decode("utf-8", "replace").strip().splitlines()[-1:]
    say(job, done=done.returncode, words=(last or [""])[0][:300] if done.returncode else "", nccl=[], adapters=adapters())


def session(job: Dict[str, Any], folder: str) -> None:
    rank = os.path.join(folder, "rank.py")
    with open(rank, "w", encoding="utf-8") as file:
        file.write(job["rank"])
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=%d" % job["nodes"], "--nproc_per_node=%s" % job["ranks"]]
    command += ["--rdzv_backend=c10d", "--rdzv_endpoint=" + job["endpoint"], "--rdzv_id=" + job["id"], "--max_restarts=0"]
    command += ["--rdzv_conf=is_host=%d,join_timeout=%d,timeout=%d" % (job["is_host"], job["seconds"], job["seconds"])]
    command += ["--local_addr=" + job["address"]] if job["address"] else []
    settings = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,NET", "NCCL_DEBUG_FILE": folder + "/nccl.%h.%p"}
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", **settings)
    environment.update(job.get("environment", {}))
    with open(folder + "/log", "wb") as log:
        process = subprocess.Popen(
            [*command, rank, json.dumps(job["work"])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder,
            env=environment,
        )
    timer = threading.Timer(job["seconds"], process.kill)
    timer.daemon = True
    timer.start()
    assert process.stdout
    for line in process.stdout:
        if line.startswith(b"{"):
            say(job, rank=json.loads(line))
    code = process.wait()
    timed_out = not timer.is_alive() and code < 0
    timer.cancel()
    with open(folder + "/log", encoding="utf-8", errors="replace") as file:
        text = file.read()[-MOST_LOG_BYTES:]
    errors = [
        line.strip()
        for line in text.splitlines()
        if re.match(r"(?:\[rank\d+\]: ?)?\w+(?:\.\w+)*(?:Error|Exception)\b", line.strip())
    ]
    last = [line.strip() for line in text.splitlines() if line.strip()][-1:]
    words = "the time limit of %g s passed" % job["seconds"] if timed_out else (errors[:1] or last or [""])[0][:300]
    say(job, done=code, words=words if code else "", nccl=nccl_lines(folder), adapters=adapters())


def follow_input(folder: str) -> None:
    """Waits for the end of standard input; then nothing of this session may go on."""
    while os.read(0, 4096):
        pass
    leave(folder)


def leave(folder: str) -> None:
    if not LEAVING.acquire(blocking=False):  # the end of the input and a signal often come together
        time.sleep(2 * LEAVE_SECONDS)
    end_all()
    remove(folder)
    os._exit(1)


def remove(folder: str) -> None:
    """Until it is gone: two threads can remove it at the same time, and each skips what the other has removed."""
    deadline = time.monotonic() + LEAVE_SECONDS
    while os.path.isdir(folder) and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.01)


def main() -> None:
    line = b""
    while not line.endswith(b"\n"):  # unbuffered: what follows is for follow_input
        data = os.read(0, 1)
        if not data:
            return
        line += data
    job = json.loads(line)
    folder = tempfile.mkdtemp(prefix="gpudoctor-collective-")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *given: leave(folder))
    adopt_orphans()
    threading.Thread(target=follow_input, args=(folder,), daemon=True).start()
    say(job, hello=list(sys.version_info[:2]))
    try:
        (session if job["nodes"] else preflight)(job, folder)
    except Exception as failure:
        say(job, done=-1, words="%s: %s" % (type(failure).__name__, failure), nccl=[], adapters=[])
    finally:
        end_all()
        remove(folder)


if __name__ == "__main__":
    main()
