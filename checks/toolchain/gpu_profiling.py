"""The profilers that are installed see a kernel: PyTorch's, Nsight Compute (ncu) and Nsight Systems (nsys).

What it means
A profiler needs a library that fits the driver and the GPU, the right to read counters, and that no other tool holds them. When
one of these is missing, mostly an empty trace is all that tells it.

How it is judged
Each profiler that is installed looks at a program that runs one known kernel, and has to come back with its name and its time;
ncu also with a hardware counter. Where one does not, its own words tell which of the reasons it is.

Known exceptions
A profiler that is not installed is no fault. Under WSL2 ncu's counters depend on Windows, and nothing is judged. ncu runs with
--clock-control none, so that no clock is changed, and with a HOME and a lock file of its own. All is tried once, on the first
GPU that is measured.

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
    title="A profiler may not look at the GPU",
    why="The driver keeps the GPU's counters for administrators, since they can betray what others compute. Parts of a profiler "
    "that need them give nothing to other users.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Allow it to every user, from the next reboot on",
            "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/nvidia-profiling.conf",
            needs=("root", "reboot"),
            verify="grep RmProfilingAdminOnly /proc/driver/nvidia/params",
            on=("host",),
            kind="set",
        ),
        *again(
            "Start the container again with the right",
            "run --rm <all_gpus> --cap-add=SYS_ADMIN IMAGE",
            spec="--cap-add=SYS_ADMIN",
            on=("container",),
        ),
        Fix("Profile as root", "sudo -E env PATH=$PATH ncu <python> PROGRAM.py", on=("host",), needs=("root",)),
    ),
    references=(PERMISSION,),
    status=Status.WARN,
)
TAKEN = Problem(
    id="profiler-counters-taken",
    title="Another tool holds the GPU's counters, so that the profiler gets none",
    why="One tool at a time can use them. Mostly it is DCGM, which a cluster's monitoring (dcgm-exporter, DCGM_FI_PROF_*) keeps "
    "reading, or a second profiler in the same program.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Let DCGM pause while you profile, and go on after", "dcgmi profile --pause", verify=AGAIN, kind="manual"),
        look("Look for other profilers", "ps -ef | grep -E 'dcgm|ncu|nsys|cupti' | grep -v grep; env | grep INJECTION"),
    ),
    references=(GUIDE,),
    status=Status.WARN,
)
INCOMPLETE = Problem(
    id="profiler-library-missing",
    title="A library or a part that the profiler needs is missing or cannot be loaded",
    why="The profiler's program is there. CUPTI, a library of the driver or a part of the profiler's own installation is not; in "
    "sandboxes such as gVisor the driver's interface for profilers is missing altogether.",
    action=Action.INSTALL,
    fixes=(
        look("See what the loader lacks", "ldconfig -p | grep -E 'cupti|nvidia-ml|libcuda|nvperf'"),
        Fix(
            "For PyTorch: install CUPTI of its CUDA",
            "<python> -m pip install --force-reinstall torch",
            needs=("network",),
            kind="install",
        ),
        Fix("Install Nsight Compute or Nsight Systems anew, from NVIDIA's package", verify=AGAIN),
        Fix("In gVisor and the like: only torch.profiler or nsys without counters can work", verify=AGAIN, on=("container",)),
    ),
    references=(GUIDE,),
    status=Status.WARN,
)
MISFIT = Problem(
    id="profiler-does-not-fit",
    title="The profiler does not know this driver or this GPU",
    why="A profiler needs a driver that is new enough for it, and must itself be new enough for the GPU.",
    action=Action.INSTALL,
    fixes=(
        look("See which GPUs this ncu knows", "ncu --list-chips; ncu --version; nvidia-smi"),
        Fix("GPU newer than the profiler: install a newer one. Driver older: install an older profiler or a newer driver"),
    ),
    references=("https://docs.nvidia.com/nsight-compute/ReleaseNotes/index.html",),
    status=Status.WARN,
)
HANGS = Problem(
    id="profiler-hangs",
    title="The profiler comes to no end with a program of one kernel",
    why="Without the profiler the same program takes a second. It waits for another profiler, a lock or the driver.",
    action=Action.RESTART_APP,
    fixes=(
        look("Look for other profilers that run or hang", "ps -ef | grep -E 'ncu|nsys|dcgm' | grep -v grep"),
        look("Look for a lock that somebody else left", "ls -l /tmp/nsight-compute-lock"),
    ),
    references=(GUIDE,),
    status=Status.WARN,
)
BLIND = Problem(
    id="profiler-sees-no-kernel",
    title="The profiler ends without having seen the kernel",
    why="The program ran a kernel, and the profiler's result has no row of it. What it said is none of the known errors.",
    action=Action.WATCH,
    fixes=(look("Read all that it said", AGAIN + " --format json"),),
    references=(GUIDE,),
    status=Status.WARN,
)


class Sign(NamedTuple):
    """What a profiler says, what that means, and a quick check's problem behind it."""

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
MARK = re.compile(r"^==\w+== |^(?:ERROR|WARNING|INFO):\S+ \S+ \S+ \S+\] ")  # of ncu, of torch's profiler
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
        told = f"no end after {values[name]['seconds']:.0f} s; its last words: {told}"
    evidence = {"path": values.get(name, {}).get("path"), "last_words": " | ".join(said.splitlines()[-LAST_LINES:])}
    finding = problem.found(f"{name}: {told}", evidence, confidence=Confidence.CONFIRMED if sign else Confidence.UNKNOWN)
    yield replace(finding, because=sign.because if sign else "")


def results(facts: Facts, workload: str) -> Mapping[str, Any]:
    values = facts.measured.runs(workload)[0].values
    if not {"row", "broken", PROFILERS[workload]} & set(values):
        raise Unavailable(f"{workload} did not come to its end: see measurements")
    return values


def sees(values: Mapping[str, Any]) -> bool:
    return bool(values.get("row", {}).get("kernel"))


def words(values: Mapping[str, Any]) -> str:
    """All that a profiler said."""
    texts = [values[name].get(key) for name in ("broken", "row", "ncu", "nsys") if name in values for key in ("error", "printed")]
    return "\n".join(text for text in texts if text)


def said_last(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "its trace has no kernel, and it said nothing"


def figures(facts: Facts) -> Iterator[Figure]:
    """How long each profiler says that its kernel took."""
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
    return f"{', '.join(found)}: each saw the kernel" + (f"; {'; '.join(absent)}" if absent else "")


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(DENIED, TAKEN, INCOMPLETE, MISFIT, HANGS, BLIND),
    needs=("cuda-context",),
    level="full",
    workloads=tuple(PROFILERS),
    figures=figures,
)
