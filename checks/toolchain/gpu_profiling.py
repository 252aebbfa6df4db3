"""The profilers that are installed see a kernel: PyTorch's, Nsight Compute (ncu) and Nsight Systems (nsys).

What it means
A profiler needs a library that fits the driver and the GPU, and permission to read counters that no other tool is using. If one
of these is missing, an empty trace is usually the only sign.

How it is judged
Each installed profiler runs on a program with one known kernel and must return the kernel's name and time; ncu must also return a
hardware counter. If a profiler fails, its own output shows the reason.

Known exceptions
A profiler that is not installed is not a fault. Under WSL2, ncu's counters depend on Windows and are not judged. ncu runs with
--clock-control none, so that no clock changes, and with a separate HOME and lock file. Each profiler runs once, on the first GPU
that is measured.

References
https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html
https://docs.nvidia.com/nsight-systems/UserGuide/index.html
https://docs.nvidia.com/cupti/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.fixes.engines import again
from gpudoctor.model import Action, Check, Confidence, Figure, Finding, Fix, Problem, Skip, Status, Unavailable

AGAIN = "gpudoctor check --only gpu-profiling"
GUIDE = "https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html"
PERMISSION = (
    "https://developer.nvidia.com/nvidia-development-tools-solutions-ERR_NVGPUCTRPERM-permission-issue-performance-counters"
)
PROFILERS = {"profile-torch": "torch.profiler", "profile-ncu": "ncu", "profile-nsys": "nsys"}
HARMLESS = (Skip.NOT_INSTALLED, Skip.UNSUPPORTED, Skip.NOT_APPLICABLE)
LAST_LINES = 12

DENIED = Problem(
    id="profiler-denied",
    title="A profiler does not have permission to profile the GPU",
    why="The driver restricts the GPU's counters to administrators, since counters can reveal what other users compute. For "
    "other users, the parts of a profiler that need counters return nothing.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Allow it for all users from the next reboot",
            "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/nvidia-profiling.conf",
            needs=("root", "reboot"),
            verify="grep RmProfilingAdminOnly /proc/driver/nvidia/params",
            on=("host",),
            kind="set",
            undo="sudo rm /etc/modprobe.d/nvidia-profiling.conf",
        ),
        *again(
            "Restart the container with permission to profile",
            "run --rm <all_gpus> --cap-add=SYS_ADMIN <image>",
            spec="add the capability SYS_ADMIN to securityContext.capabilities",
            on=("container",),
        ),
        Fix("Profile as root", "sudo -E env PATH=$PATH ncu <python> <program>.py", on=("host",), needs=("root",)),
    ),
    references=(PERMISSION,),
    status=Status.WARN,
)
TAKEN = Problem(
    id="profiler-counters-taken",
    title="Another tool holds the GPU's performance counters",
    why="Only one tool at a time can use the counters. Usually it is DCGM, which a cluster's monitoring (dcgm-exporter, "
    "DCGM_FI_PROF_*) reads all the time, or a second profiler in the same program.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Pause DCGM while you profile, and resume it afterwards", "dcgmi profile --pause", verify=AGAIN, kind="manual"),
        look("Look for other profilers", "ps -ef | grep -E 'dcgm|ncu|nsys|cupti' | grep -v grep; env | grep INJECTION"),
    ),
    references=(GUIDE,),
    status=Status.WARN,
)
INCOMPLETE = Problem(
    id="profiler-library-missing",
    title="A library that the profiler needs is missing or cannot be loaded",
    why="The profiler's program is installed. CUPTI, a library of the driver or a component of the profiler is missing or "
    "cannot be loaded. In sandboxes such as gVisor, the driver's interface for profilers is missing entirely.",
    action=Action.INSTALL,
    fixes=(
        look("List the libraries that the loader finds", "ldconfig -p | grep -E 'cupti|nvidia-ml|libcuda|nvperf'"),
        Fix(
            "For PyTorch: reinstall it with the CUPTI of its CUDA release",
            "<python> -m pip install --force-reinstall torch",
            needs=("network",),
            kind="install",
        ),
        Fix("Reinstall Nsight Compute or Nsight Systems from NVIDIA's package", verify=AGAIN),
        Fix("In gVisor and similar sandboxes: use only torch.profiler or nsys without counters", verify=AGAIN, on=("container",)),
    ),
    references=(GUIDE,),
    status=Status.WARN,
)
MISFIT = Problem(
    id="profiler-does-not-fit",
    title="The profiler does not support this driver or this GPU",
    why="A profiler requires a recent enough driver, and must itself be recent enough for the GPU.",
    action=Action.INSTALL,
    fixes=(
        look("List the GPUs that this ncu supports", "ncu --list-chips; ncu --version; nvidia-smi"),
        Fix(
            "If the GPU is newer than the profiler: install a newer profiler. If the driver is older: install an older "
            "profiler or a newer driver"
        ),
    ),
    references=("https://docs.nvidia.com/nsight-compute/ReleaseNotes/index.html",),
    status=Status.WARN,
)
HANGS = Problem(
    id="profiler-hangs",
    title="The profiler hangs on a program with one kernel",
    why="Without the profiler, the same program takes a second. The profiler waits for another profiler, a lock or the driver.",
    action=Action.RESTART_APP,
    fixes=(
        look("Look for other profilers that run or hang", "ps -ef | grep -E 'ncu|nsys|dcgm' | grep -v grep"),
        look("Look for a lock that another user left behind", "ls -l /tmp/nsight-compute-lock"),
    ),
    references=(GUIDE,),
    status=Status.WARN,
)
BLIND = Problem(
    id="profiler-sees-no-kernel",
    title="The profiler ends without seeing the kernel",
    why="The program ran a kernel, but the profiler's result does not contain it. The profiler's output is not one of the "
    "known errors.",
    action=Action.WATCH,
    fixes=(look("Read its complete output", AGAIN + " --format json"),),
    references=(GUIDE,),
    status=Status.WARN,
)


class Sign(NamedTuple):
    """A pattern of a profiler's output, its problem, and the problem of a quick check behind it."""

    pattern: str
    problem: Problem
    because: str = ""


