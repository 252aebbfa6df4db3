"""Asks which container engines this machine has, how they are configured, and what the Docker daemon reports."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import time
from functools import partial
from typing import Any, Dict, Iterator, List, Optional
from urllib.parse import urlsplit

from gpudoctor.worker.probes.machine import Answer, Machine

DOCKER_SECONDS = 2.0
CDI_BYTES = 256 << 10
CONFIGURATIONS = (
    "/etc/docker/daemon.json",
    "~/.config/docker/daemon.json",
    "/var/snap/docker/current/config/daemon.json",
    "~/.docker/daemon.json",
    "/etc/nvidia-container-runtime/config.toml",
    "/etc/containerd/config.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl",
    "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl",
    "/etc/crio/crio.conf",
)
CONTAINERD_PARTS = "/etc/containerd/conf.d/*.toml"
CRIO_PARTS = "/etc/crio/crio.conf.d/*"
KUBERNETES = ("/var/lib/kubelet", "/etc/kubernetes/kubelet.conf")
PROGRAMS = (
    "docker",
    "dockerd",
    "podman",
    "nvidia-ctk",
    "nvidia-cdi-hook",
    "nvidia-container-cli",
    "nvidia-container-runtime",
    "nvidia-container-runtime-hook",
)
FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/snap/bin")
DAEMONS = ("dockerd", "containerd", "crio")
SOCKET = "/var/run/docker.sock"
SELINUX = "/sys/fs/selinux/booleans/container_use_devices"
HERE = ("localhost", "127.0.0.1", "::1")
INFO_KEYS = (
    "ServerVersion",
    "Driver",
    "CgroupDriver",
    "CgroupVersion",
    "KernelVersion",
    "OperatingSystem",
    "OSType",
    "Architecture",
    "DefaultRuntime",
    "SecurityOptions",
    "CDISpecDirs",
    "Warnings",
)
VERSION_KEYS = ("Version", "ApiVersion", "MinAPIVersion")
# Registries, proxies and addresses name people and networks. Only quoted text is replaced, so that errors in a file remain.
PRIVATE_SETTING = re.compile(
    r"""
    (?<![\w-])(
        "?(?:
            [\w-]*registr[\w-]* | [\w-]*prox[\w-]* | dns[\w-]* | hosts | labels?
            | bip6? | ip6? | fixed-cidr[\w-]* | default-gateway[\w-]* | default-address-pools
            | log-opts | userns-remap | username | password | \w*token | auth | endpoint
        )"?\s*[:=]\s*
    )
    ( \[[^\]]*\]? | \{[^{}]*\}? | "[^"\n]*" )
    """,
    re.IGNORECASE | re.VERBOSE,
)
STRING = re.compile(r'"([^"\n]*)"(\s*:)?')
REGISTRY_TABLE = re.compile(r"(?m)^\s*\[[^\n]*registry[^\n]*\n(?:(?!\s*\[).*\n?)*")


def ask(machine: Machine) -> Iterator[Answer]:
    for path in _configurations(machine):
        yield machine.ask("file:" + path, partial(_configuration, machine, path))
    yield machine.glob(CONTAINERD_PARTS)
    yield machine.ask("runtime-file-times", lambda: _times(machine))
    yield machine.ask("cdi", lambda: _cdi(machine))
    yield machine.ask("docker-context", lambda: _context(machine))
    yield machine.file(SELINUX)
    yield machine.ask("kubernetes-marks", lambda: {path: os.path.lexists(machine.path(path)) for path in KUBERNETES})
    yield machine.ask("runtime-programs", lambda: _programs(machine))
    yield machine.ask("runtime-processes", lambda: _daemons(machine))
    yield machine.command("nvidia-ctk", "--version", timeout=1.0)
    yield machine.command("nvidia-container-cli", "--version", timeout=1.0)
    yield machine.command("podman", "--version", timeout=1.0)
    yield machine.ask("docker", lambda: _docker(machine))


def _variable(machine: Machine, name: str) -> str:
    """An environment variable of this machine; a simulated machine has no variables."""
    return os.environ.get(name, "") if machine.root == "/" else ""


def _expanded(machine: Machine, path: str) -> str:
    return path.replace("~", os.path.expanduser("~") if machine.root == "/" else "/root", 1)


def _without_home(text: str) -> str:
    return re.sub(r"/home/[^/\"\s]+", "~", text)


def _configuration(machine: Machine, path: str) -> str:
    text = _without_home(machine.read(_expanded(machine, path)))
    return PRIVATE_SETTING.sub(_blanked, text if ".json" in path else REGISTRY_TABLE.sub("", text))


def _blanked(match: re.Match[str]) -> str:
    """A private setting with its strings replaced, except keys and standard values."""
    return match[1] + STRING.sub(lambda text: text[0] if text[2] or text[1] in ("", "default") else '"removed"', match[2])


def _configurations(machine: Machine) -> List[str]:
    return [*CONFIGURATIONS, *machine.matching(CONTAINERD_PARTS), *machine.matching(CRIO_PARTS)]


def _times(machine: Machine) -> Dict[str, float]:
    """When each configuration was last written, which can be after its daemon's start."""
    paths = [(path, machine.path(_expanded(machine, path))) for path in _configurations(machine)]
    return {path: os.stat(real).st_mtime for path, real in paths if os.path.exists(real)}


