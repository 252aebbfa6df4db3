"""What a program of a text itself does with GPUs and threads: memory taken in advance, ranks on one GPU, one thread."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.places import is_slow
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

PREALLOCATED = Problem(
    id="framework-preallocates-memory",
    title="JAX or TensorFlow takes most of the GPU's memory when it starts",
    why="Both allocate memory for all later use at once: JAX three quarters of the GPU by default, TensorFlow nearly all. "
    "This is not a leak, and nvidia-smi cannot show how much of it the program uses.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "If other programs share the GPU: let JAX allocate as needed, which is slower",
            "export XLA_PYTHON_CLIENT_PREALLOCATE=false",
            undo="unset XLA_PYTHON_CLIENT_PREALLOCATE",
            where="shell",
            kind="set",
        ),
        Fix(
            "Let TensorFlow allocate as needed",
            "export TF_FORCE_GPU_ALLOW_GROWTH=true",
            undo="unset TF_FORCE_GPU_ALLOW_GROWTH",
            where="shell",
            kind="set",
        ),
    ),
    references=("https://docs.jax.dev/en/latest/gpu_memory_allocation.html",),
)
ONE_GPU = Problem(
    id="ranks-use-one-gpu",
    title="Several ranks were started, and only one GPU has work",
    why="A launcher starts one process for each GPU, but the program chooses the GPU. Without torch.cuda.set_device, or with "
    "cuda:0 in the code, all ranks use the first one and take turns.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix('In the program: torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before the first use of CUDA'),
        Fix(
            "Show which processes use which GPU",
            "nvidia-smi --query-compute-apps=gpu_bus_id,pid,used_memory --format=csv",
            kind="read",
        ),
    ),
    references=("https://pytorch.org/docs/stable/elastic/run.html",),
)
ONE_THREAD = Problem(
    id="threads-limited-to-one",
    title="OMP_NUM_THREADS is 1, so PyTorch uses one CPU thread",
    why="NumPy, PyTorch and OpenCV compute on the CPU with as many threads as this variable allows. Preprocessing and optimizers "
    "on the CPU then take many times longer. torchrun sets it to 1 for several ranks.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Set it to the CPUs for each rank",
            "export OMP_NUM_THREADS=8",
            undo="unset OMP_NUM_THREADS",
            where="shell",
            kind="set",
        ),
        Fix("Show what PyTorch uses", "python -c 'import torch; print(torch.get_num_threads())'", kind="read"),
    ),
    references=("https://pytorch.org/docs/stable/elastic/run.html",),
)
ON_CPU = Problem(
    id="model-left-on-cpu",
    title="The model is on the CPU, although PyTorch sees the GPU",
    why="PyTorch computes where the model and its inputs are. Both stay on the CPU until the program moves them.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix('In the program: model.to("cuda"), and the same for each batch'),
        Fix("With Transformers: pass device_map='cuda' to from_pretrained, or device=0 to pipeline"),
    ),
    references=("https://pytorch.org/docs/stable/notes/cuda.html",),
)
NO_DEVICE = Problem(
    id="xgboost-trains-on-cpu",
    title="XGBoost has CUDA, but its parameters choose the CPU",
    why="A build with CUDA trains on the CPU unless the parameter device (before 2.0: tree_method gpu_hist) asks for the GPU.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix('In the parameters: add "device": "cuda" (XGBoost 2.0 and newer), or "tree_method": "gpu_hist" in older releases'),
        Fix(
            "Show the release and its build",
            "python -c 'import xgboost; print(xgboost.__version__, xgboost.build_info())'",
            kind="read",
        ),
    ),
    references=("https://xgboost.readthedocs.io/en/stable/gpu/index.html",),
)
PROBLEMS = (PREALLOCATED, ONE_GPU, ONE_THREAD, ON_CPU, NO_DEVICE)

_TAKES = re.compile(
    r"""
    \b(?: leak\w* | is\ (?:this|it)\ normal | why | regardless | immediately
        | even\ (?:for|with)\ (?:a\ )?(?:tiny|small|simple|one)
        | always | no\ matter | only\ import\w* | just\ import\w* | simple\ import | huge | far\ too\ much | 7\d\ ?% | 90\ ?% )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ABOUT_MEMORY = re.compile(r"(?i)\b(?:memory|vram|mib|gib|gb)\b")
