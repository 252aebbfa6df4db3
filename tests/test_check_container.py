"""check --image and --container on a real engine: collected inside, where gpudoctor is not installed, and on the host.

The whole command, as a process of its own, is what the first test and those of signals start. The others call it in this
process, and this machine, which has no part in what they are about, is asked once for all of them.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lab_images
import pytest
from click.testing import CliRunner, Result
from forked import Forked, run
from waiting import HOPELESS_SECONDS, until

from gpudoctor import collect_container
from gpudoctor.cli import main
from gpudoctor.collect import collect
from gpudoctor.interpreter import Interpreter, Target, this_interpreter
from gpudoctor.model import Snapshot
from gpudoctor.worker.probes.cuda import LEFT_ALONE

pytestmark = pytest.mark.docker

LABEL = "gpudoctor-test=check-container"
QUICK = ("check", "--level", "quick", "--format", "json", "--no-redact")


@functools.cache
def this_machine() -> Snapshot:
    return collect(this_interpreter(), 60.0, {}, lambda names: None, {LEFT_ALONE: "left to the container being examined"})


@pytest.fixture(autouse=True)
def asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def collected(where: Target, *settings: Any) -> Snapshot:
        return this_machine() if isinstance(where, Interpreter) else collect(where, *settings)

    monkeypatch.setattr(collect_container, "collect", collected)


def gpudoctor(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(main, arguments, env=variables)


def check(*arguments: str, **variables: str) -> dict[str, Any]:
    quicker = ("--docker-option=--network=none",) if "--image" in arguments else ()
    done = gpudoctor(*QUICK, *quicker, *arguments, **variables)
    return report_of(done.exit_code, done.stdout, done.stderr)


def report_of(code: int, said: str, errors: str) -> dict[str, Any]:
    assert code in (0, 1), errors
    report: dict[str, Any] = json.loads(said)
    return report


def row(report: dict[str, Any], id: str) -> dict[str, Any]:
    found: dict[str, Any] = next(row for row in report["checks"] if row["id"] == id)
    return found


def containers_of(image: str) -> set[str]:
    argv = ["docker", "ps", "-aq", "--filter", f"ancestor={image}"]
    return set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())


@pytest.fixture
def running() -> Iterator[Any]:
    """Starts containers that run until the test is over."""
    started: list[str] = []

    def start(image: str, *options: str, command: tuple[str, ...] = ("sleep", "600")) -> str:
        argv = ["docker", "run", "-d", "--network=none", "--label", LABEL, *options, image, *command]
        started.append(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip())
        return started[-1]

    yield start
    for name in started:
        subprocess.run(["docker", "rm", "-f", name], capture_output=True)


@pytest.fixture(scope="session")
def image(bookworm: str) -> str:
    return bookworm


def derived(tag: str, base: str, *lines: str) -> str:
    """An image of ours on top of another; made by one worker at a time, since an image that both make loses its name."""
    text = "\n".join([f"FROM {base}", *lines])
    environment = {**os.environ, "DOCKER_BUILDKIT": "0"}
    reference = f"{lab_images.PREFIX}:{tag}"
    argv = ["docker", "build", "--quiet", "--network=none", "--tag", reference, "-"]
    with lab_images.locked("derived"), lab_images.replacing(reference):
        subprocess.run(argv, input=text, text=True, capture_output=True, check=True, env=environment)
    return reference


def test_an_image_is_examined_inside_and_its_host_outside(image: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    command = [sys.executable, "-m", "gpudoctor", *QUICK, "--image", image, "--save", str(kept)]
    done = run(command, capture_output=True, text=True)
    report = report_of(done.returncode, done.stdout, done.stderr)
    assert (report["target"]["kind"], report["target"]["image"]) == ("image", image)
    assert report["target"]["container"] == "docker"
    assert report["target"]["python"] == "/usr/bin/python3"
    assert report["target"]["python_version"].startswith("3.11")
    assert [row for row in report["checks"] if row["status"] == "error"] == []
    rows = {row["what"]: row for row in report["comparison"]}
    assert rows["GPUs"]["host"] == rows["GPUs"]["container"] == "0"
    assert {row["area"] for row in report["host"]} >= {"hardware", "driver"}
    assert [(entry["problem"], entry["on_host"]) for entry in report["diagnosis"]] == [("no-nvidia-gpu", True)]
    assert check("--replay", str(kept)) == report


@pytest.mark.parametrize("version", sorted({*lab_images.PYTHONS} - {"3.11"}))
def test_the_python_of_every_other_image_is_asked(version: str, lab_image: Callable[[str], str]) -> None:
    report = check("--image", lab_image(lab_images.PYTHONS[version]))
    assert report["target"]["python_version"].startswith(version)
    assert [row for row in report["checks"] if row["status"] == "error"] == []


def test_the_entrypoint_is_kept_and_its_environment_is_what_is_seen(ngc: str, tmp_path: Path) -> None:
    report = check("--image", ngc, "--save", str(tmp_path / "kept.json"))
    assert not report["target"]["entrypoint_left_out"]
    replies = json.loads((tmp_path / "kept.json").read_text())["replies"]
    assert replies["environment"]["value"]["NVIDIA_CPU_ONLY"] == "1"


def test_a_container_is_entered_with_the_environment_of_its_first_process(image: str, running: Any) -> None:
    start = ("sh", "-c", "export NVIDIA_VISIBLE_DEVICES=void CUDA_HOME=/nowhere; exec sleep 600")
    name = running(image, command=start)
    report = check("--container", name)
    rows = {row["what"]: row for row in report["comparison"]}
    assert rows["NVIDIA_VISIBLE_DEVICES"]["container"] == "void"
    assert report["target"]["kind"] == "container"
    nothing_is_left_in(name)


def nothing_is_left_in(container: str) -> None:
    """In one that runs a single process."""
    listing = subprocess.run(["docker", "diff", container], capture_output=True, text=True, check=True).stdout
    assert [line for line in listing.splitlines() if "gpudoctor" in line] == []
    top = ["docker", "top", container]
    assert until(lambda: len(subprocess.run(top, capture_output=True, check=True).stdout.splitlines()) == 2)


def test_a_container_without_rights_and_with_a_read_only_root(image: str, running: Any) -> None:
    name = running(image, "--read-only", "--user", "1234:1234", "--cap-drop=ALL")
    report = check("--container", name)
    assert report["target"]["python_version"].startswith("3.11")


def test_an_entrypoint_that_hands_nothing_over_is_left_out(image: str) -> None:
    name = derived("own-program", image, 'ENTRYPOINT ["python3", "-m", "http.server"]')
    assert check("--image", name)["target"]["entrypoint_left_out"] == "python3 -m http.server"


def test_an_entrypoint_that_only_looks_as_if_is_left_out_too(image: str) -> None:
    script = r"RUN printf '#!/bin/sh\necho usage >&2; exit 3\n' >/entrypoint.sh && chmod 755 /entrypoint.sh"
    name = derived("bad-entrypoint", image, script, 'ENTRYPOINT ["/entrypoint.sh"]')
    assert check("--image", name)["target"]["entrypoint_left_out"] == "/entrypoint.sh"


@pytest.mark.parametrize(
    ("wanted", "used"), [("/opt/venv/bin/python3", "/opt/venv/bin/python3"), ("/opt/my env", "/opt/my env/bin/python")]
)
def test_another_python_of_the_image(image: str, wanted: str, used: str) -> None:
    make = "python3 -m venv --without-pip"
    name = derived("venv", image, f"RUN {make} /opt/venv && {make} '/opt/my env'")
    assert check("--image", name, "--python", wanted)["target"]["python"] == used


def test_a_python_that_the_image_does_not_have(image: str) -> None:
    done = gpudoctor("check", "--image", image, "--python", "/opt/none")
    assert done.exit_code == 2
    assert done.stderr == f"Error: image {image} has no Python 3.8+ at /opt/none\n"


def test_without_python_a_shell_is_asked_and_the_report_says_so(bare: str, tmp_path: Path) -> None:
    nothing = {"HOME": str(tmp_path), "UV_PYTHON_INSTALL_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    report = check("--image", bare, **nothing)
    assert "only a limited check with its shell was possible" in report["target"]["reduced"]
    assert row(report, "nvml")["status"] in ("skip", "blocked")
    assert {row["what"]: row["container"] for row in report["comparison"]}["GPUs"] == "0"
    assert not any(row["status"] == "error" for row in report["checks"])


def test_a_python_that_does_not_start_is_a_finding(image: str, running: Any) -> None:
    report = check("--container", running(image, "--env", "PYTHONHOME=/nosuch"))
    found = {entry["problem"]: entry["message"] for entry in report["diagnosis"]}
    assert "encodings" in found["container-python-broken"]
    assert "the container's Python does not start" in report["target"]["reduced"]


def test_a_python_that_takes_no_job_is_not_waited_for(image: str) -> None:
    script = '#!/bin/sh\ncase $2 in *gettempdir*) exec sleep 600 ;; esac\nexec /usr/bin/python3 "$@"\n'
    coded = base64.b64encode(script.encode()).decode()
    stuck = f"RUN mkdir -p /usr/local/bin && echo {coded} | base64 -d >/usr/local/bin/python3 && chmod 755 /usr/local/bin/python3"
    name = derived("stuck-python", image, stuck)
    done = gpudoctor("check", "--image", name, "--level", "quick", "--timeout", "1")
    assert done.exit_code == 3
    assert "no answer after 1 s" in done.stderr


def test_a_container_with_too_little_memory(image: str, running: Any) -> None:
    # Files that nobody has read yet would be charged to its limit, and be read again and again in the place of its end.
    modules = "import ctypes, json, mmap, os, selectors, shutil, signal, subprocess, tempfile"
    warm = ["docker", "run", "--rm", "--network=none", "--label", LABEL, image, "python3", "-c", modules]
    subprocess.run(warm, capture_output=True, check=True)
    done = gpudoctor("check", "--container", running(image, "--memory", "8m"), "--level", "quick")
    assert done.exit_code == 3
    assert done.stderr.rstrip().endswith("the container's memory limit is too low: 64 MiB are needed)")


def test_an_entrypoint_that_refuses_is_a_finding(image: str) -> None:
    script = r"RUN printf '#!/bin/sh\necho licence not accepted >&2; exit 3\n' >/start.sh && chmod 755 /start.sh"
    report = check("--image", derived("refuses", image, script, 'ENTRYPOINT ["/start.sh"]'))
    assert (
        "licence not accepted" in {entry["problem"]: entry["message"] for entry in report["diagnosis"]}["image-entrypoint-ends"]
    )


def test_a_container_that_cannot_be_entered(image: str, running: Any) -> None:
    name = running(image)
    for command, words in ((["pause"], "unpause"), (["kill"], "docker start")):
        subprocess.run(["docker", *command, name], check=True, capture_output=True)
        assert until(lambda: json.loads(inspected(name))[0]["State"]["Status"] != "running")
        done = gpudoctor("check", "--container", name)
        assert done.exit_code == 2
        assert words in done.stderr


def inspected(container: str) -> str:
    return subprocess.run(["docker", "inspect", container], capture_output=True, text=True, check=True).stdout


def test_a_python_is_lent_to_an_image_without_one(bare: str, tmp_path: Path) -> None:
    portable(tmp_path / f"cpython-{sys.version_info[0]}.{sys.version_info[1]}.0-linux-{os.uname().machine}-gnu")
    report = check("--image", bare, UV_PYTHON_INSTALL_DIR=str(tmp_path))
    assert "reduced" not in report["target"]
    assert row(report, "package-requirements")["message"].endswith("gpudoctor used a portable one")
    assert row(report, "memlock")["status"] == "pass"


def portable(folder: Path) -> None:
    """This Python in the form in which uv keeps its own: everything that it needs below one folder."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library = folder / "lib" / version
    without = shutil.ignore_patterns("site-packages", "dist-packages", "test", "__pycache__", "idlelib", "tkinter", "config-*")
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=without)
    (folder / "bin").mkdir()
    shutil.copy(Path(sys.executable).resolve(), folder / "bin" / version)
    files = (folder / "bin" / version, *library.glob("lib-dynload/*.so"))
    needed = subprocess.run(["ldd", *files], capture_output=True, text=True).stdout.splitlines()
    for path in {line.partition("=>")[2].split(" (")[0].strip() for line in needed}:
        if path and not Path(path).name.startswith(("libc.so", "libm.so", "libpthread", "libdl", "ld-linux")):
            shutil.copy(path, folder / "lib" / Path(path).name)
    start = folder / "bin" / "python3"
    start.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="${{0%/bin/*}}/lib" exec "${{0%/*}}/{version}" "$@"\n')
    start.chmod(0o755)


