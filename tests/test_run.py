"""What `gpudoctor run` makes of its options: pure, no engine is asked."""

from __future__ import annotations

import os
import select
import shlex
import stat
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from waiting import HOPELESS_SECONDS, until

from gpudoctor.choices import GPU_MODES
from gpudoctor.cli import main
from gpudoctor.cli import run as run_command
from gpudoctor.containers.engine import arrival, gpus, guard, rlimits, streams
from gpudoctor.containers.engine.client import Engine
from gpudoctor.containers.engine.gpus import Access
from gpudoctor.containers.run import caches, command, env_files, profiles, running
from gpudoctor.containers.run.caller import Place
from gpudoctor.containers.run.command import Command, Options
from gpudoctor.errors import UserError

GIB = 1 << 30
IMAGE: dict[str, Any] = {"Id": "sha256:" + "ab" * 32, "Config": {"Cmd": ["bash"], "Env": ["PATH=/usr/bin"]}}
ROOT = Place(folder=Path("/home/eva/train"), cache=Path("/home/eva/.cache/gpudoctor/containers"))
EVA = replace(ROOT, uid=1000, gid=1001, user="eva", groups=(44, 105))
NOTHING = Access("none", (), "no GPU was requested")
ALL = Access("gpus", ("--gpus", "all"), "")


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST"):
        monkeypatch.delenv(name, raising=False)


def docker(**info: Any) -> Engine:
    return Engine("docker", {"ServerVersion": "28.5.2", "MemTotal": 24 * GIB, **info})


def cdi(*names: str) -> dict[str, Any]:
    return {"DiscoveredDevices": [{"Source": "cdi", "ID": f"nvidia.com/gpu={name}"} for name in names]}


def podman(rootless: bool = False) -> Engine:
    return Engine("podman", {"host": {"memTotal": 8 * GIB, "security": {"rootless": rootless}}, "version": {"Version": "5.4.0"}})


def built(
    options: Options | None = None, engine: Engine | None = None, access: Access = NOTHING, place: Place = ROOT, **config: Any
) -> Command:
    image = {**IMAGE, "Config": {**IMAGE["Config"], **config}}
    return command.build(engine or docker(), "image:tag", image, access, options or Options(), place)


def values(built: Command, option: str) -> list[str]:
    return [value for word, value in zip(built.options, built.options[1:], strict=False) if word == option]


@pytest.mark.parametrize(
    ("engine", "wanted", "arguments"),
    [
        (docker(**cdi("0", "1", "all")), "all", "--device nvidia.com/gpu=all"),
        (docker(**cdi("0", "1", "all")), "0,1", "--device nvidia.com/gpu=0 --device nvidia.com/gpu=1"),
        (docker(**cdi("0", "0:1", "all")), "0:1", "--device nvidia.com/gpu=0:1"),
        (docker(**cdi("0", "1", "all")), "count=2", "--device nvidia.com/gpu=0 --device nvidia.com/gpu=1"),
        (docker(**cdi("all")), "0", "--gpus device=0"),
        (docker(**cdi("all"), Runtimes={"nvidia": {}}), "0", "--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=0"),
        (docker(Runtimes={"nvidia": {}}), "all", "--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=all"),
        (
            docker(Runtimes={"nvidia": {}}),
            "GPU-8932f937-d72c, 1",
            "--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=GPU-8932f937-d72c,1",
        ),
        (docker(Runtimes={"nvidia": {}}), "count=3", "--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=0,1,2"),
        (docker(Runtimes={"nvidia": {}}, OperatingSystem="Docker Desktop"), "all", "--gpus all"),
        (docker(), "all", "--gpus all"),
        (docker(), "count=2", "--gpus 2"),
        (docker(), "2", "--gpus device=2"),
        (docker(), "0,2", """--gpus '"device=0,2"'"""),
        (docker(), '"device=0,2"', """--gpus '"device=0,2"'"""),
        (docker(), "MIG-c6d4f1ef-42e4", "--gpus device=MIG-c6d4f1ef-42e4"),
        (
            docker(SecurityOptions=["name=seccomp,profile=default", "name=selinux"]),
            "all",
            "--gpus all --security-opt=label=disable",
        ),
        (podman(), "all", "--device nvidia.com/gpu=all --security-opt=label=disable"),
        (podman(), "0,2", "--device nvidia.com/gpu=0 --device nvidia.com/gpu=2 --security-opt=label=disable"),
        (docker(), "none", ""),
        (docker(DefaultRuntime="nvidia", Runtimes={"nvidia": {}}), "none", "-e NVIDIA_VISIBLE_DEVICES=void"),
    ],
)
def test_how_a_gpu_is_asked_for(engine: Engine, wanted: str, arguments: str) -> None:
    access = gpus.access(engine, wanted)
    assert shlex.join(access.arguments) == arguments
    assert access.why


