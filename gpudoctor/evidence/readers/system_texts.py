"""Texts about a Linux system that people paste: files of /proc and /etc, uname, lsmod, env, nvcc."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply
from gpudoctor.worker.probes import environment

# The start of a distribution's pretty name -> ID, ID_LIKE
_DISTRIBUTIONS = {
    "Ubuntu": ("ubuntu", "debian"),
    "Debian": ("debian", ""),
    "Linux Mint": ("linuxmint", "ubuntu debian"),
    "Pop!_OS": ("pop", "ubuntu debian"),
    "Red Hat Enterprise": ("rhel", "fedora"),
    "CentOS": ("centos", "rhel fedora"),
    "Rocky": ("rocky", "rhel centos fedora"),
    "AlmaLinux": ("almalinux", "rhel centos fedora"),
    "Oracle Linux": ("ol", "fedora"),
    "Amazon Linux": ("amzn", "centos rhel fedora"),
    "Fedora": ("fedora", ""),
    "openSUSE Leap": ("opensuse-leap", "suse opensuse"),
    "openSUSE Tumbleweed": ("opensuse-tumbleweed", "opensuse suse"),
    "SUSE Linux": ("sles", "suse"),
    "Arch Linux": ("arch", ""),
    "Manjaro": ("manjaro", "arch"),
    "EndeavourOS": ("endeavouros", "arch"),
    "NixOS": ("nixos", ""),
}
_UNAME = re.compile(r"^\s*Linux \S+ (\d+\.\d+\S*) #.*?\b(x86_64|aarch64|ppc64le)\b.*$")


def os_release(name: str) -> str | None:
    """The text of /etc/os-release for a distribution's pretty name; None if it is unknown."""
    known = next((ids for begin, ids in _DISTRIBUTIONS.items() if name.startswith(begin)), None)
    if known is None:
        return None
    pretty = re.sub(r" \((?:x86_64|aarch64|ppc64le)\)$", "", name.strip())
    match = re.search(r"\d+(?:\.\d+)?", pretty)
    version = [f'VERSION_ID="{match[0]}"'] if match else []
    lines = [f'PRETTY_NAME="{pretty}"', f"ID={known[0]}", *([f'ID_LIKE="{known[1]}"'] if known[1] else []), *version]
    return "".join(f"{line}\n" for line in lines)


def uname(text: str) -> dict[str, Reply] | None:
    match = _UNAME.match(text)
    return {"uname": Reply("ok", {"release": match[1], "machine": match[2], "sysname": "Linux"})} if match else None


def _file(path: str) -> Callable[[str], dict[str, Reply]]:
    return lambda text: {f"file:{path}": Reply("ok", text)}


def _modules(text: str) -> dict[str, Reply] | None:
    """lsmod has a header that /proc/modules lacks."""
    lines = [line for line in text.splitlines()[1:] if re.match(r"^\w+\s+\d+\s+\d+", line)]
    return {"file:/proc/modules": Reply("ok", "".join(f"{line}\n" for line in lines))} if len(lines) >= _FEWEST_MODULES else None


_FEWEST_MODULES = 30  # with fewer it is the output of grep


def _environment(text: str) -> dict[str, Reply] | None:
    pairs = (re.match(r"^\s*(?:export )?([A-Z]\w+)=(.*)$", line) for line in text.splitlines())
    variables = environment.variables({match[1]: match[2].strip().strip("\"'") for match in pairs if match})
    return {"environment": Reply("ok", variables)} if variables else None


def _of_ollama(text: str) -> dict[str, Reply] | None:
    """Ollama's settings at its start; a variable without a value may be unset, and -1 may be its default."""
    found = _OLLAMA.search(text)
    return {"environment": Reply("ok", {"CUDA_VISIBLE_DEVICES": found[1]})} if found else None


_OLLAMA = re.compile(
    r"""
    config\ env="map\[(?: [^\]]*[ ] )?
    CUDA_VISIBLE_DEVICES:( \d+(?:,\d+)* | (?:GPU|MIG)-[\w,-]+ )[ ]
    """,
    re.VERBOSE,
)


