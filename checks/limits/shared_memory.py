"""/dev/shm has room for what NCCL and data loaders put there.

What it means
Processes of one machine exchange data through files in /dev/shm: NCCL between GPUs, and the workers of PyTorch's data loaders. A
container gets 64 MB by default. A full /dev/shm causes "No space left on device" or a bus error.

How it is judged
The free space must exceed 64 MiB. With several GPUs it must also be at least 10 MB times the square of their number. NCCL files
older than an hour are left over from jobs that died, since NCCL removes a file as soon as both sides have opened it. They are
not the cause if /dev/shm would be too small without them.

Known exceptions
Jobs on one GPU without data loader workers do not need it. Whether an old file is still in use cannot be seen from outside.

References
https://github.com/NVIDIA/nccl/issues/290
https://github.com/NVIDIA/nccl/issues/1683
https://docs.nvidia.com/deeplearning/nccl/archives/nccl_2262/user-guide/docs/_sources/troubleshooting.rst.txt
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.fixes.engines import again
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

MIB = 1 << 20
DEFAULT_BYTES = 64 * MIB  # Docker's default
PAIR_BYTES = 10_000_000  # NCCL extends a segment to 9637888 bytes
FEWEST_FILES = 5  # more than a job that runs has there for a moment
WASTE = 0.1  # the share of /dev/shm that leftovers may take
LOOK = "df -h /dev/shm"
ISSUES = "https://github.com/NVIDIA/nccl/issues/"
_NEEDS = re.compile(
    r"""
    \b(?: data\ ?loaders? | num_workers | workers? | bus\ error | sigbus | nccl | ddp | fsdp | torchrun | train\w* | epochs?
    | ranks? | hangs? | hung | stuck | crash\w* | kill\w* | multi-?gpu | shared\ memory | shm-?size )\b | No\ space\ left
    """,
    re.IGNORECASE | re.VERBOSE,
)
KUBERNETES = Fix(
    "Mount memory on /dev/shm: add these lines to the pod's spec and recreate it (it counts towards its memory limit)",
    """\