def test_an_image_without_a_shell(image: str, tmp_path: Path) -> None:
    name = "gpudoctor-test:no-shell"
    (tmp_path / "file").write_text("")
    with subprocess.Popen(["tar", "-C", tmp_path, "-c", "file"], stdout=subprocess.PIPE) as tar:
        subprocess.run(["docker", "import", "-c", 'CMD ["/file"]', "-", name], stdin=tar.stdout, check=True, capture_output=True)
    done = gpudoctor("check", "--image", name)
    subprocess.run(["docker", "image", "rm", name], check=True, capture_output=True)  # each import makes another
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith(f"Error: {name} has no shell (sh)")


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (("--image", "gpudoctor-test:x", "--container", "y"), 2, "cannot be used together"),
        (("--container", "no-such-container"), 2, "no container is named 'no-such-container'"),
        (("--image", "no-such-image"), 2, "no-such-image"),
        (("--image", "localhost:1/nothing:here"), 3, "the registry is unreachable"),
        (("--image", ""), 2, "--image is empty"),
        (("--registry", "mirror"), 2, "--registry requires --image"),
        (("--engine", "docker"), 2, "--engine requires --image or --container"),
    ],
)
def test_what_cannot_be_examined_is_said_in_one_line(arguments: tuple[str, ...], code: int, line: str) -> None:
    done = gpudoctor("check", *arguments)
    assert done.exit_code == code, done.stderr
    assert line in done.stderr
    assert "Traceback" not in done.stderr


