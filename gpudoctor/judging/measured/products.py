"""Matrix products in fp32 of frameworks that choose between fp32 and TF32 themselves."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.judging.measured import expect
from gpudoctor.judging.measured.expect import Expected
from gpudoctor.model import Figure

MUCH_FASTER = 1.5


def reachable(facts: Facts, gpu: int, tflops: float) -> Expected:
    """A result much faster than fp32 allows is TF32."""
    expected = expect.tflops(facts, gpu, "fp32")
    return expect.tflops(facts, gpu, "tf32") if expected.value and tflops > MUCH_FASTER * expected.value else expected


def figures(facts: Facts, workload: str, what: str) -> Iterator[Figure]:
    """The section "matmul" of each run: {"tflops", "wrong_rows"}."""
    for run in facts.measured.runs(workload):
        values = run.values.get("matmul")
        if values is None or run.gpu is None:
            continue
        expected = reachable(facts, run.gpu, values["tflops"])
        wrong = f"{values['wrong_rows']} wrong rows" if values["wrong_rows"] else ""
        during = values.get("during", {})
        yield Figure(
            what,
            values["tflops"],
            "TFLOP/s",
            run.gpu,
            expected.value,
            expected.rule,
            wrong=wrong,
            during=during,
            unlisted=expected.unlisted,
        )