SIGNS = (
    Sign(r"ERR_NVGPUCTRPERM|INSUFFICIENT_PRIVILEGES|RestrictProfilingToAdminUsers", DENIED, "profiler-counters-restricted"),
    Sign(r"driver resource was unavailable|MULTIPLE_SUBSCRIBERS|HARDWARE_BUSY", TAKEN),
    Sign(r"not compatible with Nsight|NOT_COMPATIBLE|CUPTI_ERROR_INVALID_DEVICE|not supported on (?:this )?device", MISFIT),
    Sign(r"LibraryNotLoaded|libcupti|CUPTI initialization failed|CUPTI_ERROR_NOT_INITIALIZED|CUPTI_ERROR_UNKNOWN", INCOMPLETE),
    Sign(r"directory is not found|not installed on your system|QdstrmImporter|Failed to load Nsight", INCOMPLETE),
)
MARK = re.compile(r"^==\w+== |^(?:ERROR|WARNING|INFO):\S+ \S+ \S+ \S+\] ")  # prefixes of ncu and of torch's profiler
WITHOUT_CUPTI = "this PyTorch was built without CUPTI"


def judge(facts: Facts) -> Iterator[Finding]:
    unread = []
    for workload, name in PROFILERS.items():
        try:
            yield from judge_one(facts, workload, name)
        except Skip as skip:
            unread.append(skip)
    if len(unread) == len(PROFILERS):
        raise unread[0]
    for reason in unread:
        if reason.kind not in HARMLESS:
            raise reason


def judge_one(facts: Facts, workload: str, name: str) -> Iterator[Finding]:
    values = results(facts, workload)
    if sees(values):
        return
    said = words(values)
    row = values.get("row", {})
    if name == "ncu" and facts.system.wsl:
        raise Skip("under WSL2 the GPU's counters depend on Windows", Skip.UNSUPPORTED)
    sign = next((sign for sign in SIGNS if re.search(sign.pattern, said)), None)
    if values.get(name, {"code": 0})["code"] is None:
        sign = Sign("", HANGS)
    elif row.get("built_with_cupti") is False:
        sign, said = Sign("", INCOMPLETE), WITHOUT_CUPTI
    problem = sign.problem if sign else BLIND
    told = next((line for line in said.splitlines() if sign and sign.pattern and re.search(sign.pattern, line)), said_last(said))
    told = MARK.sub("", told)
    if problem is HANGS:
        told = f"did not finish within {values[name]['seconds']:.0f} s; its last output: {told}"
    evidence = {"path": values.get(name, {}).get("path"), "last_words": " | ".join(said.splitlines()[-LAST_LINES:])}
    finding = problem.found(f"{name}: {told}", evidence, confidence=Confidence.CONFIRMED if sign else Confidence.UNKNOWN)
    yield replace(finding, because=sign.because if sign else "")


def results(facts: Facts, workload: str) -> Mapping[str, Any]:
    values = facts.measured.runs(workload)[0].values
    if not {"row", "broken", PROFILERS[workload]} & set(values):
        raise Unavailable(f"{workload} did not finish: see measurements")
    return values


def sees(values: Mapping[str, Any]) -> bool:
    return bool(values.get("row", {}).get("kernel"))


def words(values: Mapping[str, Any]) -> str:
    """The complete output of a profiler."""
    texts = [values[name].get(key) for name in ("broken", "row", "ncu", "nsys") if name in values for key in ("error", "printed")]
    return "\n".join(text for text in texts if text)


def said_last(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "its trace contains no kernel, and it printed nothing"


def figures(facts: Facts) -> Iterator[Figure]:
    """The duration of the kernel that each profiler reports."""
    for workload, name in PROFILERS.items():
        try:
            run = facts.measured.runs(workload)[0]
        except Skip:
            continue
        row = run.values.get("row", {})
        if row.get("kernel") and row.get("microseconds"):
            yield Figure(f"kernel seen by {name}", row["microseconds"], "us", run.gpu)


def summary(facts: Facts) -> str:
    found, absent = [], []
    for workload, name in PROFILERS.items():
        try:
            results(facts, workload)
            found.append(name)
        except Skip as skip:
            absent.append(f"{name}: {skip.reason}")
    return f"{', '.join(found)}: kernel found" + (f"; {'; '.join(absent)}" if absent else "")


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(DENIED, TAKEN, INCOMPLETE, MISFIT, HANGS, BLIND),
    needs=("cuda-context",),
    level="full",
    workloads=tuple(PROFILERS),
    figures=figures,
)
