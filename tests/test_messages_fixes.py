"""What a message of a Python framework says to type works as it stands: a text tells neither a GPU's index nor a file's name."""

from __future__ import annotations

import re
import subprocess

import pytest

from gpudoctor import catalog, doctor, evidence
from gpudoctor.knowledge import messages

TOPICS = (
    *("torch", "torch_program", "cuda_start", "cuda_kernels", "cuda_libraries", "memory", "extensions"),
    *(
        "cudnn",
        "system_libraries",
        "cuda_code",
        "extension_builds",
        "tensorflow",
        "jax",
        "onnxruntime",
        "serving",
        "data_science",
    ),
)
told = [row for topic in TOPICS for row in messages.tables()[topic].messages if not row.clue]
samples = [(row.id, sample) for row in told for sample in row.samples]


@pytest.mark.parametrize(("row", "sample"), samples, ids=[f"{row}-{number}" for number, (row, _) in enumerate(samples)])
def test_a_text_alone_gives_lines_to_paste(row: str, sample: str) -> None:
    """Each has a way out, no placeholder is left in any, and a shell can read them."""
    report = doctor.judge(evidence.snapshot_of(evidence.of_text(sample)), catalog.checks())
    assert report.diagnosis, row
    for entry in report.diagnosis:
        lines = [line for fix in entry.fixes for line in (fix.command, fix.verify, fix.undo) if line]
        assert any(fix.command for fix in entry.fixes), entry.problem
        assert not [line for line in lines if re.search(r"<[a-z_]+>", line)], entry.problem
        for line in lines:
            assert subprocess.run(["bash", "-n", "-c", line], check=False, capture_output=True).returncode == 0, line


@pytest.mark.parametrize("topic", TOPICS)
def test_a_row_says_what_its_own_ways_out_risk(topic: str) -> None:
    for row in messages.tables()[topic].messages:
        for way in row.fixes:
            disturbs = re.search(r"\b(reboot|rmmod|--gpu-reset)\b|rm -rf", way.command)
            assert not disturbs or way.risk != "safe" or "reboot" in way.command, way.title
            assert not way.title.startswith("Or "), way.title
