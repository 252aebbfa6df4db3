"""What a text shows as configured or created against what is in effect where the program runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

NOT_IN_EFFECT = Problem(
    id="kernel-options-not-in-effect",
    title="Kernel options in GRUB's file are not on the kernel's command line",
    why="The kernel was started without them. The configuration was not generated again after the change, or another boot loader "
    "starts the kernel, such as systemd-boot, which does not read GRUB's file.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Show the options of the running kernel", "cat /proc/cmdline"),
        Fix(
            "Generate GRUB's configuration again, then reboot",
            "sudo update-grub || sudo grub2-mkconfig -o /boot/grub2/grub.cfg",
            verify="cat /proc/cmdline",
            where="host",
            kind="set",
            reboot=True,
            needs=("root",),
        ),
    ),
    references=("https://docs.kernel.org/admin-guide/kernel-parameters.html",),
)
WITH_SYSTEMD_BOOT = (
    Fix(
        "Add the options to the line in /etc/kernel/cmdline (Proxmox with systemd-boot), then reboot",
        "sudo sed -i.bak 's/$/ <kernel_options>/' /etc/kernel/cmdline && sudo proxmox-boot-tool refresh",
        verify="cat /proc/cmdline",
        undo="sudo mv /etc/kernel/cmdline.bak /etc/kernel/cmdline && sudo proxmox-boot-tool refresh",
        where="host",
        kind="set",
        reboot=True,
        needs=("root",),
    ),
    Fix(
        "Add them to the line 'options' of the entry in /boot/loader/entries (other systems with systemd-boot), then reboot",
    ),
)
STATIC = Problem(
    id="kubelet-cpu-manager-takes-gpu",
    title="kubelet's static CPU manager takes the GPU away from containers",
    why="With cpuManagerPolicy static, kubelet updates the cgroup of each container repeatedly. The update sets the device "
    "rules that kubelet knows, and those that NVIDIA's hook added are lost.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Let the device plugin pass the device nodes to kubelet (with the GPU operator, use CDI instead)",
            "helm upgrade -i nvdp nvdp/nvidia-device-plugin -n nvidia-device-plugin --reuse-values "
            "--set compatWithCPUManager=true",
            verify="kubectl get pods -n nvidia-device-plugin",
            kind="manual",
        ),
        Fix(
            "If the plugin is a manifest: set PASS_DEVICE_SPECS=true in its environment, and privileged: true in its "
            "securityContext, then create the pods again"
        ),
        Fix("Use cpuManagerPolicy: none instead, after removing /var/lib/kubelet/cpu_manager_state"),
    ),
    references=("https://github.com/NVIDIA/k8s-device-plugin#configuration-option-details",),
)
NO_UVM = Problem(
    id="container-without-uvm-node",
    title="The container has the GPU's nodes, but not /dev/nvidia-uvm",
    why="nvidia-smi does not need this node, CUDA does. An engine passes the nodes that exist when it creates the container, and "
    "the driver creates /dev/nvidia-uvm only when a program first uses CUDA.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "On the host: create the node, also at each boot before the containers start",
            "sudo nvidia-modprobe -u -c=0 && ls -l /dev/nvidia-uvm",
            where="host",
            kind="set",
            needs=("root",),
        ),
        Fix(
            "Create the container again; if the node is still missing, name it",
            "<docker> run <all_gpus> --device /dev/nvidia-uvm --device /dev/nvidia-uvm-tools <image>",
            engines=("docker", "podman"),
            kind="manual",
        ),
    ),
    references=("https://github.com/ollama/ollama/issues/17226",),
)
OF_ANOTHER = Problem(
    id="arch-module-package-of-another-kernel",
    title="The NVIDIA module's package is for another kernel than the running one",
    why="Arch's packages nvidia-open and nvidia hold a module for the kernel of the package linux, those with -lts for "
    "linux-lts. Any other kernel (zen, hardened, cachyos) needs the package with -dkms, which builds it.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Replace it with the package that builds the module, with the headers of the running kernel",
            "sudo pacman -S nvidia-open-dkms <headers>",
            verify="dkms status",
            where="host",
            kind="install",
            on=("arch",),
            needs=("root", "network"),
        ),
        Fix("Boot the kernel of the package linux instead, for which the module is installed"),
    ),
    references=("https://wiki.archlinux.org/title/NVIDIA#Installation",),
)
PROBLEMS = (NOT_IN_EFFECT, STATIC, NO_UVM, OF_ANOTHER)

_IN_GRUB = re.compile(
    r"""
    ^[ \t]*(?:\S*grub:)?GRUB_CMDLINE_LINUX(?:_DEFAULT)?=
    ["']?(?P<options>[^"'\n]*)
    """,
    re.MULTILINE | re.VERBOSE,
)
_RUNNING = re.compile(
    r"""
    ^[^\n]*\bcat\ /proc/cmdline[ \t]*\n(?P<shown>[^\n]+)
    | \b(?:Kernel\ )?[Cc]ommand\ line:\ (?P<logged>[^\n]+)
    """,
    re.MULTILINE | re.VERBOSE,
)
_OF_DRIVERS = re.compile(
    r"""
    (?: intel_iommu | amd_iommu | iommu | vfio-pci\.\w+ | nvidia[\w-]*\.\w+ | nouveau\.\w+ | pci | pcie_\w+
      | (?:rd\.driver|modprobe)\.blacklist | module_blacklist | systemd\.unified_cgroup_hierarchy ) = \S+
    """,
    re.VERBOSE,
)
_STARTED_AGAIN = re.compile(
    r"""
    \brebooted\b | \bafter\ (?:a\ |the\ |my\ |several\ )?re-?boot
    | (?:^[^\n]*[\#$]\ |&&\ )(?:sudo\ )?(?:systemctl\ )?reboot\b | \bproxmox-boot-tool\ status\b
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_BY_SYSTEMD_BOOT = re.compile(r"initrd=\\|configured with: uefi|systemd-boot|/boot/loader/entries")


def not_in_effect(facts: Facts) -> Iterator[Finding]:
    """An option is in /etc/default/grub and not on the running command line, although the machine was started again."""
    text = "\n".join(passages(facts))
    wanted = [option for match in _IN_GRUB.finditer(text) for option in _OF_DRIVERS.findall(match["options"])]
    running = [match["shown"] or match["logged"] for match in _RUNNING.finditer(text)]
    lost = [option for option in dict.fromkeys(wanted) if running and option not in running[-1].split()]
    if not lost or not _STARTED_AGAIN.search(text):
        return
    words = f"{' '.join(lost)} in GRUB's file is not in /proc/cmdline"
    is_systemd_boot = bool(_BY_SYSTEMD_BOOT.search(text))
    words += ", and systemd-boot starts this kernel" if is_systemd_boot else ""
    problem = replace(NOT_IN_EFFECT, fixes=WITH_SYSTEMD_BOOT) if is_systemd_boot else NOT_IN_EFFECT
    yield problem.found(words, {"kernel_options": " ".join(lost)}, confidence=Confidence.LIKELY)


_STATIC = re.compile(r"--cpu-manager-policy[= ]static\b|\bcpuManagerPolicy: ?[\"']?static\b")
_LOST = re.compile(
    r"""
    Failed\ to\ initialize\ NVML:\ Unknown\ Error | NVML_ERROR_UNKNOWN | CUDA\ unknown\ error
    | cuInit[^\n]*\b(?:999|100)\b
    """,
    re.VERBOSE,
)


def static_cpu_manager(facts: Facts) -> Iterator[Finding]:
    """kubelet has the policy static, and a container cannot open its GPU any more."""
    text = "\n".join(passages(facts))
    if _STATIC.search(text) and _LOST.search(text) and "PASS_DEVICE_SPECS" not in text and "compatWithCPUManager" not in text:
        words = "kubelet's CPU manager has the policy static, and a container can no longer open its GPU"
        yield STATIC.found(words, confidence=Confidence.LIKELY)


_PROMPT = re.compile(r"(?m)^(?:\S*[^\n#$]{0,60}[$#❯›]|PS [^\n>]*>) (?P<command>[^\n]+)\n")
_NODES = re.compile(
    r"""
    (?: ^c[rwx-]{9}\S?\ [^\n]*[\ /] | ^/dev/ | ^ )
    ( nvidia(?:\d+|ctl|-uvm|-modeset) )[ \t]*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_INSIDE = re.compile(r"\b(?:docker|podman|kubectl|nerdctl|crictl)\b[^\n]*\b(?:exec|run)\b")
_CUDA_FAILS = re.compile(
    r"""
    \(999\) | error\ 999\b | cudaErrorUnknown | unknown\ error | is_available\(\) | no\ CUDA-capable | cuInit | library=cpu
    """,
    re.IGNORECASE | re.VERBOSE,
)


def no_uvm_inside(facts: Facts) -> Iterator[Finding]:
    """A listing inside a container has the GPU's nodes without nvidia-uvm, and that of the host has it."""
    text = "\n".join(passages(facts))
    prompts = list(_PROMPT.finditer(text))
    inside: set[str] = set()
    outside: set[str] = set()
    for match, following in zip(prompts, [*prompts[1:], None], strict=False):
        if not re.search(r"\bls\b[^\n]*/dev", match["command"]):
            continue
        listed = set(_NODES.findall(text[match.end() : following.start() if following else len(text)]))
        (inside if _INSIDE.search(match["command"]) else outside).update(listed)
    if "nvidiactl" in inside and "nvidia-uvm" not in inside and "nvidia-uvm" in outside and _CUDA_FAILS.search(text):
        words = "the container has /dev/nvidiactl, but not /dev/nvidia-uvm, which the host has"
        yield NO_UVM.found(words, confidence=Confidence.LIKELY)


_PACKAGE = re.compile(r"(?m)^(?:local/|extra/)?nvidia(?:-open)?(?P<lts>-lts)? \d{3}\.[\w.:-]+")
_BUILDS = re.compile(r"\bnvidia\S*-dkms\b|linux-\S+-nvidia")
_OWN_KERNEL = re.compile(
    r"""
    ^linux-(?P<flavour> (?!api-|firmware|docs|tools|lts\b)[a-z][\w-]*? )
    (?:-headers)?\ \d
    """,
    re.MULTILINE | re.VERBOSE,
)
_NOT_FOUND = re.compile(r"Module nvidia\S* not found in directory /lib/modules/(?P<kernel>\S+)")


def module_of_another_package(facts: Facts) -> Iterator[Finding]:
    """Arch's package with the built module is installed, and a kernel of another package runs."""
    text = "\n".join(passages(facts))
    missing, package = _NOT_FOUND.search(text), _PACKAGE.search(text)
    if not missing or not package or _BUILDS.search(text):
        return
    kernel = missing["kernel"]
    own = bool(re.search(r"-lts$" if package["lts"] else r"-?arch\d", kernel))
    if own or not known(lambda: facts.system.kernel, kernel).startswith(kernel.split("-")[0]):
        return
    flavour = next((match["flavour"] for match in _OWN_KERNEL.finditer(text) if match["flavour"] in kernel), "")
    words = f"{package[0].split(' ')[0]} holds the module for linux{package['lts'] or ''}, and {kernel} is running"
    evidence = {"kernel": kernel, **({"headers": f"linux-{flavour}-headers"} if flavour else {})}
    yield OF_ANOTHER.found(words, evidence, confidence=Confidence.LIKELY)


RULES = (not_in_effect, static_cpu_manager, no_uvm_inside, module_of_another_package)
