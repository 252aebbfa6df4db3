"""The probe of container engines, on fake roots and with a fake Docker daemon behind a Unix socket."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import HOPELESS_SECONDS

from gpudoctor.facts.engines import Engines
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Reply
from gpudoctor.worker.probes import runtime
from gpudoctor.worker.probes.machine import Answer, Machine

Write = Callable[..., Machine]


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


INFO = {  # the shape of 20.10.24's GET /info, with what must not be taken
    "ID": "IVAY:Y6NH:TB7H:HV6E",
    "Name": "jane-laptop",
    "Labels": ["owner=jane"],
    "HttpProxy": "http://jane:pw@proxy.example.org:3128",
    "RegistryConfig": {"Mirrors": ["https://mirror.example.org/"]},
    "ServerVersion": "20.10.24+dfsg1",
    "CgroupDriver": "cgroupfs",
    "CgroupVersion": "1",
    "OperatingSystem": "Debian GNU/Linux 12 (bookworm)",
    "DockerRootDir": "/home/jane/.local/share/docker",
    "Runtimes": {"io.containerd.runc.v2": {"path": "runc"}, "nvidia": {"path": "nvidia-container-runtime"}},
    "DefaultRuntime": "runc",
    "SecurityOptions": ["name=seccomp,profile=default", "name=rootless"],
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}],
    "Warnings": None,
}
VERSION = {
    "Version": "20.10.24+dfsg1",
    "ApiVersion": "1.41",
    "Components": [{"Name": "Engine", "Version": "20.10.24+dfsg1"}, {"Name": "runc", "Version": "1.1.5"}],
}


class Daemon(http.server.BaseHTTPRequestHandler):
    """GET /info and GET /version; `status` and `may_answer` are set on the server."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.may_answer.wait()
        body = json.dumps({"/info": INFO, "/version": VERSION}[self.path]).encode()
        self.send_response(server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *words: Any) -> None:
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    status = 200
    may_answer: threading.Event

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client has gone: that is the case under test


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A Docker daemon behind DOCKER_HOST and in the fake root's usual place."""
    monkeypatch.chdir(tmp_path)  # a socket's path may have 107 bytes, and tmp_path can have more
    Path("var/run").mkdir(parents=True)
    monkeypatch.setattr(runtime, "DOCKER_SECONDS", HOPELESS_SECONDS)
    with Server("var/run/docker.sock", Daemon) as server:
        server.may_answer = threading.Event()
        server.may_answer.set()
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.may_answer.set()
        server.shutdown()


def docker_reply(machine: Machine) -> Reply:
    return asked(runtime.ask(machine))["docker"]


def test_docker_is_asked(daemon: Server) -> None:
    reply = docker_reply(Machine("."))
    docker = Engines(Replies({"docker": reply})).docker
    assert docker is not None
    assert docker.version == "20.10.24+dfsg1"
    assert docker.runtimes == ("io.containerd.runc.v2", "nvidia")
    assert docker.rootless
    assert docker.root_dir == "~/.local/share/docker"
    assert docker.discovered_devices == ("nvidia.com/gpu=all",)
    assert docker.components["runc"] == "1.1.5"
    for private in ("jane", "example.org", "IVAY"):
        assert private not in str(reply)