spec:
  containers:
  - name: CONTAINER
    volumeMounts:
    - {name: shm, mountPath: /dev/shm}
  volumes:
  - name: shm
    emptyDir: {medium: Memory, sizeLimit: 8Gi}""",
    risk="disruptive",
    verify=LOOK,
    on=("container",),
)
LIKELY_CONTAINER = Fix(
    "If this is a container (64 MiB is the default of Docker): restart it with --shm-size=8g or --ipc=host",
    risk="disruptive",
    verify=LOOK,
)
ENLARGE = (
    *again(
        "Restart the container with a larger /dev/shm",
        "run <all_gpus> --shm-size=8g --ulimit memlock=-1 <image>",
        spec="mount an emptyDir with medium: Memory at /dev/shm",
        risk="disruptive",
        verify=LOOK,
        on=("container",),
    ),
    look("Find what fills it", "ls -lhS /dev/shm | head -n 20", verify=LOOK, on=("host", "wsl2")),
    Fix(
        "Enlarge it until the next boot",
        "sudo mount -o remount,size=50% /dev/shm",
        verify=LOOK,
        on=("host", "wsl2"),
        kind="set",
        needs=("root",),
    ),
)

NO_SPACE = Problem(
    id="nccl-shm-no-space",
    title="/dev/shm is too small for NCCL between these GPUs",
    why="NCCL needs about 10 MB of shared memory times the square of the number of GPUs. Without it, a job ends with 'Error "
    "while creating shared memory segment ... No space left on device' or a system error.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=ENLARGE,
    references=(ISSUES + "290", ISSUES + "342", ISSUES + "1683"),
)

TOO_SMALL = Problem(
    id="shm-too-small-for-dataloaders",
    title="/dev/shm is too small for data loader workers",
    why="PyTorch's data loader workers pass batches through /dev/shm. When it is full, they die with a bus error.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=ENLARGE,
    references=(ISSUES + "290",),
)

LEFTOVERS = Problem(
    id="nccl-shm-leftovers",
    title="Files of dead NCCL jobs fill /dev/shm",
    why="NCCL's files are old; the jobs that created them were most likely killed. The files use memory until they are removed.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(Fix("When no NCCL job runs: remove them", "rm -f /dev/shm/nccl-*", risk="disruptive", verify=LOOK, kind="set"),),
    references=(ISSUES + "1683",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    gpus = known(lambda: facts.nvml.count, 1) if facts.texts.alone else facts.nvml.count
    if not gpus:
        raise Skip("no GPU found")
    free, stale = facts.limits.shm_free_bytes, known(lambda: stale_bytes(facts), 0) if facts.texts.alone else stale_bytes(facts)
    if facts.texts.alone and free == facts.limits.shm_bytes and not is_missed(facts):
        raise Skip("/dev/shm is empty, and the text shows no program that needs it")
    short = is_short(free, gpus)
    if is_short(facts.limits.shm_bytes, gpus):
        cause = too_small(facts, gpus)
        yield cause
        if stale:
            yield replace(leftovers(facts, stale), because=cause.problem.id)
    elif stale and ((short and not is_short(free + stale, gpus)) or stale > WASTE * facts.limits.shm_bytes):
        yield leftovers(facts, stale)
    elif short and len(facts.shown.nccl_files) >= FEWEST_FILES:
        yield listed(facts)
    elif short:
        yield too_small(facts, gpus)


def is_missed(facts: Facts) -> bool:
    """Servers without workers, and programs on one GPU, do not need it."""
    return any(_NEEDS.search(passage.text) for text in facts.texts.all for passage in text.passages)


def too_small(facts: Facts, gpus: int) -> Finding:
    free, size = mib(facts.limits.shm_free_bytes), mib(facts.limits.shm_bytes)
    is_of_loaders = any(finding.problem.id == TOO_SMALL.id for finding in facts.found.get("messages", ()))
    problem = NO_SPACE if gpus > 1 and not is_of_loaders else TOO_SMALL
    engine = known(lambda: facts.container.engine)
    if engine == "kubernetes":
        problem = replace(problem, fixes=(KUBERNETES,))
    elif engine is None and facts.limits.shm_bytes == DEFAULT_BYTES:
        problem = replace(problem, fixes=(LIKELY_CONTAINER, *problem.fixes))
    words = f"{free} of {size} MiB are free" if size else f"{facts.limits.shm_bytes >> 10} KiB in all"
    words += f", for {gpus} GPUs" * (gpus > 1)
    return problem.found(words, {"free_mib": free, "size_mib": size, "gpus": gpus})


def is_short(free: int, gpus: int) -> bool:
    return free <= DEFAULT_BYTES or (gpus > 1 and free < PAIR_BYTES * gpus**2)


def stale_bytes(facts: Facts) -> int:
    return sum(segment.size_bytes for segment in facts.limits.nccl_segments if segment.name in facts.limits.stale_nccl_segments)


def leftovers(facts: Facts, stale: int) -> Finding:
    names = facts.limits.stale_nccl_segments
    words = f"{len(names)} NCCL files ({mib(stale)} MiB) are older than an hour; {mib(facts.limits.shm_free_bytes)} MiB are free"
    evidence = {"files": len(names), "example": names[0], "size_mib": mib(stale)}
    return LEFTOVERS.found(words, evidence, confidence=Confidence.LIKELY)


def listed(facts: Facts) -> Finding:
    """In a text, which does not show all files and their ages: NCCL keeps none there for long."""
    free, files = mib(facts.limits.shm_free_bytes), facts.shown.nccl_files
    words = f"{free} of {mib(facts.limits.shm_bytes)} MiB are free, and the text lists {len(files)} files of NCCL"
    evidence = {"files": len(files), "example": next(iter(files)), "free_mib": free}
    return LEFTOVERS.found(words, evidence, confidence=Confidence.LIKELY)


def mib(size: int) -> int:
    return size // MIB


def summary(facts: Facts) -> str:
    return f"{mib(facts.limits.shm_free_bytes)} MiB free in /dev/shm"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_SPACE, TOO_SMALL, LEFTOVERS),
    needs=("nvml",),
    after=("messages",),
    tags=("kubernetes", "memory", "multi-gpu", "nccl", "slurm"),
)
