"""Images are built by real builders, rebuilt only when something has changed, and a build that fails says where and why."""

from __future__ import annotations

import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import own_registry
import pytest
from lab import need
from lab_registry import Registry

from gpudoctor.containers.engine import client as engines
from gpudoctor.containers.engine.client import Engine
from gpudoctor.containers.images import builder, building, wheel
from gpudoctor.containers.images import registry as registries
from gpudoctor.containers.images.catalog import Image
from gpudoctor.errors import UserError, WorkError

TAG = "gpudoctor-test-build/image:1"
LABEL = "io.gpudoctor.test=building"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    folder = tmp_path / "recipe"
    folder.mkdir()
    (folder / "file").write_text("1")
    (folder / "image.yaml").write_text("name: recipe\n")
    dockerfile(folder, "COPY file /file")
    return folder


def dockerfile(folder: Path, *steps: str) -> None:
    (folder / "Dockerfile").write_text("\n".join(["ARG BASE=lab/base:1", "FROM ${BASE}", f"LABEL {LABEL}", *steps, ""]))


def image_of(folder: Path) -> Image:
    return Image("recipe", TAG, "A recipe", recipe=folder, versions={"recipe": "7"}, labels={"org.example": "yes"})


@pytest.fixture
def engine(bare: str, builds_alone: None) -> Iterator[Engine]:
    yield engines.find("docker")
    subprocess.run(["docker", "image", "rm", "--force", TAG], capture_output=True)
    own_registry.prune(LABEL)


@pytest.fixture(scope="module")
def tiny() -> Iterator[tuple[str, str]]:
    need("docker")
    with own_registry.tiny_images("gpudoctor-test-build/tiny") as names:
        yield names


@pytest.fixture
def base(registry: Registry, tiny: tuple[str, str], engine: Engine) -> Iterator[str]:
    yield registry.push(tiny[0], "lab/base:1")
    own_registry.forget(f"{registry.host}/lab/base")


def build(engine: Engine, folder: Path, base: str, **options: Any) -> building.Built:
    return building.build(engine, image_of(folder), building.resolved(engine, "recipe", base, False), **options)


@pytest.mark.docker
def test_an_image_is_built_once(engine: Engine, recipe: Path, base: str, registry: Registry, tiny: tuple[str, str]) -> None:
    first = build(engine, recipe, base)
    assert first.is_new
    (recipe / "image.yaml").write_text("name: recipe\ntitle: what it is called is no part of it\n")
    assert not build(engine, recipe, base).is_new
    assert build(engine, recipe, base, is_forced=True).is_new
    assert build(engine, recipe, base, options=("--build-arg=HTTP_PROXY=",)).is_new
    (recipe / "file").write_text("2")
    changed = build(engine, recipe, base)
    assert changed.is_new
    assert changed.id != first.id
    registry.push(tiny[1], "lab/base:1")
    assert build(engine, recipe, base).is_new
    assert not build(engine, recipe, base).is_new


