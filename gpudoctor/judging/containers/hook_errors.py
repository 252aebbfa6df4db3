"""What NVIDIA's hooks say when the driver is well and they still cannot bring it into a container. Pure."""

from __future__ import annotations

from gpudoctor.judging.containers.driver_errors import ISSUES, LIBRARY_ISSUES, OLD_ISSUES, RUN, UPGRADE
from gpudoctor.model import Action, Fix, Problem, fix_on

GENERATE = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
FILTER = Problem(
    id="container-device-filter-rejected",
    title="The kernel rejects the device rules that NVIDIA's toolkit makes",
    why="With cgroup v2 the legacy hook adds the GPU to a small program in the kernel that says which devices a container may "
    "open. The kernel did not accept the program that it made. It has nothing to do with rights, or with a rootless engine.",
    action=Action.INSTALL,
    fixes=(
        UPGRADE,
        Fix(
            "By CDI, with which the engine makes the rules (Docker 28.2 or later)",
            f"{GENERATE} && docker run --rm --device nvidia.com/gpu=all <image>",
        ),
    ),
    references=(f"{LIBRARY_ISSUES}/256",),
)
RULES = Problem(
    id="container-device-rules-refused",
    title="NVIDIA's toolkit may not write the GPU's device rules",
    why="The kernel forbids it to change the container's cgroup, although Docker runs as root: Docker itself is in a container "
    "(LXC, Docker in Docker) whose rights are limited.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See whether Docker runs in a container: anything but none", "systemd-detect-virt --container; cat /proc/1/cgroup"),
        Fix(
            "Tell the toolkit not to write device rules: the outer container's rules count",
            "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true --in-place",
            verify=RUN,
        ),
        UPGRADE,
    ),
    references=("https://github.com/gpustack/gpustack/issues/391",),
)
LDCONFIG_FAILED = Problem(
    id="container-ldconfig-failed",
    title="ldconfig ran for NVIDIA's toolkit, and failed",
    why="The toolkit shuts ldconfig off by seccomp and runs it on the container's files. Kernels without seccomp (self-made, "
    "Yocto) refuse that; an image whose /etc cannot be written, or a full disk, make ldconfig itself fail.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See whether the kernel has seccomp", "grep Seccomp_filters /proc/self/status; zgrep SECCOMP /proc/config.gz"),
        Fix("If it has not: boot a kernel with CONFIG_SECCOMP=y and CONFIG_SECCOMP_FILTER=y"),
        Fix("If it has: see what ldconfig says", "docker run --rm --entrypoint ldconfig <image>"),
    ),
    references=(f"{OLD_ISSUES}/552", f"{ISSUES}/1357"),
)
LDCONFIG_SECCOMP = Problem(
    id="container-ldconfig-forbidden-call",
    title="The kernel ended ldconfig for a call that NVIDIA's toolkit forbids it",
    why="Signal 31 is SIGSYS: ldconfig made a call that is not on the toolkit's list. A 32-bit ldconfig on a 64-bit machine "
    "makes only such calls; an old toolkit does not know those of a new glibc.",
    action=Action.INSTALL,
    fixes=(
        Fix("See which it is: the file must be 64-bit", "file -L /sbin/ldconfig.real /sbin/ldconfig"),
        Fix("Where it is 32-bit, on Debian and Ubuntu: take the 64-bit one", "sudo apt install libc-bin:amd64", verify=RUN),
        UPGRADE,
    ),
    references=(f"{OLD_ISSUES}/1456",),
)
LDCONFIG_KILLED = Problem(
    id="container-ldconfig-killed",
    title="ldconfig was killed while NVIDIA's toolkit ran it",
    why="Signal 9 comes from outside: the kernel was out of memory, or ldconfig used more processor time or memory than the "
    "toolkit allows it, which a broken link or a very large library in the image can be the reason of.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See whether memory ran out", "sudo dmesg | grep -iE 'out of memory|killed process' | tail"),
        Fix("Try again, also with another image", RUN),
    ),
    references=(f"{ISSUES}/1246",),
)
MODESET = Problem(
    id="nvidia-modeset-node-missing",
    title="There is no /dev/nvidia-modeset, which a container with a display needs",
    why="The image or the command asks for the capability display (or all), which takes the node of the module nvidia-modeset. "
    "On a machine without a screen nobody makes it.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Make it", "sudo nvidia-modprobe -m", verify="ls -l /dev/nvidia-modeset"),
        Fix(
            "Do without a display: computing needs two",
            "docker run --rm --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility <image>",
        ),
    ),
    references=("https://github.com/NVIDIA/libnvidia-container/pull/388",),
)
UVM = Problem(
    id="nvidia-uvm-node-missing",
    title="A device node of the driver is missing where the engine runs",
    why="/dev/nvidia-uvm and its like come with the module nvidia-uvm, which is loaded when CUDA is first used after a boot: "
    "nobody did yet, or the driver was changed since.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Load the module and make the nodes", "sudo nvidia-modprobe -u -c=0", verify="ls -l /dev/nvidia-uvm*"),
        Fix(
            "For good, at each boot",
            "sudo systemctl enable --now nvidia-persistenced; echo nvidia-uvm | sudo tee /etc/modules-load.d/nvidia-uvm.conf",
        ),
    ),
    references=(f"{OLD_ISSUES}/145",),
)
KNOWN_FAULT = Problem(
    id="container-toolkit-known-fault",
    title="This version of NVIDIA's toolkit has a fault that newer ones do not have",
    why="The words are those of a fault that was reported and mended; the driver and the image are well.",
    action=Action.INSTALL,
    fixes=(
        *fix_on(
            "Upgrade the toolkit",
            verify=RUN,
            debian="sudo apt update && sudo apt install nvidia-container-toolkit libnvidia-container1",
            rhel="sudo dnf upgrade nvidia-container-toolkit libnvidia-container1",
            suse="sudo zypper update nvidia-container-toolkit libnvidia-container1",
            arch="sudo pacman -Syu nvidia-container-toolkit",
        ),
        Fix("See which version it is", "nvidia-ctk --version; nvidia-container-cli --version"),
    ),
    references=(f"{OLD_ISSUES}/957", f"{ISSUES}/772"),
)
PIVOT = Problem(
    id="container-toolkit-root-in-memory",
    title="The toolkit's hook cannot change its root, as on hosts that run from memory",
    why="Toolkit 1.18.0 changes the root to update the container's list of libraries. The kernel forbids that where the host's "
    "own root is the initramfs (Unraid, machines that boot by network).",
    action=Action.INSTALL,
    fixes=(
        Fix("See whether it is that: rootfs or ramfs, and 1.18.0", "findmnt -no FSTYPE /; nvidia-ctk --version"),
        Fix("Take version 1.17.9, or one after 1.18.0", verify=RUN),
    ),
    references=(f"{ISSUES}/1385",),
)
RUN_MOUNTED = Problem(
    id="container-host-run-mounted",
    title="A mount of the host's /run is in the way of the driver's sockets",
    why="The toolkit brings the sockets of the driver's services to /run in the container. The host's /run or /var/run is "
    "mounted "
    "there, so that it meets the host's own sockets.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Mount only what is needed: not /run, but one file or folder",
            "docker run --rm --gpus all -v /run/docker.sock:/run/docker.sock <image>",
        ),
        Fix("See where it is mounted: in the compose file, or in the command", "docker inspect -f '{{json .Mounts}}' CONTAINER"),
    ),
    references=(f"{OLD_ISSUES}/1690",),
)
WRONG_HOOK = Problem(
    id="nvidia-hook-is-another-program",
    title="What is installed as NVIDIA's hook is another program",
    why="The engine called the hook, and it does not know the step that every hook knows: packages of different versions were "
    "mixed, or a file was copied or linked by hand.",
    action=Action.INSTALL,
    fixes=(
        *fix_on(
            "Install the packages anew, all of one version",
            verify=RUN,
            needs=("network",),
            debian="sudo apt install --reinstall nvidia-container-toolkit nvidia-container-toolkit-base "
            "libnvidia-container-tools",
            rhel="sudo dnf reinstall nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools",
            suse="sudo zypper install --force nvidia-container-toolkit libnvidia-container-tools",
            arch="sudo pacman -S nvidia-container-toolkit libnvidia-container",
        ),
        Fix("See what lies there", "ls -l /usr/bin/nvidia-container*; nvidia-container-runtime-hook --version"),
    ),
    references=(f"{ISSUES}/14",),
)
TOOLS = fix_on(
    "Install them",
    verify="nvidia-container-cli info",
    needs=("network",),
    debian="sudo apt install --reinstall libnvidia-container-tools libnvidia-container1 && sudo ldconfig",
    rhel="(sudo dnf reinstall libnvidia-container-tools libnvidia-container1 || sudo dnf install libnvidia-container-tools) "
    "&& sudo ldconfig",
    suse="sudo zypper install --force libnvidia-container-tools && sudo ldconfig",
    arch="sudo pacman -S libnvidia-container && sudo ldconfig",
)
NO_CLI = Problem(
    id="nvidia-container-cli-missing",
    title="nvidia-container-cli is not where the engine looks for it",
    why="This program, of the package libnvidia-container-tools, brings the driver into containers. It is not installed on the "
    "engine's machine, or not on the PATH of who called it.",
    action=Action.INSTALL,
    fixes=(
        *TOOLS,
        Fix(
            "Where the GPU operator put it: add its folder to the PATH of the engine (nerdctl: of this shell)",
            "export PATH=$PATH:/usr/local/nvidia/toolkit",
            verify="nvidia-container-cli info",
        ),
    ),
    references=(f"{OLD_ISSUES}/1364", "https://github.com/containerd/nerdctl/issues/2716"),
)
NO_LIBRARY = Problem(
    id="libnvidia-container-missing",
    title="nvidia-container-cli does not find its own library",
    why="The program is installed; the library that it needs is not, or the loader's list does not have it yet. The container "
    "has no part in it.",
    action=Action.INSTALL,
    fixes=(*TOOLS, Fix("See what is missing", "ldd $(command -v nvidia-container-cli) | grep 'not found'")),
    references=("https://github.com/NVIDIA/gpu-rest-engine/issues/35",),
)
OLD_DOCKER = Problem(
    id="engine-too-old-for-toolkit",
    title="The engine is too old for this version of NVIDIA's toolkit",
    why="The toolkit cannot read the description of the container that the engine gives it: Docker 1.13, of CentOS 7's own "
    "packages, writes it in an old form.",
    action=Action.INSTALL,
    fixes=(
        Fix("See which it is", "docker version; nvidia-container-cli --version"),
        Fix("Put Docker's own packages in place of the distribution's, as its guide describes", verify=RUN),
    ),
    references=("https://github.com/NVIDIA/nvidia-container-runtime/issues/105", "https://docs.docker.com/engine/install/"),
)
CSV = Problem(
    id="nvidia-hook-refused-on-jetson",
    title="On a Jetson a GPU is asked for by --runtime=nvidia, not by --gpus",
    why="The toolkit takes a Jetson's driver from lists (mode csv), which only its runtime reads. --gpus calls its hook "
    "directly, "
    "which then does nothing but refuse.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Ask for the GPU by the runtime", "docker run --rm --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all <image>"),
        Fix(
            "In a compose file: 'runtime: nvidia' in place of gpus and devices, then",
            "docker compose up -d --force-recreate",
            "disruptive",
        ),
    ),
    references=("https://github.com/NVIDIA/TensorRT-LLM/issues/799",),
)
HOOK_PROBLEMS = (
    *(FILTER, RULES, LDCONFIG_FAILED, LDCONFIG_SECCOMP, LDCONFIG_KILLED, MODESET, UVM, KNOWN_FAULT, PIVOT, RUN_MOUNTED),
    *(WRONG_HOOK, NO_CLI, NO_LIBRARY, OLD_DOCKER, CSV),
)
