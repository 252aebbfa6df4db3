"""What the environment and NCCL's configuration files say."""

from __future__ import annotations

import pytest

from gpudoctor.facts.environment import Environment, Setting, parse_nccl_conf
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Reply, Skip, Unavailable

MISSING = Reply("missing")


def environment(variables: dict[str, str], **files: Reply) -> Environment:
    system, user = files.get("system", MISSING), files.get("user", MISSING)
    replies = {"environment": Reply("ok", variables), "file:/etc/nccl.conf": system, "file:~/.nccl.conf": user}
    return Environment(Replies(replies))


def test_library_path_is_split_like_the_loader_does() -> None:
    found = environment({"LD_LIBRARY_PATH": "/usr/local/cuda/lib64:;/opt/lib:", "PATH": "/usr/bin:/bin"})
    assert found.library_path == ("/usr/local/cuda/lib64", "/opt/lib")
    assert found.path == ("/usr/bin", "/bin")


def test_nothing_set_is_an_answer() -> None:
    found = environment({})
    assert (found.library_path, found.get("CUDA_VISIBLE_DEVICES"), found.nccl) == ((), None, {})


def test_environment_that_was_not_read_is_not_empty() -> None:
    with pytest.raises(Unavailable):
        _ = Environment(Replies({})).variables


def test_nccl_settings_come_from_the_nearest_source() -> None:
    found = environment(
        {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0"},
        system=Reply("ok", "NCCL_DEBUG=WARN\nNCCL_P2P_DISABLE=1\nNCCL_IB_DISABLE=1\n"),
        user=Reply("ok", "NCCL_IB_DISABLE=0"),
    )
    assert found.nccl == {
        "NCCL_DEBUG": Setting("INFO", "environment"),
        "NCCL_P2P_DISABLE": Setting("1", "/etc/nccl.conf"),
        "NCCL_IB_DISABLE": Setting("0", "~/.nccl.conf"),
    }


def test_nccl_conf_file_replaces_the_one_in_the_home() -> None:
    replies = {
        "environment": Reply("ok", {"NCCL_CONF_FILE": "/opt/nccl.conf"}),
        "file:/etc/nccl.conf": MISSING,
        "file:~/.nccl.conf": Reply("ok", "NCCL_ALGO=Tree"),
        "file:/opt/nccl.conf": Reply("ok", "NCCL_ALGO=Ring"),
    }
    assert Environment(Replies(replies)).nccl["NCCL_ALGO"] == Setting("Ring", "/opt/nccl.conf")


def test_nccl_conf_that_may_not_be_read_is_not_an_empty_one() -> None:
    with pytest.raises(Unavailable) as raised:
        _ = environment({}, system=Reply("denied")).nccl
    assert raised.value.kind == Skip.NOT_PERMITTED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME==ens1f0\n", {"NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "=ens1f0"}),
        ("# NCCL_P2P_DISABLE=1\n  # NCCL_DEBUG=INFO\n\nno setting\n", {}),
        ("", {}),
    ],
)
def test_nccl_conf(text: str, expected: dict[str, str]) -> None:
    assert parse_nccl_conf(text) == expected
