"""`docker info` and `systemctl status`, `is-active` or `is-enabled`: what runs, and how it is configured."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_INFO = {
    "Server Version": "ServerVersion",
    "Storage Driver": "Driver",
    "Cgroup Driver": "CgroupDriver",
    "Cgroup Version": "CgroupVersion",
    "Kernel Version": "KernelVersion",
    "Operating System": "OperatingSystem",
    "OSType": "OSType",
    "Architecture": "Architecture",
    "Default Runtime": "DefaultRuntime",
    "Docker Root Dir": "DockerRootDir",
}
_FIELD = re.compile(r"^\s*([A-Z][\w ]*?): (\S.*?)\s*$")
_UNIT = re.compile(r"^\s*[●○×*↻]?\s*([\w@.-]+\.(?:service|socket|target))(?: - .*)?\s*$")
_LOADED = re.compile(r"^\s*Loaded: (\S+)(?: \([^;)]*(?:; (\w+))?)?")
_ACTIVE = re.compile(r"^\s*Active: (\w+)(?: \((\w+)\))?(?: \(Result: ([\w-]+)\))?")
_RESULT = re.compile(r"\(Result: ([\w-]+)\)")
_ACTIVITY = ("active", "inactive", "failed", "activating")
_ENABLED = ("enabled", "disabled", "masked", "static")
PREFIX = "command:systemctl show from the text"


def _docker(text: str) -> dict[str, Reply] | None:
    said = {match[1]: match[2] for match in map(_FIELD.match, text.splitlines()) if match}
    if "Runtimes" not in said:
        return None
    info = {key: said[name] for name, key in _INFO.items() if name in said}
    options = re.search(r"Security Options:((?:\n\s{2,}\S.*)+)", text)
    devices = re.findall(r"cdi: (nvidia\.com/\S+)", text)
    found = {
        **info,
        "Runtimes": dict.fromkeys(said["Runtimes"].split(), ""),
        "SecurityOptions": re.findall(r"\n\s{2,4}(\w+)", options[1]) if options else [],
        "DiscoveredDevices": devices,
    }
    return {"docker": Reply("ok", {"endpoint": "unix:///var/run/docker.sock", "info": found, "version": {}})}


def _status(text: str) -> dict[str, Reply] | None:
    unit = _UNIT.match(text.splitlines()[0])
    lines = text.splitlines()
    loaded = next(filter(None, map(_LOADED.match, lines)), None)
    active = next(filter(None, map(_ACTIVE.match, lines)), None)
    if not (unit and loaded and active):
        return None
    result = _RESULT.search(text)
    return _shown(unit[1], loaded[1], active[1], active[2] or "", result[1] if result else "", loaded[2] or "")


def _shown(name: str, load: str, active: str = "", sub: str = "", result: str = "", enabled: str = "") -> dict[str, Reply]:
    names = ("Id", "LoadState", "ActiveState", "SubState", "Result", "UnitFileState")
    values = zip(names, (name, load, active, sub, result, enabled), strict=True)
    out = "".join(f"{key}={value}\n" for key, value in values if value)
    return {PREFIX: Reply("ok", {"code": 0, "out": out + "\n", "err": ""})}


def _is(command: str, output: str) -> dict[str, Reply] | None:
    """One word a line, for each unit of the command."""
    asked, *names = command.split()[1:] or [""]
    known = _ACTIVITY if asked == "is-active" else _ENABLED
    said = [(name if "." in name else f"{name}.service", word) for name, word in zip(names, output.split(), strict=False)]
    shown = [
        _shown(name, "loaded", active=word) if known is _ACTIVITY else _shown(name, "loaded", enabled=word)
        for name, word in said
        if word in known
    ]
    out = "".join(reply.value["out"] for replies in shown for reply in replies.values())
    return {PREFIX: Reply("ok", {"code": 0, "out": out, "err": ""})} if out else None


def _formatted(command: str, output: str) -> dict[str, Reply] | None:
    """`docker info --format '{{json .Runtimes}}'` and '{{.DefaultRuntime}}' print one field each."""
    field = re.search(r"\.(Runtimes|DefaultRuntime|OperatingSystem|CgroupDriver)\b", command)
    line = next((line.strip() for line in output.splitlines() if line.strip()), "")
    if not field or not line:
        return None
    names = re.findall(r"[\"'{\[ ]?([\w.-]+)[\"']?:\s*\{", line[1:] if line.startswith(("{", "map[")) else line)
    value = dict.fromkeys(names or re.findall(r"(?:map\[|\s)([\w.-]+):", line), "") if field[1] == "Runtimes" else line.strip('"')
    return {"docker": Reply("ok", {"endpoint": "unix:///var/run/docker.sock", "info": {field[1]: value}, "version": {}})}


READERS = (
    prompts.reader(
        "docker info --format",
        ("docker info",),
        r"docker\ info\ (?:--format|-f)[ =].*\{\{.*\}\}.*",
        _formatted,
        most_lines=4,
    ),
    Reader(
        "docker info",
        ("Server Version:", "Containers:", "Client: Docker", "Runtimes: "),
        re.compile(r"^\s*(?:Server Version: \S|Containers: \d+|Runtimes: \S|Client:(?: Docker.*)?$)"),
        _docker,
        re.compile(r"^\s*[$#] |^\S+@\S+[:~]|^```"),
        120,
    ),
    Reader(
        "systemctl status",
        (".service",),
        _UNIT,
        _status,
        re.compile(r"^\s*$|^(?!\s)(?![●○×*↻])"),
        40,
    ),
    prompts.reader(
        "systemctl is-active", ("systemctl is-",), r"systemctl\ is-(?:active|enabled)(?:\ [\w@.-]+)+", _is, most_lines=12
    ),
)