def test_docker_host_says_where(daemon: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/var/run/docker.sock")
    assert docker_reply(Machine()).value["info"]["ServerVersion"] == "20.10.24+dfsg1"


@pytest.mark.parametrize(
    ("status", "answer", "detail"),
    [(500, "error", "GET /info: HTTP 500 Internal Server Error"), (403, "denied", "GET /info: HTTP 403 Forbidden")],
)
def test_a_daemon_that_refuses(daemon: Server, status: int, answer: str, detail: str) -> None:
    daemon.status = status
    reply = docker_reply(Machine("."))
    assert (reply.status, reply.detail) == (answer, detail)


def test_a_daemon_that_hangs(daemon: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "DOCKER_SECONDS", 0.2)
    daemon.may_answer.clear()
    reply = docker_reply(Machine("."))
    assert reply.status == "timeout"


def test_a_daemon_that_died(daemon: Server) -> None:
    daemon.shutdown()
    daemon.server_close()
    reply = docker_reply(Machine("."))
    assert (reply.status, reply.detail) == ("error", "Connection refused")


def test_no_daemon(write: Write) -> None:
    assert docker_reply(write({})).status == "missing"


def status_for_ordinary_user() -> str:
    """Root may connect to every socket: a fork becomes nobody, and the server stays what it is."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            if not os.geteuid():
                os.setuid(65534)
            os.write(write, docker_reply(Machine(".")).status.encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


def test_a_socket_that_may_not_be_used(daemon: Server) -> None:
    Path().chmod(0o755)
    socket = Path("var/run/docker.sock")
    socket.chmod(0o777)
    assert status_for_ordinary_user() == "ok"
    socket.chmod(0)
    assert status_for_ordinary_user() == "denied"


@pytest.mark.parametrize("host", ["ssh://jane@gpu-box", "tcp://gpu-box:2376"])
def test_a_daemon_behind_a_key_is_not_asked(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    reply = docker_reply(Machine())
    assert "is not queried" in reply.value["not_asked"]
    assert "gpu-box" not in str(reply)


DAEMON_JSON = """\
{
  "registry-mirrors": ["https://mirror.example.org"],
  "insecure-registries": [
    "registry.example.org:5000"
  ],
  "dns": ["192.0.2.7"],
  "hosts": ["unix:///var/run/docker.sock", "tcp://192.0.2.8:2375"],
  "proxies": {"http-proxy": "http://jane:pw@192.0.2.9:3128"},
  "data-root": "/home/jane/docker",
  "userns-remap": "default",
  "default-runtime": "nvidia",
  "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}
}
"""


def test_daemon_json_without_what_is_private(write: Write) -> None:
    text = asked(runtime.ask(write({"/etc/docker/daemon.json": DAEMON_JSON})))["file:/etc/docker/daemon.json"].value
    for private in ("example.org", "192.0.2", "jane", "pw@"):
        assert private not in text
    settings, before = json.loads(text), json.loads(DAEMON_JSON)
    assert list(settings) == list(before)
    for kept in ("default-runtime", "runtimes", "userns-remap"):
        assert settings[kept] == before[kept]
    assert settings["data-root"] == "~/docker"


@pytest.mark.parametrize(("right", "wrong"), [('"192.0.2.7"', '"192.0.2.7" "192.0.2.6"'), ("],", "]")])
def test_what_is_wrong_in_daemon_json_stays_wrong(write: Write, right: str, wrong: str) -> None:
    broken = DAEMON_JSON.replace(right, wrong)
    facts = Engines(Replies(asked(runtime.ask(write({"/etc/docker/daemon.json": broken})))))
    with pytest.raises(json.JSONDecodeError) as failure:
        json.loads(broken)
    assert facts.daemon_json_error is not None
    assert f"line {failure.value.lineno} column" in facts.daemon_json_error
    assert failure.value.msg in facts.daemon_json_error


CONTAINERD = """\
version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "nvidia"
[plugins."io.containerd.grpc.v1.cri".registry.configs."registry.example.org".auth]
  username = "jane"
  password = "hunter2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
  BinaryName = "/usr/bin/nvidia-container-runtime"
"""


def test_containerd_without_its_registries(write: Write) -> None:
    machine = write({"/etc/containerd/config.toml": CONTAINERD, "/etc/containerd/conf.d/99-nvidia.toml": CONTAINERD})
    for text in Engines(Replies(asked(runtime.ask(machine)))).containerd_config.values():
        assert 'default_runtime_name = "nvidia"' in text
        assert 'BinaryName = "/usr/bin/nvidia-container-runtime"' in text
        for private in ("jane", "hunter2", "example.org"):
            assert private not in text


def test_programs_are_followed_inside_the_root(write: Write) -> None:
    machine = write({"/usr/bin/snap": "elf", "/usr/bin/nvidia-ctk": "elf", "/proc/stat": "cpu 1\nbtime 1000\n"})
    Path(machine.path("/snap/bin")).mkdir(parents=True)
    Path(machine.path("/snap/bin/docker")).symlink_to("/usr/bin/snap")
    Path(machine.path("/usr/bin/podman")).symlink_to("nowhere")
    replies = asked(runtime.ask(machine))
    programs = replies["runtime-programs"].value
    assert (programs["docker"]["path"], programs["docker"]["real"]) == ("/snap/bin/docker", "/usr/bin/snap")
    assert programs["nvidia-ctk"]["changed"] > 0
    assert "changed" not in programs["podman"]
    assert Engines(Replies(replies)).is_snap


def test_when_the_daemon_was_started(write: Write) -> None:
    fields = " ".join(["S", "1"] + ["0"] * 17 + ["50000", "0"])
    machine = write({"/proc/stat": "cpu 1\nbtime 1000\n", "/proc/7/stat": f"7 (dockerd) {fields}"})
    replies = asked(runtime.ask(machine))
    assert replies["runtime-processes"].value["started"] == {"dockerd": 50000}
    assert Engines(Replies(replies)).daemon_started() == 1000 + 50000 / os.sysconf("SC_CLK_TCK")


def test_cdi_specifications_from_their_start(write: Write) -> None:
    machine = write({"/var/run/cdi/nvidia.yaml": "cdiVersion: 0.5.0\n" + "#" * (300 << 10), "/etc/cdi/notes.txt": "no"})
    (specification,) = asked(runtime.ask(machine))["cdi"].value
    assert specification["path"] == "/var/run/cdi/nvidia.yaml"
    assert specification["text"].startswith("cdiVersion: 0.5.0\n")
    assert len(specification["text"]) == 256 << 10


def test_of_dockers_own_settings_only_the_context(write: Write) -> None:
    secret = {"auths": {"registry.example.org": {"auth": "aHVudGVyMg=="}}, "currentContext": "desktop-linux"}
    replies = asked(runtime.ask(write({"/root/.docker/config.json": json.dumps(secret)})))
    assert replies["docker-context"].value == {"currentContext": "desktop-linux", "endpoint": None}
    assert "aHVudGVyMg" not in str(replies)


def context(name: str, host: str) -> dict[str, str | bytes]:
    """What docker context create writes, and docker context use."""
    about = {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}}}
    folder = "/root/.docker/contexts/meta/" + hashlib.sha256(name.encode()).hexdigest()
    return {"/root/.docker/config.json": json.dumps({"currentContext": name}), folder + "/meta.json": json.dumps(about)}


@pytest.mark.parametrize(
    ("host", "shown", "elsewhere"),
    [
        ("ssh://jane@gpubox.example.org", "ssh://", True),
        ("tcp://192.0.2.7:2376", "tcp://", True),
        ("tcp://127.0.0.1:2375", "tcp://localhost", False),
        ("unix:///home/jane/.docker/desktop/docker.sock", "unix://~/.docker/desktop/docker.sock", False),
    ],
)
def test_where_a_context_leads(write: Write, host: str, shown: str, elsewhere: bool) -> None:
    machine = write(context("lab", host))
    name, reply = next(answer for answer in runtime.ask(machine) if answer[0] == "docker-context")
    assert reply.value == {"currentContext": "lab", "endpoint": shown}
    facts = Engines(Replies({name: reply}))
    assert (facts.endpoint, facts.daemon_is_elsewhere, facts.context_is_missing) == (shown, elsewhere, False)
    for private in ("jane", "example.org", "192.0.2.7"):
        assert private not in str(reply)


def test_the_daemon_of_the_context_is_the_one_that_is_asked(write: Write) -> None:
    reply = docker_reply(write(context("lab", "ssh://jane@gpubox")))
    assert reply.value == {"endpoint": "ssh://", "not_asked": "a Docker daemon at ssh:// that requires a key is not queried"}


def test_a_context_that_does_not_exist(write: Write) -> None:
    machine = write({"/root/.docker/config.json": json.dumps({"currentContext": "gone"})})
    facts = Engines(Replies(asked(runtime.ask(machine))))
    assert facts.context_is_missing
    assert not facts.daemon_is_elsewhere
