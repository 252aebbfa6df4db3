"""Container engines: daemons of every kind, their configuration, and NVIDIA's toolkit beside them."""

from __future__ import annotations

from typing import Any

import pytest
from each import each

from gpudoctor.facts.docker import Docker, daemon_json_of, version_of
from gpudoctor.facts.engines import Engines
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Reply, Skip, Unavailable

SECCOMP = "name=seccomp,profile=default"
DEBIAN = {  # 20.10.24 of Debian 12
    "ServerVersion": "20.10.24+dfsg1",
    "CgroupDriver": "cgroupfs",
    "CgroupVersion": "1",
    "KernelVersion": "6.1.0-38-amd64",
    "OperatingSystem": "Debian GNU/Linux 12 (bookworm)",
    "DefaultRuntime": "runc",
    "SecurityOptions": [SECCOMP],
    "Warnings": None,
    "DockerRootDir": "/var/lib/docker",
    "Runtimes": {"io.containerd.runc.v2": "runc", "io.containerd.runtime.v1.linux": "runc", "runc": "runc"},
    "DiscoveredDevices": [],
}
CDI = dict(
    DEBIAN,
    ServerVersion="28.5.2",
    CgroupDriver="systemd",
    CgroupVersion="2",
    OperatingSystem="Ubuntu 24.04.3 LTS",
    SecurityOptions=["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"],
    Runtimes={"io.containerd.runc.v2": "runc", "nvidia": "nvidia-container-runtime", "runc": "runc"},
    CDISpecDirs=["/etc/cdi", "/var/run/cdi"],
    DiscoveredDevices=["nvidia.com/gpu=0", "nvidia.com/gpu=all"],
)
DESKTOP = dict(CDI, OperatingSystem="Docker Desktop", KernelVersion="6.10.14-linuxkit")
SNAP = dict(DEBIAN, DockerRootDir="/var/snap/docker/common/var-lib-docker")
ROOTLESS = dict(CDI, SecurityOptions=[SECCOMP, "name=rootless", "name=cgroupns"], DockerRootDir="~/.local/share/docker")
USERNS = dict(CDI, SecurityOptions=[SECCOMP, "name=userns"])
PODMAN = dict(DEBIAN, ServerVersion="5.1.2", OperatingSystem="ubuntu", DockerRootDir="/var/lib/containers/storage")
MISSING = Reply("missing")
FILES = (
    "/etc/docker/daemon.json",
    "~/.config/docker/daemon.json",
    "/var/snap/docker/current/config/daemon.json",
    "~/.docker/daemon.json",
)


def runtime(info: dict[str, Any] | Reply | None = None, **answers: Any) -> Engines:
    docker = (
        info if isinstance(info, Reply) else Reply("ok", {"endpoint": "unix:///var/run/docker.sock", "info": info, "version": {}})
    )
    replies: dict[str, Any] = {"docker": docker if info else MISSING, "runtime-programs": {}, **answers}
    return Engines(Replies({q: a if isinstance(a, Reply) else Reply("ok", a) for q, a in replies.items()}))


def docker(info: dict[str, Any]) -> Docker:
    daemon = runtime(info).docker
    assert daemon is not None
    return daemon


def test_docker_20_10() -> None:
    daemon = docker(DEBIAN)
    assert daemon.reachable
    assert daemon.error is None
    assert daemon.version == "20.10.24+dfsg1"
    assert daemon.runtimes == ("io.containerd.runc.v2", "io.containerd.runtime.v1.linux", "runc")
    assert (daemon.cgroup_driver, daemon.cgroup_version) == ("cgroupfs", "1")
    assert (daemon.cdi_spec_dirs, daemon.discovered_devices, daemon.warnings) == ((), (), ())
    assert not daemon.rootless
    assert not daemon.is_desktop
    assert not daemon.uses_user_namespaces


def test_docker_28_with_cdi() -> None:
    daemon = docker(CDI)
    assert "nvidia" in daemon.runtimes
    assert daemon.cdi_spec_dirs == ("/etc/cdi", "/var/run/cdi")
    assert "nvidia.com/gpu=all" in daemon.discovered_devices


@pytest.mark.parametrize(
    ("info", "traits"),
    [
        (DEBIAN, set()),
        (DESKTOP, {"is_desktop"}),
        (ROOTLESS, {"rootless"}),
        (USERNS, {"uses_user_namespaces"}),
    ],
)
def test_kinds_of_daemon(info: dict[str, Any], traits: set[str]) -> None:
    daemon = docker(info)
    assert {name for name in ("is_desktop", "rootless", "uses_user_namespaces") if getattr(daemon, name)} == traits


