"""All GPUs together train a model: the gradients are correct and identical, and the loss falls.

What it means
DistributedDataParallel gives each GPU a part of the examples and averages the gradients after each step. If one GPU ends up
with different gradients, the models drift apart without an error, and the training is lost.

How it is judged
Trains a small network with one rank per GPU. Each rank compares the averaged gradients with those that it computes alone from
the examples of all ranks; they may differ only by rounding (less than a thousandth). A checksum of the exact bits must be the
same on all ranks. Over some steps the loss must stay finite and fall.

Known exceptions
The time of a step is shown, with and without communication, and not judged: the model is small, and on slow links most of a
step is communication. all-reduce judges the links.

References
https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.join import index_of
from gpudoctor.facts.measured import Run
from gpudoctor.fixes.common import look, vendor_test
from gpudoctor.judging.measured import collectives
from gpudoctor.model import Action, Check, Figure, Finding, Problem, Skip

WORKLOAD = "distributed"
AGAIN = "gpudoctor check --only distributed-training"
MOST_ERROR = 1e-3  # relative to the gradients' norm; TF32 rounds the same way on both sides
STEPS = {"training": "training step", "training without communication": "training step without communication"}
DDP = "https://docs.pytorch.org/docs/stable/notes/ddp.html"

DIFFERENT = Problem(
    id="distributed-gradients-wrong",
    title="GPUs that train one model get wrong or different gradients",
    why="After the exchange all GPUs must hold the same average, bit for bit. Otherwise each GPU trains a different model. Data "
    "is damaged between them, or one of them computes wrong results.",
    action=Action.FIX_CONFIG,
    fixes=(
        look(
            "Find out which GPU computes wrong results, or which pair damages data",
            "gpudoctor check --only gemm,peer-transfers,all-reduce",
        ),
        look("Check whether the gradients are correct without direct access", "NCCL_P2P_DISABLE=1 " + AGAIN),
        look("Check for memory and link errors", "nvidia-smi -q -d ECC,ROW_REMAPPER; nvidia-smi nvlink -e"),
    ),
    references=(DDP,),
)
NO_PROGRESS = Problem(
    id="distributed-training-does-not-learn",
    title="A test training fails: its loss is not finite or does not fall",
    why="The network and its data are known, and on a healthy machine the loss falls from the first step on. A GPU or a library "
    "computes wrong results.",
    action=Action.WATCH,
    fixes=(
        look("Find out which GPU computes wrong results", "gpudoctor check --only gemm,memory-bandwidth"),
        vendor_test("Test the hardware with the vendor's own tests", "-r 3"),
        look("Run the training again", AGAIN),
    ),
    references=(DDP,),
)


def trained(facts: Facts) -> Run:
    (run,) = facts.measured.runs(WORKLOAD)
    if not any("gradient_checksum" in rank for rank in ranks(run)):
        raise Skip("the training did not start: see measurements", Skip.NO_ANSWER)
    return run


def ranks(run: Run) -> list[dict[str, Any]]:
    return [values for name, values in sorted(run.values.items()) if name.startswith("rank ")]


def figures(facts: Facts) -> Iterator[Figure]:
    run = trained(facts)
    for name, words in STEPS.items():
        if name in run.values:
            yield Figure(words, run.values[name]["milliseconds_per_step"], "ms", None, less_is_better=True)


def judge(facts: Facts) -> Iterator[Finding]:
    run = trained(facts)
    yield from judge_gradients(facts, run)
    if "training" not in run.values:
        raise Skip("the training did not finish: see measurements", Skip.NO_ANSWER)
    values = run.values["training"]
    if values["last_loss"] is None or values["first_loss"] is None or values["last_loss"] >= values["first_loss"]:
        words = ["not finite" if loss is None else f"{loss:.4g}" for loss in (values["first_loss"], values["last_loss"])]
        because = "distributed-gradients-wrong" if wrong_gradients(facts, run) else ""
        yield replace(NO_PROGRESS.found(f"the loss went from {words[0]} to {words[1]}"), because=because)


def judge_gradients(facts: Facts, run: Run) -> Iterator[Finding]:
    words = wrong_gradients(facts, run)
    if words:
        checksums = {str(index): rank["gradient_checksum"] for index, rank in trained_ranks(facts, run).items()}
        session = collectives.Session.of(facts)
        because = collectives.damage(facts) or ("all-reduce-wrong" if session.wrong_sums else "")
        yield replace(DIFFERENT.found("; ".join(words), {"checksums": checksums}), because=because)


def wrong_gradients(facts: Facts, run: Run) -> list[str]:
    """Descriptions of what is wrong with the gradients."""
    known = trained_ranks(facts, run)
    errors = {index: rank["gradient_error"] for index, rank in known.items()}
    wrong = {index: error for index, error in errors.items() if error is None or error > MOST_ERROR}
    words = [
        f"gradients of GPU {index} are {'not finite' if error is None else f'off by {error:.2g}'}"
        for index, error in wrong.items()
    ]
    checksums = {index: rank["gradient_checksum"] for index, rank in known.items()}
    if len(set(checksums.values())) > 1:
        words.append("checksums differ: " + ", ".join(f"GPU {index} {value}" for index, value in checksums.items()))
    return words


def trained_ranks(facts: Facts, run: Run) -> dict[int, dict[str, Any]]:
    """The ranks that trained, by NVML's index of the GPU."""
    devices = facts.cuda.devices
    return {index_of(facts, devices[rank["gpu"]]): rank for rank in ranks(run) if "gradient_checksum" in rank}


def summary(facts: Facts) -> str:
    run = trained(facts)
    steps = [f"{figure.value:.1f} ms a step" for figure in facts.once(figures) if figure.what == STEPS["training"]]
    return ", ".join([f"gradients correct and identical on {len(ranks(run))} GPUs", *steps])


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(DIFFERENT, NO_PROGRESS),
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
    tags=("nccl", "pytorch"),
)
