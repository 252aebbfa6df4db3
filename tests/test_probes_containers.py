"""The probes of container, limits, WSL and services on fake roots, and with that of container engines on this machine."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.facts.container import Container
from gpudoctor.facts.limits import Limits
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Reply
from gpudoctor.worker.probes import container, limits, runtime, services, wsl
from gpudoctor.worker.probes.machine import Answer, Machine

PROBES = (container, limits, runtime, services, wsl)
Write = Callable[..., Machine]

MOUNTINFO = """\
1412 1300 0:330 / / rw,relatime master:470 - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/AB,upperdir=/u,workdir=/w
1413 1412 0:333 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
1414 1412 0:334 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755,inode64
1418 1414 0:332 / /dev/shm rw,nosuid,nodev,noexec,relatime - tmpfs shm rw,size=65536k,inode64
1419 1412 259:2 /home/jane/cuda-work /home/jane/cuda-work rw,relatime - ext4 /dev/nvme0n1p2 rw
1301 1413 0:336 / /proc/driver/nvidia rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=555,inode64
1302 1412 259:2 /usr/bin/nvidia-smi /usr/bin/nvidia-smi ro,nosuid,nodev,relatime - ext4 /dev/nvme0n1p2 rw
1303 1412 259:2 /l/libcuda.so.580.65.06 /usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06 ro,nosuid,nodev,relatime - ext4 /dev/n rw
1304 1412 259:2 /l/libnvcuvid.so.580.65.06 /usr/lib/x86_64-linux-gnu/libnvcuvid.so.580.65.06 ro,nosuid,nodev - ext4 /dev/n rw
1305 1414 0:5 /nvidiactl /dev/nvidiactl ro,nosuid,noexec,relatime - devtmpfs udev rw,size=65536k
"""


def asked(answers: Iterable[Answer]) -> dict[str, Reply]:
    return dict(answers)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Puts files (path -> text or bytes) into a fake root and gives the machine."""

    def put(files: dict[str, str | bytes]) -> Machine:
        for path, content in files.items():
            file = tmp_path / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return Machine(str(tmp_path))

    return put


# Container


def test_a_docker_container_with_nvidias_toolkit(write: Write) -> None:
    machine = write(
        {
            "/.dockerenv": "",
            "/proc/self/mountinfo": MOUNTINFO,
            "/proc/self/status": "Name:\tpython\nUid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\nSeccomp:\t2\n",
            "/proc/self/cgroup": "0::/\n",
            "/proc/1/cgroup": "0::/\n",
            "/proc/self/uid_map": "         0          0 4294967295\n",
        }
    )
    replies = asked(container.ask(machine))
    facts = Container(Replies(replies))
    assert facts.engine == "docker"
    assert facts.mount_points >= {
        "/usr/bin/nvidia-smi",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06",
        "/usr/lib/x86_64-linux-gnu/libnvcuvid.so.580.65.06",
        "/dev/nvidiactl",
    }
    assert {"point": "/dev/shm", "type": "tmpfs", "options": "rw,nosuid,nodev,noexec,relatime"} in replies["mounts"].value
    assert "jane" not in str(replies)
    assert "Uid" not in replies["file:/proc/self/status"].value


@pytest.mark.parametrize(
    ("script", "enroot"),
    [
        ("# enroot-provenance: docker://nvcr.io#nvidia/pytorch\n", True),
        ("if [ -s /etc/rc.local ]; then\n    . /etc/rc.local\nfi\n", True),
        ("#!/bin/sh\necho booting\n", False),
    ],
)
def test_enroot_leaves_its_script(write: Write, script: str, enroot: bool) -> None:
    machine = write({"/etc/rc": script})
    assert asked(container.ask(machine))["container-marks"].value["/etc/rc"] is enroot


# Limits


