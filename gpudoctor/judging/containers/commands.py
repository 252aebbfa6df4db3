"""What engines say when the image, its command or an option of the command is not right. Pure.

Wordings of Docker 20.10 to 28.5 (with runc) and of Podman 4.3 to 5.6 (with runc and crun). Neither exit codes nor HTTP statuses
mean anything: 127 also stands for a missing driver library.
"""

from __future__ import annotations

from gpudoctor.judging.containers.words import Message
from gpudoctor.model import Action, Fix, Problem

RUN = "https://docs.docker.com/engine/containers/run/"

NO_COMMAND = Problem(
    id="container-command-not-found",
    title="The image has no program of this name",
    why="The engine and the GPU did their part; what was to be run in the container is not there, or the interpreter that its "
    "first line names is not. A minimal image mostly has sh and little else.",
    action=Action.FIX_CONFIG,
    fixes=(Fix("See what the image has, and what it runs by default", "docker run --rm -it --entrypoint sh <image>"),),
    references=(RUN,),
)
NOT_EXECUTABLE = Problem(
    id="container-command-not-executable",
    title="What was to be run in the container is no program, or may not be run",
    why="It is a folder, a file without permission to run, or one that lies on a mount with noexec.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Look at it", "docker run --rm --entrypoint ls <image> -ld <command>"),
        Fix("A script: name its interpreter, or make it executable", "chmod +x SCRIPT"),
    ),
    references=(RUN,),
)
ARCHITECTURE = Problem(
    id="container-architecture-differs",
    title="The image is for another kind of processor",
    why="Its programs cannot run here: linux/arm64 on linux/amd64, or the other way round. A script without a first line such "
    "as #!/bin/sh gives the same error.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See what it is for", "docker image inspect -f '{{.Os}}/{{.Architecture}}' <image>"),
        Fix("Take the image of this processor", "docker pull --platform linux/$(dpkg --print-architecture) <image>"),
    ),
    references=("https://docs.docker.com/build/building/multi-platform/",),
)
NO_IMAGE = Problem(
    id="container-image-missing",
    title="There is no such image, or it is not given to everybody",
    why="Neither this machine nor the registry has an image of this name and tag that may be pulled without a login.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See which there are here", "docker image ls"),
        Fix("A private one: log in to its registry", "docker login REGISTRY", needs=("network",)),
    ),
    references=("https://docs.docker.com/reference/cli/docker/image/pull/",),
)
NO_REGISTRY = Problem(
    id="container-registry-unreachable",
    title="The image is not on this machine, and its registry cannot be reached",
    why="The daemon, which does the pulling, has no way to the registry: no network, no name server, or a proxy that only your "
    "shell knows.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See whether the daemon has a proxy", "docker info | grep -i proxy; systemctl show docker --property=Environment"),
        Fix("Without a network: carry it over", "docker save IMAGE | ssh MACHINE docker load"),
    ),
    references=("https://docs.docker.com/engine/daemon/proxy/",),
)
NAME_TAKEN = Problem(
    id="container-name-taken",
    title="Another container has this name",
    why="Names are used once, also by containers that have ended and were not removed.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See what it is", "docker ps --all --filter name=<name>"),
        Fix("If nobody needs it: remove it with all that was written in it", "docker rm <name>", risk="destructive"),
    ),
    references=(RUN,),
)
PORT_TAKEN = Problem(
    id="container-port-taken",
    title="A port that the container is to listen on is taken",
    why="Another program or container of this machine listens there.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See who it is", "sudo ss -tlnp; docker ps --format '{{.Names}} {{.Ports}}'"),
        Fix("Use another port of this machine: the number before the colon of -p", "docker run -p OTHER:PORT IMAGE"),
    ),
    references=("https://docs.docker.com/engine/network/port-publishing/",),
)
MOUNT = Problem(
    id="container-mount-source-missing",
    title="What was to be mounted is not there, or is of another kind",
    why="A folder or file of the machine where the daemon runs does not exist there, or a file was to be put where the image "
    "has a folder. With a daemon on another machine, or in a virtual one, this machine's paths mean nothing.",
    action=Action.FIX_CONFIG,
    fixes=(Fix("Look at it, where the daemon runs", "ls -ld <path>"),),
    references=("https://docs.docker.com/engine/storage/bind-mounts/",),
)
OPTION = Problem(
    id="container-option-refused",
    title="The engine does not accept an option of the command",
    why="It has nothing to do with GPUs: the engine says which option it is, and what would be right.",
    action=Action.FIX_CONFIG,
    fixes=(Fix("See what the option takes", "docker run --help"),),
    references=("https://docs.docker.com/reference/cli/docker/container/run/",),
)
NO_USER = Problem(
    id="container-user-unknown",
    title="The image has no user of this name",
    why="Names of users are looked up in the image's own /etc/passwd, for --user as for the image's USER. The users of this "
    "machine "
    "are not known in there.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Give numbers, which need no name", "docker run --user $(id -u):$(id -g) <image>"),
        Fix(
            "See who the image wants to be, and whom it knows",
            "docker image inspect -f '{{.Config.User}}' <image>; docker run --rm --user 0 --entrypoint cat <image> /etc/passwd",
        ),
    ),
    references=("https://github.com/Unstructured-IO/unstructured-api/issues/385",),
)

