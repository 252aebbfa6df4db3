"""Messages of the driver, the kernel, installers and containers: their words alone give a fix that can be pasted as it is."""

from __future__ import annotations

import re

import pytest
from each import try_each

from gpudoctor import catalog, doctor, evidence
from gpudoctor.knowledge import messages

pytestmark = pytest.mark.slow

TOPICS = (
    *("nvidia_smi", "kernel", "driver", "installers", "containers", "apptainer", "wsl", "vgpu"),
    *messages.topics("container-start"),
)
IN_CONTAINER = "$ podman run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi\n"


@pytest.mark.parametrize("topic", TOPICS)
def test_words_alone_give_a_line_to_paste(topic: str) -> None:
    rows = messages.tables()[topic].messages
    try_each(_gives_a_line_to_paste, ((row.id, row) for row in rows if not row.clue))


def _gives_a_line_to_paste(row: messages.Message) -> None:
    checks = doctor.select(catalog.checks(), "quick")
    command = IN_CONTAINER if row.id.startswith("engine-container-") else ""
    for sample in row.samples:
        diagnosis = doctor.judge(evidence.snapshot_of(evidence.of_text(command + sample)), checks).diagnosis
        assert diagnosis[0].problem in (row.problem, *row.causes)
        lines = [line for fix in diagnosis[0].fixes for line in (fix.command, fix.verify)]
        assert any(lines)
        assert not [line for line in lines if re.search(r"<[a-z_]+>", line)]