@pytest.mark.parametrize("text", ["", "0,", "two", "1-3", "count=0", "device=", "all,0", "-1", "0;rm", "GPU-", "0 1"])
def test_what_names_no_gpu(text: str) -> None:
    with pytest.raises(UserError, match="is not valid") as caught:
        gpus.access(docker(), text)
    assert "\n" not in str(caught.value)


def test_a_mode_can_be_demanded() -> None:
    everything = docker(**cdi("0", "all"), Runtimes={"nvidia": {}})
    assert [gpus.access(everything, "all", mode).mode for mode in GPU_MODES] == ["cdi", "cdi", "runtime", "gpus", "none"]
    assert gpus.access(podman(), "all", "gpus").arguments == ("--gpus", "all", gpus.NO_LABELS)
    with pytest.raises(UserError, match="Podman uses CDI"):
        gpus.access(podman(), "all", "runtime")


@pytest.mark.parametrize(
    ("files", "has_gpu"),
    [
        ({}, False),
        ({"dev/nvidiactl": ""}, True),
        ({"dev/dxg": ""}, True),
        ({"sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n"}, True),
        ({"sys/bus/pci/devices/0000:01:00.1/vendor": "0x10de\n", "sys/bus/pci/devices/0000:01:00.1/class": "0x040300\n"}, False),
        ({"sys/bus/pci/devices/0000:01:00.0/vendor": "0x8086\n", "sys/bus/pci/devices/0000:01:00.0/class": "0x030000\n"}, False),
    ],
)
def test_whether_the_kernel_shows_a_gpu(tmp_path: Path, files: dict[str, str], has_gpu: bool) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert gpus.has_gpu(str(tmp_path)) is has_gpu


def test_without_a_gpu_none_is_asked_for_unless_the_engine_is_made_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "has_gpu", lambda: False)
    assert gpus.access(docker(), "auto").mode == "none"
    assert gpus.access(docker(), "all").mode == "gpus"
    assert gpus.access(docker(), "auto", "gpus").mode == "gpus"
    assert gpus.access(docker(Runtimes={"nvidia": {}}), "auto").mode == "runtime"
    monkeypatch.setenv("DOCKER_HOST", "ssh://gpu-box")  # its GPUs cannot be seen from here
    assert gpus.access(docker(), "auto").mode == "gpus"


SHOWN = r"""docker run --rm --init -it --gpus all --shm-size 12g --ulimit memlock=-1 \
    --ulimit stack=67108864 -v /home/eva/train:/workspace/host \
    -w /workspace/host \
    -v /home/eva/.cache/gpudoctor/containers/root/shared:/cache/shared \
    -v /home/eva/.cache/gpudoctor/containers/root/abababababababab:/cache/image \
    -e HF_HOME=/cache/shared/hf -e TORCH_HOME=/cache/shared/torch \
    -e PIP_CACHE_DIR=/cache/shared/pip -e CUDA_CACHE_PATH=/cache/image \
    -e TRITON_CACHE_DIR=/cache/image/triton \
    -e TORCHINDUCTOR_CACHE_DIR=/cache/image/inductor \
    -e CUPY_CACHE_DIR=/cache/image/cupy \
    -e NUMBA_CACHE_DIR=/cache/image/numba \
    -e NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    image:tag python train.py --name 'a b'"""


def test_the_defaults() -> None:
    shown = built(Options(command=("python", "train.py", "--name", "a b")), access=ALL, place=replace(ROOT, has_terminal=True))
    assert shown.shown() == SHOWN


