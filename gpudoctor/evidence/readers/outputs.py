"""Outputs whose rows are kept as they are: of networks, clocks, sensors, graphics and clusters. Rules look up values in them."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

QUESTION = "shown-outputs"
MOST_LINES = 400
_NEXT = rf"{prompts.NEXT_OR_ROOT.pattern}"


def kept(kind: str) -> Callable[[str], dict[str, Reply]]:
    return lambda text: {QUESTION: Reply("ok", {kind: text})}


def _command(kind: str, anchors: tuple[str, ...], command: str, lines: int = MOST_LINES) -> Reader:
    """The output of a command; what was typed is its first line."""

    def read(typed: str, output: str) -> dict[str, Reply] | None:
        return kept(kind)(f"{typed}\n{output}") if output.strip() else None

    return prompts.reader(kind, anchors, command, read, inside=True, most_lines=lines)


def _head(kind: str, anchors: tuple[str, ...], begins: str, lines: int = MOST_LINES, ends: str = _NEXT) -> Reader:
    """An output that its own first line tells, pasted without its command."""
    ended = re.compile(ends, re.VERBOSE)
    return Reader(kind, anchors, re.compile(begins, re.VERBOSE), kept(kind), ended, lines, alone=True)


READERS = (
    # who may use it, and over which ports
    _command("getent group", ("getent group",), r"getent\ group(?:\ \w+)*", 40),
    _command("firewall-cmd", ("firewall-cmd ",), r"firewall-cmd\ .*--list-\w+.*", 60),
    _command("ufw status", ("ufw status",), r"ufw\ status.*", 60),
    _command("iptables -S", ("iptables -",), r"ip6?tables\ .*-(?:S|L)\b.*", 200),
    # networks
    _command("ethtool", ("ethtool ",), r"ethtool\ [\w.@-]+(?:\ *\|.*)?", 60),
    _head("iperf3", ("Connecting to host ",), r"^\s*Connecting\ to\ host\ \S+,\ port\ \d+", 60),
    _head("iblinkinfo", ("==( ",), r"^\s*(?:CA|Switch):?\ |.*==\(\ +\d+X\ ", 400, r"^\s*$"),
    _head("mlxlink", ("Operational Info",), r"^\s*Operational\ Info\s*$", 30),
    _head("perfquery", ("# Port counters",), r"^\#\ Port\ (?:extended\ )?counters:", 40),
    _head("nccl-tests", ("# nThread ",), r"^\#\ nThread\ \d+\ nGpus\ \d+", 200, r"^\s*$|^\S*[$\#>]\ "),
    # processors and where a program runs
    _command("numactl --show", ("numactl ",), r"numactl\ (?:--show|-s)\b.*", 12),
    _command("turbostat", ("turbostat",), r"turbostat\b.*", 400),
    _command("sensors", ("sensors",), r"sensors(?:\ .*)?", 200),
    _command("powerprofilesctl", ("powerprofilesctl",), r"powerprofilesctl(?:\ (?:list|get))?", 30),
    _command("tuned-adm", ("tuned-adm",), r"tuned-adm\ active", 4),
    _command("ipmitool", ("ipmitool ",), r"ipmitool\ .*\b(?:sel|sdr|sensor)\b.*", 400),
    # graphics and video
    _head("glxinfo", ("direct rendering:", "name of display:"), r"^\s*(?:name\ of\ display:|direct\ rendering:)\ ", 200),
    _head("vulkaninfo", ("VULKANINFO",), r"^VULKANINFO\s*$", 400),
    _head("inxi", ("Device-1: ",), r"^\s*(?:Graphics:)?\s*Device-1:\ ", 40),
    _head("lshw", ("*-display",), r"^\s*\*-display", 40, r"^(?!\s)|^\s*\*-(?!display)"),
    _head("clinfo", ("Number of platforms", "Platform #0: "), r"^\s*(?:Number\ of\ platforms\s+\d|Platform\ \#0:\ )", 400),
    _head("ffmpeg -hwaccels", ("Hardware acceleration methods:",), r"^\s*Hardware\ acceleration\ methods:", 20),
    _command("links of /dev/dri", ("/dev/dri/by-path",), r"ls\ .*/dev/dri/by-path.*", 40),
    # AMD and embedded boards
    _head("rocminfo", ("HSA System Attributes",), r"^\s*HSA\ System\ Attributes", 2000),
    _head("jetson_release", ("Jetpack", "jetson-stats"), r"^\s*(?:Software\ part\ of\ jetson-stats|Model:\ NVIDIA\ Jetson)", 60),
    # jobs
    _head("squeue", ("JOBID ",), r"^\s*JOBID\ +PARTITION\b", 100, r"^\s*$|^\S*[$\#>]\ "),
    _head("sacct", ("JobID ", "JobIDRaw "), r"^\s*JobID(?:Raw)?\ +[A-Z]", 100, r"^\s*$|^\S*[$\#>]\ "),
    _head("scontrol show job", ("JobId=",), r"^\s*JobId=\d+\ JobName=", 60, r"^\s*$|^\S*[$\#>]\ "),
    _head("nodes of Slurm", ("PARTITION AVAIL",), r"^\s*PARTITION\ +AVAIL\b", 100, r"^\s*$|^\S*[$\#>]\ "),
    _head("ray status", ("Autoscaler status",), r"^=+\ Autoscaler\ status", 60),
    _head("module list", ("Currently Loaded",), r"^\s*Currently\ Loaded\ Module", 40),
    # measurements
    _head("bandwidthTest", ("[CUDA Bandwidth Test]",), r"^\[CUDA\ Bandwidth\ Test\]", 60, r"^\S*[$\#>]\ "),
    _head("nvbandwidth", ("nvbandwidth Version",), r"^nvbandwidth\ Version", 400, r"^\S*[$\#>]\ "),
    _head("p2pBandwidthLatencyTest", ("P2P Connectivity Matrix",), r"^P2P\ Connectivity\ Matrix", 200, r"^\S*[$\#>]\ "),
    _head("dcgmi diag", ("Successfully ran diagnostic",), r"^Successfully\ ran\ diagnostic", 200, r"^\S*[$\#>]\ "),
    _head("fio", ("IOPS=",), r"^\s*(?:read|write):\ IOPS=", 40, r"^\S*[$\#>]\ "),
    _head("nvtop", (" PCIe GEN ",), r"^\s*Device\ \d+\ \[[^\]]+\]\ PCIe\ GEN", 8),
    # settings of builds and packages
    _command("CMakeCache.txt", ("CMakeCache.txt",), r"(?:grep|cat|rg)\ .*CMakeCache\.txt.*", 400),
    _command("update-alternatives", ("update-alternatives ",), r"update-alternatives\ --(?:display|query|config)\ .*", 40),
    _command("links in /usr/local", ("ls -",), r"ls\ -\w*l\w*\ /usr/local(?:/|/cuda\S*)?(?:\ *\|.*)?", 60),
    _command("packages on hold", ("showhold",), r"apt-mark\ showhold.*", 40),
    _command("ucx_info", ("ucx_info",), r"ucx_info\ .*", 400),
    _command("ompi_info", ("ompi_info",), r"ompi_info\b.*", 40),
)
