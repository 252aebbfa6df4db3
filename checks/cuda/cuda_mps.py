"""Programs can connect to the Multi-Process Service (MPS) if it is set up.

What it means
MPS lets several programs share a GPU. If its daemon's folder exists, CUDA programs become its clients when they initialise. If
the daemon or its server does not answer, they do not start.

How it is judged
The check reads the code of cuInit: 805 (no connection), 806 to 810 (the server failed, is not ready, is full, or ended this
client). A daemon that serves is healthy, and so is a variable that names a folder without a daemon, which CUDA ignores.

Known exceptions
For a container the daemon runs on the host: its process is not visible, only its folder is mounted.

References
https://docs.nvidia.com/deploy/topics/topic_5_2_2.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.fixes.engines import again
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip

DAEMON = "nvidia-cuda-mps-control"
VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
DEFAULT_FOLDER = "/tmp/nvidia-mps"
NO_CONNECTION = 805
CODES = range(NO_CONNECTION, 811)
VERIFY = f"echo get_server_list | {DAEMON}"
WITHOUT = Fix("In this shell: stop using MPS", f"unset {VARIABLE}", where="shell")

NOT_RUNNING = Problem(
    id="mps-daemon-not-running",
    title="CUDA tries to use MPS, but its daemon does not answer",
    why="The folder of an MPS daemon exists, so CUDA tries to become its client. The daemon has ended, or belongs to another "
    "user or another container.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Start the daemon as the user whose programs use it", f"{DAEMON} -d", verify=VERIFY, on=("host",), kind="set"),
        Fix(
            "If you do not need MPS: remove the leftover files of the daemon",
            "rm -f <folder>/control <folder>/nvidia-cuda-mps-control.pid <folder>/log",
            risk="destructive",
            on=("host",),
            kind="set",
        ),
        *again(
            "In a container: share the host's daemon",
            "run <all_gpus> --ipc=host -v <folder>:<folder> <image>",
            spec="set hostIPC: true, and mount the daemon's folder as a hostPath",
            on=("container",),
        ),
    ),
    references=("https://docs.nvidia.com/deploy/topics/topic_5_2_2.html",),
)

SERVER_FAILED = Problem(
    id="mps-server-does-not-serve",
    title="The MPS server does not accept this program",
    why="The daemon answers, but its server has failed, is still recovering from another client's error, or has reached its "
    "maximum number of clients. An error of one client ends all of them.",
    action=Action.RESTART_APP,
    fixes=(
        Fix(
            "Restart the service (this ends all of its clients)",
            f"echo quit | {DAEMON} && {DAEMON} -d",
            risk="disruptive",
            needs=("drain",),
            verify=VERIFY,
            kind="set",
        ),
        look("Read the server's log", "tail -n 30 /var/log/nvidia-mps/server.log"),
    ),
    references=("https://docs.nvidia.com/deploy/topics/topic_5_2_2.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    code = facts.cuda.init_code
    if code not in CODES:
        if not in_use(facts):
            raise Skip("MPS is not set up")
    elif code == NO_CONNECTION:
        sure = Confidence.LIKELY if running(facts) or facts.system.is_container else Confidence.CONFIRMED
        yield not_running(facts).found(said(facts), evidence(facts), confidence=sure)
    else:
        yield SERVER_FAILED.found(said(facts), evidence(facts))


def not_running(facts: Facts) -> Problem:
    """Unsetting the variable helps only if it names another folder than the default, which CUDA uses without it."""
    if (facts.environment.get(VARIABLE) or DEFAULT_FOLDER).rstrip("/") == DEFAULT_FOLDER:
        return NOT_RUNNING
    return replace(NOT_RUNNING, fixes=(*NOT_RUNNING.fixes, WITHOUT))


def in_use(facts: Facts) -> bool:
    return facts.environment.get(VARIABLE) is not None or facts.services.is_running(DAEMON)


def said(facts: Facts) -> str:
    error = knowledge.cuda_error(facts.cuda.init_code)
    return f"cuInit returns {facts.cuda.init_code} ({facts.cuda.init_error})" + (
        f": {error.meaning.rstrip('.')}" if error else ""
    )


def evidence(facts: Facts) -> dict[str, Any]:
    folder = facts.environment.get(VARIABLE)
    return {"init": facts.cuda.init_code, VARIABLE: folder, "folder": folder or DEFAULT_FOLDER, "daemon": running(facts)}


def running(facts: Facts) -> bool | None:
    return known(lambda: facts.services.is_running(DAEMON))


def summary(facts: Facts) -> str:
    return f"MPS is in use ({facts.environment.get(VARIABLE) or DEFAULT_FOLDER})"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NOT_RUNNING, SERVER_FAILED),
    needs=("cuda-library",),
)