@pytest.mark.parametrize("options", [Options(), Options(command=("sh", "-c", "a && 'b'\n\"c\""), env=("A=b c $HOME",))])
def test_what_is_shown_is_what_is_executed(options: Options) -> None:
    made = built(options, access=gpus.access(docker(), "0,2"))
    assert shlex.split(made.shown().replace("\\\n", "")) == made.argv()


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        (("-e", "HF_TOKEN=hush"), "-e HF_TOKEN"),
        (("--env", "aws_secret_access_key=hush=x\ny"), "--env aws_secret_access_key"),
        (("--env=DB_PASSWORD=hush",), "--env=DB_PASSWORD"),
        (("-eWANDB_API_KEY=hush",), "-eWANDB_API_KEY"),
        (("-e", "HF_TOKEN"), "-e HF_TOKEN"),
        (("-e", "EPOCHS=3"), "-e EPOCHS=3"),
        (("-e", "DB_URL=postgres://u:hush@h/db"), "-e DB_URL"),
        (("-e", "HTTPS_PROXY=u:hush123@proxy.initech.com:3128"), "-e HTTPS_PROXY"),
        (("-e", "MAX_TOKENS=4096"), "-e MAX_TOKENS=4096"),
        (("-e", "MASTER_ADDR=node1"), "-e MASTER_ADDR=node1"),
        (("--label=token=3",), "--label=token=3"),
    ],
)
def test_secrets_are_not_shown(option: tuple[str, ...], shown: str) -> None:
    made = built(Options(docker_options=option, cache=False))
    assert f" {shown} \\\n" in made.shown()
    assert "hush" not in made.shown()
    assert "hush" not in " ".join(made.argv())
    assert [value for value in made.environment.values() if "hush" not in value] == []
    assert shlex.split(made.shown().replace("\\\n", "")) == made.argv()


def test_secrets_of_other_words_are_not_shown() -> None:
    made = built(Options(command=("python", "x.py", "--api-key", "hush-77aa"), docker_options=("-l", "x=https://u:hush@h/x")))
    assert "hush" not in made.shown()
    assert "-l x=https://REDACTED@h/x" in made.shown()
    assert made.shown().endswith("python x.py --api-key REDACTED")
    kept = built(Options(env=("DOCKER_AUTH_CONFIG=hush", "HF_TOKEN=hush", "HF_TOKEN=hush2")))
    assert "hush" not in kept.shown()
    assert dict(kept.environment) == {"HF_TOKEN": "hush2"}  # of several docker takes the last
    assert "DOCKER_AUTH_CONFIG=hush" in kept.argv()


@pytest.mark.parametrize(
    ("keep", "options", "is_kept"),
    [
        (False, (), False),
        (True, (), True),
        (False, ("--rm=false",), True),
        (False, ("--rm=0",), True),
        (True, ("--rm",), False),
        (True, ("--rm=true",), False),
        (False, ("--rm=false", "--rm"), False),
    ],
)
def test_the_last_word_on_keeping_it_wins(keep: bool, options: tuple[str, ...], is_kept: bool) -> None:
    assert built(Options(keep=keep, docker_options=options)).is_kept is is_kept


def test_what_the_user_or_the_image_says_goes_before_the_defaults() -> None:
    options = Options(
        env=("HF_HOME=/mine", "NVIDIA_DRIVER_CAPABILITIES=all"), shm_size="1g", ulimits=("memlock=64",), workdir="/w"
    )
    made = built(options, access=ALL, Env=["TORCH_HOME=/image"])
    set_to = dict(pair.split("=", 1) for pair in values(made, "-e"))
    assert (set_to["HF_HOME"], set_to["NVIDIA_DRIVER_CAPABILITIES"]) == ("/mine", "all")
    assert "TORCH_HOME" not in set_to
    assert values(made, "-e").count("HF_HOME=/mine") == 1
    assert (values(made, "--shm-size"), values(made, "-w")) == (["1g"], ["/w"])
    assert values(made, "--ulimit") == ["stack=67108864", "memlock=64"]
    assert values(built(access=ALL, Env=["NVIDIA_DRIVER_CAPABILITIES=all"]), "-e").count("NVIDIA_DRIVER_CAPABILITIES=all") == 0


def test_what_can_be_turned_off() -> None:
    made = built(Options(mount=False, cache=False, keep=True, ulimits=("none",)), place=replace(ROOT, has_input=False))
    assert made.argv() == ["docker", "run", "--init", "--shm-size", "12g", "image:tag"]


def test_what_is_passed_on() -> None:
    options = Options(
        volumes=("/data:/data:ro", "./x:/x"),
        ports=("8080:80",),
        name="n",
        network="host",
        user="1:2",
        docker_options=("--cpus", "4"),
        cache=False,
    )
    made = built(options)
    assert values(made, "-v") == ["/home/eva/train:/workspace/host", "/data:/data:ro", f"{Path('x').resolve()}:/x"]
    pairs = {"-p": ["8080:80"], "--name": ["n"], "--network": ["host"], "--user": ["1:2"], "--cpus": ["4"]}
    assert {option: values(made, option) for option in pairs} == pairs


def test_a_folder_is_mounted_whatever_it_is_called() -> None:
    assert values(built(place=replace(ROOT, folder=Path('/a:b,"c'))), "--mount") == [
        'type=bind,"source=/a:b,""c",target=/workspace/host'
    ]


