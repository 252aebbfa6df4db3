"""Machines inside of machines in a text: WSL, virtual GPUs and LXC, against what is outside of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.judging.texts.rules.places import is_slow
from gpudoctor.judging.texts.rules.python import is_blind
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.judging.texts.windows import FIRST_BUILD, OLD_WINDOWS, WAYS_OF_WINDOWS, WHY_OLD_WINDOWS, WINDOWS
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

ON_DRIVE = Problem(
    id="wsl-data-on-windows-drive",
    title="The data is on a drive of Windows, which WSL reads slowly",
    why="WSL reads /mnt/c through a network protocol (9p) from Windows. Each opened file costs milliseconds, so the GPU waits "
    "for data sets of many small files. WSL's own file system is about as fast as the disk.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Copy data and code into WSL's own file system, then use them there",
            "mkdir -p ~/data && cp -r <windows_folder> ~/data/",
            verify="df -hT ~/data",
            kind="manual",
        ),
        look("Show on which file system a folder is (9p is Windows')", "df -hT . ~"),
    ),
    references=("https://learn.microsoft.com/windows/wsl/filesystems",),
)
PROBLEMS = (ON_DRIVE,)

_WSL = re.compile(r"\bWSL|microsoft-standard|/usr/lib/wsl")
_ARGUMENT = re.compile(r"(?P<path>/mnt/[c-z]/[^\s'\":;,)]*)")
_AT_WORK = re.compile(
    r"""
    ^[^\n]*\b(?: python3? | torchrun | accelerate | docker | make | ninja | cmake | pip | git )\b[^\n]*/mnt/[c-z]/
    | ^[^\n]{0,60}:/mnt/[c-z]/[^\n]*\$\ ?(?: python | torchrun | accelerate )
    """,
    re.MULTILINE | re.VERBOSE,
)


def data_on_windows_drive(facts: Facts) -> Iterator[Finding]:
    """A program in WSL works on files below /mnt/c and is slow."""
    text = "\n".join(passages(facts))
    path = _ARGUMENT.search(text)
    busy = any(int(number) > 80 for number in re.findall(r"(\d+)%\s+(?:Default|E\. Process)", text))
    if path and _WSL.search(text) and _AT_WORK.search(text) and is_slow(facts) and not busy:
        words = f"the program reads from {path['path']}, a drive of Windows"
        yield ON_DRIVE.found(words, {"windows_folder": path["path"]}, confidence=Confidence.LIKELY)


_VIRTUAL = re.compile(r"\b(?:GRID|NVIDIA) (?:RTX-?)?[A-Z]{0,3}\d{1,4}[A-Z]{0,2}-\d{1,3}[ABCQ]\b")
_LATER = re.compile(
    r"""
    \b(?: after | about | for | within | until )\b[^.\n]{0,30}
      \b(?: \d+\ ?min\w* | several\ minutes | a\ few\ minutes | (?:a|an|some)\ (?:while|hour|time) )
    | \b20\ min
    | \breboot\w*\b[^.\n]{0,40}\b(?:fast|helps?|fine|ok)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LICENSED = re.compile(r"License Status\s*:\s*Licensed")


def slow_after_a_while(facts: Facts) -> Iterator[Finding]:
    """A virtual GPU is fast at first and slow some minutes after the boot, as without a licence."""
    text = "\n".join(passages(facts))
    name = _VIRTUAL.search(text)
    if name and _LATER.search(text) and is_slow(facts) and not _LICENSED.search(text):
        words = f"{name[0]} is a virtual GPU, and it becomes slow some minutes after the boot"
        yield facts.problems["vgpu-unlicensed-throttled"].found(words, confidence=Confidence.LIKELY)


_NO_CGROUPS = re.compile(r"(?m)^\s*no-cgroups\s*=\s*true\b")
_BLOCKED = re.compile(
    r"""
    GPU\ access\ blocked\ by\ the\ operating\ system
    | Failed\ to\ initialize\ NVML:\ Unknown\ Error
    """,
    re.VERBOSE,
)
_ENGINE = re.compile(r"\bdocker (?:run|exec|compose)\b")
_ROOTLESS = re.compile(r"(?i)rootless|systemctl --user|\blxc\b|podman")


