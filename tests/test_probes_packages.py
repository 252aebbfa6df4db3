"""The probe of installed packages, on fake environments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from folder_machine import SITE, Folder, python_lives_in
from process import processor_seconds

from gpudoctor.facts.driver_changes import changes, that_installed
from gpudoctor.facts.replies import Replies
from gpudoctor.worker.probes import modules, packages


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    return python_lives_in(tmp_path, monkeypatch)


def test_packages_are_found_by_their_folders(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    user = "/home/somebody/.local/lib/python3.12/site-packages"
    monkeypatch.setattr(sys, "path", [user, SITE, "/usr/lib/python312.zip"])
    folder.write(f"{SITE}/torch-2.8.0+cu128.dist-info/METADATA")
    folder.write(f"{user}/torch-2.7.0.dist-info/METADATA")
    folder.write(f"{SITE}/~orch-2.6.0.dist-info/METADATA")
    folder.write(f"{SITE}/PyYAML-6.0-py3.12.egg-info", "Name: PyYAML\n")
    folder.write(f"{SITE}/apex-0.1-py3.12-linux-x86_64.egg/EGG-INFO/PKG-INFO", "Version: 0.1\n")
    folder.write(f"{SITE}/project.egg-info/PKG-INFO", "Name: project\nVersion: 1.2\n\nVersion: not this\n")
    folder.write(f"{SITE}/torch/version.py")
    found = folder.ask(packages)["packages"].value
    assert [(package["name"], package["version"], package["location"]) for package in found] == [
        ("torch", "2.7.0", user),
        ("PyYAML", "6.0", SITE),
        ("apex", "0.1", SITE),
        ("project", "1.2", SITE),
        ("torch", "2.8.0+cu128", SITE),
        ("~orch", "2.6.0", SITE),
    ]


METADATA = """Metadata-Version: 2.4
Name: flash_attn
Version: 2.5.8
Requires-Dist: torch
Requires-Dist: ninja; extra == "test"

Requires-Dist: this is prose
"""


def test_details_of_a_package_that_matters(folder: Folder) -> None:
    info = f"{SITE}/flash_attn-2.5.8.dist-info"
    url = "https://user:token@example.com/x/flash_attn-2.5.8%2Bcu122torch2.3cxx11abiFALSE-cp312-linux_x86_64.whl#sha256=0"
    folder.write(f"{info}/METADATA", METADATA)
    folder.write(f"{info}/INSTALLER", "pip\n")
    folder.write(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: cp312-cp312-linux_x86_64\nBuild: 2\n")
    folder.write(f"{info}/direct_url.json", f'{{"url": "{url}", "archive_info": {{}}}}')
    (package,) = folder.ask(packages)["packages"].value
    assert package == {
        "name": "flash_attn",
        "version": "2.5.8",
        "location": SITE,
        "requires": ["torch", 'ninja; extra == "test"'],
        "installer": "pip",
        "tags": ["cp312-cp312-linux_x86_64"],
        "build": "2",
        "direct_url": {
            "file": "flash_attn-2.5.8+cu122torch2.3cxx11abiFALSE-cp312-linux_x86_64.whl",
            "editable": False,
        },
    }


@pytest.mark.parametrize("text", ["{broken", '{"url": "file:///home/somebody/project", "dir_info": {"editable": true}}'])
def test_origin_names_no_person(folder: Folder, text: str) -> None:
    folder.write(f"{SITE}/torch-2.8.0.dist-info/direct_url.json", text)
    (package,) = folder.ask(packages)["packages"].value
    assert "somebody" not in str(package)
    assert package["requires"] is None  # no METADATA: not known, rather than none


def test_frameworks_are_read_without_importing_them(folder: Folder) -> None:
    folder.write(f"{SITE}/torch/version.py", "cuda = '12.8'\n")
    for name in ("libtorch_cuda.so", "libtorch_cpu.so", "libcudart-9335f6a2.so.12"):
        folder.write(f"{SITE}/torch/lib/{name}")
    folder.write(f"{SITE}/bitsandbytes/__init__.py", "raise SystemExit")
    folder.write(f"{SITE}/bitsandbytes/libbitsandbytes_cpu.so")
    folder.write(f"{SITE}/onnxruntime/capi/__init__.py", "raise SystemExit")
    folder.write(f"{SITE}/onnxruntime/capi/build_and_package_info.py", "package_name = 'onnxruntime'\n")
    replies = folder.ask(packages)
    assert replies["torch"].value["libraries"] == ["libcudart-9335f6a2.so.12", "libtorch_cuda.so"]
    assert replies["bitsandbytes"].value == ["libbitsandbytes_cpu.so"]
    assert replies["onnxruntime"].value == {"build_info": "package_name = 'onnxruntime'\n", "providers": []}
    assert replies["conda"].status == "missing"


def test_conda_packages_without_the_token_of_their_channel(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/opt/conda")
    meta = "/opt/conda/conda-meta"
    channel = '{"build": "x", "channel": "https://conda.example.com/t/to-ken/conda-forge/linux-64", "files": []}'
    folder.write(f"{meta}/pytorch-2.5.1-cpu_mkl_py312_h2a1b3c4_108.json", channel)
    folder.write(f"{meta}/cuda-version-12.6-h7480c83_3.json", '{"channel": "nvidia"}')
    folder.write(f"{meta}/zlib-1.3.1-hb9d3cd8_2.json", channel)
    folder.write(f"{meta}/history")
    assert folder.ask(packages)["conda"].value == [
        {"name": "cuda-version", "version": "12.6", "build": "h7480c83_3", "channel": "nvidia"},
        {"name": "pytorch", "version": "2.5.1", "build": "cpu_mkl_py312_h2a1b3c4_108", "channel": "conda-forge"},
    ]


def test_many_packages_are_read_quickly(folder: Folder) -> None:
    for number in range(260):
        folder.write(f"{SITE}/package_{number}-1.0.dist-info/METADATA", "Name: x\n")
    for number in range(40):
        info = f"{SITE}/nvidia_library_{number}-1.0.dist-info"
        for name in ("METADATA", "INSTALLER", "WHEEL"):
            folder.write(f"{info}/{name}", "Name: x\n")
    found: dict[str, Any] = {}
    assert processor_seconds(lambda: found.update(folder.ask(packages))) < 5  # 10 ms, as a rule
    assert len(found["packages"].value) == 300


def test_the_log_of_each_package_manager_names_the_latest_change(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write(
        "/var/log/apt/history.log",
        """