@pytest.mark.parametrize("folder", [None, Path("/")])
def test_the_whole_machine_is_not_mounted(folder: Path | None) -> None:
    made = built(Options(cache=False), place=replace(ROOT, folder=folder))
    assert not values(made, "-v")
    assert not values(made, "-w")
    assert "is not mounted" in made.notes[0]


@pytest.mark.parametrize("volume", ["/data:/workspace/host", "/data:/workspace/host/", "/data:/workspace/host/:ro"])
def test_the_place_of_the_folder_can_be_given_to_another(volume: str) -> None:
    made = built(Options(volumes=(volume,), cache=False))
    assert (values(made, "-v"), values(made, "-w")) == ([volume], ["/workspace/host"])


@pytest.mark.parametrize(
    "option",
    [
        ("--mount", "type=bind,source=/data,target=/workspace/host"),
        ("--mount=type=tmpfs,dst=/workspace/host/",),
        ('--mount=type=bind,"source=/a,b","destination=/workspace/host"',),
        ("-v", "/data:/workspace/host"),
        ("--volume=/data:/workspace/host/",),
        ("-v/workspace/host",),
    ],
)
def test_nothing_is_mounted_twice(option: tuple[str, ...]) -> None:
    assert f"{ROOT.folder}:/workspace/host" not in built(Options(docker_options=option)).options
    elsewhere = tuple(word.replace("/workspace/host", "/cache/shared") for word in option)
    assert f"{ROOT.folder}:/workspace/host" in built(Options(docker_options=elsewhere)).options
    assert [word for word in built(Options(docker_options=elsewhere)).options if word.endswith("/shared:/cache/shared")] == []


def test_a_daemon_elsewhere_gets_nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://gpu-box")
    made = built()
    assert not values(made, "-v")
    assert made.caches is None
    assert "another machine" in made.notes[0]


@pytest.mark.parametrize(
    ("entrypoint", "cmd", "options", "started"),
    [
        (None, ["bash"], (), ()),
        (None, ["/bin/sh"], (), ()),
        (None, ["sh", "-c", "python app.py"], (), ("sh", "-c", command.BEST_SHELL)),
        (None, None, (), ("sh", "-c", command.BEST_SHELL)),
        (["/opt/nvidia/nvidia_entrypoint.sh"], None, (), ("sh", "-c", command.BEST_SHELL)),
        (["/opt/nvidia/nvidia_entrypoint.sh"], ["/bin/bash"], (), ()),
        (["tini", "--"], ["jupyter", "lab"], (), ("sh", "-c", command.BEST_SHELL)),
        (["bash"], None, (), ()),
        (["vllm", "serve"], ["--model", "x"], ("--entrypoint", "sh"), ("-c", command.BEST_SHELL)),
    ],
)
def test_no_command_is_a_shell(entrypoint: Any, cmd: Any, options: tuple[str, ...], started: tuple[str, ...]) -> None:
    made = built(Entrypoint=entrypoint, Cmd=cmd)
    assert made.command == started
    assert tuple(values(made, "--entrypoint")) == options[1:]
    assert built(Options(command=("x",)), Entrypoint=entrypoint, Cmd=cmd).command == ("x",)


def test_an_entrypoint_of_the_users_is_left_alone() -> None:
    made = built(Options(docker_options=("--entrypoint=top",)), Entrypoint=["vllm"], Cmd=None)
    assert (made.command, [word for word in made.options if "entrypoint" in word]) == ((), ["--entrypoint=top"])


def test_user_me_has_numbers_name_home_and_groups() -> None:
    made = built(Options(user="me"), place=EVA)
    assert values(made, "--user") == ["1000:1001"]
    assert values(made, "--group-add") == ["44", "105"]
    assert {"USER=eva", "LOGNAME=eva", "HOME=/cache/image/home"} <= set(values(made, "-e"))
    assert values(made, "-v")[1].startswith("/home/eva/.cache/gpudoctor/containers/eva/shared:")
    assert "HOME=/tmp" in values(built(Options(user="me", cache=False), place=EVA, Env=["HOME=/root"]), "-e")


def test_user_me_where_root_inside_is_me_already() -> None:
    for engine, place in ((docker(), ROOT), (docker(SecurityOptions=["name=rootless"]), EVA)):
        made = built(Options(user="me"), engine, place=place)
        assert (values(made, "--user"), values(made, "--group-add")) == (["0:0"], [])
    made = built(Options(user="me"), podman(rootless=True), place=EVA)
    assert (values(made, "--userns"), values(made, "--group-add")) == (["keep-id"], ["keep-groups"])


