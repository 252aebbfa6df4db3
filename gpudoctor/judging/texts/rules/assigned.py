"""What a scheduler, a setting or a package gives to a program of a text, against what there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.judging.texts.rules.said import has_only_others, passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

BEFORE_PLUGIN = Problem(
    id="k8s-pod-older-than-plugin",
    title="The pod was rejected before the node's device plugin was ready",
    why="After a reboot kubelet starts pods while the device plugin still registers its GPUs. A rejected pod stays failed, also "
    "when the node offers its GPUs again.",
    action=Action.RESTART_APP,
    fixes=(
        Fix(
            "Delete the rejected pod; its Deployment or Job creates it again",
            "kubectl delete pod <pod>",
            verify="kubectl get pods -o wide",
            kind="manual",
        ),
        look("Show what the nodes offer now", "kubectl get nodes -o jsonpath='{.items[*].status.allocatable}'"),
    ),
    references=("https://github.com/kubernetes/kubernetes/issues/125579",),
)
SLICE = Problem(
    id="cgroup-slice-denies-devices",
    title="The systemd slice in which the programs run may not open the GPU",
    why="A slice or service with DevicePolicy closed or strict, or a device filter of eBPF, opens only the devices that it "
    "names. What runs in it, a rootless Docker too, gets none of the driver's nodes, while other sessions do.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Show which settings of the slice restrict devices", "systemctl cat <slice>"),
        Fix(
            "Remove the restriction, then restart what runs in the slice",
            "sudo systemctl set-property <slice> DevicePolicy=auto",
            verify="systemctl show <slice> -p DevicePolicy",
            where="host",
            kind="set",
            needs=("root",),
        ),
    ),
    references=("https://www.freedesktop.org/software/systemd/man/latest/systemd.resource-control.html",),
)
OTHER_PYTHON = Problem(
    id="program-runs-with-another-python",
    title="The program runs with another Python than the one with CUDA",
    why="The shell's python is not the one into which PyTorch with CUDA was installed. The one that runs has a build for "
    "the CPU.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Start the program with the Python that has it (the path is in the evidence), or activate that environment first"),
        look("Show which Python the shell starts", 'python -c "import sys, torch; print(sys.executable, torch.__version__)"'),
    ),
    references=("https://docs.python.org/3/library/venv.html",),
)
OTHER_MAJOR = Problem(
    id="cuda-library-of-another-major",
    title="A CUDA library of another major version is installed than required",
    why="The number after .so is the major version, and a program loads only its own. Another package, such as a newer PyTorch, "
    "replaced the library in this environment.",
    action=Action.INSTALL,
    fixes=(
        Fix("Install the two programs into separate environments, each with its own libraries"),
        look("Show which libraries the packages bring", "python -m pip list | grep -i nvidia"),
    ),
    references=("https://www.tensorflow.org/install/source#gpu",),
)
PROBLEMS = (BEFORE_PLUGIN, SLICE, OTHER_PYTHON, OTHER_MAJOR)

_DUPLICATE = re.compile(r"Duplicate GPU detected")
_RANKS = re.compile(
    r"""
    --nproc[_-]per[_-]node[=\ ](\d+) | --num[_-]processes[=\ ](\d+)
    | \bmpirun\b[^\n]*-np\ (\d+)
    """,
    re.VERBOSE,
)


def fewer_than_ranks(facts: Facts) -> Iterator[Finding]:
    """Ranks share a GPU because CUDA_VISIBLE_DEVICES names fewer than there are ranks."""
    text = "\n".join(passages(facts))
    value = (known(lambda: facts.environment.get("CUDA_VISIBLE_DEVICES")) or "").strip()
    launched = _RANKS.search(text)
    ranks = int(next(filter(None, launched.groups()))) if launched else 0
    named = [name for name in value.split(",") if name.strip()]
    if _DUPLICATE.search(text) and named and len(named) < ranks:
        words = f"CUDA_VISIBLE_DEVICES is {value!r}, and {ranks} ranks were started"
        evidence = {"CUDA_VISIBLE_DEVICES": value, "ranks": ranks}
        problem = facts.problems["cuda-visible-devices-hides-requested-gpu"]
        yield problem.found(words, evidence, confidence=Confidence.LIKELY)


_OFFERED = re.compile(r"(?m)^[ \t]*\"?nvidia\.com/gpu\"?: +\"?(\d+)\"?,?$")
_REJECTED = re.compile(r"(?m)^(?:\S+\s+)?(?P<pod>[a-z0-9][\w.-]+)\s+\d/\d\s+UnexpectedAdmissionError\b")


def rejected_pod(facts: Facts) -> Iterator[Finding]:
    """A pod was rejected for want of healthy devices, and the node offers all of its GPUs."""
    text = "\n".join(passages(facts))
    rejected, offers = _REJECTED.search(text), set(map(int, _OFFERED.findall(text)))
    offers |= set((facts.shown.node or {}).values())
    if rejected and len(offers) == 1 and max(offers):
        words = f"the pod was rejected at its admission, and the node offers {max(offers)} GPU now"
        yield BEFORE_PLUGIN.found(words, {"pod": rejected["pod"]}, confidence=Confidence.LIKELY)


_POLICY = re.compile(r"(?m)^DevicePolicy=(?P<policy>closed|strict)$")
_FILTER = re.compile(
    r"""
    bpftool\ cgroup\ show\ (?P<path> /sys/fs/cgroup/\S+ )\s*\n
    (?:[^\n]*\n){0,4}? \s*\d+\s+cgroup_device\b
    """,
    re.VERBOSE,
)
_SLICE = re.compile(r"\b(?P<slice>[\w@-]+\.(?:slice|service))\b")
_NONE = re.compile(r"No devices were found|Failed to initialize NVML|[Oo]peration not permitted")


def closed_slice(facts: Facts) -> Iterator[Finding]:
    """A slice allows only named devices, and a program in it finds no GPU."""
    text = "\n".join(passages(facts))
    policy, attached = _POLICY.search(text), _FILTER.search(text)
    before = text[: policy.start()].splitlines()[-2:] if policy else [attached["path"]] if attached else []
    names = [match["slice"] for line in before for match in _SLICE.finditer(line)]
    if names and _NONE.search(text) and "nvidia" not in "".join(re.findall(r"DeviceAllow=[^\n]*", text)):
        words = f"{names[-1]} has DevicePolicy={policy['policy']}" if policy else f"a device filter is attached to {names[-1]}"
        yield SLICE.found(f"{words}, and programs in it find no GPU", {"slice": names[-1]}, confidence=Confidence.LIKELY)


_CPU_TORCH = re.compile(r"Torch not compiled with CUDA enabled")
_OF_TRACEBACK = re.compile(
    r"""
    File\ "(?P<prefix> [^"\n]+? )[\\/] (?:[Ll]ib[\\/])? (?:python3\.\d+[\\/])?
    (?:site|dist)-packages[\\/]torch[\\/]
    """,
    re.VERBOSE,
)
_OF_LIST = re.compile(
    r"""
    (?<!\S)(?P<python> [^\s\\/]{0,20}[\\/]\S{0,200}?python[\d.]{0,9}(?:\.exe)? )\ -m\ pip\ (?:list|show)\b[^\n]*\n
    (?:[^\n]*\n){0,8}? (?:torch|Version:)\s+\S+\+cu\d
    """,
    re.VERBOSE,
)


def another_interpreter(facts: Facts) -> Iterator[Finding]:
    """The traceback is of a Python whose PyTorch has no CUDA, and the list of another one shows PyTorch with CUDA."""
    text = "\n".join(passages(facts))
    runs, listed = list(_OF_TRACEBACK.finditer(text)), _OF_LIST.search(text)
    if not (_CPU_TORCH.search(text) and runs and listed):
        return
    folder = re.split(r"[\\/]", listed["python"].strip(".\\/"))
    own = folder[-2] if folder[-2] not in ("bin", "Scripts") else folder[-3] if len(folder) > 2 else ""
    prefix = runs[-1]["prefix"]
    if own and own not in re.split(r"[\\/]", prefix):
        words = f"the program runs with the Python in {prefix}, and {listed['python']} has PyTorch with CUDA"
        evidence = {"runs": prefix, "python_with_cuda": listed["python"]}
        yield OTHER_PYTHON.found(words, evidence, confidence=Confidence.LIKELY)


_MISSING = re.compile(
    r"""
    lib(?P<name> cudnn | cublas | cudart | cufft | cusparse | cusolver | nvrtc )\w*\.so\.(?P<major>\d+)
    (?: [^\n]{0,40}?:\ cannot\ open\ shared\ object | ,\ libcudnn_\w+\.so\} )
    """,
    re.VERBOSE,
)


def other_major(facts: Facts) -> Iterator[Finding]:
    """A program misses lib….so.8, and the environment has only lib….so.9."""
    text = "\n".join(passages(facts))
    for match in _MISSING.finditer(text):
        there = {found[1] for found in re.finditer(rf"(?m)/lib{match['name']}\w*\.so\.(\d+)(?:[\d.]*)$", text)}
        wheel = known(lambda match=match: facts.python.package(f"nvidia-{match['name']}-cu12"))  # type: ignore[misc]
        there |= {wheel.version.split(".")[0]} if wheel and match["name"] == "cudnn" else set()
        if there and match["major"] not in there and not _OLD_CUDA.search(match[0]):
            problem = _of_whisper(facts, match) or OTHER_MAJOR
            words = f"lib{match['name']}.so.{match['major']} is missing, and release {', '.join(sorted(there))} is installed"
            evidence = {"library": f"lib{match['name']}.so.{match['major']}", "installed": sorted(there)}
            yield problem.found(words, evidence, confidence=Confidence.LIKELY)
            return


FOR_NEW_CUDNN = Fix(
    "Install the release of CTranslate2 (faster-whisper) for cuDNN 9",
    "python -m pip install -U 'ctranslate2>=4.5'",
    kind="install",
    needs=("network",),
)
FOR_OLD_CUDNN = Fix(
    "Install the last release of CTranslate2 (faster-whisper) for cuDNN 8",
    "python -m pip install 'ctranslate2==4.4.0'",
    kind="install",
    needs=("network",),
)


_OLD_CUDA = re.compile(
    r"""
    lib(?P<name>\w+)\.so\.(?P<release>[5-9]\.\d|10\.[0-2])\b(?=[^\n]{0,40}:\ cannot\ open\ shared\ object)
    """,
    re.VERBOSE,
)
_TOOLKIT = re.compile(
    r"""
    ^\W{0,4}(?:cudatoolkit|cuda-toolkit|cuda-cudart|cuda-version|cuda-runtime)[ =]+(?P<conda>\d+\.\d+)
    | \bcudatoolkit[ =]+(?:version\ )?(?P<named>\d+\.\d+)
    """,
    re.MULTILINE | re.VERBOSE,
)


def other_release(facts: Facts) -> Iterator[Finding]:
    """A program misses the library of one CUDA release before 11, and the environment has that of another."""
    text = "\n".join(passages(facts))
    missing = _OLD_CUDA.search(text)
    there = [match["conda"] or match["named"] for match in _TOOLKIT.finditer(text)]
    if missing and there and missing["release"] not in there:
        words = f"{missing[0]} is missing, and the environment has CUDA {', '.join(dict.fromkeys(there))}"
        evidence = {"library": missing[0], "cuda_version": missing["release"], "installed": list(dict.fromkeys(there))}
        yield replace(OTHER_MAJOR, title=OTHER_RELEASE, why=WHY_RELEASE, fixes=(SAME_RELEASE, *OTHER_MAJOR.fixes[:1])).found(
            words, evidence, confidence=Confidence.LIKELY
        )


OTHER_RELEASE = "The CUDA libraries in the environment are of another release than required"
WHY_RELEASE = (
    "Before CUDA 11, a program loads only the libraries of exactly the release that it was built for. Another package in this "
    "environment needs another release, and conda keeps one."
)
SAME_RELEASE = Fix(
    "Install the release of the CUDA libraries that the program was built for; in a new environment if another package "
    "needs the other one",
    "conda install cudatoolkit=<cuda_version>",
    verify="conda list cudatoolkit",
    kind="install",
    needs=("network",),
)


def _of_whisper(facts: Facts, missing: re.Match[str]) -> Problem | None:
    """CTranslate2 has releases for both, and is easier to change than PyTorch, which chose its cuDNN."""
    if missing["name"] != "cudnn" or not known(lambda: facts.python.package("ctranslate2")):
        return None
    return replace(OTHER_MAJOR, fixes=(FOR_OLD_CUDNN if missing["major"] == "9" else FOR_NEW_CUDNN, *OTHER_MAJOR.fixes))


_NO_DEVICE = re.compile(
    r"""
    could\ not\ insert\ 'nvidia':\ No\ such\ device | couldn't\ communicate\ with\ the\ NVIDIA\ driver
    | NVRM:\ No\ NVIDIA\ (?:GPU|graphics\ adapter)
    """,
    re.VERBOSE,
)
_SWITCHED = re.compile(r"(?i)prime-select|envycontrol|optimus|supergfx|bbswitch|hybrid|vfio|passthrough")
_CONTROLLER = re.compile(
    r"""
    ^[ \t]*[\da-f:.]+\ (?:VGA\ compatible|3D|Display)\ controller[^:]*:\ (?P<name>[^\n]+)
    """,
    re.MULTILINE | re.VERBOSE,
)


def other_maker(facts: Facts) -> Iterator[Finding]:
    """The driver finds no device, and lspci lists display controllers of other makers only."""
    text = "\n".join(passages(facts))
    controller = _CONTROLLER.search(text)
    if controller and _NO_DEVICE.search(text) and has_only_others(facts) and not _SWITCHED.search(text):
        words = f"lspci lists {controller['name'].strip()}, and no NVIDIA GPU"
        yield facts.problems["no-nvidia-gpu"].found(words, confidence=Confidence.LIKELY)


RULES = (
    other_maker,
    fewer_than_ranks,
    rejected_pod,
    closed_slice,
    another_interpreter,
    other_major,
    other_release,
)
