"""What the machine around the engine refuses a container: cgroups, limits, profiles, what an outer container forbids. Pure."""

from __future__ import annotations

from gpudoctor.judging.containers.words import BY_HOST, Message
from gpudoctor.model import Action, Confidence, Fix, Problem, fix_on

MOBY = "https://github.com/moby/moby/issues"
RESOURCES = "https://docs.docker.com/engine/containers/resource_constraints/"
SYSTEMD = "https://rootlesscontaine.rs/getting-started/common/cgroup2/"
LIMITS = {"4": "the size of core files", "6": "the number of processes", "7": "the number of open files", "8": "locked memory"}
LIKELY = Confidence.LIKELY

RLIMIT = Problem(
    id="container-rlimit-refused",
    title="The daemon may not raise the limit that was asked for with --ulimit",
    why="No process may raise a hard limit above its own unless it has the right to. A rootless daemon, or one that runs in a "
    "container or a sandbox itself, has not.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Leave the option out: programs work without it, though large jobs over InfiniBand need locked memory"),
        Fix(
            "Raise the daemon's own limits: [Service] LimitMEMLOCK=infinity. It restarts, and with it its containers",
            "sudo systemctl edit docker && sudo systemctl restart docker",
            risk="disruptive",
        ),
    ),
    references=("https://docs.docker.com/reference/cli/docker/container/run/#ulimit",),
)
MEMORY = Problem(
    id="container-memory-short",
    title="There is too little memory to start the container",
    why="The machine, the limit that was asked for, or the group that the container runs in leaves it no memory.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See who has it, and whether the kernel has killed somebody", "free -h; sudo dmesg | grep -i 'out of memory' | tail"),
        Fix("Give the container more: a larger --memory, or none"),
    ),
    references=(RESOURCES,),
)
TOO_LITTLE = Problem(
    id="container-memory-limit-too-low",
    title="The limit of memory that was asked for is too low to start anything",
    why="The engine's own part of the start already takes some megabytes within the container's limit.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Give it more", "docker run --memory=512m IMAGE"),
        Fix("In a compose file: mem_limit or deploy.resources.limits.memory"),
    ),
    references=(f"{MOBY}/38921", RESOURCES),
)
TASKS = Problem(
    id="engine-process-limit-reached",
    title="The engine may not start another process: a limit of their number is reached",
    why="It is not memory: the limit of processes and threads of the service, the user, the machine or the virtual server is "
    "used up.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "See which limit it is",
            "ps -eLf | wc -l; cat /proc/sys/kernel/threads-max /proc/sys/kernel/pid_max; systemctl show docker containerd -p "
            "TasksCurrent -p TasksMax",
        ),
        Fix("If it is the service's: TasksMax=infinity", "sudo systemctl set-property containerd TasksMax=infinity"),
    ),
    references=("https://github.com/goharbor/harbor/issues/15944",),
)
DRIVERS = Problem(
    id="cgroup-drivers-differ",
    title="Two programs do not agree on who manages the cgroups, systemd or cgroupfs",
    why="The path of the container's cgroup has the form of one manager, and the runtime was told to use the other: the engine, "
    "containerd and the kubelet must all be set to the same.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "See who says what",
            "docker info -f '{{.CgroupDriver}}'; grep -rn SystemdCgroup /etc/containerd; grep -n cgroupDriver "
            "/var/lib/kubelet/config.yaml",
        ),
        Fix(
            "Where the others use systemd: set containerd so, too",
            "sudo sed -i 's/SystemdCgroup = false/SystemdCgroup = true/' /etc/containerd/config.toml && sudo systemctl "
            "restart containerd",
            "disruptive",
        ),
    ),
    references=("https://github.com/kubernetes-sigs/kubespray/issues/8122",),
)
SESSION = Problem(
    id="rootless-without-user-session",
    title="This user's systemd does not make a cgroup for the container",
    why="A rootless engine asks the user's own systemd over D-Bus. There is none, as after su or sudo or in a service, or the "
    "engine asked the system's, which refuses a user.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "See whether this user's systemd answers",
            "systemctl --user is-system-running; echo $XDG_RUNTIME_DIR $DBUS_SESSION_BUS_ADDRESS",
        ),
        Fix(
            "Log in as the user, by ssh or so, and keep its systemd running",
            "sudo loginctl enable-linger $USER && sudo machinectl shell $USER@",
        ),
        *fix_on(
            "Install what a user's D-Bus needs",
            needs=("network",),
            debian="sudo apt install dbus-user-session",
            rhel="sudo dnf install dbus-daemon",
        ),
    ),
    references=("https://github.com/vmware/photon/issues/1474", SYSTEMD),
)
HIERARCHY = Problem(
    id="cgroup-hierarchy-not-mounted",
    title="A cgroup hierarchy that this engine needs is not mounted",
    why="Engines before Docker 20.10 know only version 1 of the cgroups, with systemd's hierarchy among them. In WSL, with "
    "OpenRC, or "
    "on a system with version 2 it is not there.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "See what there is: cgroup2fs is version 2, which needs Docker 20.10 or later",
            "stat -fc %T /sys/fs/cgroup; docker version",
        ),
        Fix(
            "With version 1: mount it, until the next boot",
            "sudo mkdir -p /sys/fs/cgroup/systemd && sudo mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd",
        ),
    ),
    references=("https://github.com/docker/for-linux/issues/219",),
)
CGROUP = Problem(
    id="container-cgroup-refused",
    title="The engine cannot make the container's cgroup",
    why="The kernel's cgroups are not set up as the engine expects: a controller was not handed on to this user, versions 1 and "
    "2 are mixed, or the engine itself runs in a container.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "See what there is", "docker info | grep -i cgroup; stat -fc %T /sys/fs/cgroup; cat /sys/fs/cgroup/cgroup.controllers"
        ),
        Fix("With Podman: let it make cgroups without systemd", "podman --cgroup-manager=cgroupfs run IMAGE"),
        Fix("Rootless: leave out limits that need a controller (--memory, --cpus, --pids-limit)"),
    ),
    references=(SYSTEMD,),
)
BPF = Problem(
    id="kernel-bpf-memory-used-up",
    title="The kernel's memory for compiled filters is used up",
    why="Each container's seccomp filter is compiled by the kernel, in memory that is limited for all together. Some kernels "
    "also lose "
    "it bit by bit when containers end. The profile itself is right.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Raise the limit, until the next boot", "sudo sysctl -w net.core.bpf_jit_limit=528482304"),
        Fix(
            "See how much is in use",
            "sudo grep bpf_jit /proc/vmallocinfo | awk '{s+=$2} END {print s}'; cat /proc/sys/net/core/bpf_jit_limit",
        ),
        Fix("A newer kernel, and a reboot, which also gives it all back", "sudo reboot"),
    ),
    references=(f"{MOBY}/45498",),
)
NO_PARSER = Problem(
    id="apparmor-parser-missing",
    title="The host has AppArmor switched on, but not its program apparmor_parser",
    why="Docker loads its profile by this program of the host before each start. It has nothing to do with the image.",
    action=Action.INSTALL,
    fixes=fix_on(
        "Install it, and restart Docker (and with it its containers)",
        risk="disruptive",
        needs=("network",),
        debian="sudo apt install apparmor && sudo systemctl restart docker",
        suse="sudo zypper install apparmor-parser && sudo systemctl restart docker",
        arch="sudo pacman -S apparmor && sudo systemctl restart docker",
        other="sudo systemctl restart docker",
    ),
    references=("https://github.com/pterodactyl-installer/pterodactyl-installer/issues/393",),
)
NESTED = Problem(
    id="engine-in-container-without-nesting",
    title="The engine runs in a container that may not start containers itself",
    why="In LXC (Proxmox) an engine needs the features nesting and keyctl, which let it mount /proc and load profiles. The "
    "outer container forbids it.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See whether it runs in one: anything but none", "systemd-detect-virt --container"),
        Fix(
            "On the Proxmox host: allow it, and start the outer container anew (CTID: its number)",
            "sudo pct set CTID --features nesting=1,keyctl=1 && sudo pct reboot CTID",
        ),
    ),
    references=("https://github.com/IceWhaleTech/CasaOS/issues/76", "https://pve.proxmox.com/wiki/Linux_Container"),
)
SYSCTL = Problem(
    id="runc-sysctl-refused-in-lxc",
    title="The outer container's AppArmor forbids this runc to write a sysctl",
    why="runc 1.2.8, 1.3.3 and later (containerd.io 1.7.28-2) write the container's sysctls in a safer way, which AppArmor in "
    "LXC "
    "(Proxmox) takes for another file and refuses.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "On the Proxmox host: bring LXC and its AppArmor profiles up to date, then start the outer container anew",
            "sudo apt update && sudo apt full-upgrade",
        ),
        Fix(
            "Until then, in the outer container: the version before",
            "sudo apt install --allow-downgrades containerd.io=1.7.28-1*",
            "disruptive",
        ),
        Fix(
            "Where it is trusted: without AppArmor (CTID: its number)",
            "echo 'lxc.apparmor.profile: unconfined' | sudo tee -a /etc/pve/lxc/CTID.conf",
        ),
    ),
    references=(f"{MOBY}/51405", "https://github.com/opencontainers/runc/issues/4972"),
)
SECURITY = Problem(
    id="container-security-profile-refused",
    title="A seccomp or AppArmor profile cannot be applied",
    why="The profile that was asked for is not there or wrong, or this kernel or an outer container does not allow to apply one.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See which security options the engine has", "docker info --format '{{.SecurityOptions}}'"),
        Fix(
            "To find out whether it is that: start it without, this once (it is then less shut off)",
            "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined IMAGE",
        ),
    ),
    references=("https://docs.docker.com/engine/security/seccomp/",),
)
OOM_SCORE = Problem(
    id="crun-oom-score-refused",
    title="crun may not set how readily the kernel kills the container",
    why="A rootless user may not lower this value below its own. crun 1.9 and later fails on it where an older Podman, or a "
    "compose file, asks for it.",
    action=Action.INSTALL,
    fixes=(
        Fix("See the versions: Podman 4.7 or later does not ask for it", "podman version; crun --version"),
        Fix("Leave oom_score_adj out of the compose file or the command"),
        *fix_on(
            "Upgrade",
            needs=("network",),
            debian="sudo apt install --only-upgrade podman crun",
            rhel="sudo dnf upgrade podman crun",
        ),
    ),
    references=("https://github.com/containers/crun/issues/1302",),
)