def no_cgroups(facts: Facts) -> Iterator[Finding]:
    """The toolkit writes no device rules, and NVML is denied in a container of Docker."""
    text = "\n".join(passages(facts))
    if _NO_CGROUPS.search(text) and _BLOCKED.search(text) and _ENGINE.search(text) and not _ROOTLESS.search(text):
        words = "no-cgroups is true in the toolkit's configuration, so a container gets no permission for the GPU's devices"
        yield facts.problems["no-cgroups-breaks-root-docker"].found(words, confidence=Confidence.LIKELY)


_NO_DRIVER = re.compile(
    r"""
    couldn't\ communicate\ with\ the\ NVIDIA\ driver
    | no\ CUDA-capable\ device
    | /dev/dxg'?:\ No\ such\ file
    """,
    re.VERBOSE,
)


def old_windows(facts: Facts) -> Iterator[Finding]:
    """nvidia-smi in WSL finds no driver, and the build of Windows does not share GPUs."""
    text = "\n".join(passages(facts))
    build = WINDOWS.search(text)
    if build and int(build[1]) < FIRST_BUILD and _WSL.search(text) and (_NO_DRIVER.search(text) or is_blind(facts)):
        problem = replace(facts.problems["wsl-dxg-missing"], title=OLD_WINDOWS, why=WHY_OLD_WINDOWS, fixes=WAYS_OF_WINDOWS)
        words = f"Windows is of build {build[1]}; GPUs are shared with WSL from {FIRST_BUILD}"
        yield problem.found(words, {"build": int(build[1])}, confidence=Confidence.LIKELY)


_MOUNTS = re.compile(
    r"""
    ^[^\n#]*(?:lxc\.mount\.entry[:=]\s*|dev\d+:\s*|mp\d+:\s*)/dev/(?P<node>nvidia[\w-]*)
    """,
    re.MULTILINE | re.VERBOSE,
)
_CTID = re.compile(r"/etc/pve/lxc/(?P<id>\d+)\.conf|\bpct (?:config|enter|exec|start) (?P<other>\d+)")
_WITHOUT_UVM = "The LXC container is not given /dev/nvidia-uvm, which CUDA needs"
_ADD_UVM = Fix(
    "On the host: mount the two nodes and allow their number, then stop and start the container",
    'printf \'%s\\n\' "$(awk \'/ nvidia-uvm$/{print "lxc.cgroup2.devices.allow: c "$1":* rwm"}\' /proc/devices)" '
    "'lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file' "
    "'lxc.mount.entry: /dev/nvidia-uvm-tools dev/nvidia-uvm-tools none bind,optional,create=file' | "
    "sudo tee -a /etc/pve/lxc/<ctid>.conf",
    verify="nvidia-smi",
    where="host",
    needs=("root",),
)


def without_uvm(facts: Facts) -> Iterator[Finding]:
    """The configuration of an LXC container names nodes of the GPU, and not nvidia-uvm."""
    text = "\n".join(passages(facts))
    nodes, number = {match["node"] for match in _MOUNTS.finditer(text)}, _CTID.search(text)
    if "nvidiactl" in nodes and "nvidia-uvm" not in nodes and (is_blind(facts) or "cuInit" in text):
        evidence = {"passed": sorted(nodes), **({"ctid": number["id"] or number["other"]} if number else {})}
        problem = replace(facts.problems["lxc-device-rules-missing"], title=_WITHOUT_UVM, fixes=(_ADD_UVM,))
        words = f"the container's configuration passes {', '.join(sorted(nodes))}, and not nvidia-uvm"
        yield problem.found(words, evidence, confidence=Confidence.LIKELY)


