"""Services: a unit that is not there, one that failed and a machine without systemd are three different things."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.facts.replies import Replies
from gpudoctor.facts.services import Services
from gpudoctor.model import Reply, Skip, Unavailable

SHOW = "command:systemctl show --no-pager --property=Id,LoadState nvidia-fabricmanager.service"
UNITS = """\
Result=exit-code
Id=nvidia-fabricmanager.service
LoadState=loaded
ActiveState=failed
SubState=failed
UnitFileState=enabled

Result=success
Id=nvidia-persistenced.service
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=static

Result=success
Id=nvidia-imex.service
LoadState=not-found
ActiveState=inactive
SubState=dead
UnitFileState=

Result=success
Id=nvidia-suspend.service
LoadState=masked
ActiveState=inactive
SubState=dead
UnitFileState=masked
"""
NO_SYSTEMD = """\
System has not been booted with systemd as init system (PID 1). Can't operate.
Failed to connect to bus: Host is down
"""


def services(answers: dict[str, Any]) -> Services:
    return Services(Replies({q: a if isinstance(a, Reply) else Reply("ok", a) for q, a in answers.items()}))


def test_units() -> None:
    facts = services({SHOW: {"code": 0, "out": UNITS, "err": ""}})
    failed = facts.unit("nvidia-fabricmanager")
    assert failed is not None
    assert (failed.load, failed.active, failed.sub, failed.result) == ("loaded", "failed", "failed", "exit-code")
    assert not failed.is_active
    running = facts.unit("nvidia-persistenced.service")
    assert running is not None
    assert running.is_active
    masked = facts.unit("nvidia-suspend")
    assert masked is not None
    assert (masked.load, masked.enabled) == ("masked", "masked")
    assert facts.unit("nvidia-imex") is None


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ({SHOW: {"code": 1, "out": "", "err": NO_SYSTEMD}}, Skip.UNSUPPORTED),
        ({SHOW: Reply("missing", detail="No such file or directory")}, Skip.NOT_INSTALLED),
        ({SHOW: Reply("timeout", detail="no answer in 2 s")}, Skip.NO_ANSWER),
        ({}, Skip.NO_ANSWER),
    ],
)
def test_without_systemd_no_unit_is_missing(answers: dict[str, Any], kind: str) -> None:
    with pytest.raises(Unavailable) as refusal:
        services(answers).unit("nvidia-fabricmanager")
    assert refusal.value.kind == kind


def test_processes() -> None:
    facts = services(
        {
            "processes": [
                {"name": "nvidia-smi", "pid": 7, "state": "D"},
                {"name": "nvidia-smi", "pid": 9, "state": "D"},
                {"name": "nv-fabricmanager", "pid": 11, "state": "S"},
                {"name": "nvidia-imex", "pid": 12, "state": "Z"},
                {"name": "dockerd", "pid": 13, "state": "D"},
            ]
        }
    )
    assert facts.processes["nvidia-smi"] == (7, 9)
    assert facts.is_running("nv-fabricmanager")
    assert not facts.is_running("nvidia-imex")  # a zombie
    assert not facts.is_running("nvidia-gridd")
    assert [process.pid for process in facts.stuck] == [7, 9]


def test_hidden_processes_are_not_absent() -> None:
    with pytest.raises(Unavailable):
        services({"processes": Reply("denied", detail="Permission denied")}).is_running("nv-fabricmanager")


@pytest.mark.parametrize(
    ("reply", "version"),
    [
        ({"code": 0, "out": "Fabric Manager version is : 550.54.15\n", "err": ""}, "550.54.15"),
        (Reply("missing"), None),
    ],
)
def test_fabric_manager_version(reply: Any, version: str | None) -> None:
    assert services({"command:nv-fabricmanager --version": reply}).fabric_manager_version == version


def test_a_fabric_manager_that_says_nothing_has_no_version() -> None:
    with pytest.raises(Unavailable):
        _ = services({"command:nv-fabricmanager --version": {"code": 1, "out": "", "err": ""}}).fabric_manager_version


def test_files() -> None:
    facts = services(
        {
            "file:/var/log/fabricmanager.log": Reply("missing"),
            "file:/etc/nvidia/gridd.conf": "# FeatureType 0..4\nServerAddress=removed\nFeatureType=1\n",
            "licence-tokens": [{"name": "client_configuration_token_01-02-2026.tok", "mode": 0o600}],
            "service-files": {"/etc/nvidia-imex/nodes_config.cfg": True},
        }
    )
    assert facts.fabric_manager_log is None
    assert facts.licence_configuration == {"ServerAddress": "removed", "FeatureType": "1"}
    assert facts.licence_tokens[0].mode == 0o600
    assert facts.has_imex_nodes
    assert services({"file:/etc/nvidia/gridd.conf": Reply("missing")}).licence_configuration is None
