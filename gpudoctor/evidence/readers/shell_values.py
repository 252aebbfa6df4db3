"""Commands whose output is a value: echo $X, uname -r, id, mokutil, getenforce, nproc, date."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply
from gpudoctor.worker.probes import environment

_ID = re.compile(r"uid=(\d+)\([^)]*\) gid=(\d+)\([^)]*\)(?: groups=(\S+))?")
_PERSONAL = 1000  # ids from here on name people


def _first(output: str) -> str:
    return next((line.strip() for line in output.splitlines() if line.strip()), "")


def _echo(command: str, output: str) -> dict[str, Reply] | None:
    """An empty line is an unset or empty variable."""
    match = re.search(r"\$\{?(\w+)", command) or re.search(r"printenv (\w+)", command)
    value = output.splitlines()[0].strip() if output.splitlines() else ""
    found = environment.variables({match[1]: value}) if match else {}
    return {"environment": Reply("ok", found)} if found else None


def _set(command: str, output: str) -> dict[str, Reply] | None:
    """`export NAME=VALUE`, or NAME=VALUE before a command."""
    words = re.findall(r"(?:^|\s)([A-Z][A-Z0-9_]+)=(\"[^\"]*\"|'[^']*'|\S*)", command)
    found = environment.variables({name: value.strip("\"'") for name, value in words if "$" not in value})
    return {"environment": Reply("ok", found)} if found else None


def _release(command: str, output: str) -> dict[str, Reply] | None:
    release = _first(output)
    if not re.fullmatch(r"\d+\.\d+\S*", release):
        return None
    machine = next((name for name in ("x86_64", "aarch64", "ppc64le") if name in release), None)
    return {"uname": Reply("ok", {"release": release, "machine": machine, "sysname": "Linux"})}


def _identity(command: str, output: str) -> dict[str, Reply] | None:
    match = _ID.search(output)
    if not match:
        return None
    groups = dict(re.findall(r"(\d+)\(([^)]*)\)", match[3] or ""))
    named = {number: name if int(number) < _PERSONAL else "" for number, name in groups.items()}
    return {"shown-identity": Reply("ok", {"uid": int(match[1]), "gid": int(match[2]), "groups": named})}


def _groups(command: str, output: str) -> dict[str, Reply] | None:
    """Names alone; they begin with the user's own unless `groups NAME` names the user first."""
    names = _first(output).split(" : ")[-1].split()
    if not names or not all(re.fullmatch(r"[a-z_][\w.-]*", name) for name in names):
        return None
    uid = 0 if "root" in names else _PERSONAL
    return {"shown-identity": Reply("ok", {"uid": uid, "gid": uid, "groups": {str(at): name for at, name in enumerate(names)}})}


def _secure_boot(command: str, output: str) -> dict[str, Reply] | None:
    match = re.search(r"Secure ?Boot:? (enabled|disabled)", output)
    return {"secure-boot": Reply("ok", int(match[1] == "enabled"))} if match else None


def _selinux(command: str, output: str) -> dict[str, Reply] | None:
    word = _first(output)
    return {"file:/sys/fs/selinux/enforce": Reply("ok", "1" if word == "Enforcing" else "0")} if word else None


def _date(command: str, output: str) -> dict[str, Reply] | None:
    match = re.search(r"\b(19[6-9]\d|20\d\d)\b", _first(output))
    return {"shown-year": Reply("ok", int(match[1]))} if match else None


def _capabilities(text: str) -> dict[str, Reply] | None:
    """The variable where an engine sets it: docker run -e, ENV, a compose file, a pod."""
    match = _CAPABILITIES.search(text)
    found = environment.variables({"NVIDIA_DRIVER_CAPABILITIES": match["value"]}) if match else {}
    return {"environment": Reply("ok", found)} if found else None


def _of_unit(text: str) -> dict[str, Reply] | None:
    """The variables of a service: Environment= of its unit, or of systemctl show."""
    found = environment.variables({match["name"]: match["value"].strip("\"'") for match in _IN_UNIT.finditer(text)})
    return {"environment": Reply("ok", found)} if found else None


_UNIT = re.compile(r"^\s*Environment=[\"']?[A-Z]\w*=")
_IN_UNIT = re.compile(r"(?:[=\s\"']|^)(?P<name>[A-Z][A-Z0-9_]+)=(?P<value>[^\s\"']*)")
_CAPABILITIES = re.compile(
    r"""
    \bNVIDIA_DRIVER_CAPABILITIES (?: = | :[ ] | [ ]+ ) ["']?
    (?P<value> (?: all | compute | compat32 | graphics | utility | video | display | ngx )\b[\w,]* )
    """,
    re.VERBOSE,
)


def _command_line(text: str) -> dict[str, Reply]:
    found = _COMMAND_LINE.search(text)
    return {"file:/proc/cmdline": Reply("ok", text[found.end() :].strip() + "\n")} if found else {}


_COMMAND_LINE = re.compile(r"(?:^\s*|\b[Kk]ernel command line: )(?=BOOT_IMAGE=\S)")
READERS = (
    Reader("the kernel's parameters", ("BOOT_IMAGE=",), _COMMAND_LINE, _command_line, re.compile(""), 1, once=True, alone=True),
    Reader("environment of a service", ("Environment=",), _UNIT, _of_unit, re.compile(""), 1),
    Reader(
        "capabilities of a container", ("NVIDIA_DRIVER_CAPABILITIES",), _CAPABILITIES, _capabilities, re.compile(""), 1, once=True
    ),
    prompts.reader(
        "the value of a variable",
        ("echo ", "printenv "),
        r"(?:echo\ [\"']?\$\{?\w+\}?[\"']?|printenv\ \w+)",
        _echo,
        inside=True,
        most_lines=3,
    ),
    prompts.reader(
        "a variable set in a session",
        ("export ", "CUDA_VISIBLE_DEVICES=", "NCCL_", "LD_LIBRARY_PATH="),
        r"(?:export\ )?(?:(?:CUDA|NCCL|NVIDIA|LD|PYTORCH|TORCH|UCX|TF|XLA|JAX)_\w+=\S*\s*)+(?:[^=]*)",
        _set,
        bare=False,
        most_lines=2,
    ),
    prompts.reader("uname -r", ("uname -r",), r"uname\ -r", _release, most_lines=3),
    prompts.reader("id", (" id", ">id"), r"id", _identity, bare=False, most_lines=3),
    prompts.reader("groups", ("groups",), r"groups(?:\ [\w$.-]+)?", _groups, bare=False, most_lines=3),
    prompts.reader("mokutil --sb-state", ("mokutil",), r"mokutil\ --sb-state", _secure_boot, most_lines=4),
    prompts.reader("bootctl status", ("bootctl",), r"bootctl(?:\ status)?(?:\ *\|.*)?", _secure_boot, most_lines=30),
    prompts.reader("getenforce", ("getenforce",), r"getenforce", _selinux, most_lines=3),
    prompts.reader("date", ("date",), r"date(?:\ -u)?", _date, bare=False, most_lines=3),
)