_FAILS = re.compile(
    r"""
    out\ of\ memory | RESOURCE_EXHAUSTED | \berror\b | PREALLOCATE | MEM_FRACTION | ALLOW_GROWTH | memory_growth
    """,
    re.IGNORECASE | re.VERBOSE,
)
_KNOWN = re.compile(r"(?i)\bpre-?allocat\w*|\bas expected\b|\bis expected\b|\bon purpose\b")
_OF_JAX = re.compile(r"(?i)\bjax\b|\bflax\b")
_OF_TENSORFLOW = re.compile(r"(?i)\btensorflow\b|\bkeras\b")
LEAST, MOST = 0.6, 0.99  # of the GPU's memory


def preallocated(facts: Facts) -> Iterator[Finding]:
    """JAX or TensorFlow holds the share that it takes in advance, and the text wonders why."""
    text = "\n".join(passages(facts))
    name = "JAX" if _OF_JAX.search(text) else "TensorFlow" if _OF_TENSORFLOW.search(text) else ""
    if (
        not name
        or "torch" in text
        or _KNOWN.search(text)
        or _FAILS.search(text)
        or not (_TAKES.search(text) and _ABOUT_MEMORY.search(text))
    ):
        return
    for used, total in re.findall(r"\b(\d{3,6}) ?MiB */ *(\d{4,6}) ?MiB", text):
        if LEAST < int(used) / int(total) < MOST:
            words = f"{name} holds {used} of {total} MiB, which it takes in advance"
            yield PREALLOCATED.found(words, {"framework": name}, confidence=Confidence.LIKELY)
            return


_LAUNCHED = re.compile(
    r"""
    (?:torchrun|torch\.distributed\.(?:launch|run)|accelerate\ launch|deepspeed|mpirun|srun)\b[^\n]*?
    (?:--nproc[_-]per[_-]node[=\ ]|--num_processes[=\ ]|--num_gpus[=\ ]|-np?\ )(?P<ranks>\d+)
    """,
    re.VERBOSE,
)
IDLE_MIB, BUSY_MIB = 700, 1500


def ranks_on_one_gpu(facts: Facts) -> Iterator[Finding]:
    """As many ranks as GPUs were started, and all but one GPU are empty."""
    launched = next(filter(None, (_LAUNCHED.search(text) for text in passages(facts))), None)
    gpus = known(lambda: facts.nvml.gpus, ())
    used = [known(lambda gpu=gpu: gpu.memory_used_mib, -1) for gpu in gpus]  # type: ignore[misc]
    if not launched or len(used) < 2 or int(launched["ranks"]) < 2 or -1 in used:
        return
    busy = [index for index, mib in enumerate(used) if mib > BUSY_MIB]
    if len(busy) == 1 and sum(mib < IDLE_MIB for mib in used) == len(used) - 1:
        words = f"{launched['ranks']} ranks were started, and only GPU {busy[0]} of {len(used)} holds memory"
        yield ONE_GPU.found(words, {"ranks": int(launched["ranks"]), "gpu": busy[0]}, confidence=Confidence.LIKELY)