MESSAGES = (
    Message(r"error setting rlimits? .*?rlimit type (?P<number>\d+)", RLIMIT, "{limit} may not be raised"),
    Message(r"error setting rlimit|crun: (?:setrlimit|prlimit)", RLIMIT),
    Message(r"oom_score_adj`?: Permission denied|oom_score_adj: permission denied", OOM_SCORE),
    Message(r"memory\.(?:memsw\.)?limit_in_bytes: .*device or resource busy|memory limit too low", TOO_LITTLE),
    Message(r"(?i)(?:fork|exec|clone|pthread|thread|start)\S*.*resource temporarily unavailable", TASKS),
    Message(r"(?i)cannot allocate memory|out of memory|\boom[- ]killed|\boom\b", MEMORY),
    Message(r"errno 524", BPF),
    Message(BY_HOST + r'exec: "apparmor_parser": executable file not found', NO_PARSER),
    Message(r"load a profile while confined|error mounting \"proc\" to rootfs.*permission denied", NESTED, sure=LIKELY),
    Message(r"open sysctl \S+ file: .*permission denied", SYSCTL, sure=LIKELY),
    Message(r'expected cgroupsPath to be of format "slice:prefix:name"|cgroupfs? path .*slice:prefix:name', DRIVERS),
    Message(
        r"unable to start unit .*(?:Permission denied|[Ii]nteractive authentication required|Access denied)"
        r"|(?:could not detect|find) DBUS_SESSION_BUS_ADDRESS|sd-bus call: (?:Permission denied|Interactive authentication "
        r"required)"
        r"|(?:connect to|dial unix) \S*(?:user/\d+|dbus)\S*bus\b.*(?:no such file|refused)",
        SESSION,
        sure=LIKELY,
    ),
    Message(r"cannot find cgroup mount destination", HIERARCHY),
    Message(
        r"(?i)(?:opening|invalid|load\w*|apply|applying|init|set) (?:the )?(?:seccomp|apparmor)|(?:seccomp|apparmor) "
        r"(?:profile|filter)"
        r"|docker-default profile could not be loaded|AppArmor is (?:not|disabled)",
        SECURITY,
    ),
    Message(
        r"(?i)cgroups? (?:in hybrid|configuration|path|namespace|mountpoint|controller|v2|not)|cgroups?: |(?:the|setting"
        r"|create|creating|"
        r"apply|applying|enable|join\w*|open|write|mkdir|no) (?:\S+ )?cgroup|/sys/fs/cgroup|cgroup\.\w+|cgroup2",
        CGROUP,
    ),
)
PROBLEMS = tuple(dict.fromkeys(message.problem for message in MESSAGES))
