"""What can be wrong when the engine, the toolkit or its hook could not bring a GPU into a container. Pure."""

from __future__ import annotations

from gpudoctor.model import Action, Fix, Problem, fix_on

RUN = "docker run --rm --gpus all ubuntu nvidia-smi"
GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
CDI = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html"

NOT_SELECTED = Problem(
    id="docker-selects-no-gpu-driver",
    title="The Docker daemon found nothing that gives containers a GPU when it started",
    why="For --gpus the daemon looks once, at its start, for the hook of NVIDIA's container toolkit on its PATH. The toolkit is "
    "missing on the daemon's machine, was installed after the daemon had started, or lies where the daemon does not look.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Where the daemon runs: see whether the hook is there, and since when the daemon runs",
            "ls -l --time=ctime $(command -v nvidia-container-runtime-hook); systemctl show docker -p ActiveEnterTimestamp",
        ),
        Fix(
            "If it is there: restart the daemon (and with it its containers)",
            "sudo systemctl restart docker",
            "disruptive",
            verify=RUN,
        ),
        Fix("If it is not: install nvidia-container-toolkit as NVIDIA's guide describes, then restart the daemon", verify=RUN),
    ),
    references=(GUIDE, "https://github.com/NVIDIA/nvidia-docker/issues/1637"),
)

UNRESOLVABLE = Problem(
    id="cdi-device-unresolvable",
    title="The engine finds no CDI device of the name that was asked for",
    why="It says the same for a specification that is missing, that it cannot read (wrong rights, a newer version), and that "
    "does not have this name.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Where the engine runs: write the specification again",
            "sudo systemctl restart nvidia-cdi-refresh || sudo nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml",
            verify="nvidia-ctk cdi list",
        ),
        Fix(
            "See whether the engine may read it, and what it says against it", "ls -l /etc/cdi /var/run/cdi; nvidia-ctk cdi list"
        ),
    ),
    references=(CDI, "https://github.com/NVIDIA/nvidia-container-toolkit/issues/146"),
)

LIBRARIES = Problem(
    id="container-driver-libraries-not-found",
    title="NVIDIA's toolkit finds no driver libraries where it looks for them",
    why="It takes libnvidia-ml.so.1 from the machine that the daemon runs on, and there is none: the driver is not installed, "
    "or only its kernel module is, or the daemon is shut off from it (a snap, a virtual machine).",
    action=Action.INSTALL,
    fixes=(
        Fix("Where the daemon runs: nvidia-smi has to work there first", "nvidia-smi; ldconfig -p | grep libnvidia-ml"),
        Fix("See where the toolkit looks", "grep -E '^ *(root|ldconfig)' /etc/nvidia-container-runtime/config.toml"),
    ),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/154",),
)

REQUIRES = Problem(
    id="container-requires-newer-driver",
    title="The image refuses to start on this driver",
    why="NVIDIA_REQUIRE_CUDA in the image names the CUDA and the drivers that it was made for. The toolkit compares it with the "
    "driver of this machine before the container starts.",
    action=Action.INSTALL,
    fixes=(
        *fix_on(
            "Upgrade the driver",
            recipe="driver <wanted>",
            debian="(sudo apt install nvidia-driver-<wanted> || sudo apt install nvidia-driver) && sudo reboot",
            rhel="sudo dnf upgrade 'nvidia-driver*' 'kmod-nvidia*' && sudo reboot",
            suse="sudo zypper update 'nvidia-*' && sudo reboot",
            arch="sudo pacman -Syu && sudo reboot",
            verify="nvidia-smi",
        ),
        Fix("Upgrade the driver of Windows", on=("wsl2",), verify="nvidia-smi"),
        Fix("Take an image of an older CUDA, which this driver runs", "gpudoctor images list"),
        Fix(
            "Start it without this test. Programs may then fail in CUDA itself (error 35 or 804): only data-centre GPUs run a "
            "newer CUDA, by the image's compatibility package",
            "docker run --rm --gpus all -e NVIDIA_DISABLE_REQUIRE=1 <image>",
        ),
    ),
    references=(
        "https://github.com/NVIDIA/nvidia-container-toolkit/issues/152",
        "https://docs.nvidia.com/deploy/cuda-compatibility/",
    ),
)

_WITHOUT_TEST = REQUIRES.fixes[-1]
ENOUGH = (
    Fix(
        "See which driver the toolkit sees: not the one that nvidia-smi shows",
        "nvidia-container-cli info | head -n 2; nvidia-smi",
    ),
    Fix("Where the driver was upgraded since: reboot, then start it again", "sudo reboot", verify="nvidia-smi"),
    _WITHOUT_TEST,
)
"""Where the driver of this machine has the CUDA that the image wants."""

NO_SUCH_GPU = Problem(
    id="container-gpu-unknown",
    title="A GPU was asked for that this machine does not have",
    why="GPUs are asked for by the number or the UUID that nvidia-smi shows. After a GPU failed, or was moved, or MIG instances "
    "were made anew, the old ones name nothing.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See which there are, and ask for one of them", "nvidia-smi -L"),
        Fix(
            "Where nobody asked for it: see who sets NVIDIA_VISIBLE_DEVICES", "docker image inspect -f '{{.Config.Env}}' <image>"
        ),
    ),
    references=("https://github.com/NVIDIA/nvidia-docker/issues/1283",),
)

DRIVER_IN_IMAGE = Problem(
    id="image-holds-driver-files",
    title="The image holds driver files of its own, which are in the way",
    why="The toolkit brings the libraries of this machine's driver, and finds files of the same names: somebody installed a "
    "driver in the image, or made the image of a container that had a GPU.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Leave the driver out of the image: in its Dockerfile no nvidia-driver-*, libnvidia-*, cuda-drivers, or at its end",
            "RUN rm -f /usr/lib/x86_64-linux-gnu/libcuda.so* /usr/lib/x86_64-linux-gnu/libnvidia-*.so*",
            risk="destructive",
        ),
        Fix(
            "See what is in the way",
            "docker run --rm --entrypoint sh <image> -c 'ls -l /usr/lib/*/libnvidia-*.so* /usr/lib/*/libcuda.so*'",
        ),
    ),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/289",),
)

LDCONFIG = Problem(
    id="container-cli-ldconfig-fails",
    title="NVIDIA's toolkit looks for ldconfig where it is not",
    why="It makes the driver's libraries known in a container. config.toml names a program that this machine does not have: "
    "ldconfig.real is Ubuntu's, others have ldconfig.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Name the one that is there",
            "sudo nvidia-ctk config --in-place --set "
            "nvidia-container-cli.ldconfig=@$(ls /sbin/ldconfig.real 2>/dev/null || echo /sbin/ldconfig)",
            verify=RUN,
        ),
    ),
    references=("https://github.com/NVIDIA/nvidia-docker/issues/614",),
)
