"""No NCCL setting that was meant for debugging is left over.

What it means
NCCL reads variables that switch its fast paths off. They are copied from one issue to the next as a cure, work, and stay: the
job then runs at a fifth of its speed without an error.

How it is judged
The variables of this environment, of a log that NCCL wrote, and of /etc/nccl.conf and the user's file (NCCL_CONF_FILE,
~/.nccl.conf), that switch transports, algorithms or protocols off or fix them, and NCCL_DEBUG=TRACE. At least one of the
interfaces that NCCL_SOCKET_IFNAME allows must be there: without one no job starts, which fails where there are several GPUs.

Known exceptions
NCCL_DEBUG=VERSION, WARN and INFO, the choice of interfaces and adapters, and topology files are normal settings. Some are
needed: NCCL_P2P_DISABLE where peer-to-peer access is broken, NCCL_NVLS_ENABLE=0 where multicast is. Then keep them, and know it.

References
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from gpudoctor.facts import Facts
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


# Variable -> which of its values slow NCCL down, and what they do.
LEFTOVERS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "NCCL_P2P_DISABLE": (is_on, "GPUs exchange data through host memory"),
    "NCCL_P2P_LEVEL": (is_word("LOC", "0"), "GPUs exchange data through host memory"),
    "NCCL_P2P_DIRECT_DISABLE": (is_on, "GPUs of one process do not read each other directly"),
    "NCCL_SHM_DISABLE": (is_on, "GPUs of one machine exchange data through the network"),
    "NCCL_IB_DISABLE": (is_on, "machines exchange data by TCP"),
    "NCCL_NET": (is_word("SOCKET"), "machines exchange data by TCP"),
    "NCCL_NET_GDR_LEVEL": (is_word("LOC", "0"), "network data goes through host memory"),
    "NCCL_NVLS_ENABLE": (is_off, "reduction in the switches (NVLink SHARP) is off"),
    "NCCL_ALGO": (is_any, "the algorithm is fixed"),
    "NCCL_PROTO": (is_any, "the protocol is fixed"),
    "NCCL_MAX_NCHANNELS": (is_any, "the number of channels is limited"),
    "NCCL_MAX_CTAS": (is_any, "the number of channels is limited"),
    "NCCL_NTHREADS": (is_any, "the size of the kernels is fixed"),
    "NCCL_LAUNCH_MODE": (is_any, "the way of launching is fixed"),
    "NCCL_DEBUG": (is_word("TRACE"), "every call is logged"),
}

ENVIRONMENT = Problem(
    id="nccl-env-leftovers",
    title="NCCL variables that cost speed are set in the environment",
    why="These variables are for debugging. NVIDIA: they should not be used in production nor retained in scripts, since they "
    "may result in sub-optimal behaviour, crashes, or hangs.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Take them out of this shell, then out of the profile, job script or image that sets them",
            "unset <names>",
            verify="env | grep NCCL_",
            where="shell",
        ),
    ),
    references=(GUIDE,),
)

FILE = Problem(
    id="nccl-conf-leftovers",
    title="A configuration file of NCCL holds settings that cost speed",
    why="NCCL reads this file in every job, whatever its environment. The settings are for debugging, and may result in "
    "sub-optimal behaviour, crashes, or hangs.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Take the lines out",
            'for name in <names>; do (cd && sudo sed -i "/^ *$name *=/d" <file>); done',
            verify="grep -s NCCL_ /etc/nccl.conf ~/.nccl.conf",
            kind="set",
            needs=("root",),
        ),
    ),
    references=(GUIDE,),
)

NAME_ANOTHER = Fix("Name one that is here; the variable counts before a file", "export NCCL_SOCKET_IFNAME=<there>", where="shell")
WITHOUT_LINE = Fix(
    "Take the line out of the file, so that NCCL chooses",
    '(cd && sudo sed -i "/^ *NCCL_SOCKET_IFNAME *=/d" <file>)',
    verify="grep -s NCCL_ /etc/nccl.conf ~/.nccl.conf",
    kind="set",
    needs=("root",),
)
VIRTUAL = re.compile(
    r"lo$ | docker | br- | virbr | veth | cni | flannel | cali | tunl | podman | lxc | tailscale | wg | dummy | kube",
    re.VERBOSE,
)

INTERFACE = Problem(
    id="nccl-socket-interface-missing",
    title="NCCL_SOCKET_IFNAME names no network interface of this machine",
    why="NCCL's processes find each other over the interfaces that the variable allows, also on one machine. Where none of them "
    "is there, every job ends with 'Bootstrap : no socket interface found'.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Let NCCL choose", "unset NCCL_SOCKET_IFNAME", verify="env | grep NCCL_", where="shell"),
        NAME_ANOTHER,
        look("See what the interfaces are called here; the variable takes beginnings of names", "ip -br addr"),
    ),
    references=(GUIDE,),
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from for_each((interface, leftovers), lambda part: part(facts))


def interface(facts: Facts) -> Iterator[Finding]:
    """`eth,ib` allows names that begin so, `=eth0` this name alone, and `^docker` all others."""
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
    """Whether NCCL has something to do on this machine."""
    try:
        return facts.nvml.count > 1 or bool(facts.nccl_log.settings)
    except Skip:
        return bool(facts.nccl_log.settings)


def leftovers(facts: Facts) -> Iterator[Finding]:
    told = facts.nccl_log.settings
    variables = {name: value for name, value in {**told, **asked(facts)}.items() if is_leftover(name, value)}
    if variables:
        yield ENVIRONMENT.found(in_words(variables), {"names": sorted(variables)})
    files: dict[str, dict[str, str]] = {}
    for name, setting in facts.environment.nccl.items():
        if setting.source != "environment" and is_leftover(name, setting.value):
            files.setdefault(setting.source, {})[name] = setting.value
    for file, values in sorted(files.items()):
        # Relative to the home folder, which the command enters: a quoted ~ would not be expanded.
        evidence = {"names": sorted(values), "file": file.removeprefix("~/")}
        yield FILE.found(f"{file}: {in_words(values)}", evidence)


def asked(facts: Facts) -> dict[str, str]:
    """The variables of this environment; none where only the log of a job is known."""
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
    return f"harmless: {', '.join(names)}" if names else "no NCCL variables are set"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(ENVIRONMENT, FILE, INTERFACE),
)
