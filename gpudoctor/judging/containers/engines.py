"""What is said when the engine itself is not well: its daemon, containerd, its store of layers, its users. Pure."""

from __future__ import annotations

from gpudoctor.judging.containers.words import BY_HOST, Message
from gpudoctor.model import Action, Fix, Problem, fix_on

MOBY = "https://github.com/moby/moby/issues"

UNREACHABLE = Problem(
    id="docker-daemon-unreachable",
    title="No Docker daemon answers where the docker command looks for it",
    why="It does not run, or DOCKER_HOST or the context leads to a place where there is none.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See where the command looks", "docker context ls; echo DOCKER_HOST=$DOCKER_HOST"),
        Fix("Start the daemon of this machine", "sudo systemctl start docker", verify="docker info"),
    ),
    references=("https://docs.docker.com/engine/daemon/troubleshoot/",),
)
DISK = Problem(
    id="container-disk-full",
    title="The disk of the engine is full",
    why="A new container needs a little room where the engine keeps images and containers (or in /run and /tmp).",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See what takes the room", "docker system df; df -h /var/lib/docker /run /tmp"),
        Fix("Remove containers that have ended, and images that nobody uses", "docker system prune", risk="destructive"),
    ),
    references=("https://docs.docker.com/engine/manage-resources/pruning/",),
)
CONTAINERD = Problem(
    id="containerd-not-running",
    title="containerd, which Docker starts containers by, does not answer",
    why="Docker's own daemon runs; the service under it has ended, or is about to start.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Start it, and Docker on it (and with it its containers)",
            "sudo systemctl restart containerd docker",
            "disruptive",
            verify="docker info",
        ),
        Fix("Read why it ended", "sudo journalctl -u containerd -b --no-pager | tail -n 20"),
    ),
    references=(f"{MOBY}/40390",),
)
VERSIONS = Problem(
    id="docker-api-versions-differ",
    title="The docker command and the daemon do not speak the same version",
    why="Each speaks a range of versions of Docker's interface, and these two do not overlap: one is years older than the other.",
    action=Action.INSTALL,
    fixes=(
        Fix("See both", "docker version"),
        Fix("A daemon that is older: speak its version, meanwhile", "export DOCKER_API_VERSION=<name>", verify="docker info"),
        Fix("Upgrade the older of the two, as Docker's guide describes"),
    ),
    references=(f"{MOBY}/41034", "https://docs.docker.com/reference/api/engine/"),
)
STORE = Problem(
    id="docker-layer-store-damaged",
    title="A layer of the image is missing in Docker's store",
    why="The store lists a layer whose folder or link is not there: the machine went down while an image was written, or "
    "somebody "
    "removed files in /var/lib/docker.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Pull the image anew", "docker image rm -f <image>; docker pull <image>", "destructive", ("network",)),
        Fix(
            "Where that is not enough: empty the whole store, with all images, containers and volumes",
            "sudo systemctl stop docker && sudo mv /var/lib/docker /var/lib/docker.old && sudo systemctl start docker",
            "destructive",
        ),
    ),
    references=("https://github.com/docker/for-linux/issues/791",),
)
READ_ONLY = Problem(
    id="container-mount-source-read-only",
    title="The folder to be mounted cannot be made: Docker sees it as read-only",
    why="The folder does not exist where the daemon looks, and may not be made there. So it is with Docker from a snap, which "
    "sees "
    "little of the machine but /home, and on systems whose root is read-only.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See which it is: a snap, or a read-only system", "snap list docker; findmnt -no OPTIONS /"),
        Fix("Mount a folder under /home, or one that is there", "ls -ld <path>"),
        Fix(
            "A snap: put Docker's own packages in its place",
            "sudo snap remove docker && curl -fsSL https://get.docker.com | sudo sh",
            "destructive",
            ("network",),
        ),
    ),
    references=("https://github.com/canonical/docker-snap/issues/188",),
)
SUBUID = Problem(
    id="podman-subuid-missing",
    title="This user has too few user numbers for a rootless container",
    why="The files of an image belong to many users, each of which needs a number from the ranges that /etc/subuid and "
    "/etc/subgid "
    "give this user. There is no range, or it is too small.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Give a range of its own",
            "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER && podman system migrate",
            verify="podman unshare cat /proc/self/uid_map",
        ),
        Fix("See which there are", "grep . /etc/subuid /etc/subgid"),
    ),
    references=("https://github.com/containers/podman/issues/4436", "https://github.com/sickcodes/dock-droid/issues/18"),
)
RUNC = Problem(
    id="engine-program-missing",
    title="A program of the engine itself is not there",
    why="The engine called one of its own programs on the host, and did not find it: packages are missing or were removed. The "
    "image's command has no part in it.",
    action=Action.INSTALL,
    fixes=(
        *fix_on(
            "Install the engine's packages anew",
            risk="disruptive",
            needs=("network",),
            debian="(sudo apt install --reinstall docker-ce containerd.io || sudo apt install --reinstall docker.io "
            "containerd runc) && sudo systemctl restart docker",
            rhel="sudo dnf reinstall docker-ce containerd.io && sudo systemctl restart docker",
        ),
        Fix("See what is there", "command -v runc crun containerd-shim-runc-v2 docker-proxy docker-init conmon newuidmap"),
    ),
    references=("https://docs.docker.com/engine/install/",),
)

_PROGRAMS = r"runc|crun|conmon|containerd-shim[\w-]*|docker-(?:init|proxy|runc)|newuidmap|newgidmap|slirp4netns"
r"|fuse-overlayfs|netavark|pasta"
MESSAGES = (
    Message(r"(?:dial unix|connect to) \S*containerd\.sock: .*(?:connection refused|no such file)", CONTAINERD),
    Message(
        r"client version (?P<client>\S+) is too (?:new|old)\. M(?:ax|in)imum supported API version is (?P<name>[\d.]+)", VERSIONS
    ),
    Message(
        r"insufficient UIDs or GIDs available|no subuid ranges found|newuidmap: .*not allowed|lchown \S+: invalid argument",
        SUBUID,
    ),
    Message(r"error while creating mount source path '(?P<name>[^']+)': .*read-only file system", READ_ONLY),
    Message(
        r"error creating overlay mount to \S+: no such file|(?:stat|lstat|open|readlink) \S*/overlay2/\S+: no such file"
        r"|layer does not exist|unable to find layer",
        STORE,
    ),
    Message(r"(?i)no space left on device", DISK),
    Message(
        rf'{BY_HOST}exec: "(?:\S*/)?(?P<name>{_PROGRAMS})": executable file not found'
        rf"|fork/exec (?P<path>\S*/(?:{_PROGRAMS})): no such file"
        r'|binary not installed "(?P<shim>[^"]+)"',
        RUNC,
        "{name} is not where the engine looks for it",
    ),
)
PROBLEMS = tuple(dict.fromkeys(message.problem for message in MESSAGES))