def test_each_user_has_caches_of_its_own() -> None:
    kept = [built(Options(user=user), place=EVA).caches for user in ("", "0", "me", "1234:1", "../x")]
    folders = [(str(one.image.parent.relative_to(EVA.cache or "")), one.made_by_daemon) for one in kept if one]
    assert folders == [("root", True), ("root", True), ("eva", False), ("1234", False), ("..-x", False)]
    other = built(place=EVA, User="appuser:staff").caches
    assert other
    assert other.image.parent.name == "appuser"


def test_caches_are_folders_that_any_user_of_a_container_can_write_to(tmp_path: Path) -> None:
    kept = caches.of(tmp_path / "cache" / "containers", "sha256:" + "ab" * 32, "eva")
    assert kept.prepare() == kept.prepare() == ""
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (kept.shared, kept.image)} == {0o777}
    assert stat.S_IMODE(kept.root.stat().st_mode) == 0o700
    assert (kept.image / "home").is_dir()


def test_caches_that_cannot_be_made_are_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "Not a directory" in caches.of(tmp_path / "file" / "containers", "sha256:ab", "eva").prepare()


def test_profiles_add_up() -> None:
    place = replace(ROOT, devices=("/dev/infiniband",), refused_ulimits=("memlock",))
    made = built(Options(profiles=("training", "multi-gpu", "profile", "notebook")), place=place)
    assert values(made, "--ipc") == ["host"]
    assert not values(made, "--shm-size")
    assert values(made, "--cap-add") == ["SYS_NICE", "SYS_ADMIN", "SYS_PTRACE", "IPC_LOCK"]
    assert values(made, "--device") == ["/dev/infiniband"]
    assert values(made, "-p") == ["127.0.0.1:8888:8888"]
    assert "cannot raise memlock" in made.notes[0]


def test_profiles_give_way() -> None:
    made = built(Options(profiles=("training", "notebook"), shm_size="2g", ports=("9999:8888",)))
    assert (values(made, "--ipc"), values(made, "--shm-size"), values(made, "-p")) == ([], ["2g"], ["9999:8888"])
    assert values(built(Options(profiles=("training",), ipc="private")), "--ipc") == ["private"]
    assert not values(built(Options(profiles=("multi-gpu",))), "--device")


@pytest.mark.parametrize("name", profiles.PROFILES)
def test_each_profile_says_what_it_adds(name: str) -> None:
    profile = profiles.PROFILES[name]
    for added in (profile.ipc, *profile.capabilities, *profile.devices, *profile.device_capabilities, *profile.ports):
        assert added in profile.why


@pytest.mark.parametrize(
    ("memory_bytes", "size"), [(24 * GIB, "12g"), (512 * GIB, "16g"), (3 * GIB, "1536m"), (25276502016, "11g")]
)
def test_shared_memory_is_half_of_the_memory(memory_bytes: int, size: str) -> None:
    assert command.shared_memory(docker(MemTotal=memory_bytes)) == ("--shm-size", size)


RLIMIT = "error setting rlimits for ready process: error setting rlimit type {}: operation not permitted: unknown"


@pytest.mark.parametrize(
    ("message", "gone"),
    [
        (RLIMIT.format(8), ["memlock=-1"]),
        (RLIMIT.format(3), ["stack=67108864"]),
        ("crun: setrlimit `RLIMIT_MEMLOCK`: Operation not permitted", ["memlock=-1"]),
        ("error setting rlimit: something new", ["memlock=-1", "stack=67108864"]),
        ('exec: "docker-init": executable file not found in $PATH', ["--init"]),
        ('could not select device driver "" with capabilities: [[gpu]]', []),
    ],
)
def test_what_is_left_out_after_a_refusal(message: str, gone: list[str]) -> None:
    made = built()
    spared = made.spared(message)
    assert [word for word in made.options if word not in spared.options and word != "--ulimit"] == gone


def test_limits_of_the_users_are_not_left_out() -> None:
    made = built(Options(ulimits=("memlock=77",)))
    assert made.spared(RLIMIT.format(8)) == made


LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max locked memory         8388608              {}              bytes
"""


@pytest.mark.parametrize(
    ("capabilities", "users", "hard", "refused"),
    [
        ("000001ffffffffff", "0 0 4294967295", "8388608", ()),
        ("000001fffeffffff", "0 0 4294967295", "8388608", ("memlock",)),
        ("000001fffeffffff", "0 0 4294967295", "unlimited", ()),
        ("000001ffffffffff", "0 1000 1", "8388608", ("memlock",)),
    ],
)
def test_whether_a_daemon_may_raise_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capabilities: str, users: str, hard: str, refused: tuple[str, ...]
) -> None:
    for name, text in {
        "status": f"Name:\tx\nCapEff:\t{capabilities}\n",
        "uid_map": f" {users}\n",
        "limits": LIMITS.format(hard),
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(rlimits, "_process", lambda engine: tmp_path)
    assert rlimits.refused(docker()) == refused


@pytest.mark.parametrize(
    ("written", "passed_on", "refusal"),
    [
        ([b"Error: no such thing\n"], b"Error: no such thing\n", ""),
        ([b"hello\n", b"world"], b"hello\nworld", ""),
        (
            [b"docker: Error response from daemon: no\n", b"\nRun 'docker run --help' for more\n"],
            b"",
            "docker: Error response from daemon: no",
        ),
        ([b"WARNING: no swap limit\ndocker: Error response from\n"], b"WARNING: no swap limit\n", "docker: Error response from"),
        ([b"WARNING: mine\nhello"], b"WARNING: mine\nhello", ""),
        ([b"dock", b"er: x\n"], b"", "docker: x"),
        ([b"dock", b"yard\n"], b"dockyard\n", ""),
        ([b""], b"", ""),
    ],
)
def test_only_a_refusal_is_held_back(written: list[bytes], passed_on: bytes, refusal: str) -> None:
    source, errors = os.pipe()
    shown, sink = os.pipe()
    relay = streams.Relay(os.fdopen(source, "rb", buffering=0), sink, streams.DOCKER)
    relay.start()
    for data in written:
        os.write(errors, data)
    os.close(errors)
    relay.join()
    os.write(sink, b"|")
    assert os.read(shown, 1000) == passed_on + b"|"
    assert relay.refusal(125) == refusal
    assert relay.refusal(1) == ""
    relay.release()
    os.close(sink)
    assert os.read(shown, 1000) == b"".join(written)[len(passed_on) :]
    os.close(shown)


@pytest.mark.parametrize(
    ("prefix", "said", "code", "is_refusal"),
    [
        (streams.DOCKER, "docker: Error response from daemon: no such file", 127, True),
        (streams.DOCKER, "docker: invalid reference format.", 125, True),
        (streams.DOCKER, "docker: setrlimit failed", 126, False),
        (streams.PODMAN, "Error: statfs /no-such: no such file or directory", 125, True),
        (streams.PODMAN, "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=9", 126, True),
        (streams.PODMAN, 'Error: runc: exec: "x": not found: OCI runtime attempted to invoke a command', 127, True),
        (streams.PODMAN, "Error: config not found", 127, False),
        (streams.PODMAN, "docker: Error response from daemon: no", 125, False),
    ],
)
def test_a_program_that_says_something_alike(prefix: bytes, said: str, code: int, is_refusal: bool) -> None:
    source, errors = os.pipe()
    relay = streams.Relay(os.fdopen(source, "rb", buffering=0), None, prefix)
    relay.start()
    os.write(errors, said.encode())
    os.close(errors)
    relay.join()
    assert relay.refusal(code) == (said if is_refusal else "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "longest", "is_shown"),
    [
        (b"docker: what a program says", 600.0, True),
        (b"docker: Error response from daemon: no", 600.0, False),
        (b"docker: Error response from daemon: no", 0.5, True),
    ],
)
def test_a_refusal_is_held_back_while_its_container_is_removed(
    said: bytes, longest: float, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "HOLD_SECONDS", 0.1)
    monkeypatch.setattr(streams, "REMOVAL_SECONDS", longest)
    source, errors = os.pipe()
    shown, sink = os.pipe()
    relay = streams.Relay(os.fdopen(source, "rb", buffering=0), sink, streams.DOCKER)
    relay.start()
    os.write(errors, said)
    assert bool(select.select([shown], [], [], HOPELESS_SECONDS if is_shown else 1)[0]) == is_shown
    os.close(errors)
    relay.join()
    assert relay.refusal(125) == said.decode()
    for end in (shown, sink):
        os.close(end)


@pytest.mark.slow
def test_an_end_that_somebody_else_keeps_open_is_not_waited_for() -> None:
    source, errors = os.pipe()
    shown, sink = os.pipe()
    relay = streams.Relay(os.fdopen(source, "rb", buffering=0), sink, streams.DOCKER)
    relay.start()
    os.write(errors, b"last words")
    relay.finish()
    assert os.read(shown, 1000) == b"last words"
    for end in (errors, shown, sink):
        os.close(end)


@pytest.mark.parametrize("by", ["somebody", "the clock"])
def test_what_nobody_reads_can_be_given_up(by: str) -> None:
    source, errors = os.pipe()
    shown, sink = os.pipe()
    relay = streams.Relay(os.fdopen(source, "rb", buffering=0), sink, streams.DOCKER)
    relay.start()
    for _ in range(3):
        os.write(errors, bytes(1 << 15))
    os.close(errors)
    if by == "somebody":
        threading.Timer(0.3, relay.give_up).start()
        relay.finish()
    else:
        relay.finish(0.3)
    assert relay.is_alive()
    os.close(shown)
    relay.join()
    os.close(sink)


@pytest.mark.slow
def test_an_end_is_seen_also_by_a_signal_that_interrupts_the_wait_for_it() -> None:
    with subprocess.Popen(["sleep", "1"]) as process:
        assert not running.has_ended(process)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with process._waitpid_lock:  # type: ignore[attr-defined]  # as `wait` has it at that moment
            assert process.poll() is None
            assert running.has_ended(process)
    assert running.has_ended(process)


def test_the_help_names_all_that_is_added() -> None:
    shown = CliRunner().invoke(main, ["run", "--help"]).output
    for added in (f"{command.CAPABILITIES}=compute,utility", gpus.NO_LABELS, "--rm", "--init", "--shm-size", "memlock=-1"):
        assert added in shown


def stub(folder: Path, script: str) -> Engine:
    """An engine of which there is only the command."""
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Engine(str(program), {"ServerVersion": "28.5.2"})


def test_a_container_that_takes_long_to_be_made_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival, "MOST_LOOKS", 2)
    told: list[str] = []
    look = arrival.Look(stub(tmp_path, "echo 'gpudoctor device= library='"), tmp_path / "container", told.append)
    look.start()
    time.sleep(10 * arrival.FIRST_SECONDS)
    (tmp_path / "container").write_text("abc")
    look.join()
    assert look.has_looked
    assert "no device node" in told[0]


@pytest.mark.parametrize("failure", ["it says no", "it cannot be asked"])
def test_a_container_that_cannot_be_removed_is_said_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failure: str
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    engine = stub(tmp_path, f'echo "$@" >>{tmp_path}/log; [ -e {tmp_path}/works ] && [ "$1" = rm ]')
    program = Path(engine.program)
    if failure == "it cannot be asked":
        program.chmod(0o644)
    with guard.guard(engine) as cidfile:
        name = guard.label(cidfile)
        cidfile.write_text("0123456789abcdef")
    assert (
        capsys.readouterr().err
        == f"gpudoctor: container 0123456789ab could not be removed. Remove it: {program} rm -f 0123456789ab\n"
    )
    assert list((tmp_path / "tmp").iterdir()) == []
    program.write_text(program.read_text().replace("[ -e", '[ "$1" = ps ] && echo 0123456789abcdef; [ -e'))
    program.chmod(0o755)
    (tmp_path / "works").touch()
    wait_for_text(tmp_path / "log", f"label={name}", "rm --force --volumes 0123456789abcdef\n")


def test_the_watchdog_does_not_wait_for_a_daemon_that_is_stuck(tmp_path: Path) -> None:
    """Its limit is over here as soon as the daemon is stuck."""
    stub(
        tmp_path,
        f'echo "$@" >>{tmp_path}/log; [ -e {tmp_path}/stuck ] || {{ touch {tmp_path}/stuck; exec sleep 1000; }}; echo abc',
    )
    (tmp_path / "timeout").write_text(
        f'#!/bin/sh\nshift 3\n[ "$1" = true ] && exit\n[ -e {tmp_path}/stuck ] && exec "$@"\n'
        f'"$@" & while [ ! -e {tmp_path}/stuck ]; do sleep 0.02; done; kill -9 $!; exit 137\n'
    )
    (tmp_path / "timeout").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    argv = ["sh", str(guard.SCRIPT), "docker", str(tmp_path / "folder"), "gpudoctor.run=x", ""]
    subprocess.run(argv, stdin=subprocess.DEVNULL, env=env, timeout=HOPELESS_SECONDS)
    assert "rm --force --volumes abc" in (tmp_path / "log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("looks", "is_removed"), [(2, False), (100, True)])
def test_the_watchdog_leaves_a_kept_container_that_is_just_starting(tmp_path: Path, looks: int, is_removed: bool) -> None:
    """An engine says "created" for so many looks."""
    stub(tmp_path, f'echo "$@" >>{tmp_path}/log; [ "$1" != ps ] || [ $(wc -l <{tmp_path}/log) -gt {looks} ] || echo abc')
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "container").write_text("abc")
    argv = ["sh", str(guard.SCRIPT), "docker", str(tmp_path / "folder"), "gpudoctor.run=x", "created"]
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(argv, stdin=subprocess.DEVNULL, env=env, timeout=HOPELESS_SECONDS)
    assert ("rm --force --volumes abc" in (tmp_path / "log").read_text()) is is_removed


def wait_for_text(file: Path, *texts: str) -> None:
    assert until(lambda: file.exists() and all(text in file.read_text() for text in texts))


FAKE_DOCKER = """
case "$1 $2" in
  "version "*|"info "*) echo '{"ServerVersion": "28.5.2", "MemTotal": 8589934592, "Client": {"Version": "28.5.2"}}' ;;
  "image inspect") echo '[{"Id": "sha256:ab", "Config": {"Cmd": ["sh"]}}]' ;;
  "run "*) echo "$@" >>"$(dirname "$0")/argv"; echo "$HF_TOKEN" >"$(dirname "$0")/token" ;;
