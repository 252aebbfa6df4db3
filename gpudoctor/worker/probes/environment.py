"""The environment variables that affect GPU programs, and NCCL's configuration files."""

from __future__ import annotations

import os
import re
from typing import Dict, Iterator, Mapping

from gpudoctor.worker.probes.machine import Answer, Machine
from gpudoctor.worker.reply import Reply

_PREFIXES = (
    "BNB_",
    "CONDA_",
    "CUBLAS",
    "CUDA",  # also CUDAHOSTCXX, CUDACXX and CUDAARCHS
    "CUDNN_",
    "CUPY_",
    "GLOO_",
    "GOMP_",
    "JAX_",
    "KMP_",
    "LD_",
    "MALLOC_",
    "MKL_",
    "NCCL_",
    "NUMBA",
    "NVCC_",
    "NVIDIA_",
    "NVSHMEM_",
    "OMP_",
    "OPENBLAS_",
    "PYTHON",
    "PYTORCH_",
    "TF_",
    "TORCH",
    "TRITON_",
    "UCX_",
    "VIRTUAL_ENV",
    "XLA_",
)
_NAMES = (
    *("CC", "CXX", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "PATH"),
    *("COMPUTE_PROFILE", "OPENCL_PROFILE", "NSIGHT_CUDA_DEBUGGER", "NVTX_INJECTION64_PATH"),
    *("CFLAGS", "CXXFLAGS", "LDFLAGS", "GLIBC_TUNABLES", "MAX_JOBS", "TMPDIR", "XDG_CACHE_HOME"),
    *("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "DOCKER_CONTEXT", "DOCKER_HOST"),
)
_SLURM = re.compile(r"SLURM_(JOB_?ID|NNODES|JOB_NUM_NODES|\w*GPU\w*)")
_PRESENCE = ("KUBERNETES_SERVICE_HOST", "WSL_DISTRO_NAME")
# Secrets and addresses. Kubernetes sets NAME_SERVICE_HOST and NAME_PORT for every service, including one named "triton":
# https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
PRIVATE = re.compile(
    r"""
    TOKEN | SECRET | PASSWORD | PASSWD | KEY | AUTH | CREDENTIAL
    | _ADDR | _SERVICE_ | _PORT(_|$)                # of services of Kubernetes
    | NCCL_COMM_ID | NCCL_HOSTID | TF_CONFIG$
    """,
    re.VERBOSE,
)
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")


def ask(machine: Machine) -> Iterator[Answer]:
    """`environment`: name -> value of the relevant variables; "present" if only that matters."""
    yield "environment", machine.call(lambda: variables(os.environ))
    yield machine.glob("/sys/class/net/*")
    yield machine.file("/etc/nccl.conf")
    yield "file:~/.nccl.conf", _in_home(machine, ".nccl.conf")
    if os.environ.get("NCCL_CONF_FILE"):
        yield machine.file(os.environ["NCCL_CONF_FILE"])


def variables(every: Mapping[str, str]) -> Dict[str, str]:
    """The relevant variables of an environment, without private values."""
    present = {name: "present" for name in _PRESENCE if name in every}
    values = {name: _USER_IN_URL.sub("", value) for name, value in every.items() if matters(name)}
    return dict(sorted({**values, **present}.items()))


def matters(name: str) -> bool:
    if PRIVATE.search(name.upper()):
        return False
    return name in _NAMES or name.startswith(_PREFIXES) or bool(_SLURM.fullmatch(name))


def _in_home(machine: Machine, name: str) -> Reply:
    return machine.call(lambda: machine.read(os.path.join(os.path.expanduser("~"), name)))
