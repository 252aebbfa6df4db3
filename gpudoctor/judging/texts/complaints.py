"""Problems of computers and monitoring that only a person's words name. Pure."""

from __future__ import annotations

from gpudoctor.model import Action, Fix, Problem, Status

SWITCHES_OFF = Problem(
    id="machine-switches-off-under-load",
    title="The computer switches off or restarts under GPU load",
    why="No driver does that. At peaks of load the power supply protects itself, a cable or plug is overloaded, or a part gets "
    "too hot. Peaks of milliseconds reach twice the power limit of a GPU, and several GPUs add up.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        Fix(
            "Test whether power is the cause: limit the clocks of all GPUs, which lowers the peaks, then load them again",
            "sudo nvidia-smi -lgc 0,1200",
            kind="set",
            on=("host",),
            needs=("root",),
            undo="sudo nvidia-smi -rgc",
        ),
        Fix("If it stays on then: use one cable per plug of a GPU, no splitters, and a stronger power supply"),
        Fix("If it still switches off: watch temperatures until the end", "nvidia-smi dmon -s pucvt", kind="read"),
        Fix(
            "Read the last messages before it went off: hardware errors (MCE) point to CPU, memory or mainboard",
            "sudo journalctl -b -1 -n 100",
            kind="read",
            on=("host",),
            needs=("root",),
        ),
    ),
    references=("https://docs.nvidia.com/deploy/nvidia-smi/index.html",),
)
FANS = Problem(
    id="fan-speed-not-settable",
    title="The fan speed cannot be set: Coolbits or root's rights are missing",
    why="nvidia-settings changes fans and clocks only in an X session with the option Coolbits on this GPU, and since driver 570 "
    "only as root. Under Wayland and on laptops, where the firmware controls the fans, it cannot set them.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "In an X session: enable Coolbits for fans and clocks, then log out and in",
            "sudo nvidia-xconfig --enable-all-gpus --cool-bits=28",
            kind="set",
            on=("host",),
            needs=("root",),
            verify="nvidia-settings -q GPUFanControlState",
        ),
        Fix("With driver 570 or newer: start nvidia-settings or the fan tool as root"),
        Fix("Under Wayland or without a display: use a tool that sets fans by NVML, such as LACT or CoolerControl"),
    ),
    references=("https://download.nvidia.com/XFree86/Linux-x86_64/580.65.06/README/xconfigoptions.html",),
)
NO_PODS = Problem(
    id="dcgm-exporter-without-pod-names",
    title="dcgm-exporter does not name the pods that use the GPUs",
    why="It asks the kubelet which pod was assigned which GPU. Pods that request no nvidia.com/gpu are not in that list, and the "
    "exporter needs DCGM_EXPORTER_KUBERNETES=true and the folder of the kubelet's socket.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Let each pod that computes request the GPU: resources.limits with nvidia.com/gpu"),
        Fix(
            "Show whether the exporter has the variable and the kubelet's folder /var/lib/kubelet/pod-resources",
            "kubectl get daemonset -A -o yaml | grep -E 'DCGM_EXPORTER_KUBERNETES|pod-resources'",
            kind="read",
        ),
        Fix("If the kubelet has another folder (k0s, MicroK8s): mount its pod-resources folder at that path in the exporter"),
    ),
    references=("https://github.com/NVIDIA/dcgm-exporter",),
)
HIDDEN = Problem(
    id="gpu-processes-hidden",
    title="nvidia-smi in a container or in WSL does not list processes",
    why="The driver knows the process numbers of the host. In the PID namespace of a container they mean nothing, so the list "
    "stays empty, and Windows gives WSL no list at all. The GPU is not affected.",
    action=Action.NONE,
    status=Status.WARN,
    fixes=(
        Fix("List the processes on the host", "nvidia-smi", kind="read", where="host"),
        Fix(
            "If the container has to see them: start it in the host's PID namespace",
            "<docker> run <all_gpus> --pid=host <image> nvidia-smi",
            kind="manual",
            engines=("docker", "podman"),
        ),
        Fix("In a pod: set hostPID: true in its spec, if the cluster allows it"),
    ),
    references=("https://github.com/NVIDIA/nvidia-docker/issues/179",),
)
RISER = Problem(
    id="riser-link-fails",
    title="The riser or extension does not carry the PCIe link of the GPU",
    why="Risers, ribbon cables and adapters weaken the signal. The link then does not come up, so that the GPU is missing, or it "
    "breaks down under load. A riser without its own power plug is another cause.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        Fix("Test the GPU without the riser, directly in a slot: if it works there, the riser is the cause"),
        Fix("In the firmware setup: set the slot to PCIe Gen 2 or Gen 3 instead of auto, and connect the riser's power plug"),
        Fix(
            "Show whether the GPU is on the bus, and with which link",
            "sudo lspci -vv -d 10de: | grep -E 'VGA|3D|LnkSta:'",
            kind="read",
            on=("host",),
            needs=("root",),
        ),
        Fix("If it works at a lower generation only: use a shorter or better riser"),
    ),
    references=("https://github.com/Cyclenerd/ethereum_nvidia_miner/issues/40",),
)
COPIED = Problem(
    id="frames-copied-between-gpus",
    title="The monitor is on the GPU that does not draw, so frames are copied",
    why="In a laptop each output belongs to one of the two GPUs: HDMI often to the NVIDIA GPU, USB-C to the integrated one. "
    "In hybrid mode the frames of outputs of the other GPU are copied, which costs rate and smoothness.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Show which outputs are connected, and to which GPU each card belongs",
            "grep -H . /sys/class/drm/card*-*/status; ls -l /dev/dri/by-path",
            kind="read",
            on=("host",),
        ),
        Fix("Connect the monitor to an output of the GPU that draws: another port of the laptop or dock"),
        Fix("Let the NVIDIA GPU draw everything: choose the mode nvidia in the graphics mode tool or the firmware, then reboot"),
    ),
    references=("https://download.nvidia.com/XFree86/Linux-x86_64/580.65.06/README/randr14.html",),
)
PROBLEMS = (SWITCHES_OFF, FANS, NO_PODS, HIDDEN, RISER, COPIED)