def test_podman_behind_dockers_interface() -> None:
    version = {"Version": "5.1.2", "ApiVersion": "1.41", "Components": {"Podman Engine": "5.1.2", "Conmon": "2.1.12"}}
    daemon = runtime(Reply("ok", {"endpoint": "", "info": PODMAN, "version": version})).docker
    assert daemon is not None
    assert daemon.is_podman


def test_a_dead_daemon_is_not_reachable() -> None:
    assert runtime(Reply("error", detail="Connection refused")).docker == Docker(False, "Connection refused")


def test_no_socket_is_no_daemon() -> None:
    assert runtime().docker is None


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply("denied", detail="Permission denied"), Skip.NOT_PERMITTED),
        (Reply("timeout", detail="no answer in 2 s"), Skip.NO_ANSWER),
        (Reply("ok", {"endpoint": "ssh://", "not_asked": "a Docker daemon behind ssh:// is not asked"}), Skip.NO_ANSWER),
    ],
)
def test_what_was_not_answered_is_not_absent(reply: Reply, kind: str) -> None:
    with pytest.raises(Unavailable) as refusal:
        _ = runtime(reply).docker
    assert refusal.value.kind == kind


def programs(**real: str) -> dict[str, Any]:
    return {name.replace("_", "-"): {"path": path, "real": path, "changed": 2000.0} for name, path in real.items()}


@each(
    ("path", "info", "snap"),
    [
        ("/usr/bin/snap", None, True),
        ("/snap/docker/3265/bin/docker", None, True),
        ("/usr/bin/docker", None, False),
        ("/usr/bin/docker", SNAP, True),
        ("/usr/bin/docker", Reply("denied"), False),
    ],
)
def test_snap(path: str, info: Any, snap: bool) -> None:
    assert runtime(info, **{"runtime-programs": programs(docker=path)}).is_snap is snap


@each(
    ("info", "path"),
    [
        (None, "/etc/docker/daemon.json"),
        (Reply("denied"), "/etc/docker/daemon.json"),
        (CDI, "/etc/docker/daemon.json"),
        (ROOTLESS, "~/.config/docker/daemon.json"),
        (SNAP, "/var/snap/docker/current/config/daemon.json"),
        (DESKTOP, "~/.docker/daemon.json"),
    ],
)
def test_each_daemon_reads_its_own_file(info: Any, path: str) -> None:
    files = {"file:" + other: '{"debug": false}' for other in FILES}
    facts = runtime(info, **{**files, "file:" + path: '{"default-runtime": "nvidia"}'})
    assert facts.daemon_json_path == path
    assert facts.daemon_json == {"default-runtime": "nvidia"}


@each(
    ("text", "settings", "error"),
    [
        ('{"features": {"cdi": true}}', {"features": {"cdi": True}}, None),
        ('\ufeff{"debug": true}', {"debug": True}, None),
        (" \n", {}, None),
        ('{"debug": true\n "runtimes": {}}', None, "Expecting ',' delimiter: line 2 column 2"),
        ("{'debug': true}", None, "Expecting property name enclosed in double quotes: line 1 column 2"),
        ("[]", None, "it is not a JSON object"),
    ],
)
def test_daemon_json(text: str, settings: dict[str, Any] | None, error: str | None) -> None:
    assert daemon_json_of(text) == (settings, error)


def test_no_daemon_json() -> None:
    facts = runtime(**{"file:/etc/docker/daemon.json": MISSING})
    assert (facts.daemon_json, facts.daemon_json_error) == (None, None)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a9b9d0db00d9b1d73c0128c8962c55f4d\n", (1, 17, 8)),
        ("cli-version: 1.17.8\nlib-version: 1.17.8\nbuild date: 2025-05-30T13:47+00:00\n", (1, 17, 8)),
        ("version: 1.5.1\nbuild date: 2021-09-20T14:31+00:00\n", (1, 5, 1)),
        ("unknown\n", None),
    ],
)
def test_versions(text: str, version: tuple[int, ...] | None) -> None:
    assert version_of(text) == version


def test_toolkit_version() -> None:
    answer = {"code": 0, "out": "NVIDIA Container Toolkit CLI version 1.17.8\n", "err": ""}
    assert runtime(**{"command:nvidia-ctk --version": answer}).toolkit_version == (1, 17, 8)
    assert runtime(**{"command:nvidia-ctk --version": MISSING}).toolkit_version is None
    with pytest.raises(Unavailable):
        _ = runtime(**{"command:nvidia-ctk --version": {"code": 127, "out": "", "err": "x"}}).toolkit_version


