"""What a program of a text gets from its start: sudo and services without the shell's variables, libraries before its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

WITH_SUDO = Problem(
    id="sudo-drops-environment",
    title="sudo starts the program without the shell's environment",
    why="sudo resets PATH and the other variables, and LD_LIBRARY_PATH always. It finds the system's Python instead of that of "
    "an activated environment, and no CUDA toolkit outside of the folders in secure_path.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Start it without sudo; if files that an earlier sudo created are in the way, give them back to your user (chown)"),
        Fix(
            "If it has to be root: pass the variables on",
            'sudo env "PATH=$PATH" "LD_LIBRARY_PATH=$LD_LIBRARY_PATH" python <program>.py',
            kind="manual",
            needs=("root",),
        ),
    ),
    references=("https://www.sudo.ws/docs/man/sudoers.man/#Command_environment",),
)
AS_SERVICE = Problem(
    id="service-without-shell-variables",
    title="The service does not get a variable that the shell has",
    why="systemd starts services with a short list of variables. What ~/.bashrc, conda activate or a module sets, such as "
    "LD_LIBRARY_PATH, exists only in shells, so the service does not find the same libraries.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Add Environment=LD_LIBRARY_PATH=…, with the shell's value, under [Service], then restart the service",
            "sudo systemctl edit <unit> && sudo systemctl restart <unit>",
            verify="systemctl show -p Environment <unit>",
            risk="disruptive",
            where="host",
            kind="manual",
            needs=("root",),
        ),
    ),
    references=("https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#Environment",),
)
JULIA = Problem(
    id="julia-loads-other-cuda-libraries",
    title="CUDA.jl loads libraries of another CUDA release than its own",
    why="CUDA.jl brings the libraries of its runtime. LD_LIBRARY_PATH is searched before them, so those of another toolkit are "
    "loaded, which CUDA.jl does not support.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Start Julia without the variable", "unset LD_LIBRARY_PATH", where="shell", kind="set"),
        Fix(
            "Use the installed toolkit instead, on purpose",
            "julia -e 'using CUDA; CUDA.set_runtime_version!(local_toolkit=true)'",
            kind="set",
        ),
    ),
    references=("https://cuda.juliagpu.org/stable/installation/overview/",),
)
PROBLEMS = (WITH_SUDO, AS_SERVICE, JULIA)

_SUDO = re.compile(
    r"""
    (?:^|[$\#:]\ ?)sudo\ (?:-\w+\ )*(?:\S*/)?(?P<what>python[\d.]*|pip[\d.]*|make|cmake|\./\S+|bash|sh)\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_LACKS = re.compile(
    r"""
    No\ module\ named\ ['"]?(?P<module>[\w.]+) | \b(?P<program>nvcc|python3?|conda|pip3?|gpu\w*):\ (?:command\ )?not\ found
    | (?P<library>lib[\w.+-]+\.so[\d.]*):\ cannot\ open\ shared\ object | sudo:\ (?P<unknown>[\w.-]+):\ command\ not\ found
    """,
    re.VERBOSE,
)
_WORKS = re.compile(
    r"""
    \bwithout\ sudo\b | \b(?:normal\w*|fine|works?|working)\b[^\n]{0,60}\b(?:shell|terminal|user|without)\b
    | ^\s*(?:/|~)\S*/(?:\.?virtualenvs?|\.?venvs?|envs|(?:ana|mini)conda\d?|mini(?:forge|mamba)\d?)/\S+
    | ^\s*/usr/local/cuda\S*/bin/nvcc\s*$
    | \bis\ (?:already\ )?installed\b | Requirement\ already\ satisfied
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)


def with_sudo(facts: Facts) -> Iterator[Finding]:
    """What runs under sudo misses a module, a program or a library that the text shows without sudo."""
    for text in passages(facts):
        started, missed = _SUDO.search(text), _LACKS.search(text)
        is_build = started and started["what"] in ("make", "cmake")  # a message of the build itself says that
        if started and missed and not is_build and _WORKS.search(_LACKS.sub("", text)):
            name = next(filter(None, missed.groups()))
            words = f"sudo {started['what']} does not find {name}, which the user's shell has"
            yield WITH_SUDO.found(words, {"missing": name}, confidence=Confidence.LIKELY)
            return


_SECTION = re.compile(r"(?m)^\[Service\]\n(?P<rows>(?:[^\n\[]*\n?)+)")
_NO_LIBRARY = re.compile(
    r"""
    Cannot\ dlopen\ some\ GPU\ libraries | Could\ not\ load\ dynamic\ library | cannot\ open\ shared\ object\ file
    """,
    re.VERBOSE,
)
_UNIT = re.compile(r"\bsystemctl (?:cat|status|show|edit)\s+(?:-\S+ )*(?P<unit>[\w@.-]+)")


def as_service(facts: Facts) -> Iterator[Finding]:
    """A unit without the LD_LIBRARY_PATH of the shell, whose program misses a library."""
    text = "\n".join(passages(facts))
    section, path = _SECTION.search(text), known(lambda: facts.environment.get("LD_LIBRARY_PATH"))
    if section and path and "LD_LIBRARY_PATH" not in section["rows"] and _NO_LIBRARY.search(text):
        unit = _UNIT.search(text)
        words = f"the shell has LD_LIBRARY_PATH={path}, and the service does not"
        evidence = {"folder": path, **({"unit": unit["unit"]} if unit else {})}
        yield AS_SERVICE.found(words, evidence, confidence=Confidence.LIKELY)


_RUNTIME = re.compile(r"(?m)^CUDA runtime (?P<release>\d+\.\d+), artifact installation")
_LIBRARY = re.compile(r"(?m)^- CUBLAS: (?P<release>\d+\.\d+)")


def julias_libraries(facts: Facts) -> Iterator[Finding]:
    """CUDA.versioninfo() shows cuBLAS of a later CUDA than the runtime, and LD_LIBRARY_PATH names a toolkit."""
    text = "\n".join(passages(facts))
    runtime, library = _RUNTIME.search(text), _LIBRARY.search(text)
    path = known(lambda: facts.environment.get("LD_LIBRARY_PATH")) or ""
    if not (runtime and library and "cuda" in path):
        return
    own, other = (tuple(map(int, match["release"].split("."))) for match in (runtime, library))
    if own[0] == other[0] and own != other and own[0] >= FIRST_EQUAL:
        words = f"CUDA.jl's runtime is {runtime['release']}, its cuBLAS {library['release']}, and LD_LIBRARY_PATH is {path}"
        yield JULIA.found(words, {"LD_LIBRARY_PATH": path}, confidence=Confidence.LIKELY)


FIRST_EQUAL = 12  # from this CUDA on cuBLAS has nearly the same numbers
_RUN = re.compile(r"(?m)^[^\n]*\b(?:docker|podman) run (?P<options>[^\n]+)$")
_GIVEN = re.compile(r"--gpus|--runtime|nvidia\.com/gpu|/dev/nvidia|--privileged|--device")


def container_on_cpu(facts: Facts) -> Iterator[Finding]:
    """Ollama computes on the CPU in a container that was started without GPUs, and nvidia-smi lists one."""
    runs = [match["options"] for text in passages(facts) for match in _RUN.finditer(text)]
    is_bare = len(runs) == 1 and "ollama" in runs[0] and not _GIVEN.search(runs[0])
    if facts.shown.ollama_on_cpu and is_bare and known(lambda: facts.nvml.count, 0):
        words = "the container was started without --gpus, and its model is on the CPU"
        yield facts.problems["container-no-gpus-flag"].found(words, {}, confidence=Confidence.LIKELY)


RULES = (container_on_cpu, with_sudo, as_service, julias_libraries)
