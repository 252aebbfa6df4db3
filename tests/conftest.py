"""Fixtures and skips that several test files share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    missing = {"gpu": _no_gpu(), "docker": _no_docker()}
    for item in items:
        for marker, reason in missing.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def _no_gpu() -> str:
    return "" if Path("/dev/nvidiactl").exists() else "this machine has no NVIDIA GPU (/dev/nvidiactl)"


def _no_docker() -> str:
    if os.environ.get("GPUDOCTOR_TEST_DOCKER") == "required":
        return ""
    if not shutil.which("docker"):
        return "docker is not installed"
    done = subprocess.run(["docker", "info"], capture_output=True, text=True)
    return "" if done.returncode == 0 else "no Docker daemon can be reached"
