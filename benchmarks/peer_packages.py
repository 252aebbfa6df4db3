"""Virtual environments with stand-ins of big packages: metadata as on PyPI, and just enough to be imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """files: path below site-packages -> text."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


SOURCE = "int cudaRuntimeGetVersion(int *version) {{ *version = {cuda}; return 0; }}"
INIT = """
from torch import version
__version__ = version.__version__
class cuda:
    is_available = staticmethod(lambda: {available})
    get_arch_list = staticmethod(lambda: {architectures!r})
class backends:
    class cudnn:
        version = staticmethod(lambda: {cudnn})
"""


def torch(
    version: str, cuda: str | None, cudnn: str, architectures: tuple[str, ...], *requires: str, available: bool = True
) -> Package:
    number = int("{}{:02d}{:02d}".format(*map(int, cudnn.split(".")[:3])))
    files = dict.fromkeys(("torch/lib/libtorch_cuda.so", "torch/lib/libc10_cuda.so") if cuda else (), SOURCE.format(cuda=0))
    files["torch/__init__.py"] = INIT.format(architectures=list(architectures), cudnn=number, available=available)
    files["torch/version.py"] = f"__version__ = {version!r}\ndebug = False\ncuda = {cuda!r}\nhip = None\n"
    return Package("torch", version, requires, files)


def module(name: str, version: str, *requires: str) -> Package:
    """One that can be imported and says its version."""
    folder = name.replace("-", "_")
    return Package(name, version, requires, {f"{folder}/__init__.py": f"__version__ = {version!r}\n"})


def nvidia(name: str, version: str, *libraries: str, cuda: int = 13000) -> Package:
    """A wheel of NVIDIA's with libraries that can be loaded and do nothing. libraries: paths below nvidia/."""
    return Package(name, version, (), {f"nvidia/{path}": SOURCE.format(cuda=cuda) for path in libraries})


def environment(folder: Path, packages: Iterable[Package]) -> str:
    """Makes it and gives its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    site = next(folder.glob("lib/python*/site-packages"))
    for package in packages:
        install(site, package)
    return str(python)


def install(site: Path, package: Package) -> None:
    folder = f"{package.name.replace('-', '_')}-{package.version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {package.name}", f"Version: {package.version}"]
    lines += [f"Requires-Dist: {required}" for required in package.requires]
    files = {**package.files, f"{folder}/METADATA": "\n".join(lines) + "\n", f"{folder}/INSTALLER": "pip\n"}
    files[f"{folder}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-manylinux_2_28_x86_64\n"
    for path, text in files.items():
        file = site / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if ".so" in path:
            subprocess.run(["gcc", "-shared", "-xc", "-", "-o", file], input=text, text=True, check=True)
        else:
            file.write_text(text)
    (site / folder / "RECORD").write_text("".join(f"{path},,\n" for path in [*files, f"{folder}/RECORD"]))


MODERN = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")
CUDNN = nvidia("nvidia-cudnn-cu13", "9.19.0.56", "cudnn/lib/libcudnn.so.9")
NCCL = nvidia("nvidia-nccl-cu13", "2.28.9", "nccl/lib/libnccl.so.2")
TRITON = Package("triton", "3.6.0")
TORCH = torch(
    "2.11.0+cu130", "13.0", "9.19.0", MODERN, "nvidia-cudnn-cu13==9.19.0.56", "nvidia-nccl-cu13==2.28.9", "triton==3.6.0"
)
TOOLKIT = (
    nvidia("nvidia-cuda-runtime", "13.0.96", "cu13/lib/libcudart.so.13"),
    nvidia("nvidia-cuda-nvrtc", "13.0.88", "cu13/lib/libnvrtc.so.13"),
    nvidia("nvidia-nvvm", "13.0.88", "cu13/lib/libnvvm.so.4"),
)
HEALTHY = (TORCH, CUDNN, NCCL, TRITON, *TOOLKIT)
TORCH_124 = torch(
    "2.5.1+cu124",
    "12.4",
    "9.1.0",
    ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"),
    *("nvidia-cudnn-cu12==9.1.0.70", "nvidia-nccl-cu12==2.21.5", "triton==3.1.0"),
    available=False,
)
OLDER = (
    TORCH_124,
    nvidia("nvidia-cuda-runtime-cu12", "12.4.127", "cuda_runtime/lib/libcudart.so.12", cuda=12040),
    nvidia("nvidia-cuda-nvrtc-cu12", "12.4.127", "cuda_nvrtc/lib/libnvrtc.so.12", cuda=12040),
    nvidia("nvidia-cuda-nvcc-cu12", "12.4.131", "cuda_nvcc/nvvm/lib64/libnvvm.so.4", cuda=12040),
    nvidia("nvidia-cudnn-cu12", "9.1.0.70", "cudnn/lib/libcudnn.so.9"),
    nvidia("nvidia-nccl-cu12", "2.21.5", "nccl/lib/libnccl.so.2"),
    Package("triton", "3.1.0"),
)
CPU_TORCH = torch("2.11.0+cpu", None, "0.0.0", (), available=False)
CPU_RUNTIME = {
    "__init__.py": "",
    "capi/__init__.py": "",
    "capi/build_and_package_info.py": "package_name = 'onnxruntime'\n__version__ = '1.23.2'\n",
}
ONNXRUNTIME = (
    Package("onnxruntime", "1.23.2", (), {f"onnxruntime/{path}": text for path, text in CPU_RUNTIME.items()}),
    Package("onnxruntime-gpu", "1.22.0"),
)
