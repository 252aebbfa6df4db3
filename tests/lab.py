"""The lab: images, a registry, container engines and GPUs for tests, all made here. There need be no GPU and no internet
but Debian's and Ubuntu's mirrors.

Ask for a fixture by its name; the mark `docker` is yours to set (pytestmark = pytest.mark.docker).

    bookworm, bare, ngc      images of the machine's own daemon, as references: Debian with Python 3.11, Debian without Python,
                             a look-alike of NVIDIA's PyTorch image (entrypoint, banner, environment; tests/stubs/lab-ngc).
                             They stay on the machine between runs: do not remove them, and tag them only with names of yours.
    lab_image                the function that makes any of them: lab_image("minimal") has a Python without ctypes;
                             lab_images.PYTHONS has the name of the image for each Python, 3.9 to 3.13
    registry                 a registry with nvidia/pytorch:24.08-py3 (ngc) and nvidia/cuda:12.6.0-base-ubuntu24.04 (bare):
                             registry.host is "localhost:PORT", registry.push(image, "name:tag") gives a reference.
                             `with lab_registry.registry(login=True) as own:` has one that a test may stop() and start()
    lab_machine              a machine with GPUs: lab_machine.set(gpus=2, driver="580.159.04", ...), lab_gpus.Settings names
                             all there is. lab_machine.argv("gpudoctor", "check") is the command line that runs a command as if
                             on it: device nodes, /proc/driver/nvidia, sysfs, libcuda, NVML, nvidia-smi; files={path: text} adds
                             files of /etc and the like. Each test starts with 2 GPUs and a driver that works
    gpu_daemon               a second dockerd, on lab_machine: --gpus and --runtime=nvidia give its GPUs to a container, or fail
                             in NVIDIA's words: lab_machine.set(fails="not-loaded"), set(given=1), set(silent=True);
                             NVIDIA_REQUIRE_CUDA is obeyed. gpu_daemon.environment (DOCKER_HOST, PATH) is what a command needs to
                             reach it, gpu_daemon.load(image) brings an image there, gpu_daemon.docker("ps") asks it. It has no
                             network: neither do its containers, nor can it pull
    cdi_daemon               a dockerd of version 26 or newer, of a newer Debian, with the CDI specification of lab_machine's
                             GPUs (the file lab_machine.cdi, which it watches); no NVIDIA runtime, no hook. The rest is as for
                             gpu_daemon, and `docker` is its own
    podman                   Podman, on lab_machine with its specification in /etc/cdi: podman.run("run", "--rm", ...), and for
                             other programs podman.argv(...) with podman.full; podman.load(image). files={} leaves the
                             specification out
    nothing_left             comes by itself with the mark: a test fails that leaves containers, unnamed images, networks or
                             volumes in a daemon of its worker. What the whole run has left on the machine, folders of TMPDIR
                             and programs too, is shown when it ends, and fails it where Docker is required (in CI, alone)

Run a program on the lab's machine against its daemon:

    done = subprocess.run(lab_machine.argv(sys.executable, "-m", "gpudoctor", "check", "--image", ngc), env=gpu_daemon.full, ...)

Under pytest-xdist each worker has daemons of its own; `--dist loadgroup` brings all tests of one daemon to one worker.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import lab_daemons
import lab_docker28
import lab_images
import lab_leftovers
import lab_podman
import lab_registry
import pytest
from lab_daemons import Daemon
from lab_gpus import Machine
from lab_podman import Podman
from lab_registry import Registry


def is_required() -> bool:
    """Nobody else is at work on this machine, and nothing may be skipped."""
    return os.environ.get("GPUDOCTOR_TEST_DOCKER") == "required"


def give_up(reason: str) -> NoReturn:
    """Skips the test; where Docker is required, so is all that it needs, and the test fails."""
    if is_required():
        pytest.fail(reason)
    pytest.skip(reason)


def need(*programs: str) -> None:
    """What must be installed."""
    if missing := [program for program in programs if not shutil.which(program)]:
        give_up(f"not installed: {', '.join(missing)}")


def need_root() -> None:
    if os.geteuid():
        give_up("only root can make images, start daemons and mount over /dev")


def need_docker_with_cdi() -> Path:
    """The folder of its programs."""
    need("docker", "setpriv", "dpkg-deb")
    try:
        return lab_docker28.unpacked()
    except RuntimeError as failure:
        give_up(str(failure))


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    if not request.node.get_closest_marker("docker"):
        yield
        return
    own = [request.getfixturevalue(name) for name in ("_gpu_daemon", "_cdi_daemon") if name[1:] in request.fixturenames]
    sockets = {f"{daemon.folder}/docker.sock": False for daemon in own}
    if is_required() and "PYTEST_XDIST_WORKER" not in os.environ:
        sockets[lab_leftovers.SOCKET] = True
    looks = {socket: functools.partial(lab_leftovers.of_daemon, socket, ours) for socket, ours in sockets.items()}
    before = {socket: look() for socket, look in looks.items()}
    yield
    left = [what for socket, look in looks.items() for what in lab_leftovers.new_since(before[socket], look)]
    if left:
        pytest.fail(f"left behind: {', '.join(left)}")


@pytest.fixture(scope="session")
def lab_image() -> Callable[[str], str]:
    """Makes an image of lab_images.NAMES, if it is not there, and gives its reference."""
    need("docker", "mmdebstrap")
    need_root()
    return lab_images.make


@pytest.fixture
def builds_alone() -> Iterator[None]:
    """One build at a time: whoever prunes what a build leaves takes the layers of another one that is not done."""
    with lab_images.locked("builds"):
        yield


@pytest.fixture(scope="session")
def bookworm(lab_image: Callable[[str], str]) -> str:
    return lab_image("bookworm")


@pytest.fixture(scope="session")
def bare(lab_image: Callable[[str], str]) -> str:
    return lab_image("bare")


@pytest.fixture(scope="session")
def ngc(lab_image: Callable[[str], str]) -> str:
    need("gcc")
    return lab_image("ngc")


@pytest.fixture(scope="session")
def registry(ngc: str, bare: str) -> Iterator[Registry]:
    need("docker-registry", "setpriv")
    with lab_registry.registry() as started:
        started.push(ngc, "nvidia/pytorch:24.08-py3")
        started.push(bare, "nvidia/cuda:12.6.0-base-ubuntu24.04")
        yield started


@pytest.fixture(scope="session")
def _machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    need("gcc", "unshare")
    need_root()
    if Path("/dev/nvidiactl").exists():
        give_up("this machine has GPUs of its own")
    return Machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture
def lab_machine(_machine: Machine) -> Machine:
    _machine.set()
    return _machine


@pytest.fixture(scope="session")
def _gpu_daemon(_machine: Machine) -> Iterator[Daemon]:
    need("docker", "dockerd", "setpriv")
    hooks = _machine.folder / "hookbin"
    runtime = hooks / "nvidia-container-runtime"
    with lab_daemons.dockerd([f"--add-runtime=nvidia={runtime}"], path=[hooks]) as daemon:
        yield daemon


@pytest.fixture
def gpu_daemon(_gpu_daemon: Daemon, lab_machine: Machine) -> Daemon:
    return _gpu_daemon


@pytest.fixture(scope="session")
def _cdi_daemon(_machine: Machine) -> Iterator[Daemon]:
    programs = need_docker_with_cdi()
    options = ["--ip6tables=false", f"--cdi-spec-dir={_machine.folder}/cdi"]
    with lab_daemons.dockerd(options, path=[programs], settings={"features": {"cdi": True}}) as daemon:
        yield daemon


@pytest.fixture
def cdi_daemon(_cdi_daemon: Daemon, lab_machine: Machine) -> Daemon:
    return _cdi_daemon


@pytest.fixture(scope="session")
def _podman(_machine: Machine) -> Iterator[Podman]:
    need("podman", "runc")
    with lab_podman.podman(_machine) as own:
        yield own


@pytest.fixture
def podman(_podman: Podman, lab_machine: Machine) -> Podman:
    return _podman
