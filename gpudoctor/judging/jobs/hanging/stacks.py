"""What a Python stack says about a wait: which library function the program is in."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpudoctor.facts.job.stuck import Thread

COLLECTIVE, STORE, LOADER, NAME, GPU, POLLING, FROM_PROCESS = (
    *("collective", "store", "loader", "name lookup", "gpu", "polling", "other process"),
)


@dataclass(frozen=True)
class Rule:
    kind: str
    file: re.Pattern[str]
    function: re.Pattern[str]


def _rule(kind: str, file: str, function: str) -> Rule:
    return Rule(kind, re.compile(file), re.compile(function))


# The first that matches any frame, the innermost frame first.
RULES = (
    _rule(STORE, r"torch/distributed/rendezvous\.py$", r"."),
    _rule(
        STORE,
        r"torch/distributed/distributed_c10d\.py$",
        r"^(?:init_process_group|_store_based_barrier|_new_process_group_helper)$",
    ),
    _rule(STORE, r"torch/distributed/elastic/rendezvous/", r"."),
    _rule(
        COLLECTIVE,
        r"torch/distributed/(?:distributed_c10d|_functional_collectives)\.py$",
        r"^(?:all_\w+|broadcast\w*|reduce\w*|gather\w*|scatter\w*|barrier|monitored_barrier|send|recv|isend|irecv|batch_isend_irecv"
        r"|send_object_list|recv_object_list|wait_tensor)$",
    ),
    _rule(
        COLLECTIVE,
        r"mpi4py|deepspeed/comm/|horovod/",
        r"^(?:[Aa]ll\w+|[Bb]arrier|[Bb]cast\w*|broadcast\w*|[Rr]educe\w*|synchronize)$",
    ),
    _rule(LOADER, r"torch/utils/data/dataloader\.py$", r"^(?:_?try_get_data|_get_data|_next_data|_try_get_data|__next__)$"),
    _rule(NAME, r"/socket\.py$", r"^(?:getaddrinfo|gethostby\w+|getfqdn)$"),
    _rule(GPU, r"torch/(?:cuda/(?:__init__|streams)|accelerator/__init__)\.py$", r"^synchronize$"),
    _rule(GPU, r"cupy|numba/cuda", r"^synchronize$"),
    _rule(FROM_PROCESS, r"multiprocessing/(?:synchronize|queues|connection|popen_\w+|pool)\.py$", r"."),
)


@dataclass(frozen=True)
class In:
    """function: of the library, such as all_reduce."""

    kind: str
    function: str


def inside(thread: Thread) -> In | None:
    for frame in thread.frames:
        name = frame.function.rpartition(".")[2]
        for rule in RULES:
            if rule.file.search(frame.file) and rule.function.search(name):
                return In(rule.kind, name)
    return None


def shown(thread: Thread) -> str:
    """`train (train.py:12)`, "" if the stack is not known."""
    frame = thread.own_frame
    return f"{frame.function} ({frame.place})" if frame else ""
