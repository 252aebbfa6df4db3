"""Reads files, listings and commands of a machine, distinguishing "missing", "denied" and "no answer"."""

from __future__ import annotations

import errno
import glob
import os
import shutil
import subprocess
import time
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from gpudoctor.worker.captured import TooMuch, captured
from gpudoctor.worker.reply import MOST_GPUS, Reply

Answer = Tuple[str, Reply]
MAXIMUM_BYTES = 1 << 20


class Machine:
    """A machine as seen from `root`: "/" is this one, any other folder a simulated one, where no command is run.

    known: the replies of earlier phases. at: called with each question and step before it starts, so that the process that kills
    a hanging probe can report where it hung. skip: steps that killed this probe before and are not repeated.
    """

    def __init__(
        self,
        root: str = "/",
        known: Optional[Dict[str, Reply]] = None,
        at: Callable[[str, str], None] = lambda question, step: None,
        skip: Tuple[str, ...] = (),
    ) -> None:
        self.root = root
        self.known = known or {}
        self.at = at
        self.skip = skip

    def path(self, path: str) -> str:
        """The local path of the machine's `path`."""
        return os.path.join(self.root, path.lstrip("/"))

    def file(self, path: str, maximum: int = MAXIMUM_BYTES) -> Answer:
        """`file:PATH`: the text of a file, at most its last `maximum` bytes."""
        return self.ask("file:" + path, lambda: self.read(path, maximum))

    def files(self, pattern: str) -> Iterator[Answer]:
        """`glob:PATTERN`: the paths that match, then `file:PATH` for each."""
        question, reply = self.glob(pattern)
        yield question, reply
        for path in reply.value or ():
            yield self.file(path)

    def glob(self, pattern: str) -> Answer:
        """`glob:PATTERN`: the sorted paths that match; an empty list if none does."""
        return self.ask("glob:" + pattern, lambda: self.matching(pattern))

    def command(self, *argv: str, timeout: float = 4.0) -> Answer:
        """`command:ARGV`: {"code", "out", "err"} of a command run with LC_ALL=C; missing if it is not installed."""
        return self.ask("command:" + " ".join(argv), lambda: self.run(argv, timeout))

    def ask(self, question: str, answer: Callable[[], Any]) -> Answer:
        """A question that a function answers."""
        self.at(question, "")
        return question, self.call(answer)

    def read(self, path: str, maximum: int = MAXIMUM_BYTES) -> str:
        data = b""
        with open(self.path(path), "rb") as file:
            while chunk := file.read(maximum):  # a file in /proc has no size; a device has no end
                data = (data + chunk)[-maximum:]
        return data.decode("utf-8", "replace")

    def matching(self, pattern: str) -> list[str]:
        prefix = self.root.rstrip("/")
        return sorted(path[len(prefix) :] for path in glob.glob(self.path(pattern)))

    def run(self, argv: Tuple[str, ...], timeout: float) -> Dict[str, Any]:
        if self.root != "/":
            raise FileNotFoundError("commands are only run under the root /")
        if not shutil.which(argv[0]):  # an unreadable folder on PATH would make it "denied"
            raise FileNotFoundError("no such program")
        done = captured(argv, timeout, dict(os.environ, LC_ALL="C"))
        return {"code": done.code, "out": _text(done.out), "err": _text(done.err)}

    @staticmethod
    def call(ask: Callable[[], Any]) -> Reply:
        """The reply of any function: its value, or why it is missing."""
        start = time.monotonic()

        def reply(status: str, value: Any = None, detail: str = "") -> Reply:
            return Reply(status, value, detail, round(time.monotonic() - start, 4))

        try:
            return reply("ok", ask())
        except subprocess.TimeoutExpired as expired:
            return reply("timeout", detail=f"no answer in {expired.timeout:g} s")
        except TooMuch as failure:
            return reply("error", detail=str(failure))
        except OSError as failure:
            return reply(_kind(failure), detail=failure.strerror or str(failure))
        except Exception as failure:  # a bug in a probe should not lose the other answers
            return reply("error", detail=f"{type(failure).__name__}: {failure}")


def believable(count: Any) -> Any:
    """The number of GPUs that a driver reports, or that it is absurd."""
    if isinstance(count, int) and not 0 <= count <= MOST_GPUS:
        return {"raised": "%d is no number of GPUs" % count}
    return count


def _kind(failure: OSError) -> str:
    if failure.errno in (errno.ENOENT, errno.ENOTDIR) or isinstance(failure, FileNotFoundError):
        return "missing"
    return "denied" if failure.errno in (errno.EACCES, errno.EPERM) else "error"


def _text(data: bytes) -> str:
    return data[-MAXIMUM_BYTES:].decode("utf-8", "replace")
