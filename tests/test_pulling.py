"""`gpudoctor images pull` and `lock`, on a real engine with a real registry, and everything that can go wrong on the way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import lab_daemons
import lab_registry
import limited
import own_registry
import pytest
import requests
import yaml
from click.testing import CliRunner, Result
from lab import give_up, need, need_root
from lab_podman import Podman
from lab_registry import Registry
from waiting import HOPELESS_SECONDS, until

from gpudoctor.cli import main
from gpudoctor.containers.engine import client as engines
from gpudoctor.containers.engine.client import Engine
from gpudoctor.containers.images import catalog, lock, preflight, pulling
from gpudoctor.containers.images import registry as registries
from gpudoctor.containers.images.catalog import Image
from gpudoctor.errors import UserError

PYTORCH = "pytorch-24.08"
DIGEST = "sha256:" + "0" * 64


def gpudoctor(*words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`gpudoctor images …`; no registry and no engine but those that are named."""
    ours = {
        name: value for name, value in os.environ.items() if name not in ("GPUDOCTOR_REGISTRY", "GPUDOCTOR_ENGINE", "DOCKER_HOST")
    }
    return limited.gpudoctor("images", *words, env={**ours, **(env or {})}, cwd=cwd)


def locked(*words: str, **env: str) -> Result:
    """`gpudoctor images lock` in this process and the current folder."""
    nothing = dict.fromkeys(("GPUDOCTOR_REGISTRY", "GPUDOCTOR_ENGINE", "DOCKER_HOST"))
    return CliRunner().invoke(main, ["images", "lock", *words], env={**nothing, **env})


