"""What NVIDIA's toolkit says when the driver does not answer it, or not as it should. Pure.

Each of these words has a cause of its own; on many of the machines nvidia-smi works all the while.
"""

from __future__ import annotations

from gpudoctor.judging.containers.words import Message
from gpudoctor.model import Action, Confidence, Fix, Problem

RUN = "docker run --rm --gpus all ubuntu nvidia-smi"
LOG = "sudo nvidia-container-cli -k -d /dev/tty info"
ISSUES = "https://github.com/NVIDIA/nvidia-container-toolkit/issues"
OLD_ISSUES = "https://github.com/NVIDIA/nvidia-docker/issues"
LIBRARY_ISSUES = "https://github.com/NVIDIA/libnvidia-container/issues"
UPGRADE = Fix("Upgrade nvidia-container-toolkit and libnvidia-container1 to the newest, as NVIDIA's guide describes", verify=RUN)

WSL = Problem(
    id="container-wsl-shows-no-gpu",
    title="Windows passes no NVIDIA GPU on to WSL, and so to no container",
    why="The toolkit found itself in WSL, and WSL has no GPU adapter to offer: Windows' driver is too old or missing, WSL itself "
    "is old or of version 1, or there is no NVIDIA GPU in the machine.",
    action=Action.INSTALL,
    fixes=(
        Fix("See whether the GPU works in WSL itself, which comes first", "ls -l /dev/dxg; /usr/lib/wsl/lib/nvidia-smi -L"),
        Fix("In Windows: bring WSL up to date, and see that this one is of version 2", "wsl.exe --update && wsl.exe -l -v"),
        Fix("In Windows: install the newest NVIDIA driver. None in WSL. Without an NVIDIA GPU: leave out --gpus", verify=RUN),
    ),
    references=(f"{OLD_ISSUES}/1786", "https://docs.nvidia.com/cuda/wsl-user-guide/"),
)
SLOW = Problem(
    id="container-driver-answers-too-late",
    title="The driver took longer to set up the GPUs than NVIDIA's toolkit waits",
    why="Where nobody keeps the GPUs set up, the driver does it anew for each program: seconds for each GPU, on large machines "
    "more than the toolkit waits for.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See how long it takes: more than a second or two is too long", "time nvidia-smi -L"),
        Fix(
            "Keep the GPUs set up",
            "sudo systemctl enable --now nvidia-persistenced || sudo nvidia-smi -pm 1",
            verify=RUN,
        ),
        UPGRADE,
    ),
    references=(f"{ISSUES}/202",),
)
BUSY = Problem(
    id="container-toolkit-timed-out",
    title="The machine was too busy for NVIDIA's toolkit to finish in time",
    why="The toolkit gives its own helper (nvcgo, which writes the device rules) ten seconds. It is no fault of the driver: "
    "processors or disks are overloaded, as when many containers are started at once.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Try again, with fewer at once", RUN),
        Fix("See what the machine waits for", "uptime; head /proc/pressure/*"),
        Fix("By CDI, which needs no such helper (Docker 28.2 or later)", "docker run --rm --device nvidia.com/gpu=all <image>"),
    ),
    references=(f"{ISSUES}/2102",),
)
SERVICE = Problem(
    id="container-driver-service-fails",
    title="The part of NVIDIA's toolkit that asks the driver has failed",
    why="The toolkit loads the driver's libraries in a process of its own, which ended or refused. Seen where other software "
    "(Citrix' icaclient) is loaded into every process, where a rootless engine may not change groups, and where no "
    "process keeps the GPUs set up.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See at which step it fails: the last lines tell", LOG),
        Fix("See what is loaded into every process", "cat /etc/ld.so.preload; dpkg -l icaclient; grep -r . /etc/ld.so.conf.d"),
        Fix(
            "Keep the GPUs set up",
            "sudo systemctl enable --now nvidia-persistenced || sudo nvidia-smi -pm 1",
            verify=RUN,
        ),
    ),
    references=(f"{ISSUES}/556", f"{OLD_ISSUES}/1565"),
)
NODES = Problem(
    id="container-toolkit-may-not-open-gpu",
    title="NVIDIA's toolkit may not open the GPU's device nodes",
    why="The driver is loaded, but refuses the user whom the toolkit becomes to ask it: the nodes are not open to everybody, or "
    "SELinux has labelled them wrongly.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See which it is: the rights should be crw-rw-rw-, the type xserver_misc_device_t", "ls -lZ /dev/nvidia*"),
        Fix("With SELinux: label them as they should be", "sudo restorecon -v /dev/nvidia*", verify=RUN),
        Fix(
            "Where only a group may open them: let the toolkit ask as this group (user = in config.toml)",
            "sudo nvidia-ctk config --in-place --set nvidia-container-cli.user=root:$(stat -c %G /dev/nvidiactl)",
            verify=RUN,
        ),
    ),
    references=(f"{OLD_ISSUES}/1547", f"{OLD_ISSUES}/1523", f"{OLD_ISSUES}/676"),
)
PRIVILEGE = Problem(
    id="container-toolkit-privilege-change",
    title="NVIDIA's toolkit cannot become the user it wants to be",
    why="In the user namespace of a rootless engine older versions of libnvidia-container ask for a user who does not exist "
    "there: with user numbers above 65536 (LDAP), or large ranges in /etc/subuid.",
    action=Action.INSTALL,
    fixes=(
        Fix("See whether it is that", "id -u; cat /etc/subuid; nvidia-container-cli --version"),
        UPGRADE,
        Fix(
            "By CDI, which changes no user (Docker 28.2 or later)",
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && docker run --rm --device nvidia.com/gpu=all <image>",
        ),
    ),
    references=(f"{ISSUES}/99", f"{LIBRARY_ISSUES}/104"),
)
MISMATCH = Problem(
    id="container-driver-library-mismatch",
    title="The driver's libraries and its kernel module are of different versions",
    why="The driver was upgraded where the engine runs, and the kernel still has the module of before. It fits again after a "
    "reboot; the container and the engine have no part in it.",
    action=Action.REBOOT,
    fixes=(
        Fix("Load the new module: reboot the machine that the engine runs on", "sudo reboot", verify="nvidia-smi"),
        Fix("See both versions", "cat /proc/driver/nvidia/version; ls /usr/lib*/libnvidia-ml.so.* /usr/lib/*/libnvidia-ml.so.*"),
    ),
    references=(f"{ISSUES}/394",),
)
UNKNOWN_ERROR = Problem(
    id="container-driver-unknown-error",
    title="The driver answered NVIDIA's toolkit with an error that it does not explain",
    why="Mostly the driver or a GPU is in a bad state (a GPU that failed, a suspend, a half upgraded driver). Versions of "
    "libnvidia-container before 1.1 also got it from drivers that were well.",
    action=Action.RESET_GPU,
    fixes=(
        Fix(
            "See which it is: whether nvidia-smi shows ERR!, and what the kernel says",
            "nvidia-smi; sudo dmesg | grep -iE 'nvrm|xid'",
        ),
        Fix("Reboot the machine that the engine runs on", "sudo reboot", verify="nvidia-smi"),
        UPGRADE,
    ),
    references=(f"{LIBRARY_ISSUES}/103", f"{OLD_ISSUES}/1348"),
)
UNUSABLE = Problem(
    id="container-driver-unusable",
    title="NVIDIA's toolkit cannot use the driver of the machine that the daemon runs on",
    why="Before it brings a GPU into a container the toolkit asks the driver about it, and got an error.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Where the daemon runs: see whether the driver itself is well", "nvidia-smi; gpudoctor check"),
        Fix("If it is: see at which step the toolkit fails", LOG),
    ),
    references=("https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",),
)

_CLI = r"nvidia-container-cli(?:\.real)?: (?:initialization|detection) error: .*?"
LIKELY = Confidence.LIKELY
MESSAGES = (
    Message(_CLI + r"WSL environment detected but no adapters", WSL),
    Message(_CLI + r"nvcgo rpc error: timed out", BUSY, sure=LIKELY),
    Message(_CLI + r"driver (?:rpc )?error: timed out", SLOW, sure=LIKELY),
    Message(_CLI + r"driver (?:rpc )?error: ", SERVICE, sure=LIKELY),
    Message(_CLI + r"nvml error: insufficient permissions", NODES, sure=LIKELY),
    Message(_CLI + r"privilege change failed", PRIVILEGE, sure=LIKELY),
    Message(_CLI + r"driver/library version mismatch", MISMATCH),
    Message(_CLI + r"(?:nvml|cuda) error: unknown error", UNKNOWN_ERROR, sure=LIKELY),
    Message(_CLI, UNUSABLE, sure=LIKELY),
)
PROBLEMS = tuple(message.problem for message in MESSAGES)
