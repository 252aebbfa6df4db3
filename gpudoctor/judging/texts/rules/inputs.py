"""Training that waits for its data: the CPUs and programs of a text wait for a disk or a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.guests import swap_rate
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding, Fix

MUCH, BUSY, IDLE = 20.0, 90.0, 50  # percent of the CPUs' time, of a disk's time, and of the GPU's
SEVERAL = 2
TITLE = "The data loaders wait for the disk or the network storage"
WHY = (
    "Processes in state D, and the CPUs' time in wa, wait for reads. A data set of many small files on a hard disk or on NFS is "
    "read far slower than a GPU can train, so the GPU is idle most of the time."
)
WAYS = (
    Fix(
        "Show what the workers wait for, and how fast the storage delivers",
        "ps -eo pid,stat,wchan:30,args | grep '^ *[0-9]* D'; iostat -x 2 3; nfsstat -c",
        kind="read",
    ),
    Fix("Copy the data set to a local SSD (in Slurm: to $TMPDIR of the node) before the training starts"),
    Fix("Pack small files into few large ones that are read in order: WebDataset, Parquet, LMDB, FFCV"),
    Fix("Keep decoded samples in memory if they fit, so that only the first epoch reads them"),
)
_SLOW = re.compile(
    r"""
    \b(?: slow\w* | starv\w+ | hang\w* | stuck | idle )\b
    | \b(?: low | 0\ ?% )[^\n]{0,20}(?:GPU|util)
    | (?:GPU|util)\w*[^\n]{0,20}(?: \blow\b | \b0\ ?% )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_REMOTE = re.compile(
    r"""
    ^\S+:/\S*\s
    | \btype\ (?:nfs4?|cifs|lustre|ceph|beegfs|fuse\.\w+)\b
    | \bnfs4?\s
    | /(?:mnt/)?(?:nfs|nas)\b
    | \bNFS\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_WAITS = re.compile(
    r"""
    \b(?:nfs_\w+|rpc_wait\w*|io_schedule|folio_wait\w*|wait_on_page\w*|wait_on_bit\w*|rq_qos_wait)\b
    """,
    re.VERBOSE,
)


def waits_for_storage(facts: Facts) -> Iterator[Finding]:
    shown, texts = facts.shown, tuple(passages(facts))
    disk, percent = shown.busy_disk
    blocked = len(shown.blocked) >= SEVERAL
    waits = shown.waiting >= MUCH or percent >= BUSY
    if not (waits or is_blocked_by_storage(facts)) or swap_rate(facts):
        return
    is_training = blocked or any(map(_is_idle, known(lambda: facts.nvml.gpus, ())))
    if not (is_training or any(_SLOW.search(text) for text in texts)) or not _has_gpu(facts, texts):
        return
    parts = [f"the CPUs wait for reads in {shown.waiting:.0f} % of their time"] * (shown.waiting >= MUCH)
    parts += [f"{disk} is busy in {percent:.0f} % of the time"] * (percent >= BUSY)
    parts += [f"{len(shown.blocked)} processes of the program wait in the kernel (state D)"] * blocked
    problem = replace(facts.problems["data-loading-limits-training"], title=TITLE, why=WHY, fixes=WAYS)
    yield problem.found(" and ".join(parts), {"waiting_percent": shown.waiting, "disk": disk}, confidence=Confidence.LIKELY)


def is_blocked_by_storage(facts: Facts) -> bool:
    """Several programs wait in the kernel, and the text names a network file system or what they wait for."""
    texts = passages(facts)
    return len(facts.shown.blocked) >= SEVERAL and any(_REMOTE.search(text) or _WAITS.search(text) for text in texts)


def _is_idle(gpu: Gpu) -> bool:
    return known(lambda: gpu.get("UtilizationRates.gpu"), 100) < IDLE


def _has_gpu(facts: Facts, texts: tuple[str, ...]) -> bool:
    return bool(known(lambda: facts.nvml.count, 0)) or any(_TRAINING.search(text) for text in texts)


_TRAINING = re.compile(r"(?i)\bgpu|\bcuda\b|\btrain\w*|data ?loader|\bepoch\b")


def few_cpus(facts: Facts) -> Iterator[Finding]:
    """nproc counts the CPUs that the job may use: too few to load data for a GPU, which is idle."""
    cpus, texts = facts.shown.cpus, tuple(passages(facts))
    idle = any(map(_is_idle, known(lambda: facts.nvml.gpus, ())))
    if 0 < cpus <= FEW and idle and any(_TRAINS.search(text) for text in texts):
        words = f"the job may use {cpus} CPU{'s' * (cpus != 1)}, and the GPU is idle most of the time"
        problem = replace(facts.problems["data-loading-limits-training"], title=FEW_TITLE, why=FEW_WHY, fixes=MORE_CPUS)
        yield problem.found(words, {"cpus": cpus}, confidence=Confidence.LIKELY)


FEW = 2
FEW_TITLE = "The job has too few CPUs to keep the GPU busy"
FEW_WHY = (
    "Data loaders, decoding and the launch of kernels need several CPUs for each GPU. Slurm, Kubernetes and Docker give a job "
    "one if it requests no more, whatever the node has."
)
MORE_CPUS = (
    Fix("Request more: --cpus-per-task=8 in Slurm, resources.limits.cpu in Kubernetes, --cpus in Docker"),
    Fix("Show how many CPUs the process may use", "nproc; grep Cpus_allowed_list /proc/self/status", kind="read"),
    Fix("Set num_workers of the DataLoader to that number"),
)
_TRAINS = re.compile(r"(?i)\btrain\w*|data ?loader|\bepoch\b|num_workers")
RULES = (waits_for_storage, few_cpus)