_ONE = re.compile(r"(?m)(?:^|[\s;:'\"])OMP_NUM_THREADS[=:]\s*['\"]?1['\"]?\s*$")
_CPUS = re.compile(
    r"""
    (?: cpu_count\(\)[^\n]{0,80}\n\(? | \bCPU\(s\):\ + | \bnproc\ *\n )(?P<cpus>\d{1,3})\b
    | \b(?P<said>\d{1,3})[ -](?:CPU\ )?(?:cores|CPUs|threads)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SPEEDS = re.compile(r"\b[\d.]+ ?(?:s/it|it/s|ms|s/step|samples/s|seconds?|minutes?)\b")


_COMPARED = re.compile(
    r"""
    \bsame\ (?:script|code|program|model)\b | \b(?:other|second)\ (?:machine|server|pc|node)\b | \btimes\ (?:slower|longer)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def one_thread(facts: Facts) -> Iterator[Finding]:
    """OMP_NUM_THREADS is 1 on a machine with many CPUs, without ranks, and the text complains of speed."""
    text = "\n".join(passages(facts))
    cpus = facts.shown.every_cpu or max((int(match["cpus"] or match["said"]) for match in _CPUS.finditer(text)), default=0)
    compares = len(_SPEEDS.findall(text)) > 1 and _COMPARED.search(text)
    if _ONE.search(text) and MANY <= cpus <= 512 and (is_slow(facts) or compares) and not _LAUNCHED.search(text):
        words = f"OMP_NUM_THREADS is 1, and the machine has {cpus} CPUs"
        yield ONE_THREAD.found(words, {"cpus": cpus}, confidence=Confidence.LIKELY)


MANY = 8
_AT_CPU = re.compile(
    r"""
    next\(\w*model\w*\.parameters\(\)\)\.(?:device|is_cuda)\)?[^\n]*\n+
      \s*(?:Out\[\d+\]:\s*)?(?:device\(type='cpu'\)|cpu|False)\s*$
    | \bmodel\.device\)?[^\n]*\n+ \s*(?:Out\[\d+\]:\s*)?(?:device\(type='cpu'\)|cpu)\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_SEES = re.compile(
    r"""
    is_available\(\)\)?[^\n]*\n\s*(?:Out\[\d+\]:\s*)?True
    | get_device_name\(\d?\)\)?[^\n]*\n\s*\S{0,20}(?:NVIDIA|GeForce)
    """,
    re.VERBOSE,
)
_MOVED = re.compile(r"model\S*\.(?:to\(|cuda\(|cpu\()|device_map")
_MISSES_GPU = re.compile(
    r"""
    \bslow | \b0\ ?% | \bnot\ us | \bn't\ us | \bidle\b | \bwhy\b | \binstead\b | \bonly\ (?:the\ )?cpu\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def left_on_cpu(facts: Facts) -> Iterator[Finding]:
    """Python shows the model on the CPU, and that PyTorch sees a GPU."""
    text = "\n".join(passages(facts))
    if _AT_CPU.search(text) and _SEES.search(text) and _MISSES_GPU.search(text) and not _MOVED.search(text):
        yield ON_CPU.found("the model's parameters are on the CPU, and PyTorch sees a GPU", {}, confidence=Confidence.LIKELY)


_BOOSTS = re.compile(r"\bxgb(?:oost)?\.(?:train|XGB\w+|cv)\(|\bXGB(?:Classifier|Regressor)\(")
_ON_GPU = re.compile(r"gpu_hist|gpu_id|[\"']?device[\"']?\s*[:=]\s*[\"'](?:cuda|gpu)")
_NOT_FASTER = re.compile(r"(?i)\bnot (?:any )?faster|\bslow|\b0 ?%|\bnot us|\bn't us|\bsame speed|\bidle\b")


def boosts_on_cpu(facts: Facts) -> Iterator[Finding]:
    """XGBoost's build has CUDA, its parameters name no GPU, and the text misses the speed."""
    text = "\n".join(passages(facts))
    has_cuda = _BOOSTS.search(text) and re.search(r"USE_CUDA['\"]\]?:?\s*\n?\s*True", text)
    if has_cuda and not _ON_GPU.search(text) and _NOT_FASTER.search(text):
        yield NO_DEVICE.found("the parameters of XGBoost name no GPU", {}, confidence=Confidence.LIKELY)


RULES = (boosts_on_cpu, preallocated, ranks_on_one_gpu, one_thread, left_on_cpu)
