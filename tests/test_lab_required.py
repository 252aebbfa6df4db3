"""Where Docker is required, nothing that the lab needs may be missing in silence."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from pathlib import Path

import lab
import lab_docker28
import lab_images
import own_registry
import pytest

Outcome = type[BaseException]


@pytest.fixture(params=[True, False], ids=["required", "not required"])
def outcome(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """How a test ends that cannot be done."""
    monkeypatch.setenv("GPUDOCTOR_TEST_DOCKER", "required" if request.param else "")
    return pytest.fail.Exception if request.param else pytest.skip.Exception


def test_a_program_that_is_missing(outcome: Outcome) -> None:
    with pytest.raises(outcome, match="not installed: no-such-program"):
        lab.need("sh", "no-such-program")


def test_a_user_who_is_not_root(outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(outcome, match="only root can"):
        lab.need_root()


def test_a_docker_that_cannot_be_had(outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "need", lambda *programs: None)
    monkeypatch.setattr(lab_docker28, "PAUSES_SECONDS", (0.0,))
    monkeypatch.setattr(lab_images, "DEBIAN", "http://localhost:1/debian")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(
        outcome, match=r"no Docker with CDI can be had from http://localhost:1/debian: sid: .*refused.*; trixie: "
    ):
        lab.need_docker_with_cdi()


@pytest.mark.parametrize("failures", [2, 3])
def test_a_download_is_tried_again(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_docker28, "PAUSES_SECONDS", (0.0, 0.0))
    asked: list[str] = []

    def respond(request: BaseHTTPRequestHandler) -> None:
        """A proxy that has nothing, a connection that breaks off, and then the file."""
        asked.append(request.path)
        if len(asked) == 1:
            own_registry.say(503, "")(request)
        elif len(asked) <= failures:
            request.send_response(200)
            request.send_header("Content-Length", "100")
            request.end_headers()
        else:
            own_registry.say(200, "content")(request)

    with own_registry.answers(respond) as host:
        if failures == 2:
            assert lab_docker28.read(f"http://{host}/file") == b"content"
        else:
            with pytest.raises(lab_docker28.FAILURES):
                lab_docker28.read(f"http://{host}/file")
    assert len(asked) == 3
