"""Problems that a text describes in a person's words, where neither a message nor an output names one. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

from gpudoctor.facts import Facts
from gpudoctor.facts.calm import is_calm, prose
from gpudoctor.facts.known import known
from gpudoctor.judging.texts import answers, complaints, habits, titles
from gpudoctor.judging.texts.vetoes import OF_NO_DRIVER, SYMPTOMS, is_solved, veto
from gpudoctor.knowledge import symptoms
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

OPEN_FILES = Problem(
    id="open-files-limit-huge",
    title="A huge limit on open files makes programs start slowly",
    why="Programs that close or list every possible descriptor do so up to the limit (RLIMIT_NOFILE): with 1073741816 that takes "
    "many seconds and gigabytes of address space. Old service managers and RPC libraries, such as the one that talks to "
    "nvidia-persistenced, do so in containers whose engine has no limit.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Start the container with a usual limit",
            "<docker> run <all_gpus> --ulimit nofile=1024:524288 <image>",
            verify="ulimit -n",
            kind="manual",
            on=("host", "wsl2"),
        ),
        Fix(
            "For all containers: set default-ulimits in /etc/docker/daemon.json, or LimitNOFILE=1024:524288 in the engine's unit"
        ),
    ),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/1053",),
)
THREADS = Problem(
    id="loader-workers-start-threads",
    title="Each data loader worker starts several threads",
    why="NumPy, OpenCV, MKL and OpenMP start a thread for every core in each worker process. The workers then compete for the "
    "cores, and more workers or cores do not make the data come faster while the GPU waits.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Limit the libraries to one thread each, then start the training from this shell",
            "export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1",
            kind="set",
            where="shell",
        ),
        Fix("In the worker_init_fn of the DataLoader: call torch.set_num_threads(1), and cv2.setNumThreads(0) for OpenCV"),
        Fix("Watch the workers: each should stay near 100 % of a core", "top -H -b -n 1 | head -n 40", kind="read"),
    ),
    references=("https://docs.pytorch.org/docs/stable/threading_environment_variables.html",),
)
NO_GRAPHICS = Problem(
    id="windows-driver-without-graphics",
    title="The data-centre driver on Windows runs this GPU without graphics",
    why="A Tesla card in TCC or MCDM mode computes only: it is in Device Manager, but not in Task Manager, and DirectX, OpenGL "
    "and remote desktops cannot use it. Cloud machines need the driver for virtual workstations (GRID) of their provider.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "In PowerShell: read the driver model of the GPU",
            "nvidia-smi --query-gpu=name,driver_model.current --format=csv",
            kind="read",
        ),
        Fix(
            "On a cloud machine: remove this driver and install the GRID driver that the provider publishes for this machine type"
        ),
        Fix(
            "On an own card whose licence allows graphics: select WDDM as administrator, then restart Windows",
            "nvidia-smi -i <index> -dm 0",
            syntax="powershell",
        ),
    ),
    references=("https://learn.microsoft.com/azure/virtual-machines/windows/n-series-driver-setup",),
)
PROBLEMS = (OPEN_FILES, THREADS, NO_GRAPHICS, *complaints.PROBLEMS, *habits.PROBLEMS)
OF_MEMORY = ("gpu-held-by-leftover-process", "framework-preallocates-memory", "gpu-memory-fragmented")
OF_MODULES = ("nouveau-loaded", "secure-boot-module-rejected", "module-not-built-after-kernel-update")
"""Where the driver's module is not loaded, so that nvidia-smi lists no GPU."""
OF_LOSS = ("gpu-lost", "xid-79-fallen-off-bus", "riser-link-fails", "machine-switches-off-under-load")
BY_DESIGN = ("gpu-processes-hidden",)
LITTLE_USED = 0.02  # of a GPU's memory
MOST_SENTENCES, MOST_CHARACTERS, MOST_QUOTED = 60, 300, 60
MOST_LINES, MOST_SHOWN = 2000, 20_000  # lines of a text and characters of all, in which a person's words are looked for
HOLDERS = Fix(
    "Show every process that has a GPU open, also those that nvidia-smi does not list",
    "sudo fuser -v /dev/nvidia*",
    kind="read",
    needs=("root",),
)
WITHOUT_PEERS = Fix(
    "Test it: start without peer-to-peer access, which is slower", "export NCCL_P2P_DISABLE=1", kind="set", where="shell"
)
WARM_UP = Fix(
    "Make one call with inputs of the usual shape before requests arrive; in ONNX Runtime set cudnn_conv_algo_search=HEURISTIC"
)
FIRST = {
    "gpu-held-by-leftover-process": HOLDERS,
    "nccl-p2p-hang-acs-iommu": WITHOUT_PEERS,
    "peer-copy-damages-data": WITHOUT_PEERS,
    "first-call-compiles": WARM_UP,
    "half-precision-makes-nans": habits.WIDER_RANGE,
}
"""What shows it, or shows that it is it, where no output of the text does."""