@pytest.mark.parametrize(
    ("files", "memory", "cpus"),
    [
        (
            {
                "/proc/self/cgroup": "0::/system.slice/job.scope\n",
                "/sys/fs/cgroup/system.slice/memory.max": "max\n",
                "/sys/fs/cgroup/system.slice/cpu.max": "400000 100000\n",
                "/sys/fs/cgroup/system.slice/job.scope/memory.max": "8589934592\n",
                "/sys/fs/cgroup/system.slice/job.scope/cpu.max": "max 100000\n",
            },
            8589934592,
            4.0,
        ),
        (
            {
                "/proc/self/cgroup": "4:memory:/docker/3f4e\n3:cpu,cpuacct:/docker/3f4e\n0::/\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
                "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
                "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            1073741824,
            1.5,
        ),
        ({"/proc/self/cgroup": "0::/\n"}, None, None),
    ],
)
def test_cgroup_limits(write: Write, files: dict[str, str | bytes], memory: int | None, cpus: float | None) -> None:
    facts = Limits(Replies(asked(limits.ask(write(files)))))
    assert facts.cgroup_memory_bytes == memory
    assert facts.cgroup_cpus == cpus


def test_nccl_segments(write: Write) -> None:
    machine = write({"/dev/shm/nccl-WU88OE": "x" * 10, "/dev/shm/other": ""})
    old = time.time() - 7200
    os.utime(machine.path("/dev/shm/nccl-WU88OE"), (old, old))
    (segment,) = asked(limits.ask(machine))["nccl-segments"].value
    assert segment["name"] == "/dev/shm/nccl-WU88OE"
    assert segment["bytes"] == 10
    assert 7199 < segment["age_seconds"] < 7300


def test_this_kernels_limits_are_not_a_fake_machines(write: Write) -> None:
    assert {"limits", "cpus", "shm", "tmp"}.isdisjoint(asked(limits.ask(write({}))))


def test_both_ways_of_reading_this_machines_limits_agree() -> None:
    replies = asked(limits.ask(Machine()))
    by_kernel = Limits(Replies(replies))
    by_file = Limits(Replies({question: reply for question, reply in replies.items() if question != "limits"}))
    for name in ("memlock", "open_files", "processes", "stack"):
        assert tuple(getattr(by_kernel, name)) == getattr(by_file, name)
    assert by_kernel.shm_bytes >= by_kernel.shm_free_bytes >= 0


def test_tmpdir_is_where_it_looks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    assert asked(limits.ask(Machine()))["tmp"].status == "missing"


# WSL


def test_no_wsl(write: Write) -> None:
    machine = write({"/proc/version": "Linux version 6.8.0-60-generic (buildd@lcy02) #63-Ubuntu SMP\n"})
    assert {question: reply.value for question, reply in wsl.ask(machine)} == {"wsl": {"is_wsl": False}}


def test_wsl2(write: Write) -> None:
    machine = write(
        {
            "/proc/version": "Linux version 5.15.167.4-microsoft-standard-WSL2 (root@f9c826d3017f) #1 SMP\n",
            "/proc/config.gz": gzip.compress(b"CONFIG_HYPERV=y\nCONFIG_DXGKRNL=y\n"),
            "/usr/lib/wsl/lib/libcuda.so.1.1": "elf",
            "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_0afec3f20050014a/libcuda.so.1.1": "elf",
            "/etc/wsl.conf": "[boot]\nsystemd=true\n[user]\ndefault=jane\n[network]\nhostname = jane-laptop\n",
        }
    )
    Path(machine.path("/usr/lib/wsl/lib/libcuda.so.1")).symlink_to("libcuda.so.1.1")
    replies = asked(wsl.ask(machine))
    assert replies["wsl"].value == {"is_wsl": True, "marks": {"/dev/dxg": False, "/run/WSL": False}}
    assert replies["wsl-libraries"].value["libcuda.so.1.1"] == {"kind": "file", "bytes": 3}
    assert replies["wsl-libraries"].value["libcuda.so.1"]["kind"] == "link"
    assert replies["glob:/usr/lib/wsl/drivers/*"].value == ["/usr/lib/wsl/drivers/nv_dispi.inf_amd64_0afec3f20050014a"]
    assert replies["kernel-config"].value == "CONFIG_DXGKRNL=y\n"
    assert "systemd=true" in replies["file:/etc/wsl.conf"].value
    assert "jane" not in str(replies)


def test_wsl1_has_no_folders(write: Write) -> None:
    replies = asked(wsl.ask(write({"/proc/version": "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com)\n"})))
    assert replies["wsl"].value["is_wsl"]
    assert replies["wsl-libraries"].status == "missing"
    assert replies["kernel-config"].status == "missing"


# Services


def test_processes(write: Write) -> None:
    machine = write(
        {
            "/proc/1/stat": "1 (systemd) S 0 1 1 0",
            "/proc/20/stat": "20 (nv-fabricmanage) S 1 20 20 0",
            "/proc/21/stat": "21 (nvidia-cuda-mps) S 1 21 21 0",
            "/proc/21/cmdline": "/usr/bin/nvidia-cuda-mps-control\0-d\0",
            "/proc/22/stat": "22 (nvidia-cuda-mps) S 21 21 21 0",
            "/proc/22/cmdline": "nvidia-cuda-mps-server",
            "/proc/23/stat": "23 (nvidia-modeset/) D 2 0 0 0",
            "/proc/24/stat": "24 (nvidia-modeset/) S 2 0 0 0",
            "/proc/25/stat": "25 (odd) (name) R 1 25 25 0",
            "/proc/26/stat": "26 (nvidia-persiste) S 1 26 26 0",
        }
    )
    processes = asked(services.ask(machine))["processes"].value
    assert [(process["name"], process["pid"], process["state"]) for process in processes] == [
        ("nv-fabricmanager", 20, "S"),
        ("nvidia-cuda-mps-control", 21, "S"),
        ("nvidia-cuda-mps-server", 22, "S"),
        ("nvidia-modeset/", 23, "D"),
        ("nvidia-persistenced", 26, "S"),
    ]


def test_hidden_processes_are_not_none(write: Write) -> None:
    assert asked(services.ask(write({"/proc/20/stat": "20 (python) R 1 20 20 0"})))["processes"].status == "missing"


def test_service_files(write: Write) -> None:
    machine = write(
        {
            "/var/log/fabricmanager.log": "old\n" * 50000 + "the end\n",
            "/etc/nvidia/gridd.conf": "# Description\nServerAddress=licence.example.org\nFeatureType=1\n",
            "/etc/nvidia/ClientConfigToken/token.tok": "secret",
        }
    )
    Path(machine.path("/etc/nvidia/ClientConfigToken/token.tok")).chmod(0o600)
    replies = asked(services.ask(machine))
    log = replies["file:/var/log/fabricmanager.log"].value
    assert log.endswith("the end\n")
    assert len(log) == 64 << 10
    assert replies["file:/etc/nvidia/gridd.conf"].value == "# Description\nServerAddress=removed\nFeatureType=1\n"
    assert replies["licence-tokens"].value == [{"name": "token.tok", "mode": 0o600}]
    assert "secret" not in str(replies)


# This machine, and the oldest Python

ASK_ALL = """
import json
from gpudoctor.worker.probes import container, limits, runtime, services, wsl
from gpudoctor.worker.probes.machine import Machine
probes = (container, limits, runtime, services, wsl)
print(json.dumps([[question, vars(reply)] for probe in probes for question, reply in probe.ask(Machine())]))
"""


def oldest_python() -> str | None:
    versions = sorted((Path.home() / ".pyenv/versions").glob("3.8*/bin/python"))
    return str(versions[0]) if versions else shutil.which("python3.8")


@pytest.mark.parametrize("python", [sys.executable, oldest_python()])
def test_this_machine_answers(python: str | None) -> None:
    if python is None:
        pytest.skip("there is no Python 3.8 here")
    root = Path(container.__file__).parents[3]
    done = subprocess.run([python, "-c", ASK_ALL], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(root)})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    replies = json.loads(done.stdout)
    assert len(replies) > 40
    assert [question for question, reply in replies if reply["status"] == "error" and question != "docker"] == []


@pytest.mark.parametrize("probe", PROBES)
def test_an_empty_machine_raises_nothing(probe: Any, write: Write) -> None:
    assert [question for question, reply in probe.ask(write({})) if reply.status == "error"] == []
