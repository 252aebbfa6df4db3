"""The device nodes and who opens them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from each import each

from gpudoctor.facts.devices import Devices
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Reply, Unavailable
from gpudoctor.worker.probes import devices as probe
from gpudoctor.worker.probes.machine import Machine

NODE: dict[str, Any] = {
    "type": "character",
    "mode": 0o666,
    "uid": 0,
    "gid": 44,
    "major": 195,
    "minor": 0,
    "access": True,
    "opened": False,
    "open_error": None,
}
IDENTITY = {"uid": 1000, "gid": 1000, "groups": {"44": "video", "1000": ""}, "owners": {"44": "video"}}


def devices(nodes: dict[str, Any], identity: dict[str, Any] = IDENTITY) -> Devices:
    return Devices(Replies({"devices": Reply("ok", nodes), "identity": Reply("ok", identity)}))


def test_nodes() -> None:
    node = devices({"/dev/nvidia0": NODE}).nodes["/dev/nvidia0"]
    assert (node.mode, node.uid, node.gid, node.major, node.minor) == (0o666, 0, 44, 195, 0)
    assert node.readable_writable
    assert node.is_device
    assert node.group == "video"


def test_gpu_nodes_by_number() -> None:
    names = ("nvidia10", "nvidia2", "nvidia-uvm", "nvidiactl", "nvidia-caps")
    found = devices({f"/dev/{name}": NODE for name in names})
    assert found.gpu_nodes == ("/dev/nvidia2", "/dev/nvidia10")


def test_what_a_device_cgroup_refuses() -> None:
    refused = {**NODE, "opened": True, "open_error": "EPERM"}
    node = devices({"/dev/nvidiactl": refused}).nodes["/dev/nvidiactl"]
    assert (node.readable_writable, node.open_error) == (True, "EPERM")


@each(
    "said",
    [
        "EPERM",
        "Operation not permitted",
        "[Errno 1] Operation not permitted: '/dev/nvidiactl'",
        "EPERM (Operation not permitted)",
        1,
    ],
)
def test_errors_and_modes_in_the_words_of_other_collectors(said: object) -> None:
    written = {**NODE, "mode": "0666", "open_error": said}
    node = devices({"/dev/nvidiactl": written}).nodes["/dev/nvidiactl"]
    assert (node.mode, node.open_error) == (0o666, "EPERM")


@pytest.mark.parametrize("nothing", ["", None, 0])
def test_no_error_in_the_words_of_other_collectors(nothing: object) -> None:
    assert devices({"/dev/nvidiactl": {**NODE, "open_error": nothing}}).nodes["/dev/nvidiactl"].open_error is None


def test_a_link_to_nowhere_is_not_a_node() -> None:
    found = devices({"/dev/nvidia0": {"error": "ENOENT"}})
    assert found.nodes == {}
    assert found.unreadable == {"/dev/nvidia0": "ENOENT"}


def test_a_folder_is_not_a_device() -> None:
    assert not devices({"/dev/nvidiactl": {**NODE, "type": "directory"}}).nodes["/dev/nvidiactl"].is_device


def test_identity() -> None:
    identity = devices({}).identity
    assert (identity.uid, identity.groups, identity.is_root) == (1000, {44: "video", 1000: ""}, False)


def test_nodes_that_were_not_listed_are_not_absent() -> None:
    with pytest.raises(Unavailable):
        _ = Devices(Replies({"devices": Reply("timeout")})).nodes


def ask(root: Path) -> dict[str, Reply]:
    return dict(probe.ask(Machine(str(root))))


def test_devices_opens_only_what_is_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dev/nvidia-caps").mkdir(parents=True)
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1"):
        os.mkfifo(tmp_path / "dev" / name)
    opened: list[str] = []

    def fake_open(path: str, flags: int) -> int:
        opened.append(path)
        return os.dup(0)

    monkeypatch.setattr(os, "open", fake_open)
    nodes = ask(tmp_path)["devices"].value
    assert list(nodes) == ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-caps/nvidia-cap1"]
    assert [path.rsplit("/", 1)[-1] for path in opened] == ["nvidia-uvm", "nvidiactl"]
    assert (nodes["/dev/nvidia0"]["opened"], nodes["/dev/nvidiactl"]["open_error"]) == (False, None)


def test_an_open_that_fails_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").mkdir()  # what docker makes of a bind mount of a node that does not exist
    (tmp_path / "dev/nvidia0").symlink_to("/nowhere/at/all")
    nodes = ask(tmp_path)["devices"].value
    assert (nodes["/dev/nvidiactl"]["type"], nodes["/dev/nvidiactl"]["open_error"]) == ("directory", "EISDIR")
    assert nodes["/dev/nvidia0"] == {"error": "ENOENT"}


def test_identity_names_no_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/group").write_text("root:x:0:\nvideo:x:44:alice\nalice:x:1001:\n")
    monkeypatch.setattr(os, "getegid", lambda: 1001)
    monkeypatch.setattr(os, "getgroups", lambda: [44, 1001])
    reply = ask(tmp_path)["identity"]
    assert reply.value["groups"] == {"44": "video", "1001": ""}
    assert "alice" not in json.dumps(reply.value)
