"""What could not be read is never called healthy."""

from __future__ import annotations

from dataclasses import replace

import machine
import pytest
from each import each

from gpudoctor import catalog, doctor
from gpudoctor.model import Reply, Result, Skip, Snapshot, Status


def judged(taken: Snapshot, **replies: Reply) -> dict[str, Result]:
    """With other answers to some questions; `environment` adds to the variables."""
    report = doctor.judge(replace(taken, replies={**taken.replies, **replies}), doctor.select(catalog.checks(), "quick"))
    return {row.id: row for row in report.checks}


@pytest.mark.parametrize("case", ["h100-measured", "healthy-dgx-spark", "workstation", "no-gpu"])
@pytest.mark.parametrize("status", ["denied", "error", "timeout", "died"])
def test_no_check_passes_without_any_answer(case: str, status: str) -> None:
    taken = replace(machine.load(case), measured={})
    rows = judged(taken, **dict.fromkeys(taken.replies, Reply(status, None, "no luck")))
    assert {id for id, row in rows.items() if row.status is Status.PASS} <= {"probes"}  # which is about the questions themselves


def with_docker_host(host: str, reply: Reply) -> Result:
    taken = machine.load("docker-switched-off")
    variables = {**taken.replies["environment"].value, "DOCKER_HOST": host}
    return judged(taken, environment=Reply("ok", variables), docker=reply)["docker-context"]


@each(
    ("host", "reply", "reason"),
    [
        ("unix:///nope.sock", Reply("missing"), Skip.NO_ANSWER),
        ("unix:///nope.sock", Reply("error", None, "Connection refused"), Skip.NO_ANSWER),
        ("unix:///run/docker.sock", Reply("denied", None, "Permission denied"), Skip.NOT_PERMITTED),
        ("unix:///run/docker.sock", Reply("timeout", None, "20 s"), Skip.NO_ANSWER),
        ("", Reply("missing"), Skip.NOT_APPLICABLE),  # Docker is installed and not running, perhaps on purpose
    ],
)
def test_docker_is_not_healthy_where_no_daemon_answers(host: str, reply: Reply, reason: str) -> None:
    row = with_docker_host(host, reply)
    assert (row.status, row.reason) == (Status.SKIP, reason)
    assert "nothing wrong" not in row.message


def test_a_lost_gpu_does_not_hide_what_the_others_say() -> None:
    rows = judged(machine.load("gpu-lost"))
    assert rows["power-limit"].message.endswith("W; GPU 7 does not answer")
    assert rows["inforom"].message.startswith("InfoROM ")
