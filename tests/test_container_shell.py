"""What a shell shows of a container without Python becomes the replies that Python would have given."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from each import each
from waiting import HOPELESS_SECONDS

from gpudoctor.containers.target import shell
from gpudoctor.containers.target.inside import SERVE
from gpudoctor.containers.target.start import requested
from gpudoctor.facts import Facts
from gpudoctor.model import Reply, Skip, Snapshot

MARKER = "0123456789abcdef"
SHOWN = f"""
{MARKER}@file /etc/os-release
ID=ubuntu
VERSION_ID="22.04"
PRETTY_NAME="Ubuntu 22.04.5 LTS"

{MARKER}@file /proc/self/limits
Limit                     Soft Limit           Hard Limit           Units
Max locked memory         65536                65536                bytes

{MARKER}@file /../../escaped
no

{MARKER}@file /proc/self/mountinfo
700 600 0:50 / / rw,relatime master:1 - overlay overlay rw

{MARKER}@denied /proc/driver/nvidia/params

{MARKER}@file /proc/driver/nvidia/version
NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Release Build

{MARKER}@mark /.dockerenv

{MARKER}@environment
NVIDIA_VISIBLE_DEVICES=all
SECRET_TOKEN=x
LD_LIBRARY_PATH=/usr/local/nvidia/lib64

{MARKER}@identity
1000
1000
1000 44

{MARKER}@nodes
1 crw-rw-rw- 1 0 0 195,   0 Nov 21 07:12 /dev/nvidia0
0 crw-rw---- 1 0 44 195, 255 Nov 21 07:12 /dev/nvidiactl

{MARKER}@shm
Filesystem     1K-blocks  Used Available Use% Mounted on
shm                65536     4     65532   1% /dev/shm