def _cdi(machine: Machine) -> List[Dict[str, Any]]:
    """The device specifications that engines read: the first CDI_BYTES of each."""
    specifications = []
    for path in machine.matching("/etc/cdi/*") + machine.matching("/var/run/cdi/*"):
        if path.endswith((".yaml", ".yml", ".json")):
            with open(machine.path(path), encoding="utf-8", errors="replace") as file:
                text = file.read(CDI_BYTES)
            specifications.append({"path": path, "mtime": os.stat(machine.path(path)).st_mtime, "text": text})
    return specifications


def _context(machine: Machine) -> Dict[str, Any]:
    """The daemon that the docker command uses by default; its other files are not read.

    "endpoint": the address of the active context, None if there is no such context.
    """
    named = _variable(machine, "DOCKER_CONTEXT")
    try:
        current = json.loads(machine.read(_docker_file(machine, "config.json"))).get("currentContext")
    except FileNotFoundError:
        if not named:
            raise
        current = None
    name = named or current
    if not name or name == "default":
        return {"currentContext": current}
    host = _host_of(machine, name)
    return {"currentContext": current, "endpoint": host and _shown(host)}


def _docker_file(machine: Machine, *names: str) -> str:
    return os.path.join(_variable(machine, "DOCKER_CONFIG") or _expanded(machine, "~/.docker"), *names)


def _host_of(machine: Machine, context: str) -> Optional[str]:
    """The address of a context's daemon; None if there is no such context."""
    folder = hashlib.sha256(context.encode()).hexdigest()
    try:
        about = json.loads(machine.read(_docker_file(machine, "contexts", "meta", folder, "meta.json")))
    except FileNotFoundError:
        return None
    return str(about["Endpoints"]["docker"].get("Host") or "unix://" + SOCKET)


def _shown(endpoint: str) -> str:
    """An address without names; for another machine only the protocol."""
    scheme = endpoint.partition("://")[0]
    if scheme == "unix":
        return _without_home(endpoint)
    return scheme + "://" + ("localhost" if urlsplit(endpoint).hostname in HERE else "")


def _programs(machine: Machine) -> Dict[str, Dict[str, Any]]:
    folders = [folder for folder in _variable(machine, "PATH").split(os.pathsep) if folder] + list(FOLDERS)
    found = {}
    for name in PROGRAMS:
        places = (os.path.join(folder, name) for folder in folders)
        path = next((place for place in places if os.path.lexists(machine.path(place))), None)
        if path:
            found[name] = _program(machine, path)
    return found


def _program(machine: Machine, path: str) -> Dict[str, Any]:
    """The program's path. "changed" is when it was installed: packages keep the build date as "mtime"."""
    real = _real(machine, path)
    about = machine.call(lambda: os.lstat(machine.path(real))).value
    dates = {"mtime": about.st_mtime, "changed": about.st_ctime} if about else {}
    return dict(dates, path=_without_home(path), real=_without_home(real))