esac
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_a_secret_reaches_the_engine_and_no_command_line(options: tuple[str, ...], tmp_path: Path) -> None:
    stub(tmp_path, FAKE_DOCKER)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "c")}
    words = ["--engine=docker", "--gpus=none", "-e", "HF_TOKEN=hush77", *options, "--", "true", "--api-key", "hush78zz"]
    argv = [sys.executable, "-m", "gpudoctor", "run", "--image", "local/x:1", *words]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=HOPELESS_SECONDS)
    assert done.returncode == 0, done.stderr
    assert "hush" not in done.stdout + done.stderr
    assert "-e HF_TOKEN" in done.stdout + done.stderr
    if options:
        assert "secret values are not shown: export HF_TOKEN before you run this command" in done.stderr
        assert "put your own values in the place of REDACTED" in done.stderr
    else:
        assert (tmp_path / "token").read_text() == "hush77\n"
        assert "hush77" not in (tmp_path / "argv").read_text()


@pytest.mark.parametrize("size", ["banana", "16 gigabytes", "-1g", "g"])
def test_a_size_that_docker_refuses_is_refused_before(size: str) -> None:
    done = CliRunner().invoke(main, ["run", "--image", "pytorch-24.08", "--shm-size", size, "--dry-run"])
    assert (done.exit_code, f"{size!r} is not a size" in done.stderr) == (2, True)


