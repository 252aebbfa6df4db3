"""What a job of Slurm, LSF, PBS or Grid Engine requests and gets, against what its node has and its shell sets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.python import is_blind
from gpudoctor.judging.texts.rules.said import is_for_cpus, passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

NO_CORES = Problem(
    id="slurm-cpus-used-up",
    title="Jobs without a GPU hold all CPUs of the node, so its free GPUs wait",
    why="A job needs CPUs and memory on the node of its GPUs. Where jobs without a GPU may use all of them, GPUs stay idle and "
    "jobs for them wait with the reason Resources.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Show the jobs on the node, with their CPUs and GPUs", "squeue -w <node_name> -o '%i %u %C %m %b %L'", kind="read"),
        Fix("Request fewer CPUs and less memory per GPU, or wait until one of these jobs ends"),
        Fix(
            "As administrator: keep cores for GPU jobs (MaxCPUsPerNode in the partition of the CPU jobs), then reload",
            "sudo scontrol reconfigure",
            verify="scontrol show partition | grep -E 'PartitionName|MaxCPUsPerNode'",
            kind="restart",
            where="host",
            needs=("root",),
        ),
    ),
    references=("https://slurm.schedmd.com/slurm.conf.html#OPT_MaxCPUsPerNode",),
)
PROBLEMS = (NO_CORES,)

_PENDS = re.compile(r"\bPD\b|\bPENDING\b|\(Resources\)|\(Priority\)|\b[Pp]ending\b")
_NODE = re.compile(r"(?s)\bNodeName=(?P<name>\S+)(?P<body>.*?)(?=\bNodeName=|\Z)")
_CPUS = re.compile(r"\bCPUAlloc=(?P<used>\d+)\b.*?\b(?:CPUEfctv|CPUTot)=(?P<all>\d+)", re.DOTALL)
_MEMORY = re.compile(r"\bRealMemory=(?P<all>\d+)\b.*?\bAllocMem=(?P<used>\d+)", re.DOTALL)
_HAS = re.compile(r"\bCfgTRES=\S*gres/gpu(?:[:=]\S*?)?=(?P<count>\d+)")
_USED = re.compile(r"\bAllocTRES=\S*?gres/gpu=(?P<count>\d+)")
_ALLOCATED = re.compile(r"\bAllocTRES=")


def cores_used_up(facts: Facts) -> Iterator[Finding]:
    """A job for a GPU waits, and the node has free GPUs, but no free CPU or memory."""
    text = "\n".join(passages(facts))
    if not _PENDS.search(text):
        return
    for node in _NODE.finditer(text):
        body = node["body"]
        has, used, cpus, memory = _HAS.search(body), _USED.search(body), _CPUS.search(body), _MEMORY.search(body)
        free = int(has["count"]) - int(used["count"] if used else 0) if has and _ALLOCATED.search(body) else 0
        is_full = {name: int(match["used"]) >= int(match["all"]) for name, match in (("CPUs", cpus), ("memory", memory)) if match}
        if free > 0 and any(is_full.values()):
            what = next(name for name, full in is_full.items() if full)
            words = f"{node['name']} has {free} free GPUs, and all of its {what} {'are' if what == 'CPUs' else 'is'} allocated"
            yield NO_CORES.found(words, {"node_name": node["name"], "free_gpus": free}, confidence=Confidence.LIKELY)
            return


_INTERACTIVE = re.compile(r"(?m)^[^\n]{0,60}[$#%>❯] ?(?P<command>(?:srun|salloc)\s[^\n]*)$")
_SUBMITTED = re.compile(r"(?m)^\s*#(?P<kind>SBATCH|BSUB|PBS|\$|OAR)\s+-(?P<option>[^\n]*)$")
_ASKS = re.compile(
    r"""
    --(?:gres|gpus|gpus-per-\w+|gpu-bind|tres-per-\w+)\b | (?<![\w-])-G\s?\d | gres/gpu[:=]
    | ^\s*\#BSUB\s+-gpu\b | \bbsub\b[^\n]*\s-gpu\b | ngpus(?:_excl_p|_physical|_shared)? | \bgpus?=\d | :gpus?=\d | \bnum=\d
    | ^\s*\#\$\s+-l\s[^\n]*\bgpu\w*=
    """,
    re.MULTILINE | re.VERBOSE,
)
_OF_NODE = re.compile(r"(?m)^\s*(?:Gres|CfgTRES|AllocTRES)=[^\n]*$")
_NODE_HAS = re.compile(
    r"""
    \bGres=gpu | \b(?:srun|salloc)\b[^\n]*(?:-p|--partition)[=\ ]?\S*(?: gpu | v100 | [ahlb]\d{2,3} | rtx ) | \[[\w.-]+@\S*gpu
    """,
    re.VERBOSE,
)
_NONE = re.compile(
    r"""
    ^[ \t]*(?:None|\[\])?[ \t]*False\ 0[ \t]*$ | ^\[\]$ | NoDevFiles | No\ devices\ were\ found
    | No\ CUDA(?:\ GPUs\ are|-capable\ device)
    """,
    re.MULTILINE | re.VERBOSE,
)
_FIXES = {
    "BSUB": Fix('In the script: request a GPU (LSF), then submit it again: #BSUB -gpu "num=1"'),
    "PBS": Fix("In the script: request a GPU (PBS), then submit it again: #PBS -l select=1:ncpus=4:ngpus=1"),
    "$": Fix("In the script: request a GPU under the site's name (Grid Engine), then submit it again: #$ -l gpu=1"),
}


def requested_none(facts: Facts) -> Iterator[Finding]:
    """An interactive job, or a script of LSF, PBS or Grid Engine, requests no GPU, and its program sees none."""
    text = "\n".join(passages(facts))
    if is_for_cpus(facts) or _ASKS.search(_OF_NODE.sub("", text)) or not (is_blind(facts) or _NONE.search(text)):
        return
    lines = list(_SUBMITTED.finditer(text))
    kinds = {match["kind"] for match in lines}
    typed = _INTERACTIVE.search(text)
    problem = facts.problems["batch-job-without-gpu"]
    if typed and not kinds and "nvidia-smi" not in typed["command"] and _NODE_HAS.search(text):
        words = f"the job was started without --gres=gpu or --gpus: {typed['command'][:80]}"
        yield problem.found(words, confidence=Confidence.LIKELY)
    elif len(kinds) == 1 and len(lines) > 1 and (kind := kinds.pop()) in _FIXES:
        words = "the job's script requests no GPU"
        problem = replace(problem, why=WHY, fixes=(_FIXES[kind], *problem.fixes[2:] * (kind == "SBATCH")))
        yield problem.found(words, confidence=Confidence.LIKELY)


WHY = "The batch system gives a job only the GPUs that it requests, and hides the others. The name of the queue is not enough."
_ASSIGNED = re.compile(
    r"""
    ^\s*(?:SLURM_JOB_GPUS|SLURM_STEP_GPUS|GPU_DEVICE_ORDINAL|LSB_CUDA_VISIBLE_DEVICES|PBS_GPUS)=(?P<names>\d+(?:,\d+)+)\s*$
    | ^\s*SLURM_GPUS_ON_NODE=(?P<count>\d+)\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_VISIBLE = re.compile(r"(?m)^\s*CUDA_VISIBLE_DEVICES=[\"']?(?P<names>\d+(?:,\d+)*)[\"']?\s*$")
_SET = re.compile(r"(?m)^[^\n#]*\bexport\s+CUDA_VISIBLE_DEVICES=[\"']?(?P<names>\d+(?:,\d+)*)")
_PER_TASK = re.compile(r"--gpus-per-task|--gpu-bind|--ntasks-per-gpu|mpirun|--tres-per-task")


def set_in_shell(facts: Facts) -> Iterator[Finding]:
    """The job has several GPUs, and CUDA_VISIBLE_DEVICES, which something sets after the batch system, names fewer."""
    text = "\n".join(passages(facts))
    given, visible, own = _ASSIGNED.search(text), _VISIBLE.search(text) or _SET.search(text), _SET.search(text)
    if not given or not visible or _PER_TASK.search(text):
        return
    count = int(given["count"]) if given["count"] else len(given["names"].split(","))
    named = len(visible["names"].split(","))
    if named < count:
        words = f"the job has {count} GPUs, and CUDA_VISIBLE_DEVICES={visible['names']} hides {count - named} of them"
        words += ": a file of the shell sets it" if own else ""
        evidence = {"CUDA_VISIBLE_DEVICES": visible["names"], "assigned": count}
        problem = facts.problems["cuda-visible-devices-hides-requested-gpu"]
        problem = replace(problem, fixes=(_DELETE_LINE, *problem.fixes)) if own else problem
        yield problem.found(words, evidence, confidence=Confidence.LIKELY)


_DELETE_LINE = Fix(
    "Delete the line that sets CUDA_VISIBLE_DEVICES from the shell's start file: the batch system sets it for each job",
    "grep -n CUDA_VISIBLE_DEVICES ~/.bashrc ~/.bash_profile ~/.profile ~/.zshrc",
    kind="read",
)
_GPUS = re.compile(
    r"""
    ^\s*\#SBATCH\s+(?:--gres=gpu(?::[a-z]\w*)?:|--gpus(?:-per-node)?=(?:[a-z]\w*:)?)(?P<count>\d+)
    """,
    re.MULTILINE | re.VERBOSE,
)
_TASKS = re.compile(r"(?m)^\s*#SBATCH\s+(?:--ntasks(?:-per-node)?=|-n\s*)(?P<count>\d+)")
_STARTS = re.compile(
    r"""
    \b(?:torchrun|torch\.distributed\.(?:launch|run)|accelerate\ launch|deepspeed|mpirun|horovodrun)\b
    """,
    re.VERBOSE,
)
_BY_RANK = re.compile(r"(?i)lightning|LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES|GPU available: True")
_SHARES = re.compile(r"(?m)^\s*(?P<index>\d+),\s*(?P<share>\d+) ?%")
_ONE_EACH = (
    Fix(
        "In the script: start one task per GPU with srun, since Lightning takes the number of ranks from Slurm",
        "srun --ntasks-per-node=<gpu_count> python train.py",
        kind="manual",
    ),
    Fix("Set #SBATCH --ntasks-per-node to the number of GPUs, and devices and num_nodes of the Trainer to the same numbers"),
)


def one_task_for_all(facts: Facts) -> Iterator[Finding]:
    """Lightning under Slurm is started as one task on several GPUs, and only one of them works."""
    text = "\n".join(passages(facts))
    gpus, tasks = _GPUS.search(text), _TASKS.search(text)
    shares = [int(match["share"]) for match in _SHARES.finditer(text)]
    is_alone = len(shares) > 1 and sum(share > IDLE for share in shares) == 1
    is_told = re.search(r"(?i)\b(?:only|just)\ (?:one|1|the\ first|a\ single)\ GPU", text) is not None
    count = int(tasks["count"]) if tasks else 1
    is_meant = bool(_BY_RANK.search(text)) and not _STARTS.search(text)
    if gpus and count < int(gpus["count"]) and is_meant and (is_alone or is_told):
        words = f"the job has {gpus['count']} GPUs and {count} task{'s' * (count > 1)}; each task of Lightning uses one GPU"
        problem = replace(facts.problems["program-started-for-fewer-gpus"], title=ONE_TASK, fixes=_ONE_EACH)
        yield problem.found(words, {"gpu_count": int(gpus["count"])}, confidence=Confidence.LIKELY)


ONE_TASK = "The job starts fewer tasks than it has GPUs"
IDLE = 5  # percent
RULES = (one_task_for_all, cores_used_up, requested_none, set_in_shell)