@each(
    ("environment", "settings", "context"),
    [
        ({}, MISSING, None),
        ({}, {"currentContext": None}, None),
        ({}, {"currentContext": "desktop-linux"}, "desktop-linux"),
        ({"DOCKER_CONTEXT": "rootless"}, {"currentContext": "desktop-linux"}, "rootless"),
        (Reply("timeout"), {"currentContext": "desktop-linux"}, "desktop-linux"),
        ({"DOCKER_HOST": "ssh://gpubox", "DOCKER_CONTEXT": "rootless"}, {"currentContext": "desktop-linux"}, None),
    ],
)
def test_context(environment: Any, settings: Any, context: str | None) -> None:
    assert runtime(**{"environment": environment, "docker-context": settings}).context == context


CLOCK = {"boot": 1000, "ticks_per_second": 100, "started": {"dockerd": 50000}}  # 1500 s


@pytest.mark.parametrize(
    ("changed", "clock", "newer"),
    [(2000.0, CLOCK, True), (1400.0, CLOCK, False), (2000.0, dict(CLOCK, started={}), None)],
)
def test_toolkit_newer_than_daemon(changed: float, clock: dict[str, Any], newer: bool | None) -> None:
    hook: dict[str, Any] = {
        "nvidia-container-runtime-hook": {"path": "/usr/bin/x", "real": "/usr/bin/x", "mtime": 1.0, "changed": changed}
    }
    facts = runtime(**{"runtime-programs": hook, "runtime-processes": clock})
    assert facts.toolkit_newer_than_daemon is newer
    assert facts.toolkit_installed


def test_without_toolkit_it_is_not_newer() -> None:
    assert runtime(**{"runtime-processes": CLOCK}).toolkit_newer_than_daemon is None
    assert not runtime().toolkit_installed


def test_installed_engines() -> None:
    facts = runtime(**{"runtime-programs": programs(podman="/usr/bin/podman", dockerd="/usr/bin/dockerd")})
    assert facts.podman_installed
    assert facts.docker_installed
    assert facts.docker_binary is None
    assert facts.program("podman") == "/usr/bin/podman"


def test_configuration_files() -> None:
    files: dict[str, Any] = {
        "file:/etc/containerd/config.toml": 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n',
        "file:/var/lib/rancher/k3s/agent/etc/containerd/config.toml": MISSING,
        "file:/var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl": MISSING,
        "file:/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl": MISSING,
        "glob:/etc/containerd/conf.d/*.toml": ["/etc/containerd/conf.d/99-nvidia.toml"],
        "file:/etc/containerd/conf.d/99-nvidia.toml": 'default_runtime_name = "nvidia"\n',
        "cdi": [{"path": "/var/run/cdi/nvidia.yaml", "mtime": 5.0, "text": "cdiVersion: 0.5.0\n"}],
        "kubernetes-marks": {"/var/lib/kubelet": True, "/etc/kubernetes/kubelet.conf": False},
        "file:/etc/nvidia-container-runtime/config.toml": MISSING,
    }
    facts = runtime(**files)
    assert list(facts.containerd_config) == ["/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"]
    assert facts.cdi_specs == {"/var/run/cdi/nvidia.yaml": "cdiVersion: 0.5.0\n"}
    assert facts.kubernetes_node
    assert facts.toolkit_config is None


@each(
    ("host", "endpoint", "elsewhere"),
    [
        ("ssh://jane@gpubox", "ssh://", True),
        ("tcp://gpubox:2376", "tcp://", True),
        ("gpubox:2375", "tcp://", True),
        ("tcp://localhost:2375", "tcp://localhost", False),
        ("unix:///run/user/1000/docker.sock", "unix:///run/user/1000/docker.sock", False),
    ],
)
def test_docker_host_goes_before_every_context(host: str, endpoint: str, elsewhere: bool) -> None:
    answers: dict[str, Any] = {
        "environment": {"DOCKER_HOST": host},
        "docker-context": {"currentContext": "lab", "endpoint": None},
    }
    facts = runtime(**answers)
    assert (facts.endpoint, facts.daemon_is_elsewhere, facts.context_is_missing) == (endpoint, elsewhere, False)


@pytest.mark.parametrize(
    ("config", "mode"),
    [
        ('[nvidia-container-runtime]\nmode = "cdi"\n', "cdi"),
        ('[nvidia-container-runtime]\n#mode = "cdi"\nlog-level = "info"\n', "auto"),
        ('[other]\nmode = "cdi"\n[nvidia-container-runtime]\nmode = "legacy"\n[nvidia-container-runtime.modes.cdi]\n', "legacy"),
        (MISSING, "auto"),
    ],
)
def test_toolkit_mode(config: str | Reply, mode: str) -> None:
    answers: dict[str, Any] = {"file:/etc/nvidia-container-runtime/config.toml": config}
    assert runtime(**answers).toolkit_mode == mode


def test_without_a_start_there_is_none() -> None:
    assert runtime().start is None
