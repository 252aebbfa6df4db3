"""The CUDA driver API: ctypes on a stub library, and what the facts make of its answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from each import try_each
from stubs import OLDER_PYTHONS, Asked, ask, ask_each, compile_cuda

from gpudoctor.facts.cuda import Cuda
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Reply, Skip, Unavailable

# The codes of cuda.h that an environment can cause.
CODES = """
    1 INVALID_VALUE  2 OUT_OF_MEMORY  3 NOT_INITIALIZED  4 DEINITIALIZED  34 STUB_LIBRARY
    36 CALL_REQUIRES_NEWER_DRIVER  46 DEVICE_UNAVAILABLE  100 NO_DEVICE  101 INVALID_DEVICE  102 DEVICE_NOT_LICENSED
    200 INVALID_IMAGE  201 INVALID_CONTEXT  209 NO_BINARY_FOR_GPU  214 ECC_UNCORRECTABLE
    217 PEER_ACCESS_UNSUPPORTED  218 INVALID_PTX  220 NVLINK_UNCORRECTABLE  221 JIT_COMPILER_NOT_FOUND
    222 UNSUPPORTED_PTX_VERSION  223 JIT_COMPILATION_DISABLED  224 UNSUPPORTED_EXEC_AFFINITY
    225 UNSUPPORTED_DEVSIDE_SYNC  226 CONTAINED  227 INSUFFICIENT_LOADER_VERSION  301 FILE_NOT_FOUND
    302 SHARED_OBJECT_SYMBOL_NOT_FOUND  303 SHARED_OBJECT_INIT_FAILED  304 OPERATING_SYSTEM  400 INVALID_HANDLE
    500 NOT_FOUND  600 NOT_READY  700 ILLEGAL_ADDRESS  701 LAUNCH_OUT_OF_RESOURCES  702 LAUNCH_TIMEOUT
    704 PEER_ACCESS_ALREADY_ENABLED  705 PEER_ACCESS_NOT_ENABLED  709 CONTEXT_IS_DESTROYED  710 ASSERT
    711 TOO_MANY_PEERS  712 HOST_MEMORY_ALREADY_REGISTERED  714 HARDWARE_STACK_ERROR  715 ILLEGAL_INSTRUCTION
    716 MISALIGNED_ADDRESS  718 INVALID_PC  719 LAUNCH_FAILED  800 NOT_PERMITTED  801 NOT_SUPPORTED
    802 SYSTEM_NOT_READY  803 SYSTEM_DRIVER_MISMATCH  804 COMPAT_NOT_SUPPORTED_ON_DEVICE  805 MPS_CONNECTION_FAILED
    806 MPS_RPC_FAILURE  807 MPS_SERVER_NOT_READY  808 MPS_MAX_CLIENTS_REACHED  809 MPS_MAX_CONNECTIONS_REACHED
    810 MPS_CLIENT_TERMINATED  900 STREAM_CAPTURE_UNSUPPORTED  909 TIMEOUT  911 EXTERNAL_DEVICE
    919 FABRIC_NOT_READY  999 UNKNOWN
