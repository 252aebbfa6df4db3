"""`cat FILE` and its like, for the files that a machine is asked for, and the settings of modprobe."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.model import Reply

_PATH = r"""
    (?: /etc/[\w./@:*-]+
      | /(?:usr/)?lib/(?:modprobe\.d|udev)/[\w./-]+ | /usr/share/X11/[\w./-]+
      | /proc/[\w./-]+ | /sys/[\w./:@-]+ | /run/[\w./-]+ | /lib/modules/[\w./-]+
      | /var/(?:log|lib|snap|run)/[\w./-]+ | (?:~|\$HOME|/home/[\w.-]+)/\.[\w./-]+ )
"""
_INFINIBAND = re.compile(r"/sys/class/infiniband/[\w-]+/ports/\d+/(?:state|phys_state|link_layer)")
_WORDS = r"(?:cat|less|more|bat|tail|head|(?:e?grep|rg)\ (?:-\S+\ )*(?:'[^']*'|\"[^\"]*\"|\S+))\ (?:-\S+\ )*"
_REFUSED = re.compile(r"^(?:cat|less|more|head|tail|grep): .*: (No such file|Permission denied)")


def _file(command: str, output: str) -> dict[str, Reply] | None:
    path = re.sub(r"^(?:/home/[^/]+|\$HOME)/", "~/", command.split()[-1].strip("`\"'"))
    text = _unfenced(output)
    refused = _REFUSED.match(text)
    if "/modprobe.d" in path:
        return {"modprobe": Reply("ok", {} if refused else _found(path, text))} if text.strip() else None
    if "/udev/rules.d" in path and not refused:
        return {"udev-rules": Reply("ok", _found(path, text))} if text.strip() else None
    if path.startswith(("/etc/cdi/", "/var/run/cdi/")) and text.strip() and not refused:
        return {"cdi": Reply("ok", [{"path": path, "mtime": 0.0, "text": text}])}
    if path.endswith("/limits") and not refused:
        path = "/proc/self/limits"
    if refused:
        return {f"file:{path}": Reply("missing" if refused[1].startswith("No") else "denied", detail=refused[1])}
    if path.endswith(".json"):
        text = _json_part(text)
    port = {f"glob:{_folder(path)}": Reply("ok", [path])} if _INFINIBAND.fullmatch(path) else {}
    return {f"file:{path}": Reply("ok", text), **port} if text.strip() else None


def _found(path: str, text: str) -> dict[str, str]:
    """Path -> text; grep names the file before each line if there are several."""
    files: dict[str, str] = {}
    for line in text.splitlines():
        named = re.match(r"(/\S+?\.(?:conf|rules)):(?:\d+:)?(.*)", line)
        name, content = named.groups() if named else (path, line)
        files[name] = f"{files.get(name, '')}{content}\n"
    return files


def _folder(path: str) -> str:
    """The pattern that finds such files of all ports."""
    return re.sub(r"/infiniband/[\w-]+/ports/\d+/", "/infiniband/*/ports/*/", path)


def _unfenced(text: str) -> str:
    """Without the empty lines around a file."""
    return text.strip("\n") + "\n"


def _json_part(text: str) -> str:
    """Up to the last line that closes the object; prose of the post can follow it."""
    lines = text.splitlines()
    ends = [place for place, line in enumerate(lines) if line.rstrip().endswith("}")]
    return "\n".join(lines[: ends[-1] + 1]) + "\n" if ends and text.lstrip().startswith("{") else ""


READER = prompts.reader(
    "a file shown by cat",
    ("cat /", "cat ~", " /etc/modprobe.d", "less /", "more /", "tail /", "head /", "' /", '" /', "bat /"),
    rf"{_WORDS}{_PATH}",
    _file,
    files=True,
    most_lines=300,
)
