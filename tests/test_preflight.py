"""Whether an image runs here: known truths about drivers, GPUs and images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from each import each

from gpudoctor.containers.engine import gpus
from gpudoctor.containers.images import catalog, requirement
from gpudoctor.containers.images.machine import Card, ThisMachine, card, this_machine
from gpudoctor.containers.images.preflight import Needs, Verdict, driver_cuda, least_driver, needs_of, verdict

H100, H200, A100, L4, V100, P100, K80, B200, B300 = map(
    card, (0x2330, 0x2335, 0x20B5, 0x27B8, 0x1DB6, 0x15F8, 0x102D, 0x2901, 0x3182)
)
RTX_3090, RTX_4090, RTX_5090, GTX_1080_TI = map(card, (0x2204, 0x2684, 0x2B85, 0x1B06))
RTX_A6000, QUADRO = card(0x2230), Card("Quadro P4000", ((6, 1),), "workstation")
UNKNOWN = Card("NVIDIA GPU 10de:3fff")
CUDA_12_6 = "cuda-12.6-devel-ubuntu22.04"


def judged(name: str, driver: str | None, *gpus: Card, is_wsl: bool = False) -> Verdict:
    return verdict(catalog.images()[name].needs, ThisMachine(driver, gpus, is_wsl=is_wsl))


@each(
    ("name", "driver", "gpu", "runs"),
    [
        # pytorch-24.08: CUDA 12.6, cuda-compat 560
        ("pytorch-24.08", "560.35.03", H100, "yes"),
        ("pytorch-24.08", "560.28.03", RTX_4090, "yes"),
        ("pytorch-24.08", "580.95.05", H100, "yes"),
        ("pytorch-24.08", "550.54.15", H100, "minor"),
        ("pytorch-24.08", "550.54.15", RTX_4090, "minor"),
        ("pytorch-24.08", "535.183.06", H100, "compat"),
        # NGC's entrypoint falls back where the GPU does not allow it: "CUDA Minor Version Compatibility mode ENABLED"
        ("pytorch-24.08", "535.183.06", RTX_4090, "minor"),
        ("pytorch-24.08", "535.183.06", UNKNOWN, "minor"),
        ("pytorch-24.08", "470.57.02", A100, "compat"),
        ("pytorch-24.08", "470.57.02", RTX_3090, "no"),
        ("pytorch-24.08", "450.80.02", A100, "no"),
        ("pytorch-24.08", "525.60.13", RTX_3090, "minor"),
        ("pytorch-24.08", "525.53", RTX_3090, "no"),
        ("pytorch-24.08", "570.86.10", B200, "no"),
        ("pytorch-24.08", "570.86.10", RTX_5090, "no"),
        ("pytorch-24.08", "560.35.03", L4, "yes"),
        ("pytorch-24.08", "535.183.06", V100, "compat"),
        ("pytorch-24.08", "470.57.02", K80, "no"),
        # the first month with Blackwell, and the first without Pascal and Volta
        ("pytorch-25.01", "570.86.10", B200, "yes"),
        ("pytorch-25.01", "570.86.10", RTX_5090, "yes"),
        ("pytorch-25.01", "570.86.10", V100, "no"),
        ("pytorch-25.01", "570.133.20", B300, "yes"),
        ("pytorch-24.12", "560.35.05", P100, "yes"),
        ("pytorch-25.01", "570.86.10", P100, "no"),
        # Hopper came with CUDA 11.8; Ada runs code of Ampere
        ("pytorch-22.01", "535.183.06", H100, "no"),
        ("pytorch-22.08", "535.183.06", H100, "no"),
        ("pytorch-22.09", "535.183.06", H100, "yes"),
        ("pytorch-22.01", "535.183.06", L4, "yes"),
        ("pytorch-22.01", "470.82.01", RTX_3090, "minor"),
        ("pytorch-22.01", "470.82.01", A100, "compat"),
        ("pytorch-22.01", "418.40.04", V100, "compat"),
        # CUDA 13 on R570 and R535 by cuda-compat, on R575 (ended, not in NVIDIA's matrix) not
        ("pytorch-25.09", "570.86.10", H100, "compat"),
        ("pytorch-25.09", "535.54.03", H100, "compat"),
        ("pytorch-25.09", "575.51.03", H100, "no"),
        ("pytorch-25.09", "570.86.10", RTX_5090, "no"),
        ("pytorch-26.09", "580.65.06", H100, "compat"),
        ("pytorch-26.09", "580.65.06", RTX_4090, "minor"),
        ("pytorch-26.09", "615.31", RTX_4090, "yes"),
        ("pytorch-25.09", "580.65.06", V100, "no"),
        # nvidia/cuda: the runtime refuses by NVIDIA_REQUIRE_CUDA, or puts cuda-compat before the driver whatever the GPU
        (CUDA_12_6, "535.183.06", H100, "compat"),
        (CUDA_12_6, "550.54.15", H100, "compat"),
        (CUDA_12_6, "535.183.06", RTX_4090, "no"),
        (CUDA_12_6, "550.54.15", RTX_4090, "no"),
        (CUDA_12_6, "560.35.05", RTX_4090, "yes"),
        (CUDA_12_6, "545.23.08", H100, "no"),
        (CUDA_12_6, "535.183.06", RTX_A6000, "compat"),
        (CUDA_12_6, "535.183.06", QUADRO, "no"),
        ("cuda-12.1-runtime-ubuntu22.04", "525.147.05", RTX_3090, "no"),  # error 804, as many have met it
        ("cuda-12.1-runtime-ubuntu22.04", "525.147.05", A100, "compat"),
        (CUDA_12_6, "570.86.10", RTX_5090, "unknown"),  # programs that bring PTX run
        ("cuda-13.0-base-ubuntu24.04", "580.95.05", V100, "no"),
        # pytorch/pytorch: no cuda-compat in runtime
        ("torch-2.5.1-cuda12.4-cudnn9-runtime", "535.183.06", RTX_4090, "minor"),
        ("torch-2.5.1-cuda12.4-cudnn9-runtime", "535.183.06", H100, "minor"),
        ("torch-2.5.1-cuda12.4-cudnn9-devel", "535.183.06", H100, "compat"),
        ("torch-2.5.1-cuda12.4-cudnn9-runtime", "470.57.02", A100, "no"),
        ("torch-2.6.0-cuda12.6-cudnn9-runtime", "570.86.10", RTX_5090, "no"),
        ("torch-2.7.1-cuda12.8-cudnn9-runtime", "570.86.10", RTX_5090, "yes"),
        ("torch-2.13.0-cuda13.0-cudnn9-runtime", "570.86.10", H100, "no"),
        ("torch-2.13.0-cuda12.6-cudnn9-runtime", "580.95.05", GTX_1080_TI, "yes"),
        ("torch-2.13.0-cuda13.0-cudnn9-runtime", "580.95.05", GTX_1080_TI, "no"),
    ],
)
def test_known_truths(name: str, driver: str, gpu: Card, runs: str) -> None:
    found = judged(name, driver, gpu)
    assert found.runs == runs, found.why
    assert found.why
    assert len(found.brief) <= 18


@each(
    ("name", "driver", "gpu", "words", "brief"),
    [
        ("pytorch-24.08", "470.57.02", RTX_3090, "Install driver 525.60.13 or newer", "no: driver < 525"),
        ("pytorch-24.08", "470.57.02", RTX_3090, "works on data-centre GPUs only, not on", "no: driver < 525"),
        ("pytorch-24.08", "450.80.02", A100, "not supported on driver branch 450", "no: driver < 525"),
        ("pytorch-24.08", "550.54.15", H100, "560.28.03 or newer can", "minor version"),
        ("pytorch-24.08", "580.95.05", H100, "cuda-compat is older than the driver and is not used", "yes"),
        ("pytorch-24.08", "535.183.06", H100, "libraries of driver 560.35.03", "forward compat"),
        ("pytorch-24.08", "570.86.10", RTX_5090, "supported from CUDA 12.8 on", "no: GPU too new"),
        ("cuda-13.0-base-ubuntu24.04", "580.95.05", V100, "supported up to CUDA 12.9", "no: GPU too old"),
        ("pytorch-25.01", "570.86.10", V100, "the image is not built", "no: GPU too old"),
        (CUDA_12_6, "545.23.08", H100, "NVIDIA_REQUIRE_CUDA requires cuda>=12.6", "no: driver < 560"),
        (CUDA_12_6, "545.23.08", H100, "NVIDIA_DISABLE_REQUIRE=1", "no: driver < 560"),
        (CUDA_12_6, "535.183.06", RTX_4090, "CUDA error 804", "no: driver < 560"),
        (CUDA_12_6, "570.86.10", RTX_5090, "only programs that contain PTX run", "PTX only"),
    ],
)
def test_reasons(name: str, driver: str, gpu: Card, words: str, brief: str) -> None:
    found = judged(name, driver, gpu)
    assert words in found.why
    assert found.brief == brief


def test_no_driver_is_not_known_and_not_refused() -> None:
    assert judged("pytorch-24.08", None) == Verdict("unknown", "no NVIDIA driver is loaded on this machine", "no driver here")
    assert "it has a GPU: NVIDIA H100" in judged("pytorch-24.08", None, H100).why


@each(
    ("driver", "runs"),
    [("561.17", "yes"), ("551.78", "minor"), ("528.33", "minor"), ("527.41", "minor"), ("522.06", "no"), (None, "unknown")],
)
def test_wsl_has_minor_versions_and_no_forward_compatibility(driver: str | None, runs: str) -> None:
    assert judged("pytorch-24.08", driver, is_wsl=True).runs == runs


def test_wsl_has_no_cuda_compat_that_could_be_forced() -> None:
    assert judged("cuda-11.5-devel-ubuntu20.04", "472.50", is_wsl=True).runs == "minor"


def test_wsl_says_why() -> None:
    assert "not possible on WSL" in judged("pytorch-25.09", "572.61", is_wsl=True).why
    assert "nvidia-smi shows it" in judged("pytorch-25.09", None, is_wsl=True).why


@pytest.mark.parametrize(
    ("gpus", "runs", "words"),
    [
        ((H100, H100), "yes", ""),
        ((RTX_4090, RTX_5090), "yes", "but CUDA 12.6 in the image has no code"),
        ((RTX_5090, RTX_5090), "no", ""),
        ((), "yes", ""),
    ],
)
def test_several_gpus(gpus: tuple[Card, ...], runs: str, words: str) -> None:
    found = judged("pytorch-24.08", "570.86.10", *gpus)
    assert found.runs == runs
    assert words in found.why


def test_one_geforce_beside_data_centre_gpus_denies_forward_compatibility() -> None:
    assert judged("pytorch-24.08", "470.57.02", A100, RTX_3090).runs == "no"


@pytest.mark.parametrize(
    ("gpus", "runs"),
    [
        ((H100, RTX_A6000), "compat"),
        ((H100, UNKNOWN), "unknown"),
        ((UNKNOWN, RTX_4090), "no"),
        ((), "unknown"),
    ],
)
def test_cuda_compat_that_the_runtime_takes_whatever_the_gpu(gpus: tuple[Card, ...], runs: str) -> None:
    assert judged(CUDA_12_6, "535.183.06", *gpus).runs == runs


def test_forward_compatibility_is_not_promised_to_gpus_that_are_not_known() -> None:
    assert judged("pytorch-24.08", "470.57.02", UNKNOWN).runs == "unknown"
    assert judged("pytorch-24.08", "470.57.02").runs == "unknown"
    assert judged("pytorch-24.08", "470.57.02", RTX_A6000).runs == "unknown"
    assert "some RTX workstation cards" in judged("pytorch-24.08", "470.57.02", RTX_A6000).why


def test_processors() -> None:
    needs = replace(catalog.images()["pytorch-24.08"].needs, processors=("arm64",))
    assert verdict(needs, ThisMachine("560.35.03", (H100,), "amd64")).brief == "no: processor"
    assert verdict(needs, ThisMachine("560.35.03", (H100,), "arm64")).runs == "yes"
    assert verdict(needs, ThisMachine(None, (), "amd64")).runs == "no"


def test_what_is_not_known_is_not_judged() -> None:
    assert verdict(Needs(), ThisMachine("560.35.03", (H100,))).runs == "unknown"
    assert verdict(Needs(cuda=(12, 6)), ThisMachine("100.1", (H100,))).runs == "unknown"
    assert verdict(Needs(cuda=(12, 6)), ThisMachine("470.57.02", (H100,))).brief == "no: driver < 525"


def test_stale_cuda_compat_of_an_image_helps_nobody() -> None:
    needs = Needs(cuda=(13, 0), driver="580.65.06", compat="535.54.03")
    assert "not newer than the driver" in verdict(needs, ThisMachine("570.86.10", (H100,))).why


def test_ptx_alone_runs_on_newer_gpus_and_needs_a_driver_that_compiles_it() -> None:
    needs = Needs(cuda=(9, 0), driver="384.81", architectures=("compute_50",))
    assert verdict(needs, ThisMachine("580.95.05", (RTX_5090,))).runs == "yes"
    newer = Needs(cuda=(12, 6), driver="560.28.03", architectures=("compute_50",))
    assert verdict(newer, ThisMachine("550.54.15", (H100,))).runs == "no"


def test_a_requirement_that_the_runtime_cannot_read() -> None:
    needs = Needs(cuda=(12, 6), require=("cuda=>12.6",))
    found = verdict(needs, ThisMachine("560.35.03", (H100,)))
    assert (found.runs, found.brief) == ("no", "no: requirement")
    assert "invalid expression: cuda=>12.6" in found.why


@each(
    ("driver", "cuda"),
    [
        ("580.95.05", (13, 0)),
        ("585.10", (13, 0)),
        ("999.1", (13, 4)),
        ("531.79", (12, 1)),
        ("390.157", (9, 1)),
        ("100.1", None),
    ],
)
def test_cuda_of_a_driver(driver: str, cuda: tuple[int, int] | None) -> None:
    assert driver_cuda(driver) == cuda


@pytest.mark.parametrize(
    ("cuda", "is_wsl", "least"),
    [((12, 6), False, "525.60.13"), ((12, 6), True, "527.41"), ((10, 2), False, "440.33"), ((13, 4), False, "580.65.06")],
)
def test_least_driver(cuda: tuple[int, int], is_wsl: bool, least: str) -> None:
    assert least_driver(Needs(cuda=cuda, driver="440.33"), is_wsl) == least


LISTED = "cuda>=12.6 brand=tesla,driver>=470,driver<471 brand=nvidia,driver>=535,driver<536"


@each(
    ("expression", "known", "answer"),
    [
        ("cuda>=12.6", {"cuda": "12.6"}, True),
        ("cuda>=12.6", {"cuda": "12.2"}, False),
        ("cuda>=12.6", {"cuda": "13.0"}, True),
        ("CUDA>=12.6", {"cuda": "12.6"}, True),
        ("cuda>=12", {"cuda": "12.0"}, True),
        ("cuda=12.0.0", {"cuda": "12"}, True),
        ("cuda!=12.6", {"cuda": "12.6"}, False),
        ("cuda>12.6", {"cuda": "12.6"}, False),
        ("cuda<=12.6", {"cuda": "12.10"}, False),
        ("driver<536", {"driver": "535.183.06"}, True),
        ("driver<536", {"driver": "536"}, False),
        ("arch>=7.5", {"arch": "9.0"}, True),
        ("arch>=7.5", {"arch": "7.0"}, False),
        ("brand=Tesla", {"brand": "tesla"}, True),
        ("brand!=geforce", {"brand": "geforce"}, False),
        (LISTED, {"cuda": "12.2", "driver": "535.183.06", "brand": "nvidia"}, True),
        (LISTED, {"cuda": "12.2", "driver": "535.183.06", "brand": "tesla"}, False),
        (LISTED, {"cuda": "12.2", "driver": "535.183.06", "brand": "geforce"}, False),
        (LISTED, {"cuda": "12.2", "driver": "535.183.06"}, None),
        (LISTED, {"cuda": "12.2", "driver": "550.54.15"}, False),
        (LISTED, {"cuda": "12.6", "driver": "560.35.03"}, True),
        ("  cuda>=12.6   ,driver>=1 ", {"cuda": "12.2", "driver": "535"}, True),
        ("", {}, True),
        ("cuda>=9.0", {}, None),
    ],
)
def test_requirements(expression: str, known: dict[str, str], answer: bool | None) -> None:
    assert requirement.holds(expression, known) is answer


@each("expression", ["cuda", "cuda=>12", "cuda==12", "gpu>=1", ">=12", "cuda>=", "brand>tesla", "cuda>=twelve"])
def test_invalid_requirements(expression: str) -> None:
    with pytest.raises(ValueError, match="invalid expression"):
        requirement.holds(expression, {"cuda": "12.6", "brand": "tesla"})


def test_branches_of_a_requirement() -> None:
    assert requirement.branches(LISTED) == (470, 535)
    assert requirement.branches("cuda>=11.4 driver>=450") == (450,)


NGC = {
    "architecture": "amd64",
    "config": {
        "Env": [
            "CUDA_VERSION=12.6.0.022",
            "CUDA_DRIVER_VERSION=560.35.03",
            "NVIDIA_REQUIRE_CUDA=cuda>=9.0",
            "PYTORCH_VERSION=2.5.0a0+872d972e41",
            "TORCH_CUDA_ARCH_LIST=5.2 6.0 8.6 9.0+PTX",
            "NOT_A_SETTING",
        ]
    },
}


def test_needs_of_a_registry_s_configuration() -> None:
    assert needs_of(NGC) == Needs(
        cuda=(12, 6),
        driver="560.28.03",
        compat="560.35.03",
        compat_chosen_by="entrypoint",
        require=("cuda>=9.0",),
        architectures=("sm_52", "sm_60", "sm_86", "sm_90", "compute_90"),
        processors=("amd64",),
    )


def test_what_the_table_knows_fills_what_the_configuration_does_not_say() -> None:
    known = catalog.images()["pytorch-24.08"].needs
    needs = needs_of(NGC, known)
    assert (needs.branches, needs.least) == (known.branches, (6, 0))
    assert needs_of({"Config": {"Env": None}}, known) == replace(known, require=())


@each(
    ("env", "require", "compat"),
    [
        (
            ["CUDA_VERSION=12.6.3", "NVIDIA_REQUIRE_CUDA=cuda>=12.6", "NV_CUDA_CUDART_VERSION=12.6.77-1"],
            ("cuda>=12.6",),
            "560.28.03",
        ),
        (["CUDA_VERSION=8.0.61"], ("cuda>=8.0",), None),
        (["CUDA_VERSION=12.6.3", "NVIDIA_DISABLE_REQUIRE=true"], (), None),
        (["NVIDIA_REQUIRE_CUDA=cuda>=9.0", "NVIDIA_REQUIRE_ARCH=arch>=7.5"], ("cuda>=9.0", "arch>=7.5"), None),
        (["NVIDIA_REQUIRE_JETPACK=csv-mounts=all"], (), None),
        ([], (), None),
    ],
)
def test_requirements_of_a_configuration(env: list[str], require: tuple[str, ...], compat: str | None) -> None:
    needs = needs_of({"Config": {"Env": env}, "Architecture": "arm64"})
    assert (needs.require, needs.compat, needs.processors) == (require, compat, ("arm64",))
    assert needs.compat_chosen_by == "runtime"


@each(
    ("gpu", "brands", "forward"),
    [
        (H100, ("tesla", "nvidia"), True),
        (RTX_4090, ("geforcertx", "geforce"), False),
        (GTX_1080_TI, ("geforce",), False),
        (RTX_A6000, ("nvidiartx", "quadrortx"), None),
        (QUADRO, ("quadro",), False),
        (Card("Quadro RTX 6000", ((7, 5),), "workstation"), ("quadrortx", "quadro"), None),
        (Card("NVIDIA TITAN RTX", ((7, 5),)), ("titanrtx", "titan"), False),
        (UNKNOWN, (), None),
    ],
)
def test_brands_and_forward_compatibility_of_gpus(gpu: Card, brands: tuple[str, ...], forward: bool | None) -> None:
    assert (gpu.brands, gpu.forward_compatible) == (brands, forward)


NVRM = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)  Tue Sep 23 2025
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""


def pci_function(root: Path, address: str, driver: str = "", **texts: str) -> None:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    for name, text in {"vendor": "0x10de", "class": "0x030200", **texts}.items():
        (folder / name).write_text(f"{text}\n")
    if driver:
        (root / driver).mkdir(exist_ok=True)
        (folder / "driver").symlink_to(root / driver)


def test_here_reads_driver_and_gpus_from_files(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(NVRM)
    pci_function(tmp_path, "0000:01:00.0", "nvidia", device="0x2330")
    pci_function(tmp_path, "0000:02:00.0", device="0x22a3", **{"class": "0x068000"})  # an NVSwitch
    pci_function(tmp_path, "0000:03:00.0", device="0x2330", vendor="0x1002")  # another maker's
    pci_function(tmp_path, "0000:04:00.0", "vfio-pci", device="0x2684")  # lent to a virtual machine
    found = this_machine(tmp_path)
    assert found == ThisMachine("580.95.05", (H100,), found.processor)
    assert found.processor in ("amd64", "arm64")


@pytest.mark.parametrize(
    ("driver", "is_ours"), [("nvidia", True), ("nouveau", True), ("", True), ("vfio-pci", False), ("nvgrace-gpu-vfio-pci", False)]
)
def test_a_gpu_that_is_lent_to_a_virtual_machine_is_not_there_for_containers(tmp_path: Path, driver: str, is_ours: bool) -> None:
    pci_function(tmp_path, "0000:01:00.0", driver, device="0x2330")
    assert bool(this_machine(tmp_path).gpus) is is_ours
    assert gpus.has_gpu(str(tmp_path)) is is_ours


def test_here_tells_boards_of_one_id_apart_by_the_driver_s_name_for_them(tmp_path: Path) -> None:
    pci_function(tmp_path, "0000:01:00.0", device="0x25b6")
    assert this_machine(tmp_path).gpus[0].name == "NVIDIA A16 or NVIDIA A2"
    information = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information"
    information.parent.mkdir(parents=True)
    information.write_text("Model: \t\t NVIDIA A16\nIRQ:   \t\t 16\n")
    assert this_machine(tmp_path).gpus[0].name == "NVIDIA A16"


def test_here_without_anything(tmp_path: Path) -> None:
    found = this_machine(tmp_path)
    assert (found.driver, found.gpus, found.is_wsl) == (None, (), False)


def test_here_takes_the_module_s_version_where_proc_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("550.54.15\n")
    assert this_machine(tmp_path).driver == "550.54.15"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8"])
def test_here_reads_the_driver_of_windows_from_its_inf_file(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").touch()
    assert this_machine(tmp_path) == ThisMachine(None, (), this_machine(tmp_path).processor, True)
    for folder, version in (("nv_dispi.inf_amd64_01", "31.0.15.3179"), ("nv_dispi.inf_amd64_02", "32.0.15.6603")):
        path = tmp_path / "usr/lib/wsl/drivers" / folder / "nv_dispi.inf"
        path.parent.mkdir(parents=True)
        path.write_text(f'[Version]\nProvider = "NVIDIA"\nDriverVer = 05/03/2023, {version}\n', encoding=encoding)
    assert this_machine(tmp_path).driver == "566.03"


def test_a_gpu_that_is_newer_than_the_tables_is_judged_by_its_driver_alone() -> None:
    assert card(0x3FFF) == UNKNOWN
    assert judged("pytorch-26.09", "615.31", UNKNOWN).runs == "yes"


def test_a_generation_known_by_its_range_of_ids() -> None:
    assert K80.compute_capabilities == ((3, 0), (3, 5), (3, 7))
    assert "3.0 or 3.5 or 3.7" in judged("pytorch-22.01", "510.47.03", K80).why
