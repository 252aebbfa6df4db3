"""A real container on a real engine: collected inside, where gpudoctor is not installed, and judged outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor import catalog, doctor
from gpudoctor.collect import collect
from gpudoctor.facts import Facts
from gpudoctor.facts.engines import Engines
from gpudoctor.facts.replies import Replies
from gpudoctor.interpreter import Interpreter
from gpudoctor.model import Report, Snapshot, Status
from gpudoctor.worker.probes import runtime
from gpudoctor.worker.probes.machine import Machine

pytestmark = pytest.mark.docker


@pytest.fixture
def image(bookworm: str) -> str:
    return bookworm


def inside(tmp_path: Path, image: str, *options: str) -> Snapshot:
    """What a container answers: its interpreter is a script that starts it."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec docker run --rm -i --network=none {" ".join(options)} {image} python3 "$@"\n')
    script.chmod(0o755)
    return collect(Interpreter(str(script)), 60.0, {}, lambda names: None)


def verdict(snapshot: Snapshot) -> Report:
    return doctor.judge(snapshot, doctor.select(catalog.checks(), "quick"))


def test_a_debian_container_is_seen_as_what_it_is(tmp_path: Path, image: str) -> None:
    snapshot = inside(tmp_path, image)
    facts = Facts(snapshot)
    assert facts.container.engine == "docker"
    assert "CAP_SYS_ADMIN" not in facts.container.capabilities
    assert facts.limits.shm_bytes == 64 << 20
    assert facts.system.distribution == "debian"
    assert "container" in facts.system.platform
    report = verdict(snapshot)
    assert [row for row in report.checks if row.status is Status.ERROR] == []
    assert [entry.problem for entry in report.diagnosis] == ["no-nvidia-gpu"]


def test_what_a_container_was_given_is_seen(tmp_path: Path, image: str) -> None:
    options = ("--cap-drop=ALL", "--cap-add=CHOWN", "--shm-size=256m", "--ulimit", "memlock=65536")
    facts = Facts(inside(tmp_path, image, *options))
    assert facts.container.capabilities == {"CAP_CHOWN"}
    assert facts.limits.shm_bytes == 256 << 20
    assert facts.limits.memlock == (65536, 65536)


def test_a_container_without_rights(tmp_path: Path, image: str) -> None:
    snapshot = inside(tmp_path, image, "--user", "1234:1234", "--cap-drop=ALL")
    assert Facts(snapshot).devices.identity.uid == 1234
    assert [row for row in verdict(snapshot).checks if row.status is Status.ERROR] == []


def test_this_daemon_answers_the_runtime_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "DOCKER_SECONDS", 30.0)
    docker = Engines(Replies(dict(runtime.ask(Machine())))).docker
    assert docker
    assert docker.reachable
    assert "runc" in docker.runtimes
