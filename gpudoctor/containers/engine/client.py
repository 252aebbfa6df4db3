"""A container engine, driven through its own command: Docker, or Podman if Docker is not installed.

The command handles contexts, DOCKER_HOST, ssh, rootless sockets and credential helpers. Any other way to the daemon could reach
a different daemon.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpudoctor import programs
from gpudoctor.errors import UserError, WorkError

PROGRAMS = ("docker", "podman")
SECONDS = 30.0  # for a query; a pull or a build has no limit
INFO_SECONDS = 10.0
MOST_LINES = 20  # of an engine's message
HERE = re.compile(r"unix://|/|npipe://|tcp://(localhost|127\.[\d.]+|\[::1\])(:|$)")  # addresses of daemons on this machine


@dataclass(frozen=True)
class Engine:
    """An engine that answers. info: the output of `docker info` or `podman info`."""

    program: str  # the command: docker or podman
    info: Mapping[str, Any] = field(repr=False)

    @cached_property
    def is_podman(self) -> bool:
        """True also if `docker` is Podman's script of that name."""
        return "host" in self.info

    @property
    def version(self) -> str:
        return str(self.info.get("ServerVersion") or self.info.get("version", {}).get("Version", ""))

    @property
    def name(self) -> str:
        return "Podman" if self.is_podman else "Docker"

    @property
    def runtimes(self) -> tuple[str, ...]:
        return tuple(self.info.get("Runtimes") or ())

    @property
    def devices(self) -> tuple[str, ...]:
        """The CDI devices that the daemon has found: nvidia.com/gpu=0, nvidia.com/gpu=all. Docker lists them since 28.2."""
        return tuple(device.get("ID", "") for device in self.info.get("DiscoveredDevices") or ())

    @property
    def security_options(self) -> tuple[str, ...]:
        return tuple(option.removeprefix("name=").split(",")[0] for option in self.info.get("SecurityOptions") or ())

    @property
    def is_rootless(self) -> bool:
        security = self.info.get("host", {}).get("security", {})
        return "rootless" in self.security_options or bool(security.get("rootless"))

    @property
    def has_selinux(self) -> bool:
        security = self.info.get("host", {}).get("security", {})
        return "selinux" in self.security_options or bool(security.get("selinuxEnabled"))

    @cached_property
    def endpoint(self) -> str:
        """The address of Docker's daemon: DOCKER_HOST, else that of the current context; "" for the default socket."""
        context = (self.info.get("ClientInfo") or {}).get("Context", "default")
        if host := os.environ.get("DOCKER_HOST"):
            return host
        return (
            ""
            if context == "default"
            else self.ask("context", "inspect", "--format", "{{.Endpoints.docker.Host}}", context).strip()
        )

    @property
    def is_local(self) -> bool:
        """Whether its containers see this machine's files and devices: not with ssh, or tcp to another machine."""
        if self.is_podman:
            return not self.info["host"].get("serviceIsRemote")
        return not self.endpoint or bool(HERE.match(self.endpoint))

    @property
    def memory_bytes(self) -> int:
        return int(self.info.get("MemTotal") or self.info.get("host", {}).get("memTotal") or 0)

    def argv(self, *arguments: str) -> list[str]:
        return [self.program, *arguments]

    def ask(self, *arguments: str, seconds: float = SECONDS) -> str:
        """The engine's output; raises the exception that `error` makes of its message if it fails."""
        done = run(self.argv(*arguments), seconds)
        if done.returncode:
            raise error(self.program, done.stderr)
        return done.stdout

    def image(self, reference: str, seconds: float = SECONDS) -> dict[str, Any] | None:
        """The output of `image inspect`: Id, RepoDigests, Size, Config; None if the image is not present."""
        done = run(self.argv("image", "inspect", "--", reference), seconds)
        if done.returncode == 0:
            return _object(done.stdout)
        if re.search(r"(?i)no such image|image not known|no such object", done.stderr):
            return None
        raise error(self.program, done.stderr)

    def container(self, name: str) -> dict[str, Any]:
        """The output of `container inspect`; UserError if no container has that name."""
        done = run(self.argv("container", "inspect", "--", name), SECONDS)
        if done.returncode:
            if re.search(r"(?i)no such container", done.stderr):
                raise UserError(f"no container is named {name!r} (list the running ones: {self.program} ps)")
            raise error(self.program, done.stderr)
        return _object(done.stdout)

    def remove(self, container: str) -> bool:
        """Kills and removes a container; returns whether it is gone. Podman would wait ten seconds for it to exit."""
        at_once = ("--time=0",) if self.is_podman else ()
        done = run(self.argv("rm", "--force", "--volumes", *at_once, container), SECONDS)
        return done.returncode == 0 or bool(re.search(r"(?i)no such container|already in progress", done.stderr))


