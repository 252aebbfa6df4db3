"""Messages of Docker, Podman, containerd and NVIDIA's toolkit when a container does not start."""

from __future__ import annotations

import re
import shlex
from typing import Any

from gpudoctor.evidence.reader import Reader
from gpudoctor.facts.container_start import start_of
from gpudoctor.model import Reply

COMMAND = re.compile(
    r"""
    (?:^|[\s$#>`])(?P<engine>docker|podman|nvidia-docker|nerdctl)\ (?:--?\S+\ )*?
    (?P<verb>
        (?:container\ )?(?:run|create|start)\b
        |compose\ (?:-\S+\ \S+\ )*(?:up|run|start)\b
    )
    (?P<rest>.*)
    |(?:^|[\s$#>])docker-compose\ (?:-\S+\ \S+\ )*(?:up|run|start)\b
    """,
    re.VERBOSE,
)
# Messages that occur only when a container does not start.
SURE = "|".join(
    (
        r"docker(?:-current)?: Error response from daemon: ",
        r"OCI runtime (?:create failed|error|exec failed|attempted)",
        r"nvidia-container-cli(?:\.real)?: ",
        r"failed to create (?:containerd )?(?:shim )?task",
        r"setting up CDI devices: ",
        r"CDI device injection failed",
        r"could not select device driver",
        r"failed to start container \"?[0-9a-z-]+\"?: ",
        r"time=\"[^\"]*\" level=error msg=\"failed to start container\" container=",
    )
)
# The text after "Error: " if the error comes from an engine.
OF_ENGINES = "|".join(
    (
        *("daemon", "docker", r"nvidia\.com/", "crun", "runc", "OCI", "CDI", "image not known", "container storage"),
        *("statfs", "stat /dev", "hostPort", "seccomp profile", "Cannot start service", "netavark", "pasta", "slirp"),
        *("mount program", "writing blob", "declared as external", "unable to start container", "is not an absolute path"),
    )
)
# Engines also use these prefixes for other errors: the text after them decides.
OTHERS = "|".join(
    (
        rf"(?:Error|ERROR|error|docker)(?: \w+)?: (?=.*(?:{OF_ENGINES}))",
        r"Error response from daemon: (?!No such container)",
        r"Cannot connect to the Docker daemon",
        r"permission denied while trying to connect to the Docker",
        r"error during connect: ",
        r"failed to connect to the docker API",
        r"(?:FATA|ERRO)\[\d+\] ",
        r"time=\"[^\"]*\" level=(?:fatal|error) msg=",
        r"container_linux\.go:\d+: ",
        r"exec /\S+: (?:no such file|exec format error)",
        r"network \S+ declared as external",
        r"invalid argument \"[^\"]*\" for \"[^\"]*\" flag",
        r"Unable to find image '[^']*' locally",
        r"unresolvable CDI devices",
        r"container: failed to start",
        r"unknown or invalid runtime name",
        r"Unknown runtime specified",
        r"context \S+ not found",
    )
)
ERROR = re.compile(f"(?P<before>(?:Error: |ERROR: (?:for \\S+ +)?){{0,8}})(?:(?P<sure>{SURE})|(?P<other>{OTHERS}))")
OTHER_PROGRAMS = re.compile(r"\s*(?:at |File \"|Traceback|\w+(?:Error|Exception): )")
BEGINS = re.compile(f"(?x:{COMMAND.pattern})|{ERROR.pattern}")
ENDS = re.compile(
    "|".join(
        (
            r"^\s*$",
            # prompts
            r"^(?:\(\S+\) )?(?:[\w.-]+@[\w.-]+[ :~]|\S{0,80}[$#❯](?:\s|$)|\[[^\]]{1,80}\][$#] )",
            r"^PS [A-Z]:",
            r"^[➜❯] ",
            # other texts that can follow
            r"^Traceback ",
            r"^```",
            r"^\s+(?:Normal|Warning) +[A-Z]\w+ ",
            r"^(?:Run|See) 'docker",
            r"^NAME +",
            r"^Events:",
            r"^\[ *\d+\.\d{3,}\] ",
            r"^\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}\] ",
        )
    )
)
# Messages that only Podman prints, even if its command is called docker.
OF_PODMAN = re.compile(
    "|".join(
        (
            r"Emulate Docker CLI using podman",
            r"Error: setting up CDI devices: ",
            r"netavark: ",
            r"level=\w+ msg=\"podman ",
        )
    )
)
MOST_LINES, MOST_SAID = 40, 15  # lines of a block, and of the message in it
# Options of `run` that take a value as the next word, which is therefore not the image.
LONG_OPTIONS = (
    *("gpus", "device", "runtime", "env", "env-file", "volume", "mount", "name", "network", "net", "ipc", "pid", "shm-size"),
    *("ulimit", "user", "workdir", "entrypoint", "publish", "memory", "cpus", "security-opt", "hostname", "label", "restart"),
    *("add-host", "cap-add", "cap-drop", "group-add", "platform", "log-driver", "log-opt", "tmpfs", "userns", "cgroupns"),
    *("cgroup-parent", "hooks-dir", "annotation", "pull", "expose", "dns", "link", "storage-opt"),
)
TAKE_A_VALUE = re.compile(rf"-(?:[evpwuhlmc]|it?[evpwuh])|--(?:{'|'.join(LONG_OPTIONS)})")


