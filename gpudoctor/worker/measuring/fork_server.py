"""A fork server: imports one framework once, then forks a child for each workload, before any CUDA call.

Requests and notices are lines of JSON; results go to files, so that those of a dead child are not lost.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import select
import signal
import sys
import time
import traceback
from typing import Any, Dict, List, NamedTuple, Tuple

from gpudoctor.worker import FOLDER
from gpudoctor.worker.child import Channel, Child, Lines, adopt_orphans, die_with_parent, sweep, talking
from gpudoctor.worker.measuring import cgroup_events, mapped
from gpudoctor.worker.measuring.bench import Bench, workload
from gpudoctor.worker.reply import Skip

STACK_SECONDS = 0.3  # time for a stuck process to dump its stack before it is killed
MOST_BYTES = 6000  # of a process's output
MOST_OWN_BYTES = 2000  # of its stack
MOST_STACK_BYTES = 1 << 14  # of the fault handler's dump, including gpudoctor's own calls


class Runtime(NamedTuple):
    """A framework: what to import, the time limit, the usual time, and slow modules that it would load later."""

    modules: Tuple[str, ...]
    seconds: float
    usual_seconds: float
    loads_later: Tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """The package to import; "" for none."""
        return self.modules[0] if self.modules else ""


OF_REAL_GPUS = "numba.cuda.cudaimpl"
# In import order.
OUR_FOLDER = FOLDER + os.sep
RUNTIMES = {
    "driver": Runtime((), 5, 0),
    "torch": Runtime(("torch",), 120, 6),
    "torch with optimizers": Runtime(("torch",), 120, 9, ("torch._dynamo",)),
    "cupy": Runtime(("cupy",), 60, 1),
    "numba": Runtime(("numba", "numba.cuda", OF_REAL_GPUS), 60, 1),
    "jax": Runtime(("jax",), 60, 2),
    "onnxruntime": Runtime(("onnxruntime",), 60, 1),
    "tensorflow": Runtime(("tensorflow",), 120, 8),
}


class Request(NamedTuple):
    """A workload to run; `file` receives its results."""

    task: str
    workload: str
    gpus: List[int]
    level: str
    cores: List[int]
    file: str
    options: Dict[str, Any]


class ForkServer:
    """The parent's side of one fork server. Its notices: first ready or failed, then ended for each task."""

    def __init__(self, runtime: str, folder: str) -> None:
        self.runtime = runtime
        self.ready = False
        self.counted = cgroup_events.counters()
        self.deadline = time.monotonic() + RUNTIMES[runtime].seconds
        self.file = os.path.join(folder, "import-" + runtime)
        requests, self._requests = os.pipe()
        self.child, self.notices = talking(lambda channel: _serve(runtime, Lines(requests), channel, self.file), keep=[requests])
        os.close(requests)

    def run(self, request: Request) -> None:
        self._ask(run=request)

    def end(self, task: str, stack: bool = False) -> None:
        """Kills a workload with everything it started. stack: lets it dump its stack first."""
        self._ask(end=task, seconds=STACK_SECONDS if stack else 0)

    def close(self, stack: bool = False) -> str:
        """Ends the server with its workloads; returns how it ended. stack: lets it dump its stack first."""
        os.close(self._requests)
        if stack:
            self.child.signal(signal.SIGUSR1)
            time.sleep(STACK_SECONDS)
        if not self.ready and not self.notices.ended:
            self.child.kill()
        self.child.wait()
        self.notices.close()
        return self.child.killed()

    def _ask(self, **request: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # it died: its notices end, which reports that
            Channel(self._requests).send(**request)


def _serve(runtime: str, requests: Lines, channel: Channel, file: str) -> None:
    """Runs the server from start to exit."""
    die_with_parent()
    _redirect(file)
    found = _imported(runtime)
    channel.send(**found)
    if "ready" in found:
        die_with_parent(0)  # from here on it ends when the requests end
        adopt_orphans()
        Server(requests, channel).serve()


def _imported(runtime: str) -> Dict[str, Any]:
    start = time.monotonic()
    package = RUNTIMES[runtime].package
    try:
        for name in RUNTIMES[runtime].modules:
            if name != OF_REAL_GPUS or not _simulates(package):
                importlib.import_module(name)
    except BaseException as failure:
        missing = isinstance(failure, ModuleNotFoundError) and failure.name == package
        if not missing:
            traceback.print_exc()
        return {"failed": "missing" if missing else "error", "detail": "%s: %s" % (type(failure).__name__, failure)}
    for name in RUNTIMES[runtime].loads_later:
        with contextlib.suppress(Exception):  # the workload that needs it reports why it fails
            importlib.import_module(name)
    module = sys.modules.get(package)
    version, origin = str(getattr(module, "__version__", "")), getattr(module, "__file__", None) or ""
    seconds = round(time.monotonic() - start, 3)
    return {"ready": seconds, "version": version, "file": origin, "libraries": mapped.gpu_libraries() if package else []}


def _simulates(package: str) -> bool:
    """Whether Numba simulates CUDA (NUMBA_ENABLE_CUDASIM), with other modules."""
    return bool(getattr(getattr(sys.modules.get(package), "config", None), "ENABLE_CUDASIM", 0))


class Server:
    """The fork server after its import."""

    def __init__(self, requests: Lines, channel: Channel) -> None:
        self.requests = requests
        self.channel = channel
        self.children: Dict[str, Child] = {}
        self.doomed: Dict[str, float] = {}  # when each is to be killed
        self.stopped: Dict[str, bool] = {}
        self.wakeup, self._waker = os.pipe()  # written to when a child ends
        os.set_blocking(self._waker, False)

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        try:
            while not self.requests.ended:
                self._wait()
                self._reap()
        finally:
            for child in self.children.values():
                child.kill()
            sweep()

    def _wait(self) -> None:
        nearest = min(self.doomed.values(), default=None)
        timeout = None if nearest is None else max(0.0, nearest - time.monotonic())
        sources: List[Any] = [self.requests, self.wakeup]
        readable = select.select(sources, [], [], timeout)[0]
        if self.wakeup in readable:
            os.read(self.wakeup, 1 << 10)
        for request in self.requests.read() if self.requests in readable else ():
            if "run" in request:
                self._start(Request(*request["run"]))
            elif request["end"] in self.children:
                self._doom(request["end"], request["seconds"])

    def _start(self, request: Request) -> None:
        self.children[request.task] = Child(lambda: self._live(request))

    def _live(self, request: Request) -> None:
        """Runs a child from start to exit."""
        for descriptor in (self.requests.descriptor, self.channel.descriptor, self.wakeup, self._waker):
            os.close(descriptor)
        die_with_parent()
        adopt_orphans()
        _redirect(request.file)
        _work(request)

    def _doom(self, task: str, seconds: float) -> None:
        child = self.children[task]
        self.doomed[task] = time.monotonic() + seconds
        self.stopped[task] = child.is_stopped()
        if seconds:
            child.signal(signal.SIGUSR1)

    def _reap(self) -> None:
        """Kills the children whose time is up, reports those that have ended, and kills what they left behind."""
        for task, child in list(self.children.items()):
            if task in self.doomed and self.doomed[task] <= time.monotonic():
                del self.doomed[task]
                child.kill()
            manner = child.poll()
            if manner is not None:
                del self.children[task]
                self.doomed.pop(task, None)
                sweep(other.pid for other in self.children.values())
                self.channel.send(ended=task, manner=manner, stopped=self.stopped.pop(task, False))


def _work(request: Request) -> None:
    bench = Bench(request.file, request.gpus, request.level, request.cores, options=request.options)
    try:
        workload(request.workload).run(bench)
        bench.end("ok")
    except Skip as skip:
        bench.end("skip", skip.reason, skip.kind)
    except BaseException as failure:
        traceback.print_exc()
        bench.end("error", "%s: %s" % (type(failure).__name__, failure))


def _redirect(file: str) -> None:
    """Redirects prints to `file`.err, and the stack at a crash or on SIGUSR1 to `file`.stack."""
    prints = os.open(file + ".err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(prints, 1)
    os.dup2(prints, 2)
    os.close(prints)
    for stream in (sys.stdout, sys.stderr):  # otherwise a crash loses what was printed before
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    stack = os.open(file + ".stack", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    faulthandler.enable(stack, all_threads=False)
    faulthandler.register(signal.SIGUSR1, stack, all_threads=False)


def last_words(file: str) -> str:
    """The last output of the process that redirected itself to `file`, and its stack."""
    words = "\n".join(filter(None, (_tail(file + ".err", MOST_BYTES), _stack(_tail(file + ".stack", MOST_STACK_BYTES)))))
    return words.replace(OUR_FOLDER, "")


def _stack(dump: str) -> str:
    """A dump of the fault handler formatted like a Python traceback, most recent call last, without gpudoctor's own calls."""
    calls = [line for line in reversed(dump.splitlines()) if line.startswith("  File ")]
    ours = [number for number, line in enumerate(calls) if __file__ in line]
    own = "\n".join(calls[ours[-1] + 1 if ours else 0 :])[-MOST_OWN_BYTES:]
    return "Stack (most recent call last):\n" + own if own else ""


def _tail(path: str, most: int) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - most))
            return file.read(most).decode("utf-8", "replace").strip("\n")
    except OSError:
        return ""
