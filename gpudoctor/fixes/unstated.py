"""What fixes of engines' and compilers' messages do not say yet, read out of their words; to go once those are tables."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from gpudoctor.fixes.engines import BY_CDI, DELETE, IN_SPEC
from gpudoctor.model import Fix, Kind

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


def kind(fix: Fix) -> Kind:
    command = fix.before_reboot
    if _RESET.search(command):
        return "reset"
    if not command or _ELSEWHERE.search(fix.title) or _FOR_A_PERSON.search(command) or _SHELL.search(command):
        return "manual"
    if only_reads(command):
        return "read"
    if _INSTALLS.search(command):
        return "install"
    return "restart" if _RESTARTS.search(command) else "set"


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


def in_container(fix: Fix, engine: str | None) -> Fix:
    if not re.match(r"docker (run|restart|compose)\b", fix.command):
        return fix
    if engine == "kubernetes":
        return for_kubernetes(fix)
    return replace(fix, command=of_podman(fix.command), title=of_podman(fix.title)) if engine == "podman" else fix


def for_kubernetes(fix: Fix) -> Fix:
    """Nothing inside a pod can start it again, and its options are lines of its spec."""
    if fix.command.startswith("docker restart"):
        return replace(fix, title=DELETE, command="kubectl delete pod POD --namespace NAMESPACE", risk="disruptive", needs=())
    if changed := _change(fix.command):
        return replace(fix, command=f"kubectl {changed}", risk="disruptive", needs=())
    told = BY_CDI if "nvidia.com/gpu" in fix.command else IN_SPEC.format(" ".join(_options(fix.command)))
    return replace(fix, title=told, command="", risk="safe", needs=(), undo="")


def _change(command: str) -> str:
    """Of a workload, for the options that kubectl has words for."""
    settings = " ".join(re.findall(r"-e (\S+=\S+)", command))
    limits = [f"memory={size}Mi" for size in re.findall(r"--memory=(\d+)m\b", command)]
    limits += [f"cpu={count}" for count in re.findall(r"--cpus=(\d+)", command)]
    if settings:
        return f"set env deployment/NAME {settings}"
    return f"set resources deployment/NAME --limits={','.join(limits)}" if limits else ""


def _options(command: str) -> list[str]:
    usual = ("--rm", "--gpus", "-it")
    return [option for option in re.findall(r"(?<=\s)-{1,2}[a-z][\w-]*(?:=\S+)?", command) if option not in usual] or ["--gpus"]


def of_podman(text: str) -> str:
    return re.sub(r"\bdocker\b", "podman", text).replace("--gpus all", "--device nvidia.com/gpu=all").replace("Docker", "Podman")


_GPU_OF_DOCKER = re.compile(r"--gpus all|--runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all")
_OF_DOCKER = re.compile(
    r"\bdocker (?=(?:compose|container|image|info|inspect|login|network|ps|pull|rm|run|save|system|version)\b)"
)


def of_failed_start(command: str, fix: Fix) -> Fix:
    """The fix for an engine that has no daemon to restart, and (Podman) takes GPUs by CDI only."""

    def spoken(text: str) -> str:
        text = re.sub(r"(?:;| &&) (?:sudo )?systemctl (?:--user )?restart docker\b", "", text)
        if command == "podman":
            text = _GPU_OF_DOCKER.sub("--device nvidia.com/gpu=all", text)
        return _OF_DOCKER.sub(f"{command} ", text)

    title = re.sub(r",? and restart Docker(?: \([^)]*\))?| \(Docker [\d.]+ or later\)", "", fix.title)
    return replace(fix, title=title, command=spoken(fix.command), verify=spoken(fix.verify))