def inspect(reference: str, form: str = "{{.Id}}") -> str:
    return subprocess.run(["docker", "image", "inspect", "-f", form, reference], capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def tiny() -> Iterator[tuple[str, str]]:
    need("docker")
    with own_registry.tiny_images("gpudoctor-test-pull/tiny") as names:
        yield names


@pytest.fixture
def own() -> Iterator[Registry]:
    """A registry that a test may change; what was pulled from it goes with it."""
    need("docker-registry", "setpriv")
    with lab_registry.registry() as started:
        yield started
    command = ["docker", "image", "ls", "--digests", "--format={{.Repository}} {{.Tag}} {{.Digest}}"]
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        repository, tag, digest = line.split(" ")
        if repository.startswith(f"{started.host}/"):
            name = f"{repository}@{digest}" if tag == "<none>" else f"{repository}:{tag}"
            subprocess.run(["docker", "image", "rm", "--force", name], capture_output=True)


@pytest.mark.docker
def test_progress_and_result_go_their_own_ways(own: Registry, tiny: tuple[str, str]) -> None:
    reference = own.push(tiny[0], "nvidia/pytorch:24.08-py3")
    done = gpudoctor("pull", PYTORCH, f"--registry={own.host}", "--engine=docker")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{own.host}/nvidia/pytorch@{registries.digest(reference)}\n"
    assert "Pulling from nvidia/pytorch" in done.stderr
    assert inspect(reference) == inspect(tiny[0])


@pytest.mark.docker
def test_a_tag_that_has_moved_is_pulled_again(own: Registry, tiny: tuple[str, str]) -> None:
    reference, other = own.push(tiny[0], "a/b:1"), own.push(tiny[1], "a/b:2")
    engine, image = engines.find("docker"), Image("a", reference)
    assert pulling.ensure(engine, image, reference)["Id"] == inspect(tiny[0])
    moved = requests.get(
        f"http://{own.host}/v2/a/b/manifests/2", headers={"Accept": registries.MANIFESTS[1]}, timeout=HOPELESS_SECONDS
    )
    own_registry.put(own.host, "a/b", "1", moved.content, registries.MANIFESTS[1])
    assert pulling.ensure(engine, image, reference)["Id"] == inspect(tiny[0])
    assert pulling.pull(engine, image, reference)["Id"] == inspect(tiny[1])
    assert inspect(other) == ""


@pytest.mark.docker
def test_locked_takes_what_was_pinned(
    own: Registry, tiny: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own.push(tiny[0], "nvidia/pytorch:24.08-py3")
    where = f"--registry={own.host}"
    assert locked(PYTORCH, where).exit_code == 0
    own.push(tiny[1], "nvidia/pytorch:24.08-py3")
    done = gpudoctor("pull", PYTORCH, "--locked", where, "--engine=docker", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert inspect(done.stdout.strip()) == inspect(tiny[0])
    unknown = gpudoctor("pull", "pytorch-24.07", "--locked", where, "--engine=docker", cwd=tmp_path)
    assert unknown.returncode == 2
    assert (
        unknown.stderr == "Error: gpudoctor.lock has no pin for pytorch-24.07. Create one: gpudoctor images lock pytorch-24.07\n"
    )


REFUSED = {
    "no such name": (("pull", "pytorch-1999"), 2, "unknown image 'pytorch-1999'"),
    "no reference": (("pull", "a/B:1"), 2, "'a/B:1' is not an image reference: 'a/B' must be in lower case"),
    "built here": (("pull", "cupy"), 2, "cupy is built here, not pulled: gpudoctor images build cupy"),
    "not built here": (("build", PYTORCH), 2, "pytorch-24.08 is pulled, not built here: gpudoctor images pull pytorch-24.08"),
    "two bases": (
        ("build", "cupy", "--locked", "--base=a/b"),
        2,
        "--locked builds on the base in the lock file, --base on another",
    ),
    "a bad tag": (("build", "cupy", "--tag=A"), 2, "'A' is not an image reference"),
    "a tag by digest": (
        ("build", "cupy", f"--tag=a@{DIGEST}"),
        2,
        "contains a digest, which an image gets only when it is built",
    ),
    "nothing to lock": (("lock",), 2, "gpudoctor.lock contains no images yet. Name those to pin"),
    "a digest": (("lock", f"a/b@{DIGEST}"), 2, f"a/b@{DIGEST} already has a digest: there is nothing to pin"),
    "no folder": (("lock", "a/b", "--file=no/such/lock"), 3, "cannot write no/such/lock: there is no folder"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_line(name: str, tmp_path: Path) -> None:
    words, code, line = REFUSED[name]
    done = gpudoctor(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("Error: ")
    assert line in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.docker
def test_an_unknown_tag(own: Registry, tiny: tuple[str, str]) -> None:
    own.push(tiny[0], "a/b:1")
    done = gpudoctor("pull", f"{own.host}/a/b:2", "--engine=docker")
    assert (done.returncode, done.stdout) == (2, "")
    line, *words = done.stderr.splitlines()
    assert line == f"Error: {own.host} has no image {own.host}/a/b:2: check the name and the tag"
    assert words == ["  MANIFEST_UNKNOWN: manifest unknown"]


@pytest.mark.docker
def test_a_registry_that_is_down(own: Registry) -> None:
    own.stop()
    done = gpudoctor("pull", f"{own.host}/a/b:1", "--engine=docker")
    assert (done.returncode, done.stdout) == (3, "")
    before, line, *words = done.stderr.splitlines()
    assert before.startswith(f"Could not check the image before the pull: the registry {own.host} is unreachable")
    assert line == "Error: the registry is unreachable"
    assert "connection refused" in words[0]


@pytest.mark.docker
def test_a_login_that_is_missing(tmp_path: Path) -> None:
    need("docker-registry", "setpriv")
    with lab_registry.registry(login=True) as locked:
        done = gpudoctor("pull", f"{locked.host}/a/b:1", "--engine=docker", env={"DOCKER_CONFIG": str(tmp_path)})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        f"Error: {locked.host} denies access to {locked.host}/a/b:1: it does not exist or requires a login"
    )
    assert f"docker login {locked.host}\n  UNAUTHORIZED: authentication required" in done.stderr


@pytest.mark.docker
@pytest.mark.parametrize(("host", "code"), [("tcp://127.0.0.1:1", 3), ("carrier-pigeon://here", 2)])
def test_a_docker_host_that_is_wrong(host: str, code: int, registry: Registry) -> None:
    done = gpudoctor("pull", f"{registry.host}/nvidia/pytorch:24.08-py3", "--engine=docker", env={"DOCKER_HOST": host})
    assert (done.returncode, done.stdout) == (code, "")
    line, *words = done.stderr.splitlines()
    assert f"(DOCKER_HOST is set to {host})" in line
    assert words
    assert all(word.startswith("  ") for word in words)


@pytest.mark.docker
def test_an_image_for_another_processor(own: Registry, tiny: tuple[str, str]) -> None:
    reference = own.push(tiny[0], "a/b:1")
    own_registry.changed(own.host, "a/b", "1", architecture="s390x")
    done = gpudoctor("pull", reference, "--engine=docker")
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not run here: the image is for s390x processors" in done.stderr
    assert "(--force pulls it anyway)" in done.stderr
    assert inspect(reference) == ""
    forced = gpudoctor("pull", reference, "--force", "--engine=docker")
    assert forced.returncode == 0, forced.stderr
    assert "Warning: " in forced.stderr
    assert inspect(reference)


@pytest.mark.docker
def test_an_image_that_the_driver_cannot_run(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The needs are those of the configuration in the registry: the look-alike of NVIDIA's image says CUDA 12.6."""
    card = preflight.Card("NVIDIA GeForce GTX 1080", ((6, 1),), "consumer")
    monkeypatch.setattr(preflight, "this_machine", lambda: preflight.ThisMachine(driver="390.48", gpus=(card,)))
    engine, reference = engines.find("docker"), f"{registry.host}/nvidia/pytorch:24.08-py3"
    with pytest.raises(UserError, match=r"mine does not run here: driver 390\.48 supports CUDA 9\.1"):
        pulling.ensure(engine, Image("mine", reference), reference)
    assert inspect(reference) == ""
    monkeypatch.setattr(Engine, "is_local", False)  # the containers run on another machine, with another driver
    assert pulling.obstacles(engine, Image("mine", reference), reference) == []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk with room for nothing much."""
    need_root()
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", folder], capture_output=True).returncode:
        give_up("a tmpfs cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.docker
def test_a_disk_that_is_full(registry: Registry, small: Path) -> None:
    need("nsenter", "ip")
    reference = f"{registry.host}/nvidia/pytorch:24.08-py3"
    with lab_daemons.dockerd([f"--data-root={small}"]) as daemon:
        inside = ["nsenter", f"--net=/proc/{(daemon.folder / 'pid').read_text()}/ns/net"]
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        server = subprocess.Popen(
            [*inside, "docker-registry", "serve", registry.folder / "config.yml"], stderr=subprocess.DEVNULL
        )
        try:
            door = [*inside, "bash", "-c", f"</dev/tcp/127.0.0.1/{registry.port}"]
            assert until(lambda: subprocess.run(door, stderr=subprocess.DEVNULL).returncode == 0)
            subprocess.run(["dd", "if=/dev/zero", f"of={small}/file", "bs=1M", "count=15"], capture_output=True, check=True)
            command = [*inside, sys.executable, "-m", "gpudoctor", "images", "pull", reference, "--engine=docker"]
            refused = subprocess.run(command, capture_output=True, text=True, env=daemon.full)
            failed = subprocess.run([*command, "--force"], capture_output=True, text=True, env=daemon.full)
        finally:
            server.terminate()
            server.wait()
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "not enough disk space" in refused.stderr
    assert f"free in {small}" in refused.stderr
    assert (failed.returncode, failed.stdout) == (3, "")
    line = next(line for line in failed.stderr.splitlines() if line.startswith("Error: "))
    assert line.startswith("Error: the disk is full. Show what uses space: docker system df")
    assert "no space left on device" in failed.stderr


def test_room_is_judged_where_the_disk_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    for info in ({"DockerRootDir": str(tmp_path)}, {"host": {}, "store": {"graphRoot": str(tmp_path)}}):
        engine = Engine("docker", info)
        assert pulling.room(engine, 1000) == []
        assert capsys.readouterr().err == ""
        assert pulling.room(engine, free // 2) == []
        assert "disk space may run out" in capsys.readouterr().err
        assert "not enough disk space" in pulling.room(engine, free * 2)[0]
    assert pulling.room(Engine("docker", {"DockerRootDir": "/no/such/folder"}), free * 2) == []
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2375")
    assert pulling.room(Engine("docker", {"DockerRootDir": str(tmp_path)}), free * 2) == []


def test_an_image_that_is_built_here_is_never_pulled(tmp_path: Path) -> None:
    class Nothing(Engine):
        def image(self, reference: str, seconds: float = 0) -> None:
            return None

    image = catalog.resolve("cupy")
    with pytest.raises(UserError, match="is not built yet: gpudoctor images build cupy"):
        pulling.ensure(Nothing("docker", {}), image, lock.pinned(image, True))


@pytest.mark.docker
def test_podman_pulls_too(podman: Podman, own: Registry, tiny: tuple[str, str], tmp_path: Path) -> None:
    reference = own.push(tiny[0], "a/b:1")
    (tmp_path / "registries.conf").write_text(f'[[registry]]\nlocation = "{own.host}"\ninsecure = true\n')
    env = {**podman.environment, "CONTAINERS_REGISTRIES_CONF": str(tmp_path / "registries.conf")}
    done = gpudoctor("pull", reference, "--engine=podman", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{own.host}/a/b@{registries.digest(reference)}\n"
    assert "Copying blob" in done.stderr
    refused = gpudoctor("pull", reference, "--engine=podman", env=podman.environment)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "\n  Error: " in refused.stderr
    assert "HTTP response to HTTPS client" in refused.stderr


@pytest.mark.docker
def test_what_has_changed_since_is_listed(
    own: Registry, tiny: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (PYTORCH, "doctor", f"{own.host}/a/b:1")
    for name in ("nvidia/pytorch:24.08-py3", "nvidia/cuda:12.9.1-base-ubuntu24.04", "a/b:1"):
        own.push(tiny[0], name)
    mirror = {"GPUDOCTOR_REGISTRY": own.host}
    monkeypatch.chdir(tmp_path)
    first = locked(*names, **mirror)
    assert first.exit_code == 0, first.stderr
    assert first.stderr == "gpudoctor.lock written.\n"
    old = registries.digest(f"{own.host}/a/b:1")
    assert f"new        doctor\n  is  {old} of nvidia/cuda:12.9.1-base-ubuntu24.04\n" in first.stdout
    kept = yaml.safe_load((tmp_path / "gpudoctor.lock").read_text())["images"]
    assert list(kept) == sorted(names)
    assert kept[PYTORCH]["reference"] == "nvcr.io/nvidia/pytorch:24.08-py3"  # not that of the mirror
    text = (tmp_path / "gpudoctor.lock").read_text().replace(kept[PYTORCH]["date"], "2024-09-01")
    (tmp_path / "gpudoctor.lock").write_text(text)

    own.push(tiny[1], "a/b:1")
    again = locked(**mirror)
    assert again.exit_code == 0, again.stderr
    new = registries.digest(f"{own.host}/a/b:1")
    assert f"changed    {own.host}/a/b:1  pinned on 2024-09-01\n  was {old}\n  is  {new}\n" in again.stdout
    assert f"unchanged  {PYTORCH}  since 2024-09-01\n" in again.stdout
    after = (tmp_path / "gpudoctor.lock").read_text()
    assert after.count("2024-09-01") == 2

    same = locked(**mirror)
    assert same.stderr == "gpudoctor.lock unchanged.\n"
    own.stop()
    failed = locked("pytorch-24.09", **mirror)
    assert failed.exit_code == 3
    assert failed.stderr.startswith(f"Error: pytorch-24.09: the registry {own.host} is unreachable")
    assert (tmp_path / "gpudoctor.lock").read_text() == after
