"""NVML: the real nvidia-ml-py on a stub library, and what the facts make of its answers."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from each import each, try_each
from stubs import OLDER_PYTHONS, Asked, ask, ask_each, compile_nvml

from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.gpu_records import Mode, RemappedRows
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Reply, Skip, Unavailable
from gpudoctor.worker.probes import nvml as probe
from gpudoctor.worker.probes.machine import Machine

CODES = {value: name for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}

# Answers of an H100 80GB HBM3 with driver 580.159.04.
H100: dict[str, Any] = {
    "Name": "NVIDIA H100 80GB HBM3",
    "PciInfo": {"busId": "00000000:0A:06.0", "pciDeviceId": 590352606},
    "Brand": 14,
    "Architecture": 9,
    "PowerUsage": 123524,
    "EnforcedPowerLimit": 700000,
    "MemoryInfo": {"total": 85520809984, "free": 85017493504, "used": 503316480},
    "MemoryInfo_v2": {"total": 85520809984, "reserved": 503316480, "free": 85017493504, "used": 0},
    "RemappedRows": [0, 0, 0, 0],
    "RowRemapperHistogram": {"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0},
    "RetiredPagesPendingStatus": {"error": 3},
    "MigMode": [0, 0],
    "CpuAffinity": {"words": [65535, 1]},
    "Temperature": {"gpu": 44},
    "MarginTemperature": 43,
    "FieldValues": {"TEMPERATURE_SHUTDOWN_TLIMIT": -8, "TEMPERATURE_SLOWDOWN_TLIMIT": -2, "TEMPERATURE_GPU_MAX_TLIMIT": 0},
    "NvLinks": {"error": 3},
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("nvml")
    compile_nvml(directory)
    return directory


def facts(asked: Asked) -> Nvml:
    return Nvml(Replies(asked.replies))


def gpu(answers: dict[str, Any]) -> Gpu:
    return Gpu(0, Replies({"nvml:gpu0": Reply("ok", answers)}))


def codes(**functions: int) -> dict[str, str]:
    return {"STUB_CODES": ",".join(f"{name}={code}" for name, code in functions.items())}


def test_healthy(library: Path) -> None:
    asked = ask("nvml", library, {"STUB_VALUES": "nvmlDeviceGetCount_v2=2"})
    nvml = facts(asked)
    assert asked.code == 0
    assert (nvml.init_code, nvml.init_error, nvml.died) == (0, "NVML_SUCCESS", None)
    assert nvml.library == str(library / "libnvidia-ml.so.1")
    assert (nvml.driver_version, nvml.cuda_version) == ("999.88.77", (13, 0))
    assert [(gpu.name, gpu.bus_id) for gpu in nvml.gpus] == [
        ("NVIDIA H100 80GB HBM3", "0000:00:06.0"),
        ("NVIDIA H100 80GB HBM3", "0000:00:07.0"),
    ]
    assert nvml.p2p == {(0, 1): "ok", (1, 0): "ok"}
    assert nvml.topology == {(0, 1): "host bridge"}
    assert asked.steps[-1] == ("nvml:shutdown", "nvmlShutdown")
    assert not [step for _, step in asked.steps if "Serial" in step or "Platform" in step]


@pytest.mark.parametrize("python", OLDER_PYTHONS, ids=str)
def test_older_pythons(library: Path, python: Path) -> None:
    assert facts(ask("nvml", library, python=str(python))).gpus[0].temperature_c == 37


def test_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    nvml = facts(ask("nvml", tmp_path))
    assert nvml.library is None
    assert nvml.load_error
    assert "libnvidia-ml.so.1" in nvml.load_error
    with pytest.raises(Unavailable) as unavailable:
        nvml.init_code  # noqa: B018
    assert unavailable.value.kind == Skip.NOT_INSTALLED


def test_every_init_code(library: Path) -> None:
    asked = ask_each("nvml", library, [codes(nvmlInitWithFlags=code) for code in CODES])
    try_each(_is_told, ((name, (code, name, one)) for (code, name), one in zip(CODES.items(), asked, strict=True)))


def _is_told(row: tuple[int, str, Asked]) -> None:
    code, name, asked = row
    nvml = facts(asked)
    assert asked.code == 0
    assert (nvml.init_code, nvml.init_error) == (code, name)
    assert list(asked.replies) == ["nvml"]
    with pytest.raises(Unavailable, match=name):
        nvml.gpus  # noqa: B018


@each(("code", "name"), CODES.items())
def test_every_code_of_a_getter_says_why_there_is_no_value(code: int, name: str) -> None:
    with pytest.raises(Unavailable, match=rf"{name} \({code}\)") as unavailable:
        gpu({"PowerUsage": {"error": code}}).power_watts  # noqa: B018
    kinds = {3: Skip.UNSUPPORTED, 13: Skip.UNSUPPORTED, 22: Skip.UNSUPPORTED, 25: Skip.UNSUPPORTED, 26: Skip.UNSUPPORTED}
    assert unavailable.value.kind == (Skip.NOT_PERMITTED if code == 4 else kinds.get(code, Skip.NO_ANSWER))


@pytest.mark.parametrize(
    ("answer", "kind", "why"),
    [
        ({"absent": True}, Skip.UNSUPPORTED, "not known to nvidia-ml-py"),
        ({"died": True}, Skip.NO_ANSWER, "killed its process"),
        ({"raised": "TypeError: no"}, Skip.NO_ANSWER, "TypeError: no"),
    ],
)
def test_other_ways_of_no_answer(answer: dict[str, Any], kind: str, why: str) -> None:
    with pytest.raises(Unavailable, match=why) as unavailable:
        gpu({"EccMode": answer}).ecc_mode  # noqa: B018
    assert unavailable.value.kind == kind


def test_lost_gpu_takes_only_its_own_answers(library: Path) -> None:
    stub = {"STUB_VALUES": "nvmlDeviceGetCount_v2=2", "STUB_CODES": "nvmlDeviceGetHandleByIndex_v2@1=15"}
    asked = ask("nvml", library, stub)
    healthy, lost = facts(asked).gpus
    assert (healthy.handle_error, healthy.temperature_c) == (None, 37)
    assert lost.handle_error == 15
    with pytest.raises(Unavailable, match="GPU 1: NVML_ERROR_GPU_IS_LOST"):
        lost.name  # noqa: B018
    assert "nvml:peers" not in asked.replies


def test_one_getter_fails_on_one_gpu(library: Path) -> None:
    stub = {"STUB_VALUES": "nvmlDeviceGetCount_v2=2", "STUB_CODES": "nvmlDeviceGetPowerUsage@1=999"}
    first, second = facts(ask("nvml", library, stub)).gpus
    assert first.power_watts == 123.524
    with pytest.raises(Unavailable, match="GPU 1: PowerUsage: NVML_ERROR_UNKNOWN"):
        second.power_watts  # noqa: B018


@pytest.mark.parametrize("where", ["nvmlDeviceGetEccMode@1", "nvmlDeviceGetP2PStatus"])
def test_crash_keeps_the_answers_before_it_and_is_not_repeated(library: Path, where: str) -> None:
    stub = {"STUB_VALUES": "nvmlDeviceGetCount_v2=2", "STUB_CRASH": where}
    crashed = ask("nvml", library, stub)
    assert crashed.code == -11
    assert crashed.last_step == where.partition("@")[0]
    assert {"nvml", "nvml:gpu0"} <= crashed.replies.keys()

    again = ask("nvml", library, stub, skip=[crashed.last_step])
    assert again.code == 0
    assert facts(again).gpus[1].power_watts == 123.524
    assert "killed its process" in (facts(again).died or "")


def test_crash_in_init(library: Path) -> None:
    stub = {"STUB_CRASH": "nvmlInitWithFlags"}
    crashed = ask("nvml", library, stub)
    assert (crashed.code, crashed.last_step, crashed.replies) == (-11, "nvmlInit", {})
    nvml = facts(ask("nvml", library, stub, skip=["nvmlInit"]))
    assert nvml.died == "nvml init killed its process"
    with pytest.raises(Unavailable, match="nvmlInit: killed"):
        nvml.init_code  # noqa: B018


def test_hang_keeps_the_answers_before_it(library: Path) -> None:
    stub = {"STUB_VALUES": "nvmlDeviceGetCount_v2=2", "STUB_HANG": "nvmlDeviceGetClockInfo@1"}
    hung = ask("nvml", library, stub, hangs_in=("nvml:gpu1", "nvmlDeviceGetClockInfo"))
    assert hung.code is None
    assert hung.steps[-1] == ("nvml:gpu1", "nvmlDeviceGetClockInfo")
    replies = {**hung.replies, "nvml:gpu1": Reply("timeout", detail="no answer in 8.0 s from nvmlDeviceGetClockInfo")}
    nvml = Nvml(Replies(replies))
    assert nvml.gpus[0].temperature_c == 37
    assert nvml.died == "no answer in 8.0 s from nvmlDeviceGetClockInfo"
    with pytest.raises(Unavailable, match="no answer"):
        nvml.gpus[1].temperature_c  # noqa: B018


def test_slow_init_is_measured(library: Path) -> None:
    assert facts(ask("nvml", library, {"STUB_SLEEP": "nvmlInitWithFlags=300"})).init_seconds >= 0.3


def test_count_that_fails(library: Path) -> None:
    nvml = facts(ask("nvml", library, codes(nvmlDeviceGetCount_v2=999)))
    with pytest.raises(Unavailable, match="NVML_ERROR_UNKNOWN"):
        nvml.count  # noqa: B018


def test_driver_without_libcuda(library: Path) -> None:
    stub = codes(nvmlSystemGetCudaDriverVersion_v2=12, nvmlSystemGetCudaDriverVersion=12)
    assert facts(ask("nvml", library, stub)).cuda_version is None


def test_processes_are_named(library: Path) -> None:
    (process,) = (
        facts(ask("nvml", library, {"STUB_VALUES": f"nvmlDeviceGetComputeRunningProcesses_v3={os.getpid()}"})).gpus[0].processes
    )
    assert (process.pid, process.ours, process.used_mib, process.kind) == (os.getpid(), True, 40960, "compute")
    assert process.name == Path("/proc/self/comm").read_text().strip()


def test_mig_devices(library: Path) -> None:
    stub = {"STUB_VALUES": "nvmlDeviceGetMigMode=1,nvmlDeviceGetMaxMigDeviceCount=7"}
    (parent,) = facts(ask("nvml", library, stub)).gpus
    assert parent.mig_mode == Mode(True, True)
    assert [mig.uuid for mig in parent.mig_devices] == [
        "MIG-00000000-0000-4000-8000-000000000001",
        "MIG-00000000-0000-4000-8000-000000000002",
    ]


def test_nvlinks_and_fabric(library: Path) -> None:
    values = "nvmlDeviceGetNvLinkState=18,nvmlDeviceGetGpuFabricInfoV=2,nvmlDeviceGetFieldValues=4"
    (one,) = facts(ask("nvml", library, {"STUB_VALUES": values})).gpus
    assert len(one.nvlinks) == 18
    assert (one.nvlinks[0].active, one.nvlinks[0].version, one.nvlinks[0].remote) == (True, "4.0", "switch")
    assert one.nvlinks[0].errors == {"crc": 4}
    assert (one.fabric.state, one.fabric.summary, one.fabric.problems) == ("in progress", None, ())
    assert one.recovery_action == "drain-and-reset"


def test_field_that_nvml_leaves_untouched_is_no_zero() -> None:
    untouched = [{"nvmlReturn": 0, "valueType": 0, "value": {"siVal": 0}}]
    binding = SimpleNamespace(
        NVMLError=pynvml.NVMLError, NVML_FI_DEV_MEMORY_TEMP=82, nvmlDeviceGetFieldValues=lambda handle, fields: untouched
    )
    asked = probe.Nvml(Machine(), binding)
    assert asked.fields(None, ["MEMORY_TEMP", "POWER_INSTANT"]) == {
        "MEMORY_TEMP": {"error": 21},
        "POWER_INSTANT": {"absent": True},
    }


def test_h100() -> None:
    h100 = gpu(H100)
    assert (h100.bus_id, h100.device_id) == ("0000:0a:06.0", 0x2330)
    assert (h100.brand, h100.architecture) == ("NVIDIA", "Hopper")
    assert (h100.power_watts, h100.enforced_power_limit_watts) == (123.524, 700.0)
    assert (h100.memory_total_mib, h100.memory_used_mib) == (81559, 0)
    assert h100.remapped_rows == RemappedRows(0, 0, False, False)
    assert h100.mig_mode == Mode(False, False)
    assert h100.cpu_affinity == (*range(16), 64)


@pytest.mark.parametrize(("kind", "celsius"), [("shutdown", 95), ("slowdown", 89), ("max_operating", 87)])
def test_temperature_limits_given_as_distances(kind: str, celsius: int) -> None:
    assert gpu(H100).temperature_limit_c(kind) == celsius
    assert gpu({**H100, "TemperatureThreshold": {kind: 90}}).temperature_limit_c(kind) == 90


@pytest.mark.parametrize("name", ["nvlinks", "retired_pages_pending", "ecc_mode"])
def test_what_an_h100_has_not(name: str) -> None:
    with pytest.raises(Unavailable) as unavailable:
        getattr(gpu({**H100, "EccMode": {"absent": True}}), name)
    assert unavailable.value.kind == Skip.UNSUPPORTED


def test_what_was_not_told_may_be_there_all_the_same() -> None:
    with pytest.raises(Unavailable, match="is unknown") as unavailable:
        gpu({name: answer for name, answer in H100.items() if name != "EccMode"}).ecc_mode  # noqa: B018
    assert unavailable.value.kind == Skip.NO_ANSWER


def test_older_names_stand_in() -> None:
    answers = {"CurrentClocksEventReasons": {"error": 13}, "CurrentClocksThrottleReasons": 0x40}
    assert gpu({**answers, "MemoryInfo": {"used": 5 << 20}}).clock_reasons == 0x40
    assert gpu({"MemoryInfo": {"used": 5 << 20}, "MemoryInfo_v2": {"error": 13}}).memory_used_mib == 5


def test_fabric_health_in_words() -> None:
    mask = 1 << 0 | 2 << 4 | 6 << 8
    answer = {"state": 3, "status": 0, "cliqueId": 1, "healthMask": mask, "healthSummary": 2}
    fabric = gpu({"GpuFabricInfoV": answer}).fabric
    assert (fabric.state, fabric.summary) == ("completed", "unhealthy")
    assert fabric.problems == ("bandwidth degraded", "wrong GPU firmware")


def test_sram_and_throttling() -> None:
    names = ("aggregateUncParity", "aggregateUncSecDed", "aggregateCor", "volatileUncParity", "volatileUncSecDed", "volatileCor")
    buckets = {f"aggregateUncBucket{unit}": 0 for unit in ("L2", "Sm", "Pcie", "Mcu", "Other")}
    status = dict(zip(names, range(1, 7), strict=True)) | buckets | {"bThresholdExceeded": 1}
    one = gpu({"SramEccErrorStatus": status, "FieldValues": {"CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN": 2_500_000_000}})
    assert one.sram_status.aggregate_uncorrected == 3
    assert one.sram_status.threshold_exceeded
    assert one.throttled_seconds == {"hardware thermal": 2.5}


def test_licence() -> None:
    feature = {"productName": "NVIDIA RTX Virtual Workstation", "featureState": 0, "featureEnabled": 1}
    answer = {"licensableFeaturesCount": 1, "gridLicensableFeatures": [feature, feature, feature]}
    (licence,) = gpu({"GridLicensableFeatures": answer}).vgpu_licences
    assert (licence.product, licence.licensed, licence.enabled) == (feature["productName"], False, True)