@pytest.mark.docker
def test_labels_say_what_an_image_is_made_of(engine: Engine, recipe: Path, base: str) -> None:
    build(engine, recipe, base)
    found = engine.image(TAG)
    assert found
    labels = found["Config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == "A recipe"
    assert labels["org.opencontainers.image.version"] == "7"
    assert labels["org.opencontainers.image.base.name"] == base
    assert labels["org.opencontainers.image.base.digest"] == registries.digest(base)
    assert re.fullmatch(r"[0-9a-f]{40}|v\d.*", labels["org.opencontainers.image.revision"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", labels["org.opencontainers.image.created"])
    assert labels["io.gpudoctor.recipe"] == "recipe"
    assert re.fullmatch("sha256:[0-9a-f]{64}", labels["io.gpudoctor.recipe-hash"])
    assert labels["org.example"] == "yes"


@pytest.mark.docker
def test_a_base_that_only_the_engine_has(engine: Engine, recipe: Path, bare: str) -> None:
    """As on a machine without a network, where images were brought by `docker load`."""
    base = building.resolved(engine, "recipe", bare, False)
    found = engine.image(bare)
    assert found
    assert base == building.Base(bare, found["Id"], bare)
    assert building.build(engine, image_of(recipe), base).is_new


@pytest.mark.docker
def test_a_base_that_nobody_has(engine: Engine, registry: Registry) -> None:
    with pytest.raises(UserError, match="has no image"):
        building.resolved(engine, "recipe", f"{registry.host}/lab/no-such:1", False)
    with pytest.raises(WorkError, match="is unreachable"):
        building.resolved(engine, "recipe", "localhost:1/lab/no-such:1", False)


@pytest.mark.docker
def test_a_step_that_fails(engine: Engine, recipe: Path, bare: str) -> None:
    dockerfile(recipe, "RUN echo so far so good", "RUN echo out; echo err >&2; exit 3")
    with pytest.raises(WorkError) as failed:
        build(engine, recipe, bare, options=("--network=none",))
    line, *words = str(failed.value).splitlines()
    assert line == "build of recipe failed at: RUN echo out; echo err >&2; exit 3"
    assert {"  out", "  err"} <= set(words)
    assert not [word for word in words if "so far" in word]
    assert engine.image(TAG) is None


@pytest.mark.docker
def test_a_file_that_is_not_there(engine: Engine, recipe: Path, bare: str) -> None:
    dockerfile(recipe, "COPY no-such-file /")
    with pytest.raises(WorkError, match=r"build of recipe failed at: COPY no-such-file /\n.*no-such-file"):
        build(engine, recipe, bare)


@pytest.mark.docker
def test_what_is_no_dockerfile(engine: Engine, recipe: Path, bare: str) -> None:
    dockerfile(recipe, "RUNN true")
    with pytest.raises(UserError, match=r"(?i)the Dockerfile of recipe is invalid\n  .*unknown instruction: RUNN"):
        build(engine, recipe, bare)


BUILDX = """\
#0 building with "default" instance using docker driver
#1 [internal] load build definition from Dockerfile
#1 transferring dockerfile: 129B done
#4 [build 1/2] FROM docker.io/library/base:1
#4 CACHED
#5 [build 2/2] RUN echo hello && false
#6 [other 2/2] RUN sleep 9
#5 0.163 hello
#6 0.2 not this
#5 ERROR: executor failed running [/bin/sh -c echo hello && false]: exit code: 1
------
 > [build 2/2] RUN echo hello && false:
0.163 hello
------
ERROR: failed to build: failed to solve: executor failed running [/bin/sh -c echo hello && false]: exit code: 1
"""
CLASSIC = """\
Sending build context to Docker daemon  2.048kB
Step 1/3 : ARG BASE=base:1
Step 2/3 : FROM ${BASE} AS a
 ---> 1b50aef65169
Step 3/3 : RUN echo hello && false
 ---> Running in dccb6a5ac77f
hello
Removing intermediate container dccb6a5ac77f
The command '/bin/sh -c echo hello && false' returned a non-zero code: 1
"""
PODMAN = """\
[1/2] STEP 1/2: FROM localhost:5000/base:1 AS a
[1/2] STEP 2/2: RUN echo hello && false
hello
Error: building at STEP "RUN echo hello && false": while running runtime: exit status 1
"""
NO_BASE = """\
#3 [internal] load metadata for docker.io/no/such:1
#3 ERROR: docker.io/no/such:1: not found
------
 > [internal] load metadata for docker.io/no/such:1:
------
ERROR: failed to build: failed to solve: docker.io/no/such:1: not found
"""
FULL = """\
Step 3/3 : RUN dd if=/dev/zero of=/file
 ---> Running in dccb6a5ac77f
dd: error writing '/file': No space left on device
"""


@pytest.mark.parametrize(("said", "last"), [(BUILDX, "exit code: 1"), (CLASSIC, "non-zero code: 1"), (PODMAN, "exit status 1")])
def test_every_builder_is_understood(said: str, last: str) -> None:
    failure = builder.failure("docker", "cupy", said.splitlines())
    assert isinstance(failure, WorkError)
    line, *words = str(failure).splitlines()
    assert line == "build of cupy failed at: RUN echo hello && false"
    assert words[0] == "  hello"
    assert words[-1].endswith(last)
    assert len(words) == 2


def test_what_is_no_fault_of_a_step() -> None:
    assert isinstance(builder.failure("docker", "cupy", NO_BASE.splitlines()), UserError)
    assert "no such image" in str(builder.failure("docker", "cupy", NO_BASE.splitlines())).splitlines()[0]
    full = builder.failure("docker", "cupy", FULL.splitlines())
    assert isinstance(full, WorkError)
    assert "disk is full" in str(full).splitlines()[0]


def test_long_steps_and_long_words_are_cut() -> None:
    said = ["Step 1/1 : RUN " + "x" * 500, *(f"line {number}" for number in range(100))]
    line, *words = str(builder.failure("docker", "cupy", said)).splitlines()
    assert len(line) < 150
    assert words == [f"  line {number}" for number in range(88, 100)]


def test_progress_is_the_step() -> None:
    found = [step for said in (BUILDX, CLASSIC, PODMAN) for line in said.splitlines() if (step := builder.step(line))]
    assert found[:3] == ["FROM docker.io/library/base:1", "RUN echo hello && false", "RUN sleep 9"]
    assert "load build definition from Dockerfile" not in found


@pytest.mark.slow
def test_a_wheel_is_the_same_twice(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert wheel.write(tmp_path / "a").read_bytes() == wheel.write(tmp_path / "b").read_bytes()
    with zipfile.ZipFile(next((tmp_path / "a").glob("*.whl"))) as made:
        names = set(made.namelist())
    assert {"gpudoctor/cli/__init__.py", "gpudoctor/checks/driver/nvml.py", "gpudoctor/images/doctor/Dockerfile"} <= names
    assert not [name for name in names if "__pycache__" in name]