def _real(machine: Machine, path: str) -> str:
    """Follows the links of a file inside the machine's root."""
    for _ in range(20):
        if not os.path.islink(machine.path(path)):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(machine.path(path))))
    return path


def _daemons(machine: Machine) -> Dict[str, Any]:
    """The start times of the daemons that look for the toolkit at their start, in the kernel's units."""
    boot = re.search(r"(?m)^btime (\d+)", machine.read("/proc/stat"))
    started: Dict[str, int] = {}
    for path in machine.matching("/proc/[0-9]*/stat"):
        text = str(machine.call(partial(machine.read, path)).value)  # it may have ended meanwhile
        name, _, rest = text.partition(" (")[2].rpartition(") ")
        if name in DAEMONS:  # k3s runs its own containerd: of several, the last one counts
            started[name] = max(int(rest.split()[19]), started.get(name, 0))
    return {"boot": int(boot[1]) if boot else None, "ticks_per_second": os.sysconf("SC_CLK_TCK"), "started": started}


def _docker(machine: Machine) -> Dict[str, Any]:
    endpoint, deadline = _endpoint(machine), time.monotonic() + DOCKER_SECONDS
    scheme = endpoint.partition("://")[0]
    if _has_key(machine, scheme):
        return {"endpoint": _shown(endpoint), "not_asked": f"a Docker daemon at {scheme}:// that requires a key is not queried"}
    try:
        from gpudoctor.worker.probes import docker_http  # whose imports take as long as all other questions here

        info = docker_http.get(machine, endpoint, "/info", deadline)
        version = docker_http.get(machine, endpoint, "/version", deadline)
    except socket.timeout:
        raise subprocess.TimeoutExpired("GET", DOCKER_SECONDS) from None  # Machine.call reports this as a timeout
    return {"endpoint": _shown(endpoint), "info": _reduced_info(info), "version": _reduced_version(version)}


def _endpoint(machine: Machine) -> str:
    """DOCKER_HOST, else the context's address, else the rootless daemon's socket if it is the only one, else the default one."""
    host, folder = _variable(machine, "DOCKER_HOST"), _variable(machine, "XDG_RUNTIME_DIR")
    if host:
        return host if "://" in host else "tcp://" + host
    name = _variable(machine, "DOCKER_CONTEXT") or (machine.call(lambda: _context(machine)).value or {}).get("currentContext")
    of_context = machine.call(lambda: _host_of(machine, name)).value if name and name != "default" else None
    if of_context:
        return str(of_context)
    rootless = folder + SOCKET.replace("/var/run", "")
    return "unix://" + (rootless if folder and os.path.exists(rootless) and not os.path.exists(SOCKET) else SOCKET)


def _has_key(machine: Machine, scheme: str) -> bool:
    """Whether only the docker command can talk to this daemon, with keys that this probe does not have."""
    keys = _variable(machine, "DOCKER_TLS_VERIFY") or machine.matching(_docker_file(machine, "contexts", "tls", "*"))
    return scheme == "ssh" or (scheme == "tcp" and bool(keys))


def _reduced_info(info: Dict[str, Any]) -> Dict[str, Any]:
    """The parts that show how containers get a GPU; no names, labels, registries or proxies."""
    return dict(
        {key: info[key] for key in INFO_KEYS if key in info},
        DockerRootDir=_without_home(info.get("DockerRootDir") or ""),
        Runtimes={name: (runtime or {}).get("path", "") for name, runtime in (info.get("Runtimes") or {}).items()},
        DiscoveredDevices=[device.get("ID", "") for device in info.get("DiscoveredDevices") or ()],
    )


def _reduced_version(version: Dict[str, Any]) -> Dict[str, Any]:
    components = {part.get("Name", ""): part.get("Version", "") for part in version.get("Components") or ()}
    return dict({key: version[key] for key in VERSION_KEYS if key in version}, Components=components)