# Who executed: runc for the container, which names itself, or an engine on the host, which does not.
_PROCESS = r"(?:container (?:process|init)(?: caused)?:? \"?|^|exec failed: )"
MESSAGES = (
    Message(
        r"exec format error|does not match the (?:specified|detected host) platform|no matching manifest for",
        ARCHITECTURE,
    ),
    Message(
        _PROCESS + r'exec:? "(?P<name>[^"]+)": (?:executable file not found|stat \S+: no such file|no such file)'
        r"|exec (?P<path>/\S+): no such file|executable file `(?P<other>[^`]+)` not found"
        r"|crun: (?:cannot find|open executable)(?: `(?P<crun>[^`]+)`)?: No such file",
        NO_COMMAND,
        "{name} is not in {image}",
    ),
    Message(
        _PROCESS + r'exec:? "(?P<name>[^"]+)": (?:permission denied|is a directory)|exec (?P<path>/\S+): permission denied'
        r"|open executable: Permission denied|crun: (?:cannot execute|exec) `(?P<other>[^`]+)`: Permission denied",
        NOT_EXECUTABLE,
        "{name} of {image} may not be run",
    ),
    Message(
        r"unable to find (?:user|group) (?P<name>[^:\s]+)|no matching entries in (?:passwd|group) file",
        NO_USER,
        "{image} has no user {name}",
    ),
    Message(r'container name "/?(?P<name>[^"]+)" is already in use', NAME_TAKEN),
    Message(
        r"(?:listen \w+|Bind for|rootlessport listen \w+) (?P<name>\S+?):? (?:failed: )?.*"
        r"(?:address already in use|port is already allocated)|address already in use|port is already allocated",
        PORT_TAKEN,
    ),
    Message(
        r"bind source path does not exist: (?P<path>\S+)|^statfs (?P<name>\S+): no such file|error mounting "
        r'"(?P<other>[^"]+)" to '
        r".*(?:not a directory|no such file)|error stat'ing file (?P<stat>\S+?): No such file|cannot stat `(?P<crun>[^`]+)`: "
        r"No such"
        r'|mounts denied|custom device "(?P<device>[^"]+)": (?:lstat \S+: )?no such file|^stat (?P<file>/\S+): no such file',
        MOUNT,
    ),
)
OF_OPTIONS = (
    Message(
        r"(?i)dial tcp|i/o timeout|TLS handshake|/v2/.*(?:refused|no such host|timeout)|pinging container registry",
        NO_REGISTRY,
    ),
    Message(
        r"(?i)no such image|image not known|manifest unknown|manifest for \S+ not found|pull access denied|repository does not "
        r"exist|name unknown|short-name .* did not resolve|requested access to the resource is denied",
        NO_IMAGE,
    ),
    Message(
        r"(?i)unknown (?:flag|shorthand)|range of cpus|requested cpus|minimum (?:kernel )?memory limit|unknown capability"
        r'|^invalid argument "|(?:^|: )invalid (?:mode|mount|option|reference|hostport|capadd|volume|containerport|publish)'
        r"|^the working directory|workdir \S+ does not exist|Cannot mkdir: \S+ is not a directory|no command specified"
        r"|supported only for|conflicting options|unknown or invalid runtime name|unknown runtime specified"
        r"|OCI runtime \S+ not found|no such container|with capabilities: \[",
        OPTION,
    ),
)
PROBLEMS = tuple(dict.fromkeys(message.problem for message in (*MESSAGES, *OF_OPTIONS)))
