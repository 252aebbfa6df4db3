"""No NCCL setting for debugging is left over.

What it means
NCCL reads variables that disable its fast paths. They are copied from one issue to the next as a workaround, help, and stay.
The job then runs at a fifth of its speed, without an error.

How it is judged
Looks for variables that disable or fix transports, algorithms or protocols, and for NCCL_DEBUG=TRACE: in this environment, in
a log that NCCL wrote, in /etc/nccl.conf and in the user's file (NCCL_CONF_FILE, ~/.nccl.conf). At least one of the interfaces
that NCCL_SOCKET_IFNAME allows must exist. Without one no job starts, which fails if there are several GPUs. A variable warns
only if it takes a path away that NCCL would use here: between GPUs if there are several and their all-reduce was not measured,
between machines if there is InfiniBand. Otherwise it is a note, unless it explains a slow or failed measurement.

Known exceptions
NCCL_DEBUG=VERSION, WARN and INFO, the choice of interfaces and adapters, and topology files are normal settings. Some
settings are needed: NCCL_P2P_DISABLE if peer-to-peer access is broken, NCCL_NVLS_ENABLE=0 if multicast is broken. Keep them
knowingly.

References
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, Unavailable, for_each

GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


def is_on(value: str) -> bool:
    return value.strip() not in ("", "0")


def is_off(value: str) -> bool:
    return value.strip() == "0"


def is_any(value: str) -> bool:
    return bool(value.strip())


def is_word(*words: str) -> Callable[[str], bool]:
    return lambda value: value.strip().upper() in words


# Variable -> which of its values slow down NCCL, and their effect.
LEFTOVERS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "NCCL_P2P_DISABLE": (is_on, "GPUs exchange data through host memory"),
    "NCCL_P2P_LEVEL": (is_word("LOC", "0"), "GPUs exchange data through host memory"),
    "NCCL_P2P_DIRECT_DISABLE": (is_on, "GPUs of one process do not read each other directly"),
    "NCCL_SHM_DISABLE": (is_on, "GPUs of one machine exchange data through the network"),
    "NCCL_IB_DISABLE": (is_on, "machines exchange data over TCP"),
    "NCCL_NET": (is_word("SOCKET"), "machines exchange data over TCP"),
    "NCCL_NET_GDR_LEVEL": (is_word("LOC", "0"), "network data goes through host memory"),
    "NCCL_NVLS_ENABLE": (is_off, "reduction in the switches (NVLink SHARP) is disabled"),
    "NCCL_ALGO": (is_any, "the algorithm is fixed"),
    "NCCL_PROTO": (is_any, "the protocol is fixed"),
    "NCCL_MAX_NCHANNELS": (is_any, "the number of channels is limited"),
    "NCCL_MAX_CTAS": (is_any, "the number of channels is limited"),
    "NCCL_NTHREADS": (is_any, "the kernel size is fixed"),
    "NCCL_LAUNCH_MODE": (is_any, "the launch mode is fixed"),
    "NCCL_DEBUG": (is_word("TRACE"), "every call is logged"),
}

BETWEEN_GPUS = frozenset({"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_P2P_DIRECT_DISABLE", "NCCL_SHM_DISABLE"})
BETWEEN_MACHINES = frozenset({"NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_GDR_LEVEL"})

ENVIRONMENT = Problem(
    id="nccl-env-leftovers",
    title="NCCL variables that reduce speed are set in the environment",
    why="These variables are for debugging. NVIDIA: they should not be used in production nor retained in scripts, since they "
    "may result in sub-optimal behaviour, crashes, or hangs.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Unset them in this shell, then remove them from the profile, job script or image that sets them",
            "unset <names>",
            verify="env | grep NCCL_ || echo 'no NCCL variables are set'",
            where="shell",
        ),
    ),
    references=(GUIDE,),
)

FILE = Problem(
    id="nccl-conf-leftovers",
    title="An NCCL configuration file contains settings that reduce speed",
    why="NCCL reads this file in every job, whatever its environment. The settings are for debugging and may result in "
    "sub-optimal behaviour, crashes, or hangs.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Remove the lines from the file",
            '(cd && names=$(echo <names> | tr " " "|") && sudo sed -i.bak -E "/^ *($names) *=/d" <file>)',
            undo="( cd && sudo mv <file>.bak <file> )",
            verify="grep -s NCCL_ /etc/nccl.conf ~/.nccl.conf || echo 'no NCCL settings'",
            kind="set",
            needs=("root",),
        ),
    ),
    references=(GUIDE,),
)

NAME_ANOTHER = Fix(
    "Set an interface that exists; the variable overrides a file", "export NCCL_SOCKET_IFNAME=<there>", where="shell"
)
WITHOUT_LINE = Fix(
    "Remove the line from the file, so that NCCL chooses",
    '(cd && sudo sed -i.bak "/^ *NCCL_SOCKET_IFNAME *=/d" <file>)',
    undo="( cd && sudo mv <file>.bak <file> )",
    verify="grep -s NCCL_ /etc/nccl.conf ~/.nccl.conf || echo 'no NCCL settings'",
    kind="set",
    needs=("root",),
)
VIRTUAL = re.compile(
    r"lo$ | docker | br- | virbr | veth | cni | flannel | cali | tunl | podman | lxc | tailscale | wg | dummy | kube",
    re.VERBOSE,
)

INTERFACE = Problem(
    id="nccl-socket-interface-missing",
    title="NCCL_SOCKET_IFNAME matches no network interface",
    why="NCCL's processes find each other over the interfaces that the variable allows, even on one machine. If none of them "
    "exists, every job fails with 'Bootstrap : no socket interface found'.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Unset the variable, so that NCCL chooses",
            "unset NCCL_SOCKET_IFNAME",
            verify="env | grep NCCL_ || echo 'no NCCL variables are set'",
            where="shell",
        ),
        NAME_ANOTHER,
        look("List the interfaces of this machine; the variable takes prefixes of names", "ip -br addr"),
    ),
    references=(GUIDE,),
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from for_each((interface, leftovers), lambda part: part(facts))


def interface(facts: Facts) -> Iterator[Finding]:
    """`eth,ib` allows names with these prefixes, `=eth0` this name only, and `^docker` all other names."""
    setting = facts.environment.nccl.get("NCCL_SOCKET_IFNAME")
    if setting is None or not setting.value or setting.value.startswith("^"):
        return
    wanted = setting.value.removeprefix("=").split(",")
    exact = setting.value.startswith("=")
    there = facts.environment.interfaces
    if any(name == one if exact else name.startswith(one) for name in there for one in filter(None, wanted)):
        return
    from_file = setting.source != "environment"
    where = f" (in {setting.source})" if from_file else ""
    others = [name for name in there if not VIRTUAL.match(name)]
    first, *rest = INTERFACE.fixes
    fixes = (WITHOUT_LINE if from_file else first, *(fix for fix in rest if others or fix is not NAME_ANOTHER))
    problem = replace(INTERFACE, fixes=fixes, status=Status.FAIL if has_several(facts) else Status.WARN)
    yield problem.found(
        f"NCCL_SOCKET_IFNAME is {setting.value!r}{where}; the interfaces are {', '.join(there) or 'none'}",
        {
            "value": setting.value,
            "source": setting.source,
            "file": setting.source.removeprefix("~/"),
            "interfaces": list(there),
            "there": next(iter(others), None),
        },
    )


def has_several(facts: Facts) -> bool:
    """Whether NCCL is likely to be used on this machine: several GPUs, or an NCCL log with settings."""
    try:
        return facts.nvml.count > 1 or bool(facts.nccl_log.settings)
    except Skip:
        return bool(facts.nccl_log.settings)


def takes_path(facts: Facts, names: Collection[str]) -> bool:
    """Whether these variables take a path away that NCCL would use here, and no measurement shows what that costs."""
    if facts.nccl_log.settings:
        return not {*BETWEEN_GPUS, *BETWEEN_MACHINES}.isdisjoint(names)
    if not BETWEEN_GPUS.isdisjoint(names) and has_several(facts) and not known(lambda: facts.measured.runs("all-reduce"), ()):
        return True
    return not BETWEEN_MACHINES.isdisjoint(names) and bool(known(lambda: facts.system.infiniband_ports, ()))


def leftovers(facts: Facts) -> Iterator[Finding]:
    logged = facts.nccl_log.settings
    variables = {name: value for name, value in {**logged, **asked(facts)}.items() if is_leftover(name, value)}
    if variables:
        found = ENVIRONMENT.found(in_words(variables), {"names": sorted(variables)})
        yield found if takes_path(facts, variables) else found.as_note
    files: dict[str, dict[str, str]] = {}
    for name, setting in facts.environment.nccl.items():
        if setting.source != "environment" and is_leftover(name, setting.value):
            files.setdefault(setting.source, {})[name] = setting.value
    for file, values in sorted(files.items()):
        # Relative to the home folder, where the command runs: a quoted ~ would not be expanded.
        evidence = {"names": sorted(values), "file": file.removeprefix("~/")}
        found = FILE.found(f"{file}: {in_words(values)}", evidence)
        yield found if takes_path(facts, values) else found.as_note


def asked(facts: Facts) -> dict[str, str]:
    """The variables of this environment; empty if only the log of a job is available."""
    try:
        return facts.environment.variables
    except Unavailable:
        if not facts.nccl_log.values:
            raise
        return {}


def is_leftover(name: str, value: str) -> bool:
    return name in LEFTOVERS and LEFTOVERS[name][0](value)


def in_words(values: dict[str, str]) -> str:
    return "; ".join(f"{name}={value} ({LEFTOVERS[name][1]})" for name, value in sorted(values.items()))


def summary(facts: Facts) -> str:
    names = sorted(set(facts.environment.nccl) - {"NCCL_VERSION"})
    return f"harmless NCCL variables: {', '.join(names)}" if names else "no NCCL variables are set"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(ENVIRONMENT, FILE, INTERFACE),
    tags=("nccl", "network", "performance"),
)
