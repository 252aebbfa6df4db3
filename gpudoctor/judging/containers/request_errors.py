"""What is said of a request for a GPU that cannot be met as it was made, and of its CDI specification. Pure."""

from __future__ import annotations

from gpudoctor.judging.containers.driver_errors import ISSUES, OLD_ISSUES, RUN, UPGRADE
from gpudoctor.model import Action, Fix, Problem, fix_on

DOCTOR = "nvidia-ctk --debug cdi generate --output=/dev/null"
REWRITE_ALL = Fix(
    "Write it again where it lies, in /etc/cdi or /var/run/cdi",
    "for file in $(grep -ls nvidia.com/gpu /etc/cdi/* /var/run/cdi/*); do sudo nvidia-ctk cdi generate --output=$file; done",
    verify="nvidia-ctk cdi list",
)
NO_SMI = Problem(
    id="container-nvidia-smi-not-brought-in",
    title="nvidia-smi was not brought into the container",
    why="No image has nvidia-smi: it comes from the host with the driver, if a GPU was really given, if the capability "
    "utility is "
    "among NVIDIA_DRIVER_CAPABILITIES, and if the host has it itself. One of the three is missing.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "See which: no /dev/nvidiactl means that no GPU was given; else look at the capabilities",
            "docker run --rm --gpus all --entrypoint sh <image> -c 'ls /dev/nvidia*; env | grep NVIDIA; command -v nvidia-smi'",
        ),
        Fix("With the capability", "docker run --rm --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility <image> nvidia-smi"),
        *fix_on(
            "If the host itself has no nvidia-smi: install it, in the version of its driver",
            debian="apt-cache search '^nvidia-(utils|smi)'",
            rhel="dnf provides '*/bin/nvidia-smi'",
        ),
    ),
    references=(f"{OLD_ISSUES}/1668", "https://github.com/NVIDIA/nvidia-container-runtime/issues/190"),
)
QUOTING = Problem(
    id="container-gpus-misquoted",
    title="The list of GPUs lost its quotes on the way to Docker",
    why="The value of --gpus is itself a list with commas: without quotes within the quotes the second GPU is read as a count.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Both kinds of quotes", "docker run --rm --gpus '\"device=0,1\"' <image> nvidia-smi"),
        Fix("In a compose file: device_ids or count, never both"),
    ),
    references=(f"{OLD_ISSUES}/1026", f"{OLD_ISSUES}/1257"),
)
NO_VENDOR = Problem(
    id="cdi-names-no-gpu-vendor",
    title="No CDI specification of this machine describes a GPU",
    why="For --gpus this engine looks whose GPUs the specifications describe, and found neither NVIDIA's nor AMD's: the machine "
    "has no such GPU, or nobody wrote the specification.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "With an NVIDIA GPU: write it",
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            verify="nvidia-ctk cdi list",
        ),
        Fix("Without one (Intel's graphics, for example): leave out --gpus", "docker run --rm <image>"),
    ),
    references=("https://github.com/ShaneIsrael/fireshare/issues/689", "https://github.com/containerd/nerdctl/pull/4728"),
)
REFUSED_VARIABLE = Problem(
    id="nvidia-visible-devices-refused",
    title="The toolkit is told not to take GPUs from NVIDIA_VISIBLE_DEVICES",
    why="The image or the command sets the variable, and config.toml allows that only to privileged containers (as on nodes of "
    "Kubernetes, where everybody could help himself to all GPUs). The container is refused.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Without a GPU: take the variable away", "docker run --rm -e NVIDIA_VISIBLE_DEVICES=void <image>"),
        Fix(
            "With one: allow it, on a machine where all users may have all GPUs",
            "sudo nvidia-ctk config --in-place --set accept-nvidia-visible-devices-envvar-when-unprivileged=true",
            verify=RUN,
        ),
    ),
    references=("https://github.com/NVIDIA/k8s-device-plugin/issues/203",),
)
AUTOMATIC = Problem(
    id="runtime-cdi-specification-failed",
    title="NVIDIA's runtime could not make the CDI specification that it uses itself",
    why="runtime.nvidia.com is the runtime's own name for a specification that it makes in memory at each start. The files in "
    "/etc/cdi play no part in it. Making it failed, and the reason stands in its log only.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See the reason: this makes the same one, and throws it away", DOCTOR),
        Fix(
            "Until that is solved: in the older way",
            "sudo nvidia-ctk config --in-place --set nvidia-container-runtime.mode=legacy",
            verify=RUN,
        ),
    ),
    references=(f"{ISSUES}/1537",),
)
UNREADABLE = Problem(
    id="container-requirement-unreadable",
    title="NVIDIA's toolkit cannot read what the image demands of the driver",
    why="The image says in NVIDIA_REQUIRE_CUDA which driver it needs, and the toolkit does not understand it: the image has "
    "written it wrongly, or uses words that an old toolkit does not know (cuda>=10.0 brand=tesla,driver>=384,driver<385).",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See what it demands", "docker inspect -f '{{join .Config.Env \"\\n\"}}' <image> | grep NVIDIA_REQUIRE"),
        Fix(
            "Start it without the demand (in a compose file: under environment)",
            "docker run --rm --gpus all -e NVIDIA_DISABLE_REQUIRE=1 <image>",
        ),
        UPGRADE,
    ),
    references=("https://github.com/mudler/LocalAI/issues/4789", f"{OLD_ISSUES}/829"),
)
HOOK_FAILED = Problem(
    id="cdi-hook-failed",
    title="A hook that the CDI specification names has failed",
    why="The specification calls a program of the toolkit with arguments of the version that wrote it. After an upgrade of the "
    "toolkit or the driver they may not fit any more. The engine does not pass on what the hook said.",
    action=Action.FIX_CONFIG,
    fixes=(
        REWRITE_ALL,
        Fix(
            "See what the hook says: run the engine's runtime with its log",
            "podman --log-level=debug run --rm --device nvidia.com/gpu=all <image> true",
        ),
    ),
    references=("https://github.com/ublue-os/bluefin/issues/3454",),
)
NO_CDI_HOOK = Problem(
    id="cdi-hook-missing",
    title="The CDI specification names a program of the toolkit that is not there",
    why="The hooks of a specification are run on the host. The program was moved, renamed (nvidia-ctk became nvidia-cdi-hook) or "
    "removed, or the distribution's package leaves it out.",
    action=Action.INSTALL,
    fixes=(
        *fix_on(
            "Install the package that has it, then write the specification again",
            verify="nvidia-ctk cdi list",
            needs=("network",),
            debian=f"sudo apt install --reinstall nvidia-container-toolkit-base && {REWRITE_ALL.command}",
            rhel=f"sudo dnf reinstall nvidia-container-toolkit-base && {REWRITE_ALL.command}",
            suse=f"sudo zypper install --force nvidia-container-toolkit && {REWRITE_ALL.command}",
            arch=f"sudo pacman -S nvidia-container-toolkit && {REWRITE_ALL.command}",
        ),
        Fix(
            "See what is there",
            "command -v nvidia-cdi-hook nvidia-ctk; grep -h 'path: .*nvidia-c' /etc/cdi/* /var/run/cdi/* | sort -u",
        ),
    ),
    references=("https://github.com/void-linux/void-packages/issues/55062",),
)