def find(program: str | None = None, seconds: float = INFO_SECONDS) -> Engine:
    """`program`, else GPUDOCTOR_ENGINE, else Docker if installed, else Podman; an error if it does not answer.

    A Docker that does not answer is not replaced by Podman, which has different images and containers.
    """
    wanted = program or os.environ.get("GPUDOCTOR_ENGINE") or ""
    if wanted and wanted not in PROGRAMS:
        raise UserError(f"the engine must be docker or podman, not {wanted!r}")
    there = [name for name in PROGRAMS if shutil.which(name)]
    chosen = wanted or next(iter(there), "")
    if chosen not in there:
        raise WorkError(
            f"{wanted or 'neither docker nor podman'} is{' not' * bool(wanted)} installed, so containers cannot be used"
        )
    try:
        return Engine(chosen, _info(chosen, seconds))
    except (UserError, WorkError) as failure:
        if wanted or len(there) == 1:
            raise
        line, *words = str(failure).splitlines()
        raise type(failure)("\n".join([f"{line} (Podman is installed: --engine podman)", *words])) from None


def _info(program: str, seconds: float) -> dict[str, Any]:
    done = run([program, "info", "--format", "{{json .}}"], seconds)
    info = _object(done.stdout)
    words = "\n".join(info.get("ServerErrors") or ()) or (done.stderr if done.returncode or not info else "")
    if words:
        raise error(program, words)
    return info


def _object(text: str) -> dict[str, Any]:
    """The first JSON object in the output, as a wrapper may print something before it; else empty."""
    for start in re.finditer(r"(?m)^\[?\s*(?=\{)", text):
        with contextlib.suppress(ValueError):
            found: dict[str, Any] = json.JSONDecoder().raw_decode(text, start.end())[0]
            return found
    return {}


def run(argv: Sequence[str], seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a command of an engine and captures its output; WorkError on a timeout or endless output."""
    try:
        return programs.finished(argv, seconds)
    except subprocess.TimeoutExpired:
        asked = f"`{' '.join(argv[:3])}`"
        raise WorkError(f"{asked} timed out after {seconds:g} s: the {argv[0]} daemon may be stuck") from None
    except programs.TooMuch as failure:
        raise WorkError(f"`{' '.join(argv[:3])}` was killed: {failure}") from None
    except OSError as failure:
        raise WorkError(f"{argv[0]} cannot be run: {failure.strerror}") from None


def error(program: str, words: str) -> UserError | WorkError:
    """An exception with one clear line, and the engine's message below it."""
    for pattern, kind, line in _SAID:
        if found := re.search(pattern, words):
            return kind(with_words(line.format(program=program, **_host(), **found.groupdict()), words))
    return WorkError(with_words(f"{program} failed", words))


def _host() -> dict[str, str]:
    """Words for the messages: the variable that chooses the daemon, if one is set; else how to start the daemon."""
    names = [name for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST") if os.environ.get(name)]
    because = f" ({names[0]} is set to {os.environ[names[0]]})" if names else ""
    return {"because": because, "start": "" if because else ". Start it: sudo systemctl start docker"}


def with_words(line: str, words: str) -> str:
    """One clear line, and the engine's message below it."""
    said = [text.rstrip() for text in words.strip().splitlines() if text.strip()][:MOST_LINES]
    return "\n".join([line, *(f"  {text}" for text in said)])


# Message of an engine or registry -> whose fault it is, and one line. The first match decides.
_SAID: tuple[tuple[str, type[UserError] | type[WorkError], str], ...] = (
    (
        r"(?i)permission denied.*(docker\.sock|daemon socket|podman\.sock)",
        WorkError,
        "permission denied for the Docker socket{because}. Add yourself to the docker group (members can become root): "
        "sudo usermod -aG docker $USER, then log in again; or run this with sudo",
    ),
    (
        r"(?i)unable to parse docker host|invalid (bind address|proto)|unsupported protocol scheme"
        r"|context .* not found|context \S+: not found|invalid context",
        UserError,
        "the address or context of the daemon is invalid{because}",
    ),
    (
        r"(?i)cannot connect to the docker daemon at (?P<where>\S+?)\.? |cannot connect to podman|error during connect"
        r"|failed to connect to the docker api at (?P<api>\S+)",
        WorkError,
        "the {program} daemon does not answer{because}{start}",
    ),
    (
        r"(?i)no space left on device",
        WorkError,
        "the disk is full. Show what uses space: {program} system df; remove unused data: {program} system prune",
    ),
    (
        r"(?i)unauthorized|authentication required|denied: requested access|pull access denied|no basic auth credentials",
        UserError,
        "the registry denies access to this image. Check the spelling, or log in: {program} login REGISTRY",
    ),
    (
        r"(?i)manifest unknown|manifest for \S+ not found|not found: manifest|name unknown|repository \S+ not found"
        r"|: not found$",
        UserError,
        "the registry has no such image or tag",
    ),
    (r"(?i)toomanyrequests", WorkError, "the registry's pull rate limit is reached: log in ({program} login), or wait"),
    (
        r"(?i)no matching manifest for",
        UserError,
        "the registry has this image, but not for this architecture or system",
    ),
    (
        r"(?i)http: server gave HTTP response to HTTPS client",
        WorkError,
        "the registry uses plain HTTP. If you trust it, add it to insecure-registries in Docker's daemon.json, or to Podman's "
        "registries.conf",
    ),
    (
        r"(?i)connection refused|no such host|i/o timeout|TLS handshake timeout|network is unreachable|connection reset"
        r"|server misbehaving|Client\.Timeout exceeded|certificate",
        WorkError,
        "the registry is unreachable",
    ),
)
