"""The images that gpudoctor builds itself: their recipes keep the rules, and the doctor is built and examined."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import own_registry
import pytest
import yaml
from lab_registry import Registry
from packaging.requirements import Requirement

from gpudoctor.containers.images import building, catalog

ROOT = Path(__file__).parent.parent
NAMES = ("cupy", "doctor", "numba")


@pytest.mark.parametrize("name", NAMES)
def test_recipes_keep_the_rules(name: str) -> None:
    folder = ROOT / "images" / name
    text = (folder / "Dockerfile").read_text()
    about = yaml.safe_load((folder / "image.yaml").read_text())
    assert about["base"] == building.base_of(catalog.resolve(name))
    assert not re.search(r"^# *syntax=", text, re.MULTILINE)  # it would be pulled from Docker Hub
    assert text.count("FROM ${BASE}") == 2
    assert re.findall(r"^USER (\d+):", text, re.MULTILINE)[-1] != "0"
    pins = dict(line.split("==") for line in (folder / "requirements.txt").read_text().splitlines() if not line.startswith("#"))
    for package, version in about.get("versions", {}).items():
        assert version in (pins.get(package), pins.get(f"{package}-cuda12x"))


@pytest.mark.parametrize("name", NAMES)
def test_hadolint_finds_nothing(name: str) -> None:
    hadolint = shutil.which("hadolint", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    if not hadolint:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, ROOT / "images" / name / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_doctor_has_what_gpudoctor_requires() -> None:
    lines = (ROOT / "images/doctor/requirements.txt").read_text().splitlines()
    pins = {pin.name: pin for line in lines if not line.startswith("#") for pin in [Requirement(line)]}
    wanted = re.search(r"^dependencies = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert wanted
    for requirement in map(Requirement, re.findall('"(.+?)"', wanted[1])):
        version = str(pins[requirement.name].specifier).removeprefix("==")
        assert requirement.specifier.contains(version), f"{requirement} is not {version}"


@pytest.fixture(scope="module")
def ubuntu(registry: Registry, lab_image: Callable[[str], str]) -> str:
    return registry.push(lab_image("ubuntu-apt"), "nvidia/cuda:12.9.1-base-ubuntu24.04")


@pytest.mark.docker
@pytest.mark.usefixtures("builds_alone")
def test_the_doctor_is_built_and_works(ubuntu: str, registry: Registry) -> None:
    tag = "gpudoctor-test-build/doctor:1"
    command = [sys.executable, "-m", "gpudoctor", "images", "build", "doctor", f"--tag={tag}", f"--registry={registry.host}"]
    command += ["--engine=docker", "--", "--network=host"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{tag} sha256:")
        assert done.stderr == ""
        run = ["docker", "run", "--rm", "--network=none", tag]
        checked = subprocess.run([*run, "check", "--level", "quick"], capture_output=True, text=True)
        assert checked.returncode == 1, checked.stderr
        assert "This machine has no NVIDIA GPU" in checked.stdout
        whoami = subprocess.run([*run[:-1], "--entrypoint=id", tag, "-u"], capture_output=True, text=True)
        assert whoami.stdout == "10001\n"
    finally:
        subprocess.run(["docker", "image", "rm", "--force", tag], capture_output=True)
        own_registry.prune("io.gpudoctor.stage=build")
        own_registry.forget(f"{registry.host}/nvidia/cuda")