def read(text: str) -> dict[str, Reply] | None:
    """The first error of the block, with the command before it; None if nothing failed, or if no container was involved."""
    lines = text.splitlines()
    found = [(place, match) for place, line in enumerate(lines) if (match := _error(line))]
    if not found:
        return None
    place, match = next((each for each in found if "Unable to find image" not in each[1][0]), found[0])
    message = "\n".join([lines[place][match.start() :], *lines[place + 1 : place + MOST_SAID]])
    value = _value(_joined(lines[:place]), message, is_podman=any(OF_PODMAN.search(line) for line in lines))
    if not match["sure"] and not _is_known(value):
        return None
    return {"container-start": Reply("ok", value)}


def _error(line: str) -> re.Match[str] | None:
    if COMMAND.search(line) or OTHER_PROGRAMS.match(line):
        return None
    return ERROR.search(line)


def _is_known(value: dict[str, Any]) -> bool:
    from gpudoctor.judging.containers.failed_start import recognised

    return recognised(start_of(value).words) is not None


def _joined(lines: list[str]) -> str:
    """The command in one line; a backslash or a backtick at the end of a line continues it."""
    command = re.sub(r"[\\`]\s*\n", " ", "\n".join(lines))
    return next((line for line in command.splitlines() if COMMAND.search(line)), "")


def _value(command: str, message: str, *, is_podman: bool) -> dict[str, Any]:
    asked = COMMAND.search(command)
    engine = "podman" if is_podman or _is_podman(asked, message) else "docker"
    words = _words(asked["rest"] or "") if asked else []
    is_run = bool(asked and re.search(r"run|create", asked["verb"] or "") and "compose" not in (asked["verb"] or ""))
    arguments = _of_gpus(words)
    return {
        "engine": engine,
        "version": "",
        "image": _image(words) if is_run else "",
        "mode": _mode(engine, arguments) if is_run else "unknown",
        "arguments": arguments,
        "gpus": "all",
        "container": "",
        "replaced": "",
        "entrypoint_failed": "",
        "started": False,
        "message": message.strip(),
        "code": None,
        "from_text": True,
    }


def _is_podman(asked: re.Match[str] | None, message: str) -> bool:
    """Podman begins with "Error: ", while Docker begins with "docker: " or names its daemon."""
    if asked:
        return asked["engine"] == "podman"
    return bool(re.match(r"Error: (?!.*(?:daemon|containerd|kubelet))", message)) and "containerd" not in message


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _of_gpus(words: list[str]) -> list[str]:
    """The options that request a GPU."""
    found: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        asked = value if equals else following
        if name == "--gpus" or (name == "--runtime" and asked == "nvidia") or (name == "--device" and _is_gpu(asked)):
            found += [word] if equals else [word, following]
    return found


def _is_gpu(device: str) -> bool:
    return "nvidia" in device or "/dev/dxg" in device


def _mode(engine: str, arguments: list[str]) -> str:
    asked = " ".join(arguments)
    if "nvidia.com/" in asked:
        return "podman" if engine == "podman" else "cdi"
    if "--gpus" in asked:
        return "gpus"
    if "--runtime" in asked:
        return "runtime"
    return "devices" if arguments else "none"


def _image(words: list[str]) -> str:
    """The first word that is neither an option nor an option's value."""
    value_follows = False
    for word in words:
        if value_follows:
            value_follows = False
        elif word.startswith("-"):
            value_follows = bool(TAKE_A_VALUE.fullmatch(word))
        else:
            return word
    return ""


READER = Reader(
    kind="Docker or Podman error",
    anchors=(
        *("docker run", "docker container", "docker create", "docker start", "docker compose", "docker-compose", "podman run"),
        *("podman create", "podman start", "nvidia-docker", "nerdctl run", "docker --context", "sudo docker"),
        *("Error response from daemon", "Docker daemon", "docker API", "error during connect", "OCI runtime", "OCI "),
        *("nvidia-container-cli", "CDI device", "nvidia.com/gpu", "could not select device driver", "failed to create shim"),
        *("failed to create task", "failed to create containerd task", "failed to start container", "crun: ", "runc: "),
        *("image not known", "creating container storage", "Error: statfs", "Error: stat /dev", "hostPort", "seccomp profile"),
        *(
            "Cannot start service",
            "netavark",
            "pasta failed",
            "could not find pasta",
            "using mount program",
            "writing blob",
            "declared as external",
            "unable to start container",
        ),
        *("FATA[0", "ERRO[0", "level=fatal", "container_linux.go", "exec format error", "exec /", 'invalid argument "'),
        *("Unable to find image", "runtime name: nvidia", "runtime specified", "context not found", ": failed to start"),
    ),
    begins=BEGINS,
    ends=ENDS,
    read=read,
    most_lines=MOST_LINES,
)
