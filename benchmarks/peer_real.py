"""A real machine with a GPU: as it is, and with faults that settings alone can make. Nothing outlives its process."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import peer_machine
import peer_tools
from peer_environment import Environment

STUB = "/usr/local/cuda/lib64/stubs/libcuda.so"
SHARED_BYTES = 64 << 20
HOG = """
import torch
taken = torch.empty(int(torch.cuda.mem_get_info()[0] * 0.9), dtype=torch.uint8, device="cuda")
a = torch.ones(8192, 8192, device="cuda", dtype=torch.bfloat16)
print("taken", flush=True)
while True:
    a @ a
    torch.cuda.synchronize()
"""


@dataclass(frozen=True)
class Real:
    """prepare: changes this process and those that it starts."""

    environment: Environment
    prepare: Callable[[Path], None] = lambda folder: None
    hog: bool = False

    @property
    def name(self) -> str:
        return self.environment.name


def stub_library(folder: Path) -> None:
    """The toolkit's stub under the name that programs load; the toolkit itself has no such link."""
    (folder / "stubs").mkdir()
    (folder / "stubs" / "libcuda.so.1").symlink_to(STUB)


def small_shared_memory(folder: Path) -> None:
    peer_machine.own_mounts()
    peer_machine.mount("-t", "tmpfs", "-o", f"size={SHARED_BYTES}", "none", "/dev/shm")


def few_open_files(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


def no_memory_node(folder: Path) -> None:
    """A /dev without nvidia-uvm that stays so: libcuda makes the node itself where root may write there."""
    peer_machine.own_mounts()
    new = peer_machine.new_devices(folder)
    for path in Path("/dev").glob("nvidia*"):
        if path.is_char_device() and not path.name.startswith("nvidia-uvm"):
            peer_machine.node(new / path.name, path.stat().st_rdev)
    peer_machine.mount("-o", "remount,ro", str(new))
    peer_machine.mount("--move", str(new), "/dev")


CASES = (
    Real(Environment("as-it-is", "")),
    Real(
        Environment(
            "visible-devices-empty",
            "CUDA_VISIBLE_DEVICES is set to nothing",
            ("cuda-visible-devices-hides-all-gpus",),
            "CUDA_VISIBLE_DEVICES",
            variables={"CUDA_VISIBLE_DEVICES": ""},
        )
    ),
    Real(
        Environment(
            "visible-devices-too-high",
            "CUDA_VISIBLE_DEVICES names a GPU that is not there",
            ("cuda-visible-devices-unknown-gpu",),
            "CUDA_VISIBLE_DEVICES",
            variables={"CUDA_VISIBLE_DEVICES": "7"},
        )
    ),
    Real(
        Environment(
            "stub-libcuda",
            "LD_LIBRARY_PATH leads to the toolkit's stub of libcuda",
            ("stub-libcuda-loaded",),
            "stub (library|of)",
            variables={"LD_LIBRARY_PATH": "{folder}/stubs"},
        ),
        stub_library,
    ),
    Real(
        Environment(
            "launch-blocking",
            "CUDA_LAUNCH_BLOCKING=1 was left on",
            ("cuda-launch-blocking-left-on",),
            "CUDA_LAUNCH_BLOCKING",
            variables={"CUDA_LAUNCH_BLOCKING": "1"},
        )
    ),
    Real(
        Environment(
            "memory-taken",
            "another process has taken nine tenths of the GPU's memory",
            ("gpu-memory-in-use", "other-process-using-gpu"),
            "in use|other process|free",
        ),
        hog=True,
    ),
    Real(
        Environment(
            "small-shared-memory",
            "/dev/shm has 64 MiB, Docker's default",
            ("shm-too-small-for-dataloaders",),
            "/dev/shm|shared memory",
        ),
        small_shared_memory,
    ),
    Real(
        Environment("no-uvm-node", "/dev/nvidia-uvm is missing: nvidia-smi works, CUDA does not", ("nvidia-uvm-missing",), "uvm"),
        no_memory_node,
    ),
    Real(
        Environment("few-open-files", "a process may open 256 files", ("open-files-limited",), "open files|ulimit"),
        few_open_files,
    ),
)


def examine(case: Real, python: str, peers: Path, folder: Path) -> dict[str, object]:
    case.prepare(folder)
    variables = {name: value.format(folder=folder) for name, value in case.environment.variables.items()}
    known = {**os.environ, "COLUMNS": "80", **variables}
    with taken(python, known) if case.hog else nothing():
        return peer_tools.compare(case.environment, python, peers, folder, known)


@contextmanager
def nothing() -> Iterator[None]:
    yield


@contextmanager
def taken(python: str, known: Mapping[str, str]) -> Iterator[None]:
    with subprocess.Popen([python, "-c", HOG], env=dict(known), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            if "taken" not in process.stdout.readline():
                raise RuntimeError("the GPU's memory could not be taken")
            yield
        finally:
            process.kill()