Start-Date: 2026-11-19  09:00:01
Commandline: apt install htop
Requested-By: ada (1000)
Install: htop:amd64 (3.3.0-4)
End-Date: 2026-11-19  09:00:04

Start-Date: 2026-11-20  06:12:33
Commandline: /usr/bin/unattended-upgrade
Upgrade: libnvidia-compute-580:amd64 (580.95.05-0ubuntu1, 580.105.08-0ubuntu1), curl:amd64 (8.5.0, 8.5.1)
Install: nvidia-kernel-common-580:amd64 (580.105.08-0ubuntu1, automatic)
End-Date: 2026-11-20  06:13:00
""",
    )
    folder.write(
        "/var/log/pacman.log",
        "[2026-11-18T20:01:02+0100] [ALPM] upgraded nvidia-utils (580.95.05-1 -> 580.105.08-1)\n"
        "[2026-11-18T20:01:03+0100] [ALPM] upgraded linux (6.17.8-1 -> 6.17.9-1)\n",
    )
    folder.write(
        "/var/log/dnf.rpm.log",
        "2026-11-17T04:00:00+0000 SUBDEBUG Upgrade: nvidia-driver-libs-3:580.105.08-1.el9.x86_64\n"
        "2026-11-17T04:00:09+0000 SUBDEBUG Upgraded: nvidia-driver-libs-3:580.95.05-1.el9.x86_64\n",
    )
    folder.write("/var/log/zypp/history", "2026-11-16 10:00:00|install|nvidia-gl-G06|580.105.08-1.1|x86_64|root@host|repo|abc|\n")
    replies = Replies(folder.ask(modules))
    apt, pacman, dnf, zypper = changes(replies)
    assert (apt.by, apt.when, apt.count, apt.is_automatic) == ("unattended-upgrade", "2026-11-20 06:12", 2, True)
    assert apt.versions == ("580.105.08-0ubuntu1", "580.105.08-0ubuntu1")
    assert (pacman.words, dnf.count) == ("pacman changed nvidia-utils on 2026-11-18 20:01", 1)
    assert [change.versions[0].split("-")[0] for change in (pacman, dnf, zypper)] == ["580.105.08"] * 3
    assert that_installed("580.105.08", replies) == apt
    assert that_installed("570.1", replies) is None
    assert "ada" not in str(replies.get("driver-changes").value)


def test_the_sources_of_nvidia_are_read_in_both_forms(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    lists, key = "/etc/apt/sources.list.d", "/usr/share/keyrings/cuda-archive-keyring.gpg"
    cuda = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64"
    folder.write(key, "key")
    folder.write("/etc/apt/sources.list", "deb http://mirror.internal/ubuntu noble main\n# deb https://nvidia.github.io/x /\n")
    folder.write(f"{lists}/cuda.list", f"deb [arch=amd64 signed-by={key}] {cuda}/ /\ndeb-src {cuda}/ /\n")
    folder.write(
        f"{lists}/cuda.sources", f"Types: deb\nURIs: {cuda}\nSuites: /\nSigned-By: /gone.gpg\n\nEnabled: no\nURIs: {cuda}\n"
    )
    folder.write(f"{lists}/nvidia-docker.list", "<!doctype html>\n<html>\n")
    said = folder.ask(modules)["package-sources"].value
    assert [(entry["uri"], entry["signed_by"], entry["key_exists"]) for entry in said["entries"]] == [
        (cuda, key, True),
        (cuda, "/gone.gpg", False),
    ]
    assert said["malformed"] == [{"file": f"{lists}/nvidia-docker.list", "line": 1}]
    assert "internal" not in str(said)
