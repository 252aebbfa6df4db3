"""CTranslate2, which faster-whisper runs on, finds the CUDA libraries that it was built for.

What it means
CTranslate2 opens cuBLAS and cuDNN by name when it first computes on the GPU. Its package includes neither. Libraries of another
major version do not work: "Library libcublas.so.12 is not found or cannot be loaded".

How it is judged
libcublas and libcudnn of the major versions that this release was built for are installed: as wheels, by conda, in a toolkit or
where the loader looks. It is a failure with faster-whisper or WhisperX, which use the GPU by default, and a warning otherwise.

Known exceptions
On the CPU, CTranslate2 needs none of these libraries. Without a CUDA driver, running on the CPU is right. conda's builds include
their libraries. A missing cuDNN 8 is reported by the check cudnn.

References
https://github.com/OpenNMT/CTranslate2/issues/1933
https://github.com/SYSTRAN/faster-whisper/issues/1431
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packaging.version import Version

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.packages import Package
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

TAKE_THE_GPU = ("faster-whisper", "whisperx", "whisper-ctranslate2")
FIRST_CUDNN_HERE = 9  # a missing cuDNN 8 is reported by the check cudnn
WORKS = "<python> -c \"import ctranslate2 as c; print(c.get_supported_compute_types('cuda'))\""

LIBRARY_MISSING = Problem(
    id="ctranslate2-cuda-libraries-missing",
    title="CTranslate2 cannot compute on the GPU: a CUDA library is missing",
    why="CTranslate2 opens cuBLAS and cuDNN of exactly the major versions that it was built for, and no package installs them. "
    "A newer CUDA on the machine does not replace them.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install them in the same environment; nothing else changes",
            "<python> -m pip install <wheels>",
            needs=("network",),
            kind="install",
        ),
        Fix(
            "Add their folders to LD_LIBRARY_PATH before the program starts",
            'export LD_LIBRARY_PATH=$(<python> -c "import glob, nvidia; '
            "print(':'.join(glob.glob(nvidia.__path__[0] + '/cu[bd]*/lib')))\"):$LD_LIBRARY_PATH",
            verify=WORKS,
            where="shell",
        ),
    ),
    references=("https://github.com/OpenNMT/CTranslate2/issues/1933", "https://github.com/SYSTRAN/faster-whisper/issues/1431"),
)


def judge(facts: Facts) -> Iterator[Finding]:
    package = installed(facts)
    needed = built_for(package)
    missing = {name: major for name, major in needed.items() if major not in facts.libraries.majors(name)}
    if needed["libcudnn"] < FIRST_CUDNN_HERE:
        missing.pop("libcudnn", None)
    if not missing:
        return
    words = " and ".join(f"{name}.so.{major} (here: {facts.libraries.here(name)})" for name, major in missing.items())
    wheels = wheels_of(facts, needed, missing)
    asks = next((name for name in TAKE_THE_GPU if facts.python.package(name)), None)
    problem = LIBRARY_MISSING if asks else replace(LIBRARY_MISSING, status=Status.WARN)
    yield problem.found(
        f"ctranslate2 {package.version} needs {words}",
        {"wheels": wheels, "missing": missing, "for": asks},
        packages=("ctranslate2",),
    )


def installed(facts: Facts) -> Package:
    package = facts.python.package("ctranslate2")
    if package is None:
        raise Skip("CTranslate2 is not installed in this Python")
    if facts.cuda.library is None:
        raise Skip("no CUDA driver is available to CTranslate2")
    if package.installer == "conda":
        raise Skip("conda installs the libraries of its builds")
    if facts.system.architecture != "x86_64":
        raise Skip(f"CTranslate2's package for {facts.system.architecture} is built without CUDA")
    return package


def built_for(package: Package) -> dict[str, int]:
    """Library -> its major version."""
    release = Version(package.version).release
    for row in knowledge.packages("ctranslate2"):
        since = Version(row.version).release
        if since <= release and since[0] == release[0]:
            return {"libcublas": int(row.cuda.split(".")[0]), "libcudnn": int((row.cudnn or "").split(".")[0])}
    raise Skip(f"the CUDA release that ctranslate2 {package.version} was built for is unknown", Skip.NO_ANSWER)


def wheels_of(facts: Facts, needed: dict[str, int], missing: dict[str, int]) -> list[str]:
    """The wheels to install. NVIDIA's cuDNN wheels for all CUDA releases unpack to one folder, so only one can be installed."""
    cuda = needed["libcublas"]
    cublas, cudnn = f"nvidia-cublas-cu{cuda}", f"nvidia-cudnn-cu{cuda}=={needed['libcudnn']}.*"
    has_other = any(facts.python.package(f"nvidia-cudnn-cu{other}") for other in (11, 12, 13) if other != cuda)
    return [cublas] * ("libcublas" in missing) + [cudnn] * (not has_other)


def summary(facts: Facts) -> str:
    package = installed(facts)
    return f"ctranslate2 {package.version} with CUDA {built_for(package)['libcublas']} libraries"


CHECK = Check(judge=judge, summary=summary, problems=(LIBRARY_MISSING,))