def _of_nixos(text: str) -> dict[str, Reply]:
    return {"file:/etc/os-release": Reply("ok", os_release("NixOS"))}


_NIXOS = re.compile(
    r"""
    \bnixos-(?:rebuild|version|system)\b
    | @nixos\b
    | /etc/nixos/
    | /run/current-system/sw/
    | \bhardware\.nvidia\.\w+\ *=
    | \(nixbld@
    """,
    re.VERBOSE,
)


def of_wsl(text: str) -> dict[str, Reply]:
    """The kernel of WSL2 is known by its name, of which these words leave out the first part."""
    match = _WSL.search(text)
    release = match["release"] if match and match["release"] else ""
    return {"uname": Reply("ok", {"release": f"{release}-microsoft-standard-WSL2", "machine": None, "sysname": "Linux"})}


_WSL = re.compile(
    r"""
    =>\ /usr/lib/wsl/lib/\S+
    | ^\s*WSL\ version:\ 2\.[^\n]*
      (?: \n\s*Kernel\ version:\ (?P<release>\d+\.\d+\.\d+) )?
    """,
    re.VERBOSE,
)


def _nvcc(text: str) -> dict[str, Reply] | None:
    """The compiler on a shell's PATH; its path is unknown."""
    if not re.search(r"release \d+\.\d+, V\d", text):
        return None
    return {"toolchain": Reply("ok", {"programs": {"nvcc": ["nvcc"]}, "versions": {"nvcc": text}})}


_VARIABLES = ("LD_LIBRARY_PATH=", "CUDA_HOME=", "CUDA_VISIBLE_DEVICES=", "NCCL_DEBUG=", "NVIDIA_VISIBLE_DEVICES=", "CUDA_PATH=")
READERS = (
    Reader(
        "/proc/driver/nvidia/version",
        ("NVRM version:",),
        re.compile(r"^\s*NVRM version: NVIDIA"),
        _file("/proc/driver/nvidia/version"),
        re.compile(r"^\s*(?!NVRM version|GCC version)\S|^\s*$"),
        3,
    ),
    Reader("uname -a", (" SMP ",), _UNAME, uname, re.compile(""), 1),
    Reader(
        "/proc/version", ("Linux version ",), re.compile(r"^Linux version \d\S+ \("), _file("/proc/version"), re.compile(""), 1
    ),
    Reader(
        "/etc/os-release",
        ("PRETTY_NAME=",),
        re.compile(r"^(?:PRETTY_)?NAME="),
        _file("/etc/os-release"),
        re.compile(r"^(?![A-Z_]+=)"),
        40,
    ),
    Reader(
        "nvcc --version",
        ("nvcc: NVIDIA (R) Cuda compiler driver", "Cuda compilation tools, release"),
        re.compile(r"^\s*(?:nvcc: NVIDIA \(R\) Cuda|Cuda compilation tools, release)\b"),
        _nvcc,
        re.compile(r"^\s*(?!Copyright|Built on|Cuda compilation|Build cuda)\S"),
        6,
    ),
    Reader("lsmod", ("Used by",), re.compile(r"^Module\s+Size\s+Used by"), _modules, re.compile(r"^(?!\w+\s+\d+\s+\d+)")),
    Reader(
        "environment variables",
        _VARIABLES,
        re.compile(rf"^\s*(?:export )?(?:{'|'.join(_VARIABLES)})\S*\s*$"),
        _environment,
        re.compile(r"^(?!\s*(?:export )?[A-Z]\w*=)"),
        400,
    ),
    Reader("words of NixOS", ("nixos", "hardware.nvidia.", "current-system"), _NIXOS, _of_nixos, re.compile(""), 1),
    Reader("words of WSL", ("/usr/lib/wsl/lib", "WSL version: "), _WSL, of_wsl, re.compile(r"^(?!\s*Kernel version: )"), 2),
    Reader("environment of Ollama", ("CUDA_VISIBLE_DEVICES:",), _OLLAMA, _of_ollama, re.compile(""), 1),
)
