"""Libraries that the loader puts before all others, and modules that wait for a boot."""

from __future__ import annotations

import machine
import pytest

from gpudoctor.facts import Facts
from gpudoctor.judging.driver.next_boot import next_kernel, stays
from gpudoctor.model import Reply, Snapshot


def facts(**replies: object) -> Facts:
    asked = {
        question.replace("__", ":"): reply if isinstance(reply, Reply) else Reply("ok", reply)
        for question, reply in replies.items()
    }
    return Facts(Snapshot("gpudoctor.snapshot/1", "0", "2026-11-21T00:00:00Z", asked))


NCCL = {"path": "/lib64/libnccl.so.2", "real_path": "/usr/lib64/libnccl.so.2.18.3", "size": 1, "via": "default", "index": None}


def preloads(variable: str = "", file: str | None = None) -> list[tuple[str, str, str | None]]:
    replies: dict[str, object] = {
        "environment": {"LD_PRELOAD": variable},
        "libraries": [NCCL],
        "interpreter": {"conda_prefix": None},
    }
    replies["library-owners"] = Reply("missing")
    replies["file:/etc/ld.so.preload"] = Reply("missing") if file is None else file
    found = facts(**replies).libraries.preloads
    return [(one.source, one.entry, one.library.version if one.library else None) for one in found]


def test_a_folder_and_its_link_are_one() -> None:
    assert preloads("/usr/lib64/libnccl.so.2") == [("LD_PRELOAD", "/usr/lib64/libnccl.so.2", "2.18.3")]


def test_entries_are_divided_by_colons_and_spaces() -> None:
    assert [entry for _, entry, _ in preloads("/a.so:/b.so /c.so")] == ["/a.so", "/b.so", "/c.so"]


def test_the_file_counts_too_without_its_comments() -> None:
    assert preloads(file="# for one program\n/opt/x.so\n") == [("/etc/ld.so.preload", "/opt/x.so", None)]


def kernels(waiting: str, dkms: str = "") -> Facts:
    return facts(
        **{
            "uname": {"release": "6.8.0-40-generic", "machine": "x86_64", "sysname": "Linux"},
            "kernel-modules": {
                name: {"headers": True, "nvidia": [f"/lib/modules/{name}/nvidia.ko"]} for name in ("6.8.0-40-generic", waiting)
            },
            "command:dkms status": {"code": 0, "out": dkms, "err": ""},
            "file:/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Release Build\n",
        }
    )


@pytest.mark.parametrize(
    ("waiting", "dkms", "expected"),
    [
        ("6.8.0-39-generic", "", None),
        ("6.8.0-100-generic", "", "6.8.0-100-generic"),
        ("6.8.0-100-generic", "nvidia/580.159.04, 6.8.0-100-generic, x86_64: installed\n", "6.8.0-100-generic"),
        ("6.8.0-100-generic", "nvidia/580.95.05, 6.8.0-100-generic, x86_64: installed\n", None),
    ],
)
def test_a_newer_kernel_waits_unless_its_module_is_the_old_one(waiting: str, dkms: str, expected: str | None) -> None:
    assert next_kernel(kernels(waiting, dkms)) == expected


def test_what_is_on_disk_decides_whether_a_boot_helps() -> None:
    assert stays(Facts(machine.load("driver-half-upgraded")))
    assert not stays(Facts(machine.load("driver-library-version-mismatch")))
    assert not stays(Facts(machine.load("driver-library-version-mismatch-modules-denied")))
