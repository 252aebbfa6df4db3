"""What kind of work a command is: whether it only reads, changes settings, installs, restarts or is left to a person."""

from __future__ import annotations

import re
import shlex
from enum import IntEnum

from gpudoctor.model import Fix


class Phase(IntEnum):
    """In the safe order; from WORDS on gpudoctor does not do it itself."""

    READ = 0
    CONFIGURE = 1
    INSTALL = 2
    RESTART = 3
    WORDS = 4
    RESET = 5


_READS = (
    r"(?:e?grep|zgrep|ls|cat|tail|head|awk|sort|uniq|wc|echo|ps|id|df|free|env|uname|uptime|true|which|command -v)\b",
    r"(?:journalctl|dmesg|lspci|lsmod|lsof|ldd|modinfo|numactl -[sH]|ethtool|getenforce|strace|ulimit -\w$|ss)\b",
    r"find (?!.*(?:-delete|-exec))",
    r"ldconfig -p|dpkg -[SlL]|rpm -q\w*|apt-file|dnf provides|dkms status|mokutil --sb-state",
    r"systemctl (?:--user )?(?:status|is-|cat|show)",
    r"nvidia-smi(?: -i \S+)?(?: *$| -L| -q| --query-| topo| nvlink -[se]| pmon| vgpu -q)",
    r"nvidia-ctk cdi list|nvidia-container-(?:cli|runtime-hook) --version|nvcc --version|ncu --version|nvidia-imex-ctl -N",
    r"docker (?:info|ps|logs|images|context ls|inspect|version)|kubectl (?:get|describe|logs)|dcgmi|ipmitool (?:sel|sdr)",
    r"docker (?:system df|image (?:ls|inspect)|network ls)|podman (?:info|version)|nvidia-container-cli (?:-\S+ \S+ )*info",
    r"stat |file |findmnt|snap list|systemd-detect-virt|ip route|apt-cache|type |du |ausearch|\S+ --version$|ncu --list",
    r"(?:sacct|sinfo|squeue|scontrol show|slurmd -[CG]|pgrep|getent|hostname|lscpu|fuser -v|rdma (?:link|statistic))\b",
    r"show_gids|perfquery|mlxlink|fi_info|ucx_info|ompi_info|ip (?:-br )?addr|firewall-cmd --state|ufw status|swapon --show",
    r"iptables (?:-t \S+ )?-[LS]\b|conda info|apt policy|uv tree|py-spy dump|\S*python\S* -m xformers\.info|nvidia-smi mig -l",
    r"sminfo|iblinkinfo|ib(?:stat|v_\w+|status)\b|gpudoctor (?:check|list|explain|images list)\b|test |\[ ",
    r"\S*python\S* -c |python3? -m json\.tool|\S*python\S* -m bitsandbytes",
    r"cd$",
)
_READ = re.compile("|".join(_READS))
_BEFORE_IT = re.compile(r"^(?:sudo |time |timeout \d+ |/\S+/(?=nvidia-smi)|(?:env )?(?:-u \S+ |[A-Z_]+=\S* )+)*")
_RESET = re.compile(r"--gpu-reset|nvidia-smi -r\b|/reset\b|\b(?:poweroff|shutdown|reboot)\b|power (?:cycle|off)")
_SHELL = re.compile(r"(?:^|&& |; )(?:export|unset|ulimit|taskset -a?pc|source) |\$\$|\bconda (?:activate|deactivate)\b")
_RESTARTS = re.compile(
    r"\b(?:systemctl|service) (?:\S+ )*(?:re)?(?:start|stop|load)\b|docker (?:compose (?:up|restart)|(?:re)?start)|--now\b|"
    r"\bmodprobe (?:-|[a-z])|\brmmod\b"
)
_TOOLS = "apt(?:-get)?|dnf|yum|zypper|pacman|yay|dkms|akmods|pip3?|uv|conda|poetry|pipenv|pixi|ubuntu-drivers"
_INSTALLS = re.compile(rf"\b(?:{_TOOLS}) (?:-\S+ )*[a-z-]|\.run\b|nvidia-uninstall|-m (?:ensurepip|venv)\b|\| (?:sudo )?sh\b")
_WORDS = (
    r"IMAGE|CONTAINER|COMMAND|GROUP|NAME|MACHINE|NODE|WATTS|PID|SCRIPT|PORT|MODEL|REGISTRY|"
    r"CTID|POD|NAMESPACE|FILE|PROGRAM\S*|PACKAGE-OLD\S*"
)
_TO_FILL_IN = rf"<[a-z_]+>|(?<![\w/.=-])(?:{_WORDS})\b"
_BY_HAND = (
    r"\bless |\.exe\b|\bwsl --|systemctl edit|(?:docker|podman|gpudoctor) run\b|\bsrun |\btorchrun |your_program|\./program|"
    r"\b(?:sbatch|salloc|mpirun|deepspeed|tmux|vllm serve|sglang|cmake|compute-sanitizer|sudoedit|helm|docker login)\b|"
    r"\bmachinectl |systemctl isolate|kubectl (?:delete|set|patch|apply)|\btrain\.py|\bjob\.sh|update-alternatives --config|"
    r"\*\S*\.run\b|\baz vm|\bssh |\bnetsh |numactl --\w"
)
_FOR_A_PERSON = re.compile(f"{_TO_FILL_IN}|{_BY_HAND}")
_ELSEWHERE = re.compile(r"^(?:On (?:the|a) host|On Google|On Azure|In (?:a )?Windows)\b")


def phase(fix: Fix, command: str) -> Phase:
    """command: the fix's, without its reboot."""
    if _RESET.search(command):
        return Phase.RESET
    if not command or _ELSEWHERE.search(fix.title) or _FOR_A_PERSON.search(command) or _SHELL.search(command):
        return Phase.WORDS
    if only_reads(command):
        return Phase.READ
    if fix.risk == "destructive":
        return Phase.WORDS
    if _INSTALLS.search(command):
        return Phase.INSTALL
    return Phase.RESTART if _RESTARTS.search(command) else Phase.CONFIGURE


def only_reads(command: str) -> bool:
    """Every command of the line does, and none of its output goes into a file."""
    lines = [parts(line) for line in command.splitlines()]
    return all(found and all(_READ.match(_BEFORE_IT.sub("", part)) for part in found) for found in lines)


def parts(line: str) -> list[str]:
    """The commands of a line; none where it writes to a file or cannot be read."""
    line = re.sub(r"\$\([^()]*\)|[0-9]?>&[0-9]|[0-9]?> ?/dev/null", "", line)
    lexer = shlex.shlex(line, posix=False, punctuation_chars="();|&<>")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if ">" in word and set(word) <= set("();|&<>"):
                return []
            if set(word) <= set("();|&<>"):
                found.append([])
            else:
                found[-1].append(word)
    except ValueError:
        return []
    return [" ".join(words) for words in found if words]