"""
NAMES = {int(code): f"CUDA_ERROR_{name}" for code, name in (entry.split() for entry in re.split(r"\s\s+", CODES.strip()))}
STUB_NAMES = {"STUB_NAMES": ",".join(f"{code}={name}" for code, name in NAMES.items())}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("cuda")
    compile_cuda(directory)
    return directory


def facts(asked: Asked) -> Cuda:
    return Cuda(Replies(asked.replies))


def test_healthy(library: Path) -> None:
    cuda = facts(ask("cuda", library, {"STUB_VALUES": "cuDeviceGetCount=2"}))
    assert (cuda.init_code, cuda.init_error, cuda.died) == (0, "CUDA_SUCCESS", None)
    assert cuda.library == str(library / "libcuda.so.1")
    assert cuda.maps == (cuda.library,)
    assert cuda.driver_version == (13, 0)
    assert [device.bus_id for device in cuda.devices] == ["0000:00:06.0", "0000:00:07.0"]
    second = cuda.devices[1]
    assert (second.name, second.uuid) == ("NVIDIA H100 80GB HBM3", "GPU-00000001-0000-4000-8000-000000000000")
    assert (second.compute_capability, second.memory_mib) == ((9, 0), 81920)
    assert second.attributes["multiprocessors"] == 132
    assert "dma_buf" not in second.attributes  # this libcuda does not know it
    assert (second.context_code, second.context_error, second.context_skipped) == (0, None, None)


@pytest.mark.parametrize("python", OLDER_PYTHONS, ids=str)
def test_older_pythons(library: Path, python: Path) -> None:
    assert facts(ask("cuda", library, python=str(python))).devices[0].context_code == 0


def test_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("not a library")
    cuda = facts(ask("cuda", tmp_path))
    assert cuda.library is None
    assert cuda.load_error
    assert "libcuda.so.1" in cuda.load_error
    with pytest.raises(Unavailable) as unavailable:
        cuda.init_code  # noqa: B018
    assert unavailable.value.kind == Skip.NOT_INSTALLED


def test_every_init_code(library: Path) -> None:
    asked = ask_each("cuda", library, [{**STUB_NAMES, "STUB_CODES": f"cuInit={code}"} for code in NAMES])
    try_each(_is_told, ((name, (code, name, one)) for (code, name), one in zip(NAMES.items(), asked, strict=True)))


def _is_told(row: tuple[int, str, Asked]) -> None:
    code, name, asked = row
    cuda = facts(asked)
    assert asked.code == 0
    assert (cuda.init_code, cuda.init_error) == (code, name)
    assert cuda.driver_version == (13, 0)
    assert list(asked.replies) == ["cuda"]
    with pytest.raises(Unavailable, match=name):
        cuda.devices  # noqa: B018


def test_every_code_of_a_context(library: Path) -> None:
    refused = ",".join(f"cuDevicePrimaryCtxRetain@{ordinal}={code}" for ordinal, code in enumerate(NAMES))
    stub = {**STUB_NAMES, "STUB_CODES": refused, "STUB_VALUES": f"cuDeviceGetCount={len(NAMES)}"}
    devices = facts(ask("cuda", library, stub)).devices
    assert [(device.context_code, device.context_error) for device in devices] == list(NAMES.items())


def test_code_without_a_name(library: Path) -> None:
    assert facts(ask("cuda", library, {"STUB_CODES": "cuInit=7777"})).init_error == "CUDA error 7777"


def test_count_that_fails(library: Path) -> None:
    cuda = facts(ask("cuda", library, {**STUB_NAMES, "STUB_CODES": "cuDeviceGetCount=999"}))
    with pytest.raises(Unavailable, match=r"CUDA_ERROR_UNKNOWN \(999\)"):
        cuda.count  # noqa: B018


def test_no_devices(library: Path) -> None:
    assert facts(ask("cuda", library, {"STUB_VALUES": "cuDeviceGetCount=0"})).devices == ()


def test_device_that_fails_takes_only_its_own_answers(library: Path) -> None:
    stub = {**STUB_NAMES, "STUB_VALUES": "cuDeviceGetCount=2", "STUB_CODES": "cuDeviceGet@1=101"}
    healthy, broken = facts(ask("cuda", library, stub)).devices
    assert healthy.context_code == 0
    assert broken.context_skipped == "cuDeviceGet returned no device"
    with pytest.raises(Unavailable, match=r"CUDA device 1: name: CUDA_ERROR_INVALID_DEVICE \(101\)"):
        broken.name  # noqa: B018


def test_crash_in_a_context_is_not_repeated(library: Path) -> None:
    stub = {"STUB_VALUES": "cuDeviceGetCount=2", "STUB_CRASH": "cuDevicePrimaryCtxRetain@0"}
    crashed = ask("cuda", library, stub)
    assert (crashed.code, crashed.last_step) == (-11, "cuDevicePrimaryCtxRetain on device 0")
    assert {"cuda", "cuda:devices"} == crashed.replies.keys()
    cuda = facts(ask("cuda", library, stub, skip=[crashed.last_step]))
    assert cuda.devices[1].context_code == 0
    assert cuda.died == "cuda:context0 code killed its process"
    with pytest.raises(Unavailable, match="killed its process"):
        cuda.devices[0].context_code  # noqa: B018


def test_hang_in_init(library: Path) -> None:
    hung = ask("cuda", library, {"STUB_HANG": "cuInit"}, hangs_in=("cuda", "cuInit"))
    assert (hung.code, hung.steps[-1], hung.replies) == (None, ("cuda", "cuInit"), {})
    cuda = Cuda(Replies({"cuda": Reply("timeout", detail="no answer in 8.0 s from cuInit")}))
    assert cuda.died == "no answer in 8.0 s from cuInit"
    with pytest.raises(Unavailable, match="no answer") as unavailable:
        cuda.init_code  # noqa: B018
    assert unavailable.value.kind == Skip.NO_ANSWER


def test_slow_init_is_measured(library: Path) -> None:
    assert facts(ask("cuda", library, {"STUB_SLEEP": "cuInit=300"})).init_seconds >= 0.3


def gpu(uuid: str = "", bus: str = "", free_mib: int = 0, processes: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    memory = {"free": free_mib << 20}
    return {"UUID": uuid, "PciInfo": {"busId": bus}, "MemoryInfo": memory, "ComputeRunningProcesses": list(processes)}


TRAINING = {"pid": 4242, "name": "python", "usedGpuMemory": 81000 << 20}
UUID = "GPU-00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("answers", "skipped"),
    [
        (gpu(uuid=UUID, free_mib=200, processes=(TRAINING,)), "busy: process 4242 (python) holds 81000 MiB, 200 MiB free"),
        (
            gpu(bus="00000000:00:06.0", free_mib=200, processes=(TRAINING,)),
            "busy: process 4242 (python) holds 81000 MiB, 200 MiB free",
        ),
        (gpu(bus="00000000:00:07.0", free_mib=200, processes=(TRAINING,)), None),
        (gpu(uuid=UUID, free_mib=4096, processes=(TRAINING,)), None),
        (gpu(uuid=UUID, free_mib=200), None),
        ({"handle_error": 15}, None),
    ],
    ids=["busy", "busy, by bus address", "another GPU is busy", "room for both", "nobody there", "lost to NVML"],
)
def test_no_context_where_it_could_take_the_last_memory(library: Path, answers: dict[str, Any], skipped: str | None) -> None:
    asked = ask("cuda", library, known={"nvml:gpu0": answers})
    (device,) = facts(asked).devices
    assert device.context_skipped == skipped
    assert device.context_code == (None if skipped else 0)
    assert ("cuDevicePrimaryCtxRetain on device 0" in [step for _, step in asked.steps]) is not bool(skipped)


def test_process_of_unknown_size_and_name(library: Path) -> None:
    known = {"nvml:gpu0": gpu(uuid=UUID, free_mib=5, processes=({"pid": 7, "name": None, "usedGpuMemory": None},))}
    (device,) = facts(ask("cuda", library, known=known)).devices
    assert device.context_skipped == "busy: process 7 (in another container) holds ? MiB, 5 MiB free"


def test_a_gpu_that_is_left_to_a_container(library: Path) -> None:
    asked = ask("cuda", library, known={"gpus-left-alone": "left to the container that is examined"})
    (device,) = facts(asked).devices
    assert device.context_skipped == "left to the container that is examined"
    assert "cuDevicePrimaryCtxRetain on device 0" not in [step for _, step in asked.steps]
