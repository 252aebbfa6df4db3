"""TensorFlow is a build for GPUs and finds the CUDA libraries that it was built with.

What it means
TensorFlow opens the CUDA libraries by name when it starts. If it cannot open one, it prints "Cannot dlopen some GPU libraries"
among other lines and computes on the CPU.

How it is judged
The package is not tensorflow-cpu. cuBLAS and cuDNN of the major versions in its metadata (before 2.14: of its tested build) are
installed: as wheels, which the extra [and-cuda] installs, by conda, or where the loader looks. Releases before 2.14 do not look
in wheels. cuDNN has the same major version, and not an older minor version, than the one that TensorFlow was built with.

Known exceptions
The packages for architectures other than x86_64 have no CUDA, except NVIDIA's own builds (+nv in the version). Without a CUDA
driver, running on the CPU is right.

References
https://docs.nvidia.com/deeplearning/cudnn/backend/latest/developer/forward-compatibility.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packaging.version import Version

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.libraries import Library
from gpudoctor.facts.packages import CondaPackage, Package, oldest_of
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

DEVICES = "<python> -c 'import tensorflow as tf; print(tf.config.list_physical_devices(\"GPU\"))'"
FINDS_WHEELS = Version("2.14")
OWN_ENVIRONMENT = Fix(
    "Install TensorFlow in a separate environment without PyTorch",
    "<python> -m venv ~/tensorflow && ~/tensorflow/bin/python -m pip install <package>",
    verify="~/tensorflow/bin/python -c 'import tensorflow as tf; print(tf.config.list_physical_devices(\"GPU\"))'",
    kind="install",
)
FROM_CONDA = Fix(
    "Install TensorFlow from conda",
    "conda install -c conda-forge 'tensorflow=*=cuda*'",
    verify=DEVICES,
    on=("conda",),
    kind="install",
)

CPU_ONLY = Problem(
    id="tensorflow-cpu-only",
    title="TensorFlow is a CPU-only build",
    why="This build does not contain CUDA, so it cannot use a GPU, whatever else is installed.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        Fix(
            "Install the build with CUDA and its libraries",
            "<python> -m pip uninstall -y tensorflow-cpu && <python> -m pip install -U 'tensorflow[and-cuda]'",
            verify=DEVICES,
            kind="install",
        ),
        FROM_CONDA,
    ),
)

NO_LIBRARIES = Problem(
    id="tensorflow-cuda-libraries-missing",
    title="TensorFlow finds no CUDA libraries and computes on the CPU",
    why="'pip install tensorflow' does not install the CUDA libraries; they are an extra. Without them, TensorFlow ignores the "
    "GPU.",
    action=Action.INSTALL,
    fixes=(
        Fix("Install TensorFlow with CUDA's wheels", "<python> -m pip install -U <package>", verify=DEVICES, kind="install"),
        OWN_ENVIRONMENT,
        FROM_CONDA,
    ),
)

OLD_CUDNN = Problem(
    id="tensorflow-cudnn-too-old",
    title="cuDNN is older than TensorFlow was built with",
    why="PyTorch pins one release of NVIDIA's cuDNN wheel, and installing PyTorch downgrades the copy that TensorFlow uses "
    "too. TensorFlow then stops with 'Loaded runtime CuDNN library ... but source was compiled with'.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install a newer cuDNN (PyTorch works with it, although pip complains)",
            "<python> -m pip install -U <requirement>",
            verify=DEVICES,
            kind="install",
        ),
        OWN_ENVIRONMENT,
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    package = installed(facts)
    conda = facts.python.conda_packages.get("tensorflow")
    if facts.python.package("tensorflow") is None or (conda and conda.build.startswith("cpu")):
        yield CPU_ONLY.found(f"{_name(package, conda)} is built without CUDA", packages=(package.name,))
        return
    if facts.system.architecture != "x86_64" and "+nv" not in package.version:
        raise Skip(f"TensorFlow's package for {facts.system.architecture} is built without CUDA")
    cuda, cudnn = built_with(package)
    sonames = {f"libcublas.so.{cuda}": "libcublas", f"libcudnn.so.{cudnn.major}": "libcudnn"}
    missing = [soname for soname, name in sonames.items() if not library(facts, package, name, soname)]
    if missing:
        yield no_libraries(facts, package, missing)
    else:
        yield from judge_cudnn(facts, package, cudnn)


def _name(package: Package, conda: CondaPackage | None) -> str:
    return f"tensorflow {conda.version} {conda.build} from conda" if conda else f"tensorflow-cpu {package.version}"


def installed(facts: Facts) -> Package:
    package = facts.python.package("tensorflow") or facts.python.package("tensorflow-cpu")
    if package is None:
        raise Skip("TensorFlow is not installed in this Python")
    if facts.cuda.library is None:
        raise Skip("no CUDA driver is available to TensorFlow")
    return package


def built_with(package: Package) -> tuple[int, Version]:
    """The major release of CUDA and the release of cuDNN that this TensorFlow was built with."""
    cublas, cudnn = package.requirement("nvidia-cublas-cu"), package.requirement("nvidia-cudnn-cu")
    if cublas and cudnn:
        return int(cublas.name.rsplit("cu", 1)[1]), oldest_of(cudnn)
    for row in knowledge.packages("tensorflow"):
        if row.cudnn and Version(row.version).release[:2] == Version(package.version).release[:2]:
            return int(row.cuda.split(".")[0]), Version(row.cudnn)
    raise Skip(f"the CUDA release that TensorFlow {package.version} was built with is unknown", Skip.NO_ANSWER)


def library(facts: Facts, package: Package, name: str, soname: str) -> Library | None:
    """The library that TensorFlow opens."""
    found = facts.libraries.majors(name).get(int(soname.rsplit(".", 1)[1]))
    if found and (found.owner == "conda" or (found.owner == "wheel" and Version(package.version) >= FINDS_WHEELS)):
        return found
    return facts.libraries.resolved(soname)


def no_libraries(facts: Facts, package: Package, missing: list[str]) -> Finding:
    is_new = Version(package.version) >= FINDS_WHEELS
    right = f"tensorflow[and-cuda]=={Version(package.version).public}" if is_new else "tensorflow[and-cuda]"
    message = f"TensorFlow {package.version} needs {' and '.join(missing)}, not found"
    # NVIDIA's cuDNN wheels for all CUDA releases unpack to one folder: a second one breaks packages that use the first.
    is_taken = facts.python.package("nvidia-cudnn-cu13") is not None or _is_torchs(facts, missing)
    problem = replace(NO_LIBRARIES, fixes=NO_LIBRARIES.fixes[1:]) if is_taken else NO_LIBRARIES
    return problem.found(message, {"package": right, "missing": missing}, packages=(package.name,))


def _is_torchs(facts: Facts, missing: list[str]) -> bool:
    """Whether PyTorch's cuDNN of another major version takes the place of TensorFlow's."""
    cudnn = facts.python.package("nvidia-cudnn-cu12")
    wanted = next((soname.rpartition(".")[2] for soname in missing if soname.startswith("libcudnn")), None)
    return bool(facts.python.package("torch") and cudnn and wanted and not cudnn.version.startswith(wanted + "."))


def judge_cudnn(facts: Facts, package: Package, wanted: Version) -> Iterator[Finding]:
    asked = package.requirement("nvidia-cudnn-cu")
    name = asked.name if asked else "nvidia-cudnn-cu11"
    version = cudnn_version(facts, package, name, wanted.major)
    if Version(version).release[:2] < wanted.release[:2]:
        yield OLD_CUDNN.found(
            f"TensorFlow {package.version} was built with cuDNN {wanted}; {version} is installed",
            {
                "requirement": f"{name}>={wanted},<{wanted.major + 1}",
                "package": f"tensorflow[and-cuda]=={Version(package.version).public}",
                "cudnn": version,
            },
            packages=(package.name, name),
        )


def cudnn_version(facts: Facts, package: Package, name: str, major: int) -> str:
    """The version of the cuDNN that TensorFlow opens: of a wheel from its metadata, since its files do not contain it."""
    opened, wheel = library(facts, package, "libcudnn", f"libcudnn.so.{major}"), facts.python.package(name)
    version = wheel.version if wheel and opened and opened.owner == "wheel" else opened and opened.version
    if not version or "." not in version:
        raise Skip("the version of cuDNN cannot be determined", Skip.NO_ANSWER)
    return version


def summary(facts: Facts) -> str:
    package = installed(facts)
    cuda, cudnn = built_with(package)
    return f"TensorFlow {package.version} with CUDA {cuda} and cuDNN {cudnn.major}"


CHECK = Check(judge=judge, summary=summary, problems=(CPU_ONLY, NO_LIBRARIES, OLD_CUDNN))
