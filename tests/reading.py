"""Whether a command only reads, by what is known of its programs: a second opinion on what fixes say of themselves."""

from __future__ import annotations

import re
import shlex

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
    r"show_gids|perfquery|mlxlink|fi_info|ucx_info|ompi_info|ip (?:-br(?:ief)? )?addr(?:ess)?(?! *[acdfr])",
    r"firewall-cmd --state|ufw status|swapon --show",
    r"iptables (?:-t \S+ )?-[LS]\b|conda info|apt policy|uv tree|py-spy dump|\S*python\S* -m xformers\.info|nvidia-smi mig -l",
    r"sminfo|iblinkinfo|ib(?:stat|v_\w+|status)\b|gpudoctor (?:check|hang|list|explain|images list)\b|test |\[ ",
    r"\S*python\S* -c |python3? -m json\.tool|\S*python\S* -m bitsandbytes",
    r"vulkaninfo|glxinfo|clinfo|gst-inspect-1\.0|tegrastats$|nvpmodel -q|/\S+/gdscheck -p|ofed_info -s",
    r"ffmpeg (?:-hide_banner )?-(?:encoders|decoders|hwaccels)$|ffmpeg (?!.*(?: -y|\.\w+ )).* -f null -$",
    r"pbsnodes -a|lsload|qconf -s\w+|condor_status|sacctmgr show|slurmd -V|nomad node status|docker node inspect",
    r"kubectl (?:-n \S+ )?(?:get|explain|api-versions)|virsh dumpxml|ipcs (?:-[lmqs] ?)+$|groups$|nproc$|quota -s",
    r"sysctl(?: [a-z][\w.]+)+$|devlink health show\b|pacman -Q\w*",
    r"cd$",
    r"(?:top -H -b -n 1 -p|taskset -pc|iostat -x|nfsiostat) [\w ]+$|gpudoctor watch --pid",
)
_READ = re.compile("|".join(_READS))
_BEFORE_IT = re.compile(r"^(?:sudo |time |timeout \d+ |/\S+/(?=nvidia-smi)|(?:env )?(?:-u \S+ |[A-Z_]+=\S* )+)*")


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
