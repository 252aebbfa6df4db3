"""What a message of a Python framework says to type works as it stands: a text tells neither a GPU's index nor a file's name."""

from __future__ import annotations

import re

import pytest
import safe_script
from each import each, try_each

from gpudoctor import doctor, evidence
from gpudoctor.knowledge import messages

pytestmark = pytest.mark.slow

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
        *(
            "system_calls",
            "graphics",
            "media",
            "rdma",
            "batch",
            "orchestrators",
            "virtual_machines",
            "jetson",
            "releases",
            "frameworks",
        ),
    ),
)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_text_alone_gives_lines_to_paste(topic: str) -> None:
    """Each has a way out, no placeholder is left in any, and a shell can read them."""
    told = (row for row in messages.tables()[topic].messages if not row.clue)
    try_each(_gives_lines_to_paste, ((row.id, sample) for row in told for sample in row.samples))


def _gives_lines_to_paste(sample: str) -> None:
    report = doctor.judge_at_its_level(evidence.snapshot_of(evidence.of_text(sample)))
    assert report.diagnosis
    for entry in report.diagnosis:
        lines = [line for fix in entry.fixes for line in (fix.command, fix.verify, fix.undo) if line]
        assert any(fix.command for fix in entry.fixes), entry.problem
        assert not [line for line in lines if re.search(r"<[a-z_]+>", line)], entry.problem
        for line in lines:
            assert safe_script.complaint("bash", line) == "", line


@each("topic", TOPICS)
def test_a_row_says_what_its_own_ways_out_risk(topic: str) -> None:
    for row in messages.tables()[topic].messages:
        for way in row.fixes:
            disturbs = re.search(r"\b(reboot|rmmod|--gpu-reset)\b|rm -rf", way.command)
            assert not disturbs or way.risk != "safe" or "reboot" in way.command, way.title
            assert not way.title.startswith("Or "), way.title
