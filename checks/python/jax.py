"""JAX has its CUDA plugin in the version of jaxlib, and the driver and cuDNN are new enough.

What it means
JAX alone runs on the CPU. GPU support comes from a plugin: jax-cuda12-plugin or jax-cuda13-plugin, each with a second package
-pjrt. Both packages must have exactly the version of jaxlib. The plugin uses the driver and the CUDA libraries that it finds.

How it is judged
A plugin is installed. The versions of the plugin and of its -pjrt package start with the numbers of jaxlib's version; otherwise
JAX ignores the plugin with a warning. The driver supports the CUDA release in the plugin's name. cuBLAS and cuDNN are installed,
and cuDNN is not older than the plugin's metadata requires: JAX compares the major and minor version. JAX uses NVIDIA's wheel if
it is installed, otherwise what the loader finds.

Known exceptions
JAX_PLATFORMS=cpu requests the CPU, which is only a note. conda builds, old builds (jaxlib with +cuda in its version) and builds
for other accelerators have no plugin of this name. Without a CUDA driver, running on the CPU is right.

References
https://github.com/jax-ml/jax/blob/main/docs/installation.md
https://github.com/jax-ml/jax/issues/17497
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.facts.packages import Package, oldest_of
from gpudoctor.fixes.common import NEWER_DRIVER
from gpudoctor.judging.python.driver_libraries import WRONG_LIBCUDA
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

GUIDE = "https://github.com/jax-ml/jax/blob/main/docs/installation.md"
FIRST_OF_CUDA_13 = (7, 5)  # Turing
DEVICES = "<python> -c 'import jax; print(jax.devices())'"
REINSTALL = Fix(
    "Install JAX with its plugin and its CUDA libraries", "<python> -m pip install -U <package>", verify=DEVICES, kind="install"
)

CPU_ONLY = Problem(
    id="jax-cpu-only",
    title="JAX is installed without CUDA and computes on the CPU",
    why="'pip install jax' does not install CUDA support; the GPU plugin is an extra. JAX warns once and falls back to the CPU.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        REINSTALL,
        Fix(
            "If JAX should use the CPU: set JAX_PLATFORMS, which silences the warning", "export JAX_PLATFORMS=cpu", where="shell"
        ),
    ),
    references=(GUIDE,),
)

VERSIONS_DIFFER = Problem(
    id="jax-plugin-version-mismatch",
    title="JAX ignores its CUDA plugin: its version differs from jaxlib's",
    why="After a partial upgrade, the plugin and jaxlib have different versions. JAX then ignores the plugin with only a "
    "warning and computes on the CPU.",
    action=Action.INSTALL,
    fixes=(replace(REINSTALL, title="Install all parts in the same version"),),
    references=(GUIDE,),
)

OLD_DRIVER = Problem(
    id="jax-driver-too-old",
    title="The driver is too old for JAX's CUDA plugin",
    why="The plugin is built for a newer CUDA release than this driver supports.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install the plugin that this driver supports",
            "<python> -m pip uninstall -y <plugin> <half> && <python> -m pip install -U <package>",
            verify=DEVICES,
            kind="install",
        ),
        NEWER_DRIVER,
    ),
    references=(GUIDE,),
)

UPGRADE = "<python> -m pip install -U <requirement>"
OLD_CUDNN = Problem(
    id="jax-cudnn-too-old",
    title="cuDNN is older than JAX was built with",
    why="PyTorch pins one release of NVIDIA's cuDNN wheel, and installing PyTorch downgrades the copy that JAX uses too. JAX "
    "needs the release that it was built with, or a newer one.",
    action=Action.INSTALL,
    fixes=(
        Fix("Install a newer cuDNN (PyTorch works with it, although pip complains)", UPGRADE, verify=DEVICES, kind="install"),
        Fix(
            "Install JAX in a separate environment without PyTorch",
            "<python> -m venv ~/jax && ~/jax/bin/python -m pip install -U <package>",
            verify="~/jax/bin/python -c 'import jax; print(jax.devices())'",
            kind="install",
        ),
    ),
    references=(GUIDE, "https://github.com/jax-ml/jax/issues/17497"),
)

NO_LIBRARIES = Problem(
    id="jax-cuda-libraries-missing",
    title="JAX's CUDA plugin finds no CUDA libraries",
    why="The plugin was installed without the CUDA wheels. It then needs CUDA libraries of the machine, which were not found.",
    action=Action.INSTALL,
    fixes=(REINSTALL,),
    references=(GUIDE,),
)

SET_TO_ANOTHER = Problem(
    id="jax-set-to-cpu",
    title="A variable keeps JAX from the GPU",
    why="With JAX_PLATFORMS, JAX uses the platforms that it names and no others, without a warning.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("If JAX should use the GPU: unset it, in this shell", "unset <variable>", verify=DEVICES, kind="set", where="shell"),
    ),
    references=("https://docs.jax.dev/en/latest/config_options.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    plugins = plugins_of(facts)
    name, value = set_platforms(facts) if plugins else ("", "")
    if keeps_from_gpu(value) and facts.cuda.devices:
        yield SET_TO_ANOTHER.found(f"{name}={value}, and JAX's CUDA plugin is installed", {"variable": name}).as_note
        return
    jaxlib = wanted(facts)
    if not plugins and facts.python.lacks("jax-cuda12-plugin"):
        message = f"jaxlib {jaxlib.version} is installed, but no CUDA plugin"
        yield CPU_ONLY.found(message, {"package": f"jax[cuda{right_cuda(facts)}]"}, packages=("jaxlib",))
    for major, plugin in plugins.items():
        yield from judge_plugin(facts, major, plugin, jaxlib)


def wanted(facts: Facts) -> Package:
    """jaxlib, if JAX is meant to use a GPU through a plugin."""
    jaxlib = facts.python.package("jaxlib")
    if jaxlib is None or facts.python.package("jax") is None:
        raise Skip("JAX is not installed in this Python")
    platforms = set_platforms(facts)[1]
    if keeps_from_gpu(platforms):
        raise Skip(f"JAX is configured to use {platforms}")
    if facts.cuda.library is None:
        raise Skip("no CUDA driver is available to JAX")
    conda = facts.python.conda_packages.get("jaxlib")
    if "cuda" in jaxlib.version or (conda and "cuda" in conda.build):
        raise Skip("this jaxlib has CUDA built in")
    if any(name.startswith(("jax-rocm", "libtpu", "jax-oneapi")) for name in facts.python.packages):
        raise Skip("this JAX is for another accelerator")
    return jaxlib


def set_platforms(facts: Facts) -> tuple[str, str]:
    """The variable that chooses JAX's platforms, and its value; "" if none is set."""
    found = ((name, facts.environment.get(name) or "") for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME"))
    return next(((name, value) for name, value in found if value), ("", ""))


def keeps_from_gpu(platforms: str) -> bool:
    return bool(platforms) and not re.search("cuda|gpu", platforms)


def plugins_of(facts: Facts) -> dict[int, Package]:
    """CUDA release -> plugin."""
    names = {major: facts.python.package(f"jax-cuda{major}-plugin") for major in (12, 13)}
    return {major: plugin for major, plugin in names.items() if plugin}


def right_cuda(facts: Facts) -> int:
    """The CUDA release to use: that of the installed wheels, else the newest that the driver and all GPUs support."""
    driver = facts.cuda.driver_version[0]
    present = [major for major in (13, 12) if major <= driver and facts.python.package(f"nvidia-cudnn-cu{major}")]
    is_old = any(device.compute_capability < FIRST_OF_CUDA_13 for device in facts.cuda.devices)
    return present[0] if present else min(driver, 12 if is_old else 13)


def judge_plugin(facts: Facts, major: int, plugin: Package, jaxlib: Package) -> Iterator[Finding]:
    half = facts.python.package(f"jax-cuda{major}-pjrt")
    others = {f"jax-cuda{major}-plugin": plugin.version, f"jax-cuda{major}-pjrt": half.version if half else None}
    different = {name: version for name, version in others.items() if version and _digits(version) != _digits(jaxlib.version)}
    if different:
        jax = facts.python.packages["jax"][0].version
        words = ", ".join(f"{name} {version}" for name, version in different.items())
        package = f"jax[cuda{major}]=={Version(jax).public}"
        yield VERSIONS_DIFFER.found(
            f"jaxlib {jaxlib.version} with {words}", {"package": package, **others}, packages=("jaxlib", *others)
        )
    elif facts.cuda.driver_version[0] < major:
        yield old_driver(facts, major)
    else:
        yield from libraries(facts, major, plugin)


def old_driver(facts: Facts, major: int) -> Finding:
    driver = facts.cuda.driver_version
    evidence = {
        "plugin": f"jax-cuda{major}-plugin",
        "half": f"jax-cuda{major}-pjrt",
        "package": f"jax[cuda{driver[0]}]",
        "driver_cuda": "{}.{}".format(*driver),
    }
    message = f"the plugin is built for CUDA {major}; the driver supports CUDA {driver[0]}.{driver[1]}"
    problem = OLD_DRIVER if driver[0] >= 12 else replace(OLD_DRIVER, fixes=OLD_DRIVER.fixes[1:])
    return replace(problem.found(message, evidence, packages=(f"jax-cuda{major}-plugin",)), causes=WRONG_LIBCUDA)


def libraries(facts: Facts, major: int, plugin: Package) -> Iterator[Finding]:
    asked = plugin.requirement("nvidia-cudnn")
    soname = f"libcudnn.so.{oldest_of(asked).major if asked else 9}"
    package = f"jax[cuda{major}]=={Version(plugin.version).public}"
    found = cudnn_of(facts, major, soname)
    missing = [soname] * (not found) + [f"libcublas.so.{major}"] * (major not in facts.libraries.majors("libcublas"))
    if missing:
        yield NO_LIBRARIES.found(
            f"jax-cuda{major}-plugin needs {' and '.join(missing)}, not found", {"package": package}, packages=(plugin.name,)
        )
    elif asked and found and Version(found[0]).release[:2] < oldest_of(asked).release[:2]:
        message = f"jax-cuda{major}-plugin {plugin.version} needs cuDNN {oldest_of(asked)} or newer; {found[1]} is {found[0]}"
        requirement = f"{asked.name}{asked.specifier}"
        yield OLD_CUDNN.found(
            message,
            {"requirement": requirement, "cudnn": found[0], "found": found[1], "package": package},
            packages=(plugin.name, asked.name),
        )


def cudnn_of(facts: Facts, major: int, soname: str) -> tuple[str, str] | None:
    """The version and the location of the cuDNN that JAX uses."""
    wheel = facts.python.package(f"nvidia-cudnn-cu{major}")
    if wheel:
        return wheel.version, "NVIDIA's wheel"
    library = facts.libraries.resolved(soname) or facts.libraries.majors("libcudnn").get(int(soname.rsplit(".", 1)[-1]))
    return (library.version, library.path) if library and library.version else None


def _digits(version: str) -> str:
    """The part that JAX compares: the leading numbers."""
    match = re.match(r"\d+(\.\d+)*", version)
    return match[0] if match else version


def summary(facts: Facts) -> str:
    names = ", ".join(f"jax-cuda{major}-plugin {plugin.version}" for major, plugin in plugins_of(facts).items())
    return f"jaxlib {wanted(facts).version} with {names}"


PROBLEMS = (CPU_ONLY, SET_TO_ANOTHER, VERSIONS_DIFFER, OLD_DRIVER, OLD_CUDNN, NO_LIBRARIES)
CHECK = Check(
    judge=judge,
    summary=summary,
    problems=PROBLEMS,
    explained_by=("driver-cuda-support",),
)