def findings(facts: Facts) -> Iterator[Finding]:
    """The problem with the most words in the text, if nothing else in it names one."""
    if not facts.texts.alone or any(text.is_documentation or is_calm(text.lines) for text in facts.texts.all):
        return
    others = (*facts.once(answers.of_texts), *chain(*facts.found.values()))
    if is_solved(facts) or any(map(_is_cause, others)):
        return
    has_failed = any(finding.problem.status is Status.FAIL for finding in others)
    lines = [line for text in facts.texts.all for line in text.lines[:MOST_LINES]]
    sentences = [sentence[:MOST_CHARACTERS] for sentence in islice(prose(lines), MOST_SENTENCES)]
    described = symptoms.told(facts.texts.words[:MOST_SHOWN], sentences)
    found = [
        told for told in described if not (_is_refuted(told.symptom.problem, facts) or (has_failed and told.symptom.is_of_speed))
    ]
    if found:
        symptom, every = found[0]
        words = [word for word in every if not any(word != other and word in other for other in every)]
        quoted = " and ".join(f"“{_short(word)}”" for word in words)
        candidates = dict.fromkeys((*symptom.others, *(told.symptom.problem for told in found[1:])))
        could_be = [id for id in candidates if id != symptom.problem]
        evidence = {"said": [_short(word) for word in words], **({"could_be": could_be} if could_be else {})}
        finding = _shown_first(facts.problems[symptom.problem]).found(
            f"the text says {quoted}; no output in it shows the cause", evidence, confidence=Confidence.LIKELY
        )
        yield finding.as_note if symptom.problem in BY_DESIGN else finding


def _is_cause(finding: Finding) -> bool:
    """Whether a message, or the check of an output, says more than that something does not work."""
    if finding.problem.id in OF_NO_DRIVER and finding.confidence is Confidence.UNKNOWN:
        return False
    return not (finding.is_clue or finding.is_note or finding.problem.latent) and finding.problem.id not in SYMPTOMS


def _is_refuted(problem: str, facts: Facts) -> bool:
    if problem in OF_MODULES and known(lambda: facts.nvml.count, 0):
        return True
    if problem in OF_LOSS and known(lambda: facts.kernel_log.xids, ()):  # they say more
        return True
    return bool(veto(problem, facts)) or (problem in OF_MEMORY and _memory_is_free(facts))


def _memory_is_free(facts: Facts) -> bool:
    """nvidia-smi shows little memory in use on every GPU."""
    used = known(lambda: [gpu.memory_used_mib / gpu.memory_total_mib for gpu in facts.nvml.gpus], [1.0])
    return bool(used) and max(used) < LITTLE_USED


def _short(words: str) -> str:
    plain = " ".join(words.split())
    return plain if len(plain) <= MOST_QUOTED else f"{plain[: MOST_QUOTED - 2]} …"


def _shown_first(problem: Problem) -> Problem:
    """A check that finds such a problem may pass; here a person complains about it."""
    fix = FIRST.get(problem.id)
    status = Status.WARN if problem.status is Status.PASS else problem.status
    return replace(titles.described(problem), fixes=(fix, *problem.fixes) if fix else problem.fixes, status=status)