@pytest.mark.parametrize("size", ["64m", "1.5g", "1048576", "16G", "2gb", "1GiB", ""])
def test_the_sizes_that_docker_reads(size: str) -> None:
    assert run_command._size(click.Context(main), click.Option(["--shm-size"]), size) == size


def test_a_dry_run_warns_as_a_run_does(capsys: pytest.CaptureFixture[str]) -> None:
    ours = run_command.Ours("x", "auto", "auto", None, "", False, False, True, False, False)
    run_command._tell_of_dry_run({}, NOTHING, Options(), ours)
    said = capsys.readouterr().err
    assert "Warning: no GPU was requested, so the container gets no GPU" in said
    assert "the image is not on this machine" in said
    run_command._tell_of_dry_run(IMAGE, ALL, Options(), ours)
    assert capsys.readouterr().err == ""


def test_variables_of_a_file_are_passed_on_without_their_secrets(tmp_path: Path) -> None:
    file = tmp_path / "job.env"
    file.write_text('# of the job\nEPOCHS=3\n\n  HF_TOKEN=hush\nQUOTED="a b"\nHOME\nEMPTY=\n')
    found = tuple(env_files.variables([str(file)]))
    assert found == ("EPOCHS=3", "HF_TOKEN=hush", 'QUOTED="a b"', "HOME", "EMPTY=")
    made = built(Options(env=(*found, "EPOCHS=4")))
    assert dict(made.environment) == {"HF_TOKEN": "hush"}
    assert "hush" not in shlex.join(made.argv())
    assert made.options.index("EPOCHS=3") < made.options.index("EPOCHS=4")  # of several, the engine takes the last


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"A=1\nexport B=2\n", "line 2: 'export B' is not a name of a variable"),
        (b"=1\n", "line 1: '' is not a name of a variable"),
        (b"\xff\xfe", "not a text file"),
        (None, "No such file or directory"),
    ],
)
def test_a_wrong_file_of_variables_is_one_line(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "job.env"
    if content is not None:
        file.write_bytes(content)
    result = CliRunner().invoke(main, ["run", "--image", "ubuntu", "--env-file", str(file), "--dry-run"])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
