"""The GPU does not wait for copies, and not for other GPUs.

What it means
Data crosses PCIe between host and GPU, and NVLink or the network between GPUs. While a program waits for that, its kernels do not
run, or only those that wait for other ranks.

How it is judged
Compares the rates that GPM, DCGM or NVML count with what the links carry. Copies of page-locked memory reach about 80 % of the
PCIe rate, copies of pageable memory about 6 GiB/s. If the GPU had nothing to do in at least 15 % of the time, and copies at one
of these rates take at least half of that time, they are the limit; that is proven at the rate of page-locked memory, and likely
otherwise. Communication is likely the limit if NVLink or a network interface carries at least half of its rate, or if it carries
traffic while kernels run that fill few multiprocessors, as those of NCCL do.

Known exceptions
NVML alone counts PCIe traffic for 20 ms now and then. Its figure is rough, and the finding stays likely.

References
https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#data-transfer-between-host-and-device
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.judging.jobs import transfers, works
from gpudoctor.judging.jobs.works import Work, found, percent
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

COPIES = "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#data-transfer-between-host-and-device"

COPY_BOUND = Problem(
    id="job-copy-bound",
    title="The GPU waits for copies between host and GPU",
    why="PCIe carries far less than GPU memory. Pageable memory is first copied to a staging buffer, and the program waits "
    "meanwhile; copies of page-locked (pinned) memory are faster and run at the same time as kernels.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Copy from page-locked memory while kernels run: pin_memory=True and tensor.to(device, non_blocking=True)"),
        Fix("Keep data on the GPU between steps; create tensors there (device=) instead of copying them"),
        Fix("Copy less: smaller types (uint8, bfloat16), converted on the GPU; one large copy instead of many small ones"),
        look("Show generation and width of the PCIe link", "nvidia-smi -q -i <address> -d PERFORMANCE"),
    ),
    references=(COPIES,),
)
COMMUNICATION = Problem(
    id="job-communication-bound",
    title="The GPUs wait for communication between each other",
    why="In each step the GPUs exchange gradients, weights or activations. While that takes longer than the computation that "
    "runs at the same time, the GPUs wait.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Reduce what is exchanged: larger batches, gradient accumulation (no_sync), bfloat16 gradients"),
        Fix("Let it overlap with the computation: larger buckets (bucket_cap_mb), prefetch of FSDP"),
        look("Show how the GPUs are connected", "nvidia-smi topo -m"),
        Fix("Show what NCCL uses", "NCCL_DEBUG=INFO <command>"),
    ),
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from works.on_each(facts, judge_one)


def judge_one(work: Work) -> Iterator[Finding]:
    evidence = measured(work)
    if transfers.limits(work):
        pinned, pageable = transfers.copying(work) or (0.0, 0.0)
        rate = (transfers.busiest_direction(work) or 0.0) / 1024
        sure = work.gpu.has_metrics and pinned >= transfers.BOUND
        kind = "that is what the link carries" if sure else f"from pageable memory they take about {pageable:.0%} of the time"
        words = f"{work.had_nothing_to_do}; meanwhile copies moved {rate:.1f} GiB/s over PCIe: {kind}"
        yield found(COPY_BOUND, work, words, min(work.idle, pinned if sure else pageable), sure, **evidence)
    elif traffic := transfers.communication(work):
        words = (
            f"{traffic.where} carried {percent(traffic.share)} of its rate, while {percent(work.filled)} of the multiprocessors "
        )
        words += f"of GPU {work.gpu.index} worked, and none in {work.idle:.0%} of the time"
        yield found(COMMUNICATION, work, words, traffic.saves, False, **evidence)


def measured(work: Work) -> dict[str, object]:
    name, share = transfers.network(work) or ("", None)
    return {
        "pcie_rx_mib_s": work.mean("pcie_rx_mib_s"),
        "pcie_tx_mib_s": work.mean("pcie_tx_mib_s"),
        "nvlink_share": transfers.nvlink(work),
        "network_interface": name or None,
        "network_share": share,
        "main_thread": round(work.main_thread, 2),
    }


def summary(facts: Facts) -> str:
    rates = [rate for work in works.busy_works(facts) if (rate := transfers.busiest_direction(work)) is not None]
    if not rates:
        return "no copies that matter; PCIe traffic is not counted here"
    return f"copies do not hold the GPU up: at most {max(rates) / 1024:.1f} GiB/s over PCIe"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(COPY_BOUND, COMMUNICATION),
    tags=("performance",),
)
