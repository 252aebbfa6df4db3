"""What the values are called that a command still lacks, and what each of them means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

# Evidence -> the name that is shown, where that of the evidence means nothing outside its check.
_SHOWN_AS = {
    "active": "active_ports",
    "arch": "architectures",
    "base": "base_image",
    "built": "cudnn_version",
    "clean": "clean_path",
    "dashed": "cuda_dashed",
    "digits": "python_digits",
    "half": "plugin_library",
    "headers": "headers_package",
    "last": "last_core",
    "maintained": "maintained_branch",
    "newer": "newer_branch",
    "newest": "newest_version",
    "node": "numa_node",
    "numpy": "numpy_limit",
    "older": "older_version",
    "others": "other_packages",
    "possible": "open_files",
    "real": "cmake_architectures",
    "right": "right_package",
    "there": "interface",
    "upgrade": "newer_branch",
    "valid": "valid_gpus",
    "wheel": "wheel_folder",
    "without_it": "other_entries",
}
_MEANINGS = {
    "active_ports": "the InfiniBand ports that are active (ibstat), such as mlx5_0:1",
    "address": "the GPU's PCI address or its index, as nvidia-smi -L and nvidia-smi -q show it",
    "architectures": "the compute capability of the GPU, such as 9.0 (nvidia-smi --query-gpu=compute_cap --format=csv)",
    "base_image": "an image for the CUDA version that the driver supports, such as nvidia/cuda:12.8.1-base-ubuntu24.04",
    "branch": "the driver branch: 580 of 580.95.05 (cat /sys/module/nvidia/version)",
    "bridge": "the PCI address of the bridge above the GPU (lspci -t)",
    "bridges": "the PCI addresses of the bridges above the GPUs (lspci -t)",
    "check": "the check that failed (gpudoctor list)",
    "clean_path": "the value without empty and relative entries",
    "cmake_architectures": "the compute capability without its point, such as 90-real",
    "command": "the program to start in the container",
    "container": "the name or id of the container (docker ps -a)",
    "cuda": "the CUDA version, such as 12.8",
    "cuda_dashed": "the CUDA version with a dash, such as 12-8",
    "cudnn_version": "the cuDNN version that the program was built with, as its message says",
    "default_watts": "the default power limit (nvidia-smi -q -d POWER)",
    "driver": "the driver version, such as 580.95.05 (cat /sys/module/nvidia/version)",
    "file": "the file that the message names",
    "files": "the files that the message names",
    "folder": "the folder of the library that the message names",
    "gid": "the group id of /dev/nvidiactl (stat -c %g /dev/nvidiactl)",
    "gpu": "the GPU's PCI address or its index (nvidia-smi -L, lspci -d 10de:)",
    "gpu_mib": "the memory of the GPU in MiB, or more (nvidia-smi)",
    "gpus": "the indexes of the GPUs, separated by commas (nvidia-smi -L)",
    "group": "the group of /dev/nvidiactl (stat -c %G /dev/nvidiactl)",
    "header": "the header that the compiler does not find",
    "headers_package": "the package of CUDA headers, such as nvidia-cuda-runtime-cu12",
    "image": "the image of the container",
    "index": "the GPU's index (nvidia-smi -L); after --index-url, the URL of the wheels (https://pytorch.org/get-started)",
    "instance": "the UUID of the MIG instance (nvidia-smi -L)",
    "interface": "a network interface that exists (ip -brief link)",
    "last_branch": "the last driver branch for this GPU: 580 for Maxwell, Pascal and Volta, 470 for Kepler",
    "last_core": "the number of the last core: one less than nproc --all",
    "libraries": "the libraries that the message names",
    "library": "the path of the library that the message names",
    "library_path": "LD_LIBRARY_PATH without the folder that causes the problem",
    "location": "the folder of the package (pip show)",
    "log": "the log that the message names",
    "lower_watts": "a power limit below the current one (nvidia-smi -q -d POWER)",
    "maintained_branch": "a driver branch that NVIDIA maintains, such as 580",
    "major": "the major version, such as 12 or 9",
    "minors": "the numbers of the missing /dev/nvidiaN: 0 1 2 …",
    "module": "the Python module whose import fails",
    "modules": "the kernel modules that the message names",
    "name": "the name that the message asks for",
    "names": "the variables to remove",
    "newer_branch": "a newer driver branch, such as 580",
    "newest_version": "the newest version that the CUDA toolkit supports, as its message says",
    "numa_file": "/sys/bus/pci/devices/ADDRESS/numa_node of the GPU",
    "numa_node": "the NUMA node of the GPU (nvidia-smi topo -m)",
    "numpy_limit": "the first NumPy version that the package does not support, such as 2",
    "nvcc": "the path of nvcc",
    "older_version": "an older version that the driver or the CUDA toolkit supports",
    "open_files": "a number of open files, at most the hard limit (ulimit -Hn)",
    "other_entries": "the other entries of the variable",
    "other_packages": "the packages of another CUDA version (pip list)",
    "package": "the package that the message names",
    "packages": "the packages that the message names",
    "path": "the path that the message names",
    "pids": "the process ids (nvidia-smi)",
    "plugin": "the installed JAX plugin, such as jax-cuda13-plugin (pip list)",
    "plugin_library": "the package that belongs to the plugin, such as jax-cuda13-pjrt (pip list)",
    "python": "the Python of the environment, such as .venv/bin/python",
    "python_digits": "the Python version without its point, such as 311",
    "python_version": "the Python version, such as 3.12",
    "requirement": "the package with the version that is needed, such as nvidia-cudnn-cu12==9.10.2.21",
    "requirements": "the packages with the versions that are needed (pip check)",
    "right_package": "the package for the CUDA version of the driver, such as cupy-cuda12x",
    "slot": "the PCI address of the GPU (lspci -d 10de:)",
    "sm": "the GPU's architecture, such as sm_90",
    "toolkit": "the folder of the CUDA toolkit, such as /usr/local/cuda-12.8",
    "torch": "the PyTorch version to install, such as 2.9.1",
    "valid_gpus": "the indexes of GPUs that exist (nvidia-smi -L)",
    "variable": "the environment variable that the message names",
    "version": "the PyTorch version to install, such as 2.9.1",
    "wanted": "the package or version that the message asks for",
    "wanted_branch": "a driver branch that supports this GPU, such as 580",
    "wheel_folder": "the lib folder of the pip package, such as …/site-packages/nvidia/cudnn/lib",
    "wheels": "the pip packages of the CUDA libraries, such as nvidia-cublas-cu12",
}


def shown_name(name: str) -> str:
    return _SHOWN_AS.get(name, name)


def meaning(name: str) -> str:
    """name: as shown."""
    return _MEANINGS[name]


def explained(names: Iterable[str]) -> Iterator[str]:
    """A sentence and a line for each value that is left open; nothing if there is none."""
    left = sorted(set(names))
    if left:
        yield "Values to set before you paste, such as " + f"{left[0]}=…:"
        yield from (f"  {name}: {meaning(name)}" for name in left)