{MARKER}@ldconfig
1 libs found in cache `/etc/ld.so.cache'
\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1

{MARKER}@smi
GPU 0: NVIDIA L4 (UUID: GPU-1)
code 0
"""


class Shown:
    """A container of which the shell showed this."""

    marker = MARKER

    def __init__(self, text: str) -> None:
        self.text = text

    def look(self, files: Any) -> list[bytes]:
        return self.text.encode().split(b"\n")


def facts_of(text: str = SHOWN) -> Facts:
    return Facts(Snapshot("", "", "", shell.replies(Shown(text))))  # type: ignore[arg-type]


def test_files_become_facts() -> None:
    facts = facts_of()
    assert facts.system.distribution == "ubuntu"
    assert facts.driver.module_version == "550.90.07"
    assert facts.limits.memlock == (65536, 65536)
    assert facts.limits.shm_bytes == 64 << 20
    assert facts.container.engine == "docker"
    assert facts.replies.get("file:/proc/driver/nvidia/params").status == "denied"


def test_what_ls_shows_becomes_nodes() -> None:
    nodes = facts_of().devices.nodes
    assert (nodes["/dev/nvidia0"].mode, nodes["/dev/nvidia0"].readable_writable) == (0o666, True)
    assert (nodes["/dev/nvidiactl"].minor, nodes["/dev/nvidiactl"].gid) == (255, 44)
    assert not nodes["/dev/nvidiactl"].readable_writable
    assert facts_of().devices.identity.uid == 1000


def test_secrets_stay_in_the_container() -> None:
    assert facts_of().environment.variables == {"NVIDIA_VISIBLE_DEVICES": "all", "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}


def test_what_a_shell_cannot_know_was_not_asked() -> None:
    facts = facts_of()
    for read in (lambda: facts.nvml.gpus, lambda: facts.cuda.init_code, lambda: facts.limits.cgroup_memory_bytes):
        with pytest.raises(Skip):
            read()


@pytest.mark.parametrize(
    ("said", "reduced", "is_broken"),
    [
        ("", "the container has no Python", False),
        (f"{MARKER}@broken python\nversion 2.7.18 (default)\n\n", "the container's Python is older than 3.8", False),
        (f"{MARKER}@broken python3\nFatal Python error: init_fs_encoding\n\n", "the container's Python does not start", True),
    ],
)
def test_why_only_a_shell_was_asked(said: str, reduced: str, is_broken: bool) -> None:
    replies = shell.replies(Shown(SHOWN + "\n" + said))  # type: ignore[arg-type]
    assert replies["reduced"].value.startswith(reduced)
    assert ("broken-python" in replies) is is_broken


def test_no_file_is_written_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "a" / "b"))
    (tmp_path / "a" / "b").mkdir(parents=True)
    facts_of()
    assert [path.name for path in tmp_path.rglob("*escaped*")] == []


def test_a_shell_that_shows_what_it_likes_spoils_only_that() -> None:
    names = ("/", "/etc/os-release/x", "/etc", "/\0", "/" + "x" * 5000, "../../escaped")
    hostile = "".join(f"\n{MARKER}@file {name}\nx\n" for name in names)
    text = SHOWN.replace("code 0", "code none") + hostile + f"\n{MARKER}@shm\nx 1 2 3\n\n{MARKER}@identity\n1\n"
    facts = facts_of(text)
    assert facts.system.distribution == "ubuntu"
    with pytest.raises(Skip):
        _ = facts.driver.nvidia_smi


def test_no_nvidia_smi_is_no_answer_of_it() -> None:
    text = SHOWN.replace("GPU 0: NVIDIA L4 (UUID: GPU-1)\ncode 0", "sh: 1: nvidia-smi: not found\ncode 127")
    assert "command:nvidia-smi -L" not in shell.replies(Shown(text))  # type: ignore[arg-type]
    answer = facts_of().driver.nvidia_smi
    assert answer
    assert answer.code == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dash", "bash", "busybox"])
def test_every_shell_can_serve(name: str) -> None:
    """The real script, on this machine, with the shells that images have."""
    argv = [name, "sh"] if name == "busybox" else [name]
    try:
        done = subprocess.run(
            [*argv, "-c", SERVE.read_text(), "gpudoctor", MARKER, "print('worked')", "", ""],
            input="job\nlook /etc/os-release /etc/shadow- /nowhere\n",
            capture_output=True,
            text=True,
            timeout=HOPELESS_SECONDS,
        )
    except FileNotFoundError:
        pytest.skip(f"{name} is not installed")
    assert done.returncode == 0
    assert "worked" in done.stdout
    sections = shell.sections(done.stdout.encode().split(b"\n"), MARKER)
    assert b"ID=" in sections["file /etc/os-release"]
    assert "environment" in sections
    assert done.stdout.rstrip().endswith(MARKER + '{"ended": 0}')


@each(
    ("host_config", "variables", "wanted"),
    [
        ({"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}, [], ("gpus", "all")),
        ({"DeviceRequests": [{"Count": 0, "DeviceIDs": ["0", "2"]}]}, [], ("gpus", "0,2")),
        ({"DeviceRequests": [{"Count": 2}]}, [], ("gpus", "0,1")),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]}, [], ("cdi", "all")),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=1"]}]}, [], ("cdi", "1")),
        ({"Runtime": "nvidia"}, ["NVIDIA_VISIBLE_DEVICES=all"], ("runtime", "all")),
        ({"Runtime": "nvidia"}, [], ("runtime", "none")),
        ({"Devices": [{"PathOnHost": "/dev/nvidia0"}]}, [], ("devices", "some")),
        ({"Privileged": True}, [], ("devices", "all")),
        ({"Runtime": "runc", "Devices": None}, ["NVIDIA_VISIBLE_DEVICES=all"], ("none", "none")),
    ],
)
def test_what_a_running_container_was_given(host_config: Any, variables: list[str], wanted: tuple[str, str]) -> None:
    mode, gpus, _ = requested({"HostConfig": host_config, "Config": {"Env": variables}})
    assert (mode, gpus) == wanted


def test_the_start_is_one_reply() -> None:
    from gpudoctor.containers.target.start import Started

    reply = Started("docker", "28", "x:1", "gpus", ("--gpus", "all")).reply()
    assert isinstance(reply, Reply)
    assert reply.value["arguments"] == ["--gpus", "all"]
    assert {"engine", "version", "image", "mode", "arguments", "started", "message", "code", "gpus"} <= set(reply.value)