def test_an_option_that_the_engine_does_not_have(image: str) -> None:
    done = gpudoctor("check", "--image", image, "--docker-option=--nonsense")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: docker run refused an option\n  unknown flag: --nonsense")


def test_why_it_did_not_start_comes_first(image: str) -> None:
    report = check("--image", image, "--docker-option=--volume=/tmp:/tmp:nonsense")
    assert report["target"]["kind"] == "host"
    assert report["diagnosis"][0]["check"] == "container-start"
    assert "invalid mode: nonsense" in report["diagnosis"][0]["message"]


def test_a_daemon_that_is_not_there() -> None:
    done = gpudoctor("check", "--image", "ubuntu:24.04", DOCKER_HOST="unix:///nowhere.sock", GPUDOCTOR_ENGINE="docker")
    assert done.exit_code == 3
    assert done.stderr.splitlines()[0].startswith(
        "Error: the docker daemon does not answer (DOCKER_HOST is set to unix:///nowhere.sock)"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whoever_ends_it_nothing_is_left(image: str, number: signal.Signals) -> None:
    entrypoint = 'ENTRYPOINT ["env", "sh", "-c", "sleep 600; exec \\"$@\\"", "sh"]'
    own = f"ENV SIGNAL={number.name}"  # else the three were one image, and containers_of would give those of another worker
    slow = derived(f"slow-until-{number.name.lower()}", image, entrypoint, own)
    command = [sys.executable, "-m", "gpudoctor", "check", "--image", slow, "--level", "quick"]
    process = Forked(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    assert until(lambda: containers_of(slow))
    process.send_signal(number)
    assert process.wait(HOPELESS_SECONDS) == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    assert until(lambda: not containers_of(slow))