_MODEL = re.compile(
    r"""
    ^Model\ name:\s+(?P<name>[^\n]*(?:QEMU|KVM\ processor|kvm64|qemu64|Virtual\ CPU)[^\n]*)$
    | -cpu\ (?P<type>kvm64|qemu64)
    """,
    re.MULTILINE | re.VERBOSE,
)
_FLAGS = re.compile(r"(?m)^(?:Flags|flags)\s*:\s*(?P<flags>[^\n]*\bhypervisor\b[^\n]*)$")
_AS_HOST = (
    Fix(
        "On the Proxmox host, with the virtual machine shut down: pass the host's CPU through, then start it again",
        "qm set <vmid> --cpu host",
        verify="qm config <vmid> | grep cpu",
        risk="disruptive",
        where="host",
        kind="manual",
    ),
    Fix("With libvirt: set <cpu mode='host-passthrough'/> in the definition of the virtual machine, then start it again"),
)


def cpu_of_guest(facts: Facts) -> Iterator[Finding]:
    """The CPU of a virtual machine has no AVX, and a program leaves the GPU unused."""
    text = "\n".join(passages(facts))
    model, flags = _MODEL.search(text), _FLAGS.search(text)
    if model and flags and not re.search(r"\bavx\b", flags["flags"]) and facts.shown.ollama_on_cpu:
        words = f"the CPU of the virtual machine, {model['name'] or model['type']}, has no AVX, which Ollama needs to use the GPU"
        problem = replace(facts.problems["cpu-lacks-instructions"], title=GUEST_WITHOUT_AVX, fixes=_AS_HOST)
        yield problem.found(words, {"lacks": "avx"}, confidence=Confidence.LIKELY)


GUEST_WITHOUT_AVX = "The virtual machine's CPU type hides AVX from the program"
_GUEST = re.compile(
    r"""
    NVIDIA-Linux-\S+?-(?P<major>\d{3})\.[\d.]+-grid
    | (?i:\bguest\b)[^\n]{0,60}?\b(?P<other>\d{3})\.\d+(?:\.\d+)?
    """,
    re.VERBOSE,
)
_MANAGER = re.compile(
    r"""
    -(?P<major>\d{3})\.[\d.]+-vgpu-kvm
    | (?i:\bhost\b)[^\n]{0,60}?\b(?P<other>\d{3})\.\d+(?:\.\d+)?
    """,
    re.VERBOSE,
)


def guest_newer_than_host(facts: Facts) -> Iterator[Finding]:
    """The GRID driver in the guest is of a newer branch than the vGPU manager of the host."""
    text = "\n".join(passages(facts))
    guest, host = _GUEST.search(text), _MANAGER.search(text)
    if guest and host and re.search(r"(?i)\bvgpu\b", text):
        own, manager = int(guest["major"] or guest["other"]), int(host["major"] or host["other"])
        if own > manager:
            words = f"the guest has driver branch {own}, and the host's vGPU manager is of branch {manager}"
            yield facts.problems["vgpu-guest-driver-incompatible"].found(words, confidence=Confidence.LIKELY)


_MANAGER_IN_GUEST = re.compile(
    r"""
    (?i:install\w*|ran|running|used?)\b[^\n]{0,120}? (?P<file>NVIDIA-Linux-\S+?-vgpu-kvm\S*) [^\n]{0,120}?
    (?i:(?:in|inside|on)\ (?:the|my|a|our)\ (?:\w+\ )?(?:guest|vm|virtual\ machine))
    """,
    re.VERBOSE,
)


def manager_in_guest(facts: Facts) -> Iterator[Finding]:
    """The package for the host was installed in the virtual machine."""
    found = next(filter(None, map(_MANAGER_IN_GUEST.search, passages(facts))), None)
    if found:
        file = found["file"].rstrip(").,")
        words = f"{file} is the vGPU manager for the host; a virtual machine needs the package that ends in -grid"
        yield facts.problems["vgpu-guest-driver-incompatible"].found(words, confidence=Confidence.LIKELY)


RULES = (
    cpu_of_guest,
    guest_newer_than_host,
    manager_in_guest,
    data_on_windows_drive,
    slow_after_a_while,
    no_cgroups,
    old_windows,
    without_uvm,
)
