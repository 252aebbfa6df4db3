"""The probes of the environment, the interpreter, libraries and tools, on fake machines and on this one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from each import each
from folder_machine import SITE, Folder, python_lives_in

from gpudoctor.worker.probes import environment, interpreter, libraries, packages, toolchain
from gpudoctor.worker.probes.machine import Machine

LIB = "/usr/lib/x86_64-linux-gnu"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    return python_lives_in(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("CUDA_VISIBLE_DEVICES", "0,1", "0,1"),
        ("CUDAHOSTCXX", "g++-12", "g++-12"),
        ("NCCL_P2P_DISABLE", "1", "1"),
        ("LD_LIBRARY_PATH", "/usr/local/cuda/lib64", "/usr/local/cuda/lib64"),
        ("SLURM_JOB_GPUS", "0", "0"),
        ("KUBERNETES_SERVICE_HOST", "10.96.0.1", "present"),
        ("DOCKER_HOST", "ssh://somebody@build", "ssh://build"),
        ("CC", "gcc-12", "gcc-12"),
        ("SLURM_NODELIST", "node[1-4]", None),
        ("SLURM_JOB_USER", "somebody", None),
        ("NVIDIA_API_KEY", "nvapi-x", None),
        ("CONDA_TOKEN", "x", None),
        ("TRITON_SERVICE_HOST", "10.96.4.1", None),
        ("TRITON_PORT_8001_TCP", "tcp://10.96.4.1:8001", None),
        ("JAX_COORDINATOR_ADDRESS", "10.0.0.1:1234", None),
        ("NCCL_COMM_ID", "10.0.0.1:1234", None),
        ("HOME", "/home/somebody", None),
        ("CCACHE_DIR", "/x", None),
    ],
)
def test_environment_has_what_matters_and_nothing_private(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str | None
) -> None:
    monkeypatch.setenv(name, value)
    assert folder.ask(environment)["environment"].value.get(name) == expected


def test_nccl_files(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("NCCL_CONF_FILE", "/opt/nccl.conf")
    folder.write("/home/somebody/.nccl.conf", "NCCL_DEBUG=INFO")
    folder.write("/opt/nccl.conf", "NCCL_ALGO=Ring")
    replies = folder.ask(environment)
    assert replies["file:/etc/nccl.conf"].status == "missing"
    assert replies["file:~/.nccl.conf"].value == "NCCL_DEBUG=INFO"
    assert replies["file:/opt/nccl.conf"].value == "NCCL_ALGO=Ring"


def test_import_path_has_each_folder_once_and_not_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib64").symlink_to("lib")
    own = str(Path(interpreter.__file__).parents[3])
    monkeypatch.setattr(sys, "path", [own, "", str(tmp_path / "lib"), str(tmp_path / "lib64")])
    assert interpreter.import_path() == [str(tmp_path / "lib")]


def test_interpreter_looks_for_its_headers(folder: Folder) -> None:
    found = folder.ask(interpreter)["interpreter"].value
    assert not found["python_h"]
    folder.write(found["include"] + "/Python.h")
    assert folder.ask(interpreter)["interpreter"].value["python_h"]


def test_interpreter_of_a_venv_made_from_conda(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "base_prefix", "/opt/conda")
    assert folder.ask(interpreter)["interpreter"].value["conda_prefix"] is None
    folder.write("/opt/conda/conda-meta/history")
    assert folder.ask(interpreter)["interpreter"].value["conda_prefix"] == "/opt/conda"


def test_libraries_come_in_the_order_of_the_loader(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/local/cuda/lib64:/nowhere:/usr/local/cuda-12.4/lib64/stubs")
    folder.link("/usr/local/cuda", "cuda-12.4")
    folder.write("/usr/local/cuda-12.4/lib64/libcudart.so.12.4.127")
    folder.link("/usr/local/cuda-12.4/lib64/libcudart.so.12", "libcudart.so.12.4.127")
    folder.write("/usr/local/cuda-12.4/lib64/stubs/libcuda.so")
    folder.write("/usr/local/cuda-12.4/compat/libcuda.so.550.54.15")
    folder.write(f"{LIB}/libcuda.so.999.88.77", "driver")
    folder.link(f"{LIB}/libcuda.so.1", "libcuda.so.999.88.77")
    folder.link(f"{LIB}/libnvidia-ml.so.1", "libnvidia-ml.so.999.88.66")
    folder.write(f"{LIB}/libcudanothing.so.1")
    found = folder.ask(libraries)["libraries"].value
    assert [(library["via"], library["index"], library["path"]) for library in found] == [
        ("LD_LIBRARY_PATH", 0, "/usr/local/cuda/lib64/libcudart.so.12"),
        ("LD_LIBRARY_PATH", 0, "/usr/local/cuda/lib64/libcudart.so.12.4.127"),
        ("LD_LIBRARY_PATH", 2, "/usr/local/cuda-12.4/lib64/stubs/libcuda.so"),
        ("default", None, f"{LIB}/libcuda.so.1"),
        ("default", None, f"{LIB}/libcuda.so.999.88.77"),
        ("default", None, f"{LIB}/libnvidia-ml.so.1"),
        ("compat", None, "/usr/local/cuda-12.4/compat/libcuda.so.550.54.15"),
    ]
    by_path = {library["path"]: library for library in found}
    assert by_path[f"{LIB}/libcuda.so.1"]["real_path"] == f"{LIB}/libcuda.so.999.88.77"
    assert by_path[f"{LIB}/libcuda.so.1"]["size"] == len("driver")
    assert by_path[f"{LIB}/libnvidia-ml.so.1"]["size"] is None  # a link to nowhere


def test_libraries_of_wheels_and_conda(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "base_prefix", "/opt/conda")
    folder.write("/opt/conda/conda-meta/history")
    folder.write("/opt/conda/lib/libcudart.so.12")
    folder.write(f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9")
    folder.write(f"{SITE}/nvidia/cu13/lib/libnvJitLink.so.13")
    folder.write(f"{SITE}/torch/lib/libnccl.so.2")
    found = folder.ask(libraries)["libraries"].value
    assert {library["path"]: library["via"] for library in found} == {
        f"{SITE}/nvidia/cu13/lib/libnvJitLink.so.13": "wheel",
        f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9": "wheel",
        f"{SITE}/torch/lib/libnccl.so.2": "wheel",
        "/opt/conda/lib/libcudart.so.12": "conda",
    }


def test_libraries_of_32_bit_programs_are_left_out(folder: Folder) -> None:
    folder.write("/usr/lib/libcuda.so.1", "\x7fELF\x01")
    folder.write("/usr/lib/libnccl.so.2", "\x7fELF\x02")
    found = folder.ask(libraries)["libraries"].value
    assert [library["path"] for library in found] == ["/usr/lib/libnccl.so.2"]


def test_library_that_a_container_engine_mounted(folder: Folder) -> None:
    folder.write("/proc/self/mountinfo", f"712 690 259:1 {LIB}/libcuda.so.999.88.77 {LIB}/libcuda.so.999.88.77 ro - ext4 x rw\n")
    folder.write(f"{LIB}/libcuda.so.999.88.77")
    folder.write(f"{LIB}/libnccl.so.2")
    found = folder.ask(libraries)["libraries"].value
    assert [library["mounted"] for library in found] == [True, False]


CACHE = """2 libs found in cache `/etc/ld.so.cache'
\tlibnccl.so.2 (libc6,x86-64) => /opt/nccl/libnccl.so.2
\tlibcuda.so.1 (libc6) => /usr/lib/i386-linux-gnu/libcuda.so.1
"""


class WithPrograms(Machine):
    """A fake machine whose programs answer."""

    def run(self, argv: tuple[str, ...], timeout: float) -> dict[str, Any]:
        if argv == ("/sbin/ldconfig", "-p"):
            return {"code": 0, "out": CACHE, "err": ""}
        if argv[0] == "dpkg-query":
            return {"code": 1, "out": " ".join(argv[2:]), "err": ""}
        raise FileNotFoundError(argv[0])


def test_cache_and_owners(folder: Folder) -> None:
    folder.write("/var/lib/dpkg/status")
    folder.write("/opt/nccl/libnccl.so.2")
    folder.write("/usr/lib/i386-linux-gnu/libcuda.so.1", "\x7fELF\x01")
    folder.write(f"{LIB}/libcuda.so.1")
    replies = dict(libraries.ask(WithPrograms(str(folder.root))))
    assert replies["command:ldconfig -p"].status == "ok"
    assert [(library["path"], library["via"]) for library in replies["libraries"].value] == [
        (f"{LIB}/libcuda.so.1", "default"),
        ("/opt/nccl/libnccl.so.2", "ld-cache"),
    ]
    owners = replies["library-owners"].value
    assert owners["out"].split() == ["/opt/nccl/libnccl.so.2", f"{LIB}/libcuda.so.1", "/lib/x86_64-linux-gnu/libcuda.so.1"]


def test_owners_without_a_package_manager_are_missing(folder: Folder) -> None:
    folder.write(f"{LIB}/libcuda.so.1")
    assert folder.ask(libraries)["library-owners"].status == "missing"


def test_toolchain(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:relative:/bin:/usr/local/cuda/bin")
    monkeypatch.setenv("CUDA_HOME", "/opt/other")
    folder.link("/bin", "usr/bin")
    folder.write("/usr/bin/gcc", mode=0o755)
    folder.write("/usr/bin/ninja", mode=0o644)
    folder.write("/usr/local/cuda-12.4/bin/nvcc", mode=0o755)
    folder.write("/usr/local/cuda-12.4/version.json", '{"cuda": {}}')
    folder.write("/usr/local/cuda-12.4/include/cuda.h", "/* */\n#define CUDA_VERSION 12040\n")
    folder.link("/usr/local/cuda", "cuda-12.4")
    folder.write("/opt/other/include/vector_types.h")
    folder.write(f"{SITE}/nvidia/cu13/lib/libnvvm.so.4")
    folder.write(f"{SITE}/nvidia/cu13/nvvm/libdevice/libdevice.10.bc")
    folder.write(f"{SITE}/nvidia/cuda_nvcc/nvvm/lib64/libnvvm.so")
    found = folder.ask(toolchain)["toolchain"].value
    assert found["programs"] == {"nvcc": ["/usr/local/cuda/bin/nvcc"], "gcc": ["/usr/bin/gcc"]}
    assert found["versions"] == dict.fromkeys(["/usr/local/cuda/bin/nvcc", "/usr/local/cuda-12.4/bin/nvcc", "/usr/bin/gcc"])
    assert found["real_paths"]["/usr/local/cuda/bin/nvcc"] == "/usr/local/cuda-12.4/bin/nvcc"
    assert [toolkit["root"] for toolkit in found["toolkits"]] == ["/opt/other", "/usr/local/cuda-12.4"]
    assert found["toolkits"][1]["cuda_h"] == "#define CUDA_VERSION 12040"
    assert found["default"] == "/usr/local/cuda-12.4"
    assert found["headers"] == ["/opt/other/include/vector_types.h"]
    assert found["nvvm"] == [
        f"{SITE}/nvidia/cuda_nvcc/nvvm/lib64/libnvvm.so",
        f"{SITE}/nvidia/cu13/lib/libnvvm.so.4",
        f"{SITE}/nvidia/cu13/nvvm/libdevice/libdevice.10.bc",
    ]


@each("probe", [environment, interpreter, packages, libraries, toolchain])
def test_probe_answers_on_this_machine(probe: Any) -> None:
    replies = dict(probe.ask(Machine()))
    assert replies
    assert {question: reply.detail for question, reply in replies.items() if reply.status in ("error", "died")} == {}


@pytest.mark.parametrize("probe", [environment, interpreter, packages, libraries, toolchain])
def test_probe_survives_an_empty_machine(folder: Folder, probe: Any) -> None:
    assert {reply.status for reply in folder.ask(probe).values()} <= {"ok", "missing"}


def test_this_interpreter_describes_itself() -> None:
    found = dict(interpreter.ask(Machine()))["interpreter"].value
    assert found["executable"] == sys.executable
    assert tuple(found["version"]) == sys.version_info[:3]
    assert found["markers"]["platform_machine"] == os.uname().machine
    assert "pytest" in {package["name"] for package in dict(packages.ask(Machine()))["packages"].value}
