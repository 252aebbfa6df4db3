"""What engines say when a container's network cannot be made. Pure."""

from __future__ import annotations

from gpudoctor.judging.containers.words import BY_HOST, Message
from gpudoctor.model import Action, Confidence, Fix, Problem, fix_on

MOBY = "https://github.com/moby/moby/issues"
RESTART = Fix(
    "Let Docker make them anew: restart it (and with it its containers)",
    "sudo systemctl restart docker",
    "disruptive",
    verify="docker run --rm hello-world",
)
IPTABLES = fix_on(
    "Install it",
    needs=("network",),
    debian="sudo apt install iptables",
    rhel="sudo dnf install iptables-nft",
    suse="sudo zypper install iptables",
    arch="sudo pacman -S iptables",
)

POOL = Problem(
    id="docker-network-pool-used-up",
    title="Docker has no range of addresses left for another network",
    why="Its own ranges suffice for about 30 networks. Those of old projects take them up, or a VPN has taken over all private "
    "addresses, so that each range overlaps.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See which it is: many networks, or a VPN's routes", "docker network ls; ip route"),
        Fix("Many: remove those that no container uses", "docker network prune", risk="destructive"),
        Fix("A VPN: stop it meanwhile, or give Docker other ranges (default-address-pools in daemon.json)"),
    ),
    references=("https://github.com/docker/for-linux/issues/599",),
)
CHAINS = Problem(
    id="docker-iptables-chains-gone",
    title="The rules that Docker had put into the firewall are gone",
    why="Docker makes its chains when it starts. Since then a firewall was restarted or its rules were flushed.",
    action=Action.FIX_CONFIG,
    fixes=(RESTART, Fix("See whether they are there", "sudo iptables -t nat -L DOCKER -n")),
    references=(f"{MOBY}/26494", "https://github.com/docker/compose/issues/2631"),
)
TABLE = Problem(
    id="kernel-lacks-iptables-table",
    title="The kernel lacks a part of iptables that Docker needs",
    why="The table (raw, nat or filter) is a module that this kernel does not have or has not loaded, as on a Jetson or after a "
    "kernel upgrade without a reboot. Docker 28 also needs raw for published ports.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Load what there is", "sudo modprobe -a iptable_raw iptable_nat iptable_filter ip_tables"),
        Fix(
            "If there is none for raw: let Docker 28.0.2 and later do without it (containers are then less shut off)",
            r"printf '[Service]\nEnvironment=DOCKER_INSECURE_NO_IPTABLES_RAW=1\n' | sudo tee "
            r"/etc/systemd/system/docker.service.d/raw.conf && "
            "sudo systemctl daemon-reload && sudo systemctl restart docker",
            risk="disruptive",
        ),
        Fix("If the running kernel's modules are gone since an upgrade", "sudo reboot"),
    ),
    references=(f"{MOBY}/49557",),
)
NO_IPTABLES = Problem(
    id="engine-needs-iptables",
    title="iptables, which the engine needs for networks, is not installed",
    why="The engine calls this program on the host for each network of a container, and does not find it on its PATH.",
    action=Action.INSTALL,
    fixes=(
        *IPTABLES,
        Fix('With Podman 5: use nftables (firewall_driver = "nftables" under [network])', "podman info | grep -i network"),
    ),
    references=(
        "https://github.com/podman-container-tools/podman/issues/24285",
        "https://github.com/podman-container-tools/podman/issues/4972",
    ),
)
NO_NETWORK = Problem(
    id="container-network-missing",
    title="The network that the container is to join does not exist",
    why="A network of this name was never made on this daemon, or was removed. Compose makes its own networks, but none that are "
    "called external.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Make it", "docker network create <name>"),
        Fix("See which there are", "docker network ls"),
    ),
    references=("https://docs.docker.com/compose/how-tos/networking/",),
)
OLD_NETWORK = Problem(
    id="container-network-made-anew",
    title="The container belongs to a network that was removed since",
    why="A container remembers its network's number. A network of the same name that was made later has another one.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Make the container anew", "docker compose up -d --force-recreate", risk="disruptive"),
        Fix("A container without a compose file: remove it, and run it again", "docker rm CONTAINER", risk="destructive"),
    ),
    references=("https://github.com/docker/compose/issues/5745", "https://github.com/moby/libnetwork/issues/2571"),
)
RESERVED = Problem(
    id="windows-reserves-port",
    title="Windows keeps this port for itself",
    why="Hyper-V reserves ranges of ports at each start of Windows. No program listens there, and yet nobody else may.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("In Windows: see the ranges", "netsh interface ipv4 show excludedportrange protocol=tcp"),
        Fix("In Windows, as administrator: reserve them anew, then start the container", "net stop winnat && net start winnat"),
        Fix("Use another port of this machine: the number before the colon of -p", "docker run -p OTHER:PORT IMAGE"),
    ),
    references=("https://github.com/docker/for-win/issues/9272",),
)
PASTA = Problem(
    id="podman-pasta-refused",
    title="Podman's network helper pasta may not open the container's network",
    why="The host's AppArmor or SELinux policy for pasta (passt) forbids it. Policies of some versions are too narrow.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See who forbids it", "sudo dmesg | grep -iE 'apparmor|avc' | grep -iE 'passt|pasta' | tail"),
        Fix("Use the older helper, this once", "podman run --network=slirp4netns <image>"),
        *fix_on(
            "Upgrade passt and its policy",
            debian="sudo apt install --only-upgrade passt",
            rhel="sudo dnf upgrade passt passt-selinux",
        ),
    ),
    references=("https://github.com/podman-container-tools/podman/issues/22934",),
)

MESSAGES = (
    Message(r"non-overlapping IPv4 address pool|all predefined address pools have been fully subnetted", POOL),
    Message(r"iptables failed: .*No chain/target/match by that name", CHAINS),
    Message(r"can't initialize ip6?tables table|iptables failed: .*Table does not exist", TABLE),
    Message(
        BY_HOST + r'exec: "ip6?tables": executable file not found|netavark(?: \(exit code \d+\))?: ip6?tables: No such file',
        NO_IPTABLES,
    ),
    Message(r"netavark(?: \(exit code \d+\))?: No such file or directory", NO_IPTABLES, sure=Confidence.LIKELY),
    Message(r'network id "[0-9a-f]{12,64}" not found|network [0-9a-f]{64} not found', OLD_NETWORK),
    Message(
        r"(?i:network) (?P<name>\S+) declared as external, but could not be found|network (?P<other>[\w.-]+) not found"
        r"|unable to find network with name or ID (?P<podman>[\w.-]+): network not found",
        NO_NETWORK,
        "there is no network {name}",
    ),
    Message(r"listen \w+ \S+: bind: An attempt was made to access a socket in a way forbidden", RESERVED),
    Message(r"pasta failed with exit code .*(?:Permission denied|Operation not permitted)", PASTA),
)
PROBLEMS = tuple(dict.fromkeys(message.problem for message in MESSAGES))
