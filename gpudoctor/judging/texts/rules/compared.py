"""Two outputs of a text that only together show the fault: a firewall, a fan, an environment module, a benchmark."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

FIREWALL = Problem(
    id="ranks-blocked-by-firewall",
    title="A firewall admits only some ports, and ranks connect on others",
    why="The rendezvous has one known port, but NCCL and Gloo listen on random ones. A firewall that admits SSH and the "
    "rendezvous lets the job start, and rejects the connections between its ranks.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "With firewalld, on each node: trust the network between the nodes",
            "sudo firewall-cmd --permanent --zone=trusted --change-interface=<interface> && sudo firewall-cmd --reload",
            verify="sudo firewall-cmd --get-active-zones",
            undo="sudo firewall-cmd --permanent --zone=trusted --remove-interface=<interface> && sudo firewall-cmd --reload",
            where="host",
            kind="set",
            needs=("root",),
        ),
        Fix(
            "With ufw, on each node: allow what comes in over the interface between the nodes",
            "sudo ufw allow in on <interface>",
            undo="sudo ufw delete allow in on <interface>",
            where="host",
            kind="set",
            needs=("root",),
        ),
    ),
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",),
)
FAN = Problem(
    id="gpu-fan-stopped",
    title="The fan of a hot GPU stands still",
    why="The card heats up until the driver cuts its clocks. The fan or its cable is broken, something blocks it, or a program "
    "set its speed by hand and ended.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        Fix(
            "Stop the work on this GPU, and watch its fan and temperature",
            "nvidia-smi --query-gpu=index,fan.speed,temperature.gpu --format=csv",
            kind="read",
        ),
        Fix(
            "Look whether a cable blocks the fan and its plug is in place; if it does not turn under load, have the card replaced"
        ),
    ),
    references=("https://docs.nvidia.com/deploy/nvidia-smi/index.html",),
)
WIPED = Problem(
    id="environment-module-overwrites-library-path",
    title="A module overwrites LD_LIBRARY_PATH, and drops the folders of others",
    why="setenv replaces the whole variable, prepend_path adds to it. The folders of modules that were loaded before are gone, "
    "and their libraries are not found although module list shows them.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Load the module that sets the variable first, and those that add to it afterwards"),
        Fix("In the module's file: use prepend_path (Lua) or prepend-path (Tcl) instead of setenv for LD_LIBRARY_PATH"),
    ),
    references=("https://lmod.readthedocs.io/en/latest/050_lua_modulefiles.html",),
)
NO_MPI = Problem(
    id="nccl-tests-built-without-mpi",
    title="nccl-tests was built without MPI: each process tests its own GPU alone",
    why="Without MPI=1 the program ignores the launcher. Every process is rank 0 of 1, nothing crosses the network, and the bus "
    "bandwidth is 0.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Build it again with MPI, in the folder of nccl-tests (MPI_HOME: where include/mpi.h lies)",
            'make clean && make MPI=1 MPI_HOME="${MPI_HOME:-/usr}" -j',
            verify="mpirun -np 2 ./build/all_reduce_perf -b 8M -e 64M -f 2 -g 1",
            kind="manual",
        ),
    ),
    references=("https://github.com/NVIDIA/nccl-tests#build",),
    status=Status.WARN,
)
WITH_IPTABLES = Fix(
    "With iptables, on each node: accept what comes in over the interface between the nodes, before the rule that rejects it",
    "sudo iptables -I INPUT -i <interface> -j ACCEPT",
    verify="sudo iptables -S INPUT",
    undo="sudo iptables -D INPUT -i <interface> -j ACCEPT",
    where="host",
    kind="set",
    needs=("root",),
)
PROBLEMS = (FIREWALL, FAN, WIPED, NO_MPI)

_LISTS = re.compile(r"\b(?:firewall-cmd\b[^\n]*--list-|ufw status|iptables\b[^\n]* -[SL]|nft list)")
_STRICT = re.compile(
    r"""
    ^[ \t]*target:\ (?:default|DROP|%%REJECT%%)
    | ^Default:\ (?:deny|reject)\ \(incoming\)
    | ^-P\ INPUT\ (?:DROP|REJECT)
    | ^-A\ INPUT\ (?:-i\ \S+\ )?-j\ (?:DROP|REJECT)
    | ^Chain\ INPUT\ \(policy\ (?:DROP|REJECT)
    """,
    re.MULTILINE | re.VERBOSE,
)
_ADMITTED = re.compile(
    r"""
    \b(?P<low>\d{2,5})(?:[-:](?P<high>\d{2,5}))?/tcp\b|--dports?\s+
    (?P<dlow>\d{2,5})(?::(?P<dhigh>\d{2,5}))?
    """,
    re.VERBOSE,
)
_ALL = re.compile(
    r"""
    \(trusted\) | ^trusted\ \(active | target:\ ACCEPT | ^Anywhere\s+ALLOW\s
    | ^-A\ INPUT\ -(?:s|i)\ (?!lo\ )\S+\ -j\ ACCEPT | ^[ \t]*sources:\ \d | source\ address=\S+\ accept | \son\ \S+\s+ALLOW
    """,
    re.MULTILINE | re.VERBOSE,
)
_CONNECT = re.compile(
    r"""
    (?: Connect\ to | connect(?:ing|ion)?\ to | socketStartConnect:\ Connect\ to | remote=?) [^\n]{0,10}?
    (?P<host>\d+\.\d+\.\d+\.\d+) (?:<|:|\]:|,\ ?)(?P<port>\d{2,5})
    [^\n]*? (?: No\ route\ to\ host | timed\ out | [Tt]imeout | refused )
    """,
    re.VERBOSE,
)


def firewall(facts: Facts) -> Iterator[Finding]:
    """A rank cannot connect to a port, and the listing of a firewall does not admit it."""
    text = "\n".join(passages(facts))
    if not (_LISTS.search(text) and _STRICT.search(text)) or _ALL.search(text):
        return
    listing = text[_LISTS.search(text).start() :]  # type: ignore[union-attr]
    ranges = []
    for match in _ADMITTED.finditer(listing):
        low = int(match["low"] or match["dlow"])
        ranges.append((low, int(match["high"] or match["dhigh"] or low)))
    for match in _CONNECT.finditer(text):
        port = int(match["port"])
        if not any(low <= port <= high for low, high in ranges):
            admitted = ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in ranges) or "no port by number"
            words = f"a rank cannot connect to port {port} of {match['host']}, and the firewall admits {admitted}"
            shown = re.search(r"(?m)^\s*interfaces: ([\w.-]+)\s*$", listing)
            evidence = {"port_of_rank": port, "admitted": admitted} | ({"interface": shown[1]} if shown else {})
            by = _LISTS.search(text)[0]  # type: ignore[index]
            first = (WITH_IPTABLES, *FIREWALL.fixes) if by.startswith("iptables") else FIREWALL.fixes
            first = FIREWALL.fixes[::-1] if by.startswith("ufw") else first
            yield replace(FIREWALL, fixes=first).found(words, evidence, confidence=Confidence.LIKELY)
            return


HOT = 80  # degrees
_ROW = re.compile(
    r"""
    ^\|\s+(?P<index>\d+)\s+(?:NVIDIA|Tesla|Quadro|GeForce)\b[^\n]*\n
    \|\s*(?P<fan>\d+)%\s+(?P<heat>\d+)C\s
    """,
    re.MULTILINE | re.VERBOSE,
)


def stopped_fan(facts: Facts) -> Iterator[Finding]:
    """A GPU with a fan is hot, its fan is at 0 %, and the text does not show why its clocks are low, which says it too."""
    rows: dict[int, tuple[int, int]] = {}
    for gpu in known(lambda: facts.nvml.gpus, ()):
        fan, heat = known(lambda gpu=gpu: gpu.get("FanSpeed")), known(lambda gpu=gpu: gpu.temperature_c)  # type: ignore[misc]
        if isinstance(fan, int) and isinstance(heat, int):
            rows[gpu.index] = fan, heat
    text = "\n".join(passages(facts))
    rows |= {int(match["index"]): (int(match["fan"]), int(match["heat"])) for match in _ROW.finditer(text)}
    said = {gpu.index for gpu in known(lambda: facts.nvml.gpus, ()) if known(lambda gpu=gpu: gpu.clock_reasons)}  # type: ignore[misc]
    for index, (fan, heat) in rows.items():
        if fan == 0 and heat >= HOT and index not in said:
            words = f"GPU {index} has {heat} °C, and its fan is at 0 %"
            evidence = {"index": index, "temperature_celsius": heat, "fan_percent": 0}
            yield FAN.found(words, evidence, index, Confidence.LIKELY)


_SETS = re.compile(
    r"""
    (?: ^[ \t]*setenv\s*\(\s*["']LD_LIBRARY_PATH["']\s*,\s*["'](?P<lua>[^"'\n]+)["']
      | ^[ \t]*setenv\s+LD_LIBRARY_PATH\s+(?P<tcl>\S+) )
    """,
    re.MULTILINE | re.VERBOSE,
)
_ADDS = re.compile(
    r"""
    (?: (?:prepend|append)_path\s*\(\s*["']LD_LIBRARY_PATH["']\s*,\s*["'](?P<lua>[^"'\n]+)["']
      | (?:prepend|append)-path\s+(?:-\S{1,40}\s+){0,6}LD_LIBRARY_PATH\s+(?P<tcl>\S+) )
    """,
    re.VERBOSE,
)
_NOT_FOUND = re.compile(
    r"""
    \.so[\d.]{0,20}:\ cannot\ open\ shared\ object|Could\ not\ load\ dynamic\ library|Unable\ to\ load
    """,
    re.VERBOSE,
)
_NOW = re.compile(r"LD_LIBRARY_PATH[=:]\s*(?P<value>/\S*)")


def wiped_library_path(facts: Facts) -> Iterator[Finding]:
    """A module sets LD_LIBRARY_PATH without its old value, another's folder is missing there, and a library is not found."""
    text = "\n".join(passages(facts))
    sets, adds = list(_SETS.finditer(text)), [match["lua"] or match["tcl"] for match in _ADDS.finditer(text)]
    value = next((match["value"] for match in _NOW.finditer(text)), None)
    if not sets or not _NOT_FOUND.search(text):
        return
    whole = sets[-1]["lua"] or sets[-1]["tcl"]
    lost = [folder for folder in adds if folder not in (value or whole).split(":")]
    if lost and "LD_LIBRARY_PATH" not in whole:
        words = f"a module sets LD_LIBRARY_PATH to {whole}, and {lost[0]} of another module is no longer in it"
        yield WIPED.found(words, {"set": whole, "lost": lost[0]}, confidence=Confidence.LIKELY)


_RANK = re.compile(
    r"""
    ^\#\s+Rank\s+(?P<rank>\d+)\s+(?:Group\s+\d+\s+)?Pid\s+(?P<pid>\d+)\s+on\s+
    (?P<host>\S+)\s+device
    """,
    re.MULTILINE | re.VERBOSE,
)
_LAUNCHED = re.compile(r"\b(?:mpirun|mpiexec|srun|prun)\b[^\n]*?(?:-np|-n|--ntasks|-c)[ =](?P<count>\d+)")


def benchmark_without_mpi(facts: Facts) -> Iterator[Finding]:
    """Several processes of nccl-tests each call themselves rank 0."""
    text = "\n".join(passages(facts))
    ranks: Counter[str] = Counter()
    for match in {(match["pid"], match["host"]): match for match in _RANK.finditer(text)}.values():
        ranks[match["rank"]] += 1
    launched = _LAUNCHED.search(text)
    if ranks["0"] > 1 and launched and int(launched["count"]) > 1:
        words = f"{ranks['0']} processes of one launch are rank 0: none of them knows the others"
        yield NO_MPI.found(words, {"ranks": ranks["0"], "launched": int(launched["count"])}, confidence=Confidence.LIKELY)


RULES = (firewall, stopped_fan, wiped_library_path, benchmark_without_mpi)
