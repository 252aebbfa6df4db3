"""What is said of the target's Python, its packages and its frameworks."""

from __future__ import annotations

from typing import Any

import pytest
from packaging.requirements import Requirement

from gpudoctor.facts.packages import CondaPackage, assigned
from gpudoctor.facts.python import Python
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Reply, Skip, Unavailable

INTERPRETER = {
    "executable": "/venv/bin/python",
    "version": [3, 12, 3],
    "implementation": "cpython",
    "prefix": "/venv",
    "base_prefix": "/usr",
    "conda_prefix": None,
    "libc": ["glibc", "2.39"],
    "include": "/usr/include/python3.12",
    "python_h": False,
    "path": ["/venv/lib/python3.12/site-packages"],
    "user_site": "/home/user/.local/lib/python3.12/site-packages",
    "user_site_enabled": False,
    "externally_managed": True,
    "free_threaded": False,
    "has_ctypes": True,
    "markers": {"python_version": "3.12", "platform_machine": "aarch64", "platform_system": "Linux"},
}
SITE, USER_SITE = "/venv/lib/python3.12/site-packages", "/home/user/.local/lib/python3.12/site-packages"

TORCH_CUDA = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '2.11.0+cu130'
debug = False
cuda: Optional[str] = '13.0'
git_version = 'fb2d39e4ae9a0f7a4ab5b2a5c8f3b8c3d8f0a1b2'
hip: Optional[str] = None
xpu: Optional[str] = None
"""
TORCH_CPU = TORCH_CUDA.replace("2.11.0+cu130", "2.11.0+cpu").replace("'13.0'", "None")


def python(interpreter: dict[str, Any] | None = None, **replies: Any) -> Python:
    answers = {question: Reply("ok", value) for question, value in replies.items()}
    return Python(Replies({"interpreter": Reply("ok", {**INTERPRETER, **(interpreter or {})}), **answers}))


def record(name: str, version: str, location: str = SITE, **details: Any) -> dict[str, Any]:
    return {"name": name, "version": version, "location": location, **details}


def test_interpreter() -> None:
    found = python()
    assert (found.version, found.libc, found.has_headers) == ((3, 12, 3), (2, 39), False)
    assert found.is_virtual
    assert not found.is_conda
    assert not found.is_externally_managed  # a venv is not
    assert found.user_site is None


@pytest.mark.parametrize(
    ("prefix", "base_prefix", "is_conda"),
    [("/opt/conda", "/opt/conda", True), ("/venv", "/opt/conda", False)],
)
def test_venv_of_a_conda_python_takes_its_packages_from_pip(prefix: str, base_prefix: str, is_conda: bool) -> None:
    found = python({"prefix": prefix, "base_prefix": base_prefix, "conda_prefix": "/opt/conda"})
    assert found.is_conda is is_conda
    assert found.conda_prefix == "/opt/conda"


@pytest.mark.parametrize(
    ("libc", "expected"),
    [(["glibc", "2.17"], (2, 17)), (["musl", "1.2.4"], None), (["", ""], None), ([], None)],
)
def test_libc(libc: list[str], expected: tuple[int, int] | None) -> None:
    assert python({"libc": libc}).libc == expected


def test_duplicates_are_kept_and_the_first_is_imported() -> None:
    records = [
        record("torch", "2.11.0"),
        record("nvidia_cudnn_cu13", "9.19.0.56"),
        record("torch", "2.7.0", location=USER_SITE),
        record("~orch", "2.6.0"),
    ]
    found = python(packages=records)
    assert [package.version for package in found.packages["torch"]] == ["2.11.0", "2.7.0"]
    assert "~orch" in found.packages
    torch, cudnn = found.package("torch"), found.package("NVIDIA-cuDNN.cu13")
    assert torch is not None
    assert torch.version == "2.11.0"
    assert cudnn is not None
    assert cudnn.version == "9.19.0.56"
    assert found.package("jax") is None


def test_requirements_are_evaluated_for_the_target_not_for_us() -> None:
    requires = [
        "nvidia-cudnn-cu13==9.19.0.56; platform_system == 'Linux' and platform_machine == 'x86_64'",
        "nvidia-nccl-cu13==2.28.9; platform_system == 'Linux'",
    ]
    found = python(packages=[record("torch", "2.11.0", requires=requires)])
    torch = found.package("torch")
    assert torch is not None
    parsed = [Requirement(line) for line in torch.requires]
    wanted = [line.name for line in parsed if line.marker is None or line.marker.evaluate(found.marker_environment)]
    assert wanted == ["nvidia-nccl-cu13"]


def test_requirements_that_were_not_read_are_not_none_at_all() -> None:
    package = python(packages=[record("requests", "2.32.0")]).package("requests")
    assert package is not None
    with pytest.raises(Unavailable):
        _ = package.requires


def test_wheel_that_a_package_was_installed_from() -> None:
    file = "flash_attn-2.5.8+cu122torch2.3cxx11abiFALSE-cp310-cp310-linux_x86_64.whl"
    package = python(packages=[record("flash_attn", "2.5.8", direct_url={"file": file, "editable": False})]).package("flash-attn")
    assert package is not None
    assert package.file == file


@pytest.mark.parametrize(("version_py", "cuda"), [(TORCH_CUDA, "13.0"), (TORCH_CPU, None)])
def test_torch_build(version_py: str, cuda: str | None) -> None:
    assert python(torch={"location": SITE, "version_py": version_py}).torch_cuda == cuda


def test_torch_that_is_not_there_is_not_a_cpu_build() -> None:
    found = Python(Replies({"torch": Reply("missing"), "packages": Reply("ok", [])}))
    with pytest.raises(Unavailable) as raised:
        _ = found.torch_cuda
    assert raised.value.kind == Skip.NOT_INSTALLED


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cuda = '12.1'", "12.1"),
        ('cuda: str | None = "12.8"  # built', "12.8"),
        ("cuda: Optional[str] = None", None),
    ],
)
def test_assignment(line: str, expected: str | None) -> None:
    assert assigned(f"debug = False\n{line}\n", "cuda") == expected


def test_assignment_that_is_not_there_is_not_none() -> None:
    with pytest.raises(Unavailable):
        assigned("cuda_home = '/usr'", "cuda")


def test_bitsandbytes_says_which_cuda_it_can() -> None:
    names = ["libbitsandbytes_cpu.so", "libbitsandbytes_cuda118.so", "libbitsandbytes_cuda128.so"]
    assert python(bitsandbytes=names).bitsandbytes_cuda == {(11, 8), (12, 8)}


@pytest.mark.parametrize(
    ("build_info", "package", "cuda"),
    [
        ("package_name = 'onnxruntime-gpu'\n__version__ = '1.20.1'\ncuda_version = '12.4'\n", "onnxruntime-gpu", "12.4"),
        ("package_name = 'onnxruntime'\n__version__ = '1.20.1'\n", "onnxruntime", None),
    ],
)
def test_onnxruntime_build(build_info: str, package: str, cuda: str | None) -> None:
    found = python(onnxruntime={"build_info": build_info, "providers": []})
    assert (found.onnxruntime_package, found.onnxruntime_cuda) == (package, cuda)


def test_onnxruntime_that_says_nothing_of_its_build_is_not_a_cpu_build() -> None:
    with pytest.raises(Unavailable):
        _ = python(onnxruntime={"build_info": "", "providers": []}).onnxruntime_cuda


def test_conda_packages() -> None:
    torch = {"name": "pytorch", "version": "2.5.1", "build": "cpu_mkl_py312_h2a1b3c4_108", "channel": "conda-forge"}
    assert python(conda=[torch]).conda_packages == {"pytorch": CondaPackage(**torch)}


def test_no_conda_environment_has_no_conda_packages() -> None:
    assert Python(Replies({"conda": Reply("missing")})).conda_packages == {}


@pytest.mark.parametrize(("version", "expected"), [("2.11.0+cpu", None), ("2.11.0+cu130", "13.0"), ("2.7.1+cu118", "11.8")])
def test_without_its_files_torch_is_known_by_its_name(version: str, expected: str | None) -> None:
    packages = Reply("ok", [{"name": "torch", "version": version, "location": "/venv"}])
    assert Python(Replies({"torch": Reply("missing"), "packages": packages})).torch_cuda == expected


def test_what_is_required_only_with_an_extra() -> None:
    """`or` may make such a line true without it; quotes and spaces vary."""
    lines = [
        *("a; extra == 'x'", 'b ; (platform_system == "Linux") and extra=="x"', "c; extra == 'x' and platform_system == 'Linux'"),
        *("d; extra == 'x' or platform_system == 'Linux'", "e; extra == ''", "f; extra != 'x'", "g[extra]>=1", "h"),
        *("i; platform_system == 'Windows' or extra == 'x'", "vendor; extra == 'x'", "j;platform_system=='Linux'"),
    ]
    found = python(packages=[record("big", "1", requires=lines)])
    package = found.package("big")
    assert package
    assert [line.name for line in found.requirements(package)] == ["d", "e", "f", "g", "h", "j"]
